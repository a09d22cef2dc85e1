//! Environment variables with a meaning for jobs, and those that launchers leave behind.

/// Prefixes of variables left over from the launcher under which a job was submitted; an MPI library would rely on
/// them.
const OF_LAUNCHERS: [&str; 9] = ["SLURM_", "PMI_", "PMIX_", "OMPI_", "PRTE_", "HYDRA_", "HYDI_", "MPI_LOCAL", "RMS_"];

/// Leads to the server, with the credentials of whom submitted the job: `rms` works inside jobs, too.
pub const DIR: &str = "RMS_DIR";

/// The GPUs of the job, which its other variables of devices name, too.
pub const GPUS: &str = "RMS_GPUS";

/// What the agent has set for OpenMP programs of the job, `NAME=value` separated by `;`.
pub const OPENMP: &str = "RMS_OPENMP";

/// Variables of a job that say which of its others it was given. A submission from inside of the job keeps them, so that
/// an agent does not take those for the submitter's choice; the new job does not get them.
pub const MARKS: [&str; 2] = [GPUS, OPENMP];

/// Returns whether this variable is a leftover of a launcher, which no job inherits.
pub fn is_of_a_launcher(name: &str) -> bool {
    name != DIR && OF_LAUNCHERS.iter().any(|prefix| name.starts_with(prefix))
}

/// The directory in which the job was submitted; the submitter sets it, and the directory of the job may differ.
pub const SUBMIT_DIR: &str = "RMS_SUBMIT_DIR";
pub const SUBMIT_HOST: &str = "RMS_SUBMIT_HOST";

/// Holds `PMI_FD:PMI_RANK` for a rank that an agent started itself: `mpirun` inherits it, but sets these two anew.
pub const PMI_MARK: &str = "RMS_PMI";

/// Set to 1 by the submitter of a job that also gets Slurm's variables. With it set, variables `SLURM_*` are the
/// submitter's own and not inherited from a launcher.
pub const SLURM: &str = "RMS_SLURM_ENV";

/// The variables that an agent sets for the processes of such a job. For a script, the last three describe its first
/// and only task, as under sbatch.
pub const SLURM_OF_AGENT: [&str; 26] = [
    "SLURMD_NODENAME",
    "SLURM_CLUSTER_NAME",
    "SLURM_CPUS_ON_NODE",
    "SLURM_JOBID",
    "SLURM_JOB_CPUS_PER_NODE",
    "SLURM_JOB_GID",
    "SLURM_JOB_ID",
    "SLURM_JOB_NAME",
    "SLURM_JOB_NODELIST",
    "SLURM_JOB_NUM_NODES",
    "SLURM_JOB_PARTITION",
    "SLURM_JOB_UID",
    "SLURM_JOB_USER",
    "SLURM_NNODES",
    "SLURM_NODEID",
    "SLURM_NODELIST",
    "SLURM_NPROCS",
    "SLURM_NTASKS",
    "SLURM_PRIO_PROCESS",
    "SLURM_SUBMIT_DIR",
    "SLURM_TASKS_PER_NODE",
    "SLURM_TOPOLOGY_ADDR",
    "SLURM_TOPOLOGY_ADDR_PATTERN",
    "SLURM_GTIDS",
    "SLURM_LOCALID",
    "SLURM_PROCID",
];
