//! Computes what each node should run, and sends it to the agents.

use std::sync::Arc;

use rms_api::answer::JobChange;
use rms_api::desired::{Aim, Desired, DesiredJob, Launch, LaunchNode};
use rms_model::{JobId, NodeId, NodeLink, OnResize, Span, Time};

use crate::context::Context;
use crate::effect::Effect;
use crate::state::fact::Fact;
use crate::state::job::{Job, Share, Started};
use crate::state::{constraint_of, tasks_per_node, threads_of_core};
use crate::step::Step;

impl Context {
    pub(crate) fn announce(&self, step: &mut Step, job: JobId) {
        if !self.config.tells_anyone {
            return;
        }
        let entry = &self.state().jobs()[&job];
        let ending = entry.started().and_then(|started| started.ending.as_ref());
        step.order(Effect::Announce(JobChange {
            job,
            run: entry.run,
            state: entry.state(),
            nodes: self.state().node_names(entry.nodes()),
            outcome: ending.filter(|ending| !ending.requeue).map(|ending| ending.outcome.clone()),
            submitted: Some(entry.submitted),
        }));
    }

    /// Returns the desired state of a node.
    pub(crate) fn desired(&mut self, node: NodeId) -> Desired {
        let entry = &self.state().nodes()[&node];
        let generation = entry.generation;
        let holders: Vec<JobId> = entry.holders.iter().copied().collect();
        let mut jobs = Vec::new();
        for job in holders {
            let Some(started) = self.state().jobs()[&job].started() else { continue };
            let is_over = started.shares.get(&node).is_none_or(|share| *share == Share::Ended);
            // Its mates have not left its CPUs yet.
            if is_over || self.state().awaits_cpus(job, node) {
                continue;
            }
            let is_to_end = started.ending.is_some() || started.is_leaving(node);
            let settings = self.state().settings();
            let patience = if started.has_released(node) { settings.exit_grace } else { Span::ZERO };
            let aim = if is_to_end { Aim::End { patience, grace: settings.kill_grace } } else { Aim::Run };
            // A node that the job has freed is not part of the launch any more; it only has to end the job there.
            let node_idx = started.nodes.iter().position(|held| *held == node).unwrap_or(0) as u32;
            let run = self.state().jobs()[&job].run;
            jobs.push(DesiredJob { job, run, aim, launch: self.launch(job), node_idx });
        }
        Desired { generation, jobs }
    }

    fn launch(&mut self, job: JobId) -> Arc<Launch> {
        if let Some(launch) = self.launches.get(&job) {
            return Arc::clone(launch);
        }
        let entry = &self.state().jobs()[&job];
        let started = entry.started().expect("only started jobs are launched");
        let spec = &entry.spec;
        let nodes = self.nodes(entry, started);
        let launch = Arc::new(Launch {
            labels: spec.labels.clone(),
            owner: spec.owner.clone(),
            execution: spec.execution.clone(),
            n_tasks: nodes.iter().map(|node| node.n_tasks).sum(),
            cpus_per_task: spec.cpus_per_task,
            wall: self.longest_wall(entry, started),
            grace: self.state().settings().kill_grace,
            nodes,
            generation: started.generation(),
            // An application that announced stages negotiates for itself, too (000).
            on_resize: spec
                .malleable
                .as_ref()
                .map(|malleable| malleable.on_resize.clone())
                .or(spec.evolving.as_ref().map(|_| OnResize::Negotiates)),
            least: spec.malleable.as_ref().map_or(0, |malleable| malleable.least),
            most: spec.malleable.as_ref().map_or(0, |malleable| malleable.most),
            memory: constraint_of(spec, &started.request).memory,
            one_thread_a_core: spec.resources.one_thread_a_core,
            min_cpus_per_task: spec.resources.min_cpus_per_task.clone(),
            submitted: entry.submitted,
        });
        self.launches.insert(job, Arc::clone(&launch));
        launch
    }

    /// Returns the wall time for the supervisors. It lets an evolving application wait for late stages: only the server
    /// knows its exact end.
    fn longest_wall(&self, entry: &Job, started: &Started) -> Span {
        let wall = entry.wall_of_work().expect("it has started");
        // Each stage may be late by one grace period, and nodes that are unreachable then are not told.
        let longest = started.evolved.as_ref().map(|evolved| {
            let graces = evolved.course.legs.iter().skip(1).map(|_| self.late_grace());
            let longest = evolved.course.latest_end().since(started.at);
            graces.fold(longest, |longest, grace| longest + grace)
        });
        longest.map_or(wall, |longest| longest.min(self.state().settings().max_wall).max(wall))
    }

    /// Returns the nodes with their blocks of tasks; the first nodes get one more if the tasks do not divide evenly.
    pub(crate) fn nodes(&self, job: &Job, started: &Started) -> Vec<LaunchNode> {
        let mut first_task = 0;
        let mut nodes = Vec::with_capacity(started.nodes.len());
        let spec = &job.spec;
        let mut shares = started.is_sharing().then(|| self.state().cores_of(job)).into_iter().flatten();
        for (node, n_tasks) in started.nodes.iter().zip(tasks_per_node(spec, started.nodes.len() as u32)) {
            let entry = &self.state().nodes()[node];
            let place = started.evolved.as_ref().and_then(|evolved| evolved.places.get(node));
            let grant = match started.is_sharing() {
                true => job.part_of(*node, &entry.inventory),
                false => started.grants.get(node).cloned(),
            };
            // Its agent is sent a grant like for any other job.
            let grant = grant.or_else(|| self.state().grant_of_all_cores(job, entry));
            let threads = threads_of_core(spec, &entry.inventory);
            let cpus = grant.as_ref().map_or(entry.inventory.cpus, |grant| grant.cores.len() * threads);
            let asked_cpus = shares.next().map_or(cpus, |share| share.asked.saturating_mul(threads));
            let cpus = started.cores_on(*node, cpus);
            let n_tasks = place.and_then(|place| place.n_tasks).unwrap_or(n_tasks);
            let is_departing = started.evolved.as_ref().is_some_and(|evolved| evolved.departing.contains_key(node));
            nodes.push(LaunchNode {
                node: *node,
                name: entry.name.clone(),
                cluster: self.state().clusters()[&entry.cluster].clone(),
                address: entry.address.clone(),
                first_task: place.map_or(first_task, |place| place.first_task),
                n_tasks,
                cpus,
                asked_cpus: if asked_cpus > cpus { asked_cpus } else { 0 },
                shares_cpus: started.is_sharing() && asked_cpus > cpus,
                joined: place.map_or(1, |place| place.joined),
                departing: is_departing,
                grant,
            });
            first_task += n_tasks;
        }
        nodes
    }

    /// Sends every connected node its desired state if it has changed.
    pub(crate) fn send_desired_states(&mut self, step: &mut Step) {
        if !self.config.tells_anyone {
            self.bumped.clear();
            return;
        }
        while let Some(node) = self.bumped.pop_first() {
            let Some(entry) = self.state().nodes().get(&node) else { continue };
            if !entry.is_connected() {
                continue;
            }
            let name = entry.name.clone();
            let generation = entry.generation;
            if self.sent.insert(node, generation) != Some(generation) {
                let desired = self.desired(node);
                step.order(Effect::Desire { node: name, desired });
            }
        }
    }

    /// Marks a node that has just connected to be sent its desired state, whatever it was sent before.
    pub(crate) fn resend(&mut self, node: NodeId) {
        self.sent.remove(&node);
        self.bumped.insert(node);
    }

    /// Records that the agent of a node is not connected; it is expected back within `restart_grace`.
    pub(crate) fn agent_away(&mut self, now: Time, step: &mut Step, node: NodeId) {
        let link = match self.state().settings().restart_grace {
            Span::ZERO => NodeLink::Away { since: now },
            _ => NodeLink::Expected { since: now },
        };
        self.record(step, Fact::NodeLinkChanged { node, link });
    }

    /// Forgets what was sent over a connection that is closed.
    pub(crate) fn forget_sent(&mut self, node: NodeId) {
        self.sent.remove(&node);
    }
}
