//! Reads and writes key and certificate files: atomically, and secret ones readable by their owner only.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use thiserror::Error;

/// The operation that failed, and its file.
#[derive(Debug, Error)]
pub enum FileError {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// Who may read a file.
#[derive(Clone, Copy, Debug)]
pub enum Access {
    Owner,
    Everybody,
}

pub fn read(path: &Path) -> Result<String, FileError> {
    fs::read_to_string(path).map_err(|source| FileError::Read { path: path.to_owned(), source })
}

/// Reads a private key. Whoever else may read it can act as its owner, of which the log warns.
pub fn read_key(path: &Path) -> Result<String, FileError> {
    let text = read(path)?;
    let is_open = fs::metadata(path).is_ok_and(|known| known.mode() & 0o077 != 0);
    if is_open {
        tracing::warn!(
            "others may use the private key {0}: chmod 600 {0}, and replace it if they have",
            path.display()
        );
    }
    Ok(text)
}

pub fn make_dir(dir: &Path) -> Result<(), FileError> {
    fs::create_dir_all(dir).map_err(|source| FileError::Write { path: dir.to_owned(), source })
}

/// Writes a temporary file, syncs it, and renames it: a reader finds either the old text or the new one.
pub fn write(path: &Path, text: &str, access: Access) -> Result<(), FileError> {
    let aside = path.with_extension("tmp");
    let written = write_aside(&aside, text, access).and_then(|()| rename(&aside, path));
    written.map_err(|source| FileError::Write { path: path.to_owned(), source })
}

fn write_aside(aside: &Path, text: &str, access: Access) -> io::Result<()> {
    let mode = match access {
        Access::Owner => 0o600,
        Access::Everybody => 0o644,
    };
    // A left-over file could have a wider mode, which opening it would keep.
    match fs::remove_file(aside) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(aside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Writes a file that does not exist yet, readable by its owner only.
pub fn write_new(path: &Path, text: &str) -> Result<(), FileError> {
    let mut options = OpenOptions::new();
    let opened = options.write(true).create_new(true).mode(0o600).open(path);
    let written = opened.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|source| FileError::Write { path: path.to_owned(), source })
}

/// Removes a file, if it exists.
pub fn remove(path: &Path) -> Result<(), FileError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(FileError::Write { path: path.to_owned(), source })
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Renames a file durably.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    let dir = to.parent().unwrap_or(Path::new("/"));
    File::open(dir)?.sync_all()
}
