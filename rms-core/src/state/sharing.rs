//! What running jobs lend each other on their nodes, and how far their work has come (004, §3).
//!
//! A *guest* runs on cores that its *mates* lend. For planning, lent cores stay their owner's: when the guest ends, the
//! owner gets them back. A mate that ends first leaves its nodes to the guest, which then has as much of them as it
//! asked for. A guest may itself lend; if it ends before its own guest, that one becomes a guest of the owner.

use std::collections::{BTreeMap, BTreeSet};

use rms_model::sharing::asked;
use rms_model::{Allocation, CoreShare, CpuLoans, Grant, Indices, Inventory, JobId, JobSpec, NodeId, Span, Time};
use serde::{Deserialize, Serialize};

use super::{ApplyError, BumpedNodes, State, constraint_of, cores_asked};
use crate::state::course::Evolved;
use crate::state::job::{Job, Phase, Started};

/// The sharing state of a job that lends cores, started on those of others, or once did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sharing {
    /// The wall time that it would need with all cores that it asked for.
    pub requested: Span,
    /// Its work until `since`, in core-milliseconds.
    pub done: u64,
    pub since: Time,
    /// Estimated core-milliseconds of work per millisecond since then.
    pub rate: u64,
    /// Cores of its nodes that it lends to guests.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lent: BTreeMap<NodeId, Loan>,
    /// Nodes on which it is a guest, and the owner of each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub mates: BTreeMap<NodeId, JobId>,
    /// Nodes on which it was a guest until their owners left, and since when it has had them itself.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub own_since: BTreeMap<NodeId, Time>,
    /// How those nodes were allocated when it started as a guest: what it asks for there stays the same. Absent for jobs
    /// that did not, and in older journals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation: Option<Allocation>,
    /// Counts the changes of its CPUs, from 1.
    pub generation: u32,
    /// Nodes whose agents have not yet confirmed that the job's processes keep to the CPUs of that generation.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub awaited: BTreeSet<NodeId>,
    /// The job's processes did not leave CPUs as ordered: it lends no more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_stubborn: bool,
    /// Core-time lent and borrowed until `since`.
    #[serde(default)]
    pub loans: CpuLoans,
    /// The same until former changes, for a job whose end was before the last one, as its agent says late.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub past_loans: Vec<(Time, CpuLoans)>,
    /// Its request has changed since it last lent or borrowed: its limit shows what is left of its work.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_resized: bool,
}

/// The cores that a guest has of one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loan {
    pub guest: JobId,
    pub cores: Indices,
    /// Since when the guest has these cores. Absent in older journals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
}

/// The most former changes that are remembered; between older ones, loans are taken to be even.
const MAX_PAST_LOANS: usize = 8;

impl Sharing {
    /// Returns whether it is a guest, or has guests.
    pub fn is_active(&self) -> bool {
        !self.lent.is_empty() || !self.mates.is_empty()
    }

    /// Returns it with what it has lent and borrowed until `at`.
    fn settled(&self, at: Time, loans: CpuLoans) -> Sharing {
        let mut settled = Sharing { since: at, loans, ..self.clone() };
        if at > self.since {
            settled.past_loans.push((self.since, self.loans));
            let n_more = settled.past_loans.len().saturating_sub(MAX_PAST_LOANS);
            settled.past_loans.drain(..n_more);
        }
        settled
    }

    /// Returns the core-time lent and borrowed from the start of the job until an instant before the last change. From
    /// one change to the next, the numbers of cores were the same.
    fn past_loans_at(&self, started: Time, at: Time) -> CpuLoans {
        let (mut before, mut loans) = (started, CpuLoans::default());
        for (until, next) in self.past_loans.iter().copied().chain([(self.since, self.loans)]) {
            if at < until {
                let (part, all) =
                    (u128::from(millis(at.since(before))), u128::from(millis(until.since(before)).max(1)));
                let between = |from: u64, to: u64| {
                    from + u64::try_from(u128::from(to.saturating_sub(from)) * part / all).unwrap_or(u64::MAX - from)
                };
                let lent = between(loans.lent, next.lent);
                return CpuLoans { lent, borrowed: between(loans.borrowed, next.borrowed) };
            }
            (before, loans) = (until, next);
        }
        loans
    }

    /// Returns the guests of this job.
    pub fn guests(&self) -> BTreeSet<JobId> {
        self.lent.values().map(|loan| loan.guest).collect()
    }

    /// Returns the jobs on whose nodes it is a guest.
    pub fn owners(&self) -> BTreeSet<JobId> {
        self.mates.values().copied().collect()
    }

    /// Returns the work that it has done by `at`.
    pub fn done_at(&self, at: Time) -> u64 {
        self.done.saturating_add(self.rate.saturating_mul(millis(at.since(self.since))))
    }

    /// Returns when all its work is done, rounded up to seconds, if its CPUs stay as they are (D10 of the vectors'
    /// rules). `asked` is the number of cores that it asked for in all.
    pub(crate) fn end_alone(&self, at: Time, asked: u64) -> Time {
        let left = self.work(asked).saturating_sub(self.done_at(at));
        at + whole_seconds(left, self.rate)
    }

    /// Returns when all its work is done if it gets back what it lends at `guest_end`, and continues at the rate
    /// `alone`. A guest that was told that it may run longer does not keep its mate longer.
    pub(crate) fn end_with_guest(&self, at: Time, guest_end: Time, asked: u64, alone: u64) -> Time {
        let left = self.work(asked).saturating_sub(self.done_at(at));
        let meanwhile = self.rate.saturating_mul(millis(guest_end.since(at)));
        match left.checked_sub(meanwhile) {
            Some(rest) => guest_end + whole_seconds(rest, alone),
            None => self.end_alone(at, asked).min(guest_end),
        }
    }

    /// Applies a change of the wall time, after which it may run until `end`. What it has lost by sharing stays in its
    /// limit; with an earlier end, it does what it can until then. Only older journals have such changes of a job that
    /// shares: now its limit follows from the time with all CPUs.
    pub(super) fn change_wall(&mut self, at: Time, asked: u64, (before, wall): (Span, Span), end: Time) {
        let more = wall.as_millis() - before.as_millis();
        self.requested = if more >= 0 {
            Span::from_millis(self.requested.as_millis().saturating_add(more))
        } else {
            let done = self.done_at(at).saturating_add(self.rate.saturating_mul(millis(end.since(at))));
            Span::from_millis(i64::try_from(done / asked.max(1)).unwrap_or(i64::MAX)).min(self.requested)
        };
    }

    /// Returns all its work, in core-milliseconds.
    pub(crate) fn work(&self, asked: u64) -> u64 {
        asked.saturating_mul(millis(self.requested))
    }
}

pub(crate) fn millis(span: Span) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(0)
}

/// Returns the time for this work at this rate, rounded up to seconds.
pub fn whole_seconds(work: u64, rate: u64) -> Span {
    let longest = millis(Span::MAX_WALL);
    if work == 0 {
        return Span::ZERO;
    }
    let took = if rate == 0 { longest } else { work.div_ceil(rate).div_ceil(1000).saturating_mul(1000).min(longest) };
    Span::from_millis(i64::try_from(took).unwrap_or(i64::MAX))
}

impl Job {
    /// Returns the job's sharing state, if it ever lent or borrowed.
    pub fn sharing(&self) -> Option<&Sharing> {
        self.started()?.sharing.as_deref()
    }

    /// Returns whether it is a guest on this node.
    pub fn is_guest_on(&self, node: NodeId) -> bool {
        self.sharing().is_some_and(|sharing| sharing.mates.contains_key(&node))
    }

    /// Returns its nodes, without those on which it is a guest.
    pub fn own_nodes(&self) -> impl Iterator<Item = NodeId> + Clone + '_ {
        let mates = self.sharing().map(|sharing| &sharing.mates).filter(|mates| !mates.is_empty());
        let is_own = move |node: &NodeId| mates.is_none_or(|mates| !mates.contains_key(node));
        self.nodes().iter().copied().filter(is_own)
    }
}

impl Started {
    /// Returns whether it asked for a part of this node, not for all of it. The allocation of the cluster may have
    /// changed since it started; `is_shared` is the present one.
    pub(crate) fn asks_part(&self, node: NodeId, is_shared: bool) -> bool {
        let began_as_guest =
            |sharing: &&Sharing| sharing.mates.contains_key(&node) || sharing.own_since.contains_key(&node);
        match self.sharing.as_deref().filter(began_as_guest) {
            Some(sharing) => sharing.allocation.map_or(is_shared, |allocation| allocation == Allocation::Cores),
            None => self.grants.contains_key(&node),
        }
    }

    /// Returns when its nodes, or what it lends and borrows, changed last: at its start, if they never did.
    pub(crate) fn changed_at(&self) -> Time {
        let of_cores = |evolved: &Evolved| evolved.counted.map_or(self.at, |counted| counted.until);
        let of_nodes = self.evolved.as_ref().map(|evolved| evolved.since().max(of_cores(evolved)));
        let of_loans = self.sharing.as_ref().map(|sharing| sharing.since);
        of_nodes.into_iter().chain(of_loans).fold(self.at, Time::max)
    }

    /// Returns the number of changes of its nodes and CPUs, counted from 1.
    pub fn generation(&self) -> u32 {
        let of_nodes = self.evolved.as_ref().map_or(1, |evolved| evolved.generation);
        of_nodes.saturating_add(self.sharing.as_ref().map_or(0, |sharing| sharing.generation))
    }

    /// Returns the wall time that it asked for, and its work done by then in core-milliseconds. `asked` is the number
    /// of cores that it asked for in all. Without a valid sharing state, it had all of them since it started, and will
    /// have them until its limit.
    pub(crate) fn work_at(&self, at: Time, asked: u64) -> (Span, u64) {
        match self.sharing.as_ref().filter(|sharing| !sharing.is_resized) {
            Some(sharing) => (sharing.requested, sharing.done_at(at)),
            None => (self.request.wall, asked.saturating_mul(millis(at.since(self.at)))),
        }
    }

    /// Returns the wall time that it asked for, whatever its limit has become.
    pub(crate) fn requested(&self) -> Span {
        self.work_at(self.at, 0).0
    }

    /// Returns whether it borrows cores.
    pub(crate) fn is_guest(&self) -> bool {
        self.sharing.as_ref().is_some_and(|sharing| !sharing.mates.is_empty())
    }

    /// Returns whether it lends or borrows cores.
    pub(crate) fn is_sharing(&self) -> bool {
        self.sharing.as_ref().is_some_and(|sharing| sharing.is_active())
    }

    /// Returns the number of cores of a node that it lends.
    pub(crate) fn n_lent_on(&self, node: NodeId) -> u32 {
        let loan = self.sharing.as_ref().and_then(|sharing| sharing.lent.get(&node));
        loan.map_or(0, |loan| loan.cores.len())
    }

    /// Notes that the nodes, cores or time that it asks for have changed. While it shares, [`State::resize_sharing`]
    /// handles this.
    pub(super) fn note_resize(&mut self) {
        let idle = self.sharing.iter_mut().filter(|sharing| !sharing.is_active());
        idle.for_each(|sharing| sharing.is_resized = true);
    }

    /// Ends the course of an application that has one with its wall time.
    pub(super) fn move_end(&mut self) {
        let end = self.until();
        let last = self.evolved.as_mut().and_then(|evolved| evolved.course.legs.last_mut());
        last.into_iter().for_each(|leg| leg.span = end.since(leg.start));
    }

    /// Returns until when it was a guest on this node, at most `at`; `None` if it never was.
    pub(super) fn guest_until(&self, node: NodeId, at: Time) -> Option<Time> {
        let sharing = self.sharing.as_ref()?;
        let is_guest = sharing.mates.contains_key(&node);
        sharing.own_since.get(&node).copied().or(is_guest.then_some(at)).map(|until| until.min(at))
    }

    /// Returns its part of a node without the cores that it lends.
    pub(super) fn without_lent(
        &self,
        spec: &JobSpec,
        node: NodeId,
        inventory: &Inventory,
        part: Option<Grant>,
    ) -> Option<Grant> {
        let loan = self.sharing.as_ref().and_then(|sharing| sharing.lent.get(&node));
        let Some(loan) = loan else { return part };
        let mut part = part.unwrap_or_else(|| Grant::whole(inventory));
        // On a node that it has alone but for a guest, it keeps the memory that it asked for.
        if !self.grants.contains_key(&node) {
            part.memory = constraint_of(spec, &self.request).memory;
        }
        part.cores.remove_all(&loan.cores);
        Some(part)
    }
}

impl State {
    /// Returns the cores that a started job has on each of its nodes, and those that it asked for there.
    pub fn cores_of<'a>(&'a self, entry: &'a Job) -> impl Iterator<Item = CoreShare> + Clone + 'a {
        let started = entry.started();
        let nodes = started.map_or(&[][..], |started| &started.nodes);
        nodes.iter().filter_map(move |node| {
            let (started, known) = (started?, self.nodes.get(node)?);
            let asked = match &started.evolved {
                // Sizes reached by negotiation count as what it asks for.
                Some(_) => {
                    let own = started.own_part_of(&entry.spec, *node, &known.inventory);
                    own.map_or(known.inventory.cores, |part| part.cores.len())
                }
                None => {
                    let is_shared = self.is_shared(known.cluster);
                    let asks_part = started.asks_part(*node, is_shared);
                    cores_asked(&entry.spec, &started.request, &known.inventory, asks_part)
                }
            };
            let part = entry.part_of(*node, &known.inventory);
            let has = part.map_or(known.inventory.cores, |part| part.cores.len()).min(asked);
            Some(CoreShare { n_nodes: 1, has, asked })
        })
    }

    /// Returns the rate of a job without its loans, which are removed from `entry`.
    pub(crate) fn rate_alone(&self, entry: &mut Job) -> u64 {
        if let Phase::Started(Started { sharing: Some(sharing), .. }) = &mut entry.phase {
            sharing.lent.clear();
        }
        let shares: Vec<CoreShare> = self.cores_of(entry).collect();
        self.settings.sharing.runtime_model.rate(shares.into_iter())
    }

    /// Returns the sharing state of a job, brought up to date.
    pub(crate) fn sharing_at(&self, job: JobId, now: Time) -> Option<Sharing> {
        let entry = self.jobs.get(&job)?;
        let started = entry.started()?;
        let asked = asked(self.cores_of(entry));
        let (requested, done) = started.work_at(now, asked);
        let Some(sharing) = started.sharing.as_deref() else {
            return Some(Sharing {
                requested,
                done,
                since: now,
                rate: asked,
                lent: BTreeMap::new(),
                mates: BTreeMap::new(),
                own_since: BTreeMap::new(),
                allocation: None,
                generation: 0,
                awaited: BTreeSet::new(),
                is_stubborn: false,
                loans: CpuLoans::default(),
                past_loans: Vec::new(),
                is_resized: false,
            });
        };
        let settled = sharing.settled(now, self.loans_at(started, now)?);
        Some(Sharing { requested, done, is_resized: false, ..settled })
    }

    /// Returns the core-time that a job will have lent and borrowed by `at`; `None` if it never did. Cores that the
    /// processes of their owner have not left yet do not count.
    pub(crate) fn loans_at(&self, started: &Started, at: Time) -> Option<CpuLoans> {
        let sharing = started.sharing.as_deref()?;
        if at < sharing.since {
            return Some(sharing.past_loans_at(started.at, at));
        }
        let took = millis(at.since(sharing.since));
        let has_left = |owner: &Sharing, node: &NodeId| !owner.awaited.contains(node);
        let lent = sharing.lent.iter().filter(|(node, _)| has_left(sharing, node));
        let n_lent: u64 = lent.map(|(_, loan)| u64::from(loan.cores.len())).sum();
        let borrowed = sharing.mates.iter().filter(|(node, owner)| {
            let owner = self.jobs.get(owner).and_then(|owner| owner.sharing());
            owner.is_none_or(|owner| has_left(owner, node))
        });
        let n_cores = |node: &NodeId| started.grants.get(node).map_or(0, |grant| u64::from(grant.cores.len()));
        let n_borrowed: u64 = borrowed.map(|(node, _)| n_cores(node)).sum();
        Some(CpuLoans {
            lent: sharing.loans.lent.saturating_add(took.saturating_mul(n_lent)),
            borrowed: sharing.loans.borrowed.saturating_add(took.saturating_mul(n_borrowed)),
        })
    }

    /// Returns the time in which the job would have done its work so far with all cores that it asked for.
    pub(crate) fn time_at_full_speed(&self, job: JobId, now: Time) -> Span {
        let Some((entry, started)) = self.jobs.get(&job).and_then(|entry| Some((entry, entry.started()?))) else {
            return Span::ZERO;
        };
        match &started.sharing {
            Some(_) => {
                let asked = asked(self.cores_of(entry)).max(1);
                let (_, done) = started.work_at(now, asked);
                Span::from_millis(i64::try_from(done / asked).unwrap_or(i64::MAX))
            }
            None => now.since(started.at),
        }
    }

    /// Recalculates the work of a sharing job that has lost nodes and asked for `asked_before` cores until now. The
    /// rest takes as long with the present cores as it would have with the former ones; the remainder of its limit is
    /// for a guest, which may end sooner.
    pub(super) fn resize_sharing(&mut self, job: JobId, at: Time, asked_before: u64) -> Result<(), ApplyError> {
        let entry = self.jobs.get(&job).ok_or(ApplyError::Job(job))?;
        let cores: Vec<CoreShare> = self.cores_of(entry).collect();
        let Some((started, sharing)) = entry.started().zip(entry.sharing()) else { return Ok(()) };
        if !sharing.is_active() {
            return Ok(());
        }
        let left = sharing.work(asked_before).saturating_sub(sharing.done_at(at));
        let ran = at.since(started.at);
        let resized = Sharing {
            requested: ran + whole_seconds(left, asked_before),
            done: asked(cores.iter().copied()).saturating_mul(millis(ran)),
            rate: self.settings.sharing.runtime_model.rate(cores.into_iter()),
            ..sharing.settled(at, self.loans_at(started, at).unwrap_or_default())
        };
        self.started_mut(job)?.sharing = Some(Box::new(resized));
        Ok(())
    }

    /// Returns whether the job is a guest on this node that waits for its mate to leave the CPUs.
    pub(crate) fn awaits_cpus(&self, job: JobId, node: NodeId) -> bool {
        let owner = self.jobs.get(&job).and_then(|entry| entry.sharing()?.mates.get(&node));
        let owner = owner.and_then(|owner| self.jobs.get(owner)?.sharing());
        owner.is_some_and(|sharing| sharing.awaited.contains(&node))
    }

    /// Sets all that a job lends and borrows, and its new wall time.
    pub(super) fn share_cpus(
        &mut self,
        job: JobId,
        sharing: &Sharing,
        grants: &BTreeMap<NodeId, Grant>,
        wall: Span,
        bumped: &mut BumpedNodes<'_>,
    ) -> Result<(), ApplyError> {
        self.count_core_time(job, sharing.since)?;
        // The guest that waits for CPUs is started by the same nodes.
        let alive: Vec<NodeId> = self.started_mut(job)?.alive().collect();
        self.edit_job(job, |entry| {
            if let Phase::Started(started) = &mut entry.phase {
                started.sharing = Some(Box::new(sharing.clone()));
                started.grants.clone_from(grants);
                started.request.wall = wall;
                started.move_end();
            }
        })?;
        alive.into_iter().for_each(|node| self.bump(node, bumped));
        Ok(())
    }

    /// Notes that the processes of an owner have left the cores of this node that it lends: the loan begins. Older
    /// journals do not say when, and count it from the decision on. Returns whether a guest waited for it.
    pub(super) fn begin_loan(&mut self, owner: JobId, node: NodeId, at: Option<Time>) -> Result<bool, ApplyError> {
        let sharing = self.jobs.get(&owner).and_then(|entry| entry.sharing());
        let Some(sharing) = sharing.filter(|sharing| sharing.awaited.contains(&node)) else { return Ok(false) };
        let guest = sharing.lent.get(&node).map(|loan| loan.guest);
        // Each up to date before the number of cores that count changes.
        for job in guest.into_iter().chain([owner]) {
            let since = self.jobs.get(&job).and_then(|entry| Some(entry.sharing()?.since));
            let Some((at, since)) = at.zip(since) else { continue };
            let until = at.max(since);
            self.count_core_time(job, until)?;
            let current = self.sharing_at(job, until).map(Box::new);
            self.started_mut(job)?.sharing = current;
        }
        Ok(self.started_mut(owner)?.sharing.as_mut().is_some_and(|sharing| sharing.awaited.remove(&node)))
    }

    /// Notes that the agent of this node has applied all changes up to this generation, so that a guest may use the
    /// CPUs.
    pub(super) fn cpus_in_force(
        &mut self,
        job: JobId,
        node: NodeId,
        (generation, at): (u32, Option<Time>),
        bumped: &mut BumpedNodes<'_>,
    ) -> Result<(), ApplyError> {
        let is_latest = generation >= self.started_mut(job)?.generation();
        if is_latest && self.begin_loan(job, node, at)? {
            self.bump(node, bumped);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_whole_seconds_and_for_ever_without_cores() {
        assert_eq!(whole_seconds(0, 0), Span::ZERO);
        assert_eq!(whole_seconds(4000, 4), Span::from_secs(1));
        assert_eq!(whole_seconds(4001, 4), Span::from_secs(2));
        assert_eq!(whole_seconds(1, 0), Span::MAX_WALL);
    }
}
