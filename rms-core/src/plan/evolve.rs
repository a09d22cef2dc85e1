//! Places waiting evolving applications beside the running ones.

use rms_model::profile::{Block, Step};
use rms_model::{
    ClusterId, Evolution, Evolving, ExpandLimit, Expansion, JobId, JobSpec, NodeId, Profile, Request, Span, Time,
};

use super::compact;
use super::fit::{Fit, TooLarge};
use super::grid::Row;
use super::grids::WantedBy;
use super::ledger::{self, Ledger, Subset};
use super::parts::cluster_of;
use super::pass::Pass;
use super::taken::{Found, Taken};
use super::{Blocked, Shortage};
use crate::state::State;
use crate::state::constraint_of;
use crate::state::job::Promise;

/// Returns the occupation by other jobs of the nodes that a running application may use on its cluster, and the number
/// of those nodes.
pub(crate) fn occupation_beside(state: &State, now: Time, job: JobId) -> (Profile, u32) {
    let entry = &state.jobs()[&job];
    let Some(started) = entry.started() else { return (Profile::new(), 0) };
    let cluster = cluster_of(&started.request);
    let constraint = constraint_of(&entry.spec, &started.request);
    let all = Ledger::of_all(state, now, Some(job));
    let eligible = ledger::eligible(state, &constraint);
    let special = Ledger::of(state, now, eligible, Some(job));
    occupation(&all, Some(&special), cluster)
}

/// Returns the occupation of the nodes of `special`. Where only the number of nodes that others will hold is known, it
/// counts as far as it exceeds all other nodes.
fn occupation(all: &Ledger<'_>, special: Option<&Ledger<'_>>, cluster: ClusterId) -> (Profile, u32) {
    let of_all = all.view.get(&cluster).cloned().unwrap_or_default();
    match special {
        None => (of_all, all.capacity_of(cluster)),
        Some(special) => {
            let capacity = special.capacity_of(cluster);
            let spare = i64::from(all.capacity_of(cluster)) - i64::from(capacity);
            let own = special.view.get(&cluster).cloned().unwrap_or_default();
            (own.or_beyond(&of_all, spare), capacity)
        }
    }
}

impl Pass<'_> {
    /// Performs step 4b of 001, Fig. 5, for an evolving application: chooses the cluster where it completes first; its
    /// stages are placed by [`compact::place`]. Between equals, the cluster named first wins; placements that start by
    /// `latest`, if given, precede the others. Where nodes are shared by cores, each of `rows` is tried that it may use,
    /// filled up with others.
    pub(super) fn find_stages(
        &mut self,
        spec: &JobSpec,
        evolving: &Evolving,
        (from, latest): (Time, Option<Time>),
        rows: &[&[NodeId]],
    ) -> Result<Found, Shortage> {
        let first_nodes = evolving.stages.stages().first().map_or(0, |first| first.nodes);
        let mut best: Option<(Found, (bool, Time))> = None;
        let mut shortage = None;
        let options = (0..).zip(&spec.options);
        for (option_idx, request, first) in
            options.flat_map(|(option_idx, request)| rows.iter().map(move |first| (option_idx, request, *first)))
        {
            let cluster = cluster_of(request);
            if !self.grids.may_use(cluster, spec, first) {
                continue;
            }
            let subset = self.stands_for.get(&constraint_of(spec, request)).cloned().flatten();
            let row = self.grids.row(cluster, spec, evolving.stages.peak(), first);
            let (occupied, capacity, row) = match row {
                Some(Row { places, occupied }) => (occupied, places.len() as u32, places),
                None => {
                    let (occupied, capacity) = self.occupation(cluster, subset.as_ref());
                    (occupied, capacity, Vec::new())
                }
            };
            match self.place_licensed((&occupied, capacity), spec, (evolving, first_nodes, cluster), from) {
                Err(shortage_here) => shortage = Some(shortage_here),
                Ok(fit) => {
                    let is_late = latest.is_some_and(|latest| fit.start > latest);
                    let completion = (is_late, fit.completion());
                    let is_first = best.as_ref().is_none_or(|(_, earliest)| completion < *earliest);
                    if is_first {
                        let request = Request::on_one(cluster, first_nodes, fit.expanded.span());
                        let licences = &spec.resources.licences;
                        let of_licence = || self.licences.blocked_before(self.state, licences, &request, fit.start);
                        let of_nodes = || blocked(&occupied, (cluster, capacity), &evolving.stages, self.now);
                        let is_later = fit.start > self.now;
                        let blocked = is_later.then(|| of_licence().or_else(of_nodes)).flatten();
                        let start = fit.start;
                        let fit = Some(Box::new(fit));
                        let found = Found {
                            request,
                            option_idx,
                            subset,
                            start,
                            blocked,
                            fit,
                            wanted: WantedBy::new(),
                            row,
                            licences: spec.resources.licences.clone(),
                        };
                        best = Some((found, completion));
                    }
                }
            }
        }
        match (best, shortage) {
            (Some((found, _)), _) => Ok(found),
            (None, Some(shortage)) => Err(shortage),
            (None, None) => Err(Shortage { cluster: cluster_of(&spec.options[0]), wanted: first_nodes, usable: 0 }),
        }
    }

    /// Places the stages on a cluster while it has their licences, which the application keeps from the first stage to
    /// the last.
    fn place_licensed(
        &self,
        (occupied, capacity): (&Profile, u32),
        spec: &JobSpec,
        (evolving, first_nodes, cluster): (&Evolving, u32, ClusterId),
        from: Time,
    ) -> Result<Fit, Shortage> {
        let mut from = from;
        loop {
            let fit = compact::place(occupied, capacity, &evolving.stages, evolving.expansion, from);
            let too_large = |TooLarge { wanted, capacity, .. }| Shortage { cluster, wanted, usable: capacity };
            let fit = fit.map_err(too_large)?;
            let request = Request::on_one(cluster, first_nodes, fit.expanded.span());
            let licensed = self.licences.first_fit(&spec.resources.licences, &request, fit.start);
            let at = licensed.map_err(|cluster| Shortage { cluster, wanted: first_nodes, usable: 0 })?;
            if at == fit.start {
                return Ok(fit);
            }
            from = at;
        }
    }

    /// Takes the stages that were promised from `at` on, if they still fit there, on the promised nodes where they are
    /// named.
    pub(super) fn keep_stages(
        &mut self,
        spec: &JobSpec,
        evolving: &Evolving,
        at: Time,
        promise: &Promise,
    ) -> Option<Taken> {
        // Others are planned beside each stage, so none moves while it can stay.
        let stages = evolving.stages.lasting(&promise.spans).unwrap_or_else(|| evolving.stages.clone());
        let expansion = Expansion { limit: ExpandLimit::NONE, compacting: false };
        let as_promised = Evolving { stages, expansion, ..evolving.clone() };
        let mut find = |evolving| {
            let found = self.find_stages(spec, evolving, (at, None), &[&promise.nodes]).ok()?;
            Some(found).filter(|found| found.start == at)
        };
        let found = find(&as_promised).or_else(|| find(evolving))?;
        let fit = found.fit?;
        let licences = spec.resources.licences.clone();
        let taken = Taken::of_stages(found.subset, found.request, found.row, &fit, licences);
        self.take_again(&taken);
        Some(taken)
    }

    fn occupation(&self, cluster: ClusterId, subset: Option<&Subset>) -> (Profile, u32) {
        occupation(&self.all, subset.map(|subset| &self.special[subset]), cluster)
    }
}

/// Returns the first stage that would not fit if the application started now and waited for nothing, and what blocks
/// it.
fn blocked(
    occupied: &Profile,
    (cluster, capacity): (ClusterId, u32),
    stages: &Evolution,
    now: Time,
) -> Option<Blocked> {
    let capacity = i64::from(capacity);
    stages.blocks(now).find_map(|Block { from, until, nodes }| {
        let until = occupied.last_above(capacity - nodes, from, until)?;
        let before = until - Span::from_millis(1);
        let step = Step { from: before.max(from), nodes: occupied.at(before) };
        Some(Blocked { cluster, step, until, wanted: nodes as u32, capacity, licence: None })
    })
}
