//! Jobs for tests, described briefly: `rigid(4, hours(2)).runs(mins(30))`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rms_api::call::{Nodes, Shape, Submission};
use rms_api::desired::NodeExit;
use rms_model::{
    Evolution, Evolving, ExpandLimit, Expansion, Malleable, Mebibytes, OnResize, Sizes, Span, Speedup, Stage, Time,
    Work,
};

use crate::application::Manner;
use crate::program::{Part, Program};

/// A job to submit, and what its processes do. Without [`ModelJob::runs`] they run until they are ended.
#[derive(Clone, Debug)]
pub struct ModelJob {
    pub submission: Submission,
    pub program: Program,
    /// The user who submits it.
    pub user: String,
    /// The behaviour of the process that negotiates for it.
    pub manner: Option<Manner>,
}

/// Returns a job of tasks on `n_nodes` nodes of one cluster.
pub fn rigid(n_nodes: u32, wall: Span) -> ModelJob {
    moldable(&[(n_nodes, wall)])
}

/// Returns a job of tasks with one of several sizes, each with its wall time.
pub fn moldable(sizes: &[(u32, Span)]) -> ModelJob {
    let shape = |(n_nodes, wall): &(u32, Span)| Shape { nodes: Nodes::Count(*n_nodes), wall: Some(*wall) };
    ModelJob {
        submission: Submission::of(Work::Tasks { argv: vec!["model".to_owned()] }, sizes.iter().map(shape).collect()),
        program: Program::default(),
        user: "ann".to_owned(),
        manner: None,
    }
}

/// Returns a job of tasks on a changing number of nodes of one cluster.
pub fn evolving(stages: &[(u32, Span)], limit: ExpandLimit) -> ModelJob {
    let stages = stages.iter().map(|(nodes, span)| Stage { nodes: *nodes, span: *span }).collect();
    let stages = Evolution::new(stages).expect("stages that can be");
    let expansion = Expansion { limit, compacting: false };
    let mut job = moldable(&[]);
    job.submission.evolving = Some(Evolving { stages, expansion, open: false });
    job
}

/// Returns a job on nodes of several clusters at once.
pub fn spanning(counts: &[(&str, u32)], wall: Span) -> ModelJob {
    let counts = counts.iter().map(|(name, n_nodes)| ((*name).to_owned(), *n_nodes)).collect::<BTreeMap<_, _>>();
    let mut job = rigid(1, wall);
    job.submission.shapes = vec![Shape { nodes: Nodes::PerCluster(counts), wall: Some(wall) }];
    job
}

/// Returns a batch script: it runs on node 0, and the job ends with it.
pub fn script(n_nodes: u32, wall: Span) -> ModelJob {
    let mut job = rigid(n_nodes, wall);
    job.submission.execution.work = Work::Script { script: "#!/bin/sh\n".to_owned(), args: Vec::new() };
    job
}

impl ModelJob {
    pub fn by(mut self, user: &str) -> ModelJob {
        self.user = user.to_owned();
        self
    }

    /// Gives the job a negotiator, and lets its size change as its manner says.
    pub fn negotiates(mut self, manner: Manner) -> ModelJob {
        self = self.malleable((manner.least, manner.most), manner.sizes.clone(), OnResize::Negotiates);
        self.manner = Some(manner);
        self
    }

    /// Lets the number of its nodes change between these sizes; `on_resize` says what happens in the job then.
    pub fn malleable(mut self, (least, most): (u32, u32), sizes: Sizes, on_resize: OnResize) -> ModelJob {
        let speedup = Speedup::default();
        self.submission.malleable = Some(Malleable { least, most, sizes, on_resize, speedup, survives_loss: None });
        self
    }

    /// Sets how long its hook takes to confirm a change of its nodes.
    pub fn confirms_in(mut self, span: Span) -> ModelJob {
        self.program.confirms_in = Some(span);
        self
    }

    /// Sets how long the work takes if nobody ends the job.
    pub fn runs(mut self, span: Span) -> ModelJob {
        self.program.runs = Some(span);
        self
    }

    /// Makes it one script instead of tasks.
    pub fn as_script(mut self) -> ModelJob {
        self.submission.execution.work = Work::Script { script: "#!/bin/sh\n".to_owned(), args: Vec::new() };
        self
    }

    /// Makes its stages begin as late as the same end allows.
    pub fn compacting(mut self) -> ModelJob {
        self.submission.evolving.iter_mut().for_each(|evolving| evolving.expansion.compacting = true);
        self
    }

    pub fn exits(mut self, code: i32) -> ModelJob {
        self.program.exit = NodeExit::Exited { code };
        self
    }

    /// Makes one node behave differently.
    pub fn on_node(mut self, node_idx: u32, runs: Span, exit: NodeExit) -> ModelJob {
        self.program.parts.insert(node_idx, Part { runs: Some(runs), exit });
        self
    }

    pub fn starts_after(mut self, delay: Span) -> ModelJob {
        self.program.start_delay = delay;
        self
    }

    /// Makes it ignore TERM: only KILL ends it.
    pub fn ignores_term(mut self) -> ModelJob {
        self.program.heeds_term = None;
        self
    }

    pub fn on(mut self, cluster: &str) -> ModelJob {
        self.submission.clusters = vec![cluster.to_owned()];
        self
    }

    pub fn tasks(mut self, n_tasks: u32) -> ModelJob {
        self.submission.n_tasks = Some(n_tasks);
        self
    }

    pub fn cpus_per_task(mut self, cpus: u32) -> ModelJob {
        self.submission.cpus_per_task = cpus;
        self
    }

    pub fn feature(mut self, feature: &str) -> ModelJob {
        self.submission.constraint.features = BTreeSet::from([feature.to_owned()]);
        self
    }

    pub fn memory(mut self, memory: Mebibytes) -> ModelJob {
        self.submission.constraint.memory = memory;
        self
    }

    pub fn priority(mut self, priority: i32) -> ModelJob {
        self.submission.priority = priority;
        self
    }

    /// Adds a variable to its environment.
    pub fn environment(mut self, name: &str, value: &str) -> ModelJob {
        Arc::make_mut(&mut self.submission.execution.environment).0.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn held(mut self) -> ModelJob {
        self.submission.hold = true;
        self
    }

    pub fn requeue(mut self) -> ModelJob {
        self.submission.requeue = Some(true);
        self
    }

    pub fn no_requeue(mut self) -> ModelJob {
        self.submission.requeue = Some(false);
        self
    }

    /// Sends its output to the client that follows it.
    pub fn streamed(mut self) -> ModelJob {
        self.submission.execution.stdio.stream = true;
        self
    }

    pub fn begin(mut self, begin: Time) -> ModelJob {
        self.submission.begin = Some(begin);
        self
    }

    pub fn test_only(mut self) -> ModelJob {
        self.submission.test_only = true;
        self
    }
}
