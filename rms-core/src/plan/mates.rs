//! Finds running jobs that lend cores to a job that would otherwise wait (004, §3.2: malleable backfill).

mod candidate;
mod refusals;

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use rms_model::job::Constraint;
use rms_model::sharing::{SharingSettings, asked};
use rms_model::{ClusterId, CoreShare, JobId, JobSpec, MaxSlowdown, NodeId, Request, RuntimeModel, Slice, Span, Time};

use self::candidate::{
    Candidate, Guest, JobTimes, Offer, Offered, Owner, StartingJob, longest_guest, running_candidates,
};
pub(crate) use self::refusals::lenders;
use super::grid::Place;
use super::grids;
use super::pass::Pass;
use super::promised::{Longer, PromisedStages};
use super::slowdown::{Fraction, Mate, Wanted, reachable_sums, select};
use super::taken::Taken;
use super::{Placed, Placement};
use crate::state::node::Node;
use crate::state::sharing::{millis, whole_seconds};
use crate::state::{
    Lender, LenderPart, Slowdowns, State, constraint_of, cores_asked, cores_of_task, least_cores, place_of,
    takes_whole_nodes,
};

/// A job that starts on cores lent by running jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GuestStart {
    pub(crate) job: JobId,
    pub(crate) request: Request,
    /// Ordered by node.
    pub(crate) lent: Vec<LentCores>,
    /// Free nodes beside those, where it gets what it asked for.
    pub(crate) free: Vec<NodeId>,
    /// Its slices of the free nodes, where nodes are shared by cores.
    pub(crate) slices: BTreeMap<NodeId, Slice>,
}

impl GuestStart {
    /// Returns how long the guest runs on its lent cores and its exclusive nodes; `spec` is its own.
    pub(crate) fn runtime(&self, state: &State, spec: &JobSpec) -> Span {
        let part = |node: &NodeId, cores: Option<u32>| {
            let known = &state.nodes()[node];
            let asked = cores_asked(spec, &self.request, &known.inventory, state.is_shared(known.cluster));
            CoreShare { n_nodes: 1, has: cores.unwrap_or(asked), asked }
        };
        let of_mates = self.lent.iter().map(|LentCores { node, mate: _, cores }| part(node, Some(*cores)));
        let parts = of_mates.chain(self.free.iter().map(|node| part(node, None)));
        let work = asked(parts.clone()).saturating_mul(millis(self.request.wall));
        whole_seconds(work, state.settings().sharing.runtime_model.rate(parts))
    }
}

/// The cores of one node that a mate lends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LentCores {
    pub(crate) node: NodeId,
    pub(crate) mate: JobId,
    pub(crate) cores: u32,
}

/// The slowdown below which the jobs of each cluster lend cores at one instant; `None`: all do (004, §3.2.2).
type CutOffs = BTreeMap<ClusterId, Option<Fraction>>;

/// Returns the cut-offs of all clusters as of now.
fn cut_offs(state: &State) -> CutOffs {
    let of = |name: &String| match state.settings().max_slowdown_of(name) {
        MaxSlowdown::At(ratio) => {
            let (numerator, denominator) = ratio.parts();
            Fraction::new(numerator.into(), denominator.into())
        }
        MaxSlowdown::Infinite => None,
        MaxSlowdown::Average => Some(average(state)),
        MaxSlowdown::Mean => Some(mean(Slowdowns::default(), state)),
        MaxSlowdown::Median => Some(percentile(state, 50)),
        MaxSlowdown::Percentile70 => Some(percentile(state, 70)),
    };
    state.clusters().iter().map(|(cluster, name)| (*cluster, of(name))).collect()
}

/// Returns the mean slowdown of all jobs that have started; running ones count as at their limits (D8 of the vectors'
/// rules).
fn average(state: &State) -> Fraction {
    mean(state.slowdowns, state)
}

/// Returns the mean of these slowdowns and those of running jobs. 0 if there are none, so that no job lends.
fn mean(mut slowdowns: Slowdowns, state: &State) -> Fraction {
    running(state).for_each(|(response, requested)| slowdowns.add(response, requested));
    slowdowns.mean().and_then(|(sum, count)| Fraction::new(sum, count)).unwrap_or(Fraction::ZERO)
}

/// Returns the slowdown that this percentage of running jobs does not exceed.
fn percentile(state: &State, percent: usize) -> Fraction {
    let slowdown = |(response, requested)| Fraction::new(millis(response).into(), millis(requested).max(1).into());
    let mut all: Vec<Fraction> = running(state).filter_map(slowdown).collect();
    all.sort_unstable();
    let rank = (all.len() * percent).div_ceil(100).max(1) - 1;
    all.get(rank).copied().unwrap_or(Fraction::ZERO)
}

/// Returns the time in system at the limit, and the requested time, of each running job.
fn running(state: &State) -> impl Iterator<Item = (Span, Span)> {
    let started = state.holding().filter_map(|(_, entry)| Some((entry, entry.started()?)));
    started.map(|(entry, started)| {
        ((started.at + started.request.wall).since(entry.eligible_since()), started.requested())
    })
}

/// State shared by the passes of one instant: a pass follows each guest that starts.
pub(crate) struct SharingRound {
    cut_offs: CutOffs,
    /// The job that waits for nodes which others could give back, and what that would add to their slowdowns.
    by_nodes: Option<(JobId, Fraction)>,
    /// Searches that found no mates.
    failed_searches: BTreeMap<JobId, FailedSearch>,
    /// The number of possible lenders that have started at this instant.
    n_started: usize,
    /// A candidate was rejected because what is left on its nodes was not known yet.
    needs_retry: Cell<bool>,
}

/// A search that found no mates. From one pass of an instant to the next, the possible lenders only become fewer,
/// except for jobs that start. So unless some have started, the search would fail again.
#[derive(Clone, Copy)]
struct FailedSearch {
    n_started: usize,
    /// The search holds for guests that would end no later than that without mates; `None`: for all.
    static_end: Option<Time>,
}

impl SharingRound {
    pub(crate) fn new(state: &State, by_nodes: Option<(JobId, Fraction)>) -> SharingRound {
        let (cut_offs, failed_searches) = (cut_offs(state), BTreeMap::new());
        SharingRound { cut_offs, by_nodes, failed_searches, n_started: 0, needs_retry: Cell::new(false) }
    }

    /// Returns whether it costs less if other jobs give back nodes to the guest than if it starts on these mates.
    fn is_cheaper_by_nodes(&self, guest: Guest<'_>, took: Span, mates: &[&Offered<'_>]) -> bool {
        let Some((_, cost)) = self.by_nodes.filter(|(job, _)| *job == guest.job) else { return false };
        let wall = i128::from(millis(guest.request.wall));
        // The guest's own loss, to which each mate adds the guest's time (004, eq. 4).
        let own = Fraction::new(i128::from(millis(took)) - wall, wall.max(1));
        let mut all_times = mates.iter().flat_map(|(mate, _)| mate.all_times());
        let slower = |times: JobTimes| Fraction::new(wall, millis(times.requested).max(1).into());
        let added = own.and_then(|own| all_times.try_fold(own, |sum, times| sum.plus(slower(times)?)));
        added.is_some_and(|added| cost < added)
    }

    /// Returns whether another pass is needed, because jobs that have started may lend. If so, forgets the failed
    /// searches.
    pub(crate) fn needs_another_pass(&mut self) -> bool {
        let needs_retry = self.needs_retry.take();
        if needs_retry {
            self.failed_searches.clear();
        }
        needs_retry
    }
}

/// Possible lenders in this pass: running jobs, and jobs that the pass has started.
pub(super) struct Mates<'a> {
    state: &'a State,
    now: Time,
    round: &'a mut SharingRound,
    /// Running jobs; found when first needed.
    running: Option<Vec<Candidate<'a>>>,
    starting: Vec<Candidate<'a>>,
    /// Shared nodes of which the pass has given out a part.
    partly_taken: BTreeSet<NodeId>,
    /// Stages promised to running applications, by cluster; found when first needed.
    promised: BTreeMap<ClusterId, PromisedStages>,
    /// The number of placements handled so far.
    n_placed: usize,
    /// Whether one of them is a start, and of a job with stages.
    has_started: bool,
    has_new_stages: bool,
}

impl<'a> Mates<'a> {
    pub(super) fn new(state: &'a State, now: Time, round: &'a mut SharingRound) -> Mates<'a> {
        Mates {
            state,
            now,
            round,
            running: None,
            starting: Vec::new(),
            partly_taken: BTreeSet::new(),
            promised: BTreeMap::new(),
            n_placed: 0,
            has_started: false,
            has_new_stages: false,
        }
    }

    /// Adds jobs that the pass has started: they may lend, too.
    pub(super) fn add_started(&mut self, placements: &[Placement]) {
        for placement in &placements[self.n_placed..] {
            let Placed::Now { request, nodes, slices, fit, .. } = &placement.outcome else { continue };
            self.has_started = true;
            self.partly_taken.extend(slices.keys());
            if fit.is_some() {
                self.has_new_stages = true;
                continue;
            }
            let entry = &self.state.jobs()[&placement.job];
            let mut clusters = request.nodes.keys();
            let (Some(cluster), None) = (clusters.next(), clusters.next()) else { continue };
            if !entry.spec.resources.share || entry.launcher.is_some() {
                continue;
            }
            let n_nodes = nodes.len() as u32;
            let mut lender = Lender { cluster: *cluster, n_nodes, n_with_tasks: n_nodes, parts: Vec::new() };
            let mut cores_of = Vec::with_capacity(nodes.len());
            for (idx, node) in (0..).zip(nodes) {
                let inventory = &self.state.nodes()[node].inventory;
                let cores = slices.get(node).map_or(inventory.cores, |slice| slice.cores);
                let least = least_cores(&entry.spec, n_nodes, Some(idx), inventory);
                lender.add(self.state.nodes(), LenderPart { n_nodes: 1, cores, asked: cores, least, node: *node });
                cores_of.push((*node, cores));
            }
            let left = lender.n_asked().saturating_mul(millis(request.wall));
            self.starting.push(Candidate {
                job: placement.job,
                longest: longest_guest(self.state, &lender, left),
                lender: Cow::Owned(lender),
                times: JobTimes {
                    in_system: (self.now + request.wall).since(entry.eligible_since()),
                    requested: request.wall,
                },
                left,
                owners: Vec::new(),
                starting: Some(StartingJob { nodes: cores_of, memory: constraint_of(&entry.spec, request).memory.0 }),
            });
            self.round.n_started += 1;
        }
        self.n_placed = placements.len();
    }

    /// Finds the first size with which the job can start at once, and mates for it. The job was placed later already,
    /// and has `taken` what it needs then.
    pub(super) fn find(
        &mut self,
        (job, spec): (JobId, &JobSpec),
        static_end: Time,
        taken: &Taken,
        pass: &mut Pass<'_>,
    ) -> Option<GuestStart> {
        let n_started = self.round.n_started;
        let is_futile = |last: &FailedSearch| {
            last.n_started == n_started && last.static_end.is_none_or(|last_end| static_end <= last_end)
        };
        if self.round.failed_searches.get(&job).is_some_and(is_futile) {
            return None;
        }
        let mut is_in_time = true;
        let needs_retry = self.round.needs_retry.take();
        for request in &spec.options {
            let guest = Guest { job, spec, request, static_end };
            let guest_start = self.find_mates(guest, taken, pass, &mut is_in_time);
            if guest_start.is_some() {
                self.round.needs_retry.set(needs_retry || self.round.needs_retry.get());
                // If guests may lend, it is one more possible lender.
                let may_lend = request.nodes.keys().any(|cluster| self.settings(*cluster).max_sharers > 2);
                self.round.n_started += usize::from(may_lend);
                return guest_start;
            }
        }
        // What was not known yet is known in the next pass.
        let is_final = !self.round.needs_retry.get();
        self.round.needs_retry.set(needs_retry || !is_final);
        // If only the best candidates are considered, others may take the place of those that drop out.
        let mut clusters = spec.options.iter().flat_map(|request| request.nodes.keys());
        if is_final && clusters.all(|cluster| self.settings(*cluster).max_candidates.is_none()) {
            let static_end = if is_in_time { None } else { Some(static_end) };
            self.round.failed_searches.insert(job, FailedSearch { n_started, static_end });
        }
        None
    }

    /// Finds the mates with the least sum of slowdowns with which the guest starts at once, ends before all of them,
    /// and ends earlier than without them. Sets `is_in_time` to false if the last condition alone has failed for some.
    fn find_mates(
        &mut self,
        guest: Guest<'_>,
        taken: &Taken,
        pass: &mut Pass<'_>,
        is_in_time: &mut bool,
    ) -> Option<GuestStart> {
        let mut clusters = guest.request.nodes.iter();
        let (Some((cluster, weight)), None) = (clusters.next(), clusters.next()) else { return None };
        let shortest = self.shortest_runtime(*cluster, guest);
        if !self.ends_earlier(guest, shortest) {
            *is_in_time = false;
            return None;
        }
        let (state, now) = (self.state, self.now);
        self.running.get_or_insert_with(|| running_candidates(state, now));
        self.promised.entry(*cluster).or_insert_with(|| PromisedStages::of(state, now, *cluster));
        let settings = self.settings(*cluster);
        let n_free = match (settings.mix_free_nodes, pass.grids.by_cluster.get(cluster)) {
            (false, _) => 0,
            (true, None) => self.state.n_free(*cluster).min(*weight as usize - 1) as u32,
            (true, Some(grid)) => grid.n_with_room_now(&grid.wanted(guest.spec, guest.request), *weight - 1),
        };
        let mut offers: BTreeMap<u64, Offered<'_>> = BTreeMap::new();
        let mut mates = Vec::new();
        for candidate in self.candidates_for(*cluster, guest, n_free) {
            let Some(offer) = self.offer(candidate, guest, shortest) else { continue };
            if !self.ends_earlier(guest, self.least_runtime(guest, &offer, shortest)) {
                *is_in_time = false;
                continue;
            }
            let weight = candidate.lender.n_nodes;
            let n_times = if settings.weigh_nodes { weight } else { 1 };
            // Sums that leave the range of numbers are no candidates for the least.
            let penalty = candidate.penalty(guest).and_then(|penalty| penalty.times(n_times));
            let Some(penalty) = penalty else { continue };
            mates.push(Mate { id: candidate.job.0, penalty, weight });
            offers.insert(candidate.job.0, (candidate, offer));
        }
        if mates.is_empty() {
            return None;
        }
        // What the job took for later must not block free nodes and licences.
        let needs_room = n_free > 0 || !guest.spec.resources.licences.is_empty();
        if needs_room {
            pass.give_back(taken);
        }
        // Tries to use as many free nodes as possible, because they slow no mate. The guest runs no slower on them than
        // on its mates' nodes.
        let guest_start = (0..=n_free).rev().find_map(|n_free| {
            let wanted = Wanted {
                weight: weight - n_free,
                max_slowdown: None,
                most_mates: settings.max_mates as usize,
                most_candidates: settings.max_candidates.map(|most| most as usize),
            };
            let offered = |ids: &[u64]| ids.iter().filter_map(|id| offers.get(id)).collect::<Vec<_>>();
            let beside = (*cluster, n_free);
            let is_valid = |ids: &[u64]| {
                let chosen = offered(ids);
                self.ends_inside_and_earlier(guest, &chosen, is_in_time)
                    && self.are_together(guest, n_free, &chosen, pass)
                    && self.has_licences(guest, &chosen, pass)
                    && self.keeps_stages(guest, *cluster, &chosen)
                    && self.free_places(guest, beside, &chosen, pass).is_some()
            };
            let chosen = offered(&select(&mates, wanted, is_valid)?.mates);
            if self.round.is_cheaper_by_nodes(guest, self.runtime_inside(guest, &chosen), &chosen) {
                return None;
            }
            let (free, slices) = self.take_free_nodes(guest, beside, &chosen, pass)?;
            let mut lent: Vec<LentCores> =
                chosen.iter().flat_map(|(candidate, _)| self.lent(candidate, guest)).collect();
            lent.sort_by_key(|lent| lent.node);
            Some(GuestStart { job: guest.job, request: guest.request.clone(), lent, free, slices })
        });
        if needs_room && guest_start.is_none() {
            pass.take_again(taken);
        }
        guest_start
    }

    /// Returns whether the guest's licences are free until it ends.
    fn has_licences(&self, guest: Guest<'_>, mates: &[&Offered<'_>], pass: &Pass<'_>) -> bool {
        let licences = &guest.spec.resources.licences;
        let until_its_end = || Request { wall: self.runtime_inside(guest, mates), ..guest.request.clone() };
        licences.is_empty() || pass.licences.first_fit(licences, &until_its_end(), self.now) == Ok(self.now)
    }

    /// Takes free nodes until the guest ends; `None` if they are not free so long.
    fn take_free_nodes(
        &self,
        guest: Guest<'_>,
        (cluster, n_free): (ClusterId, u32),
        mates: &[&Offered<'_>],
        pass: &mut Pass<'_>,
    ) -> Option<(Vec<NodeId>, BTreeMap<NodeId, Slice>)> {
        if n_free == 0 || self.state.is_shared(cluster) {
            let places = self.free_places(guest, (cluster, n_free), mates, pass)?;
            return Some((places.iter().map(|place| place.node).collect(), grids::slices(&places)));
        }
        let span = self.runtime_inside(guest, mates);
        let spec = JobSpec { options: vec![Request::on_one(cluster, n_free, span)], ..guest.spec.clone() };
        let found = match guest.spec.resources.contiguous {
            true => pass.find_beside(&spec, &self.nodes_of(mates))?,
            false => pass.find(&spec, self.now).ok()?,
        };
        match pass.start(found)? {
            Placed::Now { nodes, .. } => Some((nodes, BTreeMap::new())),
            Placed::Later { .. } | Placed::Never { .. } => None,
        }
    }

    /// Returns places on other nodes of a core-shared cluster for what the guest asked for; none on other clusters.
    fn free_places(
        &self,
        guest: Guest<'_>,
        (cluster, n_free): (ClusterId, u32),
        mates: &[&Offered<'_>],
        pass: &Pass<'_>,
    ) -> Option<Vec<Place>> {
        let Some(grid) = pass.grids.by_cluster.get(&cluster).filter(|_| n_free > 0) else { return Some(Vec::new()) };
        let theirs = self.nodes_of(mates);
        let more = (n_free, self.runtime_inside(guest, mates));
        let wanted = grid.wanted_beside((guest.spec, guest.request), more, &theirs);
        match guest.spec.resources.contiguous {
            true => {
                let mut windows = pass.windows_around(cluster, &theirs, n_free);
                windows.find_map(|more| grid.keep(&wanted, &more, self.now))
            }
            false => grid.choose(&wanted, self.now),
        }
    }

    /// Returns whether these can be the mates of the guest, beside `n_others` other nodes. They cannot if two of them
    /// run on the same shared node, which the guest needs once, or if it wants neighbours and other nodes lie between
    /// them.
    fn are_together(&self, guest: Guest<'_>, n_others: u32, mates: &[&Offered<'_>], pass: &Pass<'_>) -> bool {
        let are_apart = |cluster: &ClusterId| {
            let n_lent: u32 = mates.iter().map(|(mate, _)| mate.lender.n_nodes).sum();
            mates.len() == 1 || !self.state.is_shared(*cluster) || self.nodes_of(mates).len() == n_lent as usize
        };
        let is_window =
            |cluster: &ClusterId| pass.windows_around(*cluster, &self.nodes_of(mates), n_others).next().is_some();
        guest.request.nodes.keys().all(are_apart)
            && (!guest.spec.resources.contiguous || guest.request.nodes.keys().all(is_window))
    }

    fn nodes_of(&self, mates: &[&Offered<'_>]) -> BTreeSet<NodeId> {
        mates.iter().flat_map(|(mate, _)| self.nodes(mate)).collect()
    }

    /// Returns the candidates below the cut-off that run long enough; without those whose sizes cannot add up to what
    /// is wanted, as far as that is known.
    fn candidates_for(&self, cluster: ClusterId, guest: Guest<'_>, n_free: u32) -> Vec<&Candidate<'a>> {
        let weight = guest.request.n_nodes();
        let wall = millis(guest.request.wall);
        let cut_off = self.cut_off(cluster);
        let may_lend = |candidate: &&Candidate<'_>| {
            candidate.longest >= wall
                && candidate.lender.n_nodes <= weight
                && candidate.lender.cluster == cluster
                && candidate.job != guest.job
                && cut_off.is_none_or(|cut_off| candidate.all_below(cut_off, guest))
        };
        let mut candidates: Vec<&Candidate<'a>> =
            self.running.iter().flatten().chain(&self.starting).filter(may_lend).collect();
        let settings = self.settings(cluster);
        // With a limit on candidates, those with the least slowdowns are considered whatever their sizes are.
        if settings.max_candidates.is_none() && n_free == 0 {
            let sizes: BTreeSet<u32> = candidates.iter().map(|candidate| candidate.lender.n_nodes).collect();
            let n_others = settings.max_mates as usize - 1;
            let sums = reachable_sums(sizes.iter().copied(), weight, n_others);
            candidates.retain(|candidate| sums[n_others][(weight - candidate.lender.n_nodes) as usize]);
        }
        candidates
    }

    /// Returns the slowdown from which on jobs of the cluster lend nothing; `None`: all lend.
    fn cut_off(&self, cluster: ClusterId) -> Option<Fraction> {
        self.round.cut_offs.get(&cluster).copied().unwrap_or(Some(Fraction::ZERO))
    }

    /// Returns the shortest time that a guest can need, if no mate lends more than the sharing factor allows: that may
    /// be all that it asks for, unless it asks for whole nodes.
    fn shortest_runtime(&self, cluster: ClusterId, guest: Guest<'_>) -> Span {
        let wall = guest.request.wall;
        if self.state.is_shared(cluster) && !takes_whole_nodes(guest.spec) {
            return wall;
        }
        let name = &self.state.clusters()[&cluster];
        let (numerator, denominator) = self.state.settings().sharing_factor_of(name).parts();
        whole_seconds(millis(wall).saturating_mul(denominator.into()), numerator.into())
    }

    /// Returns whether the guest would end earlier than without mates, if it took that long.
    fn ends_earlier(&self, guest: Guest<'_>, span: Span) -> bool {
        guest.static_end > self.now + span
    }

    fn settings(&self, cluster: ClusterId) -> SharingSettings {
        self.state.settings().sharing_of(&self.state.clusters()[&cluster])
    }

    fn model(&self) -> RuntimeModel {
        self.state.settings().sharing.runtime_model
    }

    /// Returns what a candidate would lend; `None` if that is too little, or the guest would surely outlast it.
    fn offer<'c>(&self, candidate: &'c Candidate<'_>, guest: Guest<'_>, shortest: Span) -> Option<Offer<'c>> {
        let lender = &candidate.lender;
        let mut parts = Vec::with_capacity(lender.parts.len());
        let mut kept = Vec::with_capacity(lender.parts.len());
        for LenderPart { n_nodes, cores, asked: asked_by_mate, least, node } in lender.parts.iter().copied() {
            let (has, asked) = self.cores_lent(guest, node, cores, least);
            if has < least_cores(guest.spec, guest.request.n_nodes(), None, &self.state.nodes()[&node].inventory) {
                return None;
            }
            parts.push(CoreShare { n_nodes, has, asked });
            kept.push(CoreShare { n_nodes, has: cores - has, asked: asked_by_mate });
        }
        let model = self.model();
        // Its rate afterwards matters to the owners of the nodes that it borrows.
        let alone = if candidate.owners.is_empty() { 0 } else { model.rate(lender.shares()) };
        let rate = model.rate(kept.into_iter());
        let offer = Offer { rate, alone, parts, left: candidate.left, owners: &candidate.owners };
        // In the worst model, the guest is no faster than here; in the ideal one, no faster than with the sharing
        // factor everywhere.
        let parts = offer.parts.iter().copied();
        let least = match model {
            RuntimeModel::Worst => (asked(parts.clone()).saturating_mul(millis(guest.request.wall)), model.rate(parts)),
            RuntimeModel::Ideal => (millis(shortest).saturating_sub(1000), 1),
        };
        (offer.outlasts(least) && self.nodes_suit(candidate, guest)).then_some(offer)
    }

    /// Returns the shortest time that the guest needs with this mate, whatever the others are: by the worst model, its
    /// slowest node sets the pace.
    fn least_runtime(&self, guest: Guest<'_>, offer: &Offer<'_>, shortest: Span) -> Span {
        let wall = millis(guest.request.wall);
        let on = |part: &CoreShare| whole_seconds(wall.saturating_mul(part.asked.into()), part.has.into());
        match self.model() {
            RuntimeModel::Worst => offer.parts.iter().map(on).max().unwrap_or(shortest),
            RuntimeModel::Ideal => shortest,
        }
    }

    /// Returns the cores that the guest would have on a node where a mate has `cores` and keeps at least `least`, and
    /// those that it asked for.
    fn cores_lent(&self, guest: Guest<'_>, node: NodeId, cores: u32, least: u32) -> (u32, u32) {
        let known = &self.state.nodes()[&node];
        let factor = self.state.settings().sharing_factor_of(&self.state.clusters()[&known.cluster]);
        let is_shared = self.state.is_shared(known.cluster);
        let asked = cores_asked(guest.spec, guest.request, &known.inventory, is_shared);
        let most = factor.of(cores).min(cores.saturating_sub(least)).min(asked);
        // If that is enough for some of its tasks only, cores for whole tasks (004, §3.3).
        let of_task = cores_of_task(guest.spec, &known.inventory);
        let rest = if most < asked && most > of_task { most % of_task } else { 0 };
        (most - rest, asked)
    }

    /// Returns whether the candidate's nodes suit the guest.
    fn nodes_suit(&self, candidate: &Candidate<'_>, guest: Guest<'_>) -> bool {
        let constraint = constraint_of(guest.spec, guest.request);
        let cluster = candidate.lender.cluster;
        let is_shared = self.state.is_shared(cluster);
        // The number of cores is checked elsewhere.
        let constraint = Constraint { cpus: guest.spec.constraint.cpus, ..constraint };
        let is_any = constraint == Constraint::default() && !is_shared;
        let mate = &self.state.jobs()[&candidate.job];
        let asks_beside = constraint.memory.0 > 0 || !constraint.devices.is_empty();
        let is_part_taken = || self.nodes(candidate).any(|node| self.partly_taken.contains(&node));
        if asks_beside && is_part_taken() {
            self.round.needs_retry.set(true);
            return false;
        }
        let memory_of = |job: &JobId| {
            let entry = self.state.jobs().get(job)?;
            Some(constraint_of(&entry.spec, &entry.started()?.request).memory.0)
        };
        self.nodes(candidate).all(|node| {
            // A node of a cluster that is no longer shared by cores may still have several holders.
            let is_its_own = |known: &Node| is_shared || known.holders.iter().all(|holder| candidate.involves(*holder));
            let known = self.state.nodes().get(&node).filter(|known| known.is_usable() && is_its_own(known));
            let Some(known) = known else { return false };
            if is_any {
                return true;
            }
            let of_mates = match &candidate.starting {
                Some(starting) => starting.memory,
                None => known.holders.iter().filter_map(memory_of).sum(),
            };
            let has_memory = constraint.memory.0 + of_mates <= known.inventory.memory.0 || constraint.memory.0 == 0;
            let is_part = mate.part_of(node, &known.inventory).is_some();
            let has_room = || match self.state.left_of(node).filter(|_| is_part) {
                Some(left) => left.memory >= constraint.memory && left.devices.cover(&constraint.devices),
                // The devices of a node that belongs to one job are its own.
                None => has_memory && constraint.devices.is_empty(),
            };
            known.meets(&constraint) && has_room()
        })
    }

    fn nodes<'c>(&'c self, candidate: &'c Candidate<'_>) -> impl Iterator<Item = NodeId> + 'c {
        let running = match &candidate.starting {
            Some(_) => &[][..],
            None => self.state.jobs()[&candidate.job].nodes(),
        };
        let starting = candidate.starting.iter().flat_map(|starting| &starting.nodes).map(|(node, _)| *node);
        running.iter().copied().chain(starting)
    }

    /// Returns whether the guest would end before all of these mates, and earlier than without them.
    fn ends_inside_and_earlier(&self, guest: Guest<'_>, mates: &[&Offered<'_>], is_in_time: &mut bool) -> bool {
        let (work, rate) = self.work_and_rate(guest, mates);
        let took = whole_seconds(work, rate);
        let is_inside =
            rate > 0 && mates.iter().all(|(_, offer)| offer.outlasts((work, rate)) && offer.ends_inside_owners(took));
        let is_earlier = is_inside && self.ends_earlier(guest, took);
        *is_in_time &= is_earlier || !is_inside;
        is_earlier
    }

    /// Returns whether the promised stages of running applications begin in time, although these mates, and the jobs
    /// that lend to them, keep their nodes longer.
    fn keeps_stages(&self, guest: Guest<'_>, cluster: ClusterId, mates: &[&Offered<'_>]) -> bool {
        let Some(promised) = self.promised.get(&cluster) else { return true };
        if promised.is_empty() && !self.has_new_stages {
            return true;
        }
        // What the jobs that start in this pass take is in the state only after it.
        if self.has_started {
            self.round.needs_retry.set(true);
            return false;
        }
        let took = self.runtime_inside(guest, mates);
        let mut all_longer = Vec::new();
        for (mate, offer) in mates {
            let left = mate.left.saturating_sub(offer.rate.saturating_mul(millis(took)));
            let end = self.now + took + whole_seconds(left, self.model().rate(mate.lender.shares()));
            let more = end.since(mate.times.end(&self.state.jobs()[&mate.job]));
            let mut stays = |job: JobId, times: JobTimes| {
                let entry = &self.state.jobs()[&job];
                let from = times.end(entry);
                all_longer.push(Longer { nodes: entry.own_nodes().collect(), from, until: from + more });
            };
            stays(mate.job, mate.times);
            Owner::each(&mate.owners, &mut |owner| stays(owner.job, owner.times));
        }
        promised.first_late(&all_longer).is_none()
    }

    /// Returns the work of the guest on the nodes of these mates, and its rate per millisecond.
    fn work_and_rate(&self, guest: Guest<'_>, mates: &[&Offered<'_>]) -> (u64, u64) {
        let parts = mates.iter().flat_map(|(_, offer)| offer.parts.iter().copied());
        (asked(parts.clone()).saturating_mul(millis(guest.request.wall)), self.model().rate(parts))
    }

    /// Returns the runtime of the guest on the nodes of these mates.
    fn runtime_inside(&self, guest: Guest<'_>, mates: &[&Offered<'_>]) -> Span {
        let (work, rate) = self.work_and_rate(guest, mates);
        whole_seconds(work, rate)
    }

    fn lent<'c>(&'c self, candidate: &'c Candidate<'_>, guest: Guest<'c>) -> impl Iterator<Item = LentCores> + 'c {
        let mate = &self.state.jobs()[&candidate.job];
        let n_with_tasks = candidate.lender.n_with_tasks;
        self.nodes(candidate).enumerate().map(move |(idx, node)| {
            let inventory = &self.state.nodes()[&node].inventory;
            let all = match &candidate.starting {
                Some(starting) => starting.nodes[idx].1,
                None => mate.part_of(node, inventory).map_or(inventory.cores, |part| part.cores.len()),
            };
            let place = mate.started().map_or(Some(idx as u32), |started| place_of(started, idx as u32));
            let least = least_cores(&mate.spec, n_with_tasks, place, inventory);
            let (cores, _) = self.cores_lent(guest, node, all, least);
            LentCores { node, mate: candidate.job, cores }
        })
    }
}
