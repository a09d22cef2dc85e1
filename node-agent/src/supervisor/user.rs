//! The account that a job runs as: the owner's ids and groups on this node.

use std::ffi::CString;
use std::time::{Duration, Instant};

use nix::unistd::{Gid, Uid, User, getegid, geteuid, getgrouplist, setegid, seteuid, setgroups, setresgid, setresuid};
use thiserror::Error;

/// A resolved owner.
#[derive(Clone, Debug)]
pub struct Account {
    pub name: String,
    pub uid: Uid,
    pub gid: Gid,
    pub home: String,
    pub shell: String,
    /// Absent if this process cannot change its identity and need not.
    groups: Option<Vec<Gid>>,
}

/// The account that a supervisor looked up last. A lookup reads files, or queries a directory service.
#[derive(Debug, Default)]
pub struct AccountCache {
    last: Option<(Instant, Account)>,
}

/// Consecutive jobs mostly have one owner. Changes by an administrator take effect after this time.
const CACHE_TTL: Duration = Duration::from_secs(1);

impl AccountCache {
    /// # Errors
    /// See [`Account::resolve`].
    pub fn resolve(&mut self, owner: &str) -> Result<Account, AccountError> {
        let is_fresh = |(since, account): &&(Instant, Account)| account.name == owner && since.elapsed() < CACHE_TTL;
        if let Some((_, account)) = self.last.as_ref().filter(is_fresh) {
            return Ok(account.clone());
        }
        let account = Account::resolve(owner)?;
        self.last = Some((Instant::now(), account.clone()));
        Ok(account)
    }
}

/// Why no process can run as the owner here.
#[derive(Debug, Error)]
pub enum AccountError {
    #[error("there is no user '{0}' on this node")]
    Unknown(String),
    #[error("the agent runs as user {agent} and cannot run jobs of '{owner}': start it as root, or submit as {agent}")]
    NotOurs { agent: String, owner: String },
    #[error("cannot look up user '{owner}'")]
    Lookup { owner: String, source: nix::Error },
}

impl Account {
    /// # Errors
    /// The owner is unknown here, or is another user and this process is not root.
    pub fn resolve(owner: &str) -> Result<Account, AccountError> {
        let lookup = |source| AccountError::Lookup { owner: owner.to_owned(), source };
        let user = User::from_name(owner).map_err(lookup)?;
        let own_uid = geteuid();
        let is_own = user.as_ref().is_some_and(|user| user.uid == own_uid);
        if !own_uid.is_root() || is_own {
            // A lookup reads a whole file, or queries another program.
            let agent = if is_own { user.clone() } else { User::from_uid(own_uid).map_err(lookup)? };
            // In a container a user may have only a number.
            let agent_name = agent.as_ref().map_or_else(|| own_uid.to_string(), |agent| agent.name.clone());
            let is_unnamed = user.is_none() && agent_name == owner;
            if !is_own && !is_unnamed {
                return Err(AccountError::NotOurs { agent: agent_name, owner: owner.to_owned() });
            }
            let (home, shell) = agent.map_or_else(no_home, |agent| home_and_shell(&agent));
            return Ok(Account { name: owner.to_owned(), uid: own_uid, gid: getegid(), home, shell, groups: None });
        }
        let user = user.ok_or_else(|| AccountError::Unknown(owner.to_owned()))?;
        let name = CString::new(owner).map_err(|_| AccountError::Unknown(owner.to_owned()))?;
        let groups = getgrouplist(&name, user.gid).map_err(lookup)?;
        let (home, shell) = home_and_shell(&user);
        Ok(Account { name: user.name, uid: user.uid, gid: user.gid, home, shell, groups: Some(groups) })
    }

    /// Returns whether the owner is not the user of this process.
    pub fn is_other_user(&self) -> bool {
        self.groups.is_some()
    }

    /// Becomes the owner permanently; called in a child before it executes.
    ///
    /// # Errors
    /// The kernel refuses, for example because of a limit on the owner's processes.
    pub fn drop_privileges(&self) -> nix::Result<()> {
        let Some(groups) = &self.groups else { return Ok(()) };
        setgroups(groups)?;
        setresgid(self.gid, self.gid, self.gid)?;
        setresuid(self.uid, self.uid, self.uid)
    }

    /// Acts as the owner until the guard is dropped, so that opening a file requires the owner's permissions.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn impersonate(&self) -> nix::Result<IdentityGuard> {
        let Some(groups) = &self.groups else { return Ok(IdentityGuard(false)) };
        let guard = IdentityGuard(true);
        setgroups(groups)?;
        setegid(self.gid)?;
        seteuid(self.uid)?;
        Ok(guard)
    }
}

/// While this guard lives, the process acts as the owner.
#[derive(Debug)]
pub struct IdentityGuard(bool);

impl Drop for IdentityGuard {
    fn drop(&mut self) {
        if self.0 {
            let root = seteuid(Uid::from_raw(0)).and_then(|()| setegid(Gid::from_raw(0))).and_then(|()| setgroups(&[]));
            // A supervisor that keeps another identity could not end the job; a crash is cleaner: the agent notices it.
            root.expect("the saved user id is 0, so returning to it cannot be refused");
        }
    }
}

fn home_and_shell(user: &User) -> (String, String) {
    (user.dir.display().to_string(), user.shell.display().to_string())
}

fn no_home() -> (String, String) {
    ("/".to_owned(), "/bin/sh".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_looked_up_a_moment_ago_is_known_and_nobody_else() {
        let own = User::from_uid(geteuid()).expect("asked").expect("there is one").name;
        let mut accounts = AccountCache::default();
        let home = accounts.resolve(&own).expect("ourselves").home;
        let changed = |accounts: &mut AccountCache, since| {
            let (_, account) = accounts.last.as_ref().expect("it was just looked up");
            accounts.last = Some((since, Account { home: "/changed".to_owned(), ..account.clone() }));
        };
        changed(&mut accounts, Instant::now());
        assert_eq!(accounts.resolve(&own).expect("ourselves").home, "/changed", "it is not looked up again");
        assert!(matches!(
            accounts.resolve("nobody of this name"),
            Err(AccountError::Unknown(_) | AccountError::NotOurs { .. })
        ));
        changed(&mut accounts, Instant::now() - CACHE_TTL);
        assert_eq!(accounts.resolve(&own).expect("ourselves").home, home, "it was too long ago");
    }
}
