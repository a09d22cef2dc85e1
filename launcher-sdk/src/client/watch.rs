//! What becomes of some jobs, over as many links as it takes.

use std::collections::{BTreeMap, BTreeSet};

use rms_api::answer::{JobChange, JobState};
use rms_model::{JobId, Run};
use rms_wire::{Backoff, ClientRequest, Followed};
use tokio::sync::mpsc;

use super::Client;
use super::follow::{RECONNECT_PATIENCE, is_passing, is_wrong};
use crate::error::CallError;

/// Changes of jobs, until all of them have ended. Dropping it ends the watching.
#[derive(Debug)]
pub struct Watch {
    /// Full: nothing more is read from the server, which lets go of a watcher that lags too far; then we ask again.
    changes: mpsc::Receiver<Result<JobChange, CallError>>,
}

impl Watch {
    pub(crate) fn start(client: Client, jobs: Vec<JobId>) -> Watch {
        let (sender, changes) = mpsc::channel(64);
        let open = jobs.into_iter().collect();
        tokio::spawn(async move {
            let mut watching = Watching { client, open, last: BTreeMap::new(), sender };
            if let Err(error) = watching.run().await {
                // Nobody may be waiting any more.
                let _ = watching.sender.send(Err(error)).await;
            }
        });
        Watch { changes }
    }

    /// The next change: first what each job is now, then what it becomes. `None` once all have ended. May be
    /// cancelled.
    ///
    /// # Errors
    /// A job that nobody knows, or a server that is away for too long; nothing comes after an error.
    pub async fn next(&mut self) -> Result<Option<JobChange>, CallError> {
        self.changes.recv().await.transpose()
    }
}

/// Has this job ended for whoever waits for it? Its ghost may still be there.
pub(crate) fn is_over(change: &JobChange) -> bool {
    match change.state {
        JobState::Ghost | JobState::Finished => true,
        JobState::Submitted
        | JobState::Held
        | JobState::RequestSent
        | JobState::Waiting
        | JobState::Started
        | JobState::Ending => false,
    }
}

/// As many as the server watches for one asker at a time.
const MAX_JOBS: usize = 10_000;

struct Watching {
    client: Client,
    open: BTreeSet<JobId>,
    /// What was told last of each job, so that a new link does not tell it again.
    last: BTreeMap<JobId, (Run, JobState)>,
    sender: mpsc::Sender<Result<JobChange, CallError>>,
}

impl Watching {
    async fn run(&mut self) -> Result<(), CallError> {
        let mut backoff = Backoff::default();
        while !self.open.is_empty() && !self.sender.is_closed() {
            let link = self.client.link(RECONNECT_PATIENCE).await?;
            // What does not fit is asked for once these have ended.
            let jobs = self.open.iter().take(MAX_JOBS).copied().collect();
            let Ok(mut channel) = link.open().await else { continue };
            if channel.send(&ClientRequest::Watch(rms_wire::Watch { jobs })).await.is_err() {
                continue;
            }
            channel.finish();
            let mut heard = false;
            let ended = loop {
                let received = tokio::select! {
                    received = channel.recv::<Followed>() => received,
                    () = self.sender.closed() => return Ok(()),
                };
                match received {
                    Ok(Some(Followed::Change(change))) => {
                        heard = true;
                        self.tell(change).await;
                    }
                    Ok(Some(Followed::Refused(refused))) if is_passing(&refused) => break false,
                    Ok(Some(Followed::Refused(refused))) => return Err(CallError::Refused(refused)),
                    // Nobody asked for output.
                    Ok(Some(
                        Followed::Chunk(_) | Followed::Missing(_) | Followed::Away { .. } | Followed::Whole { .. },
                    )) => {}
                    Ok(Some(Followed::End)) => break true,
                    Err(error) if is_wrong(&error) => return Err(CallError::Interrupted(error)),
                    Ok(None) | Err(_) => break false,
                }
            };
            if ended && !heard {
                // It knows nothing of the jobs that are left, and would say so again.
                return Ok(());
            }
            // The server has let go of us, or the link broke: ask again for what is still open, but never in a
            // busy circle with a server that drops us each time.
            if heard {
                backoff.reset();
            } else {
                self.client.pause(backoff.delay()).await;
            }
        }
        Ok(())
    }

    async fn tell(&mut self, change: JobChange) {
        let state = (change.run, change.state);
        let is_news = self.last.insert(change.job, state) != Some(state);
        if is_over(&change) {
            self.open.remove(&change.job);
        }
        if is_news {
            // Nobody may be waiting any more; the loop sees it.
            let _ = self.sender.send(Ok(change)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    use rms_model::{Identity, Outcome, Role, Span, Time};
    use rms_wire::tls::draw_serial;
    use rms_wire::{Accepted, Authority, Credentials, Endpoint, NewKey, Revoked, Serve};

    use super::*;

    fn credentials(authority: &Authority, role: Role, name: &str) -> Credentials {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
        let now = Time::from_millis(now.as_millis() as i64);
        let (key, identity) = (NewKey::generate().expect("a key"), Identity::new(role, name).expect("a name"));
        let (from, until) = (now - Span::from_mins(1), now + Span::from_hours(1));
        let chain = authority.sign(key.csr_der(), &identity, &draw_serial(), from, until).expect("a certificate");
        key.into_credentials(&chain, authority.ca_pem()).expect("credentials")
    }

    /// A server that accepts each connection and dies before it answers, several times: the delays must not add up.
    #[tokio::test]
    async fn who_watches_is_back_soon_however_often_the_server_died() {
        const DEATHS: usize = 8;
        let dir = tempfile::tempdir().expect("a directory");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
        let now = Time::from_millis(now.as_millis() as i64);
        let authority = Authority::create(&dir.path().join("ca"), "d", now).expect("an authority");
        let serve = Serve::Peers { roles: vec![Role::User], join: false, revoked: Revoked::new() };
        let server = credentials(&authority, Role::Server, "server");
        let server = Endpoint::bind((Ipv4Addr::LOCALHOST, 0).into(), &server, serve).expect("a port");
        let address = server.local_addr().expect("it is bound");
        credentials(&authority, Role::User, "ann").save(dir.path()).expect("a client directory");
        let job = JobId(7);
        tokio::spawn(async move {
            for attempt in 0.. {
                let Some(Accepted::Link(link)) = server.accept().await else { return };
                let Ok(mut channel) = link.accept().await else { continue };
                let _asked = channel.recv::<ClientRequest>().await;
                if attempt < DEATHS {
                    link.close("it dies");
                    continue;
                }
                let (nodes, outcome) = (Vec::new(), Some(Outcome::Completed));
                let change = JobChange { job, run: Run(1), state: JobState::Finished, nodes, outcome };
                for told in [Followed::Change(change), Followed::End] {
                    channel.send(&told).await.expect("the client listens");
                }
                channel.finish();
                let _ = link.closed().await;
            }
        });
        let client = Client::connect_as(dir.path(), &address.to_string()).await.expect("it serves");
        let mut watch = client.watch(vec![job]);
        // With delays up to ten seconds it takes some fifteen.
        let told = tokio::time::timeout(Duration::from_secs(9), watch.next()).await.expect("soon");
        assert_eq!(told.expect("a change").expect("no error").job, job);
    }
}
