//! The part of a pass on clusters that are shared by cores, beside those that are allocated by whole nodes.

use rms_model::profile::{Block, Step};
use rms_model::{ClusterId, Devices, JobId, JobSpec, NodeId, Request, Span, Time};

use super::fit::Fit;
use super::freed::{FreedPlaces, OwnPlaces};
use super::grid::{Place, Wanted};
use super::grids::WantedBy;
use super::ledger::{self, Ledger, Subset};
use super::pass::Pass;
use super::taken::{Found, Taken};
use super::window::Among;
use super::{Blocked, Placed, Shortage};

/// When a size of a job starts first, and what blocks it before.
pub(super) type FirstHole = Result<(Time, Option<Blocked>), Shortage>;

impl Pass<'_> {
    /// Makes the views count, from now on, the nodes of shared clusters of which a job has something.
    pub(super) fn count_whole_nodes(&mut self) {
        let mut blocks = Vec::new();
        for grid in self.grids.by_cluster.values() {
            blocks.extend(grid.busy().map(|(place, from, until)| (place, Block { from, until, nodes: 1 })));
        }
        self.grids.blocks = Some(Vec::new());
        self.show_blocks(blocks);
    }

    fn show_blocks(&mut self, blocks: Vec<(Place, Block)>) {
        let Some(known) = &mut self.grids.blocks else { return };
        for (place, block) in &blocks {
            self.all.add(place.cluster, *block);
            let special = self.special.values_mut().filter(|ledger| ledger.contains(place.node));
            special.for_each(|ledger| ledger.add(place.cluster, *block));
        }
        known.extend(blocks);
    }

    /// Takes places on shared clusters for `times`, or with a `sign` of -1 gives them back.
    pub(super) fn take_places(&mut self, places: &[Place], times: (Time, Time), sign: i64) {
        if places.is_empty() {
            return;
        }
        let before = self.watches.room_before(&self.grids, places, times);
        let blocks = self.grids.take(places, times, sign);
        self.watches.show_room(&self.grids, places, times, before);
        self.show_blocks(blocks);
    }

    /// Takes the places of a job, or gives them back: each of its stages has as many of the places as it needs, the
    /// first ones.
    pub(super) fn take_places_of(&mut self, taken: &Taken, sign: i64) {
        match &taken.stages {
            None => self.take_places(&taken.places, (taken.at, taken.at + taken.wall()), sign),
            Some(stages) => {
                for Block { from, until, nodes } in stages.blocks(taken.at) {
                    let places = taken.places.get(..nodes as usize).unwrap_or(&taken.places);
                    self.take_places(places, (from, until), sign);
                }
            }
        }
    }

    /// Treats what a job has of these nodes as free.
    pub(super) fn free_places(&mut self, job: JobId, nodes: &[NodeId]) {
        for node in nodes {
            let Some(entry) = self.state.nodes().get(node).filter(|entry| entry.is_usable()) else { continue };
            let Some(grid) = self.grids.by_cluster.get_mut(&entry.cluster) else { continue };
            let Some((place, until)) = grid.free_up(job, *node) else { continue };
            self.n_free += grid.n_cpus(&place);
            self.take_places(&[place], (self.now, until), -1);
        }
    }

    /// Treats all that a running job has as held longer by `longer`. Called before any application is placed.
    pub(super) fn keep_longer(&mut self, job: JobId, end: Time, longer: Span) {
        let entry = &self.state.jobs()[&job];
        let Some(started) = entry.started().filter(|_| !longer.is_zero()) else { return };
        self.keep_busy(job, &started.nodes, end, end + longer);
        self.licences.take_of(entry, &started.request, (end, end + longer), 1);
    }

    /// Returns whether every size of the job needs room on a shared cluster that is not there now.
    pub(super) fn has_no_room(&self, spec: &JobSpec) -> bool {
        let has_no_room = |request: &Request| {
            let wanted = self.grids.wanted(spec, request);
            wanted.iter().any(|(cluster, wanted)| !self.grids.by_cluster[cluster].has_room_now(wanted))
        };
        // Later stages need the room of the largest one.
        !self.grids.is_empty() && spec.evolving.is_none() && spec.options.iter().all(has_no_room)
    }

    /// Returns whether a job may start earlier than it was placed, if nothing else than this was freed meanwhile.
    pub(super) fn may_start_earlier(&self, spec: &JobSpec, held: &Taken, freed: &[FreedPlaces]) -> bool {
        let is_of_nodes_alone =
            spec.evolving.is_none() && spec.resources.licences.is_empty() && !held.places.is_empty();
        // Another size of it may complete earlier, although it starts at the same time.
        let latest = if spec.options.len() == 1 { held.at } else { held.at + Span::from_millis(1) };
        let own = OwnPlaces { places: &held.places, from: held.at, until: held.at + held.wall() };
        let may_start = |request: &Request| {
            let wanted = self.grids.wanted(spec, request);
            let on_freed = |(cluster, wanted): (&ClusterId, &Wanted)| {
                self.grids.by_cluster[cluster].may_start_on(freed, wanted, &own, latest)
            };
            let beside = |(cluster, wanted): (&ClusterId, &Wanted)| {
                self.grids.by_cluster[cluster].may_start_beside(wanted, &own, latest)
            };
            wanted.len() < request.nodes.len() || (wanted.iter().any(on_freed) && wanted.iter().all(beside))
        };
        !is_of_nodes_alone || spec.options.iter().any(may_start)
    }

    /// Finds the first hole for a request on clusters that are allocated by whole nodes.
    fn first_counted_hole(
        &mut self,
        request: &Request,
        special: Option<&Subset>,
        from: Time,
    ) -> Result<(Time, Option<Blocked>), Shortage> {
        let special = special.and_then(|subset| self.special.get_mut(subset));
        let mut ledgers: Vec<&mut Ledger<'_>> = std::iter::once(&mut self.all).chain(special).collect();
        ledger::first_hole(&mut ledgers, request, from).map_err(|(cluster, wanted)| {
            let usable = ledgers.last().map_or(0, |ledger| ledger.capacity_of(cluster));
            Shortage { cluster, wanted, usable }
        })
    }

    fn first_whole_nodes(
        &mut self,
        request: &Request,
        among: &mut Among,
        from: Time,
    ) -> Result<(Time, Option<Blocked>), Shortage> {
        match among {
            Among::Any(subset) => self.first_counted_hole(request, subset.as_ref(), from),
            Among::Chosen(chosen) => self.first_chosen(chosen, request, from),
        }
    }

    /// Finds where a size of a job starts first, and the ledger that its nodes come from. The job's ledgers are open.
    pub(super) fn first_hole_of(
        &mut self,
        spec: &JobSpec,
        request: &Request,
        (from, latest): (Time, Option<Time>),
    ) -> (FirstHole, Option<Subset>) {
        let wanted = (&self.grids.wanted(spec, request), &spec.resources.licences);
        let mut among = self.among(spec, request, latest);
        let mut hole = self.first_hole(wanted, request, &mut among, (from, latest));
        let is_uncertain = |(start, _): &(Time, _)| self.is_uncertain(request, *start);
        if matches!(among, Among::Any(_)) && hole.as_ref().is_ok_and(is_uncertain) {
            among = Among::chosen(spec, request, latest);
            hole = self.first_hole(wanted, request, &mut among, (from, latest));
        }
        (hole, among.into_subset())
    }

    /// Finds the first time from `from` on at which the request has room on shared clusters, fits on all others, and
    /// has its licences. It is faster if that time is not after `likely`.
    pub(super) fn first_hole(
        &mut self,
        (wanted, licences): (&WantedBy, &Devices),
        request: &Request,
        among: &mut Among,
        (from, likely): (Time, Option<Time>),
    ) -> Result<(Time, Option<Blocked>), Shortage> {
        if wanted.is_empty() && licences.is_empty() {
            return self.first_whole_nodes(request, among, from);
        }
        let others = self.grids.others(request);
        let (mut start, mut blocked) = (from, None);
        loop {
            let before = start;
            if others.n_nodes() > 0 {
                let (at, by) = self.first_whole_nodes(&others, among, start)?;
                if at > start {
                    (start, blocked) = (at, by);
                }
            }
            for (cluster, wanted) in wanted {
                let grid =
                    self.grids.by_cluster.get_mut(cluster).expect("what is wanted is of a cluster that is shared");
                let usable = grid.n_eligible(wanted);
                let Some((until, n_now)) = grid.first_start(wanted, start, likely) else {
                    let usable = grid.most_together(wanted);
                    return Err(Shortage { cluster: *cluster, wanted: wanted.n_nodes, usable });
                };
                if until > start {
                    let step = Step { from: start, nodes: i64::from(usable) - n_now as i64 };
                    let (cluster, wanted, capacity) = (*cluster, wanted.n_nodes, usable.into());
                    (start, blocked) = (until, Some(Blocked { cluster, step, until, wanted, capacity, licence: None }));
                }
            }
            if wanted.len() == 1 && others.n_nodes() == 0 && licences.is_empty() {
                return Ok((start, blocked));
            }
            let fit = self.licences.first_fit(licences, request, start);
            let until = fit.map_err(|cluster| Shortage { cluster, wanted: request.nodes[&cluster], usable: 0 })?;
            if until > start {
                blocked = self.licences.blocked_before(self.state, licences, request, until);
                start = until;
            }
            if start == before {
                return Ok((start, blocked));
            }
        }
    }
}

impl Found {
    /// Returns whether it is the same size at the same time, on named nodes.
    pub(super) fn is_as_good_as(&self, held: &Taken) -> bool {
        held.named().next().is_some() && self.fit.is_none() && self.start == held.at && self.request == held.request
    }

    /// Returns a later start on the nodes of `held` instead of others.
    pub(super) fn later_on(self, held: &Taken) -> Placed {
        let nodes = held.named().collect();
        let Found { request, option_idx, blocked, mut fit, .. } = self;
        if let (Some(fit), Some(stages)) = (&mut fit, &held.stages) {
            **fit = Fit { start: held.at, expanded: stages.clone() };
        }
        Placed::Later { request, option_idx, at: held.at, blocked, fit, nodes }
    }
}
