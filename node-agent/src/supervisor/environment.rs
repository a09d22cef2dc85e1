//! The environment of a job's processes: the user's own, cleaned, and variables that describe the job.

use std::net::SocketAddr;

use rms_api::desired::LaunchNode;
use rms_model::hostlist;
use rms_model::variables::{DIR, GPUS, PMI_MARK, SLURM, SUBMIT_DIR, SUBMIT_HOST, is_of_a_launcher};

use super::cpus;
use super::devices;
use super::hostfile::HostFiles;
use rms_wire::peer::StepPart;

use super::openmp;
use super::slurm;
use super::user::Account;
use super::variables::Variables;
use crate::order::Order;

const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Returns the variables of all processes of the job on this node.
pub fn of_job(order: &Order, account: &Account, files: &HostFiles) -> Variables {
    let mut variables = Variables::new();
    variables.insert("PATH".to_owned(), DEFAULT_PATH.to_owned());
    let submitted = &order.launch.execution.environment.0;
    let speaks_slurm = submitted.iter().any(|(name, value)| name == SLURM && value == "1");
    let is_the_submitters = |name: &str| match name {
        SUBMIT_DIR | SUBMIT_HOST => true,
        SLURM => speaks_slurm,
        name => speaks_slurm && name.starts_with("SLURM_"),
    };
    // They say what the job has from which this one was submitted, not what the submitter chose.
    let are_of_a_job = submitted.iter().any(|(name, _)| name == GPUS);
    let is_of_a_job = |name: &str| are_of_a_job && devices::VARIABLES.contains(&name);
    let is_own = |name: &str| (!is_of_a_launcher(name) || is_the_submitters(name)) && !is_of_a_job(name);
    let own = submitted.iter().filter(|(name, _)| is_own(name) && is_valid(name));
    variables.extend(own.cloned());
    openmp::forget(&mut variables, submitted);
    let mut set = |name: &str, value: String| drop(variables.insert(name.to_owned(), value));
    set("USER", account.name.clone());
    set("LOGNAME", account.name.clone());
    set("HOME", account.home.clone());
    set("SHELL", account.shell.clone());

    let names: Vec<&str> = order.usable().map(|node| node.name.as_str()).collect();
    set("RMS_JOB_ID", order.job.to_string());
    set("RMS_JOB_NAME", order.launch.labels.name.clone());
    set("RMS_RUN", order.run.to_string());
    set("RMS_NODELIST", hostlist::fold(&names));
    set("RMS_NNODES", names.len().to_string());
    set("RMS_NTASKS", order.launch.n_tasks.to_string());
    // A job that requested none counts as having one; scripts use it as a number of threads.
    set("RMS_CPUS_PER_TASK", order.launch.cpus_per_task.max(1).to_string());
    set("RMS_TASKS_PER_NODE", slurm::on_each(order.usable().map(|node| node.n_tasks)));
    set("RMS_NODE_ID", order.node_idx.to_string());
    if let Some(place) = order.place() {
        set("RMS_NODE_NAME", place.name.clone());
        set("RMS_CLUSTER", place.cluster.clone());
        set("RMS_CPUS_ON_NODE", place.cpus.to_string());
    }
    let of_gpus = order.devices.iter().flat_map(devices::variables);
    of_gpus.for_each(|(name, value)| set(name, value));
    set("RMS_HOSTFILE", files.openmpi.display().to_string());
    set("RMS_HOSTFILE_MPICH", files.mpich.display().to_string());
    // Counts the versions of the hostfile, which is rewritten when the job's nodes change.
    set("RMS_GENERATION", order.launch.generation.to_string());
    set("RMS_AGENT_SOCKET", order.agent_socket.display().to_string());
    set("RMS_GENERATION_FILE", files.generation.display().to_string());
    set("RMS_MARK", order.mark.clone());
    if let Some(negotiates) = &order.negotiates {
        set("RMS_JOB_CREDENTIALS", negotiates.credentials.display().to_string());
        set("RMS_SERVER", negotiates.server.clone());
    }
    if order.launch.on_resize.is_some() && order.launch.most > 0 {
        set("RMS_MALLEABLE_LEAST", order.launch.least.to_string());
        set("RMS_MALLEABLE_MOST", order.launch.most.to_string());
    }
    let submit_dir =
        variables.entry(SUBMIT_DIR.to_owned()).or_insert_with(|| order.launch.execution.cwd.clone()).clone();
    if slurm::is_spoken(&variables) {
        slurm::of_job(&mut variables, order, account, &submit_dir);
    }
    set_for_mpirun(&mut variables, order, account, files);
    if order.launch.execution.malleable_threads {
        openmp::of_job(&mut variables, order, files, cpus::most_cpus(order));
    }
    if let (Some(dir), true) = (&order.aliases, slurm::is_spoken(&variables)) {
        let path = variables.get("PATH").map(String::as_str).unwrap_or_default();
        let path = format!("{}:{path}", dir.display());
        variables.insert("PATH".to_owned(), path);
    }
    variables
}

/// Returns the variables of commands from other nodes of the job.
///
/// Open MPI's daemons create a directory for each run, below one that is named after the machine. Those of two nodes on
/// one machine create the same directory at the same time, and the one that loses the race exits without telling
/// mpirun, which then waits forever. So each node gets its own directory for them. mpirun must not get it: it would
/// pass it on to all nodes.
pub fn of_command(variables: &Variables, order: &Order, account: &Account) -> Variables {
    let mut variables = variables.clone();
    if let Some(place) = order.place().filter(|_| share_a_machine(order)) {
        let tmp = variables.get("TMPDIR").filter(|dir| !dir.is_empty()).map_or("/tmp", String::as_str);
        let base = format!("{}/rms-{}.{}", tmp.trim_end_matches('/'), place.name, account.uid);
        for name in ["OMPI_MCA_orte_tmpdir_base", "PRTE_MCA_prte_tmpdir_base"] {
            variables.entry(name.to_owned()).or_insert_with(|| base.clone());
        }
    }
    variables
}

/// Adds the variables of one task.
pub fn of_task(variables: &mut Variables, task: u32, local: u32) {
    variables.insert("RMS_TASK_ID".to_owned(), task.to_string());
    variables.insert("RMS_LOCAL_ID".to_owned(), local.to_string());
    if slurm::is_spoken(variables) {
        slurm::of_task(variables, task, local);
    }
}

/// Sets the variables of a script. It is not a task, and its variables must be valid on all nodes: MPICH's `mpirun`
/// passes all of them on to its ranks, where they override what the agents set. In Slurm's variables the script is the
/// first task on the first node, as under sbatch, but only if its text names such a variable, or if it runs alone.
pub fn of_script(variables: &mut Variables, order: &Order, text: &str) {
    hide_what_differs(variables, order);
    if slurm::is_spoken(variables) {
        slurm::of_task(variables, 0, 0);
        let nodes: Vec<&LaunchNode> = order.usable().collect();
        let is_alone = nodes.len() == 1 && order.launch.n_tasks <= 1 && order.launch.on_resize.is_none();
        let is_named = |name: &str| is_alone || text.contains(name);
        variables.retain(|name, _| !slurm::OF_ONE.contains(&name.as_str()) || is_named(name));
    }
}

/// Hides variables from a task that is an `mpirun`, which passes its environment on to ranks on all nodes, as in a
/// script: its task numbers and its node are not theirs.
pub fn of_mpirun(variables: &mut Variables, order: &Order, program: &[u8]) {
    let name = program.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    if !MPIRUNS.contains(&name) {
        return;
    }
    hide_what_differs(variables, order);
    variables.retain(|name, _| !["RMS_TASK_ID", "RMS_LOCAL_ID"].contains(&name.as_str()));
    variables.retain(|name, _| !slurm::OF_ONE.contains(&name.as_str()));
}

const MPIRUNS: [&[u8]; 5] = [b"mpirun", b"mpiexec", b"mpiexec.hydra", b"orterun", b"prterun"];

/// Keeps only variables that are valid on all nodes of the job: they may reach ranks on each of them.
fn hide_what_differs(variables: &mut Variables, order: &Order) {
    let nodes: Vec<&LaunchNode> = order.usable().collect();
    let mut hide = |name: &str| drop(variables.remove(name));
    hide("RMS_NODE_ID");
    hide("RMS_NODE_NAME");
    if nodes.iter().any(|node| node.cluster != nodes[0].cluster) {
        hide("RMS_CLUSTER");
    }
    if nodes.iter().any(|node| node.cpus != nodes[0].cpus) {
        hide("RMS_CPUS_ON_NODE");
    }
    devices::hide_what_differs(variables, order);
}

/// Sets the variables that the tasks of a step have in common: the job's environment here with the caller's changes,
/// and the step's share of the job's nodes and tasks.
pub fn of_step(variables: &mut Variables, order: &Order, step: &StepPart) {
    // On another node, or since a change of its GPUs, the numbers that the caller was told may be those of other jobs.
    // A job that has all of its nodes was told none: what the caller has is its own choice.
    let is_told_gpus = order.launch.nodes.iter().any(|node| node.grant.is_some());
    // Includes what `mpirun` has set for a rank that starts a step.
    let ours = ["RMS_", "PMI_", "PMIX_", "HYDI_", "MPI_LOCAL", "OMPI_COMM_WORLD_"];
    let is_ours = |name: &str| {
        (name != DIR && ours.iter().any(|own| name.starts_with(own)))
            || (is_told_gpus && devices::VARIABLES.contains(&name))
    };
    let is_of_all = |name: &str| ["USER", "LOGNAME", "HOME", "SHELL"].contains(&name);
    // A script lacks the variables that are valid on one node only.
    let is_kept = |name: &String| is_ours(name) || is_of_all(name) || slurm::OF_ONE.contains(&name.as_str());
    variables.retain(|name, _| is_kept(name) || !step.unset.contains(name));
    variables.entry("PATH".to_owned()).or_insert_with(|| DEFAULT_PATH.to_owned());
    let set = step.set.iter().filter(|(name, _)| !is_ours(name) && is_valid(name));
    variables.extend(set.cloned());
    let is_slurms = slurm::is_spoken(variables);
    let says_cpus = step.cpus_per_task > 1 || variables.contains_key("SLURM_CPUS_PER_TASK");
    let mut set = |names: &[&str], value: String| {
        let wanted = names.iter().filter(|name| is_slurms || !name.starts_with("SLURM_"));
        variables.extend(wanted.map(|name| ((*name).to_owned(), value.clone())));
    };
    // Without SLURM_STEP_ID: if it is set, Open MPI expects a Slurm that serves its ranks, and does not start.
    set(&["RMS_STEP_ID", "SLURM_STEPID"], step.step.to_string());
    set(&["RMS_NODELIST", "SLURM_STEP_NODELIST"], step.nodes.clone());
    set(&["RMS_NNODES", "SLURM_STEP_NUM_NODES", "SLURM_NNODES"], step.n_nodes.to_string());
    let names = ["RMS_N_TASKS", "RMS_NTASKS", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_STEP_NUM_TASKS"];
    set(&names, step.n_tasks.to_string());
    let names = ["RMS_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE"];
    set(&names, step.tasks_per_node.clone());
    set(&["RMS_CPUS_PER_TASK"], step.cpus_per_task.to_string());
    if says_cpus {
        set(&["SLURM_CPUS_PER_TASK"], step.cpus_per_task.to_string());
    }
    set(&["RMS_NODE_ID", "SLURM_NODEID"], step.node_idx.to_string());
    openmp::of_step(variables, (step.n_local, step.cpus_per_task), cpus::most_cpus(order));
}

/// Sets the variables of the resize command: they name the change that it is for, because another may have followed.
/// Like a script, it is not a task.
pub fn of_hook(variables: &mut Variables, order: &Order, command: &str) {
    of_script(variables, order, command);
    let generation = order.launch.generation;
    variables.insert("RMS_RESIZE_GENERATION".to_owned(), generation.to_string());
}

/// Sets the variables by which a rank that the supervisor starts finds its process manager.
pub fn of_rank(variables: &mut Variables, pmi_fd: i32, rank: u32, local: u32, n_local: u32, n_ranks: u32) {
    let mut set = |name: &str, value: String| drop(variables.insert(name.to_owned(), value));
    set("PMI_FD", pmi_fd.to_string());
    set(PMI_MARK, format!("{pmi_fd}:{rank}"));
    set("PMI_RANK", rank.to_string());
    set("PMI_SIZE", n_ranks.to_string());
    set("MPI_LOCALNRANKS", n_local.to_string());
    set("MPI_LOCALRANKID", local.to_string());
}

/// Configures `mpirun` to reach the other nodes through the agents, and to leave binding to them.
fn set_for_mpirun(variables: &mut Variables, order: &Order, account: &Account, files: &HostFiles) {
    let Some(rsh) = &order.rsh else { return };
    let rsh = rsh.display().to_string();
    let openmpi = files.openmpi.display().to_string();
    let mut set = |name: &str, value: &str| drop(variables.insert(name.to_owned(), value.to_owned()));
    // Open MPI 4 and the runtime of Open MPI 5.
    set("OMPI_MCA_plm", "rsh");
    // If the job has Slurm's variables, Open MPI would take its nodes from them. Its `schizo` component for Slurm must
    // stay: without it, a singleton program believes that srun has started it, and fails.
    set("OMPI_MCA_ras", "^slurm");
    set("OMPI_MCA_plm_rsh_agent", &rsh);
    set("OMPI_MCA_plm_rsh_no_tree_spawn", "1");
    set("OMPI_MCA_orte_default_hostfile", &openmpi);
    set("OMPI_MCA_hwloc_base_binding_policy", "none");
    if share_a_machine(order) {
        // Open MPI names its shared memory after the machine's host name, so ranks of two nodes on one machine would
        // use each other's.
        set("OMPI_MCA_btl", "self,tcp");
    }
    let is_loopback =
        |node: &LaunchNode| node.address.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_loopback());
    if order.launch.nodes.iter().all(is_loopback) {
        // Open MPI skips the loopback interface and tries every other one: a machine without a network has none, and on
        // a machine with several it has been seen to hang.
        set("OMPI_MCA_btl_tcp_if_include", "lo");
        set("OMPI_MCA_oob_tcp_if_include", "lo");
    }
    set("PRTE_MCA_plm", "ssh");
    set("PRTE_MCA_ras", "^slurm");
    set("PRTE_MCA_plm_ssh_agent", &rsh);
    set("PRTE_MCA_plm_ssh_no_tree_spawn", "1");
    set("PRTE_MCA_prte_default_hostfile", &openmpi);
    set("PRTE_MCA_hwloc_default_binding_policy", "none");
    // MPICH and Intel MPI.
    set("HYDRA_LAUNCHER", "rsh");
    set("HYDRA_LAUNCHER_EXEC", &rsh);
    set("HYDRA_RMK", "user");
    set("I_MPI_HYDRA_BOOTSTRAP", "rsh");
    set("I_MPI_HYDRA_BOOTSTRAP_EXEC", &rsh);
    set("HYDRA_HOST_FILE", &files.mpich.display().to_string());
    if account.uid.is_root() {
        for prefix in ["OMPI", "PRTE"] {
            set(&format!("{prefix}_ALLOW_RUN_AS_ROOT"), "1");
            set(&format!("{prefix}_ALLOW_RUN_AS_ROOT_CONFIRM"), "1");
        }
    }
}

/// Returns whether two nodes of the job are the same machine, as in a test cluster. There, each node has a loopback
/// address of its own.
fn share_a_machine(order: &Order) -> bool {
    let machine = |node: &LaunchNode| match node.address.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_loopback() => "this one".to_owned(),
        Ok(address) => address.ip().to_string(),
        Err(_) => node.address.clone(),
    };
    let mut machines: Vec<String> = order.launch.nodes.iter().map(machine).collect();
    machines.sort_unstable();
    machines.windows(2).any(|two| two[0] == two[1])
}

fn is_valid(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0'])
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;

    use nix::unistd::{User, geteuid};
    use rms_api::desired::Launch;
    use rms_model::variables::SLURM_OF_AGENT;
    use rms_model::{Environment, Grant, JobId, Run, Span};

    use super::*;
    use crate::order::OwnDevices;
    use crate::order::tests::order;

    fn place(name: &str, first_task: u32, n_tasks: u32, departing: bool) -> LaunchNode {
        let (cluster, address) = ("alpha".to_owned(), format!("10.0.0.1:{first_task}"));
        LaunchNode { cluster, address, first_task, n_tasks, cpus: 4, departing, ..test_kit::place(name) }
    }

    fn variables(environment: &[(&str, &str)], change: impl FnOnce(&mut Order)) -> Variables {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let mut order = order([
            place("n01", 0, 2, false),
            place("n02", 2, 2, false),
            place("n03", 4, 1, false),
            place("n09", 5, 0, true),
        ]);
        order.rsh = Some(PathBuf::from("/usr/bin/rms-rsh"));
        let launch = order.launch_mut();
        launch.execution.environment = Arc::new(Environment(environment.iter().map(own).collect()));
        (launch.n_tasks, launch.execution.cwd) = (5, "/work".to_owned());
        change(&mut order);
        let owner = User::from_uid(geteuid()).ok().flatten().map_or_else(|| geteuid().to_string(), |user| user.name);
        let account = Account::resolve(&owner).expect("ourselves");
        let files = HostFiles { openmpi: "/h".into(), mpich: "/m".into(), generation: "/g".into() };
        let mut variables = of_job(&order, &account, &files);
        of_task(&mut variables, 3, 1);
        variables
    }

    fn slurms(variables: &Variables) -> Vec<&str> {
        variables.keys().filter(|name| name.starts_with("SLURM")).map(String::as_str).collect()
    }

    #[test]
    fn a_job_is_told_of_itself_in_slurms_words_where_it_asks_for_them() {
        let asked = [(SLURM, "1"), (SUBMIT_DIR, "/home/ada"), ("SLURM_JOB_ACCOUNT", "physics"), ("SLURM_JOB_ID", "99")];
        let variables = variables(&asked, |_| {});
        let mut expected = SLURM_OF_AGENT.to_vec();
        expected.push("SLURM_JOB_ACCOUNT");
        expected.sort_unstable();
        assert_eq!(slurms(&variables), expected);
        let check = |name: &str, value: &str| assert_eq!(variables[name], value, "{name}");
        check("SLURM_JOB_ID", "1");
        check("SLURM_JOB_NODELIST", "n[01-03]");
        check("SLURM_JOB_NUM_NODES", "3");
        check("SLURM_NTASKS", "5");
        check("SLURM_TASKS_PER_NODE", "2(x2),1");
        check("SLURM_JOB_CPUS_PER_NODE", "4(x3)");
        check("SLURM_PROCID", "3");
        check("SLURM_LOCALID", "1");
        check("SLURM_NODEID", "0");
        check("SLURMD_NODENAME", "n01");
        check("SLURM_JOB_PARTITION", "alpha");
        check("SLURM_JOB_ACCOUNT", "physics");
        check("SLURM_SUBMIT_DIR", "/home/ada");
        check("RMS_SUBMIT_DIR", "/home/ada");
    }

    #[test]
    fn a_script_is_told_nothing_that_holds_on_one_node_only() {
        let of_script = |text: &str, change: fn(&mut Launch)| {
            let mut order = order([place("n01", 0, 1, false), place("n02", 1, 1, false)]);
            order.launch_mut().n_tasks = 2;
            change(order.launch_mut());
            let told = ["RMS_NODE_ID", "RMS_NODE_NAME", "RMS_CLUSTER", "RMS_CPUS_ON_NODE", SLURM, "SLURM_NODEID"];
            let mut variables: Variables = told.map(|name| (name.to_owned(), "0".to_owned())).into();
            of_script(&mut variables, &order, text);
            variables.into_keys().filter(|name| name != SLURM).collect::<Vec<_>>()
        };
        assert_eq!(of_script("true", |_| {}), ["RMS_CLUSTER", "RMS_CPUS_ON_NODE"]);
        let mixed: fn(&mut Launch) = |launch| (launch.nodes[1].cpus, launch.nodes[1].cluster) = (8, "b".to_owned());
        assert_eq!(of_script("true", mixed), [] as [&str; 0]);
        let named = of_script("[ $SLURM_PROCID = 0 ] && echo ${SLURM_NODEID}", |_| {});
        assert_eq!(named, ["RMS_CLUSTER", "RMS_CPUS_ON_NODE", "SLURM_NODEID", "SLURM_PROCID"]);
        let alone = of_script("python train.py", |launch| {
            launch.nodes.truncate(1);
            launch.n_tasks = 1;
        });
        assert!(alone.contains(&"SLURM_PROCID".to_owned()) && alone.contains(&"SLURM_LOCALID".to_owned()), "{alone:?}");
    }

    #[test]
    fn an_mpirun_hands_no_number_of_its_own_on() {
        let of = |program: &str| {
            let order = order([place("n01", 0, 1, false), place("n02", 1, 1, false)]);
            let told = ["RMS_NODE_ID", "RMS_NODE_NAME", "RMS_TASK_ID", "RMS_LOCAL_ID", "SLURM_PROCID", "RMS_CLUSTER"];
            let mut variables: Variables = told.map(|name| (name.to_owned(), "0".to_owned())).into();
            of_mpirun(&mut variables, &order, program.as_bytes());
            variables.len()
        };
        assert_eq!([of("/opt/mpich/bin/mpiexec.hydra"), of("mpirun"), of("./mpirun_once"), of("python")], [1, 1, 6, 6]);
    }

    fn part(set: &[(&str, &str)], unset: &[&str]) -> StepPart {
        StepPart {
            job: JobId(1),
            run: Run(1),
            step: 0,
            argv: vec!["true".to_owned()],
            set: set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            unset: unset.iter().map(|name| (*name).to_owned()).collect(),
            cwd: "/work".to_owned(),
            umask: 0o22,
            limits: None,
            first_task: 0,
            n_local: 1,
            n_tasks: 1,
            cpus_per_task: 1,
            n_readers: 0,
            nodes: "n01".to_owned(),
            n_nodes: 1,
            node_idx: 0,
            tasks_per_node: "1".to_owned(),
            kvsname: "kvs".to_owned(),
            mapping: String::new(),
            universe: 1,
            grace: Span::from_secs(1),
        }
    }

    #[test]
    fn a_step_is_told_the_gpus_of_its_job_now_and_on_its_own_node() {
        let told = |devices: Option<&[u32]>, change: fn(&mut LaunchNode), step: &StepPart| {
            let mut order = order([place("n01", 0, 1, false)]);
            order.devices = devices.map(|gpus| OwnDevices { gpus: gpus.to_vec(), ..OwnDevices::default() });
            change(&mut order.launch_mut().nodes[0]);
            let mut variables = Variables::new();
            variables.extend(order.devices.iter().flat_map(devices::variables).map(|(name, v)| (name.to_owned(), v)));
            of_step(&mut variables, &order, step);
            ["RMS_GPUS", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"]
                .map(|name| variables.get(name).cloned().unwrap_or_else(|| "unset".to_owned()))
        };
        let shared: fn(&mut LaunchNode) = |node| node.grant = Some(Grant::default());
        let whole: fn(&mut LaunchNode) = |node| node.grant = None;
        let stale = [
            ("RMS_GPUS", "0,1"),
            ("CUDA_VISIBLE_DEVICES", "0,1"),
            ("ROCR_VISIBLE_DEVICES", "0,1"),
            ("CUDA_DEVICE_ORDER", "FASTEST_FIRST"),
        ];
        assert_eq!(told(Some(&[0]), shared, &part(&stale, &[])), ["0", "0", "0", "PCI_BUS_ID"]);
        assert_eq!(told(Some(&[]), shared, &part(&stale, &[])), ["", "", "", "PCI_BUS_ID"]);
        let unset = part(&[], &devices::VARIABLES);
        assert_eq!(told(Some(&[2, 3]), shared, &unset), ["2,3", "2,3", "2,3", "PCI_BUS_ID"]);
        // The caller is on a node that the job shares, and this one it has alone.
        assert_eq!(told(None, shared, &part(&stale, &[])), ["unset", "unset", "unset", "unset"]);
        let own_choice = ["unset", "0,1", "0,1", "FASTEST_FIRST"];
        assert_eq!(told(None, whole, &part(&stale, &[])), own_choice);
    }

    #[test]
    fn a_script_and_an_mpirun_are_told_no_gpu_number_of_another_node() {
        let told = |own: OwnDevices, granted: &[Option<u32>], tell: fn(&mut Variables, &Order)| {
            let grant = |first: u32| Grant {
                devices: [("gpu:a".to_owned(), [first, first + 1].into_iter().collect())].into(),
                ..Grant::default()
            };
            let nodes = granted.iter().map(|first| LaunchNode { grant: first.map(grant), ..test_kit::place("n") });
            let mut order = order(nodes);
            order.devices = granted[0].is_some().then_some(own);
            let mut variables = Variables::new();
            variables.extend(order.devices.iter().flat_map(devices::variables).map(|(name, v)| (name.to_owned(), v)));
            tell(&mut variables, &order);
            ["RMS_GPUS", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"]
                .map(|name| variables.get(name).cloned().unwrap_or_else(|| "unset".to_owned()))
        };
        let own = |first: u32, is_alone| OwnDevices { gpus: vec![first, first + 1], is_alone, ..OwnDevices::default() };
        let none = ["unset"; 4];
        let tells: [fn(&mut Variables, &Order); 2] = [
            |variables, order| of_script(variables, order, "true"),
            |variables, order| of_mpirun(variables, order, b"mpirun"),
        ];
        for tell in tells {
            assert_eq!(told(own(2, false), &[Some(2), Some(0)], tell), ["unset", "", "", "unset"]);
            assert_eq!(told(own(2, false), &[Some(2), Some(2)], tell), ["2,3", "2,3", "2,3", "PCI_BUS_ID"]);
            assert_eq!(told(own(2, false), &[Some(2)], tell), ["2,3", "2,3", "2,3", "PCI_BUS_ID"], "it has one node");
            // The kernel hides the GPUs of others here, so no variable is needed.
            assert_eq!(told(own(2, true), &[Some(2), Some(0)], tell), none);
            // It may not do so on the other node, where 0 is the GPU of another job.
            assert_eq!(told(own(2, true), &[Some(2), Some(2)], tell), ["2,3", "unset", "unset", "PCI_BUS_ID"]);
            assert_eq!(told(own(0, true), &[Some(0), Some(0)], tell), ["0,1", "0,1", "0,1", "PCI_BUS_ID"]);
            assert_eq!(told(own(2, true), &[Some(2)], tell), ["2,3", "0,1", "0,1", "PCI_BUS_ID"]);
            // One of the nodes it has alone.
            assert_eq!(told(own(2, false), &[Some(2), None], tell), ["unset", "", "", "unset"]);
            assert_eq!(told(own(2, false), &[None, Some(2)], tell), none);
        }
    }

    #[test]
    fn what_sbatch_sets_on_request_is_set_on_request() {
        let variables = variables(&[(SLURM, "1")], |order| {
            order.launch_mut().cpus_per_task = 2;
            order.run = Run(3);
        });
        assert_eq!((variables["SLURM_CPUS_PER_TASK"].as_str(), variables["SLURM_RESTART_COUNT"].as_str()), ("2", "2"));
        assert_eq!(variables["SLURM_SUBMIT_DIR"], "/work");
    }

    #[test]
    fn inherited_words_of_launchers_reach_no_job() {
        let inherited =
            [("SLURM_JOB_ID", "99"), ("PMI_RANK", "1"), ("RMS_JOB_ID", "98"), ("RMS_DIR", "/mine"), ("I_AM", "ada")];
        let variables = variables(&inherited, |_| {});
        assert_eq!(slurms(&variables), [] as [&str; 0]);
        assert_eq!((variables["RMS_JOB_ID"].as_str(), variables["I_AM"].as_str()), ("1", "ada"));
        assert!(!variables.contains_key("PMI_RANK"));
        assert_eq!(variables["RMS_DIR"], "/mine", "the way to the server is the submitter's");
    }

    #[test]
    fn the_gpus_of_the_job_from_which_it_was_submitted_are_not_those_of_a_job() {
        let visible = |submitted: &[(&str, &str)]| variables(submitted, |_| {}).remove("CUDA_VISIBLE_DEVICES");
        assert_eq!(visible(&[("CUDA_VISIBLE_DEVICES", "3")]), Some("3".to_owned()), "the submitter has chosen it");
        assert_eq!(visible(&[("CUDA_VISIBLE_DEVICES", ""), ("RMS_GPUS", "")]), None);
    }

    #[test]
    fn a_step_has_the_way_to_the_server_that_its_script_has() {
        let told = |step: &StepPart| {
            let mut variables: Variables = [(DIR.to_owned(), "/mine".to_owned())].into();
            of_step(&mut variables, &order([place("n01", 0, 1, false)]), step);
            variables.remove(DIR)
        };
        assert_eq!(told(&part(&[(DIR, "/other")], &[])), Some("/other".to_owned()));
        assert_eq!(told(&part(&[], &[DIR])), None);
    }

    #[test]
    fn daemons_of_two_nodes_on_one_machine_have_places_of_their_own() {
        let account = Account::resolve(&User::from_uid(geteuid()).expect("asked").expect("there is one").name);
        let account = account.expect("it is ours");
        let base = |n_nodes: usize, node_idx: u32, environment: &[(&str, &str)]| {
            let mut order = order([place("n01", 0, 2, false), place("n02", 2, 2, false)].into_iter().take(n_nodes));
            order.node_idx = node_idx;
            let variables = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            of_command(&variables, &order, &account).get("OMPI_MCA_orte_tmpdir_base").cloned()
        };
        let uid = account.uid;
        assert_eq!(base(2, 0, &[]), Some(format!("/tmp/rms-n01.{uid}")));
        assert_eq!(base(2, 1, &[("TMPDIR", "/scratch/")]), Some(format!("/scratch/rms-n02.{uid}")));
        assert_eq!(base(2, 1, &[("OMPI_MCA_orte_tmpdir_base", "/mine")]), Some("/mine".to_owned()));
        assert_eq!(base(1, 0, &[]), None, "one node is nobody's neighbour");
    }

    #[test]
    fn launchers_of_mpi_do_not_choose_slurms_ways() {
        let variables = variables(&[(SLURM, "1"), ("I_MPI_HYDRA_BOOTSTRAP", "slurm")], |_| {});
        let check = |name: &str, value: &str| assert_eq!(variables[name], value, "{name}");
        check("OMPI_MCA_plm", "rsh");
        check("OMPI_MCA_ras", "^slurm");
        assert!(!variables.contains_key("OMPI_MCA_schizo"));
        check("PRTE_MCA_plm", "ssh");
        check("PRTE_MCA_ras", "^slurm");
        check("HYDRA_LAUNCHER", "rsh");
        check("HYDRA_RMK", "user");
        check("I_MPI_HYDRA_BOOTSTRAP", "rsh");
    }
}
