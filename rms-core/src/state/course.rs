//! The course of a running evolving application: its current stage, when the others begin, and what it holds.

use std::collections::{BTreeMap, BTreeSet};

use negotiation::NegotiationId;
use rms_model::{ClusterId, Devices, Evolution, Evolving, ExpandLimit, Generation, Grant, NodeId, Span, Stage, Time};
use serde::{Deserialize, Serialize};

/// The promised stages from the current one on (003: the scheduled EP).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Course {
    /// The number of the first leg's stage in the application, counted from 1.
    pub number: u32,
    /// Never empty; the first leg is what the application holds.
    pub legs: Vec<Leg>,
    pub limit: ExpandLimit,
    /// The course may be extended before its end.
    pub open: bool,
    /// On a core-shared cluster, the nodes of all stages: each stage has the first ones. Empty elsewhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub row: Vec<NodeId>,
}

/// One stage and its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leg {
    pub nodes: u32,
    /// As requested; the stage lasts until the next one begins.
    pub span: Span,
    pub start: Time,
}

impl Course {
    /// Builds a course from the requested stages and the start times found for them. `number` is that of the first.
    pub fn of(evolving: &Evolving, starts: impl Iterator<Item = Time>, number: u32) -> Course {
        let requested = evolving.stages.stages().iter();
        let leg = |(stage, start): (&Stage, Time)| Leg { nodes: stage.nodes, span: stage.span, start };
        let legs = requested.zip(starts).map(leg).collect();
        Course { number, legs, limit: evolving.expansion.limit, open: evolving.open, row: Vec::new() }
    }

    /// Returns the number of nodes of the largest stage.
    pub fn peak(&self) -> u32 {
        self.legs.iter().map(|leg| leg.nodes).max().unwrap_or(0)
    }

    /// Returns the times from now on at which the application has the node at this index of its row.
    fn times(&self, place: usize) -> Vec<(Time, Time)> {
        let ends = self.legs.iter().skip(1).map(|leg| leg.start).chain([self.end()]);
        let mut times: Vec<(Time, Time)> = Vec::new();
        for (leg, end) in self.legs.iter().zip(ends).filter(|(leg, _)| leg.nodes as usize > place) {
            match times.last_mut() {
                Some((_, last)) if *last == leg.start => *last = end,
                Some(_) | None => times.push((leg.start, end)),
            }
        }
        times
    }

    /// Returns the times at which it will have the node at this index of its row, without the time for which it holds
    /// it now.
    pub fn times_to_come(&self, place: usize) -> Vec<(Time, Time)> {
        let is_held = self.current().nodes as usize > place;
        self.times(place).into_iter().skip(usize::from(is_held)).collect()
    }

    /// Returns the time until which it keeps the node at this index of its nodes.
    pub fn kept_until(&self, place: usize) -> Time {
        match self.row.is_empty() {
            true => self.end(),
            false => self.times(place).first().map_or(self.end(), |(_, until)| *until),
        }
    }

    pub fn current(&self) -> &Leg {
        self.legs.first().expect("a course has at least one leg")
    }

    pub fn next(&self) -> Option<&Leg> {
        self.legs.get(1)
    }

    /// Returns when its last stage ends; that one is never expanded.
    pub fn end(&self) -> Time {
        self.legs.last().map_or(Time::EPOCH, |last| last.start + last.span)
    }

    /// Returns when the next stage begins, or the last one ends.
    pub fn next_change(&self) -> Time {
        self.next().map_or_else(|| self.end(), |next| next.start)
    }

    /// Returns the time until which the current stage may be expanded.
    pub fn latest_change(&self) -> Time {
        let current = self.current();
        current.start + self.limit.longest(current.span)
    }

    /// Returns its end if every stage that can wait does so for as long as it may.
    pub fn latest_end(&self) -> Time {
        let Some((last, others)) = self.legs.split_last() else { return Time::EPOCH };
        let longest = others.iter().fold(Span::ZERO, |sum, leg| sum + self.limit.longest(leg.span));
        (self.current().start + longest + last.span).max(self.end())
    }

    /// Returns the requested stages from the current one on.
    pub fn remaining(&self) -> Evolution {
        let stages = self.legs.iter().map(|leg| Stage { nodes: leg.nodes, span: leg.span }).collect();
        Evolution::new(stages).expect("the stages were checked when they were announced")
    }

    /// Returns by how much the first stage of this course began later than it was to begin next; zero if it is the same
    /// stage.
    pub fn late_after(&self, before: &Course) -> Span {
        let is_next = self.number > before.number;
        if is_next { self.current().start.since(before.next_change()) } else { Span::ZERO }
    }

    /// Returns the course after the next stage has begun at `at`.
    pub fn entered(&self, at: Time) -> Course {
        let mut legs = self.legs.get(1..).unwrap_or_default().to_vec();
        let late_by = legs.first().map_or(Span::ZERO, |first| at.since(first.start));
        // A stage never gets less time than requested: later stages move with it.
        legs.iter_mut().for_each(|leg| leg.start += late_by);
        Course { number: self.number + 1, legs, ..self.clone() }
    }
}

/// The state of a running evolving application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evolved {
    pub course: Course,
    /// The number of nodes that it started with.
    #[serde(default)]
    pub started_with: u32,
    /// The nodes that it really held in earlier stages.
    pub past: Vec<Stage>,
    /// When it really had the nodes of its current stage, if that was later than planned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_since: Option<Time>,
    /// Counts the changes of its nodes, from 1.
    pub generation: u32,
    /// The number of the next task; numbers are never reused.
    pub next_task: u32,
    pub places: BTreeMap<NodeId, Place>,
    /// Nodes where its memory or devices were changed, and what it had before.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub changed: BTreeMap<NodeId, GrantChange>,
    /// Licences of clusters where they were negotiated; elsewhere it has those of its submission.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub licences: BTreeMap<ClusterId, NegotiatedLicences>,
    /// The nodes that it will free at its next smaller stage.
    pub chosen: Vec<NodeId>,
    /// Nodes that it was asked to leave and has not reported left, and since when.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub departing: BTreeMap<NodeId, Time>,
    /// Nodes that it has freed and whose processes may still be there, and since when.
    pub leaving: BTreeMap<NodeId, Time>,
    /// Of those, the nodes that it reports to have left: its processes there may be ending.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub released: BTreeSet<NodeId>,
    /// How often its processes were killed because they did not leave freed nodes.
    pub n_violations: u32,
    /// Its core time until its own cores changed last. Absent until they do, and in older journals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<CoreTime>,
}

/// For how long a job has had cores of its own, whether it lent them or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoreTime {
    /// Core-milliseconds until `until`.
    pub spent: u64,
    pub until: Time,
}

/// A node's place in an evolving application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub first_task: u32,
    /// The number of its tasks; absent for applications with stages, whose nodes all have the same number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n_tasks: Option<u32>,
    /// The generation of nodes with which it was added: a node that returns has a new place.
    pub joined: u32,
    /// The generation of the node that ordered it: reports of the node under an earlier one concern an earlier place.
    pub ordered: Generation,
    /// Its cores, once negotiated; before, it has the whole node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<Cores>,
}

/// How many cores of a node an application has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cores {
    pub n_cores: u32,
    /// The number before the last change.
    pub was: u32,
    /// The generation of nodes and CPUs with which they changed.
    pub generation: u32,
    /// The negotiation that changed them.
    pub by: NegotiationId,
    /// The agent has confirmed that all processes keep to them.
    pub is_in_force: bool,
}

/// What an application had of a node before it was given other memory or devices there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantChange {
    /// Its cores are in [`Place::cores`].
    pub was: Grant,
    /// The generation of nodes and CPUs with which this changed.
    pub generation: u32,
    /// The negotiation that changed it.
    pub by: NegotiationId,
    /// The agent has confirmed that all processes keep to the new grant.
    pub is_in_force: bool,
}

/// Licences of a cluster that an application has through a negotiation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NegotiatedLicences {
    pub licences: Devices,
    /// The licences before the last change.
    pub was: Devices,
    pub by: NegotiationId,
}

impl Cores {
    /// Returns the number of cores that its processes may safely use.
    pub fn usable(&self) -> u32 {
        if self.is_in_force { self.n_cores } else { self.n_cores.min(self.was) }
    }

    /// Returns the number of cores that no other job may have.
    pub fn kept(&self) -> u32 {
        if self.is_in_force { self.n_cores } else { self.n_cores.max(self.was) }
    }
}

impl Evolved {
    pub fn new(course: Course) -> Evolved {
        Evolved {
            started_with: course.current().nodes,
            course,
            past: Vec::new(),
            late_since: None,
            generation: 1,
            next_task: 0,
            places: BTreeMap::new(),
            changed: BTreeMap::new(),
            licences: BTreeMap::new(),
            chosen: Vec::new(),
            departing: BTreeMap::new(),
            leaving: BTreeMap::new(),
            released: BTreeSet::new(),
            n_violations: 0,
            counted: None,
        }
    }

    /// Adds a node and numbers its tasks.
    pub fn place(&mut self, node: NodeId, n_tasks: u32, ordered: Generation) {
        let (first_task, joined) = (self.next_task, self.generation);
        let place = Place { first_task, n_tasks: None, joined, ordered, cores: None };
        self.next_task = self.next_task.saturating_add(n_tasks);
        self.places.insert(node, place);
    }

    /// Adds a node of an application that is sized by negotiation: its nodes may have different numbers of tasks.
    pub fn place_with(&mut self, node: NodeId, n_tasks: u32, ordered: Generation) {
        self.place(node, n_tasks, ordered);
        if let Some(place) = self.places.get_mut(&node) {
            place.n_tasks = Some(n_tasks);
        }
    }

    /// Returns the nodes that it chose to free, limited to the surplus at its next stage.
    pub fn freed_next(&self) -> &[NodeId] {
        let next = self.course.next().map_or(u32::MAX, |next| next.nodes);
        let surplus = self.course.current().nodes.saturating_sub(next) as usize;
        &self.chosen[..self.chosen.len().min(surplus)]
    }

    /// Returns whether it keeps its present nodes until its end, as far as is known.
    pub fn is_steady(&self) -> bool {
        self.course.legs.len() == 1 && self.leaving.is_empty()
    }

    /// Records what the ending stage held. The history has no room for more stages than a profile.
    pub fn record_stage(&mut self, until: Time) {
        let current = self.course.current();
        let span = until.since(self.since());
        self.late_since = None;
        if span > Span::ZERO && self.past.len() <= rms_model::evolution::MAX_STAGES {
            self.past.push(Stage { nodes: current.nodes, span });
        }
    }

    /// Returns since when it has had the number of nodes of its current stage.
    pub(super) fn since(&self) -> Time {
        self.late_since.unwrap_or(self.course.current().start)
    }

    /// Replaces the course by that of the next stage, which begins `at` by the clock and perhaps earlier by the plan: an
    /// application that is late to choose the nodes that it frees has them until then.
    pub(super) fn enter_stage(&mut self, at: Time, course: &Course) {
        let begins = stage_begins(at, course);
        self.record_stage(begins);
        self.late_since = (begins == at).then_some(at);
        self.course = course.clone();
    }

    /// Returns the nodes that it held until `ended`, stage by stage.
    pub fn history(&self, ended: Time) -> Option<Evolution> {
        let mut whole = self.clone();
        whole.record_stage(ended);
        // A profile that was extended many times exceeds the limit; the history keeps its first stages.
        whole.past.truncate(rms_model::evolution::MAX_STAGES);
        Evolution::new(whole.past).ok()
    }
}

/// Returns when the stage begins that an application entered `at` by the clock: as planned, unless it was late.
pub(super) fn stage_begins(at: Time, course: &Course) -> Time {
    let planned = course.current().start;
    if at.since(planned) > PUNCTUAL { at } else { planned }
}

/// The server is later than this for a timer only if it had to wait.
const PUNCTUAL: Span = Span::from_secs(1);
