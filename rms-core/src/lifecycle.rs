//! How a job starts, how its end is settled from its shares, and how it leaves.

use std::sync::Arc;

use rms_api::answer::{JobChange, JobState};
use rms_api::desired::{Aim, Desired, DesiredJob, Host, Launch, NodeExit};
use rms_model::{JobId, NodeId, OnResize, Outcome, Request, Run, Span, Time, Usage, Work};

use crate::effect::Effect;
use crate::rms::Rms;
use crate::state::fact::Fact;
use crate::state::job::{Job, Share, Started};
use crate::state::spread;
use crate::step::Step;

impl Rms {
    /// 001: startNotify.
    pub(crate) fn start(&mut self, now: Time, step: &mut Step, job: JobId, request: Request, nodes: Vec<NodeId>) {
        let run = self.state.jobs()[&job].run.next();
        self.record(step, Fact::JobStarted { job, run, at: now, request, nodes });
        // A launcher less that ghosts are kept for.
        self.passes.wanted |= self.state.jobs()[&job].launcher.is_some() && self.has_ghosts_to_end();
        self.announce(step, job);
        self.tell_start(step, job);
    }

    /// The processes of one share are gone.
    pub(crate) fn share_ended(
        &mut self,
        now: Time,
        step: &mut Step,
        job: JobId,
        node: NodeId,
        exit: NodeExit,
        usage: Usage,
    ) {
        let is_leaving = self.state.jobs()[&job].started().is_some_and(|started| started.is_leaving(node));
        if self.is_awaited(job, node) && has_not_come(&exit) {
            self.record(step, Fact::ShareEnded { job, node, exit, usage });
            self.arrival_failed(now, step, job, node);
            // All others may have ended before.
            self.settle_if_clear(now, step, job);
            return;
        }
        if is_leaving {
            self.left(now, step, job, node, exit, usage);
            self.settle_if_clear(now, step, job);
            return;
        }
        let is_lost = matches!(exit, NodeExit::Vanished { .. } | NodeExit::Unsupervised { .. });
        if is_lost && self.shrink_by_loss(now, step, job, node) {
            self.left(now, step, job, node, exit, usage);
            self.settle_if_clear(now, step, job);
            return;
        }
        match &exit {
            NodeExit::Vanished { reason: _ } => self.end_lost(now, step, job, node),
            NodeExit::Unsupervised { reason } => {
                let name = self.state.nodes()[&node].name.clone();
                self.end_lost_as(now, step, job, node, Outcome::Unsupervised { node: name, reason: reason.clone() });
            }
            NodeExit::Exited { .. }
            | NodeExit::Signaled { .. }
            | NodeExit::Aborted { .. }
            | NodeExit::WallTime
            | NodeExit::Ordered
            | NodeExit::NotStarted { .. }
            | NodeExit::Overstayed
            | NodeExit::OutOfMemory
            | NodeExit::Violated { .. } => {}
        }
        let entry = &self.state.jobs()[&job];
        let started = entry.started().expect("the caller has looked");
        let verdict = if started.ending.is_some() { None } else { self.verdict(entry, started, node, &exit) };
        self.record(step, Fact::ShareEnded { job, node, exit, usage });
        let is_clear = self.state.jobs()[&job].started().expect("shares do not change the phase").is_clear();
        let verdict = verdict.or_else(|| self.verdict_of_idle(job));
        match (verdict, is_clear) {
            (Some(outcome), true) => self.done(now, step, job, outcome),
            (Some(outcome), false) => self.end(now, step, job, outcome, false),
            (None, true) => self.settle(now, step, job),
            (None, false) => {}
        }
    }

    /// Whether this share's end is the job's end, and which.
    fn verdict(&self, entry: &Job, started: &Started, node: NodeId, exit: &NodeExit) -> Option<Outcome> {
        let name = || self.state.nodes()[&node].name.clone();
        let runs_script = match &entry.spec.work {
            Work::Script { .. } => started.nodes.first() == Some(&node),
            Work::Tasks { .. } | Work::Hosts => false,
        };
        match exit {
            NodeExit::Exited { code: 0 } => runs_script.then_some(Outcome::Completed),
            NodeExit::Exited { code } => runs_script.then_some(Outcome::Failed { code: *code }),
            NodeExit::Signaled { signal } => Some(Outcome::Signaled { signal: *signal }),
            NodeExit::Aborted { code } => Some(Outcome::Failed { code: if *code == 0 { 1 } else { *code } }),
            NodeExit::WallTime => Some(Outcome::WallTime),
            // The agent was told by hand, or by an order that a restart has forgotten.
            NodeExit::Ordered | NodeExit::Overstayed => Some(Outcome::Cancelled { by: format!("agent/{}", name()) }),
            NodeExit::Vanished { reason: _ } => Some(Outcome::NodeLost { node: name() }),
            NodeExit::NotStarted { reason } => Some(Outcome::NotStarted { node: name(), reason: reason.clone() }),
            NodeExit::Violated { reason } => Some(Outcome::Violation { reason: format!("{reason} (on {})", name()) }),
            NodeExit::OutOfMemory => Some(Outcome::OutOfMemory { node: name(), limit: entry.spec.constraint.memory }),
            NodeExit::Unsupervised { reason } => Some(Outcome::Unsupervised { node: name(), reason: reason.clone() }),
        }
    }

    /// Once all hosts have ended that came with tasks of their own, nothing is waited for on those that came idle.
    fn verdict_of_idle(&self, job: JobId) -> Option<Outcome> {
        let entry = &self.state.jobs()[&job];
        let started = entry.started().filter(|started| started.ending.is_none())?;
        let evolved = started.evolved.as_ref()?;
        let is_idle = |node: &NodeId| evolved.places.get(node).is_some_and(|place| place.n_tasks == Some(0));
        let mut staying = started.alive().filter(|node| !started.is_leaving(*node)).peekable();
        let is_over = staying.peek().is_some() && staying.all(|node| is_idle(&node));
        is_over.then_some(match started.worst_code {
            0 => Outcome::Completed,
            code => Outcome::Failed { code },
        })
    }

    /// How the job ends is known; what still runs of it is ended.
    pub(crate) fn end(&mut self, now: Time, step: &mut Step, job: JobId, outcome: Outcome, requeue: bool) {
        let told = outcome.clone();
        self.record(step, Fact::JobEnding { job, at: now, outcome, requeue });
        self.end_talks(now, step, job, &told);
        self.announce(step, job);
        let is_clear = self.state.jobs()[&job].started().is_some_and(Started::is_clear);
        if is_clear {
            // Its launcher had started nothing through the agents: there is nothing to wait for.
            self.settle(now, step, job);
        }
    }

    /// Has the last share ended?
    fn settle_if_clear(&mut self, now: Time, step: &mut Step, job: JobId) {
        if self.state.jobs()[&job].started().is_some_and(Started::is_clear) {
            self.settle(now, step, job);
        }
    }

    /// The last share has ended.
    fn settle(&mut self, now: Time, step: &mut Step, job: JobId) {
        let started = self.state.jobs()[&job].started().expect("the caller has looked");
        match &started.ending {
            Some(ending) if ending.requeue => {
                self.record(step, Fact::JobRequeued { job, at: now });
                self.forget_talks(job);
                self.launches.remove(&job);
                self.passes.wanted = true;
                self.announce(step, job);
            }
            Some(ending) => {
                let outcome = ending.outcome.clone();
                self.done(now, step, job, outcome);
            }
            None => {
                let outcome = match started.worst_code {
                    0 => Outcome::Completed,
                    code => Outcome::Failed { code },
                };
                self.done(now, step, job, outcome);
            }
        }
    }

    /// Its launcher says that it is done. An execution that is not there any more was told of before.
    pub(crate) fn application_done(&mut self, now: Time, step: &mut Step, job: JobId, run: Run, outcome: Outcome) {
        let is_running = self.state.jobs().get(&job).is_some_and(|entry| entry.run == run && entry.started().is_some());
        if is_running {
            self.done(now, step, job, outcome);
        }
    }

    /// 001: done. With a fair-start delay the hosts stay with the ghost, else they are free at once.
    pub(crate) fn done(&mut self, now: Time, step: &mut Step, job: JobId, outcome: Outcome) {
        self.end_talks(now, step, job, &outcome);
        let entry = &self.state.jobs()[&job];
        // Nobody reads the history where nobody is told of jobs.
        let names = if self.config.tells_anyone { self.state.node_names(entry.nodes()) } else { Vec::new() };
        let has_launcher = entry.launcher.is_some();
        let run = entry.run;
        let record = entry.record(job, now, outcome.clone(), names.clone());
        let untils = self.ghost_untils(now, job);
        let ghost_until = untils.values().copied().max().unwrap_or(now);
        let negotiations = self.state.jobs()[&job].talks.as_ref().map(|talks| talks.records()).unwrap_or_default();
        self.record(step, Fact::JobDone { record: Box::new(record), ghost_until, negotiations });
        self.part_ghost(now, step, job, ghost_until, untils);
        self.launches.remove(&job);
        self.tell_end(step, job, has_launcher, &outcome);
        // A job that leaves the queue lets others move up, as much as one that frees hosts.
        self.passes.wanted = true;
        let state = if self.state.jobs().contains_key(&job) { JobState::Ghost } else { JobState::Finished };
        if self.config.tells_anyone {
            step.order(Effect::Announce(JobChange { job, run, state, nodes: names, outcome: Some(outcome) }));
        }
    }

    pub(crate) fn announce(&self, step: &mut Step, job: JobId) {
        if !self.config.tells_anyone {
            return;
        }
        let entry = &self.state.jobs()[&job];
        let ending = entry.started().and_then(|started| started.ending.as_ref());
        step.order(Effect::Announce(JobChange {
            job,
            run: entry.run,
            state: entry.state(),
            nodes: self.state.node_names(entry.nodes()),
            outcome: ending.filter(|ending| !ending.requeue).map(|ending| ending.outcome.clone()),
        }));
    }

    /// Everything a node should be doing.
    pub(crate) fn desired(&mut self, node: NodeId) -> Desired {
        let entry = &self.state.nodes()[&node];
        let generation = entry.generation;
        let holders: Vec<JobId> = entry.holders.iter().copied().collect();
        let mut jobs = Vec::new();
        for job in holders {
            let Some(started) = self.state.jobs()[&job].started() else { continue };
            let is_over = started.shares.get(&node).is_none_or(|share| *share == Share::Ended);
            if is_over {
                continue;
            }
            let is_to_end = started.ending.is_some() || started.is_leaving(node);
            let settings = self.state.settings();
            let patience = if started.has_released(node) { settings.exit_grace } else { Span::ZERO };
            let aim = if is_to_end { Aim::End { patience, grace: settings.kill_grace } } else { Aim::Run };
            // A host that it has freed is none of the launch's any more, and is only to end.
            let host_idx = started.nodes.iter().position(|host| *host == node).unwrap_or(0) as u32;
            let run = self.state.jobs()[&job].run;
            jobs.push(DesiredJob { job, run, aim, launch: self.launch(job), host_idx });
        }
        Desired { generation, jobs }
    }

    fn launch(&mut self, job: JobId) -> Arc<Launch> {
        if let Some(launch) = self.launches.get(&job) {
            return Arc::clone(launch);
        }
        let entry = &self.state.jobs()[&job];
        let started = entry.started().expect("only started jobs are launched");
        let spec = &entry.spec;
        let hosts = self.hosts(entry, started);
        let launch = Arc::new(Launch {
            labels: spec.labels.clone(),
            owner: spec.owner.clone(),
            work: spec.work.clone(),
            n_tasks: hosts.iter().map(|host| host.n_tasks).sum(),
            cpus_per_task: spec.cpus_per_task,
            cwd: spec.cwd.clone(),
            environment: Arc::clone(&spec.environment),
            umask: spec.umask,
            stdio: spec.stdio.clone(),
            limits: spec.limits.clone(),
            wall: self.longest_wall(entry, started),
            grace: self.state.settings().kill_grace,
            hosts,
            generation: started.evolved.as_ref().map_or(1, |evolved| evolved.generation),
            // Who has announced stages speaks for itself, too (000).
            on_resize: spec
                .malleable
                .as_ref()
                .map(|malleable| malleable.on_resize.clone())
                .or(spec.evolving.as_ref().map(|_| OnResize::Negotiates)),
            least: spec.malleable.as_ref().map_or(0, |malleable| malleable.least),
            most: spec.malleable.as_ref().map_or(0, |malleable| malleable.most),
            memory: spec.constraint.memory,
        });
        self.launches.insert(job, Arc::clone(&launch));
        launch
    }

    /// The supervisors let an evolving application wait for late stages, as long as it may; the server knows its end.
    fn longest_wall(&self, entry: &Job, started: &Started) -> Span {
        let wall = entry.wall_of_work().expect("it has started");
        // Each stage may be late by a grace, and a node that is out of reach then is not told.
        let longest = started.evolved.as_ref().map(|evolved| {
            let graces = evolved.course.legs.iter().skip(1).map(|_| self.late_grace());
            let longest = evolved.course.latest_end().since(started.at);
            graces.fold(longest, |longest, grace| longest + grace)
        });
        longest.map_or(wall, |longest| longest.min(self.state.settings().max_wall).max(wall))
    }

    /// The hosts with their blocks of tasks, the first hosts taking one more where it does not divide.
    fn hosts(&self, entry: &Job, started: &Started) -> Vec<Host> {
        let mut first_task = 0;
        let mut hosts = Vec::with_capacity(started.nodes.len());
        for (node, n_tasks) in started.nodes.iter().zip(spread(&entry.spec, started.nodes.len() as u32)) {
            let entry = &self.state.nodes()[node];
            let place = started.evolved.as_ref().and_then(|evolved| evolved.places.get(node));
            let n_tasks = place.and_then(|place| place.n_tasks).unwrap_or(n_tasks);
            let is_departing = started.evolved.as_ref().is_some_and(|evolved| evolved.departing.contains_key(node));
            hosts.push(Host {
                node: *node,
                name: entry.name.clone(),
                cluster: self.state.clusters()[&entry.cluster].clone(),
                address: entry.address.clone(),
                first_task: place.map_or(first_task, |place| place.first_task),
                n_tasks,
                cpus: started.cores_on(*node, entry.inventory.cpus),
                joined: place.map_or(1, |place| place.joined),
                departing: is_departing,
            });
            first_task += n_tasks;
        }
        hosts
    }
}

/// Did nothing of the job ever run there, or is it gone without a word?
fn has_not_come(exit: &NodeExit) -> bool {
    match exit {
        NodeExit::NotStarted { .. }
        | NodeExit::Vanished { .. }
        | NodeExit::Unsupervised { .. }
        | NodeExit::Ordered
        | NodeExit::Overstayed => true,
        NodeExit::OutOfMemory | NodeExit::Violated { .. } => false,
        NodeExit::Exited { .. } | NodeExit::Signaled { .. } | NodeExit::Aborted { .. } | NodeExit::WallTime => false,
    }
}
