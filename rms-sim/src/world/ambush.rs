//! Faults that are injected when a negotiation enters a phase, or a little later: a phase that takes milliseconds is
//! hardly ever hit by chance.

use negotiation::{NegotiationId, Phase};
use rms_api::Call;
use rms_api::call::Select;
use rms_api::negotiate::Order;
use rms_core::Fact;
use rms_model::{JobId, Span};

use super::{Item, Repair, World};
use crate::application::Absence;
use crate::check::Violation;
use crate::dice::Dice;
use crate::people::admin;
use crate::server::CrashPoint;

/// A fault to inject, and the phase that triggers it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PhaseFault {
    at: Trigger,
    /// The delay between the trigger and the fault.
    after: Span,
    kind: FaultKind,
}

#[derive(Clone, Copy, Debug)]
enum Trigger {
    /// Either side made a proposal.
    Proposed,
    /// It was agreed; nodes come or go.
    Agreed,
    Over,
    /// The nodes of a job change.
    Changes,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum FaultKind {
    ServerDies(CrashPoint),
    /// The agent of a node that is about to come or to go dies.
    AgentDies,
    NodeGoesDown,
    NodeIsCutOff,
    LinkBreaks,
    NodeIsDrained,
    NodeIsSetDown,
    JobIsCancelled,
    Ordered(Order),
    /// The process that negotiates for the job crashes, and may return.
    ApplicationCrashes,
    ChannelBreaks,
}

impl PhaseFault {
    pub(crate) fn draw(dice: &mut Dice) -> PhaseFault {
        let moments = [Trigger::Proposed, Trigger::Agreed, Trigger::Agreed, Trigger::Over, Trigger::Changes];
        let n_out = dice.number(0, 4) as usize;
        let kinds = [
            FaultKind::ServerDies(CrashPoint::BeforeCommit),
            FaultKind::ServerDies(CrashPoint::AfterCommit),
            FaultKind::ServerDies(CrashPoint::AmidEffects(n_out)),
            FaultKind::AgentDies,
            FaultKind::NodeGoesDown,
            FaultKind::NodeIsCutOff,
            FaultKind::LinkBreaks,
            FaultKind::NodeIsDrained,
            FaultKind::NodeIsSetDown,
            FaultKind::JobIsCancelled,
            FaultKind::Ordered(Order::Withdraw),
            FaultKind::Ordered(Order::Force),
            FaultKind::ApplicationCrashes,
            FaultKind::ChannelBreaks,
        ];
        // In the same instant, while messages are in flight, while processes start, or later.
        let longest = *dice.pick(&[0, 2, 40, 3_000]).expect("there are four");
        PhaseFault {
            at: *dice.pick(&moments).expect("there are five"),
            after: dice.span(Span::ZERO, Span::from_millis(longest)),
            kind: *dice.pick(&kinds).expect("there are some"),
        }
    }

    /// Returns the job and the negotiation to hit, if this fact triggers the fault.
    fn is_for(&self, fact: &Fact) -> Option<(JobId, Option<NegotiationId>)> {
        match (self.at, fact) {
            (Trigger::Changes, Fact::StageEntered { job, .. } | Fact::NodesDeparting { job, .. }) => Some((*job, None)),
            (moment, Fact::DialogueChanged { job, dialogue, .. }) => {
                let has_come = match dialogue.phase() {
                    Phase::Offered(_) | Phase::Countered(_) => matches!(moment, Trigger::Proposed),
                    Phase::Accepted | Phase::Committing => matches!(moment, Trigger::Agreed),
                    Phase::Applied | Phase::Ended(_) => matches!(moment, Trigger::Over),
                    Phase::Idle | Phase::Pledged | Phase::Leaving | Phase::Failing => false,
                };
                has_come.then_some((*job, Some(dialogue.id())))
            }
            _ => None,
        }
    }
}

impl World {
    /// Checks the facts that have just become durable for the trigger.
    pub(super) fn look_out(&mut self, from: usize) {
        let Some(ambush) = self.ambush else { return };
        if let Some((job, id)) = self.journal.facts()[from..].iter().find_map(|fact| ambush.is_for(fact)) {
            self.ambush = None;
            self.agenda.push(self.now + ambush.after, Item::Fault { job, id, kind: ambush.kind });
        }
    }

    pub(super) fn strikes(&mut self, job: JobId, id: Option<NegotiationId>, kind: FaultKind) -> Result<(), Violation> {
        let Some(node) = self.node_between(job) else { return Ok(()) };
        self.trace.note(self.now, format_args!("an ambush for job {job}: {kind:?}"));
        self.n_ambushes += 1;
        let name = || vec![self.nodes[node].name.clone()];
        let execution = self.executions().into_iter().find(|(of, _)| *of == job);
        match kind {
            FaultKind::ServerDies(point) => {
                self.crash = Some((point, Some(self.dice.span(Span::from_millis(1), Span::from_secs(20)))));
            }
            FaultKind::AgentDies => {
                self.agent_dies(node);
                self.repairs(Repair::Agent(node));
            }
            FaultKind::NodeGoesDown => {
                self.power_off(node);
                self.repairs(Repair::Node(node));
            }
            FaultKind::NodeIsCutOff => {
                self.cut_network(node);
                self.repairs(Repair::Heal(node));
            }
            FaultKind::LinkBreaks => self.break_link(node),
            FaultKind::NodeIsDrained => {
                let call = Call::Drain { nodes: name(), reason: "maintenance".to_owned() };
                self.call(&admin(), call);
            }
            FaultKind::NodeIsSetDown => {
                let call = Call::Down { nodes: name(), reason: "broken".to_owned() };
                self.call(&admin(), call);
            }
            FaultKind::JobIsCancelled => {
                self.checks.cancel_ordered(job);
                self.call(&admin(), Call::Cancel { select: Select::Ids(vec![job]) });
            }
            FaultKind::Ordered(order) => {
                if let Some(negotiation) = id {
                    self.call(&admin(), Call::OrderNegotiation { job, negotiation, order });
                }
            }
            FaultKind::ApplicationCrashes => {
                if let Some(execution) = execution {
                    let back_after = self.dice.chance(70).then(|| self.dice.span(Span::ZERO, Span::from_secs(40)));
                    let remembers = self.dice.chance(50);
                    self.application_vanishes(execution, Absence { after: Span::ZERO, back_after, remembers });
                }
            }
            FaultKind::ChannelBreaks => {
                if let Some(execution) = execution {
                    self.break_application(execution);
                }
            }
        }
        Ok(())
    }

    /// Returns a node of the job: one that is about to come or to go, if there is one.
    fn node_between(&mut self, job: JobId) -> Option<usize> {
        let state = self.journal.shadow();
        let entry = state.jobs().get(&job)?;
        let starts = |node: &&_| {
            let share = entry.started().and_then(|started| started.shares.get(node));
            matches!(share, Some(rms_core::state::job::Share::Ordered))
        };
        let held = entry
            .negotiations
            .iter()
            .flat_map(|negotiations| &negotiations.all)
            .flat_map(|negotiation| negotiation.held.iter().copied());
        let mut nodes: Vec<_> = held.chain(entry.leaving()).collect();
        nodes.extend(entry.nodes().iter().filter(starts));
        if nodes.is_empty() {
            nodes.extend(entry.nodes());
        }
        let names: Vec<&str> = nodes.iter().filter_map(|node| Some(state.nodes().get(node)?.name.as_str())).collect();
        let name = *self.dice.pick(&names)?;
        self.nodes.iter().position(|node| node.name == name)
    }

    fn repairs(&mut self, repair: Repair) {
        let at = self.now + self.dice.span(Span::from_millis(1), Span::from_secs(60));
        self.agenda.push(at, Item::Repair(repair));
    }
}
