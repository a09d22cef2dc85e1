//! Sets Slurm's variables for a job, as sbatch and srun would.

use rms_api::desired::LaunchNode;
use rms_model::hostlist;
use rms_model::variables::SLURM;

use super::user::Account;
use super::variables::Variables;
use crate::order::Order;

/// Variables that are valid only on one node, or for one task.
pub const OF_ONE: [&str; 6] =
    ["SLURM_PROCID", "SLURM_LOCALID", "SLURM_GTIDS", "SLURM_NODEID", "SLURMD_NODENAME", "SLURM_TOPOLOGY_ADDR"];

/// Returns whether Slurm's variables were requested.
pub fn is_spoken(variables: &Variables) -> bool {
    variables.contains_key(SLURM)
}

/// Sets the variables of all processes of the job on this node.
pub fn of_job(variables: &mut Variables, order: &Order, account: &Account, submit_dir: &str) {
    let usable: Vec<&LaunchNode> = order.usable().collect();
    let names: Vec<&str> = usable.iter().map(|node| node.name.as_str()).collect();
    let nodes = hostlist::fold(&names);
    let mut set = |name: &str, value: String| drop(variables.insert(name.to_owned(), value));
    set("SLURM_JOB_ID", order.job.to_string());
    set("SLURM_JOBID", order.job.to_string());
    set("SLURM_JOB_NAME", order.launch.labels.name.clone());
    set("SLURM_JOB_NODELIST", nodes.clone());
    set("SLURM_NODELIST", nodes);
    set("SLURM_JOB_NUM_NODES", names.len().to_string());
    set("SLURM_NNODES", names.len().to_string());
    set("SLURM_NTASKS", order.launch.n_tasks.to_string());
    set("SLURM_NPROCS", order.launch.n_tasks.to_string());
    set("SLURM_TASKS_PER_NODE", on_each(usable.iter().map(|node| node.n_tasks)));
    set("SLURM_JOB_CPUS_PER_NODE", on_each(usable.iter().map(|node| node.cpus)));
    // As in sbatch, set only if the user requested it: scripts have defaults of their own. 1 may just be the default,
    // and the submitter sets the variable if it was requested.
    if order.launch.cpus_per_task > 1 {
        set("SLURM_CPUS_PER_TASK", order.launch.cpus_per_task.to_string());
    }
    if order.run.0 > 1 {
        set("SLURM_RESTART_COUNT", (order.run.0 - 1).to_string());
    }
    set("SLURM_JOB_USER", account.name.clone());
    set("SLURM_JOB_UID", account.uid.to_string());
    set("SLURM_JOB_GID", account.gid.to_string());
    set("SLURM_NODEID", order.node_idx.to_string());
    set("SLURM_PRIO_PROCESS", "0".to_owned());
    if let Some(place) = order.place() {
        set("SLURMD_NODENAME", place.name.clone());
        set("SLURM_TOPOLOGY_ADDR", place.name.clone());
        set("SLURM_TOPOLOGY_ADDR_PATTERN", "node".to_owned());
        set("SLURM_CLUSTER_NAME", place.cluster.clone());
        set("SLURM_CPUS_ON_NODE", place.cpus.to_string());
        // The cluster is the nearest equivalent of a partition; the user's own value is kept.
        variables.entry("SLURM_JOB_PARTITION".to_owned()).or_insert_with(|| place.cluster.clone());
    }
    variables.entry("SLURM_SUBMIT_DIR".to_owned()).or_insert_with(|| submit_dir.to_owned());
}

/// Sets the variables of one task.
pub fn of_task(variables: &mut Variables, task: u32, local: u32) {
    variables.insert("SLURM_PROCID".to_owned(), task.to_string());
    variables.insert("SLURM_LOCALID".to_owned(), local.to_string());
    variables.insert("SLURM_GTIDS".to_owned(), task.to_string());
}

/// Formats a number for each node as Slurm does: `2(x3),1`.
pub fn on_each(counts: impl Iterator<Item = u32>) -> String {
    let mut groups: Vec<(u32, u32)> = Vec::new();
    for count in counts {
        match groups.last_mut() {
            Some((same, n_nodes)) if *same == count => *n_nodes += 1,
            Some(_) | None => groups.push((count, 1)),
        }
    }
    let print = |(count, n_nodes): &(u32, u32)| match n_nodes {
        1 => count.to_string(),
        _several => format!("{count}(x{n_nodes})"),
    };
    groups.iter().map(print).collect::<Vec<_>>().join(",")
}
