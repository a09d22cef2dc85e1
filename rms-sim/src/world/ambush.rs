//! Faults that lie in wait for a negotiation and strike when it has come to a phase, or some moments later: what takes
//! milliseconds is hardly ever hit by chance.

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

/// What waits for whom.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ambush {
    at: Moment,
    /// From that moment until it strikes.
    after: Span,
    blow: Blow,
}

#[derive(Clone, Copy, Debug)]
enum Moment {
    /// Something was proposed, by either side.
    Proposed,
    /// It is agreed; nodes come, or go.
    Agreed,
    Over,
    /// Nodes change hands.
    Changes,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Blow {
    ServerDies(CrashPoint),
    /// Of a node that is about to come, or to go.
    AgentDies,
    NodeGoesDown,
    NodeIsCutOff,
    LinkBreaks,
    NodeIsDrained,
    NodeIsSetDown,
    JobIsCancelled,
    Ordered(Order),
    /// The process that negotiates for the job crashes, and may come again.
    ApplicationCrashes,
    ChannelBreaks,
}

impl Ambush {
    pub(crate) fn draw(dice: &mut Dice) -> Ambush {
        let moments = [Moment::Proposed, Moment::Agreed, Moment::Agreed, Moment::Over, Moment::Changes];
        let n_out = dice.number(0, 4) as usize;
        let blows = [
            Blow::ServerDies(CrashPoint::BeforeCommit),
            Blow::ServerDies(CrashPoint::AfterCommit),
            Blow::ServerDies(CrashPoint::AmidEffects(n_out)),
            Blow::AgentDies,
            Blow::NodeGoesDown,
            Blow::NodeIsCutOff,
            Blow::LinkBreaks,
            Blow::NodeIsDrained,
            Blow::NodeIsSetDown,
            Blow::JobIsCancelled,
            Blow::Ordered(Order::Withdraw),
            Blow::Ordered(Order::Force),
            Blow::ApplicationCrashes,
            Blow::ChannelBreaks,
        ];
        // In the same instant, on the way of the messages, while processes start, or a while later.
        let longest = *dice.pick(&[0, 2, 40, 3_000]).expect("there are four");
        Ambush {
            at: *dice.pick(&moments).expect("there are five"),
            after: dice.span(Span::ZERO, Span::from_millis(longest)),
            blow: *dice.pick(&blows).expect("there are some"),
        }
    }

    /// Is this the moment? Then for whom.
    fn is_for(&self, fact: &Fact) -> Option<(JobId, Option<NegotiationId>)> {
        match (self.at, fact) {
            (Moment::Changes, Fact::StageEntered { job, .. } | Fact::NodesDeparting { job, .. }) => Some((*job, None)),
            (moment, Fact::DialogueChanged { job, dialogue, .. }) => {
                let has_come = match dialogue.phase() {
                    Phase::Offered(_) | Phase::Countered(_) => matches!(moment, Moment::Proposed),
                    Phase::Accepted | Phase::Committing => matches!(moment, Moment::Agreed),
                    Phase::Applied | Phase::Ended(_) => matches!(moment, Moment::Over),
                    Phase::Idle | Phase::Pledged | Phase::Leaving | Phase::Failing => false,
                };
                has_come.then_some((*job, Some(dialogue.id())))
            }
            _ => None,
        }
    }
}

impl World {
    /// These have just become durable.
    pub(super) fn look_out(&mut self, from: usize) {
        let Some(ambush) = self.ambush else { return };
        if let Some((job, id)) = self.journal.facts()[from..].iter().find_map(|fact| ambush.is_for(fact)) {
            self.ambush = None;
            self.agenda.push(self.now + ambush.after, Item::Blow { job, id, blow: ambush.blow });
        }
    }

    pub(super) fn strikes(&mut self, job: JobId, id: Option<NegotiationId>, blow: Blow) -> Result<(), Violation> {
        let Some(node) = self.node_between(job) else { return Ok(()) };
        self.trace.note(self.now, format_args!("an ambush for job {job}: {blow:?}"));
        self.n_ambushes += 1;
        let name = || vec![self.nodes[node].name.clone()];
        let execution = self.executions().into_iter().find(|(of, _)| *of == job);
        match blow {
            Blow::ServerDies(point) => {
                self.crash = Some((point, Some(self.dice.span(Span::from_millis(1), Span::from_secs(20)))));
            }
            Blow::AgentDies => {
                self.agent_dies(node);
                self.repairs(Repair::Agent(node));
            }
            Blow::NodeGoesDown => {
                self.power_off(node);
                self.repairs(Repair::Node(node));
            }
            Blow::NodeIsCutOff => {
                self.cut_network(node);
                self.repairs(Repair::Heal(node));
            }
            Blow::LinkBreaks => self.break_link(node),
            Blow::NodeIsDrained => {
                let call = Call::Drain { nodes: name(), reason: "maintenance".to_owned() };
                self.call(&admin(), call);
            }
            Blow::NodeIsSetDown => {
                let call = Call::Down { nodes: name(), reason: "broken".to_owned() };
                self.call(&admin(), call);
            }
            Blow::JobIsCancelled => {
                self.checks.cancel_ordered(job);
                self.call(&admin(), Call::Cancel { select: Select::Ids(vec![job]) });
            }
            Blow::Ordered(order) => {
                if let Some(negotiation) = id {
                    self.call(&admin(), Call::OrderNegotiation { job, negotiation, order });
                }
            }
            Blow::ApplicationCrashes => {
                if let Some(execution) = execution {
                    let back_after = self.dice.chance(70).then(|| self.dice.span(Span::ZERO, Span::from_secs(40)));
                    let remembers = self.dice.chance(50);
                    self.application_vanishes(execution, Absence { after: Span::ZERO, back_after, remembers });
                }
            }
            Blow::ChannelBreaks => {
                if let Some(execution) = execution {
                    self.break_application(execution);
                }
            }
        }
        Ok(())
    }

    /// A node of the job: one that is about to come or to go, if there is one.
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
