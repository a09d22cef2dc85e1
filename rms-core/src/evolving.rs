//! Takes evolving applications from stage to stage, and hears what they announce anew or free.

use rms_api::answer::{Answer, StageLine, Stages};
use rms_api::desired::NodeExit;
use rms_api::refusal::Refusal;
use rms_model::{
    ClusterId, Evolution, Evolving, ExpandLimit, Identity, JobId, NodeId, Outcome, Span, Stage, Time, Usage,
};

use crate::admit;
use crate::plan::evolve::{cluster_of, occupation_beside};
use crate::plan::fit::{self, Fit};
use crate::plan::meets;
use crate::rms::Rms;
use crate::state::constraint_of;
use crate::state::course::{Course, Evolved, Leg};
use crate::state::fact::Fact;
use crate::state::job::{Job, Phase, Started};
use crate::step::Step;

impl Rms {
    /// Its stages were placed, and the first one has just begun.
    pub(crate) fn begin_course(&mut self, now: Time, step: &mut Step, job: JobId, fit: &Fit) {
        let Some(evolving) = &self.state.jobs()[&job].spec.evolving else { return };
        let course = Box::new(Course::of(evolving, fit.starts(), 1));
        self.record(step, Fact::CourseSet { job, at: now, course });
    }

    /// When the next stage of any application is due, or one that is late has waited for long enough.
    pub(crate) fn next_stage(&self) -> Option<Time> {
        let upcoming = self.state.next_stages().find(|(_, job)| !self.alarms.contains_key(job)).map(|(at, _)| at);
        let alarm = self.alarms.values().min().copied();
        [upcoming, alarm].into_iter().flatten().min()
    }

    /// Every stage that is due and possible begins. Applications that shrink go first: what they free, others may wait
    /// for. Those that grow go in the order in which they were promised their hosts.
    pub(crate) fn enter_stages(&mut self, now: Time, step: &mut Step) {
        // Most of the time nobody is there whose hosts change, and time passes at each event.
        if self.state.next_stages().next().is_none() {
            self.alarms.clear();
            return;
        }
        self.alarms.retain(|job, _| self.state.next_stages().any(|(at, due)| due == *job && at <= now));
        for job in self.due(now) {
            if !self.is_growing(job) {
                while self.advance(now, step, job) {}
            }
        }
        for job in self.due(now) {
            while self.advance(now, step, job) {}
        }
        self.break_standstill(now, step);
    }

    fn due(&self, now: Time) -> Vec<JobId> {
        self.state.next_stages().take_while(|(at, _)| *at <= now).map(|(_, job)| job).collect()
    }

    fn evolved(&self, job: JobId) -> Option<(&Started, &Evolved)> {
        let started = self.state.jobs().get(&job)?.started()?;
        Some((started, started.evolved.as_deref()?))
    }

    fn is_growing(&self, job: JobId) -> bool {
        let next = self.evolved(job).and_then(|(_, evolved)| Some((evolved, evolved.course.next()?)));
        next.is_some_and(|(evolved, next)| next.hosts > evolved.course.current().hosts)
    }

    /// Takes one application into its next stage, if that is due and possible. False if it stays where it is.
    fn advance(&mut self, now: Time, step: &mut Step, job: JobId) -> bool {
        let Some((started, evolved)) = self.evolved(job) else { return false };
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
            Some(next) if next.hosts > held => self.grow(now, step, job, next.hosts - held),
            Some(next) => self.shrink(now, step, job, (held - next.hosts) as usize),
        }
    }

    fn grow(&mut self, now: Time, step: &mut Step, job: JobId, wanted: u32) -> bool {
        let Some((started, _)) = self.evolved(job) else { return false };
        let gained = self.free_for(job, cluster_of(&started.request), wanted as usize);
        if gained.len() == wanted as usize {
            self.enter(now, step, job, now, gained, Vec::new());
            return true;
        }
        let latest = self.latest(job);
        if now < latest {
            self.alarms.insert(job, latest);
        } else {
            let stage = self.evolved(job).map_or(0, |(_, evolved)| evolved.course.number + 1);
            self.end(now, step, job, Outcome::StageLate { stage }, false);
        }
        false
    }

    fn shrink(&mut self, now: Time, step: &mut Step, job: JobId, surplus: usize) -> bool {
        let Some((started, evolved)) = self.evolved(job) else { return false };
        let course = &evolved.course;
        let is_chosen = evolved.chosen.len() >= surplus;
        let start = course.next_change();
        let after = course.legs.get(2).map_or_else(|| course.end(), |leg| leg.start);
        let due = if is_chosen { start } else { (start + self.state.settings().release_grace).min(after) };
        if now < due {
            self.alarms.insert(job, due);
            return false;
        }
        let mut freed: Vec<NodeId> = evolved.chosen.iter().take(surplus).copied().collect();
        let others = started.nodes.iter().skip(1).rev().filter(|node| !evolved.chosen.contains(node));
        freed.extend(others.take(surplus - freed.len()));
        // What took the application to choose is a part of its smaller stage.
        let at = if now.since(start) <= self.late_grace() { start } else { now };
        self.enter(now, step, job, at, Vec::new(), freed);
        true
    }

    fn enter(&mut self, now: Time, step: &mut Step, job: JobId, at: Time, gained: Vec<NodeId>, freed: Vec<NodeId>) {
        let Some((_, evolved)) = self.evolved(job) else { return };
        let late_by = at.since(evolved.course.next_change());
        let mut course = evolved.course.entered(at);
        // A moment moves all that comes after it, and who is planned next is late by as much, which its own grace
        // covers. More than that is planned anew; if that is in vain now, it may not be when the next stage is due.
        if late_by > self.late_grace()
            && let Ok(refitted) = self.refit(now, job, &course)
        {
            course = refitted;
        }
        let left = freed.clone();
        self.record(step, Fact::StageEntered { job, at: now, gained, freed, course: Box::new(course) });
        self.leave_ghosts(now, step, job, &left);
        self.alarms.remove(&job);
        self.launches.remove(&job);
        self.passes.wanted = true;
        self.announce(step, job);
    }

    /// The stages of a running application over what all others hold or were promised.
    ///
    /// # Errors
    /// The next stage would be too late.
    fn refit(&self, now: Time, job: JobId, course: &Course) -> Result<Course, Refusal> {
        let current = course.current();
        let (occupied, capacity) = occupation_beside(&self.state, now, job);
        let stages = course.remaining();
        let fit = fit::refit(&occupied, capacity, &stages, course.limit, (current.start, now)).map_err(|error| {
            Refusal::StageTooLarge { stage: error.number, wanted: error.wanted, possible: error.capacity.to_string() }
        })?;
        let leg = |(leg, start): (&Leg, Time)| Leg { start, ..*leg };
        let legs: Vec<Leg> = course.legs.iter().zip(fit.starts()).map(leg).collect();
        let latest = course.latest_change();
        if let Some(next) = legs.get(1).filter(|next| next.start > latest) {
            let (earliest, latest) = (next.start.since(now), latest.since(now));
            return Err(Refusal::StageLater { wanted: next.hosts, earliest, latest });
        }
        Ok(Course { legs, ..course.clone() })
    }

    /// Free hosts of a cluster that an application may use, plain ones first.
    pub(crate) fn free_for(&self, job: JobId, cluster: ClusterId, wanted: usize) -> Vec<NodeId> {
        let entry = &self.state.jobs()[&job];
        let Some(started) = entry.started() else { return Vec::new() };
        let constraint = constraint_of(&entry.spec, &started.request);
        let is_right = |node: &NodeId| meets(&self.state.nodes()[node].inventory, &constraint);
        self.state.free(cluster).filter(is_right).take(wanted).collect()
    }

    /// Is this host of the cluster free, and may the application use it?
    pub(crate) fn is_free_for(&self, job: JobId, cluster: ClusterId, node: NodeId) -> bool {
        let entry = &self.state.jobs()[&job];
        let Some(started) = entry.started() else { return false };
        let constraint = constraint_of(&entry.spec, &started.request);
        self.state
            .nodes()
            .get(&node)
            .is_some_and(|host| host.cluster == cluster && host.is_free() && meets(&host.inventory, &constraint))
    }

    /// How much later than its limit a stage may be: those who leave the hosts may take so long.
    pub(crate) fn late_grace(&self) -> Span {
        let settings = self.state.settings();
        settings.kill_grace + settings.release_grace + Span::from_secs(1)
    }

    /// When a late application has waited for long enough: its stage cannot be expanded any more. Nobody waits beyond the
    /// longest wall time, and nobody is given up before the agents could connect to a server that has just started.
    fn latest(&self, job: JobId) -> Time {
        let Some((started, evolved)) = self.evolved(job) else { return Time::EPOCH };
        let settings = self.state.settings();
        let latest = evolved.course.latest_change().max(evolved.course.next_change()) + self.late_grace();
        let latest = latest.min(started.at + settings.max_wall);
        self.booted.map_or(latest, |booted| latest.max(booted + settings.node_lost_after))
    }

    /// Applications without a limit may all wait for each other's hosts, if hosts were lost that they were promised. When
    /// nothing but them holds hosts of a cluster, waiting helps none, and the one that began last gives way.
    fn break_standstill(&mut self, now: Time, step: &mut Step) {
        for cluster in self.state.clusters().keys().copied().collect::<Vec<_>>() {
            let is_here = |started: &Started| started.request.hosts.contains_key(&cluster);
            let mut youngest: Option<(Time, JobId)> = None;
            let mut n_waiting = 0;
            let mut others_move = self.state.is_any_away(cluster);
            for (job, entry) in self.state.holding() {
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
                    Phase::Ghost(ghost) => others_move |= ghost.request.hosts.contains_key(&cluster),
                    Phase::Started(_) | Phase::Submitted { .. } | Phase::RequestSent | Phase::Waiting => {}
                }
            }
            if let Some((_, job)) = youngest.filter(|_| n_waiting > 1 && !others_move) {
                let stage = self.evolved(job).map_or(0, |(_, evolved)| evolved.course.number + 1);
                self.end(now, step, job, Outcome::StageLate { stage }, false);
            }
        }
    }

    /// The processes on a host are gone that the application had freed.
    pub(crate) fn left(&mut self, now: Time, step: &mut Step, job: JobId, node: NodeId, exit: NodeExit, usage: Usage) {
        self.record(step, Fact::ShareEnded { job, node, exit, usage });
        self.record(step, Fact::HostsFreed { job, nodes: vec![node] });
        self.leave_ghosts(now, step, job, &[node]);
        self.passes.wanted = true;
    }

    /// Is this said of an earlier time at which the application had the host? Its agent has not yet seen that it has it
    /// again.
    pub(crate) fn is_of_earlier_place(&self, job: JobId, node: NodeId, seen: rms_model::Generation) -> bool {
        let place = self.evolved(job).and_then(|(_, evolved)| evolved.places.get(&node));
        place.is_some_and(|place| place.joined > 1 && seen < place.ordered)
    }

    /// How far it is, with at most so many of the stages that it is in or that come.
    pub(crate) fn stages(&self, entry: &Job, fit: Option<&Fit>, now: Time, n_legs: usize) -> Option<Stages> {
        if let Some(evolved) = entry.started().and_then(|started| started.evolved.as_ref()) {
            let course = &evolved.course;
            let leg = |leg: &Leg| StageLine { hosts: leg.hosts, span: leg.span, start: Some(leg.start) };
            let late_by = course.next().map(|next| now.since(next.start)).filter(|late_by| !late_by.is_zero());
            return Some(Stages {
                number: course.number,
                n_stages: course.number + course.legs.len() as u32 - 1,
                legs: course.legs.iter().take(n_legs).map(leg).collect(),
                late_by,
                open: course.open,
                generation: evolved.generation,
                chosen: self.state.node_names(&evolved.chosen),
                leaving: self.state.node_names(&entry.leaving()),
                n_violations: evolved.n_violations,
            });
        }
        let evolving = entry.spec.evolving.as_ref()?;
        let mut starts = fit.into_iter().flat_map(Fit::starts);
        let stages = evolving.stages.stages();
        let leg = |stage: &Stage| StageLine { hosts: stage.hosts, span: stage.span, start: starts.next() };
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

    /// The application announces its stages anew, from now on.
    pub(crate) fn evolve(
        &mut self,
        now: Time,
        step: &mut Step,
        who: &Identity,
        job: JobId,
        stages: Evolution,
        open: bool,
    ) -> Result<Answer, Refusal> {
        self.may_touch(who, job)?;
        let entry = &self.state.jobs()[&job];
        let wrong = |state, hint| Refusal::WrongState { job, state, hint };
        let Some(evolving) = &entry.spec.evolving else {
            return Err(wrong(entry.state().word(), "it has no profile: submit it with --profile"));
        };
        let evolving = Evolving { stages, open, ..evolving.clone() };
        match &entry.phase {
            Phase::Submitted { .. } | Phase::RequestSent | Phase::Waiting => {
                let options = admit::evolving_options(&self.state, &entry.spec, &evolving)?;
                self.record(step, Fact::ProfileChanged { job, evolving, options });
                self.passes.wanted = true;
                Ok(Answer::Done)
            }
            Phase::Started(Started { ending: Some(_), .. }) => Err(wrong("ending", "it is being ended")),
            Phase::Ghost(_) => Err(wrong("done", "only its ghost keeps the hosts")),
            Phase::Started(started) => {
                let Some(evolved) = &started.evolved else {
                    return Err(wrong("started", "it has no stages"));
                };
                admit::check_stages(&self.state, &evolving)?;
                let (held, first) = (started.nodes.len() as u32, evolving.stages.stages()[0].hosts);
                if held != first {
                    return Err(Refusal::StageNotHeld { held, first });
                }
                let fit = Fit { start: now, expanded: evolving.stages.clone() };
                let course = self.refit(now, job, &Course::of(&evolving, fit.starts(), evolved.course.number))?;
                let (wall, max) = (course.end().since(started.at), self.state.settings().max_wall);
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

    /// The application names what it frees at its next stage.
    pub(crate) fn free_nodes(
        &mut self,
        step: &mut Step,
        who: &Identity,
        job: JobId,
        names: &[String],
    ) -> Result<Answer, Refusal> {
        self.may_touch(who, job)?;
        let entry = &self.state.jobs()[&job];
        let wrong = |hint| Refusal::WrongState { job, state: entry.state().word(), hint };
        let Some((started, evolved)) = self.evolved(job).filter(|(started, _)| started.ending.is_none()) else {
            return Err(wrong("only a running job with a profile frees nodes"));
        };
        let held = started.nodes.len() as u32;
        let next = evolved.course.next().map_or(held, |next| next.hosts);
        let surplus = held.saturating_sub(next) as usize;
        if surplus == 0 {
            return Err(wrong("its next stage does not need fewer nodes: see 'rms show'"));
        }
        let mut chosen = Vec::new();
        for node in self.nodes_named(names)? {
            let place = started.nodes.iter().position(|held| *held == node);
            match place {
                None => return Err(wrong("one of these nodes is not its own")),
                Some(0) => return Err(wrong("its first node stays to its end: the script runs there")),
                Some(_) => chosen.push(node),
            }
        }
        if chosen.len() > surplus {
            return Err(Refusal::FreesTooMany { surplus, n_named: chosen.len() });
        }
        self.record(step, Fact::HostsChosen { job, nodes: chosen, by: who.name.clone() });
        self.alarms.remove(&job);
        Ok(Answer::Done)
    }
}
