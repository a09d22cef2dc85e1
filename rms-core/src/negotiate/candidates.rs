//! Running applications as the policies see them.

use std::collections::BTreeMap;

use negotiation::Direction;
use rms_api::negotiate::Declared;
use rms_model::{ClusterId, JobId, Time};

use super::Negotiations;
use super::policy::{Candidate, UserWeight, may_gain};
use crate::state::job::Started;

/// An application that the server may offer hosts, or ask for some.
#[derive(Debug)]
pub(super) struct Changeable {
    pub(super) job: JobId,
    user: String,
    held: u32,
    started_with: u32,
    declared: Declared,
    priority: i32,
    is_talking: bool,
    declined: u32,
    pub(super) room: u32,
    /// When it ends at the latest.
    pub(super) until: Time,
}

impl Changeable {
    pub(super) fn as_candidate(&self) -> Candidate<'_> {
        Candidate {
            job: self.job,
            user: &self.user,
            held: self.held,
            started_with: self.started_with,
            declared: &self.declared,
            priority: self.priority,
            is_talking: self.is_talking,
            declined: self.declined,
            room: self.room,
        }
    }
}

impl Negotiations<'_> {
    /// Is there any application that the server could ask for a change?
    pub(super) fn has_changeable(&self) -> bool {
        self.context.state().malleable().next().is_some()
    }

    /// Those with hosts of one cluster that hear what the server says, in the order of their ids. A first host elsewhere is
    /// for the application to ask for: the server does not know whether it can use it.
    pub(super) fn changeable(&self, now: Time, cluster: ClusterId, direction: Direction) -> Vec<Changeable> {
        let jobs = self.context.state().malleable();
        jobs.filter_map(|job| self.as_changeable(now, job, cluster, direction)).collect()
    }

    fn as_changeable(&self, now: Time, job: JobId, cluster: ClusterId, direction: Direction) -> Option<Changeable> {
        let entry = self.context.state().jobs().get(&job)?;
        let started = entry.started().filter(|started| started.ending.is_none())?;
        let is_here = self.n_hosts_on(job, cluster) > 0;
        let declared = self.bounds(job);
        let can_change = declared.least < declared.most && is_here && self.is_heard(job);
        let until = started.at + started.request.wall;
        // Who is still coming up, or is about to end, has something else to do.
        let has_time = until > now + self.context.state().settings().offer_valid;
        if !can_change || !started.is_settled() || !has_time {
            return None;
        }
        let is_leaving = started.evolved.as_ref().is_some_and(|evolved| !evolved.departing.is_empty());
        let is_open = |direction| self.open_for(job, direction).is_some();
        let is_talking = match direction {
            Direction::Grow => is_open(Direction::Grow) || is_open(Direction::Shrink) || is_leaving,
            Direction::Shrink => is_open(Direction::Shrink) || is_leaving,
        };
        let room = match direction {
            Direction::Grow => u32::MAX,
            Direction::Shrink => self.n_spare_on(job, cluster),
        };
        Some(Changeable {
            job,
            user: entry.spec.owner.0.clone(),
            held: started.nodes.len() as u32,
            started_with: started_with(started),
            declared,
            priority: entry.spec.priority,
            is_talking,
            declined: self.declined(job, direction),
            room,
            until,
        })
    }

    /// How many hosts it is not to be asked about again for now.
    fn declined(&self, job: JobId, direction: Direction) -> u32 {
        let refusals = &self.negotiators.refusals;
        let declined = refusals.hosts(job, direction);
        match direction {
            Direction::Grow if self.context.state().n_queued() > 0 => declined.max(refusals.given(job)),
            Direction::Grow | Direction::Shrink => declined,
        }
    }

    /// What counts of the users of these applications where hosts are shared.
    pub(super) fn weights<'a>(&self, candidates: &'a [Changeable]) -> BTreeMap<&'a str, UserWeight> {
        let settings = self.context.state().settings();
        let mut weights = BTreeMap::new();
        for candidate in candidates {
            weights.entry(candidate.user.as_str()).or_insert_with_key(|user| UserWeight {
                share: settings.share_of(user),
                may_gain: self.may_still_gain(user),
            });
        }
        weights
    }

    /// What is left of a user's limit; hosts that are kept for its applications count as theirs.
    pub(super) fn may_still_gain(&self, user: &str) -> Option<u32> {
        let limit = self.context.state().settings().growth_limit_of(user)?;
        let jobs = self.context.state().negotiating().map(|(_, entry)| entry);
        let own = jobs.filter(|entry| entry.spec.owner.0 == user);
        let sizes = own.filter_map(|entry| {
            let started = entry.started()?;
            let held = started.nodes.len() + entry.promised_hosts().count();
            Some((held as u32, started_with(started)))
        });
        may_gain(Some(limit), sizes)
    }
}

/// How many hosts it had first.
pub(super) fn started_with(started: &Started) -> u32 {
    started.evolved.as_ref().map_or(started.nodes.len() as u32, |evolved| evolved.started_with)
}
