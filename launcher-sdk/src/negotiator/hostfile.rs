//! Writes what an application holds as a hostfile for MPI launchers.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rms_api::negotiate::{HeldNode, Holding};

/// The format of a line of a hostfile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostfileStyle {
    /// `name`.
    Names,
    /// `name slots=cpus`: Open MPI.
    OpenMpi,
    /// `name:cpus`: MPICH and Intel MPI.
    Mpich,
}

/// Returns one line for each node that is ready and not to be left, the first node first.
pub(super) fn text(holding: &Holding, style: HostfileStyle) -> String {
    let mut text = format!("# generation {}\n", holding.generation);
    for node in staying(holding) {
        let cpus = node.cpus.max(1);
        let _infallible = match style {
            HostfileStyle::Names => writeln!(text, "{}", node.name),
            HostfileStyle::OpenMpi => writeln!(text, "{} slots={cpus}", node.name),
            HostfileStyle::Mpich => writeln!(text, "{}:{cpus}", node.name),
        };
    }
    text
}

/// Returns the nodes that the application can use and will keep.
pub(super) fn staying(holding: &Holding) -> impl Iterator<Item = &HeldNode> {
    holding.nodes.iter().filter(|node| !node.is_departing && !node.is_coming)
}

/// Writes the file atomically: readers see the old nodes or the new ones. A symbolic link stays, and what it leads to is
/// replaced. What is no regular file is left alone.
pub(super) fn write(holding: &Holding, path: &Path, style: HostfileStyle) -> io::Result<()> {
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if fs::symlink_metadata(path).is_ok_and(|found| !found.is_file() && !found.is_symlink()) {
        return Err(io::Error::other("it is there, and is no regular file"));
    }
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    // Several threads may write the same file; each renames only what it has written itself.
    static N_WRITTEN: AtomicU64 = AtomicU64::new(0);
    let number = N_WRITTEN.fetch_add(1, Ordering::Relaxed);
    let aside = path.with_file_name(format!(".{name}.{}.{number}", std::process::id()));
    let written = write_anew(&aside, text(holding, style).as_bytes()).and_then(|()| fs::rename(&aside, path));
    if written.is_err() {
        // Do not leave an unfinished file behind.
        let _absent = fs::remove_file(&aside);
    }
    written
}

fn write_anew(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = fs::File::create(path)?;
    file.write_all(bytes)
}

#[cfg(test)]
mod tests {
    use rms_model::{ClusterId, NodeId, Time};

    use super::*;

    fn holding() -> Holding {
        let node = |idx: u32, is_departing| HeldNode {
            node: NodeId(idx),
            name: format!("n{idx}"),
            cluster: ClusterId(0),
            cluster_name: "a".to_owned(),
            address: format!("10.0.0.{idx}:7000"),
            cpus: 4 * idx,
            cores: 0,
            memory: Default::default(),
            devices: Default::default(),
            is_departing,
            is_coming: false,
        };
        let coming = HeldNode { is_coming: true, ..node(5, false) };
        Holding {
            generation: 3,
            nodes: vec![node(2, false), node(1, true), node(0, false), coming],
            until: Time::EPOCH,
            stages: None,
            licences: Default::default(),
        }
    }

    #[test]
    fn each_library_reads_its_own_form_and_no_node_that_is_being_left_or_prepared() {
        let check = |style, expected: &str| assert_eq!(text(&holding(), style), expected);
        check(HostfileStyle::Names, "# generation 3\nn2\nn0\n");
        check(HostfileStyle::OpenMpi, "# generation 3\nn2 slots=8\nn0 slots=1\n");
        check(HostfileStyle::Mpich, "# generation 3\nn2:8\nn0:1\n");
    }

    #[test]
    fn the_file_is_replaced_as_a_whole() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("nodes");
        std::fs::write(&path, "older\n".repeat(100)).expect("written");
        write(&holding(), &path, HostfileStyle::Names).expect("written");
        assert_eq!(std::fs::read_to_string(&path).expect("there"), "# generation 3\nn2\nn0\n");
        assert_eq!(std::fs::read_dir(dir.path()).expect("there").count(), 1, "nothing is left beside it");
        assert!(write(&holding(), Path::new("/"), HostfileStyle::Names).is_err());
        let (link, socket) = (dir.path().join("link"), dir.path().join("socket"));
        std::os::unix::fs::symlink(&path, &link).expect("ours");
        write(&holding(), &link, HostfileStyle::Mpich).expect("written");
        assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
        assert_eq!(fs::read_to_string(&path).expect("there"), "# generation 3\nn2:8\nn0:1\n");
        let _listens = std::os::unix::net::UnixListener::bind(&socket).expect("ours");
        assert!(write(&holding(), &socket, HostfileStyle::Names).is_err());
        assert!(!fs::symlink_metadata(&socket).expect("there").is_file(), "it is a socket as before");
    }

    #[test]
    fn threads_that_write_the_same_file_are_not_in_each_others_way() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("nodes");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        write(&holding(), &path, HostfileStyle::Names).expect("written");
                        assert_eq!(std::fs::read_to_string(&path).expect("there"), "# generation 3\nn2\nn0\n");
                    }
                });
            }
        });
        assert_eq!(std::fs::read_dir(dir.path()).expect("there").count(), 1, "nothing is left beside it");
    }
}
