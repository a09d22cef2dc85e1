//! Watches the states of jobs; reconnects when the link breaks.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use rms_api::answer::{JobChange, JobState};
use rms_model::{JobId, Run};
use rms_wire::{Backoff, ClientRequest, Followed};
use tokio::sync::mpsc;

use super::follow::{RECONNECT_PATIENCE, is_protocol_error, is_transient};
use super::submissions::Submissions;
use super::{Client, begin};
use crate::error::CallError;

/// State changes of jobs, until all of them have ended. Dropping it stops watching.
#[derive(Debug)]
pub struct Watch {
    /// When full, nothing more is read from the server, which drops a watcher that lags too far behind; then we ask
    /// again.
    changes: mpsc::Receiver<Result<JobChange, CallError>>,
}

impl Watch {
    pub(crate) fn start(client: Client, jobs: Vec<JobId>) -> Watch {
        Watch::start_with(client, jobs, REFUSED_PATIENCE)
    }

    fn start_with(client: Client, jobs: Vec<JobId>, patience: Duration) -> Watch {
        let (sender, changes) = mpsc::channel(64);
        let open = jobs.into_iter().collect();
        tokio::spawn(async move {
            let known = Submissions::default();
            let mut watcher = Watcher { client, open, known, last: BTreeMap::new(), patience, sender };
            if let Err(error) = watcher.run().await {
                // The receiver may have been dropped.
                let _ = watcher.sender.send(Err(error)).await;
            }
        });
        Watch { changes }
    }

    /// Waits for the next change: first the current state of each job, then its changes. `None` once all jobs have ended.
    /// Cancel safe.
    ///
    /// # Errors
    /// A job does not exist, another job has its number now, or the server is unreachable for too long. Nothing comes
    /// after an error.
    pub async fn next(&mut self) -> Result<Option<JobChange>, CallError> {
        self.changes.recv().await.transpose()
    }
}

/// Returns whether the job has ended for its watchers; its ghost may still exist.
pub(crate) fn has_ended(change: &JobChange) -> bool {
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

/// How long to retry refusals: a server whose disk is full refuses queries for an ended job until there is space.
const REFUSED_PATIENCE: Duration = Duration::from_secs(20);

/// The most jobs that the server watches for one client at a time.
const MAX_JOBS: usize = 10_000;

struct Watcher {
    client: Client,
    open: BTreeSet<JobId>,
    known: Submissions,
    /// The last reported state of each job, so that it is not reported again after a reconnection.
    last: BTreeMap<JobId, (Run, JobState)>,
    /// How long a temporary refusal is retried before it is reported.
    patience: Duration,
    sender: mpsc::Sender<Result<JobChange, CallError>>,
}

impl Watcher {
    async fn run(&mut self) -> Result<(), CallError> {
        let mut backoff = Backoff::default();
        let mut refused_since = None;
        while !self.open.is_empty() && !self.sender.is_closed() {
            let link = self.client.link(RECONNECT_PATIENCE).await?;
            // The other jobs are watched once these have ended.
            let jobs = self.open.iter().take(MAX_JOBS).copied().collect();
            let Some(mut channel) = begin(&link, &ClientRequest::Watch(rms_wire::Watch { jobs })).await else {
                self.client.pause(backoff.delay()).await;
                continue;
            };
            channel.finish();
            let mut received_any = false;
            let ended = loop {
                let received = tokio::select! {
                    received = channel.recv::<Followed>() => received,
                    () = self.sender.closed() => return Ok(()),
                };
                match received {
                    Ok(Some(Followed::Change(change))) => {
                        self.known.check(&change)?;
                        received_any = true;
                        self.report(change).await;
                    }
                    Ok(Some(Followed::Refused(refused))) if is_transient(&refused) => {
                        if refused_since.get_or_insert_with(Instant::now).elapsed() > self.patience {
                            return Err(CallError::Refused(refused));
                        }
                        break false;
                    }
                    Ok(Some(Followed::Refused(refused))) => return Err(CallError::Refused(refused)),
                    // Output was not requested.
                    Ok(Some(
                        Followed::Chunk(_)
                        | Followed::Missing(_)
                        | Followed::Away { .. }
                        | Followed::Whole { .. }
                        | Followed::Taken { .. },
                    )) => {}
                    Ok(Some(Followed::End)) => break true,
                    Err(error) if is_protocol_error(&error) => return Err(CallError::Interrupted(error)),
                    Ok(None) | Err(_) => break false,
                }
            };
            if ended && !received_any {
                // The server does not know the remaining jobs; asking again would not help.
                return Ok(());
            }
            // The server has dropped us, or the link broke: ask again for the jobs that are still open. Back off if the
            // server drops us each time.
            if received_any {
                backoff.reset();
                refused_since = None;
            } else {
                self.client.pause(backoff.delay()).await;
            }
        }
        Ok(())
    }

    async fn report(&mut self, change: JobChange) {
        let state = (change.run, change.state);
        let is_news = self.last.insert(change.job, state) != Some(state);
        if has_ended(&change) {
            self.open.remove(&change.job);
        }
        if is_news {
            // The receiver may have been dropped; the loop notices that.
            let _ = self.sender.send(Ok(change)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};
    use std::path::Path;
    use std::time::{SystemTime, UNIX_EPOCH};

    use crate::client::follow::FollowEvent;
    use rms_api::Refused;
    use rms_model::{Identity, Outcome, Role, Span, Time};
    use rms_wire::tls::draw_serial;
    use rms_wire::{Accepted, Authority, Channel, Credentials, Endpoint, Link, NewKey, Revoked, Serve};

    use super::*;

    fn credentials(authority: &Authority, role: Role, name: &str) -> Credentials {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
        let now = Time::from_millis(now.as_millis() as i64);
        let (key, identity) = (NewKey::generate().expect("a key"), Identity::new(role, name).expect("a name"));
        let (from, until) = (now - Span::from_mins(1), now + Span::from_hours(1));
        let chain = authority.sign(key.csr_der(), &identity, &draw_serial(), from, until).expect("a certificate");
        key.into_credentials(&chain, authority.ca_pem()).expect("credentials")
    }

    /// Serves the user ann, who owns this directory; `answer` gets the channel of each call and the number of earlier
    /// calls.
    fn serve<A: Future<Output = ()> + Send>(
        dir: &Path,
        answer: impl Fn(usize, Link, Channel) -> A + Send + 'static,
    ) -> SocketAddr {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
        let now = Time::from_millis(now.as_millis() as i64);
        let authority = Authority::create(&dir.join("ca"), "d", now).expect("an authority");
        let serve = Serve::Peers { roles: vec![Role::User], join: false, revoked: Revoked::new() };
        let server = credentials(&authority, Role::Server, "server");
        let server = Endpoint::bind((Ipv4Addr::LOCALHOST, 0).into(), &server, serve).expect("a port");
        let address = server.local_addr().expect("it is bound");
        credentials(&authority, Role::User, "ann").save(dir).expect("a client directory");
        tokio::spawn(async move {
            let mut n_calls = 0;
            while let Some(Accepted::Link(link)) = server.accept().await {
                while let Ok(mut channel) = link.accept().await {
                    let _asked = channel.recv::<ClientRequest>().await;
                    answer(n_calls, link.clone(), channel).await;
                    n_calls += 1;
                }
            }
        });
        address
    }

    /// A server that accepts the connection and dies before it answers, several times: the delays must not add up.
    #[tokio::test]
    async fn long_who_watches_is_back_soon_however_often_the_server_died() {
        const DEATHS: usize = 8;
        let dir = tempfile::tempdir().expect("a directory");
        let job = JobId(7);
        let address = serve(dir.path(), move |n_calls, link, mut channel| async move {
            if n_calls < DEATHS {
                return link.close("it dies");
            }
            let (nodes, outcome) = (Vec::new(), Some(Outcome::Completed));
            let change = JobChange { job, run: Run(1), state: JobState::Finished, nodes, outcome, submitted: None };
            for told in [Followed::Change(change), Followed::End] {
                channel.send(&told).await.expect("the client listens");
            }
            channel.finish();
            let _ = link.closed().await;
        });
        let client = Client::connect_as(dir.path(), &address.to_string()).await.expect("it serves");
        let mut watch = client.watch(vec![job]);
        // With delays up to ten seconds it would take some fifteen.
        let told = tokio::time::timeout(Duration::from_secs(9), watch.next()).await.expect("soon");
        assert_eq!(told.expect("a change").expect("no error").job, job);
    }

    /// A server that was restored from a backup before every second call, and has given the job's number again.
    #[tokio::test]
    async fn a_job_that_has_the_number_of_another_is_not_taken_for_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let job = JobId(7);
        let on = move |state, submitted| {
            let submitted = Some(Time::from_secs(submitted));
            Followed::Change(JobChange { job, run: Run(1), state, nodes: Vec::new(), outcome: None, submitted })
        };
        let address = serve(dir.path(), move |n_calls, link, mut channel| async move {
            let is_restored = n_calls % 2 == 1;
            let told = if is_restored { on(JobState::Started, 900) } else { on(JobState::Waiting, 100) };
            channel.send(&told).await.expect("the client listens");
            if is_restored {
                return channel.finish();
            }
            let _ = tokio::time::timeout(Duration::from_millis(200), link.closed()).await;
            link.close("it is restored");
        });
        let client = Client::connect_as(dir.path(), &address.to_string()).await.expect("it serves");
        let within = Duration::from_secs(9);
        let mut watch = client.watch(vec![job]);
        let first = tokio::time::timeout(within, watch.next()).await.expect("soon").expect("a change");
        assert_eq!(first.map(|change| change.state), Some(JobState::Waiting));
        let then = tokio::time::timeout(within, watch.next()).await.expect("soon");
        assert!(matches!(then, Err(CallError::OtherJob(JobId(7)))), "{then:?}");
        let mut follow = client.follow(job, false);
        let first = tokio::time::timeout(within, follow.next()).await.expect("soon").expect("an event");
        assert!(matches!(&first, Some(FollowEvent::Change(change)) if change.state == JobState::Waiting), "{first:?}");
        let then = tokio::time::timeout(within, follow.next()).await.expect("soon");
        assert!(matches!(then, Err(CallError::OtherJob(JobId(7)))), "{then:?}");
    }

    #[tokio::test]
    async fn who_watches_hears_why_a_server_goes_on_to_refuse() {
        let dir = tempfile::tempdir().expect("a directory");
        let address = serve(dir.path(), |_n_calls, _link, mut channel| async move {
            let refused = Refused::new("history_behind", "the disk is full");
            channel.send(&Followed::Refused(refused)).await.expect("the client listens");
            channel.finish();
        });
        let client = Client::connect_as(dir.path(), &address.to_string()).await.expect("it serves");
        let mut watch = Watch::start_with(client, vec![JobId(7)], Duration::from_millis(100));
        let told = tokio::time::timeout(Duration::from_secs(9), watch.next()).await.expect("soon");
        assert!(matches!(&told, Err(CallError::Refused(refused)) if refused.kind == "history_behind"), "{told:?}");
    }
}
