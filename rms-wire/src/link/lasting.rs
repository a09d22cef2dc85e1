//! The state of an endpoint that outlives its process: the key of its stateless resets, and the list of its peers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rand::RngExt as _;

/// A peer's address, and our own address that it uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PeerAddress {
    pub remote: SocketAddr,
    pub local: Option<IpAddr>,
}

/// The list of the peers of one endpoint, in a directory of its own. Clones share the list.
///
/// The list is written as peers come and go, and never synced: it must survive the end of the process, not of the
/// machine. If the list is missing or wrong, peers notice a restart only at their next heartbeat.
#[derive(Clone, Debug)]
pub(super) struct PeerList(Arc<Mutex<Files>>);

#[derive(Debug)]
struct Files {
    path: PathBuf,
    list: File,
    n_lines: usize,
    present: BTreeMap<PeerAddress, usize>,
    /// Peers of the previous process, until they are back or given up.
    previous: BTreeSet<PeerAddress>,
    /// The endpoint is being closed: peers that leave now stay on the list, and get a knock after the restart.
    is_closing: bool,
}

/// A peer's entry on the list; it is removed on drop.
#[derive(Debug)]
pub(super) struct PeerEntry {
    peer_list: PeerList,
    peer: PeerAddress,
}

impl PeerList {
    /// # Errors
    /// The directory cannot be written.
    pub fn open(dir: &Path) -> io::Result<PeerList> {
        let path = dir.join("links");
        let previous = match fs::read_to_string(&path) {
            Ok(text) => parse(&text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeSet::new(),
            Err(error) => return Err(error),
        };
        let list = write_list(&path, previous.iter())?;
        let (n_lines, present) = (previous.len(), BTreeMap::new());
        Ok(PeerList(Arc::new(Mutex::new(Files { path, list, n_lines, present, previous, is_closing: false }))))
    }

    /// Returns the peers of the previous process that are not back.
    pub fn missing(&self) -> Vec<PeerAddress> {
        let files = self.files();
        files.previous.iter().filter(|peer| !files.present.contains_key(peer)).copied().collect()
    }

    /// Gives up the peers that are not back.
    pub fn clear_missing(&self) {
        let missing = self.missing();
        let mut files = self.files();
        files.previous.clear();
        for peer in missing {
            files.note('-', peer);
        }
    }

    pub fn list(&self, peer: PeerAddress) -> PeerEntry {
        let mut files = self.files();
        let n_links = files.present.entry(peer).or_insert(0);
        *n_links += 1;
        if *n_links == 1 {
            files.note('+', peer);
        }
        PeerEntry { peer_list: self.clone(), peer }
    }

    pub fn close(&self) {
        self.files().is_closing = true;
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        // No change of the list can panic half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PeerEntry {
    fn drop(&mut self) {
        let mut files = self.peer_list.files();
        let Some(n_links) = files.present.get_mut(&self.peer) else { return };
        *n_links -= 1;
        if *n_links == 0 {
            files.present.remove(&self.peer);
            files.previous.remove(&self.peer);
            if !files.is_closing {
                files.note('-', self.peer);
            }
        }
    }
}

impl Files {
    fn note(&mut self, sign: char, peer: PeerAddress) {
        self.n_lines += 1;
        let n_listed = self.present.len() + self.previous.len();
        let written = if self.n_lines > 2 * n_listed + SPARE_LINES {
            let listed: BTreeSet<&PeerAddress> = self.present.keys().chain(&self.previous).collect();
            self.n_lines = listed.len();
            write_list(&self.path, listed.into_iter()).map(|list| self.list = list)
        } else {
            let mut line = String::new();
            add_line(&mut line, sign, &peer);
            self.list.write_all(line.as_bytes())
        };
        if let Err(error) = written {
            tracing::debug!(%error, path = %self.path.display(), "the list of links cannot be written");
        }
    }
}

/// Reads the key of stateless resets in `dir`, or creates it: peers of a killed process recognise resets made with it.
///
/// # Errors
/// The key can be neither read nor written.
pub(super) fn reset_key(dir: &Path) -> io::Result<[u8; 32]> {
    let path = dir.join("reset.key");
    match fs::read(&path) {
        Ok(bytes) => {
            if let Ok(key) = bytes.try_into() {
                return Ok(key);
            }
            // Truncated because the disk was full: a new key serves as well.
            fs::remove_file(&path)?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let key: [u8; 32] = rand::rng().random();
    let temporary = dir.join("reset.key.tmp");
    write_private(&temporary, &key)?;
    fs::rename(&temporary, &path)?;
    Ok(key)
}

fn write_private(path: &Path, content: &[u8]) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content)?;
    Ok(file)
}

fn write_list<'a>(path: &Path, peers: impl Iterator<Item = &'a PeerAddress>) -> io::Result<File> {
    let mut text = String::new();
    for peer in peers {
        add_line(&mut text, '+', peer);
    }
    let temporary = path.with_extension("tmp");
    let file = write_private(&temporary, text.as_bytes())?;
    fs::rename(&temporary, path)?;
    Ok(file)
}

fn add_line(text: &mut String, sign: char, peer: &PeerAddress) {
    let local = peer.local.map_or_else(|| "-".to_owned(), |ip| ip.to_string());
    writeln!(text, "{sign} {} {local}", peer.remote).expect("a string takes everything");
}

/// Parses the list; ignores a line that was truncated by the end of the process.
fn parse(text: &str) -> BTreeSet<PeerAddress> {
    let mut peers = BTreeSet::new();
    for line in text.lines() {
        let mut words = line.split(' ');
        let (sign, remote, local) = (words.next(), words.next(), words.next());
        let Some(remote) = remote.and_then(|remote| remote.parse().ok()) else { continue };
        let peer = PeerAddress { remote, local: local.and_then(|local| local.parse().ok()) };
        match sign {
            Some("+") if peers.len() < MAX_FORMER => drop(peers.insert(peer)),
            Some("-") => drop(peers.remove(&peer)),
            Some(_) | None => {}
        }
    }
    peers
}

/// The most outdated lines before the list is rewritten.
const SPARE_LINES: usize = 4096;

/// No endpoint has more links.
const MAX_FORMER: usize = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(port: u16) -> PeerAddress {
        PeerAddress {
            remote: ([10, 0, 0, 1], port).into(),
            local: port.is_multiple_of(2).then(|| [10, 0, 0, 9].into()),
        }
    }

    fn missing(dir: &Path) -> Vec<u16> {
        let peer_list = PeerList::open(dir).expect("a directory");
        peer_list.missing().iter().map(|peer| peer.remote.port()).collect()
    }

    #[test]
    fn who_had_a_link_when_the_process_ended_is_missing_and_who_left_before_is_not() {
        let dir = tempfile::tempdir().expect("a directory");
        let peer_list = PeerList::open(dir.path()).expect("a directory");
        let links: Vec<PeerEntry> = (1..=4).map(|port| peer_list.list(peer(port))).collect();
        let twice = peer_list.list(peer(4));
        drop(links);
        assert_eq!(missing(dir.path()), [4]);
        // The next process is killed before any peer has returned.
        assert_eq!(missing(dir.path()), [4]);
        drop(twice);
    }

    #[test]
    fn who_is_back_or_given_up_is_not_missed_any_more() {
        let dir = tempfile::tempdir().expect("a directory");
        let peer_list = PeerList::open(dir.path()).expect("a directory");
        std::mem::forget((1..=3).map(|port| peer_list.list(peer(port))).collect::<Vec<_>>());
        let next = PeerList::open(dir.path()).expect("a directory");
        drop(next.list(peer(1)));
        let stays = next.list(peer(2));
        assert_eq!(next.missing(), [peer(3)]);
        next.clear_missing();
        assert_eq!(missing(dir.path()), [2]);
        drop(stays);
    }

    #[test]
    fn an_endpoint_that_closes_in_order_misses_its_peers_too() {
        let dir = tempfile::tempdir().expect("a directory");
        let peer_list = PeerList::open(dir.path()).expect("a directory");
        let link = peer_list.list(peer(1));
        peer_list.close();
        drop(link);
        assert_eq!(missing(dir.path()), [1]);
    }

    #[test]
    fn the_list_does_not_grow_with_those_who_come_and_go() {
        let dir = tempfile::tempdir().expect("a directory");
        let peer_list = PeerList::open(dir.path()).expect("a directory");
        let stays = peer_list.list(peer(9));
        for _ in 0..3 * SPARE_LINES {
            drop(peer_list.list(peer(1)));
        }
        let n_bytes = fs::metadata(dir.path().join("links")).expect("it is there").len();
        assert!(n_bytes < 30 * 2 * SPARE_LINES as u64, "{n_bytes} bytes");
        assert_eq!(missing(dir.path()), [9]);
        drop(stays);
    }

    #[test]
    fn the_reset_key_is_the_owners_and_stays() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().expect("a directory");
        let key = reset_key(dir.path()).expect("a directory");
        assert_eq!(reset_key(dir.path()).expect("it is there"), key);
        let mode = fs::metadata(dir.path().join("reset.key")).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::write(dir.path().join("reset.key"), b"short").expect("ours");
        assert_eq!(reset_key(dir.path()).expect("a new one").len(), 32);
    }
}
