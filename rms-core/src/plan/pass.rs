//! One pass over the queue (001, Fig. 5, step 4).

use std::collections::{BTreeMap, BTreeSet};

use rms_model::job::Constraint;
use rms_model::profile::Block;
use rms_model::{ClusterId, Evolution, JobId, JobSpec, NodeId, Request, Time, View};

use super::evolve;
use super::ledger::{self, Ledger};
use super::{Blocked, Placed, Placement, Plan, Scope, Shortage};
use crate::job::{Job, Started};
use crate::launcher::{self, TooSmall};
use crate::state::State;

pub(super) fn run(state: &State, now: Time, scope: Scope, applicant: Option<&JobSpec>) -> Plan {
    let n_free = n_free(state);
    if scope == Scope::Starts && n_free == 0 {
        return Plan { now, placements: Vec::new(), base: View::new(), last_view: View::new() };
    }
    let mut pass = Pass::new(state, now, n_free);
    let base = pass.all.view.clone();
    let mut placements = Vec::new();
    for job in considered(state) {
        if scope == Scope::Starts && pass.n_free == 0 {
            break;
        }
        let view = (scope == Scope::Views).then(|| pass.view(state, now));
        let outcome = pass.place(&state.jobs()[&job].spec);
        placements.push(Placement { job, outcome, view });
    }
    if let Some(spec) = applicant {
        let outcome = pass.place(spec);
        placements.push(Placement { job: JobId(0), outcome, view: None });
    }
    Plan { now, placements, base, last_view: pass.all.view }
}

/// The plan up to one application, whose view is the last one; `None` if it is not considered.
///
/// The views of all applications would be as many as their number squared.
pub(super) fn run_before(state: &State, now: Time, seer: JobId) -> Option<Plan> {
    let is_queued = state.jobs().get(&seer).is_some_and(Job::is_queued);
    let n_before = if is_queued { considered(state).position(|job| job == seer)? } else { return None };
    let mut pass = Pass::new(state, now, n_free(state));
    let base = pass.all.view.clone();
    let before = state.queue().take(n_before);
    let placements = before.map(|job| Placement { job, outcome: pass.place(&state.jobs()[&job].spec), view: None });
    let placements = placements.collect();
    let last_view = pass.view(state, now);
    Some(Plan { now, placements, base, last_view })
}

/// The applications of the queue that a pass looks at, in order.
fn considered(state: &State) -> impl Iterator<Item = JobId> + '_ {
    let depth = match state.settings().queue_depth {
        0 => usize::MAX,
        depth => depth as usize,
    };
    state.queue().take(depth)
}

fn n_free(state: &State) -> usize {
    state.clusters().keys().map(|cluster| state.n_free(*cluster)).sum()
}

/// The views as they fill up, application by application.
pub(super) struct Pass<'a> {
    state: &'a State,
    pub(super) now: Time,
    /// Every usable host.
    pub(super) all: Ledger,
    /// Hosts that meet a constraint, for the constraints met so far that exclude any; of those that the same hosts
    /// meet, the first one stands for all.
    pub(super) special: BTreeMap<Constraint, Ledger>,
    /// Which constraint stands for one met before; none if every usable host meets it.
    pub(super) stands_for: BTreeMap<Constraint, Option<Constraint>>,
    /// What was placed so far, to open a special ledger late.
    placed: Vec<Taken>,
    /// Hosts given away in this pass.
    taken: BTreeSet<NodeId>,
    /// Free hosts left, over all clusters.
    n_free: usize,
}

/// Hosts that a placed application takes from the view.
pub(super) struct Taken {
    /// The ledger its hosts come from; `None` is every usable host.
    pub(super) constraint: Option<Constraint>,
    pub(super) request: Request,
    pub(super) at: Time,
    /// Known only if it starts now.
    pub(super) nodes: Option<Vec<NodeId>>,
    /// What an evolving application needs from its start on, instead of the hosts of the request.
    pub(super) stages: Option<Evolution>,
}

/// What came of taking hosts for an application that its profiles let start now.
pub(super) enum Take {
    Hosts(Vec<NodeId>),
    /// The profile says that hosts are free which are not.
    NotFree,
    /// Hosts are free, but an application that was placed before needs them, and can use no others.
    Kept(Option<Blocked>),
}

impl<'a> Pass<'a> {
    fn new(state: &'a State, now: Time, n_free: usize) -> Pass<'a> {
        let mut pass = Pass {
            state,
            now,
            all: Ledger::of_all(state, now, None),
            special: BTreeMap::new(),
            stands_for: BTreeMap::from([(Constraint::default(), None)]),
            placed: Vec::new(),
            taken: BTreeSet::new(),
            n_free,
        };
        // Hosts that a running application will need, and can use no others, are kept from the first one on.
        for (_, entry) in state.holding() {
            if let Some(Started { request, evolved: Some(_), .. }) = entry.started() {
                pass.open_ledger(&launcher::constraint_of(&entry.spec, request));
            }
        }
        pass
    }

    /// The last view as an application may see it: from now on, over all clusters (R5).
    fn view(&self, state: &State, now: Time) -> View {
        let profile = |cluster: &ClusterId| self.all.view.get(cluster).map(|p| p.cut_before(now)).unwrap_or_default();
        state.clusters().keys().map(|cluster| (*cluster, profile(cluster))).collect()
    }

    /// Steps 4b and 4c: the launcher's request in its first hole.
    fn place(&mut self, spec: &JobSpec) -> Placed {
        if let Some(evolving) = &spec.evolving {
            return self.place_evolving(spec, evolving);
        }
        let constraint = |request: &Request| launcher::constraint_of(spec, request);
        for request in &spec.options {
            self.open_ledger(&constraint(request));
        }
        let holes = spec.options.iter().map(|request| {
            let special = self.stands_for.get(&constraint(request)).and_then(Option::as_ref);
            let special = special.and_then(|constraint| self.special.get_mut(constraint));
            let mut ledgers: Vec<&mut Ledger> = std::iter::once(&mut self.all).chain(special).collect();
            (request, ledger::first_hole(&mut ledgers, request, self.now))
        });
        let choice = match launcher::choose(holes) {
            Ok(choice) => choice,
            Err(TooSmall { request, cluster, wanted }) => {
                let special = self.stands_for.get(&constraint(request)).and_then(Option::as_ref);
                let ledger = special.map_or(&self.all, |constraint| &self.special[constraint]);
                return Placed::Never { shortage: Shortage { cluster, wanted, usable: ledger.capacity_of(cluster) } };
            }
        };
        let request = choice.request.clone();
        let special = self.stands_for.get(&constraint(&request)).cloned().flatten();
        let starts_now = choice.start == self.now;
        let take = if starts_now { self.take_nodes(&request, special.as_ref()) } else { Take::NotFree };
        let (at, blocked, nodes) = match take {
            Take::Hosts(nodes) => (choice.start, None, Some(nodes)),
            Take::NotFree => (choice.start, choice.blocked, None),
            Take::Kept(blocked) => (self.next_start(&request, special.as_ref()), blocked, None),
        };
        self.add(Taken { constraint: special, request: request.clone(), at, nodes: nodes.clone(), stages: None });
        match nodes {
            Some(nodes) => Placed::Now { request, nodes, fit: None },
            None => Placed::Later { request, at, blocked, fit: None },
        }
    }

    /// Free hosts of each cluster of the request: plain ones first, then by id. A host is left out while an
    /// application that was placed before can use only such hosts and needs it during the request: the count of all
    /// hosts alone does not show that.
    pub(super) fn take_nodes(&mut self, request: &Request, constraint: Option<&Constraint>) -> Take {
        let ledger = constraint.map_or(&self.all, |constraint| &self.special[constraint]);
        let mut nodes = Vec::new();
        for (cluster, wanted) in &request.hosts {
            // What each ledger can spare, and how much of that this request has taken.
            let to_spare = |special| (special, Ledger::least_free(special, *cluster, request.wall, self.now), 0);
            let mut spares: Vec<(&Ledger, i64, u32)> = self.special.values().map(to_spare).collect();
            let mut kept_by = None;
            let mut n_chosen = 0;
            let is_left = |node: &NodeId| !self.taken.contains(node) && ledger.contains(*node);
            for node in self.state.free(*cluster).filter(is_left) {
                if n_chosen == *wanted {
                    break;
                }
                let mut of_node = spares.iter_mut().filter(|(special, ..)| special.contains(node));
                if let Some((special, _, n_taken)) = of_node.find(|(_, spare, n_taken)| i64::from(*n_taken) >= *spare) {
                    kept_by.get_or_insert((*special, *n_taken + 1));
                    continue;
                }
                let of_node = spares.iter_mut().filter(|(special, ..)| special.contains(node));
                of_node.for_each(|(_, _, n_taken)| *n_taken += 1);
                nodes.push(node);
                n_chosen += 1;
            }
            if n_chosen < *wanted {
                return match kept_by {
                    Some((special, too_many)) => {
                        Take::Kept(special.full_step(*cluster, too_many, request.wall, self.now))
                    }
                    None => Take::NotFree,
                };
            }
        }
        self.n_free -= nodes.len();
        self.taken.extend(nodes.iter().copied());
        Take::Hosts(nodes)
    }

    /// When a request whose hosts are kept for others now may find some: not before something changes.
    pub(super) fn next_start(&self, request: &Request, constraint: Option<&Constraint>) -> Time {
        let clusters = request.hosts.keys().filter_map(|cluster| self.all.view.get(cluster));
        let next_change = clusters.filter_map(|profile| profile.change_points(self.now).nth(1)).min();
        let from = next_change.unwrap_or(self.now);
        let special = constraint.map(|constraint| &self.special[constraint]);
        let ledgers: Vec<&Ledger> = std::iter::once(&self.all).chain(special).collect();
        ledger::joint_hole(&ledgers, request, (from, None)).map_or(from, |(start, _)| start)
    }

    pub(super) fn add(&mut self, taken: Taken) {
        for (cluster, block) in taken.blocks() {
            self.all.add(cluster, block);
        }
        // The ledgers are moved out for a moment: the shares of one are counted against another.
        let mut special = std::mem::take(&mut self.special);
        let shares: Vec<_> = special
            .iter()
            .map(|(constraint, ledger)| (constraint.clone(), self.shares(&taken, ledger, &special)))
            .collect();
        for (constraint, shares) in shares {
            let ledger = special.get_mut(&constraint).expect("it was listed just now");
            for (cluster, block) in shares {
                ledger.add(cluster, block);
            }
        }
        self.special = special;
        self.placed.push(taken);
    }

    /// What `taken` takes from the hosts of `ledger`: the hosts that it has, as long as it needs as many, and of others
    /// those that cannot come from elsewhere.
    fn shares(
        &self,
        taken: &Taken,
        ledger: &Ledger,
        special: &BTreeMap<Constraint, Ledger>,
    ) -> Vec<(ClusterId, Block)> {
        let known = taken.nodes.as_ref().map(|nodes| ledger.count(self.state, nodes)).unwrap_or_default();
        let source = taken.constraint.as_ref().and_then(|constraint| special.get(constraint)).unwrap_or(&self.all);
        let share = |(cluster, block): (ClusterId, Block)| {
            let n_known = known.get(&cluster).copied().unwrap_or(0);
            let n_held =
                if taken.nodes.is_some() { taken.request.hosts.get(&cluster).copied().unwrap_or(0) } else { 0 };
            let more = block.hosts - i64::from(n_held);
            let hosts = if more > 0 {
                n_known + i64::from(ledger.least_share(self.state, source, cluster, more as u32))
            } else {
                n_known.min(block.hosts)
            };
            (cluster, Block { hosts, ..block })
        };
        taken.blocks().map(share).collect()
    }

    /// Makes sure that a ledger exists for a constraint that excludes some hosts.
    pub(super) fn open_ledger(&mut self, constraint: &Constraint) {
        if self.stands_for.contains_key(constraint) {
            return;
        }
        let eligible = ledger::eligible(self.state, constraint);
        let n_usable: u32 = self.all.capacity.values().sum();
        let known = self.special.iter().find(|(_, ledger)| ledger.is_of(&eligible)).map(|(known, _)| known.clone());
        let stands_for = if eligible.len() == n_usable as usize {
            None
        } else if let Some(known) = known {
            Some(known)
        } else {
            let mut ledger = Ledger::of(self.state, self.now, eligible, None);
            for taken in &self.placed {
                for (cluster, block) in self.shares(taken, &ledger, &self.special) {
                    ledger.add(cluster, block);
                }
            }
            self.special.insert(constraint.clone(), ledger);
            Some(constraint.clone())
        };
        self.stands_for.insert(constraint.clone(), stands_for);
    }
}

impl Taken {
    /// What it takes of each cluster, in the order of time.
    fn blocks(&self) -> impl Iterator<Item = (ClusterId, Block)> + '_ {
        let until = self.at + self.request.wall;
        let rigid = if self.stages.is_none() { Some(&self.request.hosts) } else { None };
        let rigid = rigid.into_iter().flatten();
        let rigid =
            rigid.map(move |(cluster, wanted)| (*cluster, Block { from: self.at, until, hosts: i64::from(*wanted) }));
        let stages = self.stages.iter().flat_map(|stages| stages.blocks(self.at));
        rigid.chain(stages.map(|block| (evolve::cluster_of(&self.request), block)))
    }
}

#[cfg(test)]
mod tests {
    use rms_model::resources::Mebibytes;
    use rms_model::{Inventory, Span};

    use super::*;
    use crate::event::{Nodes, Shape};
    use crate::tests::World;

    /// Each ledger is brought up to date with each application, so there must not be one for each wish of a user.
    #[test]
    fn wishes_that_the_same_hosts_meet_share_a_ledger() {
        let mut world = World::new();
        for (name, memory) in [("small1", 1000), ("small2", 1000), ("large", 4000), ("huge", 8000)] {
            world.joins(name, Inventory { memory: Mebibytes(memory), ..Inventory::default() }, Vec::new());
        }
        for wish in 1..=60 {
            world.submit_with(|submission| {
                submission.shapes = vec![Shape { nodes: Nodes::Count(1), wall: Some(Span::from_secs(60)) }];
                submission.constraint.memory = Mebibytes(wish * 100);
            });
        }
        let state = world.rms.state();
        let mut pass = Pass::new(state, world.now, 0);
        for job in state.queue() {
            pass.place(&state.jobs()[&job].spec);
        }
        assert_eq!(pass.special.len(), 2, "those of 1001 MiB and more, and those of 4001 MiB and more");
    }
}
