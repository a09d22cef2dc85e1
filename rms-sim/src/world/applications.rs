//! Applications that negotiate and their channels: which process negotiates for which job, what it sends and receives,
//! how channels break, and how messages are delayed, lost or duplicated.

use std::collections::{BTreeMap, BTreeSet};

use negotiation::{Change, Side, Statement, Template};
use rms_api::negotiate::{NegotiatorAnswer, NegotiatorCall, NegotiatorNotice};
use rms_core::Ticket;
use rms_core::server_loop::{ChannelId, Denial, Inbound};
use rms_model::{Identity, JobId, NodeId, Run, Span};

use super::{Item, USUAL_DELAY, World};
use crate::application::{Absence, Manner, ModelApplication, Reaction, Told, Weather};
use crate::check::{Accepted, Violation};
use crate::trace::short_negotiator_told;

/// One execution of a job.
pub(crate) type Execution = (JobId, Run);

/// All processes that negotiate for jobs, with the two ends of each one's channel.
#[derive(Debug, Default)]
pub(crate) struct Applications {
    /// How the negotiating process of jobs with this name behaves.
    pub(crate) manners: BTreeMap<String, Manner>,
    processes: BTreeMap<Execution, Process>,
    /// The owner of each channel, by the channel's number; no number is used twice.
    channels: Vec<(Execution, u64)>,
    calls: BTreeMap<Ticket, (Execution, u64)>,
}

/// The process of one execution, on its first node.
#[derive(Debug)]
struct Process {
    model: ModelApplication,
    node: usize,
    /// Counts the channels of this process.
    epoch: u64,
    channel: ChannelId,
    is_up: bool,
    /// Whether the process exists.
    is_present: bool,
}

/// A pending event of an application.
#[derive(Debug)]
pub(crate) enum AppEvent {
    Dials,
    Wakes,
    /// Its process, or a new one, is back.
    Returns {
        remembers: bool,
    },
    Says {
        epoch: u64,
        call: Box<NegotiatorCall>,
    },
    Hears {
        epoch: u64,
        told: Box<Told>,
    },
    /// Its processes on these nodes end on their own.
    Clears {
        nodes: BTreeSet<NodeId>,
    },
}

impl World {
    /// Handles that the first process of a job is up: if the job has a negotiator, it starts.
    pub(super) fn application_starts(&mut self, node: usize, (job, run): Execution) {
        // A supervisor reports the start also when the cores of its processes have changed.
        if self.applications.processes.contains_key(&(job, run)) {
            return;
        }
        let Some(entry) = self.journal.shadow().jobs().get(&job) else { return };
        let Some(manner) = self.applications.manners.get(&entry.spec.labels.name).cloned() else { return };
        let model = ModelApplication::new(self.seed, (job, run), manner, self.now);
        let channel = ChannelId(0);
        let process = Process { model, node, epoch: 0, channel, is_up: false, is_present: true };
        self.applications.processes.insert((job, run), process);
        self.applications_do(Span::ZERO, (job, run), AppEvent::Dials);
    }

    /// Handles the end of the first process of a job, with which its negotiator ends.
    pub(super) fn application_dies(&mut self, execution: Execution) {
        self.break_application(execution);
        self.applications.processes.remove(&execution);
    }

    /// Returns every execution that has a negotiator now.
    pub(crate) fn executions(&self) -> Vec<Execution> {
        self.applications.processes.keys().copied().collect()
    }

    /// Returns the process that negotiates for an execution, if there is one.
    pub(crate) fn application(&self, execution: Execution) -> Option<&ModelApplication> {
        self.applications.processes.get(&execution).map(|process| &process.model)
    }

    fn applications_do(&mut self, after: Span, who: Execution, what: AppEvent) {
        self.agenda.push(self.now + after, Item::Application { who, what });
    }

    pub(super) fn application_does(&mut self, who: Execution, what: AppEvent) -> Result<(), Violation> {
        match what {
            AppEvent::Dials => self.application_dials(who),
            AppEvent::Wakes => return self.application_wakes(who),
            AppEvent::Returns { remembers } => self.application_returns(who, remembers),
            AppEvent::Says { epoch, call } => return self.server_hears_application(who, epoch, *call),
            AppEvent::Hears { epoch, told } => return self.application_hears(who, epoch, *told),
            AppEvent::Clears { nodes } => self.application_clears(who, &nodes),
        }
        Ok(())
    }

    fn application_dials(&mut self, who: Execution) {
        let is_reachable = self.server.is_some();
        let Some(process) = self.applications.processes.get_mut(&who) else { return };
        if process.is_up || !process.is_present || process.model.is_over() {
            return;
        }
        if !is_reachable || self.links[process.node].is_cut {
            self.application_dials_later(who);
            return;
        }
        process.epoch += 1;
        process.is_up = true;
        process.channel = ChannelId(self.applications.channels.len() as u64);
        self.applications.channels.push((who, process.epoch));
        let call = process.model.connects();
        self.application_says(who, vec![call]);
    }

    fn application_dials_later(&mut self, who: Execution) {
        let backoff = self.dice.span(Span::from_millis(50), Span::from_secs(5));
        self.applications_do(backoff, who, AppEvent::Dials);
    }

    /// Breaks its channel. The application notices at once; the server after a while.
    pub(crate) fn break_application(&mut self, who: Execution) {
        let Some(process) = self.applications.processes.get_mut(&who).filter(|process| process.is_up) else { return };
        process.is_up = false;
        process.model.loses_connection();
        let channel = process.channel;
        self.trace.note(self.now, format_args!("the negotiator of {}.{} loses the channel", who.0, who.1));
        let notices = self.dice.span(Span::ZERO, Span::from_secs(10));
        self.agenda.push(self.now + notices, Item::Heard(Box::new(Inbound::NegotiatorGone { channel })));
        self.application_dials_later(who);
    }

    /// Handles the death of the server's process, with all its ends of the channels.
    pub(super) fn applications_lose_the_server(&mut self) {
        self.applications.calls.clear();
        for who in self.executions() {
            self.break_application(who);
        }
    }

    /// Cuts the channels of the applications on a node.
    pub(super) fn applications_are_cut_off(&mut self, node: usize) {
        let there = self.applications.processes.iter().filter(|(_, process)| process.node == node);
        for who in there.map(|(who, _)| *who).collect::<Vec<_>>() {
            self.break_application(who);
        }
    }

    pub(super) fn application_vanishes(&mut self, who: Execution, absence: Absence) {
        self.break_application(who);
        if let Some(process) = self.applications.processes.get_mut(&who) {
            process.is_present = false;
        }
        self.trace.note(self.now, format_args!("the negotiator of {}.{} is gone", who.0, who.1));
        if let Some(back_after) = absence.back_after {
            self.applications_do(back_after, who, AppEvent::Returns { remembers: absence.remembers });
        }
    }

    fn application_returns(&mut self, who: Execution, remembers: bool) {
        let Some(process) = self.applications.processes.get_mut(&who) else { return };
        process.is_present = true;
        if !remembers {
            process.model.forgets();
        }
        self.application_dials(who);
    }

    fn application_says(&mut self, who: Execution, calls: Vec<NegotiatorCall>) {
        let Some(process) = self.applications.processes.get(&who) else { return };
        let (epoch, weather) = (process.epoch, process.model.manner.weather);
        for call in calls {
            let delays = match &call {
                NegotiatorCall::Attach(_) | NegotiatorCall::Declare(_) | NegotiatorCall::Free(_) => vec![USUAL_DELAY],
                NegotiatorCall::Say(_) => self.ways(weather),
            };
            for delay in delays {
                self.applications_do(delay, who, AppEvent::Says { epoch, call: Box::new(call.clone()) });
            }
        }
    }

    /// Draws the delay of each copy of a message that arrives.
    fn ways(&mut self, weather: Weather) -> Vec<Span> {
        let n_copies = if self.dice.chance(weather.twice) { 2 } else { 1 };
        let copies = (0..n_copies).filter(|_| !self.dice.chance(weather.loss));
        let n_arriving = copies.count();
        (0..n_arriving).map(|_| self.dice.span(USUAL_DELAY, weather.slowest.max(USUAL_DELAY))).collect()
    }

    fn server_hears_application(&mut self, who: Execution, epoch: u64, call: NegotiatorCall) -> Result<(), Violation> {
        let process = self.applications.processes.get(&who).filter(|process| process.is_up && process.epoch == epoch);
        let Some(channel) = process.map(|process| process.channel).filter(|_| self.server.is_some()) else {
            return Ok(());
        };
        self.n_tickets += 1;
        let ticket = Ticket(self.n_tickets);
        self.applications.calls.insert(ticket, (who, epoch));
        self.note_accept(who, &call);
        let who = Identity::of_job(who.0, who.1);
        self.server_hears(Inbound::NegotiatorCalled { ticket, channel, who, call });
        Ok(())
    }

    pub(super) fn answer_application(&mut self, ticket: Ticket, answer: Result<NegotiatorAnswer, Denial>) {
        let Some((who, epoch)) = self.applications.calls.remove(&ticket) else { return };
        let told = match answer {
            Ok(given) => Told::Answer(Ok(given)),
            Err(Denial::Refused(refusal)) => Told::Answer(Err(refusal)),
            Err(Denial::Failing(_)) => Told::Failing,
        };
        self.tell_application(who, epoch, told);
    }

    pub(super) fn notify_application(&mut self, channel: ChannelId, notice: NegotiatorNotice) {
        let (who, epoch) = self.applications.channels[channel.0 as usize];
        self.tell_application(who, epoch, Told::Notice(notice));
    }

    fn tell_application(&mut self, who: Execution, epoch: u64, told: Told) {
        let weather =
            self.applications.processes.get(&who).map_or(Weather::FINE, |process| process.model.manner.weather);
        let delays = match &told {
            Told::Notice(NegotiatorNotice::Said(_)) => self.ways(weather),
            Told::Answer(_) | Told::Failing | Told::Notice(_) => vec![USUAL_DELAY],
        };
        for delay in delays {
            self.applications_do(delay, who, AppEvent::Hears { epoch, told: Box::new(told.clone()) });
        }
    }

    fn application_hears(&mut self, who: Execution, epoch: u64, told: Told) -> Result<(), Violation> {
        let Some(process) = self.applications.processes.get_mut(&who) else { return Ok(()) };
        if !process.is_up || process.epoch != epoch {
            return Ok(());
        }
        let (job, run) = who;
        self.trace.note(self.now, format_args!("{job}.{run} hears {}", short_negotiator_told(&told)));
        if matches!(told, Told::Failing) {
            self.break_application(who);
            return Ok(());
        }
        let reaction = process.model.hears(self.now, told);
        self.application_reacts(who, reaction)
    }

    fn application_wakes(&mut self, who: Execution) -> Result<(), Violation> {
        let Some(process) = self.applications.processes.get_mut(&who).filter(|process| process.is_present) else {
            return Ok(());
        };
        let reaction = process.model.wakes(self.now);
        self.application_reacts(who, reaction)
    }

    fn application_reacts(&mut self, who: Execution, reaction: Reaction) -> Result<(), Violation> {
        let Reaction { says, changes, wakes_at, clears, vanishes } = reaction;
        let (job, run) = who;
        for change in &changes {
            self.trace.note(
                self.now,
                format_args!("{job}.{run} goes on with {}: {} -> {}", change.id, change.from, change.to),
            );
        }
        self.application_says(who, says);
        if let Some(at) = wakes_at {
            self.agenda.push(at.max(self.now), Item::Application { who, what: AppEvent::Wakes });
        }
        let manner = self.applications.processes.get(&who).map(|process| &process.model.manner);
        if let Some(clears_in) = manner.and_then(|manner| manner.clears_in).filter(|_| !clears.is_empty()) {
            self.applications_do(clears_in, who, AppEvent::Clears { nodes: clears });
        }
        if let Some(absence) = vanishes {
            self.application_vanishes(who, absence);
        }
        self.check_agreement(who, &changes)
    }

    fn application_clears(&mut self, who: Execution, nodes: &BTreeSet<NodeId>) {
        let names: BTreeSet<String> =
            nodes.iter().filter_map(|node| Some(self.journal.shadow().nodes().get(node)?.name.clone())).collect();
        for node in 0..self.nodes.len() {
            if names.contains(&self.nodes[node].name) {
                self.nodes[node].leaves(self.now, who);
                self.wake_later(node);
            }
        }
    }
}

impl World {
    /// Records an accept of an offer that stands and has not lapsed: it must be agreed after the next step.
    fn note_accept(&mut self, (job, run): Execution, call: &NegotiatorCall) {
        let NegotiatorCall::Say(message) = call else { return };
        let Some(Statement::Accept { round }) = &message.statement else { return };
        let Some(server) = self.server.as_ref().filter(|server| server.is_well()) else { return };
        let entry = server.state().jobs().get(&job).filter(|entry| entry.run == run);
        let negotiation = entry.and_then(|entry| entry.negotiations.as_ref()?.get(message.id));
        let Some(dialogue) = negotiation.map(|negotiation| &negotiation.dialogue) else { return };
        let stands = dialogue.phase().proposer() == Some(Side::Rms) && dialogue.round() == *round;
        let is_in_time = dialogue.lapses().is_some_and(|lapses| lapses > self.now);
        let is_new = message.seq > dialogue.heard() && message.ack_seq <= dialogue.said();
        let is_definite = dialogue.proposal().is_some_and(Template::is_definite);
        if stands && is_in_time && is_new && is_definite {
            self.accepted.push(Accepted { job, run, id: message.id });
        }
    }

    /// Checks, after a change of the application's ends, that the server's ends agree.
    fn check_agreement(&self, who: Execution, changes: &[Change]) -> Result<(), Violation> {
        let Some(model) = self.application(who) else { return Ok(()) };
        for change in changes {
            let dialogue = model.dialogues().iter().find(|dialogue| dialogue.id() == change.id);
            if let Some(dialogue) = dialogue.filter(|_| model.manner.is_honest()) {
                self.checks.ends_agree(who, change, dialogue)?;
            }
        }
        Ok(())
    }
}
