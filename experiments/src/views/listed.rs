//! Applications that list all their sizes at once: the core's built-in launcher chooses, as in OAR.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use launcher_schedule::moldable::WallTime;
use rms_api::answer::{Answer, JobChange, JobState};
use rms_api::call::{Call, Nodes, Shape};
use rms_api::desired::{JobReport, JobStatus, NodeExit, NodeReport};
use rms_core::event::Ticket;
use rms_core::{Effect, Event};
use rms_model::{ClusterId, Generation, JobId, Span, Time, Usage};

use super::outcome::{Outcome, Ran};
use super::server::{self, Server};
use super::{Experiment, Happening, ViewsError};
use crate::delegated::{Application, Model};
use rms_sim::work;

pub(super) fn run(experiment: &Experiment<'_>, clock: &mut dyn FnMut() -> Duration) -> Result<Outcome, ViewsError> {
    let mut queue = Queue {
        experiment,
        // Without launchers no time to adapt is needed: done frees at once (RULES S8).
        server: Server::new(experiment, Span::ZERO, clock),
        numbers: BTreeMap::new(),
        ran: vec![None; experiment.applications.len()],
        agenda: BTreeSet::new(),
        outcome: Outcome::default(),
    };
    queue.agenda.extend(experiment.arrivals());
    let mut now = experiment.begin();
    while let Some((at, happening)) = queue.next(now) {
        now = at;
        queue.agenda.remove(&(at, happening));
        queue.take(now, happening)?;
    }
    let ended = |(application, ran): (usize, Option<Ran>)| ran.ok_or(application);
    let waiting: Vec<usize> = queue.ran.iter().cloned().enumerate().filter_map(|ran| ended(ran).err()).collect();
    if !waiting.is_empty() {
        return Err(ViewsError::Starved { at: now, applications: waiting });
    }
    let Queue { server, ran, outcome, .. } = queue;
    let outcome = Outcome { ran: ran.into_iter().flatten().collect(), server: server.cost, ..outcome };
    Ok(outcome.counted_from(experiment.begin()))
}

#[derive(Debug)]
struct Queue<'a, 'c> {
    experiment: &'a Experiment<'a>,
    server: Server<'c>,
    /// The index of the application of each job.
    numbers: BTreeMap<JobId, usize>,
    /// With its future end once it has started.
    ran: Vec<Option<Ran>>,
    agenda: BTreeSet<(Time, Happening)>,
    outcome: Outcome,
}

impl Queue<'_, '_> {
    fn next(&self, now: Time) -> Option<(Time, Happening)> {
        let first = self.agenda.first().copied();
        let tick = self.server.next_timer().map(|at| (at.max(now), Happening::Tick));
        first.into_iter().chain(tick).min()
    }

    fn take(&mut self, now: Time, happening: Happening) -> Result<(), ViewsError> {
        match happening {
            Happening::Arrived { application } => self.arrive(now, application),
            Happening::Done { application } => {
                self.done(now, application);
                Ok(())
            }
            Happening::Tick => {
                self.outcome.n_passes += 1;
                for effect in self.server.tick_in_full(now) {
                    if let Effect::Announce(JobChange { job, state: JobState::Started, .. }) = effect {
                        self.started(now, job);
                    }
                }
                Ok(())
            }
            // No application adapts.
            Happening::Adapted { application: _ } => Ok(()),
        }
    }

    fn arrive(&mut self, now: Time, application: usize) -> Result<(), ViewsError> {
        let sizes = all_sizes(&self.experiment.applications[application], self.experiment.clusters);
        let sizes = sizes.ok_or(ViewsError::NotListable { application })?;
        self.outcome.n_configurations += sizes.len() as u64;
        // 001, B.1: 8 bytes for each size.
        self.outcome.list.add(8 * sizes.len() as u64);
        let mut submission = work::moldable(&[]).submission;
        submission.shapes = sizes.into_iter().map(Size::shape).collect();
        let call = Call::Submit(Box::new(submission));
        let event = Event::Called { ticket: Ticket(application as u64), who: server::owner(), call };
        for effect in self.server.handle(now, event) {
            let Effect::Answer { ticket: _, answer } = effect else { continue };
            match answer {
                Ok(Answer::Submitted { job }) => {
                    self.numbers.insert(job, application);
                }
                Ok(_) => {}
                Err(source) => return Err(ViewsError::Refused { application, source }),
            }
        }
        Ok(())
    }

    fn started(&mut self, now: Time, job: JobId) {
        let application = self.numbers[&job];
        let entry = &self.server.rms().state().jobs()[&job];
        let request = entry.started().expect("it was announced as started").request.clone();
        let requested = entry.requested.expect("what has started was in the queue");
        let end = now + self.experiment.applications[application].execution.of(request.wall);
        self.agenda.insert((end, Happening::Done { application }));
        self.ran[application] = Some(Ran { requested, start: now, end, request });
    }

    /// Handles the agents' reports that its processes have ended.
    fn done(&mut self, now: Time, application: usize) {
        let is_its = |(_, number): &(&JobId, &usize)| **number == application;
        let Some(job) = self.numbers.iter().find(is_its).map(|(job, _)| *job) else { return };
        let state = self.server.rms().state();
        let (run, nodes) = (state.jobs()[&job].run, state.jobs()[&job].nodes().to_vec());
        let names: Vec<String> = nodes.iter().map(|node| state.nodes()[node].name.clone()).collect();
        for name in names {
            let exit = NodeExit::Exited { code: 0 };
            let status = JobStatus::Ended { at: now, exit, usage: Usage::default() };
            let report = NodeReport { seen: Generation(1), jobs: vec![JobReport { job, run, status }] };
            self.server.handle(now, Event::AgentReported { name, report });
        }
    }
}

/// Nodes of one cluster, and the wall time there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size {
    cluster: ClusterId,
    n_nodes: u32,
    wall: Span,
}

impl Size {
    fn shape(self) -> Shape {
        let nodes = BTreeMap::from([(server::cluster_name(self.cluster), self.n_nodes)]);
        Shape { nodes: Nodes::PerCluster(nodes), wall: Some(self.wall) }
    }
}

/// Returns every size, ordered so that the first of those that complete at the same time is the one that launchers
/// would request (RULES A5): the longest starts first, then the smaller cluster id, then more nodes.
fn all_sizes(application: &Application, clusters: &[(ClusterId, u32)]) -> Option<Vec<Size>> {
    let Model::OnOne { sizes, amdahl } = &application.model else { return None };
    let mut all = Vec::new();
    for (cluster, n_nodes) in clusters {
        for n_nodes in sizes.least.max(1)..=sizes.most.min(*n_nodes) {
            all.extend(amdahl.wall(*cluster, n_nodes).map(|wall| Size { cluster: *cluster, n_nodes, wall }));
        }
    }
    all.sort_by_key(|size| (std::cmp::Reverse(size.wall), size.cluster, std::cmp::Reverse(size.n_nodes)));
    Some(all)
}
