//! Evolving applications get what they were promised: each stage in its order, with its nodes, for at least its time,
//! and no later than its expand limit and the documented grace allow.

use std::collections::BTreeMap;

use rms_core::state::course::Course;
use rms_core::{Fact, State};
use rms_model::{ExpandLimit, JobId, Outcome, Span, Time};

use super::{Rule, Violation};

#[derive(Debug, Default)]
pub(super) struct Stages {
    courses: BTreeMap<JobId, Course>,
    /// The earliest time at which the supervisors of these jobs end them, by the shortest course that they may have
    /// been told of.
    limits: BTreeMap<JobId, Time>,
    /// When the server last could not do what was due: it was down, or its disk failed.
    hindered: Option<Time>,
    /// The longest time that jobs may have taken to leave the nodes.
    longest_grace: Span,
    /// The longest time that a started server waits for the agents: until then it gives up no node.
    longest_absence: Span,
}

impl Stages {
    pub(super) fn hindered(&mut self, now: Time) {
        self.hindered = Some(now);
    }

    pub(super) fn durable(&mut self, fact: &Fact, state: &State) -> Result<(), Violation> {
        let settings = state.settings();
        let grace = settings.kill_grace + settings.release_grace + Span::from_secs(1);
        self.longest_grace = self.longest_grace.max(grace);
        self.longest_absence = self.longest_absence.max(settings.node_lost_after);
        match fact {
            Fact::CourseSet { job, course, .. } => {
                self.courses.insert(*job, (**course).clone());
                self.limit(*job, course, state);
                Ok(())
            }
            Fact::StageEntered { job, at, gained, freed, course, grants: _ } => {
                self.limit(*job, course, state);
                let before = self.courses.insert(*job, (**course).clone());
                // Changes by negotiation are checked elsewhere.
                if !is_evolving(*job, state) {
                    return Ok(());
                }
                let before = before.ok_or_else(|| Rule::Stages.broken(format!("job {job} has no course")))?;
                self.entered(*job, *at, (gained.len(), freed.len()), &before, course)
            }
            Fact::JobEnding { job, at, outcome, .. } => match self.courses.get(job) {
                Some(course) if is_evolving(*job, state) => self.ends(*job, *at, outcome, course),
                Some(_) | None => Ok(()),
            },
            Fact::JobDone { record, .. } => {
                self.forget(record.job);
                Ok(())
            }
            Fact::JobRequeued { job, .. } => {
                self.forget(*job);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn forget(&mut self, job: JobId) {
        self.courses.remove(&job);
        self.limits.remove(&job);
    }

    /// Computes how long supervisors that are not told of a later course keep to an earlier one: they wait for stages
    /// that are as late as they may be, but at most for the longest wall time.
    fn limit(&mut self, job: JobId, course: &Course, state: &State) {
        let Some(started) = state.jobs().get(&job).and_then(|entry| entry.started()) else { return };
        let longest = started.at + state.settings().max_wall;
        let limit = course.latest_end().min(longest).max(course.end());
        let earliest = self.limits.entry(job).or_insert(limit);
        *earliest = limit.min(*earliest);
    }

    /// Checks that a course ends when it is over, when its next stage was too late, or when its supervisors have waited
    /// for as long as they were told: they do so without a server, too, and a stage that the server enters on its
    /// return comes too late for them.
    fn ends(&self, job: JobId, at: Time, outcome: &Outcome, course: &Course) -> Result<(), Violation> {
        let is_early = match outcome {
            Outcome::WallTime => at < course.end() && self.limits.get(&job).is_none_or(|limit| at < *limit),
            Outcome::StageLate { stage } => {
                let is_endless = course.limit == ExpandLimit::Infinite;
                (at < course.latest_change() && !is_endless) || *stage != course.number + 1
            }
            _ => false,
        };
        if is_early {
            return Err(Rule::Stages.broken(format!("job {job} ends at {at:?} as '{outcome}': {course:?}")));
        }
        Ok(())
    }

    fn entered(
        &self,
        job: JobId,
        at: Time,
        (n_gained, n_freed): (usize, usize),
        before: &Course,
        after: &Course,
    ) -> Result<(), Violation> {
        let (from, to) = (before.current(), after.current());
        let wrong = |what: &str| {
            Err(Rule::Stages
                .broken(format!("job {job}, stage {}, at {at:?}: {what}: {before:?}, {after:?}", after.number)))
        };
        if before.next().map(|next| next.nodes) != Some(to.nodes) || after.number != before.number + 1 {
            return wrong("it is not the next one");
        }
        if i64::from(to.nodes) - i64::from(from.nodes) != n_gained as i64 - n_freed as i64 {
            return wrong("its nodes are not as many as it needs");
        }
        if to.start < from.start + from.span {
            return wrong("the stage before it was cut short");
        }
        let latest = before.latest_change().max(before.next_change()) + self.longest_grace;
        let is_excused = |hindered: Time| hindered >= from.start || at <= hindered + self.longest_absence;
        if at > latest && !self.hindered.is_some_and(is_excused) {
            return wrong("it is later than its limit");
        }
        Ok(())
    }
}

/// Returns whether the job was submitted with stages.
fn is_evolving(job: JobId, state: &State) -> bool {
    state.jobs().get(&job).is_some_and(|entry| entry.spec.evolving.is_some())
}

#[cfg(test)]
mod tests {
    use rms_core::state::course::Leg;

    use super::*;

    fn course(number: u32, legs: &[(u32, i64, i64)]) -> Course {
        let leg = |(nodes, start, secs): &(u32, i64, i64)| Leg {
            nodes: *nodes,
            start: Time::from_secs(*start),
            span: Span::from_secs(*secs),
        };
        Course { number, legs: legs.iter().map(leg).collect(), limit: ExpandLimit::TWICE, open: false, row: Vec::new() }
    }

    #[test]
    fn a_stage_that_is_too_late_or_cut_short_is_seen() {
        let check = |at: i64, start: i64| {
            let stages = Stages { longest_grace: Span::from_secs(3), ..Stages::default() };
            let before = course(1, &[(1, 0, 10), (3, 10, 10)]);
            stages.entered(JobId(1), Time::from_secs(at), (2, 0), &before, &course(2, &[(3, start, 10)]))
        };
        assert!(check(10, 10).is_ok() && check(23, 23).is_ok());
        assert!(check(24, 24).is_err(), "twice ten seconds, two to kill, and one");
        assert!(check(10, 9).is_err());
    }
}
