//! Takes evolving applications from stage to stage.

use rms_model::{ExpandLimit, JobId, NodeId, Outcome, Policy, Time};

use super::{Jobs, ShareEnd};
use crate::plan;
use crate::plan::parts::cluster_of;
use crate::state::course::Course;
use crate::state::fact::Fact;
use crate::state::job::{Phase, SOON, Started};
use crate::step::Step;

impl Jobs<'_> {
    /// Enters every stage that is due and possible. Applications that shrink go first, because others may wait for the
    /// nodes that they free. Those that grow follow in the order in which they were promised their nodes.
    pub(crate) fn enter_stages(&mut self, now: Time, step: &mut Step) {
        // This is called for each event, and mostly no job changes its nodes.
        if self.state().next_stages().next().is_none() {
            self.context.alarms.clear();
            return;
        }
        self.context.forget_alarms(now);
        for job in self.due_jobs(now) {
            if !self.is_growing(job) {
                while self.advance(now, step, job) {}
            }
        }
        for job in self.due_jobs(now) {
            while self.advance(now, step, job) {}
        }
        self.break_deadlock(now, step);
    }

    fn due_jobs(&self, now: Time) -> Vec<JobId> {
        self.state().next_stages().take_while(|(at, _)| *at <= now).map(|(_, job)| job).collect()
    }

    fn is_growing(&self, job: JobId) -> bool {
        let next = self.context.evolved(job).and_then(|(_, evolved)| Some((evolved, evolved.course.next()?)));
        next.is_some_and(|(evolved, next)| next.nodes > evolved.course.current().nodes)
    }

    /// Takes one application into its next stage, if that is due and possible. Returns false if it stays where it is.
    fn advance(&mut self, now: Time, step: &mut Step, job: JobId) -> bool {
        let Some((started, evolved)) = self.context.evolved(job) else { return false };
        let course = &evolved.course;
        if started.ending.is_some() || course.next_change() > now {
            return false;
        }
        let held = started.nodes.len() as u32;
        match course.next().copied() {
            None => {
                self.end(now, step, job, Outcome::WallTime, false);
                false
            }
            Some(next) if next.nodes > held => self.grow(now, step, job, next.nodes - held),
            Some(next) => self.shrink(now, step, job, (held - next.nodes) as usize),
        }
    }

    fn grow(&mut self, now: Time, step: &mut Step, job: JobId, wanted: u32) -> bool {
        let Some((started, _)) = self.context.evolved(job) else { return false };
        let cluster = cluster_of(&started.request);
        let gained = match self.state().is_shared(cluster) {
            true => self.next_stage_nodes(now, step, job, wanted as usize),
            false => plan::free_for(self.state(), job, cluster, wanted as usize),
        };
        if gained.len() == wanted as usize {
            self.enter(now, step, job, now, gained, Vec::new());
            return true;
        }
        let latest = self.stage_deadline(job);
        if now < latest {
            let others_at = self.context.evolved(job).map(|(_, evolved)| evolved.course.next_change() + SOON);
            let again = others_at.filter(|at| now < *at).map_or(latest, |at| at.min(latest));
            self.context.alarms.insert(job, again);
        } else {
            let stage = self.context.evolved(job).map_or(0, |(_, evolved)| evolved.course.number + 1);
            self.end(now, step, job, Outcome::StageLate { stage }, false);
        }
        false
    }

    /// Returns the nodes promised for the next stage if they have room for it, otherwise others that do. Under the policy
    /// `conservative`, those may be promised to others: it takes them only if its own do not come soon.
    fn next_stage_nodes(&mut self, now: Time, step: &mut Step, job: JobId, wanted: usize) -> Vec<NodeId> {
        let state = self.state();
        let Some((started, evolved)) = self.context.evolved(job) else { return Vec::new() };
        let n_held = started.nodes.len();
        let next = |course: &Course| course.row.iter().skip(n_held).take(wanted).copied().collect::<Vec<_>>();
        let are_free = |nodes: &[NodeId]| {
            nodes.len() == wanted && nodes.iter().all(|node| plan::has_room_to_grow(state, job, *node))
        };
        let named = next(&evolved.course);
        if are_free(&named) {
            return named;
        }
        let is_usable = |node: &NodeId| state.nodes().get(node).is_some_and(|entry| entry.is_usable());
        let keeps_promises = state.settings().policy == Policy::Conservative;
        let is_soon = now < evolved.course.next_change() + SOON;
        if keeps_promises && is_soon && named.len() == wanted && named.iter().all(is_usable) {
            return Vec::new();
        }
        let Ok(course) = self.context.refit_row(now, job, &evolved.course, true) else { return Vec::new() };
        let others = next(&course);
        if course.next_change() > now || !are_free(&others) {
            return Vec::new();
        }
        self.context.record(step, Fact::CourseSet { job, at: now, course: Box::new(course) });
        others
    }

    fn shrink(&mut self, now: Time, step: &mut Step, job: JobId, surplus: usize) -> bool {
        let Some((started, evolved)) = self.context.evolved(job) else { return false };
        let course = &evolved.course;
        let is_chosen = evolved.chosen.len() >= surplus;
        let start = course.next_change();
        let after = course.legs.get(2).map_or_else(|| course.end(), |leg| leg.start);
        let due = if is_chosen { start } else { (start + self.state().settings().release_grace).min(after) };
        if now < due {
            self.context.alarms.insert(job, due);
            return false;
        }
        let mut freed: Vec<NodeId> = evolved.chosen.iter().take(surplus).copied().collect();
        let others = started.nodes.iter().skip(1).rev().filter(|node| !evolved.chosen.contains(node));
        freed.extend(others.take(surplus - freed.len()));
        // The time that the application took to choose counts for its smaller stage.
        let at = if now.since(start) <= self.context.late_grace() { start } else { now };
        self.enter(now, step, job, at, Vec::new(), freed);
        true
    }

    fn enter(&mut self, now: Time, step: &mut Step, job: JobId, at: Time, gained: Vec<NodeId>, freed: Vec<NodeId>) {
        let Some((started, evolved)) = self.context.evolved(job) else { return };
        let late_by = at.since(evolved.course.next_change());
        let mut course = evolved.course.entered(at);
        // Its cluster is no longer shared by cores, so any nodes will do.
        if !self.state().is_shared(cluster_of(&started.request)) {
            course.row.clear();
        }
        // A short delay moves all later stages, and jobs planned behind it are late by as much, which their own grace
        // covers. A longer delay needs a new plan; if there is none now, there may be one when the next stage is due.
        if late_by > self.context.late_grace()
            && let Ok(refitted) = self.context.refit(now, job, &course)
        {
            course = refitted;
        }
        let left = freed.clone();
        let grants = self.state().grants(job, &plan::slices_to_grow(self.state(), job, &gained));
        let course = Box::new(course);
        self.context.record(step, Fact::StageEntered { job, at: now, gained, freed, course, grants });
        self.context.leave_ghosts(now, step, job, &left);
        self.context.alarms.remove(&job);
        self.context.launches.remove(&job);
        self.context.passes.wanted = true;
        self.context.announce(step, job);
    }

    /// Returns when a late application is given up, because its stage cannot be expanded further: at most at the
    /// longest wall time, and not before agents had time to connect to a server that has just started.
    fn stage_deadline(&self, job: JobId) -> Time {
        let Some((started, evolved)) = self.context.evolved(job) else { return Time::EPOCH };
        let settings = self.state().settings();
        let latest = evolved.course.latest_change().max(evolved.course.next_change()) + self.context.late_grace();
        let latest = latest.min(started.at + settings.max_wall);
        self.context.booted.map_or(latest, |booted| latest.max(booted + settings.node_lost_after))
    }

    /// Applications without an expansion limit may all wait for each other's nodes, if nodes that they were promised
    /// are lost. When only such applications hold nodes of a cluster, the one that started last is ended.
    fn break_deadlock(&mut self, now: Time, step: &mut Step) {
        for cluster in self.state().clusters().keys().copied().collect::<Vec<_>>() {
            let is_here = |started: &Started| started.request.nodes.contains_key(&cluster);
            let mut youngest: Option<(Time, JobId)> = None;
            let mut n_waiting = 0;
            let mut others_move = self.state().is_any_away(cluster);
            for (job, entry) in self.state().holding() {
                match &entry.phase {
                    Phase::Started(started) if is_here(started) => {
                        let evolved = started.evolved.as_ref().filter(|evolved| {
                            let is_endless = evolved.course.limit == ExpandLimit::Infinite;
                            let is_late = evolved.course.next().is_some_and(|next| next.start <= now);
                            is_endless && is_late && evolved.leaving.is_empty() && started.ending.is_none()
                        });
                        others_move |= evolved.is_none() || !self.is_growing(job);
                        n_waiting += 1;
                        youngest = youngest.max(Some((started.at, job)));
                    }
                    Phase::Ghost(ghost) => others_move |= ghost.request.nodes.contains_key(&cluster),
                    Phase::Started(_) | Phase::Submitted { .. } | Phase::RequestSent | Phase::Waiting => {}
                }
            }
            if let Some((_, job)) = youngest.filter(|_| n_waiting > 1 && !others_move) {
                let stage = self.context.evolved(job).map_or(0, |(_, evolved)| evolved.course.number + 1);
                self.end(now, step, job, Outcome::StageLate { stage }, false);
            }
        }
    }

    /// Handles the end of the processes on a node that the application has freed.
    pub(crate) fn node_vacated(&mut self, now: Time, step: &mut Step, job: JobId, node: NodeId, end: ShareEnd) {
        let ShareEnd { exit, usage, at } = end;
        self.context.record(step, Fact::ShareEnded { job, node, exit, usage, at });
        self.context.record(step, Fact::NodesFreed { job, nodes: vec![node] });
        self.hand_left_nodes_to_guests(now, step, job);
        self.context.leave_ghosts(now, step, job, &[node]);
        self.context.passes.wanted = true;
    }
}
