//! Finds which CPUs jobs should use, which the core knows, and which their processes may use, which the agents tell.

use std::sync::Arc;
use std::time::Duration;

use rms_api::masks::{JobMasks, NodeMasks};
use rms_api::{Answer, Call, Refused};
use rms_model::{Identity, Role};
use rms_wire::{Kind, LinkError, MasksAsked, MasksSeen};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};

use super::join::stopping;
use crate::inbox::Answered;
use crate::shared::Shared;

/// How long to wait for an agent that has just connected to announce what it serves.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// How long an agent's answer may take: it asks the processes of its jobs.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(4);
/// The most processes in an answer over all nodes, and the bounds for each node.
const MAX_PROCESSES: usize = 16_384;
const MIN_PER_NODE: usize = 4;
const MAX_PER_NODE: usize = 512;
/// The kernel's own limit is lower.
const MAX_NAME_CHARS: usize = 32;

/// Answers the query or the order, once all agents have answered or the time is up.
///
/// # Errors
/// The core refuses the call, or an agent could not carry out the order.
pub async fn find(who: &Identity, call: Call, shared: &Arc<Shared>) -> Result<Answer, Refused> {
    let order = match &call {
        Call::SetMask { job: _, order } => Some(order.clone()),
        _query => None,
    };
    let (now, mut nodes) = match shared.inbox.call(who.clone(), call).await {
        Ok(Answered::Done(Answer::Masks { now, nodes })) => (now, nodes),
        Ok(Answered::Refused(refusal)) => return Err(Refused::from(&refusal)),
        Ok(Answered::Failing(error)) => return Err(error.refused()),
        Ok(Answered::Done(_) | Answered::Sign(_)) => return Err(Refused::new("internal", "this was not asked for")),
        Err(error) => return Err(stopping(error)),
    };
    let most = (MAX_PROCESSES / nodes.len().max(1)).clamp(MIN_PER_NODE, MAX_PER_NODE);
    let deadline = Instant::now() + CONNECT_TIMEOUT + ANSWER_TIMEOUT;
    let (tell, mut told) = mpsc::channel(nodes.len().max(1));
    for (idx, node) in nodes.iter_mut().enumerate().filter(|(_, node)| !node.jobs.is_empty()) {
        node.silent = Some(no_answer(&node.node));
        let jobs = node.jobs.iter().map(|job| job.of.clone()).collect();
        let asked = MasksAsked { jobs, most: most as u32, order: order.clone() };
        let (shared, name, tell) = (Arc::clone(shared), node.node.clone(), tell.clone());
        // In a task of its own, so that it is never cancelled in the middle of a frame.
        tokio::spawn(async move {
            let seen = ask(&shared, &name, &asked).await;
            // The channel has room for all, and the caller may have gone.
            let _ = tell.send((idx, seen)).await;
        });
    }
    drop(tell);
    while let Ok(Some((idx, seen))) = timeout_at(deadline, told.recv()).await {
        match seen {
            Ok(MasksSeen { jobs: _, refused: Some(refused) }) if order.is_some() => return Err(refused),
            Ok(seen) => take(who, &mut nodes[idx], seen, most),
            Err(reason) => nodes[idx].silent = Some(reason),
        }
    }
    match nodes.iter_mut().find_map(|node| node.silent.take_if(|_| order.is_some())) {
        Some(reason) => Err(Refused::new("no_answer", reason)),
        None => Ok(Answer::Masks { now, nodes }),
    }
}

/// Asks one agent; the error says why there is no answer.
async fn ask(shared: &Shared, node: &str, asked: &MasksAsked) -> Result<MasksSeen, String> {
    let Ok(link) = timeout(CONNECT_TIMEOUT, shared.registry.agent_serving(node, Kind::MasksAsked)).await else {
        return Err(match shared.registry.has_agent(node) {
            true => format!("the agent of node {node} is older than 'rms masks': upgrade it"),
            false => format!("no answer from node {node}: its agent is not connected ('rms nodes {node}')"),
        });
    };
    let answered = async {
        let mut channel = link.open().await?;
        channel.send(asked).await?;
        channel.finish();
        let (_sender, mut receiver) = channel.split();
        timeout(ANSWER_TIMEOUT, receiver.recv_required::<MasksSeen>()).await.unwrap_or(Err(LinkError::Silent))
    };
    answered.await.map_err(|error| {
        tracing::debug!(node, %error, "an agent has not answered with the masks of its jobs");
        no_answer(node)
    })
}

fn no_answer(node: &str) -> String {
    format!(
        "no answer from node {node}: its agent is gone or busy, or its link slow: try again, and see 'rms nodes {node}'"
    )
}

/// Adds what an agent has seen to the intended masks. Scripts are private, and so are the programs that they run.
fn take(who: &Identity, node: &mut NodeMasks, seen: MasksSeen, most: usize) {
    node.silent = None;
    for (job, run, mut seen) in seen.jobs {
        let is_it = |masks: &&mut JobMasks| (masks.of.job, masks.of.run) == (job, run);
        let Some(masks) = node.jobs.iter_mut().find(is_it) else { continue };
        let may_read = match who.role {
            Role::Admin => true,
            Role::User => masks.owner.0 == who.name,
            Role::Job => who.as_job() == Some((job, run)),
            Role::Agent | Role::Server => false,
        };
        seen.processes.truncate(most);
        for process in &mut seen.processes {
            let n_chars = if may_read { MAX_NAME_CHARS } else { 0 };
            process.program = process.program.chars().filter(|c| !c.is_control()).take(n_chars).collect();
        }
        masks.seen = Some(seen);
    }
}
