//! Serves one call of a client on a channel of its own.

use rms_api::Refused;
use rms_api::answer::LauncherReport;
use rms_api::call::HistoryQuery;
use std::sync::Arc;
use std::time::Duration;

use rms_api::call::Query;
use rms_api::{Answer, Call, Refusal};
use rms_model::{ClusterId, Identity, JobId, Role};
use rms_wire::link::{Channel, Sender};
use rms_wire::parts::answer_parts;
use rms_wire::tls::draw_serial;
use rms_wire::{AnswerPart, ClientRequest, Followed};

use super::join::{history_refused, renew, stopping};
use serde::de::IgnoredAny;

use super::{SessionError, follow, job, launcher, masks, negotiator, unparsed_call, watch};
use crate::history::Page;
use crate::inbox::Answered;
use crate::registry::Quota;
use crate::shared::Shared;

/// Reads the call and answers it.
pub async fn serve(
    channel: Channel,
    (who, serial): (&Identity, &str),
    quota: &Quota,
    shared: &Arc<Shared>,
) -> Result<(), SessionError> {
    let (mut sender, mut receiver) = channel.split();
    // The client may have given the channel up without a call. A call that has begun has the time of its frame.
    let Ok(begun) = tokio::time::timeout(CALL_TIMEOUT, receiver.next_kind()).await else { return Ok(()) };
    begun?;
    let Some((request, held)) = receiver.recv_or::<ClientRequest, IgnoredAny>().await? else { return Ok(()) };
    let request = match request {
        Ok(request) => request,
        // More often a user's mistake or a newer program than an attack.
        Err(unparsed) => return refuse(&mut sender, unparsed_call(&unparsed.error)).await,
    };
    if let Err(refused) = job::check(who, &request) {
        let is_stream = matches!(request, ClientRequest::Follow(_) | ClientRequest::Watch(_));
        return if is_stream { refuse_stream(&mut sender, refused).await } else { refuse(&mut sender, refused).await };
    }
    let (_ours, _everybodys) = match &request {
        // These wait for agents, so they take no place that other users need.
        ClientRequest::Call(Call::Query(Query::Masks(_)) | Call::SetMask { .. }) => {
            (quota.queries.acquire().await.ok(), None)
        }
        ClientRequest::Call(Call::Query(_)) | ClientRequest::History(_) | ClientRequest::Launchers => {
            let everybodys = match who.role {
                Role::Admin => &shared.queries_of_admins,
                Role::User | Role::Job | Role::Agent | Role::Server => &shared.queries,
            };
            (quota.queries.acquire().await.ok(), everybodys.acquire().await.ok())
        }
        ClientRequest::Follow(_) | ClientRequest::Watch(_) => {
            drop(held);
            let Ok(stream) = quota.streams.try_acquire() else {
                let refused = too_many_streams(who, quota.max_streams);
                return refuse_stream(&mut sender, refused).await;
            };
            (Some(stream), None)
        }
        ClientRequest::Call(_) | ClientRequest::Server | ClientRequest::Negotiator | ClientRequest::Launcher => {
            (None, None)
        }
    };
    if let ClientRequest::Call(Call::CreateToken(order)) = &request
        && let Err(refused) = shared.can_be_redeemed(order)
    {
        return refuse(&mut sender, refused).await;
    }
    match request {
        ClientRequest::Call(Call::Renew { csr, serial: _, renews: _ }) => {
            let renews = Some(serial.to_owned());
            match renew(who, Call::Renew { csr, serial: draw_serial(), renews }, shared).await {
                Ok(signed) => whole(&mut sender, Answer::Certificate { chain: signed.chain, ca: signed.ca }).await,
                Err(refused) => refuse(&mut sender, refused).await,
            }
        }
        ClientRequest::Call(call @ (Call::Query(Query::Masks(_)) | Call::SetMask { .. })) => {
            match masks::find(who, call, shared).await {
                Ok(found) => {
                    for part in answer_parts(&found) {
                        sender.send(&part).await?;
                    }
                    sender.finish();
                    Ok(())
                }
                Err(refused) => refuse(&mut sender, refused).await,
            }
        }
        ClientRequest::Call(call) => answer(&mut sender, who, call, shared).await,
        ClientRequest::History(query) => history(&mut sender, who, query, shared).await,
        ClientRequest::Follow(order) => follow::serve(sender, receiver, who, order, &quota.output, shared).await,
        ClientRequest::Watch(order) => watch::serve(&mut sender, who, order, &quota.output, shared).await,
        ClientRequest::Launchers => launchers(&mut sender, who, shared).await,
        ClientRequest::Server => whole(&mut sender, Answer::Server(shared.report())).await,
        ClientRequest::Negotiator => {
            receiver.within(quota.messages.clone());
            negotiator::serve(sender, receiver, who, shared).await
        }
        ClientRequest::Launcher => {
            receiver.within(quota.messages.clone());
            launcher::serve(sender, receiver, who, shared).await
        }
    }
}

async fn answer(sender: &mut Sender, who: &Identity, call: Call, shared: &Shared) -> Result<(), SessionError> {
    let past = match &call {
        Call::Query(Query::Negotiations { job }) => *job,
        _ => None,
    };
    let refused = match shared.inbox.call(who.clone(), call).await {
        Ok(Answered::Done(answer)) => {
            for part in answer_parts(&answer) {
                sender.send(&part).await?;
            }
            sender.finish();
            return Ok(());
        }
        Ok(Answered::Refused(Refusal::NoSuchJob(job))) if past == Some(job) => {
            return past_negotiations(sender, who, job, shared).await;
        }
        Ok(Answered::Refused(refusal)) => Refused::from(&refusal),
        Ok(Answered::Failing(error)) => error.refused(),
        // The core orders a signature only for a renewal.
        Ok(Answered::Sign(_)) => Refused::new("internal", "this was not asked for"),
        Err(error) => stopping(error),
    };
    refuse(sender, refused).await
}

/// Sends the negotiations of a job that has left the system; its owner and admins may read them.
async fn past_negotiations(
    sender: &mut Sender,
    who: &Identity,
    job: JobId,
    shared: &Shared,
) -> Result<(), SessionError> {
    let (change, record) = match watch::recorded(job, who, shared).await {
        Ok(recorded) => recorded,
        Err(refused) => return refuse(sender, refused).await,
    };
    let owner = record.owner.0;
    let is_owner = who.role == Role::User && who.name == owner;
    if who.role != Role::Admin && !is_owner {
        let refusal = Refusal::NotYourJob { job, owner };
        return refuse(sender, Refused::from(&refusal)).await;
    }
    let records = match shared.history.negotiations(&who.name, job).await {
        Ok(records) => records,
        Err(error) => return refuse(sender, history_refused(&error)).await,
    };
    let lines = records.into_iter().map(|negotiation| negotiation.line(job, change.run, owner.clone())).collect();
    for part in answer_parts(&Answer::Negotiations { now: record.ended, lines }) {
        sender.send(&part).await?;
    }
    sender.finish();
    Ok(())
}

/// Sends the core's counters of launchers, with the traffic of their channels.
async fn launchers(sender: &mut Sender, who: &Identity, shared: &Shared) -> Result<(), SessionError> {
    let refused = match shared.inbox.call(who.clone(), Call::Query(Query::Status)).await {
        Ok(Answered::Done(Answer::Status(status))) => {
            let report = LauncherReport { status: status.launchers, traffic: shared.launchers.read() };
            return whole(sender, Answer::Launchers(Box::new(report))).await;
        }
        Ok(Answered::Refused(refusal)) => Refused::from(&refusal),
        Ok(Answered::Failing(error)) => error.refused(),
        Ok(Answered::Done(_) | Answered::Sign(_)) => Refused::new("internal", "this was not asked for"),
        Err(error) => stopping(error),
    };
    refuse(sender, refused).await
}

/// Sends the history page by page, so that a slow client holds neither the history's thread nor much memory.
async fn history(
    sender: &mut Sender,
    who: &Identity,
    query: HistoryQuery,
    shared: &Shared,
) -> Result<(), SessionError> {
    let clusters = match clusters_named(who, &query.clusters, shared).await {
        Ok(clusters) => clusters,
        Err(refused) => return refuse(sender, refused).await,
    };
    let mut page = Some(Page::first(query).on(clusters));
    while let Some(wanted) = page {
        let found = match shared.history.ask(&who.name, wanted).await {
            Ok(found) => found,
            Err(error) => return refuse(sender, history_refused(&error)).await,
        };
        let mut records = found.records;
        // As with jobs in the system, only the owner and admins may read everything.
        for record in records.iter_mut().filter(|record| who.role != Role::Admin && record.owner.0 != who.name) {
            record.labels = record.labels.public();
        }
        for mut part in answer_parts(&Answer::History(records)) {
            part.last &= found.next.is_none();
            sender.send(&part).await?;
        }
        page = found.next;
    }
    sender.finish();
    Ok(())
}

/// Resolves names of clusters, because records refer to clusters by number.
async fn clusters_named(who: &Identity, names: &[String], shared: &Shared) -> Result<Vec<ClusterId>, Refused> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let known = match shared.inbox.call(who.clone(), Call::Query(Query::Clusters)).await {
        Ok(Answered::Done(Answer::Clusters(known))) => known,
        Ok(Answered::Refused(refusal)) => return Err(Refused::from(&refusal)),
        Ok(Answered::Failing(error)) => return Err(error.refused()),
        Ok(Answered::Done(_) | Answered::Sign(_)) => return Err(Refused::new("internal", "this was not asked for")),
        Err(error) => return Err(stopping(error)),
    };
    let find = |name: &String| {
        let found = known.iter().find(|(_, known)| known == name).map(|(cluster, _)| *cluster);
        found.ok_or_else(|| {
            let known: Vec<&str> = known.iter().map(|(_, name)| name.as_str()).collect();
            let name = name.chars().take(80).collect();
            Refused::from(&Refusal::NoSuchCluster { name, known: known.join(", ") })
        })
    };
    names.iter().map(find).collect()
}

fn too_many_streams(who: &Identity, max: usize) -> Refused {
    let whose = match who.role {
        Role::Job => "processes of jobs of one owner",
        Role::User | Role::Admin | Role::Agent | Role::Server => "one user's commands",
    };
    let message = format_args!("{whose} may follow or watch jobs {max} times at once: end some of that first");
    Refused::new("too_many", message)
}

/// A channel on which no call begins for this long is closed.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

async fn whole(sender: &mut Sender, answer: Answer) -> Result<(), SessionError> {
    last(sender, Ok(answer)).await
}

async fn refuse(sender: &mut Sender, refused: Refused) -> Result<(), SessionError> {
    last(sender, Err(refused)).await
}

/// Refuses to follow or to watch jobs, in the frames that such a client expects.
async fn refuse_stream(sender: &mut Sender, refused: Refused) -> Result<(), SessionError> {
    sender.send(&Followed::Refused(refused)).await?;
    sender.finish();
    Ok(())
}

async fn last(sender: &mut Sender, answer: Result<Answer, Refused>) -> Result<(), SessionError> {
    sender.send(&AnswerPart::whole(answer)).await?;
    sender.finish();
    Ok(())
}
