//! Times a pass over 20,000 waiting applications on 8 clusters of 10,000 nodes, from facts: nothing else is measured.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, anyhow};
use rms_api::audit::AuditEntry;
use rms_core::plan::{self, Scope};
use rms_core::{Config, Fact, Rms};
use rms_model::{
    ClusterId, Environment, Execution, Inventory, JobId, JobSpec, Labels, NodeId, NodeLink, Owner, Request, Run, Span,
    Time, Work,
};
use test_kit::Dice;

use crate::table::{Table, Target};

const N_CLUSTERS: u32 = 8;
const N_NODES: u32 = 10_000;
const N_RUNNING: u32 = 10;
const N_WAITING: u64 = 20_000;
const NOW: Time = Time::from_secs(1_000_000);
const SEED: u64 = 5;

pub fn table() -> Result<Table> {
    let mut table = Table::new("One pass over 20,000 waiting applications on 8 clusters of 10,000 nodes, all busy");
    for n_options in [1, N_CLUSTERS] {
        let rms = Rms::restore(Config::default(), None, facts(n_options)).map_err(|misfit| anyhow!("{misfit}"))?;
        let mut best = f64::INFINITY;
        let mut n_steps = 0;
        for _ in 0..5 {
            let begun = Instant::now();
            let plan = plan::plan(rms.state(), NOW, Scope::Estimates);
            best = best.min(begun.elapsed().as_secs_f64() * 1000.0);
            n_steps = plan.last_view.values().map(rms_model::Profile::n_steps).sum();
        }
        let what = format!("each may use {n_options} of the clusters ({n_steps} steps at the end)");
        let bound = "each size is searched on each cluster it may use, from what smaller ones have found";
        table.measure(what, best, "ms", Target::Reference, bound);
    }
    Ok(table)
}

fn facts(n_options: u32) -> Vec<Fact> {
    let mut dice = Dice::new(SEED);
    let mut wall = || Span::from_mins(dice.number(10, 1439).into());
    let environment = Arc::new(Environment::default());
    let mut facts = vec![Fact::SettingChanged { change: unlimited_depth() }];
    let mut last_job = JobId(0);
    for cluster_idx in 0..N_CLUSTERS {
        let cluster = ClusterId(cluster_idx as u16);
        facts.push(Fact::ClusterAdded { cluster, name: format!("c{cluster_idx}") });
        let nodes: Vec<NodeId> = (0..N_NODES).map(|idx| NodeId(cluster_idx * N_NODES + idx + 1)).collect();
        for node in &nodes {
            let (name, address, inventory) = (format!("n{node}"), String::new(), Inventory::default());
            facts.push(Fact::NodeJoined { node: *node, cluster, name, inventory, address, at: NOW });
            facts.push(Fact::NodeLinkChanged { node: *node, link: NodeLink::Connected { since: NOW } });
        }
        for part in nodes.chunks((N_NODES / N_RUNNING) as usize) {
            let request = Request::on_one(cluster, part.len() as u32, wall());
            last_job = last_job.next();
            facts.extend(asked(last_job, vec![request.clone()], &environment));
            facts.push(Fact::JobStarted {
                job: last_job,
                run: Run(1),
                at: NOW,
                request,
                nodes: part.to_vec(),
                grants: Default::default(),
            });
        }
    }
    let mut dice = Dice::new(SEED + 1);
    for _ in 0..N_WAITING {
        let n_nodes = dice.number(1, N_NODES / 2);
        let wall = Span::from_mins(dice.number(10, 1439).into());
        let first: u32 = dice.number(0, N_CLUSTERS - 1);
        let cluster = |option: u32| ClusterId(((first + option) % N_CLUSTERS) as u16);
        let options = (0..n_options).map(|option| Request::on_one(cluster(option), n_nodes, wall)).collect();
        last_job = last_job.next();
        facts.extend(asked(last_job, options, &environment));
    }
    facts
}

fn unlimited_depth() -> AuditEntry {
    AuditEntry::of_setting(NOW, "bench", "queue_depth", "1000", "0")
}

/// A job that was submitted and whose launcher has sent its request.
fn asked(job: JobId, options: Vec<Request>, environment: &Arc<Environment>) -> [Fact; 2] {
    let work = Work::Tasks { argv: vec!["true".to_owned()] };
    let execution = Execution { environment: Arc::clone(environment), ..Execution::from(work) };
    let spec = JobSpec { labels: Labels::named("bench"), ..JobSpec::of(Owner("bench".to_owned()), execution, options) };
    [Fact::JobSubmitted { job, at: NOW, spec: Arc::new(spec), held: false }, Fact::RequestSent { job, at: NOW }]
}
