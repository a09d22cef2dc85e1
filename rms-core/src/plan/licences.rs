//! Licences of clusters in a pass: counted things that belong to no node, over time.

use std::collections::BTreeMap;

use rms_api::answer::{Blocker, LicenceShortage};
use rms_model::profile::Step;
use rms_model::{ClusterId, Devices, JobId, Mebibytes, NodeId, Request, Slice, Span, Time};

use super::timeline::Timeline;
use super::{Blocked, Overdue, Placement};
use crate::state::job::Job;
use crate::state::{Piece, State};

/// The licences of each cluster over time. A cluster is treated like a node of which only devices are taken.
#[derive(Clone, Debug, Default)]
pub(super) struct Licences {
    by_cluster: BTreeMap<ClusterId, Timeline>,
}

impl Licences {
    /// Starts with all running jobs.
    pub(super) fn new(state: &State, now: Time) -> Licences {
        if !state.settings().have_licences() {
            return Licences::default();
        }
        let pool = |(cluster, name): (&ClusterId, &String)| {
            let all = slice(state.settings().licences_of(name));
            (!all.devices.is_empty()).then(|| (*cluster, Timeline::of_free(&all, now)))
        };
        let mut licences = Licences { by_cluster: state.clusters().iter().filter_map(pool).collect() };
        for (_, entry) in state.licensed() {
            let Some(started) = entry.started() else { continue };
            let until = Overdue::new(now, state.settings()).until(started.planned_until());
            licences.take_of(entry, &started.request, (now, until), 1);
        }
        licences
    }

    /// Takes the licences that a running application has; or, with a `sign` of -1, gives them back.
    pub(super) fn take_of(&mut self, entry: &Job, request: &Request, times: (Time, Time), sign: i64) {
        for cluster in request.nodes.keys() {
            let here = Request::on_one(*cluster, request.nodes[cluster], request.wall);
            self.take(entry.licences_on(*cluster), &here, times, sign);
        }
    }

    /// Returns how many licences of this name are free at all of these times.
    pub(super) fn spare(&self, cluster: ClusterId, name: &str, times: (Time, Time)) -> u32 {
        self.by_cluster.get(&cluster).map_or(0, |pool| pool.least(times).devices.count(name))
    }

    /// Finds the earliest time from `from` on at which all clusters of the request have these licences free for its
    /// wall time.
    ///
    /// # Errors
    /// The cluster that has too few, even when all jobs have left.
    pub(super) fn first_fit(&self, wanted: &Devices, request: &Request, from: Time) -> Result<Time, ClusterId> {
        let mut start = from;
        if wanted.is_empty() {
            return Ok(start);
        }
        let piece = piece(wanted);
        loop {
            let before = start;
            for (cluster, _) in request.nodes.iter().filter(|(_, nodes)| **nodes > 0) {
                let pool = self.by_cluster.get(cluster).ok_or(*cluster)?;
                start = pool.first_hole(&piece, request.wall, start).ok_or(*cluster)?.first;
            }
            if start == before {
                return Ok(start);
            }
        }
    }

    /// Returns the cluster and the licence, if there is one, of which too few are free for a job to start just before
    /// `at`.
    pub(super) fn blocked_before(
        &self,
        state: &State,
        wanted: &Devices,
        request: &Request,
        at: Time,
    ) -> Option<Blocked> {
        let from = at - Span::from_millis(1);
        request.nodes.iter().filter(|(_, nodes)| **nodes > 0).find_map(|(cluster, nodes)| {
            let all = state.settings().licences_of(&state.clusters()[cluster]);
            let left = self.by_cluster.get(cluster)?.least((from, from + request.wall)).devices;
            let licence = Some(Box::new(lacking(wanted, &left, all)?));
            let capacity = state.n_usable(*cluster).into();
            let step = Step { from, nodes: capacity };
            Some(Blocked { cluster: *cluster, step, until: at, wanted: *nodes, capacity, licence })
        })
    }

    /// Takes licences for a time; or, with a `sign` of -1, gives them back.
    pub(super) fn take(&mut self, wanted: &Devices, request: &Request, times: (Time, Time), sign: i64) {
        if wanted.is_empty() {
            return;
        }
        let piece = piece(wanted);
        for (cluster, _) in request.nodes.iter().filter(|(_, nodes)| **nodes > 0) {
            if let Some(pool) = self.by_cluster.get_mut(cluster) {
                pool.take(times.0, times.1, &piece, sign);
            }
        }
    }
}

/// Finds the first cluster where too few of a licence are free now, without regard to waiting jobs: for jobs that the
/// plan has not placed before a certain time.
pub(super) fn shortage(
    state: &State,
    now: Time,
    wanted: &Devices,
    request: &Request,
) -> Option<(ClusterId, LicenceShortage)> {
    if wanted.is_empty() {
        return None;
    }
    let licences = Licences::new(state, now);
    request.nodes.keys().find_map(|cluster| {
        let all = state.settings().licences_of(&state.clusters()[cluster]);
        let left = licences.by_cluster.get(cluster).map(|pool| pool.at(now).left().devices).unwrap_or_default();
        Some((*cluster, lacking(wanted, &left, all)?))
    })
}

/// As [`shortage`], and until when running jobs keep the licences that are missing.
pub(super) fn missing(
    state: &State,
    now: Time,
    wanted: &Devices,
    request: &Request,
) -> Option<(ClusterId, LicenceShortage, Time)> {
    let (cluster, shortage) = shortage(state, now, wanted, request)?;
    let until = Licences::new(state, now).first_fit(wanted, request, now).ok()?;
    Some((cluster, shortage, until))
}

/// Returns the jobs that have some of this licence, or are planned to have some, at some of these times, in the order of
/// their ends.
pub(super) fn holders(
    state: &State,
    (now, planned): (Time, &[Placement]),
    cluster: ClusterId,
    name: &str,
    (from, until): (Time, Time),
) -> Vec<Blocker> {
    let holder = |(job, entry): (JobId, &Job)| {
        let has_some = entry.licences().get(&cluster).is_some_and(|licences| licences.count(name) > 0);
        let started = entry.started().filter(|_| has_some)?;
        let is_here = |node: &&NodeId| state.nodes().get(node).is_some_and(|known| known.cluster == cluster);
        let nodes = entry.nodes().iter().filter(is_here).count() as u32;
        // A job that should have left is still there.
        let until = started.planned_until().max(now + Span::from_millis(1));
        Some(Blocker { job, state: entry.state(), nodes, from: now, until, is_offer: false, is_promised: false })
    };
    let planned = planned.iter().filter_map(|placement| {
        let entry = state.jobs().get(&placement.job).filter(|entry| entry.is_queued())?;
        let request = placement.outcome.request().filter(|_| entry.spec.resources.licences.count(name) > 0)?;
        let (nodes, from) = (*request.nodes.get(&cluster)?, placement.outcome.estimate(now)?);
        let (state, is_promised) = (entry.state(), entry.promised.is_some());
        Some(Blocker {
            job: placement.job,
            state,
            nodes,
            from,
            until: from + request.wall,
            is_offer: false,
            is_promised,
        })
    });
    let all = state.licensed().filter_map(holder).chain(planned);
    let mut holders: Vec<Blocker> = all.filter(|holder| holder.from < until && from < holder.until).collect();
    holders.sort_by_key(|holder| (holder.until, holder.job));
    holders
}

/// Finds the first licence of which more is wanted than is left.
pub(super) fn lacking(wanted: &Devices, left: &Devices, all: &Devices) -> Option<LicenceShortage> {
    let (name, wanted) = wanted.iter().find(|(name, wanted)| left.count(name) < *wanted)?;
    Some(LicenceShortage { name: name.to_owned(), wanted, free: left.count(name), total: all.count(name) })
}

fn slice(devices: &Devices) -> Slice {
    Slice { cores: 0, memory: Mebibytes(0), devices: devices.clone() }
}

fn piece(devices: &Devices) -> Piece {
    Piece { slice: slice(devices), is_whole: false }
}
