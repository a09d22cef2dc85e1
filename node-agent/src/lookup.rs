//! Lookups of accounts, off the agent's task: a directory service may take minutes to answer.

use nix::unistd::{Uid, User};
use tokio::sync::Semaphore;

use crate::supervisor::{Account, AccountError};

/// The most lookups at a time; others wait. If the directory service does not answer, queued work still gets threads.
static LOOKUPS: Semaphore = Semaphore::const_new(8);

/// Returns the account that a job runs as.
///
/// # Errors
/// See [`Account::resolve`].
pub async fn account(owner: String) -> Result<Account, AccountError> {
    look_up(move || Account::resolve(&owner)).await
}

/// Returns the id of a user; `None` if there is no such user on this node, or the lookup fails.
pub async fn uid(name: String) -> Option<Uid> {
    look_up(move || User::from_name(&name)).await.ok().flatten().map(|user| user.uid)
}

async fn look_up<T: Send + 'static>(lookup: impl FnOnce() -> T + Send + 'static) -> T {
    let permit = LOOKUPS.acquire().await.expect("it is never closed");
    let looked_up = tokio::task::spawn_blocking(move || {
        // Kept by the thread: a caller may leave before it has an answer.
        let _permit = permit;
        lookup()
    });
    looked_up.await.expect("a lookup does not panic")
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_lookup_that_hangs_holds_up_no_other_task() {
        let (release, hung) = mpsc::channel::<()>();
        let hanging = tokio::spawn(look_up(move || hung.recv().is_err()));
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(!hanging.is_finished());
        drop(release);
        assert!(hanging.await.expect("it ends"));
    }
}
