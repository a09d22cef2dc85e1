//! Places the keys of jobs on a node for their users.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use nix::unistd::Uid;
use rms_model::{JobId, Owner, Run};
use rms_wire::Credentials;
use rms_wire::tls::CredentialsError;
use thiserror::Error;

use crate::spool::{entry_name, parse_entry_name};
use crate::supervisor::{Account, AccountError};

/// The key directories of one agent: one for each execution, with files that only its user can read. Other users than
/// the agent's own cannot write there: it would have to remove whatever they had made. They are separate from the
/// supervisors' folders, which are reused across jobs.
#[derive(Clone, Debug)]
pub struct KeyDirs {
    dir: PathBuf,
}

/// Why a key could not be placed.
#[derive(Debug, Error)]
pub enum PlaceError {
    #[error(transparent)]
    Account(#[from] AccountError),
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    #[error("cannot write in {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

impl KeyDirs {
    /// Creates the parent directory. Users must be able to traverse it, but not to list it.
    ///
    /// # Errors
    /// No permission, or no space.
    pub fn create(dir: &Path) -> io::Result<KeyDirs> {
        fs::create_dir_all(dir)?;
        fs::set_permissions(dir, fs::Permissions::from_mode(0o711))?;
        // The path is passed to jobs, which run in other directories.
        Ok(KeyDirs { dir: dir.canonicalize()? })
    }

    pub fn dir(&self, job: JobId, run: Run) -> PathBuf {
        self.dir.join(entry_name(job, run))
    }

    /// Places a key atomically: a reader finds all three files or none, and either the old key or the new one.
    pub(super) fn place(
        &self,
        job: JobId,
        run: Run,
        owner: &Owner,
        credentials: &Credentials,
    ) -> Result<(), PlaceError> {
        let account = Account::resolve(&owner.0)?;
        let (draft, place, before) =
            (self.temp_path("new", job, run), self.dir(job, run), self.temp_path("old", job, run));
        let write = |path: &Path| {
            let path = path.to_owned();
            move |source| PlaceError::Write { path, source }
        };
        let _left_over = remove(&draft);
        fs::DirBuilder::new().mode(0o700).create(&draft).map_err(write(&draft))?;
        credentials.write_for_owner(&draft)?;
        let (uid, gid) = (Some(account.uid.as_raw()), Some(account.gid.as_raw()));
        for entry in fs::read_dir(&draft).map_err(write(&draft))? {
            let path = entry.map_err(write(&draft))?.path();
            chown(&path, uid, gid).map_err(write(&path))?;
        }
        if account.uid != Uid::current() {
            chown(&draft, None, gid).map_err(write(&draft))?;
            fs::set_permissions(&draft, fs::Permissions::from_mode(0o710)).map_err(write(&draft))?;
        }
        let _left_over = remove(&before);
        match fs::rename(&place, &before) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(PlaceError::Write { path: place, source }),
        }
        fs::rename(&draft, &place).map_err(write(&place))?;
        let _gone_already = remove(&before);
        Ok(())
    }

    pub(super) fn remove(&self, job: JobId, run: Run) {
        let _never_there = remove(&self.dir(job, run));
    }

    /// Removes all other entries.
    pub(super) fn keep_only(&self, wanted: &[(JobId, Run)]) {
        let Ok(entries) = fs::read_dir(&self.dir) else { return };
        for entry in entries.filter_map(Result::ok) {
            let execution = entry.file_name().to_str().and_then(parse_entry_name);
            let is_wanted = execution.is_some_and(|execution| wanted.contains(&execution));
            if !is_wanted {
                let _gone_already = remove(&entry.path());
            }
        }
    }

    /// Returns a path that belongs to no execution, for files that are being placed or removed.
    fn temp_path(&self, word: &str, job: JobId, run: Run) -> PathBuf {
        self.dir.join(format!(".{word}-{}", entry_name(job, run)))
    }
}

/// Removes a directory and its files, and nothing deeper: older agents gave it to the user, who may have made any tree
/// there.
fn remove(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let _is_a_directory = fs::remove_file(entry?.path());
    }
    fs::remove_dir(dir)
}
