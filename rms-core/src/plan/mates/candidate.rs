//! Running jobs that could lend to one guest, and what each of them would lend.

use std::borrow::Cow;
use std::collections::BTreeMap;

use rms_model::sharing::asked;
use rms_model::{ClusterId, CoreShare, JobId, JobSpec, NodeId, Request, RuntimeModel, Span, Time};

use crate::plan::slowdown::{Fraction, penalty};
use crate::state::job::{Job, Started};
use crate::state::sharing::{Sharing, millis, whole_seconds};
use crate::state::{Lender, LenderPart, State};

/// A job that could lend.
pub(super) struct Candidate<'a> {
    pub(super) job: JobId,
    pub(super) lender: Cow<'a, Lender>,
    pub(super) times: JobTimes,
    /// Its remaining work, in core-milliseconds.
    pub(super) left: u64,
    /// The jobs on whose nodes it is a guest.
    pub(super) owners: Vec<Owner>,
    /// The longest requested time, in milliseconds, of a guest that ends before it.
    pub(super) longest: u64,
    /// Present for a job that starts in this pass.
    pub(super) starting: Option<StartingJob>,
}

/// The time in system and the requested time of a job, of which its slowdown is the ratio.
#[derive(Clone, Copy)]
pub(super) struct JobTimes {
    /// The time from its submission to its limit, without the guest.
    pub(super) in_system: Span,
    pub(super) requested: Span,
}

/// A job that a possible mate has borrowed from. It stays slowed down until that mate ends.
pub(super) struct Owner {
    pub(super) job: JobId,
    pub(super) times: JobTimes,
    /// Remaining work in core-milliseconds; the rates in cores now, and once it lends nothing.
    pub(super) left: u64,
    pub(super) rate: u64,
    pub(super) alone: u64,
    /// The jobs on whose nodes it is itself a guest.
    pub(super) owners: Vec<Owner>,
}

/// The nodes of a job that starts in this pass.
pub(super) struct StartingJob {
    /// Its nodes, with the number of its cores on each.
    pub(super) nodes: Vec<(NodeId, u32)>,
    /// The memory that it asked for on each node, in MiB.
    pub(super) memory: u64,
}

/// What one candidate lends a guest.
pub(super) struct Offer<'c> {
    /// The guest's cores on these nodes.
    pub(super) parts: Vec<CoreShare>,
    /// The mate's rates while it lends, and afterwards.
    pub(super) rate: u64,
    pub(super) alone: u64,
    pub(super) left: u64,
    pub(super) owners: &'c [Owner],
}

/// A candidate and its offer.
pub(super) type Offered<'c> = (&'c Candidate<'c>, Offer<'c>);

/// The job for which mates are searched.
#[derive(Clone, Copy)]
pub(super) struct Guest<'a> {
    pub(super) job: JobId,
    pub(super) spec: &'a JobSpec,
    pub(super) request: &'a Request,
    /// When it would end without mates.
    pub(super) static_end: Time,
}

impl JobTimes {
    pub(super) fn of(entry: &Job, started: &Started) -> JobTimes {
        let in_system = (started.at + started.request.wall).since(entry.eligible_since());
        JobTimes { in_system, requested: started.requested() }
    }

    /// Returns the limit of the job, without the guest.
    pub(super) fn end(&self, entry: &Job) -> Time {
        entry.eligible_since() + self.in_system
    }

    /// Returns its slowdown at its limit with this guest. What it has lent before is in its limit, and what it lends
    /// now adds the guest's time.
    pub(super) fn penalty(&self, guest: Guest<'_>) -> Option<Fraction> {
        let (in_system, increase, requested) = self.terms(guest);
        penalty(in_system, increase, requested)
    }

    /// Returns whether its slowdown is below the cut-off.
    pub(super) fn is_below(&self, cut_off: Fraction, guest: Guest<'_>) -> bool {
        let (in_system, increase, requested) = self.terms(guest);
        let (numerator, denominator) = cut_off.parts();
        // Products, because no fraction need be reduced for each candidate.
        match ((in_system + increase).checked_mul(denominator), requested.checked_mul(numerator)) {
            (Some(spent), Some(most)) => spent < most,
            (None, _) | (_, None) => self.penalty(guest).is_some_and(|penalty| penalty < cut_off),
        }
    }

    /// Returns its time in system, what the guest adds to it, and its requested time, in milliseconds.
    fn terms(&self, guest: Guest<'_>) -> (i128, i128, i128) {
        let requested = millis(self.requested).max(1);
        (millis(self.in_system).into(), millis(guest.request.wall).into(), requested.into())
    }
}

impl Owner {
    /// Returns the owners of the nodes on which a job is a guest. No two possible lenders have the same owner on a
    /// node, because each owner has one guest there.
    pub(super) fn all_of(state: &State, now: Time, entry: &Job) -> Vec<Owner> {
        let owners = entry.sharing().map(Sharing::owners).unwrap_or_default();
        let owner = |job: JobId| {
            let entry = state.jobs().get(&job)?;
            let (started, sharing) = (entry.started()?, state.sharing_at(job, now)?);
            let asked = asked(state.cores_of(entry));
            let alone = state.rate_alone(&mut entry.clone());
            Some(Owner {
                job,
                times: JobTimes::of(entry, started),
                left: sharing.work(asked).saturating_sub(sharing.done),
                rate: sharing.rate,
                alone,
                owners: Owner::all_of(state, now, entry),
            })
        };
        owners.into_iter().filter_map(owner).collect()
    }

    /// Returns the number of jobs that share the same cores in a chain, up to this one.
    pub(super) fn n_sharers(owners: &[Owner]) -> u32 {
        1 + owners.iter().map(|owner| Owner::n_sharers(&owner.owners)).max().unwrap_or(0)
    }

    /// Returns whether it runs for as long as the guest while it lends what it does now, and its own owners run long
    /// enough.
    pub(super) fn outlasts(&self, guest: Span) -> bool {
        let done = self.rate.saturating_mul(millis(guest));
        let end = || guest + whole_seconds(self.left - done, self.alone);
        done <= self.left && (self.owners.is_empty() || self.owners.iter().all(|owner| owner.outlasts(end())))
    }

    pub(super) fn each<'o>(owners: &'o [Owner], look: &mut dyn FnMut(&'o Owner)) {
        for owner in owners {
            look(owner);
            Owner::each(&owner.owners, look);
        }
    }
}

impl Candidate<'_> {
    /// Returns the times of all jobs that are slowed if it lends.
    pub(super) fn all_times(&self) -> Vec<JobTimes> {
        let mut all_times = vec![self.times];
        Owner::each(&self.owners, &mut |owner| all_times.push(owner.times));
        all_times
    }

    /// Returns whether all of them are below the cut-off.
    pub(super) fn all_below(&self, cut_off: Fraction, guest: Guest<'_>) -> bool {
        self.times.is_below(cut_off, guest)
            && (self.owners.is_empty() || self.all_times().iter().all(|times| times.is_below(cut_off, guest)))
    }

    /// Returns whether the job is the candidate, or one of its owners.
    pub(super) fn involves(&self, job: JobId) -> bool {
        let mut involves = self.job == job;
        Owner::each(&self.owners, &mut |owner| involves |= owner.job == job);
        involves
    }

    /// Returns the sum of slowdowns of all jobs that this guest slows (004, §3.2.1); `None` if that is out of range.
    pub(super) fn penalty(&self, guest: Guest<'_>) -> Option<Fraction> {
        let mut all_times = self.all_times().into_iter();
        let own = all_times.next()?.penalty(guest)?;
        all_times.try_fold(own, |sum, times| sum.plus(times.penalty(guest)?))
    }
}

/// Returns the running jobs that could lend.
pub(super) fn running_candidates<'a>(state: &'a State, now: Time) -> Vec<Candidate<'a>> {
    let max_sharers = |name: &String| state.settings().sharing_of(name).max_sharers;
    let max_sharers: BTreeMap<ClusterId, u32> =
        state.clusters().iter().map(|(cluster, name)| (*cluster, max_sharers(name))).collect();
    let candidate = |(job, lender): (JobId, Cow<'a, Lender>)| {
        let entry = state.jobs().get(&job)?;
        let started = entry.started()?;
        let max_sharers = max_sharers.get(&lender.cluster).copied()?;
        let owners = match started.is_sharing() {
            true if max_sharers == 2 => return None,
            true => Owner::all_of(state, now, entry),
            false => Vec::new(),
        };
        if Owner::n_sharers(&owners) >= max_sharers {
            return None;
        }
        let n_asked = lender.n_asked();
        let (requested, done) = started.work_at(now, n_asked);
        let left = n_asked.saturating_mul(millis(requested)).saturating_sub(done);
        let longest = longest_guest(state, &lender, left);
        Some(Candidate { job, lender, times: JobTimes::of(entry, started), left, owners, longest, starting: None })
    };
    state.lenders().filter_map(candidate).collect()
}

/// Returns the longest requested time, in milliseconds, of a guest that ends before a lender with this remaining work.
/// It is exact in the worst model, if all nodes of the lender are alike and not shared by cores; otherwise there is no
/// bound.
pub(super) fn longest_guest(state: &State, lender: &Lender, left: u64) -> u64 {
    let LenderPart { n_nodes, cores, asked: _, least, node } =
        match (&lender.parts[..], state.settings().sharing.runtime_model) {
            ([part], RuntimeModel::Worst) if !state.is_shared(lender.cluster) => *part,
            (_, RuntimeModel::Worst | RuntimeModel::Ideal) => return u64::MAX,
        };
    let name = &state.clusters()[&lender.cluster];
    let most = state.settings().sharing_factor_of(name).of(cores);
    let lent = most.min(cores.saturating_sub(least)).min(state.nodes()[&node].inventory.cores);
    if lent == 0 {
        return 0;
    }
    // The guest takes cores / lent of its time, and the mate does (cores - lent) per node of its work meanwhile.
    let kept = u128::from(cores - lent) * u128::from(n_nodes) * u128::from(cores);
    let longest = (u128::from(left) * u128::from(lent)).checked_div(kept);
    longest.map_or(u64::MAX, |longest| u64::try_from(longest).unwrap_or(u64::MAX))
}

impl Offer<'_> {
    /// Returns whether the mate runs as long as a guest with this work at this rate. Exact, because work is compared
    /// with work.
    pub(super) fn outlasts(&self, (work, rate): (u64, u64)) -> bool {
        u128::from(self.left) * u128::from(rate) >= u128::from(work) * u128::from(self.rate)
    }

    /// Returns whether the owners of the mate's borrowed cores outlast the mate, delayed by a guest that takes `took`.
    pub(super) fn ends_inside_owners(&self, took: Span) -> bool {
        let left = self.left.saturating_sub(self.rate.saturating_mul(millis(took)));
        self.owners.is_empty() || {
            let end = took + whole_seconds(left, self.alone);
            self.owners.iter().all(|owner| owner.outlasts(end))
        }
    }
}
