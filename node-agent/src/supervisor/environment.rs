//! The environment of a job's processes: the user's own, cleaned, and what a job is told of itself.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::net::SocketAddr;

use rms_model::hostlist;

use super::hostfile::HostFiles;
use super::order::{Order, Place};
use super::user::Account;

/// Variables by name; the last setting of a name wins.
pub type Variables = BTreeMap<String, String>;

/// Left over from the launcher under which somebody submitted; an MPI library would believe them.
const INHERITED: [&str; 9] = ["SLURM_", "PMI_", "PMIX_", "OMPI_", "PRTE_", "HYDRA_", "HYDI_", "MPI_LOCAL", "RMS_"];

/// What all processes of the job on this host have in common.
pub fn of_job(order: &Order, account: &Account, files: &HostFiles) -> Variables {
    let mut variables = Variables::new();
    variables.insert("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned());
    let is_inherited = |name: &str| INHERITED.iter().any(|prefix| name.starts_with(prefix));
    let own = order.environment.0.iter().filter(|(name, _)| !is_inherited(name) && is_valid(name));
    variables.extend(own.cloned());
    let mut set = |name: &str, value: String| drop(variables.insert(name.to_owned(), value));
    set("USER", account.name.clone());
    set("LOGNAME", account.name.clone());
    set("HOME", account.home.clone());
    set("SHELL", account.shell.clone());

    let names: Vec<&str> = order.usable().map(|host| host.name.as_str()).collect();
    set("RMS_JOB_ID", order.job.to_string());
    set("RMS_JOB_NAME", order.name.clone());
    set("RMS_RUN", order.run.to_string());
    set("RMS_NODELIST", hostlist::fold(&names));
    set("RMS_NNODES", names.len().to_string());
    set("RMS_NTASKS", order.n_tasks.to_string());
    // Who asked for none has the one that he was counted for; scripts take it for a number of threads.
    set("RMS_CPUS_PER_TASK", order.cpus_per_task.max(1).to_string());
    set("RMS_TASKS_PER_NODE", tasks_per_node(order));
    set("RMS_NODE_ID", order.host_idx.to_string());
    if let Some(place) = order.place() {
        set("RMS_NODE_NAME", place.name.clone());
        set("RMS_CLUSTER", place.cluster.clone());
        set("RMS_CPUS_ON_NODE", place.cpus.to_string());
    }
    set("RMS_SUBMIT_DIR", order.cwd.clone());
    set("RMS_HOSTFILE", files.openmpi.display().to_string());
    set("RMS_HOSTFILE_MPICH", files.mpich.display().to_string());
    // Counts the host file's contents; it is rewritten when the job's hosts change.
    set("RMS_GENERATION", order.generation.to_string());
    set("RMS_AGENT_SOCKET", order.agent_socket.display().to_string());
    set("RMS_GENERATION_FILE", files.generation.display().to_string());
    set("RMS_MARK", order.mark.clone());
    if let Some(negotiates) = &order.negotiates {
        set("RMS_JOB_CREDENTIALS", negotiates.credentials.display().to_string());
        set("RMS_SERVER", negotiates.server.clone());
    }
    if order.on_resize.is_some() && order.most > 0 {
        set("RMS_MALLEABLE_LEAST", order.least.to_string());
        set("RMS_MALLEABLE_MOST", order.most.to_string());
    }
    set_for_mpirun(&mut variables, order, account, files);
    variables
}

/// What one task has of its own.
pub fn of_task(variables: &mut Variables, task: u32, local: u32) {
    variables.insert("RMS_TASK_ID".to_owned(), task.to_string());
    variables.insert("RMS_LOCAL_ID".to_owned(), local.to_string());
}

/// What the command for a change has of its own: which change it is for, though another one may have come.
pub fn of_hook(variables: &mut Variables, generation: u32) {
    variables.insert("RMS_RESIZE_GENERATION".to_owned(), generation.to_string());
}

/// What a rank that we start ourselves finds its process manager by.
pub fn of_rank(variables: &mut Variables, pmi_fd: i32, rank: u32, local: u32, n_local: u32, n_ranks: u32) {
    let mut set = |name: &str, value: String| drop(variables.insert(name.to_owned(), value));
    set("PMI_FD", pmi_fd.to_string());
    set("PMI_RANK", rank.to_string());
    set("PMI_SIZE", n_ranks.to_string());
    set("MPI_LOCALNRANKS", n_local.to_string());
    set("MPI_LOCALRANKID", local.to_string());
}

/// `mpirun` reaches the other hosts through the agents, and leaves binding to us.
fn set_for_mpirun(variables: &mut Variables, order: &Order, account: &Account, files: &HostFiles) {
    let Some(rsh) = &order.rsh else { return };
    let rsh = rsh.display().to_string();
    let openmpi = files.openmpi.display().to_string();
    let mut set = |name: &str, value: &str| drop(variables.insert(name.to_owned(), value.to_owned()));
    // Open MPI 4 and the runtime of Open MPI 5.
    set("OMPI_MCA_plm", "rsh");
    set("OMPI_MCA_plm_rsh_agent", &rsh);
    set("OMPI_MCA_plm_rsh_no_tree_spawn", "1");
    set("OMPI_MCA_orte_default_hostfile", &openmpi);
    set("OMPI_MCA_hwloc_base_binding_policy", "none");
    if share_a_machine(order) {
        // Open MPI names its shared memory by the machine's host name, so ranks of two nodes on one machine
        // would take each other's for their own.
        set("OMPI_MCA_btl", "self,tcp");
    }
    let is_loopback = |host: &Place| host.address.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_loopback());
    if order.hosts.iter().all(is_loopback) {
        // Open MPI passes over the loopback interface and tries every other: of a machine without a network there
        // would be none, and on one with several it has been seen to hang.
        set("OMPI_MCA_btl_tcp_if_include", "lo");
        set("OMPI_MCA_oob_tcp_if_include", "lo");
    }
    set("PRTE_MCA_plm", "ssh");
    set("PRTE_MCA_plm_ssh_agent", &rsh);
    set("PRTE_MCA_plm_ssh_no_tree_spawn", "1");
    set("PRTE_MCA_prte_default_hostfile", &openmpi);
    set("PRTE_MCA_hwloc_default_binding_policy", "none");
    // MPICH and Intel MPI.
    set("HYDRA_LAUNCHER", "rsh");
    set("HYDRA_LAUNCHER_EXEC", &rsh);
    set("HYDRA_HOST_FILE", &files.mpich.display().to_string());
    if account.uid.is_root() {
        for prefix in ["OMPI", "PRTE"] {
            set(&format!("{prefix}_ALLOW_RUN_AS_ROOT"), "1");
            set(&format!("{prefix}_ALLOW_RUN_AS_ROOT_CONFIRM"), "1");
        }
    }
}

/// Are two nodes of the job the same machine, as in a cluster for trying things? There, each node has a loopback
/// address of its own.
fn share_a_machine(order: &Order) -> bool {
    let machine = |host: &Place| match host.address.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_loopback() => "this one".to_owned(),
        Ok(address) => address.ip().to_string(),
        Err(_) => host.address.clone(),
    };
    let mut machines: Vec<String> = order.hosts.iter().map(machine).collect();
    machines.sort_unstable();
    machines.windows(2).any(|two| two[0] == two[1])
}

/// `2(x3),1`: as Slurm prints it.
fn tasks_per_node(order: &Order) -> String {
    let mut groups: Vec<(u32, u32)> = Vec::new();
    for host in order.usable() {
        match groups.last_mut() {
            Some((n_tasks, n_hosts)) if *n_tasks == host.n_tasks => *n_hosts += 1,
            Some(_) | None => groups.push((host.n_tasks, 1)),
        }
    }
    let print = |(n_tasks, n_hosts): &(u32, u32)| match n_hosts {
        1 => n_tasks.to_string(),
        _several => format!("{n_tasks}(x{n_hosts})"),
    };
    groups.iter().map(print).collect::<Vec<_>>().join(",")
}

fn is_valid(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0'])
}

/// As execve(2) takes them; a value that holds a zero byte cannot be passed to anybody.
pub fn to_c(variables: &Variables) -> Vec<CString> {
    variables.iter().filter_map(|(name, value)| CString::new(format!("{name}={value}")).ok()).collect()
}
