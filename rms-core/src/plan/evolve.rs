//! Evolving applications in a pass: what those that run will hold, and where one that waits fits.

use rms_model::job::Constraint;
use rms_model::profile::{Block, Step};
use rms_model::{ClusterId, Evolution, Evolving, JobId, JobSpec, NodeId, Profile, Request, Span, Time};

use super::fit::{self, Fit, TooLarge};
use super::ledger::{self, Ledger};
use super::pass::{Pass, Take, Taken};
use super::{Blocked, Placed, Shortage};
use crate::job::{Job, Phase, Started};
use crate::launcher;
use crate::state::State;

/// What a job that holds hosts will hold for some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) from: Time,
    pub(super) until: Time,
    pub(super) hosts: Hosts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hosts {
    /// Those of its current stage.
    Held,
    /// Those it has freed, until their processes are gone.
    Leaving,
    /// So many of its cluster; nobody knows yet which.
    Count(u32),
}

/// The times for which a started job or a ghost keeps hosts from others (R3), an evolving one stage by stage. Who should
/// have gone but has not is seen a little longer than now, or others would be planned into it.
pub(super) fn parts(entry: &Job, now: Time, kill_grace: Span) -> Vec<Part> {
    let overdue = now + kill_grace.max(Span::from_secs(1));
    match &entry.phase {
        Phase::Started(Started { evolved: Some(evolved), at, .. }) => {
            let course = &evolved.course;
            // What is late begins now at the earliest, and what comes after it is late, too.
            let late_by = now.since(course.next_change());
            let is_due = course.next_change() <= now;
            let is_growing = course.next().is_some_and(|next| next.hosts > course.current().hosts);
            let held_until = if is_due && !is_growing { overdue } else { course.next_change() + late_by };
            let mut parts = vec![Part { from: (*at).min(now), until: held_until, hosts: Hosts::Held }];
            if !evolved.leaving.is_empty() {
                parts.push(Part { from: (*at).min(now), until: overdue, hosts: Hosts::Leaving });
            }
            let next_starts = course.legs.iter().skip(2).map(|leg| leg.start).chain([course.end()]);
            for (leg, until) in course.legs.iter().skip(1).zip(next_starts) {
                let from = (leg.start + late_by).max(held_until);
                parts.push(Part { from, until: until + late_by, hosts: Hosts::Count(leg.hosts) });
            }
            parts
        }
        Phase::Started(started) => {
            let planned = started.at + started.request.wall;
            // The clock may have been set back since: what holds a host holds it now.
            let until = if planned > now { planned } else { overdue };
            vec![Part { from: started.at.min(now), until, hosts: Hosts::Held }]
        }
        Phase::Ghost(ghost) => vec![Part { from: ghost.done_at.min(now), until: ghost.until, hosts: Hosts::Held }],
        Phase::Submitted { .. } | Phase::RequestSent | Phase::Waiting => Vec::new(),
    }
}

/// The cluster of an evolving application: it has hosts of one only.
pub(crate) fn cluster_of(request: &Request) -> ClusterId {
    request.hosts.keys().next().copied().expect("an evolving application names its cluster")
}

/// Usable hosts of a cluster that meet a constraint, are outside of `here`, and are not among `held`.
pub(super) fn n_elsewhere(
    state: &State,
    cluster: ClusterId,
    constraint: &Constraint,
    here: &Ledger,
    held: &[NodeId],
) -> u32 {
    let is_elsewhere = |(node, entry): &(&NodeId, &crate::node::Node)| {
        entry.cluster == cluster
            && entry.is_usable()
            && !here.contains(**node)
            && !held.contains(node)
            && ledger::meets(&entry.inventory, constraint)
    };
    state.nodes().iter().filter(is_elsewhere).count() as u32
}

/// Who else is where, as a running application sees it: the occupation of the hosts it may use on its cluster, and how
/// many these are.
pub(crate) fn occupation_beside(state: &State, now: Time, job: JobId) -> (Profile, u32) {
    let entry = &state.jobs()[&job];
    let Some(started) = entry.started() else { return (Profile::new(), 0) };
    let cluster = cluster_of(&started.request);
    let constraint = launcher::constraint_of(&entry.spec, &started.request);
    let all = Ledger::of_all(state, now, Some(job));
    let eligible = ledger::eligible(state, &constraint);
    let special = Ledger::of(state, now, eligible, Some(job));
    occupation(&all, Some(&special), cluster)
}

/// The occupation of the hosts of `special`, of which what others will hold is only known as a number, if that is more
/// than all the other hosts have room for.
fn occupation(all: &Ledger, special: Option<&Ledger>, cluster: ClusterId) -> (Profile, u32) {
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

/// An evolving application on one of its clusters.
struct Candidate {
    cluster: ClusterId,
    special: Option<Constraint>,
    fit: Fit,
}

impl Pass<'_> {
    /// Steps 4b and 4c of 001, Fig. 5, for an evolving application: where it completes first, its stages are placed by
    /// [`fit`] and added to the view.
    pub(super) fn place_evolving(&mut self, spec: &JobSpec, evolving: &Evolving) -> Placed {
        let best = match self.best(spec, evolving, self.now) {
            Ok(best) => best,
            Err((cluster, too_large)) => {
                let TooLarge { wanted, capacity, .. } = too_large;
                return Placed::Never { shortage: Shortage { cluster, wanted, usable: capacity } };
            }
        };
        let (cluster, special) = (best.cluster, best.special.clone());
        let mut fit = best.fit;
        let first_hosts = evolving.stages.stages().first().map_or(0, |first| first.hosts);
        let held = Request::on_one(cluster, first_hosts, fit.expanded.span());
        let starts_now = fit.start == self.now;
        let take = if starts_now { self.take_nodes(&held, special.as_ref()) } else { Take::NotFree };
        let (blocked, nodes) = match take {
            Take::Hosts(nodes) => (None, Some(nodes)),
            Take::NotFree => (self.blocked(cluster, special.as_ref(), &evolving.stages), None),
            Take::Kept(blocked) => {
                // Some hosts are kept for others now: it looks again from where something changes.
                let from = self.next_start(&held, special.as_ref());
                let later = self.best(spec, evolving, from.max(self.now + Span::from_millis(1)));
                if let Ok(later) = later
                    && later.cluster == cluster
                {
                    fit = later.fit;
                }
                (blocked, None)
            }
        };
        let at = fit.start;
        self.add(Taken {
            constraint: special,
            request: held.clone(),
            at,
            nodes: nodes.clone(),
            stages: Some(fit.expanded.clone()),
        });
        let fit = Some(Box::new(fit));
        match nodes {
            Some(nodes) => Placed::Now { request: held, nodes, fit },
            None => Placed::Later { request: held, at, blocked, fit },
        }
    }

    /// The cluster with the earliest completion; of equals, the one named first.
    fn best(&mut self, spec: &JobSpec, evolving: &Evolving, from: Time) -> Result<Candidate, (ClusterId, TooLarge)> {
        let mut best: Option<Candidate> = None;
        let mut too_large = None;
        for request in &spec.options {
            let cluster = cluster_of(request);
            let constraint = launcher::constraint_of(spec, request);
            self.open_ledger(&constraint);
            let special = self.stands_for.get(&constraint).cloned().flatten();
            let (occupied, capacity) =
                occupation(&self.all, special.as_ref().map(|constraint| &self.special[constraint]), cluster);
            match fit::place(&occupied, capacity, &evolving.stages, evolving.expansion, from) {
                Ok(fit) => {
                    let is_first = best.as_ref().is_none_or(|best| fit.completion() < best.fit.completion());
                    if is_first {
                        best = Some(Candidate { cluster, special, fit });
                    }
                }
                Err(error) => too_large = Some((cluster, error)),
            }
        }
        best.ok_or_else(|| too_large.expect("an accepted job has at least one cluster"))
    }

    /// The first stage that would not fit if the application began now and waited for nothing, and what is in its way.
    fn blocked(&self, cluster: ClusterId, special: Option<&Constraint>, stages: &Evolution) -> Option<Blocked> {
        let special = special.map(|constraint| &self.special[constraint]);
        let (occupied, capacity) = occupation(&self.all, special, cluster);
        let capacity = i64::from(capacity);
        stages.blocks(self.now).find_map(|Block { from, until, hosts }| {
            let until = occupied.last_above(capacity - hosts, from, until)?;
            let before = until - Span::from_millis(1);
            let step = Step { from: before.max(from), hosts: occupied.at(before) };
            Some(Blocked { cluster, step, until, wanted: hosts as u32, capacity })
        })
    }
}
