//! Serves a link of a job's own process: only calls about this run of the job, and not for long after its end.

use rms_api::Refused;
use std::sync::Arc;
use std::time::Duration;

use rms_api::call::traits::FromJob;
use rms_model::{Identity, JobId, Run};
use rms_wire::{ClientRequest, Link};

use super::{SessionError, client};
use crate::inbox::WatchError;
use crate::registry::Quota;
use crate::shared::Shared;

/// Long enough for the process to read the outcome, or that its certificate is no longer valid.
const LINGER: Duration = Duration::from_secs(5);

/// Serves the link until the link or the run ends.
pub async fn serve(link: &Link, quota: &Arc<Quota>, shared: &Arc<Shared>) -> Result<(), SessionError> {
    let Some((job, run)) = link.identity().as_job() else {
        return Err(SessionError::Violation("the certificate names no execution of a job"));
    };
    tokio::select! {
        served = client::serve(link, quota, shared) => served,
        () = ended(job, run, shared) => {
            link.close(&format!("run {run} of job {job} has ended"));
            Ok(())
        }
    }
}

/// Waits until this run has ended, and a little longer.
async fn ended(job: JobId, run: Run, shared: &Shared) {
    loop {
        let (found, mut changes) = match shared.inbox.watch(vec![job]).await {
            Ok(watched) => watched,
            Err(WatchError::Failing(_)) => {
                tokio::time::sleep(LINGER).await;
                continue;
            }
            // The link ends with the server.
            Err(WatchError::Stopping(_)) => return std::future::pending().await,
        };
        let is_there = found.iter().any(|found| found.change.run == run && !found.change.state.is_over());
        if !is_there {
            return tokio::time::sleep(LINGER).await;
        }
        while let Some(change) = changes.recv().await {
            if change.run != run || change.state.is_over() {
                return tokio::time::sleep(LINGER).await;
            }
        }
    }
}

/// Checks that a process of a job may make this request.
pub fn check(who: &Identity, request: &ClientRequest) -> Result<(), Refused> {
    let Some((own, _)) = who.as_job() else { return Ok(()) };
    let is_allowed = match request {
        ClientRequest::Call(call) => {
            let traits = call.traits();
            match traits.from_job {
                FromJob::Never => false,
                FromJob::AboutItself => traits.jobs.is_only(own),
                FromJob::Always => true,
            }
        }
        ClientRequest::Negotiator => true,
        ClientRequest::History(query) => query.jobs.as_slice() == [own],
        ClientRequest::Follow(order) => order.job == own && !order.input,
        ClientRequest::Watch(order) => order.jobs.as_slice() == [own],
        ClientRequest::Launcher | ClientRequest::Launchers | ClientRequest::Server => false,
    };
    if is_allowed {
        return Ok(());
    }
    let message = format_args!(
        "a process of job {own} may ask about it and the queue, negotiate for it and end it, and nothing else"
    );
    Err(Refused::new("not_allowed", message))
}

#[cfg(test)]
mod tests {
    use rms_api::call::Select;
    use rms_api::filter::JobFilter;
    use rms_api::{Call, Query};
    use rms_model::Role;

    use super::*;

    #[test]
    fn a_process_of_a_job_may_speak_of_its_own_job_alone() {
        let job = Identity::of_job(JobId(7), Run(2));
        let check = |call: Call| check(&job, &ClientRequest::Call(call)).is_ok();
        assert!(check(Call::ResizeDone { job: JobId(7), generation: 1 }));
        assert!(!check(Call::ResizeDone { job: JobId(8), generation: 1 }));
        let evolve = |job| Call::Evolve { job: JobId(job), stages: "2x1m".parse().expect("stages"), open: false };
        assert!(check(evolve(7)) && !check(evolve(8)));
        let free = |job| Call::FreeNodes { job: JobId(job), nodes: vec!["a2".to_owned()] };
        assert!(check(free(7)) && !check(free(8)));
        assert!(check(Call::Query(Query::Job(Select::Ids(vec![JobId(7)])))));
        assert!(!check(Call::Query(Query::Job(Select::Ids(vec![JobId(7), JobId(8)])))));
        assert!(!check(Call::Query(Query::Job(Select::All))));
        let details = |jobs| Call::Query(Query::Details(JobFilter { jobs, ..JobFilter::default() }));
        assert!(check(details(vec![JobId(7)])));
        assert!(!check(details(Vec::new())) && !check(details(vec![JobId(7), JobId(8)])));
        assert!(!check(Call::Query(Query::Negotiations { job: Some(JobId(8)) })));
        assert!(check(Call::Query(Query::Queue(Default::default()))) && !check(Call::Query(Query::Audit)));
        assert!(check(Call::Query(Query::Licences)));
        assert!(check(Call::Cancel { select: Select::Ids(vec![JobId(7)]) }));
        assert!(!check(Call::Cancel { select: Select::Ids(vec![JobId(8)]) }));
        assert!(!check(Call::Cancel { select: Select::User("ada".to_owned()) }));
        assert!(!check(Call::Query(Query::Status)));
    }

    #[test]
    fn others_are_not_bound_by_that() {
        let ann = Identity { role: Role::User, name: "ann".to_owned() };
        assert_eq!(check(&ann, &ClientRequest::Launchers), Ok(()));
    }
}
