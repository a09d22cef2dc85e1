//! Places applications one after the other in views that fill up (001, Fig. 5, step 4); the policy decides the order.

use std::collections::{BTreeMap, BTreeSet};

use rms_model::job::Constraint;
use rms_model::profile::Block;
use rms_model::{ClusterId, Devices, JobId, JobSpec, NodeId, Profile, Request, Slice, Time, View};

use super::fit::Fit;
use super::grid::Place;
use super::grids::{self, Grids, WantedBy};
use super::launcher::{self, Choice, SizedHole};
use super::ledger::{self, Ledger, Subset};
use super::licences::Licences;
use super::parts::cluster_of;
use super::spares::Spares;
use super::taken::{Found, Taken};
use super::watched::{Class, Watches};
use super::{Blocked, Placed, Shortage};
use crate::state::State;
use crate::state::job::{Promise, Started};
use crate::state::node::Node;
use crate::state::{constraint_of, takes_any_nodes};

/// Observes the views as they fill up.
pub(super) type Look<'l> = dyn FnMut(&mut Pass<'_>, Moment) + 'l;

/// When a pass is observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// No application has been placed yet.
    Begins,
    /// The view is the view of this application.
    Before(JobId),
    /// All applications have been placed.
    Ends,
}

/// The views as they fill up, application by application.
#[derive(Clone)]
pub(super) struct Pass<'a> {
    pub(super) state: &'a State,
    pub(super) now: Time,
    pub(super) grids: Grids<'a>,
    pub(super) licences: Licences,
    /// All usable nodes.
    pub(super) all: Ledger<'a>,
    /// Nodes that meet a constraint, for the constraints met so far that exclude any. If several constraints select the
    /// same nodes, the first one represents them. Also windows of jobs that are placed on neighbouring nodes.
    pub(super) special: BTreeMap<Subset, Ledger<'a>>,
    /// Slices that launchers search for.
    pub(super) watches: Watches<'a>,
    /// Which constraint represents one met before; `None` if every usable node meets it. The constraint without demands
    /// is always met and not listed.
    pub(super) stands_for: BTreeMap<Constraint, Option<Subset>>,
    /// What was placed so far, to open a special ledger late.
    pub(super) placed: Vec<Taken>,
    /// Whether `placed` follows everything that is taken and given back, and not only final placements.
    tracks: bool,
    /// Nodes given away in this pass, and how many of each cluster: while no ledger is special they are the first free
    /// nodes.
    taken: Vec<NodeId>,
    n_taken: BTreeMap<ClusterId, usize>,
    /// The same nodes as a set, once a ledger is special.
    taken_set: BTreeSet<NodeId>,
    /// What every ledger shows in addition to the state.
    supposed: Vec<Supposed>,
    /// Nodes that this pass treats as free, although a job holds them.
    freed: BTreeMap<ClusterId, Vec<NodeId>>,
    /// Nodes that this pass treats as held, although they are free.
    kept: BTreeSet<NodeId>,
    /// Number of free nodes left, over all clusters; in clusters that are shared by cores, of logical CPUs.
    pub(super) n_free: usize,
    /// No application is placed after this one: what it takes need not be shown.
    pub(super) is_last: bool,
}

/// Nodes that are treated as held, or with a `sign` of -1 as no longer held.
#[derive(Clone)]
struct Supposed {
    nodes: Vec<NodeId>,
    from: Time,
    until: Time,
    sign: i64,
}

impl Supposed {
    fn show(&self, state: &State, ledger: &mut Ledger<'_>) {
        for (cluster, nodes) in ledger.count(state, &self.nodes) {
            ledger.add(cluster, Block { from: self.from, until: self.until, nodes: self.sign * nodes });
        }
    }
}

/// The result of taking nodes for an application whose profiles allow a start now.
enum Take {
    Nodes(Vec<NodeId>, Vec<Place>),
    /// Some nodes that the profile shows as free are not.
    NotFree,
    /// Nodes are free, but an application placed before needs them and can use no others.
    Kept(Option<Blocked>),
}

impl<'a> Pass<'a> {
    pub(super) fn new(state: &'a State, now: Time, n_free: usize) -> Pass<'a> {
        let mut pass = Pass {
            state,
            now,
            grids: Grids::new(state, now),
            licences: Licences::new(state, now),
            all: Ledger::of_all(state, now, None),
            special: BTreeMap::new(),
            watches: Watches::default(),
            stands_for: BTreeMap::new(),
            placed: Vec::new(),
            tracks: false,
            taken: Vec::new(),
            n_taken: BTreeMap::new(),
            taken_set: BTreeSet::new(),
            supposed: Vec::new(),
            freed: BTreeMap::new(),
            kept: BTreeSet::new(),
            n_free,
            is_last: false,
        };
        // Nodes that a running application will need, without alternatives, are kept from the first application on.
        let counted = state.evolved().filter(|(.., started)| !state.is_shared(cluster_of(&started.request)));
        for (_, entry, Started { request, .. }) in counted {
            pass.open_ledger(&constraint_of(&entry.spec, request));
        }
        pass.reserve_rows();
        pass
    }

    /// Treats these nodes, which a job would hold until `until`, as free. Called before any application is placed.
    pub(super) fn free_up(&mut self, job: JobId, nodes: &[NodeId], until: Time) {
        self.suppose(Supposed { nodes: nodes.to_vec(), from: self.now, until, sign: -1 });
        self.free_places(job, nodes);
        let is_counted = |entry: &&Node| entry.is_usable() && !self.state.is_shared(entry.cluster);
        for node in nodes {
            let Some(entry) = self.state.nodes().get(node).filter(is_counted) else { continue };
            self.freed.entry(entry.cluster).or_default().push(*node);
            self.n_free += 1;
        }
    }

    /// Treats these nodes, or the job's parts of them, as held by the job from `from` to `until`, too. Called before
    /// any application is placed.
    pub(super) fn keep_busy(&mut self, job: JobId, nodes: &[NodeId], from: Time, until: Time) {
        self.suppose(Supposed { nodes: nodes.to_vec(), from, until, sign: 1 });
        let places = self.places_of(job, nodes);
        self.take_places(&places, (from, until), 1);
    }

    fn places_of(&self, job: JobId, nodes: &[NodeId]) -> Vec<Place> {
        let known = nodes.iter().filter_map(|node| Some((node, self.state.nodes().get(node)?)));
        let entry = &self.state.jobs()[&job];
        known.filter_map(|(node, known)| self.grids.place_of(job, entry, known.cluster, *node)).collect()
    }

    /// Treats these free nodes as held from `from` to `until`. Called before any application is placed.
    pub(super) fn keep_from_others(&mut self, job: JobId, nodes: &[NodeId], from: Time, until: Time) {
        self.keep_busy(job, nodes, from, until);
        self.kept.extend(nodes);
        let places = self.places_of(job, nodes);
        self.n_free -= nodes.len() - places.len() + self.grids.n_cpus(&places);
    }

    /// Returns whether the pass treats a held node as free.
    pub(super) fn is_freed(&self, node: NodeId) -> bool {
        self.supposed.iter().any(|supposed| supposed.sign < 0 && supposed.nodes.contains(&node))
    }

    pub(super) fn show_supposed(&self, ledger: &mut Ledger<'_>) {
        self.supposed.iter().for_each(|supposed| supposed.show(self.state, ledger));
    }

    /// Starts to record the nodes given away one by one, and not by their number.
    pub(super) fn remember_taken(&mut self) {
        self.taken_set.extend(self.taken.iter().copied());
    }

    fn suppose(&mut self, supposed: Supposed) {
        for ledger in std::iter::once(&mut self.all).chain(self.special.values_mut()) {
            supposed.show(self.state, ledger);
        }
        self.supposed.push(supposed);
    }

    /// Returns the last view as an application may see it: from now on, over all clusters (R5).
    pub(super) fn view(&self, state: &State, now: Time) -> View {
        let profile = |cluster: &ClusterId| self.all.view.get(cluster).map(|p| p.cut_before(now)).unwrap_or_default();
        state.clusters().keys().map(|cluster| (*cluster, profile(cluster))).collect()
    }

    /// Performs step 4b: finds the size that the launcher requests and its first hole from `from` on.
    pub(super) fn find(&mut self, spec: &JobSpec, from: Time) -> Result<Found, Shortage> {
        self.find_anew(spec, from, None)
    }

    /// As [`Pass::find`], among the sizes that start no later than what the job has given back; at least one does.
    pub(super) fn find_anew(&mut self, spec: &JobSpec, from: Time, held: Option<&Taken>) -> Result<Found, Shortage> {
        let latest = held.map(|held| held.at);
        if let Some(evolving) = &spec.evolving {
            self.open_ledgers(spec);
            let row: Vec<NodeId> = held.iter().flat_map(|held| &held.places).map(|place| place.node).collect();
            let rows = if row.is_empty() { &[&[][..]][..] } else { &[&row[..], &[]] };
            return self.find_stages(spec, evolving, (from, latest), rows);
        }
        if let [only] = spec.options.as_slice()
            && spec.evolving.is_none()
            && takes_any_nodes(spec)
            && self.grids.is_empty()
        {
            let found = self.find_anywhere(only, from);
            if !found.as_ref().is_ok_and(|found| self.is_uncertain(only, found.start)) {
                return found;
            }
        }
        self.open_ledgers(spec);
        let mut holes: Vec<SizedHole<'_>> = Vec::with_capacity(spec.options.len());
        let mut subsets = Vec::with_capacity(spec.options.len());
        for (option_idx, request) in spec.options.iter().enumerate() {
            let (hole, subset) = self.first_hole_of(spec, request, (from, latest));
            holes.push((option_idx, request, hole));
            subsets.push(subset);
        }
        let is_in_time = |hole: &SizedHole<'_>| match (&hole.2, latest) {
            (Ok((start, _)), Some(latest)) => *start <= latest,
            (Ok(_) | Err(_), _) => true,
        };
        // If nodes were not free after all, no size may be in time any more: then the first one that completes is
        // chosen.
        if holes.iter().any(is_in_time) {
            holes.retain(is_in_time);
        }
        let Choice { option_idx, start, blocked, request } = launcher::choose(holes.into_iter())?;
        let subset = subsets.swap_remove(option_idx as usize);
        let wanted = self.grids.wanted(spec, request);
        let (request, licences) = (request.clone(), spec.resources.licences.clone());
        Ok(Found { request, option_idx, subset, start, blocked, fit: None, wanted, row: Vec::new(), licences })
    }

    /// Handles the common case of one size that can use any nodes.
    fn find_anywhere(&mut self, request: &Request, from: Time) -> Result<Found, Shortage> {
        match ledger::first_hole(&mut [&mut self.all], request, from) {
            Ok((start, blocked)) => {
                let (request, wanted, licences) = (request.clone(), WantedBy::new(), Devices::default());
                let (subset, fit, row) = (None, None, Vec::new());
                Ok(Found { request, option_idx: 0, subset, start, blocked, fit, wanted, row, licences })
            }
            Err((cluster, wanted)) => Err(Shortage { cluster, wanted, usable: self.all.capacity_of(cluster) }),
        }
    }

    /// Performs steps 4b and 4c: places the launcher's request in its first hole from `from` on.
    pub(super) fn place(&mut self, spec: &JobSpec, from: Time) -> Placed {
        match self.find(spec, from) {
            Ok(found) => self.settle(found),
            Err(shortage) => Placed::Never { shortage },
        }
    }

    /// Performs step 4c: takes what was found from the view, with nodes if the job starts now.
    pub(super) fn settle(&mut self, found: Found) -> Placed {
        let (outcome, taken) = self.settle_until(found, None);
        self.stays(taken);
        outcome
    }

    /// Records that an application keeps its place.
    pub(super) fn stays(&mut self, taken: Taken) {
        if !self.tracks {
            self.placed.push(taken);
        }
    }

    /// Starts to record every place that is taken, also those that may be given back. Called before any application is
    /// placed.
    pub(super) fn track_all(&mut self) {
        self.tracks = true;
    }

    fn track(&mut self, taken: &Taken, sign: i64) {
        match sign {
            1 => self.placed.push(taken.clone()),
            _ => {
                let place = self.placed.iter().rposition(|placed| placed == taken);
                place.map(|place| self.placed.swap_remove(place));
            }
        }
    }

    /// As [`Pass::settle`], and also returns what was taken. If the nodes are not free, the hole at `latest` is used.
    pub(super) fn settle_until(&mut self, found: Found, latest: Option<Time>) -> (Placed, Taken) {
        self.open_window(found.subset.as_ref());
        let Found { request, option_idx, subset, start, blocked, mut fit, wanted, row, licences } = found;
        let take = match start == self.now {
            true => self.take_all(&request, subset.as_ref(), (&wanted, &row), fit.as_deref()),
            false => Take::NotFree,
        };
        let later = latest.filter(|latest| *latest > self.now && start == self.now);
        let (at, blocked, now) = match take {
            Take::Nodes(nodes, places) => (start, None, Some((nodes, places))),
            Take::NotFree => (later.unwrap_or(start), blocked, None),
            Take::Kept(blocked) => {
                let next = self.next_start(&request, subset.as_ref());
                let next = self.licences.first_fit(&licences, &request, next).unwrap_or(next);
                (later.unwrap_or(next), blocked, None)
            }
        };
        // If nodes are not free after all, the stages are shifted unchanged: an approximation until the next pass.
        fit.iter_mut().for_each(|fit| fit.start = at);
        let stages = fit.as_ref().map(|fit| fit.expanded.clone());
        let (nodes, places) = match now {
            Some((nodes, places)) => (Some(nodes), places),
            None if !row.is_empty() => (None, row),
            None => (None, self.grids.choose(&wanted, at).unwrap_or_default()),
        };
        let slices = grids::slices(&places);
        let mut named: Vec<NodeId> = places.iter().map(|place| place.node).collect();
        named.extend(subset.iter().filter_map(Subset::window).flatten());
        let (request_of, nodes_of) = (request.clone(), nodes.clone());
        let taken = Taken { subset, request: request_of, at, nodes: nodes_of, stages, places, licences };
        self.add_shares(&taken, 1);
        let outcome = match nodes {
            Some(nodes) => {
                Placed::Now { request, nodes, slices, row: if fit.is_some() { named } else { Vec::new() }, fit }
            }
            None => Placed::Later { request, option_idx, at, blocked, fit, nodes: named },
        };
        (outcome, taken)
    }

    /// As [`Pass::settle`], but takes nothing unless the job starts now.
    pub(super) fn start(&mut self, found: Found) -> Option<Placed> {
        if found.start > self.now {
            return None;
        }
        self.open_window(found.subset.as_ref());
        let wanted = (&found.wanted, &found.row[..]);
        match self.take_all(&found.request, found.subset.as_ref(), wanted, found.fit.as_deref()) {
            Take::Nodes(nodes, places) => {
                let Found { request, subset, start: at, fit, row, licences, .. } = found;
                let stages = fit.as_ref().map(|fit| fit.expanded.clone());
                let slices = grids::slices(&places);
                let row = row.into_iter().map(|place| place.node).collect();
                let (request_of, nodes_of) = (request.clone(), Some(nodes.clone()));
                let taken = Taken { subset, request: request_of, at, nodes: nodes_of, stages, places, licences };
                self.add_shares(&taken, 1);
                self.stays(taken);
                Some(Placed::Now { request, nodes, slices, row, fit })
            }
            Take::NotFree | Take::Kept(_) => None,
        }
    }

    /// Takes the nodes of all clusters of a request, in the order of clusters.
    fn take_all(
        &mut self,
        request: &Request,
        subset: Option<&Subset>,
        (wanted, row): (&WantedBy, &[Place]),
        fit: Option<&Fit>,
    ) -> Take {
        if !row.is_empty() {
            let first = row.get(..request.n_nodes() as usize).unwrap_or(row);
            self.n_free = self.n_free.saturating_sub(self.grids.n_cpus(first));
            return Take::Nodes(first.iter().map(|place| place.node).collect(), row.to_vec());
        }
        if wanted.is_empty() {
            return self.take_nodes(request, subset, fit);
        }
        let Some(places) = self.grids.choose(wanted, self.now) else { return Take::NotFree };
        let mut nodes = match self.take_nodes(&self.grids.others(request), subset, fit) {
            Take::Nodes(nodes, _) => nodes,
            refused @ (Take::NotFree | Take::Kept(_)) => return refused,
        };
        self.n_free = self.n_free.saturating_sub(self.grids.n_cpus(&places));
        nodes.extend(places.iter().map(|place| place.node));
        nodes.sort_by_key(|node| self.state.nodes()[node].cluster);
        Take::Nodes(nodes, places)
    }

    /// Takes all promises from the view, if all of them are in the future and fit, and no ledger but that of all nodes
    /// is open.
    pub(super) fn take_promises(&mut self) -> bool {
        let is_to_come = self.state.first_promise().is_none_or(|at| at >= self.now);
        let knows_all = self.special.is_empty() && self.state.occupation().is_regular(self.now);
        if !is_to_come || !knows_all {
            return false;
        }
        if let Some(with_promises) = self.state.occupation().with_promises() {
            let is_overfull = |(cluster, profile): (&ClusterId, &Profile)| {
                profile.first_above(self.all.capacity_of(*cluster).into(), self.now).is_some()
            };
            if with_promises.iter().any(is_overfull) {
                return false;
            }
            self.all.take_promises(with_promises);
        }
        true
    }

    /// Returns what [`Pass::take_promises`] took for a promise.
    pub(super) fn promised(&self, spec: &JobSpec, promise: Option<&Promise>) -> Option<Taken> {
        let Promise { at, option_idx, .. } = promise?;
        let at = *at;
        let request = spec.options.get(*option_idx as usize)?.clone();
        let (places, licences) = (Vec::new(), Devices::default());
        Some(Taken { subset: None, request, at, nodes: None, stages: None, places, licences })
    }

    /// Takes a promise from the view, if the nodes are still there. The ledgers of `spec` are open.
    pub(super) fn keep(&mut self, spec: &JobSpec, promise: &Promise) -> Option<Taken> {
        let request = spec.options.get(promise.option_idx as usize)?;
        let subset = self.promised_subset(spec, request, promise)?;
        let special = subset.as_ref().and_then(|subset| self.special.get(subset));
        let ledgers: Vec<&Ledger<'_>> = std::iter::once(&self.all).chain(special).collect();
        // A promise that could not be kept in time is kept as soon as possible.
        let at = promise.at.max(self.now);
        if let Some(evolving) = &spec.evolving {
            return self.keep_stages(spec, evolving, at, promise);
        }
        let others = self.grids.others(request);
        let fits = ledger::joint_hole(&ledgers, &others, (at, None)).is_ok_and(|(start, _)| start == at);
        let licences = spec.resources.licences.clone();
        if !fits || self.licences.first_fit(&licences, request, at) != Ok(at) {
            return None;
        }
        let places = self.grids.keep(&self.grids.wanted(spec, request), &promise.nodes, at)?;
        let request = request.clone();
        let taken = Taken { subset, request, at, nodes: None, stages: None, places, licences };
        self.add_shares(&taken, 1);
        Some(taken)
    }

    /// Gives back what was taken without nodes.
    pub(super) fn give_back(&mut self, taken: &Taken) {
        self.add_shares(taken, -1);
    }

    /// Takes again what was given back.
    pub(super) fn take_again(&mut self, taken: &Taken) {
        self.add_shares(taken, 1);
    }

    /// Takes free nodes of each cluster of the request: plain ones first, then by id. Skips a node while an application
    /// placed before can use only such nodes and needs it during the request: the count of all nodes alone does not
    /// show that. Stages that are smaller than the first one need the last nodes for less time.
    fn take_nodes(&mut self, request: &Request, subset: Option<&Subset>, fit: Option<&Fit>) -> Take {
        let ledger = subset.map_or(&self.all, |subset| &self.special[subset]);
        if self.special.is_empty() && self.freed.is_empty() && self.kept.is_empty() {
            return self.take_first_free(request);
        }
        let mut nodes = Vec::new();
        for (cluster, wanted) in &request.nodes {
            let is_special = !self.special.is_empty();
            let n_gone = if is_special { 0 } else { self.n_taken.get(cluster).copied().unwrap_or(0) };
            let is_left = |node: &NodeId| !is_special || (!self.taken_set.contains(node) && ledger.contains(*node));
            let freed = self.freed.get(cluster).into_iter().flatten().copied();
            let free = self.state.free(*cluster).chain(freed).filter(|node| !self.kept.contains(node));
            let wall_of = |place: usize| fit.map_or(request.wall, |fit| fit.kept_for(place));
            let mut spares = Spares::new(self.special.values(), *cluster, self.now, wall_of(0));
            let (first, mut skipped) = (nodes.len(), Vec::new());
            let mut take = |node: NodeId, spares: &mut Spares<'_, '_>| {
                let place = nodes.len() - first;
                spares.last_for(wall_of(place));
                let is_taken = place < *wanted as usize && spares.take(node);
                if is_taken {
                    nodes.push(node);
                }
                is_taken
            };
            let mut n_chosen = 0;
            for node in free.skip(n_gone).filter(is_left) {
                if n_chosen == *wanted {
                    break;
                }
                match take(node, &mut spares) {
                    true => n_chosen += 1,
                    false => skipped.push(node),
                }
            }
            // What is skipped for the whole time may be free for as long as the last ones are needed.
            while n_chosen < *wanted && fit.is_some() {
                let before = skipped.len();
                skipped.retain(|node| !take(*node, &mut spares));
                n_chosen += (before - skipped.len()) as u32;
                if skipped.len() == before {
                    break;
                }
            }
            if n_chosen < *wanted {
                return match spares.kept_by {
                    Some((special, too_many)) => {
                        Take::Kept(special.full_step(*cluster, too_many, request.wall, self.now))
                    }
                    None => Take::NotFree,
                };
            }
        }
        self.took(request, &nodes);
        Take::Nodes(nodes, Vec::new())
    }

    /// Handles the common case: all nodes are alike, and the free nodes are those of the state.
    fn take_first_free(&mut self, request: &Request) -> Take {
        let mut nodes = Vec::with_capacity(request.n_nodes() as usize);
        for (cluster, wanted) in &request.nodes {
            let (n_gone, n_wanted) = (self.n_taken.get(cluster).copied().unwrap_or(0), *wanted as usize);
            if n_gone + n_wanted > self.state.n_free(*cluster) {
                return Take::NotFree;
            }
            self.state.take_free(*cluster, n_gone, n_wanted, &mut nodes);
        }
        self.took(request, &nodes);
        Take::Nodes(nodes, Vec::new())
    }

    fn took(&mut self, request: &Request, nodes: &[NodeId]) {
        self.n_free -= nodes.len();
        for (cluster, wanted) in &request.nodes {
            *self.n_taken.entry(*cluster).or_default() += *wanted as usize;
        }
        if !self.special.is_empty() {
            self.taken_set.extend(nodes.iter().copied());
        }
        self.taken.extend(nodes.iter().copied());
    }

    /// Returns when a request whose nodes are kept for others now may find some: not before something changes.
    fn next_start(&self, request: &Request, subset: Option<&Subset>) -> Time {
        let clusters = request.nodes.keys().filter_map(|cluster| self.all.view.get(cluster));
        let next_change = clusters.filter_map(|profile| profile.change_points(self.now).nth(1)).min();
        let from = next_change.unwrap_or(self.now);
        let special = subset.map(|subset| &self.special[subset]);
        let ledgers: Vec<&Ledger<'_>> = std::iter::once(&self.all).chain(special).collect();
        ledger::joint_hole(&ledgers, request, (from, None)).map_or(from, |(start, _)| start)
    }

    /// Adds what `taken` takes from each ledger, or removes it with a `sign` of -1.
    fn add_shares(&mut self, taken: &Taken, sign: i64) {
        if self.is_last {
            return;
        }
        if self.tracks {
            self.track(taken, sign);
        }
        self.take_places_of(taken, sign);
        let times = (taken.at, taken.at + taken.request.wall);
        self.licences.take(&taken.licences, &taken.request, times, sign);
        for (cluster, block) in taken.blocks() {
            self.all.add(cluster, Block { nodes: sign * block.nodes, ..block });
        }
        if self.special.is_empty() && self.watches.is_empty() {
            return;
        }
        // The ledgers are moved out for a moment: the shares of one are counted against another.
        let mut special = std::mem::take(&mut self.special);
        let mut watches = std::mem::take(&mut self.watches);
        for ledger in watches.ledgers_mut() {
            for (cluster, block) in self.shares(taken, ledger, &special) {
                ledger.add(cluster, Block { nodes: sign * block.nodes, ..block });
            }
        }
        self.watches = watches;
        let shares: Vec<_> =
            special.iter().map(|(subset, ledger)| (subset.clone(), self.shares(taken, ledger, &special))).collect();
        for (subset, shares) in shares {
            let ledger = special.get_mut(&subset).expect("it was listed just now");
            for (cluster, block) in shares {
                ledger.add(cluster, Block { nodes: sign * block.nodes, ..block });
            }
        }
        self.special = special;
    }

    /// Returns what `taken` takes from the nodes of `ledger`: its known nodes, up to the number that it needs, and of
    /// its unknown nodes those that cannot come from elsewhere.
    pub(super) fn shares(
        &self,
        taken: &Taken,
        ledger: &Ledger<'_>,
        special: &BTreeMap<Subset, Ledger<'_>>,
    ) -> Vec<(ClusterId, Block)> {
        let known = taken.nodes.as_ref().map(|nodes| ledger.count(self.state, nodes));
        let source = taken.subset.as_ref().and_then(|subset| special.get(subset)).unwrap_or(&self.all);
        let share = |(cluster, block): (ClusterId, Block)| {
            let (n_known, n_held) = match &known {
                Some(known) => (known.get(&cluster).copied().unwrap_or(0), i64::from(taken.request.nodes[&cluster])),
                None => (0, 0),
            };
            let more = block.nodes - n_held;
            let nodes = if more > 0 {
                n_known + i64::from(ledger.least_share(self.state, source, cluster, more as u32))
            } else {
                n_known.min(block.nodes)
            };
            (cluster, Block { nodes, ..block })
        };
        taken.blocks().map(share).collect()
    }

    /// Starts to keep the view of a class. Called before any application is placed.
    pub(super) fn watch(&mut self, class: &Class) {
        let (constraint, slice) = class;
        if slice.is_of_whole_nodes() {
            self.open_ledger(constraint);
            return;
        }
        let ledger = self.watches.watch(class, self.state, self.now, &self.grids);
        if self.all.keeps_digests() && !ledger.keeps_digests() {
            ledger.keep_digests(self.now);
        }
    }

    /// Returns the present view of a watched class, with the constraint that represents it, if that excludes any nodes.
    pub(super) fn seen_as(&self, class: &Class) -> (&Ledger<'a>, (Option<Subset>, Slice)) {
        let (constraint, slice) = class;
        if let Some(ledger) = self.watches.ledger(class) {
            return (ledger, (Some(Subset::Meets(constraint.clone())), slice.clone()));
        }
        match self.stands_for.get(constraint).and_then(Option::as_ref) {
            Some(known) => (&self.special[known], (Some(known.clone()), Slice::default())),
            None => (&self.all, (None, Slice::default())),
        }
    }
}
