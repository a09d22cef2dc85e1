//! Decides what a simple malleable program has to do at its next breakpoint: which nodes to use, which to leave.

use std::collections::{BTreeSet, VecDeque};

use launcher_sdk::negotiator::{
    Agreed, Direction, Ending, Event, HeldNode, Holding, NegotiationId, Ready, Reason, StageEnds,
};

/// What one call of `rms_breakpoint` reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// `None` if a stage of the application begins, another party requested the change, or the nodes are lost.
    pub id: Option<NegotiationId>,
    pub direction: Direction,
    pub nodes: Vec<String>,
    /// The RMS has already taken the nodes.
    pub is_done: bool,
}

/// Changes that the application has not been told of, and those that it has not finished.
#[derive(Debug, Default)]
pub struct Breakpoint {
    waiting: VecDeque<Change>,
    /// The shrink that the application was told of and has not confirmed yet.
    leaving: Option<Change>,
    /// Shrinks that the application has confirmed and whose nodes are not released yet.
    left: Vec<Change>,
    /// Nodes that it knows of, or that a waiting change reports.
    known: BTreeSet<String>,
    /// The current stage, if the application has stages.
    stage: Option<u32>,
}

/// What `rms_release_done` has to send.
#[derive(Debug, PartialEq, Eq)]
pub enum Release {
    Say(NegotiationId, Vec<String>),
    /// These nodes are released when the next stage begins.
    Free(Vec<String>),
    /// Settled already: if anything remains to be done, the next breakpoint reports it.
    Void,
    /// The application was not asked to leave any nodes.
    Nothing,
}

impl Breakpoint {
    /// Creates the state of an application that uses these nodes.
    pub fn of(holding: &Holding) -> Breakpoint {
        let stage = holding.stages.as_ref().map(|stages| stages.number);
        Breakpoint { known: usable(&holding.nodes).collect(), stage, ..Breakpoint::default() }
    }

    /// Applies an event.
    pub fn hear(&mut self, event: &Event) {
        match event {
            Event::Accepted(Agreed { direction: Direction::Shrink, negotiation, leaving, .. }) => {
                self.add(Some(*negotiation), Direction::Shrink, leaving, false);
            }
            Event::Ready(Ready { direction: Direction::Grow, negotiation, nodes, .. }) => {
                self.came(*negotiation, nodes)
            }
            Event::Ready(Ready { direction: Direction::Shrink, negotiation, nodes, .. }) => {
                self.gone(*negotiation, nodes);
            }
            Event::Ended { negotiation, template: _, ending: Ending::Failed, reason, why: _ } => match reason {
                // The application missed its deadline, or an administrator forces it: the nodes are taken.
                Reason::BrokenPromise | Reason::Administrator => self.taken(*negotiation),
                Reason::Declined | Reason::NoResources | Reason::Price | Reason::Policy => self.kept(*negotiation),
                Reason::Lapsed | Reason::TooManyRounds | Reason::BadProposal => self.kept(*negotiation),
                Reason::Crossed | Reason::AlreadyOpen | Reason::Unknown => self.kept(*negotiation),
                Reason::Overdue | Reason::Lost | Reason::Stopping | Reason::Changed => self.kept(*negotiation),
                Reason::Recalled | Reason::KeepsRanks => self.kept(*negotiation),
            },
            Event::Ended { ending: Ending::Rejected | Ending::Expired | Ending::Withdrawn, .. } => {}
            Event::Accepted(Agreed { direction: Direction::Grow, .. }) => {}
            // The policy answers proposals.
            Event::Offered(_) | Event::Countered(_) => {}
            Event::NodesLost(nodes) => self.lost(nodes),
            Event::Holding(holding) => self.holds(holding),
            Event::StageEnds(StageEnds { leaving, .. }) => self.stage_ends(leaving),
            Event::Warned(_) | Event::JobEnding(_) | Event::Replaced | Event::Lost(_) => {}
        }
    }

    /// Records that a smaller stage is next; this may replace an earlier announcement.
    fn stage_ends(&mut self, leaving: &[HeldNode]) {
        self.waiting.retain(|change| !change.is_of_stage());
        let told: BTreeSet<&String> = self.told_to_leave().collect();
        let untold: Vec<HeldNode> = leaving.iter().filter(|node| !told.contains(&node.name)).cloned().collect();
        self.add(None, Direction::Shrink, &untold, false);
    }

    /// Returns the nodes of all shrinks that are not complete.
    fn told_to_leave(&self) -> impl Iterator<Item = &String> {
        let shrinks = self.waiting.iter().chain(&self.leaving).chain(&self.left);
        shrinks.filter(|change| change.direction == Direction::Shrink).flat_map(|change| &change.nodes)
    }

    /// Records nodes that came or went with a stage, or on another party's request: no other event reports these.
    fn holds(&mut self, holding: &Holding) {
        let held: BTreeSet<String> = names(&holding.nodes).collect();
        self.end_stage(holding, &held);
        // Taken by force: the application has been told.
        self.left.retain(|change| !change.is_done || change.nodes.iter().any(|node| held.contains(node)));
        let told: BTreeSet<&String> = self.told_to_leave().collect();
        let is_gone = |node: &&String| !held.contains(*node) && !told.contains(*node);
        let gone: Vec<String> = self.known.iter().filter(is_gone).cloned().collect();
        if !gone.is_empty() {
            self.waiting.push_back(Change { id: None, direction: Direction::Shrink, nodes: gone, is_done: true });
        }
        // Nodes that come together are reported together, when all of them are ready.
        if holding.awaits_nodes() {
            self.known.retain(|name| held.contains(name));
            return;
        }
        let is_new = |node: &&HeldNode| !node.is_departing && !self.known.contains(&node.name);
        let new: Vec<HeldNode> = holding.nodes.iter().filter(is_new).cloned().collect();
        self.add(None, Direction::Grow, &new, false);
        self.known = held;
    }

    /// Handles the end of a stage: nodes to be released for it are released, or are used again if the next stage
    /// differs from the announcement.
    fn end_stage(&mut self, holding: &Holding, held: &BTreeSet<String>) {
        let stages = holding.stages.as_deref();
        let before = std::mem::replace(&mut self.stage, stages.map(|stages| stages.number));
        let legs = stages.map(|stages| stages.legs.as_slice());
        let still_shrinks = matches!(legs, Some([now, next, ..]) if next.nodes < now.nodes);
        if still_shrinks && before == self.stage {
            return;
        }
        let mut told: Vec<Change> = self.left.extract_if(.., |change| change.is_of_stage()).collect();
        told.extend(self.leaving.iter().filter(|change| change.is_of_stage()).cloned());
        // The application has been told of these.
        self.known.retain(|node| held.contains(node) || !told.iter().any(|change| change.nodes.contains(node)));
        for change in self.waiting.iter_mut().chain(&mut self.leaving).filter(|change| change.is_of_stage()) {
            change.nodes.retain(|node| !held.contains(node));
            change.is_done = true;
        }
        self.waiting.retain(|change| !change.nodes.is_empty());
        let nodes: Vec<String> =
            told.into_iter().flat_map(|change| change.nodes).filter(|node| held.contains(node)).collect();
        if !nodes.is_empty() {
            self.waiting.push_back(Change { id: None, direction: Direction::Grow, nodes, is_done: false });
        }
    }

    /// Records nodes that were requested or accepted: the application may already hold them and know of them.
    fn came(&mut self, id: NegotiationId, nodes: &[HeldNode]) {
        let is_these = |name: &String| nodes.iter().any(|node| node.name == *name);
        let mut untold: BTreeSet<String> = names(nodes).filter(|name| !self.known.contains(name)).collect();
        for change in
            self.waiting.iter_mut().filter(|change| change.id.is_none() && change.direction == Direction::Grow)
        {
            untold.extend(change.nodes.extract_if(.., |name| is_these(name)));
        }
        self.waiting.retain(|change| !change.nodes.is_empty());
        let untold: Vec<HeldNode> = nodes.iter().filter(|node| untold.contains(&node.name)).cloned().collect();
        self.add(Some(id), Direction::Grow, &untold, false);
        self.known.extend(names(nodes));
    }

    /// Returns the next change for the application.
    pub fn next(&mut self) -> Option<Change> {
        let change = self.waiting.pop_front()?;
        if change.direction == Direction::Shrink {
            self.leaving = Some(change.clone());
        }
        Some(change)
    }

    /// Returns how many nodes to use after `change`, which was just reported: the nodes in `held` without the effects
    /// of changes that are still to be reported.
    pub fn n_after(&self, change: &Change, held: impl Iterator<Item = String>) -> usize {
        let mut used: BTreeSet<String> = held.collect();
        let undone = self.waiting.iter().rev().map(|later| (opposite(later.direction), later));
        let left = self.left.iter().map(|left| (Direction::Shrink, left));
        for (direction, other) in undone.chain(left).chain([(change.direction, change)]) {
            match direction {
                Direction::Grow => used.extend(other.nodes.iter().cloned()),
                Direction::Shrink => used.retain(|node| !other.nodes.contains(node)),
            }
        }
        used.len()
    }

    /// Returns whether `rms_release_done` is due.
    pub fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }

    /// Records that the application has left the nodes that it was told to leave.
    pub fn release(&mut self) -> Release {
        let Some(change) = self.leaving.take() else {
            return Release::Nothing;
        };
        let said = match change.id {
            _ if change.is_done => return Release::Void,
            Some(id) => Release::Say(id, change.nodes.clone()),
            None => {
                // All nodes for the stage, those of an earlier announcement included.
                let before = self.left.iter().filter(|left| left.is_of_stage());
                Release::Free(before.chain([&change]).flat_map(|change| change.nodes.iter().cloned()).collect())
            }
        };
        self.left.push(change);
        said
    }

    /// Records that the release could not be sent: it is due again.
    pub fn unsaid(&mut self, id: Option<NegotiationId>) {
        if let Some(idx) = self.left.iter().rposition(|change| change.id == id) {
            self.leaving = Some(self.left.remove(idx));
        }
    }

    /// Queues a change, unless it affects no nodes (a change of time).
    fn add(&mut self, id: Option<NegotiationId>, direction: Direction, nodes: &[HeldNode], is_done: bool) {
        if nodes.is_empty() {
            return;
        }
        if direction == Direction::Shrink && is_done {
            self.known.retain(|name| !nodes.iter().any(|node| node.name == *name));
        }
        let nodes = names(nodes).collect();
        self.waiting.push_back(Change { id, direction, nodes, is_done });
    }

    /// Records lost nodes. The application is not told again to do without those that it has left or is leaving; nor is
    /// it told to leave what is lost.
    fn lost(&mut self, nodes: &[HeldNode]) {
        let is_lost = |name: &String| nodes.iter().any(|node| node.name == *name);
        self.known.retain(|name| !is_lost(name));
        let mut dropped: BTreeSet<String> = BTreeSet::new();
        for change in self.leaving.iter_mut().chain(&mut self.left) {
            dropped.extend(change.nodes.extract_if(.., |name| is_lost(name)));
        }
        for change in self.waiting.iter_mut().filter(|change| change.direction == Direction::Shrink) {
            change.nodes.retain(|name| !is_lost(name));
        }
        self.waiting.retain(|change| !change.nodes.is_empty());
        let untold: Vec<HeldNode> = nodes.iter().filter(|node| !dropped.contains(&node.name)).cloned().collect();
        self.add(None, Direction::Shrink, &untold, true);
    }

    /// Records that nodes have been taken, whether the application was ready or not.
    fn gone(&mut self, id: NegotiationId, nodes: &[HeldNode]) {
        let is_expected = self.left.iter().any(|change| change.id == Some(id));
        self.left.retain(|change| change.id != Some(id));
        if is_expected {
            return;
        }
        match self.leaving.as_mut().filter(|change| change.id == Some(id)) {
            // It is already leaving them; its confirmation is no longer needed.
            Some(change) => change.is_done = true,
            None => {
                let of_it = self.waiting.iter().filter(|change| change.id == Some(id));
                let named: BTreeSet<String> = of_it.flat_map(|change| change.nodes.iter().cloned()).collect();
                self.waiting.retain(|change| change.id != Some(id));
                // The others were lost, and are reported already.
                let is_untold = |node: &&HeldNode| named.contains(&node.name) || self.known.contains(&node.name);
                let untold: Vec<HeldNode> = nodes.iter().filter(is_untold).cloned().collect();
                self.add(Some(id), Direction::Shrink, &untold, true);
            }
        }
    }

    /// Records that the nodes of a failed shrink are taken nevertheless.
    fn taken(&mut self, id: NegotiationId) {
        let open = self.waiting.iter_mut().chain(&mut self.leaving).chain(&mut self.left);
        open.filter(|change| change.id == Some(id)).for_each(|change| change.is_done = true);
    }

    /// Records that a shrink had no result: nodes that the application has left, or is leaving, are to be used again.
    fn kept(&mut self, id: NegotiationId) {
        self.waiting.retain(|change| change.id != Some(id));
        let left = self.left.iter().position(|change| change.id == Some(id)).map(|idx| self.left.remove(idx));
        let leaving = self.leaving.as_mut().filter(|change| change.id == Some(id)).map(|change| {
            change.is_done = true;
            change.clone()
        });
        if let Some(change) = left.or(leaving).filter(|change| !change.nodes.is_empty()) {
            self.waiting.push_back(Change { direction: Direction::Grow, is_done: false, ..change });
        }
    }
}

impl Change {
    /// Returns whether this is a shrink for the next stage that is not complete.
    fn is_of_stage(&self) -> bool {
        self.id.is_none() && self.direction == Direction::Shrink && !self.is_done
    }
}

fn names(nodes: &[HeldNode]) -> impl Iterator<Item = String> + '_ {
    nodes.iter().map(|node| node.name.clone())
}

/// Returns the names of the nodes that are ready.
fn usable(nodes: &[HeldNode]) -> impl Iterator<Item = String> + '_ {
    nodes.iter().filter(|node| !node.is_coming).map(|node| node.name.clone())
}

fn opposite(direction: Direction) -> Direction {
    match direction {
        Direction::Grow => Direction::Shrink,
        Direction::Shrink => Direction::Grow,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeSet;

    use launcher_sdk::negotiator::{
        Holding, Item, ItemStatus, Quantity, Reason, Resource, SetRule, Side, StageLine, Stages, Template, Terms,
    };
    use negotiation::Parties;
    use rms_model::{ClusterId, JobId, NodeId, Run, Span, Time};

    use super::*;

    pub const R1: NegotiationId = NegotiationId { initiator: Side::Rms, number: 1 };

    fn nodes(list: &str) -> Vec<HeldNode> {
        let node = |name: &str| HeldNode {
            node: NodeId(u32::from(name.as_bytes()[0])),
            name: name.to_owned(),
            cluster: ClusterId(0),
            cluster_name: "c".to_owned(),
            address: format!("{name}.example"),
            cpus: 4,
            cores: 0,
            memory: Default::default(),
            devices: Default::default(),
            is_departing: false,
            is_coming: false,
        };
        list.split_whitespace().map(node).collect()
    }

    fn template(direction: Direction, n_nodes: usize) -> Template {
        let quantity = Quantity(n_nodes as u64);
        let item = Item {
            set: 0,
            resource: Resource::Nodes(ClusterId(0)),
            quantity,
            held: Quantity(4),
            nodes: BTreeSet::new(),
            terms: Terms::exactly(quantity),
            status: ItemStatus::Proposed,
        };
        let parties = Parties { job: JobId(1), run: Run(1), initiator: Side::Rms };
        Template::new(parties, direction, vec![SetRule::All], vec![item]).expect("a template")
    }

    pub fn agreed(list: &str) -> Event {
        let leaving = nodes(list);
        let template = template(Direction::Shrink, leaving.len());
        Event::Accepted(Agreed { negotiation: R1, direction: Direction::Shrink, template, leaving, until: None })
    }

    pub fn ready(direction: Direction, list: &str) -> Event {
        let nodes = nodes(list);
        let template = template(direction, nodes.len());
        let holding = Holding {
            generation: 2,
            nodes: Vec::new(),
            until: Time::EPOCH,
            stages: None,
            licences: Default::default(),
        };
        Event::Ready(Ready { negotiation: R1, direction, template, nodes, holding })
    }

    /// Returns an event in stage `number` of an application whose stages from there on have these sizes.
    pub fn in_stage(number: u32, legs: &[u32], list: &str) -> Event {
        let leg = |nodes: &u32| StageLine { nodes: *nodes, span: Span::from_secs(10), start: Some(Time::EPOCH) };
        let stages = Stages {
            number,
            n_stages: number + legs.len() as u32 - 1,
            legs: legs.iter().map(leg).collect(),
            late_by: None,
            open: false,
            generation: number,
            chosen: Vec::new(),
            leaving: Vec::new(),
            n_violations: 0,
        };
        let stages = Some(Box::new(stages));
        Event::Holding(Holding {
            generation: number,
            nodes: nodes(list),
            until: Time::EPOCH,
            stages,
            licences: Default::default(),
        })
    }

    pub fn holding(list: &str) -> Holding {
        let (until, licences) = (Time::EPOCH, Default::default());
        Holding { generation: 2, nodes: nodes(list), until, stages: None, licences }
    }

    pub fn ends(next: u32, list: &str) -> Event {
        Event::StageEnds(StageEnds { next, at: Time::EPOCH, leaving: nodes(list) })
    }

    pub fn frees(list: &str) -> Release {
        Release::Free(list.split_whitespace().map(str::to_owned).collect())
    }

    #[test]
    fn nodes_come_and_go_with_the_stages_of_a_profile() {
        let mut breakpoint = after(&[in_stage(1, &[1, 3, 2], "a"), in_stage(2, &[3, 2], "a b c")]);
        assert_eq!(told(&mut breakpoint), Some((Direction::Grow, "a".into(), false)));
        assert_eq!(told(&mut breakpoint), Some((Direction::Grow, "b c".into(), false)));
        breakpoint.hear(&ends(3, "c"));
        assert_eq!(told(&mut breakpoint), Some((Direction::Shrink, "c".into(), false)));
        assert_eq!(breakpoint.release(), frees("c"));
        breakpoint.hear(&in_stage(3, &[2], "a b"));
        assert_eq!(told(&mut breakpoint), None, "it has left what is gone");
    }

    #[test]
    fn who_comes_late_to_the_end_of_a_stage_finds_its_nodes_taken() {
        let mut breakpoint = after(&[in_stage(1, &[3, 2], "a b c")]);
        told(&mut breakpoint);
        for event in [ends(2, "c"), in_stage(2, &[2], "a b")] {
            breakpoint.hear(&event);
        }
        assert_eq!(told(&mut breakpoint), Some((Direction::Shrink, "c".into(), true)));
        assert_eq!((breakpoint.release(), told(&mut breakpoint)), (Release::Void, None));
        // Not reported before, as its node's clock is wrong: the nodes are taken all the same.
        breakpoint.hear(&in_stage(3, &[1], "a"));
        assert_eq!(told(&mut breakpoint), Some((Direction::Shrink, "b".into(), true)));
    }

    #[test]
    fn stages_that_are_announced_anew_while_nodes_are_left() {
        let mut breakpoint = after(&[in_stage(1, &[4, 2], "a b c d"), ends(2, "c d")]);
        told(&mut breakpoint);
        assert_eq!(told(&mut breakpoint), Some((Direction::Shrink, "c d".into(), false)));
        assert_eq!(breakpoint.release(), frees("c d"));
        // One more node is to be released.
        breakpoint.hear(&in_stage(1, &[4, 1], "a b c d"));
        breakpoint.hear(&ends(2, "d c b"));
        assert_eq!(told(&mut breakpoint), Some((Direction::Shrink, "b".into(), false)));
        assert_eq!(breakpoint.release(), frees("c d b"));
        // No node is to be released.
        breakpoint.hear(&in_stage(1, &[4, 5], "a b c d"));
        assert_eq!(told(&mut breakpoint), Some((Direction::Grow, "c d b".into(), false)));
        assert_eq!(told(&mut breakpoint), None);
    }

    #[test]
    fn nodes_that_others_have_given_back_are_told_as_gone() {
        let mut breakpoint = after(&[Event::Holding(holding("a b c")), Event::Holding(holding("a b"))]);
        told(&mut breakpoint);
        assert_eq!(told(&mut breakpoint), Some((Direction::Shrink, "c".into(), true)));
        // A shrink that it agreed to itself is reported once, whatever the order of the events.
        for event in [agreed("b"), Event::Holding(holding("a")), ready(Direction::Shrink, "b")] {
            breakpoint.hear(&event);
        }
        assert_eq!(told(&mut breakpoint), Some((Direction::Shrink, "b".into(), true)));
        assert_eq!(told(&mut breakpoint), None);
    }

    pub fn failed() -> Event {
        failed_because(Reason::Overdue)
    }

    fn failed_because(reason: Reason) -> Event {
        Event::Ended { negotiation: R1, template: None, ending: Ending::Failed, reason, why: None }
    }

    fn after(events: &[Event]) -> Breakpoint {
        let mut breakpoint = Breakpoint::default();
        events.iter().for_each(|event| breakpoint.hear(event));
        breakpoint
    }

    pub fn told(breakpoint: &mut Breakpoint) -> Option<(Direction, String, bool)> {
        breakpoint.next().map(|change| (change.direction, change.nodes.join(" "), change.is_done))
    }

    pub fn say(list: &str) -> Release {
        Release::Say(R1, list.split_whitespace().map(str::to_owned).collect())
    }

    #[test]
    fn nodes_that_are_not_ready_are_not_told() {
        let mut breakpoint = Breakpoint::of(&holding("a"));
        let mut preparing = holding("a e");
        preparing.nodes[1].is_coming = true;
        breakpoint.hear(&Event::Holding(preparing));
        assert_eq!(told(&mut breakpoint), None, "agreed is not ready");
        breakpoint.hear(&Event::Holding(holding("a e")));
        breakpoint.hear(&ready(Direction::Grow, "e"));
        assert_eq!(told(&mut breakpoint), Some((Direction::Grow, "e".into(), false)));
        assert_eq!(told(&mut breakpoint), None);
    }

    #[test]
    fn nodes_that_come_together_are_told_together() {
        let mut first_is_ready = holding("a1 a2 a3");
        first_is_ready.nodes[2].is_coming = true;
        let mut breakpoint = Breakpoint::of(&holding("a1"));
        breakpoint.hear(&Event::Holding(first_is_ready));
        assert_eq!(told(&mut breakpoint), None);
        breakpoint.hear(&Event::Holding(holding("a1 a2 a3")));
        assert_eq!(told(&mut breakpoint), Some((Direction::Grow, "a2 a3".to_owned(), false)));
        assert_eq!(told(&mut breakpoint), None);
    }

    #[test]
    fn nodes_that_came_are_told_once() {
        let mut breakpoint = after(&[ready(Direction::Grow, "e f")]);
        assert_eq!(told(&mut breakpoint), Some((Direction::Grow, "e f".into(), false)));
        assert_eq!(told(&mut breakpoint), None);
        assert_eq!(breakpoint.release(), Release::Nothing);
    }

    #[test]
    fn nodes_that_others_asked_for_are_told_once() {
        let mut breakpoint = Breakpoint::of(&holding("a b"));
        breakpoint.hear(&Event::Holding(holding("a b c")));
        let change = breakpoint.next().expect("a node has come");
        assert_eq!((change.id, change.direction, change.nodes.join(" ")), (None, Direction::Grow, "c".to_owned()));
        // Nodes of its own negotiation are reported with it, whatever the order of the events.
        breakpoint.hear(&Event::Holding(holding("a b c d")));
        breakpoint.hear(&ready(Direction::Grow, "d"));
        assert_eq!(breakpoint.next().map(|change| (change.id, change.nodes)), Some((Some(R1), vec!["d".to_owned()])));
        breakpoint.hear(&ready(Direction::Grow, "e"));
        breakpoint.hear(&Event::Holding(holding("a b c d e")));
        assert_eq!(told(&mut breakpoint), Some((Direction::Grow, "e".into(), false)));
        assert_eq!(told(&mut breakpoint), None);
        // A node that was lost or left may come again.
        breakpoint.hear(&Event::Holding(holding("a b c d")));
        breakpoint.hear(&Event::Holding(holding("a b c d e")));
        assert_eq!(told(&mut breakpoint), Some((Direction::Shrink, "e".into(), true)));
        assert_eq!(told(&mut breakpoint), Some((Direction::Grow, "e".into(), false)));
    }

    #[test]
    fn nodes_are_left_and_nothing_is_told_when_they_are_gone() {
        let mut breakpoint = after(&[agreed("b c")]);
        assert_eq!(told(&mut breakpoint), Some((Direction::Shrink, "b c".into(), false)));
        assert!(breakpoint.is_leaving());
        assert_eq!(breakpoint.release(), say("b c"));
        assert!(!breakpoint.is_leaving());
        breakpoint.hear(&ready(Direction::Shrink, "b c"));
        assert_eq!(told(&mut breakpoint), None);
    }

    #[test]
    fn what_could_not_be_said_is_said_later() {
        let mut breakpoint = after(&[agreed("d")]);
        told(&mut breakpoint);
        breakpoint.release();
        breakpoint.unsaid(Some(R1));
        assert_eq!(breakpoint.release(), say("d"));
    }

    #[test]
    fn nodes_taken_by_force_are_told_as_gone() {
        let mut breakpoint = after(&[agreed("d"), ready(Direction::Shrink, "d")]);
        assert_eq!(told(&mut breakpoint), Some((Direction::Shrink, "d".into(), true)));
        assert_eq!(breakpoint.release(), Release::Void, "simple programs need not look");
        assert_eq!(told(&mut breakpoint), None);
    }

    #[test]
    fn nodes_that_are_lost_are_told_as_gone_and_never_released() {
        let mut breakpoint = after(&[agreed("d"), Event::NodesLost(nodes("c"))]);
        assert_eq!(told(&mut breakpoint), Some((Direction::Shrink, "d".into(), false)));
        assert_eq!(breakpoint.release(), say("d"));
        let change = breakpoint.next().expect("it was told of them");
        assert_eq!((change.id, change.nodes.join(" "), change.is_done), (None, "c".to_owned(), true));
        assert_eq!(breakpoint.n_after(&change, ["a", "b", "c", "d"].map(str::to_owned).into_iter()), 2);
        assert_eq!(breakpoint.release(), Release::Void);
    }

    #[test]
    fn nodes_that_are_lost_while_they_are_left_are_told_once() {
        // All of them: the RMS counts them as given back.
        let mut breakpoint = Breakpoint::of(&holding("a c d"));
        breakpoint.hear(&agreed("d"));
        assert_eq!(told(&mut breakpoint), Some((Direction::Shrink, "d".into(), false)));
        breakpoint.hear(&Event::NodesLost(nodes("d")));
        breakpoint.hear(&Event::Holding(holding("a c")));
        breakpoint.hear(&ready(Direction::Shrink, "d"));
        assert_eq!((breakpoint.release(), told(&mut breakpoint)), (Release::Void, None));
        // One of them: the others are still to be released.
        let mut breakpoint = Breakpoint::of(&holding("a c d"));
        breakpoint.hear(&agreed("c d"));
        told(&mut breakpoint);
        breakpoint.hear(&Event::NodesLost(nodes("d")));
        breakpoint.hear(&Event::Holding(holding("a c")));
        assert_eq!((breakpoint.release(), told(&mut breakpoint)), (say("c"), None));
        // Nothing comes of it: the lost one is not to be used again.
        breakpoint.hear(&failed_because(Reason::Changed));
        assert_eq!(told(&mut breakpoint), Some((Direction::Grow, "c".into(), false)));
        assert_eq!(told(&mut breakpoint), None);
    }

    #[test]
    fn nodes_that_are_lost_before_they_are_left_are_told_as_gone() {
        let mut breakpoint = Breakpoint::of(&holding("a c d"));
        for event in [agreed("c d"), Event::NodesLost(nodes("d")), Event::Holding(holding("a c"))] {
            breakpoint.hear(&event);
        }
        assert_eq!(told(&mut breakpoint), Some((Direction::Shrink, "c".into(), false)));
        assert_eq!(breakpoint.release(), say("c"));
        assert_eq!(told(&mut breakpoint), Some((Direction::Shrink, "d".into(), true)));
        assert_eq!(breakpoint.release(), Release::Void);
        breakpoint.hear(&ready(Direction::Shrink, "c d"));
        assert_eq!(told(&mut breakpoint), None);

        let mut breakpoint = Breakpoint::of(&holding("a d"));
        for event in [agreed("d"), Event::NodesLost(nodes("d")), Event::Holding(holding("a"))] {
            breakpoint.hear(&event);
        }
        breakpoint.hear(&ready(Direction::Shrink, "d"));
        assert_eq!(told(&mut breakpoint), Some((Direction::Shrink, "d".into(), true)));
        assert_eq!((breakpoint.release(), told(&mut breakpoint)), (Release::Void, None));
    }

    #[test]
    fn nodes_taken_while_they_are_being_left_need_no_confirmation() {
        let mut breakpoint = after(&[agreed("d")]);
        told(&mut breakpoint);
        breakpoint.hear(&ready(Direction::Shrink, "d"));
        assert_eq!(breakpoint.release(), Release::Void);
        assert_eq!(told(&mut breakpoint), None);
    }

    #[test]
    fn a_shrink_that_fails_before_it_is_told_is_not_told() {
        assert_eq!(told(&mut after(&[agreed("d"), failed()])), None);
    }

    #[test]
    fn nodes_that_were_left_in_vain_come_back() {
        let back = Some((Direction::Grow, "d".into(), false));
        let mut breakpoint = after(&[agreed("d")]);
        told(&mut breakpoint);
        breakpoint.release();
        breakpoint.hear(&failed());
        assert_eq!(told(&mut breakpoint), back);

        let mut breakpoint = after(&[agreed("d")]);
        told(&mut breakpoint);
        breakpoint.hear(&failed());
        assert_eq!(breakpoint.release(), Release::Void);
        assert_eq!(told(&mut breakpoint), back);
    }

    #[test]
    fn nodes_of_a_broken_promise_are_told_as_gone_before_they_come_again() {
        let mut breakpoint = after(&[agreed("d"), failed_because(Reason::BrokenPromise), ready(Direction::Grow, "d")]);
        let change = breakpoint.next().expect("it was not told of them");
        assert_eq!((change.direction, change.is_done), (Direction::Shrink, true));
        let held = || ["a", "b", "c", "d"].map(str::to_owned).into_iter();
        assert_eq!(breakpoint.n_after(&change, held()), 3);
        assert_eq!(breakpoint.release(), Release::Void);
        let change = breakpoint.next().expect("they came again");
        assert_eq!((change.direction, breakpoint.n_after(&change, held())), (Direction::Grow, 4));
    }

    #[test]
    fn nodes_that_are_taken_after_they_were_left_are_not_told() {
        let mut breakpoint = after(&[agreed("d")]);
        told(&mut breakpoint);
        breakpoint.release();
        breakpoint.hear(&failed_because(Reason::Administrator));
        assert_eq!(told(&mut breakpoint), None);
    }
}
