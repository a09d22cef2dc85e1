//! What outlives the process of an endpoint: the key of its stateless resets, and the peers that had links with it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rand::RngExt as _;

/// A peer's address, and our own one that it speaks with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Caller {
    pub remote: SocketAddr,
    pub local: Option<IpAddr>,
}

/// The files of one endpoint in a directory that is its own. Clones are the same one.
///
/// The list of peers is written as they come and go, and never synced: it is to survive the end of the process, not of
/// the machine. Without it, or with a wrong one, peers notice a restart at their next heartbeat.
#[derive(Clone, Debug)]
pub(super) struct Lasting(Arc<Mutex<Files>>);

#[derive(Debug)]
struct Files {
    path: PathBuf,
    list: File,
    n_lines: usize,
    present: BTreeMap<Caller, usize>,
    /// Those of the process before, until they are back or given up.
    former: BTreeSet<Caller>,
    /// The endpoint is being closed: who leaves now is to be told when it is back.
    is_closing: bool,
}

/// A peer that is on the list as long as this lives.
#[derive(Debug)]
pub(super) struct Listed {
    lasting: Lasting,
    caller: Caller,
}

impl Lasting {
    /// # Errors
    /// The directory cannot be written.
    pub fn open(dir: &Path) -> io::Result<Lasting> {
        let path = dir.join("links");
        let former = match fs::read_to_string(&path) {
            Ok(text) => parse(&text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeSet::new(),
            Err(error) => return Err(error),
        };
        let list = write_list(&path, former.iter())?;
        let (n_lines, present) = (former.len(), BTreeMap::new());
        Ok(Lasting(Arc::new(Mutex::new(Files { path, list, n_lines, present, former, is_closing: false }))))
    }

    /// Who had a link with the process before and is not back.
    pub fn missing(&self) -> Vec<Caller> {
        let files = self.files();
        files.former.iter().filter(|caller| !files.present.contains_key(caller)).copied().collect()
    }

    /// Nobody is waited for any more.
    pub fn give_up_missing(&self) {
        let missing = self.missing();
        let mut files = self.files();
        files.former.clear();
        for caller in missing {
            files.note('-', caller);
        }
    }

    pub fn list(&self, caller: Caller) -> Listed {
        let mut files = self.files();
        let n_links = files.present.entry(caller).or_insert(0);
        *n_links += 1;
        if *n_links == 1 {
            files.note('+', caller);
        }
        Listed { lasting: self.clone(), caller }
    }

    pub fn close(&self) {
        self.files().is_closing = true;
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        // No change of it can panic half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut files = self.lasting.files();
        let Some(n_links) = files.present.get_mut(&self.caller) else { return };
        *n_links -= 1;
        if *n_links == 0 {
            files.present.remove(&self.caller);
            files.former.remove(&self.caller);
            if !files.is_closing {
                files.note('-', self.caller);
            }
        }
    }
}

impl Files {
    fn note(&mut self, sign: char, caller: Caller) {
        self.n_lines += 1;
        let n_listed = self.present.len() + self.former.len();
        let written = if self.n_lines > 2 * n_listed + SPARE_LINES {
            let listed: BTreeSet<&Caller> = self.present.keys().chain(&self.former).collect();
            self.n_lines = listed.len();
            write_list(&self.path, listed.into_iter()).map(|list| self.list = list)
        } else {
            let mut line = String::new();
            add_line(&mut line, sign, &caller);
            self.list.write_all(line.as_bytes())
        };
        if let Err(error) = written {
            tracing::debug!(%error, path = %self.path.display(), "the list of links cannot be written");
        }
    }
}

/// The key of stateless resets in `dir`, made if there is none: peers of a process that was killed know what it signs.
///
/// # Errors
/// It can be neither read nor written.
pub(super) fn reset_key(dir: &Path) -> io::Result<[u8; 32]> {
    let path = dir.join("reset.key");
    match fs::read(&path) {
        Ok(bytes) => {
            if let Ok(key) = bytes.try_into() {
                return Ok(key);
            }
            // Cut short by a full disk: another one does as well.
            fs::remove_file(&path)?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let key: [u8; 32] = rand::rng().random();
    let aside = dir.join("reset.key.tmp");
    write_private(&aside, &key)?;
    fs::rename(&aside, &path)?;
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

fn write_list<'a>(path: &Path, callers: impl Iterator<Item = &'a Caller>) -> io::Result<File> {
    let mut text = String::new();
    for caller in callers {
        add_line(&mut text, '+', caller);
    }
    let aside = path.with_extension("tmp");
    let file = write_private(&aside, text.as_bytes())?;
    fs::rename(&aside, path)?;
    Ok(file)
}

fn add_line(text: &mut String, sign: char, caller: &Caller) {
    let local = caller.local.map_or_else(|| "-".to_owned(), |ip| ip.to_string());
    writeln!(text, "{sign} {} {local}", caller.remote).expect("a string takes everything");
}

/// What the lines leave; one that was cut short by the end of the process counts for nothing.
fn parse(text: &str) -> BTreeSet<Caller> {
    let mut callers = BTreeSet::new();
    for line in text.lines() {
        let mut words = line.split(' ');
        let (sign, remote, local) = (words.next(), words.next(), words.next());
        let Some(remote) = remote.and_then(|remote| remote.parse().ok()) else { continue };
        let caller = Caller { remote, local: local.and_then(|local| local.parse().ok()) };
        match sign {
            Some("+") if callers.len() < MAX_FORMER => drop(callers.insert(caller)),
            Some("-") => drop(callers.remove(&caller)),
            Some(_) | None => {}
        }
    }
    callers
}

/// Lines beyond those that count, before the list is written anew.
const SPARE_LINES: usize = 4096;

/// No endpoint has more links.
const MAX_FORMER: usize = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(port: u16) -> Caller {
        Caller { remote: ([10, 0, 0, 1], port).into(), local: port.is_multiple_of(2).then(|| [10, 0, 0, 9].into()) }
    }

    fn missing(dir: &Path) -> Vec<u16> {
        let lasting = Lasting::open(dir).expect("a directory");
        lasting.missing().iter().map(|caller| caller.remote.port()).collect()
    }

    #[test]
    fn who_had_a_link_when_the_process_ended_is_missing_and_who_left_before_is_not() {
        let dir = tempfile::tempdir().expect("a directory");
        let lasting = Lasting::open(dir.path()).expect("a directory");
        let links: Vec<Listed> = (1..=4).map(|port| lasting.list(caller(port))).collect();
        let twice = lasting.list(caller(4));
        drop(links);
        assert_eq!(missing(dir.path()), [4]);
        // The next process is killed before anybody was back.
        assert_eq!(missing(dir.path()), [4]);
        drop(twice);
    }

    #[test]
    fn who_is_back_or_given_up_is_not_missed_any_more() {
        let dir = tempfile::tempdir().expect("a directory");
        let lasting = Lasting::open(dir.path()).expect("a directory");
        std::mem::forget((1..=3).map(|port| lasting.list(caller(port))).collect::<Vec<_>>());
        let next = Lasting::open(dir.path()).expect("a directory");
        drop(next.list(caller(1)));
        let stays = next.list(caller(2));
        assert_eq!(next.missing(), [caller(3)]);
        next.give_up_missing();
        assert_eq!(missing(dir.path()), [2]);
        drop(stays);
    }

    #[test]
    fn an_endpoint_that_closes_in_order_misses_its_peers_too() {
        let dir = tempfile::tempdir().expect("a directory");
        let lasting = Lasting::open(dir.path()).expect("a directory");
        let link = lasting.list(caller(1));
        lasting.close();
        drop(link);
        assert_eq!(missing(dir.path()), [1]);
    }

    #[test]
    fn the_list_does_not_grow_with_those_who_come_and_go() {
        let dir = tempfile::tempdir().expect("a directory");
        let lasting = Lasting::open(dir.path()).expect("a directory");
        let stays = lasting.list(caller(9));
        for _ in 0..3 * SPARE_LINES {
            drop(lasting.list(caller(1)));
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
