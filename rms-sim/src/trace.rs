//! A log of what happened, line by line: the last lines as text, all of them as one hash.

use std::fmt;

use negotiation::{Item, Message, Statement};
use rms_api::Call;
use rms_api::desired::{JobReport, JobStatus, NodeReport};
use rms_api::negotiate::{Declared, HeldNode, Holding, NegotiatorAnswer, NegotiatorCall, NegotiatorNotice};
use rms_api::subscription::{ClusterChange, Notice, ViewChange};
use rms_core::Fact;
use rms_core::server_loop::Inbound;
use rms_model::{JobRecord, Request, Time};

use crate::application;
use crate::launcher::Told;

#[derive(Debug)]
pub(crate) struct Trace {
    lines: Vec<String>,
    hash: u64,
}

impl Trace {
    pub(crate) fn new() -> Trace {
        Trace { lines: Vec::new(), hash: FNV_OFFSET }
    }

    pub(crate) fn note(&mut self, now: Time, line: fmt::Arguments<'_>) {
        let line = format!("{:>9}.{:03} {line}", now.as_secs(), now.as_millis().rem_euclid(1000));
        for byte in line.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME);
        }
        self.lines.push(line);
    }

    pub(crate) fn lines(&self) -> &[String] {
        &self.lines
    }

    /// Returns FNV-1a over all lines: equal traces have equal hashes.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }
}

/// Formats a fact on one line, long ones without the parts that are irrelevant here.
pub(crate) fn short_fact(fact: &Fact) -> String {
    match fact {
        Fact::JobSubmitted { job, at: _, spec, held } => {
            let sizes: Vec<String> = spec.options.iter().map(short_request).collect();
            format!("JobSubmitted {job} {} by {} {sizes:?} held: {held}", spec.labels.name, spec.owner.0)
        }
        Fact::DialogueChanged { job, dialogue, asking, at: _ } => {
            let (id, phase) = (dialogue.id(), dialogue.phase());
            let by = asking.as_ref().map_or(String::new(), |asking| format!(", asked by {}", asking.by));
            let items = dialogue.proposal().map(|template| template.items().iter().map(short_item).collect::<Vec<_>>());
            let items = items.unwrap_or_default().join(" ");
            format!("Talked {job}/{id} is {phase}: {items} {:?}{by}", dialogue.reason())
        }
        Fact::JobDone { record, ghost_until, .. } => {
            let JobRecord { job, run, nodes, outcome, .. } = &**record;
            format!("JobDone {job}.{run} on {nodes:?}: {outcome}; ghost until {}", ghost_until.as_millis())
        }
        Fact::NodeJoined { node, name, .. } => format!("NodeJoined {node} {name}"),
        fact => format!("{fact:?}"),
    }
}

fn short_request(request: &Request) -> String {
    let nodes: Vec<String> = request.nodes.iter().map(|(cluster, n_nodes)| format!("{n_nodes}@{cluster}")).collect();
    format!("{} for {}", nodes.join("+"), request.wall)
}

/// Formats an input of the server on one line.
pub(crate) fn short_inbound(inbound: &Inbound) -> String {
    match inbound {
        Inbound::Called { who, call: Call::Submit(submission), .. } => {
            format!("{who} submits {}", submission.labels.name)
        }
        Inbound::Called { who, call, .. } => format!("{who} {call:?}"),
        Inbound::AgentConnected { name, report, .. } => format!("{name} connected: {}", short_report(report)),
        Inbound::CertificateUsed { serial } => format!("the certificate {serial} is used"),
        Inbound::AgentTroubled { name, reason, .. } => format!("{name} is in trouble: {reason:?}"),
        Inbound::AgentReported { name, report, .. } => format!("{name} reports {}", short_report(report)),
        Inbound::AgentGone { name, .. } => format!("{name} is gone"),
        Inbound::AgentAsked { name, job, run, what, .. } => format!("{name} asks for job {job}.{run}: {what:?}"),
        Inbound::LauncherCalled { who, call, .. } => format!("the launcher {who} says {call:?}"),
        Inbound::LauncherGone { channel } => format!("a launcher is gone: {channel:?}"),
        Inbound::NegotiatorCalled { who, call, .. } => format!("{who} {}", short_negotiator_call(call)),
        Inbound::NegotiatorGone { channel } => format!("the negotiator of a job is gone: {channel:?}"),
        Inbound::PassTook { took } => format!("the last pass took {took:?}"),
        Inbound::ClockSetForward => "the clock was set forward".to_owned(),
        Inbound::Watch { jobs, .. } => format!("somebody watches {jobs:?}"),
    }
}

/// Formats a message to a launcher on one line.
pub(crate) fn short_told(told: &Told) -> String {
    match told {
        Told::Notice(Notice::Changed(ViewChange { version, at, clusters })) => {
            let short = |change: &ClusterChange| {
                let steps = change.occupied.as_ref().map(|occupied| occupied.pairs_from(*at));
                format!("{}: {} {steps:?}", change.cluster, change.capacity)
            };
            format!("change {version}: {:?}", clusters.iter().map(short).collect::<Vec<_>>())
        }
        Told::Notice(Notice::Started(grant)) => format!("start of {:?} until {:?}", grant.tag, grant.until),
        Told::Notice(notice @ (Notice::Ended { .. } | Notice::Replaced)) => format!("{notice:?}"),
        Told::Answer(answer) => format!("{answer:?}"),
        Told::Failing => "that the disk fails".to_owned(),
    }
}

/// Formats a message of a job's negotiator on one line.
pub(crate) fn short_negotiator_call(call: &NegotiatorCall) -> String {
    match call {
        NegotiatorCall::Attach(_) => "attaches".to_owned(),
        NegotiatorCall::Declare(Declared { least, most, sizes, speedup: _ }) => {
            format!("declares {least} to {most}, {sizes:?}")
        }
        NegotiatorCall::Say(message) => format!("says {}", short_message(message)),
        NegotiatorCall::Free(names) => format!("frees {} at its next stage", names.join(" ")),
    }
}

/// Formats a message to it on one line.
pub(crate) fn short_negotiator_told(told: &application::Told) -> String {
    match told {
        application::Told::Answer(Ok(NegotiatorAnswer::Attached(attached))) => {
            format!("attached: {}", short_holding(&attached.holding))
        }
        application::Told::Answer(answer) => format!("{answer:?}"),
        application::Told::Failing => "that the disk fails".to_owned(),
        application::Told::Notice(NegotiatorNotice::Said(message)) => short_message(message),
        application::Told::Notice(NegotiatorNotice::Holding(holding)) => short_holding(holding),
        application::Told::Notice(notice) => format!("{notice:?}"),
    }
}

fn short_holding(holding: &Holding) -> String {
    let node = |node: &HeldNode| format!("{}{}", node.name, if node.is_departing { "-" } else { "" });
    let nodes: Vec<String> = holding.nodes.iter().map(node).collect();
    format!("generation {} {} until {}", holding.generation, nodes.join(","), holding.until.as_millis())
}

fn short_message(message: &Message) -> String {
    let Message { id, seq, ack_seq, statement, .. } = message;
    let what = match statement {
        None => "nothing new".to_owned(),
        Some(Statement::Propose { round, template, valid_for }) => {
            let direction = template.direction();
            let items: Vec<String> = template.items().iter().map(short_item).collect();
            format!("round {round}: {direction:?} {} for {valid_for}", items.join(" "))
        }
        Some(statement) => format!("{statement:?}"),
    };
    format!("{id} #{seq}/{ack_seq} {what}")
}

fn short_item(item: &Item) -> String {
    let (quantity, held, price) = (item.quantity.0, item.held.0, item.terms.price.0);
    format!("{:?} {quantity} beside {held} at {price} {:?}", item.resource, item.status)
}

fn short_report(report: &NodeReport) -> String {
    let jobs: Vec<String> = report.jobs.iter().map(short_job).collect();
    format!("seen {}, {jobs:?}", report.seen)
}

/// Formats the status of a job on a node briefly.
pub(crate) fn short_job(report: &JobReport) -> String {
    match &report.status {
        JobStatus::Starting => format!("{}.{} starting", report.job, report.run),
        JobStatus::Running { .. } => format!("{}.{} running", report.job, report.run),
        JobStatus::Ended { exit, .. } => format!("{}.{} {exit:?}", report.job, report.run),
    }
}

/// Prints the last lines.
impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n_skipped = self.lines.len().saturating_sub(SHOWN);
        self.lines[n_skipped..].iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

const SHOWN: usize = 60;
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;
