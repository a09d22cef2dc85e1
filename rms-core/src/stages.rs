//! The stages of running applications: new announcements, freed nodes, and progress.

use std::collections::BTreeSet;

use rms_api::answer::{Answer, StageLine, Stages};
use rms_api::refusal::Refusal;
use rms_model::{Evolution, Evolving, Identity, JobId, NodeId, Profile, Span, Stage, Time};

use crate::admit;
use crate::context::Context;
use crate::plan::evolve::occupation_beside;
use crate::plan::fit::{self, Fit};
use crate::plan::parts::cluster_of;
use crate::plan::row_beside;
use crate::rights;
use crate::state::course::{Course, Evolved, Leg};
use crate::state::fact::Fact;
use crate::state::job::{Job, Phase, Started};
use crate::step::Step;

impl Context {
    /// Records the course of a job whose stages were placed and whose first stage has just begun.
    pub(crate) fn begin_course(&mut self, now: Time, step: &mut Step, job: JobId, fit: &Fit, row: &[NodeId]) {
        let Some(evolving) = &self.state().jobs()[&job].spec.evolving else { return };
        let course = Box::new(Course { row: row.to_vec(), ..Course::of(evolving, fit.starts(), 1) });
        self.record(step, Fact::CourseSet { job, at: now, course });
    }

    /// Names the nodes of the stages to come of applications on clusters that are shared by cores since now: a count of
    /// nodes kept them until now.
    pub(crate) fn name_rows(&mut self, now: Time, step: &mut Step) {
        let lacks_row = |started: &Started| {
            let is_shared = self.state().is_shared(cluster_of(&started.request));
            is_shared && started.row().is_empty() && started.ending.is_none()
        };
        let lacking = self.state().evolved().filter(|(.., started)| lacks_row(started)).map(|(job, ..)| job);
        for job in lacking.collect::<Vec<_>>() {
            let Some((_, evolved)) = self.evolved(job) else { continue };
            let course = &evolved.course;
            if course.next().is_some()
                && let Ok(course) = self.refit_row(now, job, course, true)
            {
                self.record(step, Fact::CourseSet { job, at: now, course: Box::new(course) });
            }
        }
    }

    /// Removes the alarms of stages that are no longer late.
    pub(crate) fn forget_alarms(&mut self, now: Time) {
        let due: BTreeSet<JobId> =
            self.state().next_stages().take_while(|(at, _)| *at <= now).map(|(_, job)| job).collect();
        self.alarms.retain(|job, _| due.contains(job));
    }

    /// Returns when the next stage of any application is due, or when one that is late has waited long enough.
    pub(crate) fn next_stage(&self) -> Option<Time> {
        let upcoming = self.state().next_stages().find(|(_, job)| !self.alarms.contains_key(job)).map(|(at, _)| at);
        let alarm = self.alarms.values().min().copied();
        [upcoming, alarm].into_iter().flatten().min()
    }

    /// Returns whether something has changed for which a stage may wait that is late. It does not wait for the pass, which
    /// the re-scheduling timer delays.
    pub(crate) fn may_enter_late_stages(&self) -> bool {
        self.passes.wanted && !self.alarms.is_empty()
    }

    pub(crate) fn evolved(&self, job: JobId) -> Option<(&Started, &Evolved)> {
        let started = self.state().jobs().get(&job)?.started()?;
        Some((started, started.evolved.as_deref()?))
    }

    /// Returns how much later than its limit a stage may begin: jobs that leave the nodes may take that long.
    pub(crate) fn late_grace(&self) -> Span {
        let settings = self.state().settings();
        settings.kill_grace + settings.release_grace + Span::from_secs(1)
    }

    /// Fits the stages of a running application to what all other jobs hold or were promised.
    ///
    /// # Errors
    /// The next stage would be too late.
    pub(crate) fn refit(&self, now: Time, job: JobId, course: &Course) -> Result<Course, Refusal> {
        let started = self.state().jobs()[&job].started();
        if started.is_none_or(|started| !self.state().is_shared(cluster_of(&started.request))) {
            let (occupied, capacity) = occupation_beside(self.state(), now, job);
            return refit_over((occupied, capacity, Vec::new()), now, course);
        }
        self.refit_row(now, job, course, false).or_else(|_| self.refit_row(now, job, course, true))
    }

    /// As `refit`, on a cluster that is shared by cores: on the nodes that were promised to the job, or on new ones.
    pub(crate) fn refit_row(&self, now: Time, job: JobId, course: &Course, is_new: bool) -> Result<Course, Refusal> {
        let (row, occupied) = row_beside(self.state(), now, job, course, is_new);
        refit_over((occupied, row.len() as u32, row), now, course)
    }

    /// Returns whether a report is about an earlier time at which the application had the node. The agent has then not
    /// yet seen that the application has it again.
    pub(crate) fn is_of_earlier_place(&self, job: JobId, node: NodeId, seen: rms_model::Generation) -> bool {
        let place = self.evolved(job).and_then(|(_, evolved)| evolved.places.get(&node));
        place.is_some_and(|place| place.joined > 1 && seen < place.ordered)
    }

    /// Returns the progress of a job through its stages, with at most `n_legs` of the present and later stages.
    pub(crate) fn stages(&self, entry: &Job, fit: Option<&Fit>, now: Time, n_legs: usize) -> Option<Stages> {
        if let Some(evolved) = entry.started().and_then(|started| started.evolved.as_ref()) {
            let course = &evolved.course;
            let leg = |leg: &Leg| StageLine { nodes: leg.nodes, span: leg.span, start: Some(leg.start) };
            let late_by = course.next().map(|next| now.since(next.start)).filter(|late_by| !late_by.is_zero());
            // The course of a job without a profile is only its wall time.
            let has_profile = entry.spec.evolving.is_some();
            let (number, n_legs) = if has_profile { (course.number, n_legs) } else { (0, 0) };
            let n_later = course.legs.len() as u32 - 1;
            return Some(Stages {
                number,
                n_stages: if has_profile { number + n_later } else { 0 },
                legs: course.legs.iter().take(n_legs).map(leg).collect(),
                late_by,
                open: course.open,
                generation: evolved.generation,
                chosen: self.state().node_names(&evolved.chosen),
                leaving: self.state().node_names(&entry.leaving()),
                n_violations: evolved.n_violations,
            });
        }
        let evolving = entry.spec.evolving.as_ref()?;
        let mut starts = fit.into_iter().flat_map(Fit::starts);
        let stages = evolving.stages.stages();
        let leg = |stage: &Stage| StageLine { nodes: stage.nodes, span: stage.span, start: starts.next() };
        Some(Stages {
            number: 1,
            n_stages: stages.len() as u32,
            legs: stages.iter().take(n_legs).map(leg).collect(),
            late_by: None,
            open: evolving.open,
            generation: 0,
            chosen: Vec::new(),
            leaving: Vec::new(),
            n_violations: 0,
        })
    }

    /// Replaces the stages of an application by those that it announces from now on.
    pub(crate) fn evolve(
        &mut self,
        now: Time,
        step: &mut Step,
        who: &Identity,
        job: JobId,
        stages: Evolution,
        open: bool,
    ) -> Result<Answer, Refusal> {
        rights::may_touch(self.state(), who, job)?;
        let entry = &self.state().jobs()[&job];
        let wrong = |state, hint| Refusal::WrongState { job, state, hint };
        let Some(evolving) = &entry.spec.evolving else {
            return Err(wrong(
                entry.state().word(),
                "it has no profile: submit it with --profile, or write 'rms update JOB profile=2x500s,4x1h' while it waits",
            ));
        };
        let evolving = Evolving { stages, open, ..evolving.clone() };
        match &entry.phase {
            Phase::Submitted { .. } | Phase::RequestSent | Phase::Waiting => {
                let options = admit::evolving_options(self.state(), &entry.spec, &evolving)?;
                self.record(step, Fact::ProfileChanged { job, evolving, options });
                self.passes.wanted = true;
                Ok(Answer::Done)
            }
            Phase::Started(Started { ending: Some(_), .. }) => Err(wrong("ending", "it is being ended")),
            Phase::Ghost(_) => Err(wrong("done", "only its ghost keeps the nodes")),
            Phase::Started(started) if started.is_sharing() => {
                let hint =
                    "it lends CPUs at present (--share), and keeps its stages meanwhile; 'rms show' says until when";
                Err(wrong("started", hint))
            }
            Phase::Started(started) => {
                let Some(evolved) = &started.evolved else {
                    return Err(wrong("started", "it has no stages"));
                };
                admit::check_stages(self.state(), &evolving)?;
                let (cluster, peak) = (cluster_of(&started.request), evolving.stages.peak());
                admit::Asked::of(&entry.spec).check_limit(self.state(), cluster, (peak, peak))?;
                let (held, first) = (started.nodes.len() as u32, evolving.stages.stages()[0].nodes);
                if held != first {
                    return Err(Refusal::StageNotHeld { held, first });
                }
                let fit = Fit { start: now, expanded: evolving.stages.clone() };
                let course = self.refit(now, job, &Course::of(&evolving, fit.starts(), evolved.course.number))?;
                let (wall, max) = (course.end().since(started.at), self.state().settings().max_wall);
                if wall > max {
                    return Err(Refusal::WallTooLong { wall, max });
                }
                self.record(step, Fact::CourseSet { job, at: now, course: Box::new(course) });
                self.alarms.remove(&job);
                self.launches.remove(&job);
                self.passes.wanted = true;
                Ok(Answer::Done)
            }
        }
    }

    /// Records which nodes the application frees at its next stage.
    pub(crate) fn free_nodes(
        &mut self,
        step: &mut Step,
        who: &Identity,
        job: JobId,
        names: &[String],
    ) -> Result<Answer, Refusal> {
        rights::may_touch(self.state(), who, job)?;
        let entry = &self.state().jobs()[&job];
        let wrong = |hint| Refusal::WrongState { job, state: entry.state().word(), hint };
        let Some((started, evolved)) = self.evolved(job).filter(|(started, _)| started.ending.is_none()) else {
            return Err(wrong("only a running job with a profile frees nodes"));
        };
        let held = started.nodes.len() as u32;
        let next = evolved.course.next().map_or(held, |next| next.nodes);
        let surplus = held.saturating_sub(next) as usize;
        if surplus == 0 {
            return Err(wrong("its next stage does not need fewer nodes: see 'rms show'"));
        }
        let mut chosen = Vec::new();
        for node in rights::nodes_named(self.state(), names)? {
            let place = started.nodes.iter().position(|held| *held == node);
            match place {
                None => return Err(wrong("one of these nodes is not its own")),
                Some(0) => return Err(wrong("its first node stays to its end: the script runs there")),
                // Other jobs were promised the later times of the nodes before these.
                Some(place) if place < next as usize && !started.row().is_empty() => {
                    return Err(wrong("jobs share its cluster: it leaves the nodes that came last, see 'rms show'"));
                }
                Some(_) => chosen.push(node),
            }
        }
        if chosen.len() > surplus {
            return Err(Refusal::FreesTooMany { surplus, n_named: chosen.len() });
        }
        self.record(step, Fact::NodesChosen { job, nodes: chosen, by: who.name.clone() });
        self.alarms.remove(&job);
        Ok(Answer::Done)
    }
}

/// Fits the stages of a running application to what other jobs hold of `capacity` nodes.
fn refit_over(
    (occupied, capacity, row): (Profile, u32, Vec<NodeId>),
    now: Time,
    course: &Course,
) -> Result<Course, Refusal> {
    let current = course.current();
    let stages = course.remaining();
    let fit = fit::refit(&occupied, capacity, &stages, course.limit, (current.start, now)).map_err(|error| {
        Refusal::StageTooLarge { stage: error.number, wanted: error.wanted, possible: error.capacity.to_string() }
    })?;
    let leg = |(leg, start): (&Leg, Time)| Leg { start, ..*leg };
    let legs: Vec<Leg> = course.legs.iter().zip(fit.starts()).map(leg).collect();
    let latest = course.latest_change();
    if let Some(next) = legs.get(1).filter(|next| next.start > latest) {
        let (earliest, latest) = (next.start.since(now), latest.since(now));
        return Err(Refusal::StageLater { wanted: next.nodes, earliest, latest });
    }
    Ok(Course { legs, row, ..course.clone() })
}
