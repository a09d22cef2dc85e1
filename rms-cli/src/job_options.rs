//! The flags that describe a job, the same on the command line and in `#RMS` lines, and their precedence.

use std::collections::BTreeSet;
use std::str::FromStr;

use clap::Args;
use rms_model::hostlist::{self, HostlistError};
use rms_model::identity::{NameError, check_name};
use rms_model::time::parse_wall;
use rms_model::{ExpandLimit, Span};
use thiserror::Error;

use crate::count;
use crate::malleable_options::{MalleableOptions, OtherOptions};
use crate::memory::Memory;
use crate::model_options::ModelOptions;
use crate::profile::ProfileText;
use crate::resource_options::ResourceOptions;
use crate::size::{NodeCount, Shapes};
use crate::stamp;

// No doc comment: clap would print it as the help of each verb that has these flags.
// How a job is to be; every flag may be absent, so that sources can be laid over each other.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(next_help_heading = "Size and time")]
pub struct JobOptions {
    /// Nodes: 4, 1-16, 1-15:4 (in steps), 2+ (or more), a:2,b:2 (by cluster); of a range, the size that ends first is
    /// chosen
    #[arg(short = 'N', long, value_name = "COUNT", allow_negative_numbers = true)]
    pub nodes: Option<NodeCount>,
    /// Tasks; one per node if absent
    #[arg(short = 'n', long, visible_alias = "ntasks", value_name = "COUNT", value_parser = count::parse, allow_negative_numbers = true)]
    pub tasks: Option<u32>,
    /// CPUs for each task; 1 if absent
    #[arg(short = 'c', long, value_name = "COUNT", value_parser = count::parse, allow_negative_numbers = true)]
    pub cpus_per_task: Option<u32>,
    /// Let tasks share CPUs: allow more tasks on a node than it has CPUs for
    #[arg(short = 'O', long)]
    pub overcommit: bool,
    /// Tasks per node; with -n, the maximum per node. The number of nodes must be fixed
    #[arg(long, visible_alias = "ntasks-per-node", value_name = "COUNT", value_parser = count::parse, allow_negative_numbers = true)]
    pub tasks_per_node: Option<u32>,
    /// Wall time: 90s, 1h30m, 30 (minutes), MM:SS, HH:MM:SS or D-HH:MM:SS
    #[arg(short = 't', long, value_name = "SPAN", value_parser = wall)]
    pub time: Option<Span>,
    /// Sizes, each with its wall time, best first: 2x1h,4x35m; instead of -N and -t
    #[arg(long, value_name = "LIST", conflicts_with_all = ["nodes", "time", "tasks_per_node"])]
    pub shapes: Option<Shapes>,
    /// Stages of an evolving job: 2x500s,8x1h,2x10m, or a file FILE.toml or FILE.json; instead of -N and -t
    #[arg(long, value_name = "PROFILE", conflicts_with_all = ["nodes", "time", "shapes"])]
    pub profile: Option<ProfileText>,
    /// Maximum length of a stage that waits for the next one, as a multiple of its requested time: 1 to 1000 or inf; 2
    /// if absent
    #[arg(long, value_name = "TIMES", value_parser = crate::profile::parse_limit)]
    pub expand: Option<ExpandLimit>,
    /// Start as late as possible without ending later, so that stages wait less
    #[arg(long)]
    pub compact: bool,
    /// Plan the largest size of the profile for its whole duration
    #[arg(long)]
    pub rigid: bool,
    /// Allow more stages to be announced while the job runs (rms evolve)
    #[arg(long)]
    pub open: bool,
    #[command(flatten)]
    pub model: ModelOptions,
    #[command(flatten)]
    pub malleable: MalleableOptions,
    /// Adapt OpenMP programs when the job gains or loses cores while it runs: their next parallel region uses as many
    /// threads as there are cores
    #[arg(long)]
    pub malleable_threads: bool,
    #[command(flatten)]
    pub resources: ResourceOptions,

    /// Clusters that the job may use: a,b; any if absent
    #[arg(short = 'M', long, value_name = "NAMES", value_delimiter = ',', help_heading = "Where and when")]
    pub clusters: Option<Vec<String>>,
    /// Features that every node must have: fast,bigmem
    #[arg(short = 'C', long, value_name = "FEATURES", help_heading = "Where and when")]
    pub constraint: Option<Features>,
    /// Nodes that the job may use: n1,n[3-4]; without -N, all of them
    #[arg(short = 'w', long, value_name = "NODES", help_heading = "Where and when")]
    pub nodelist: Option<NodeNames>,
    /// Nodes that the job must not use: n1,n[3-4]
    #[arg(short = 'x', long, value_name = "NODES", help_heading = "Where and when")]
    pub exclude: Option<NodeNames>,
    /// Memory that every node must have: 512M, 4G (a bare number is MiB)
    #[arg(long, value_name = "SIZE", help_heading = "Where and when", allow_negative_numbers = true)]
    pub mem: Option<Memory>,
    /// CPUs that every node must have, whatever the job takes of them
    #[arg(long, value_name = "COUNT", value_parser = count::parse, help_heading = "Where and when", allow_negative_numbers = true)]
    pub mincpus: Option<u32>,
    /// Sockets that every node must have
    #[arg(long, value_name = "COUNT", help_heading = "Where and when")]
    pub sockets_per_node: Option<u32>,
    /// Scratch space that every node must have, as declared by its administrator: 100G
    #[arg(long, value_name = "SIZE", help_heading = "Where and when")]
    pub tmp: Option<Memory>,
    /// Minimum speed of every node, relative to the reference node: 1.5
    #[arg(long, value_name = "FACTOR", value_parser = parse_speed, help_heading = "Where and when")]
    pub min_speed: Option<u32>,
    /// Earliest start: now+1h, 16:00, tomorrow, 2026-11-20T16:00 (local time) or 2026-11-20T16:00+01:00
    #[arg(
        long,
        value_name = "TIME",
        value_parser = stamp::checked,
        help_heading = "Where and when",
        allow_hyphen_values = true
    )]
    pub begin: Option<String>,
    /// Priority, higher goes first; 0 if absent
    #[arg(long, value_name = "NUMBER", help_heading = "Where and when", allow_hyphen_values = true, value_parser = priority)]
    pub priority: Option<i32>,
    /// Hold the job until 'rms release'
    #[arg(short = 'H', long, help_heading = "Where and when")]
    pub hold: bool,
    /// Start the job again if one of its nodes is lost, regardless of the server's lost_policy
    #[arg(long, overrides_with = "no_requeue", help_heading = "Where and when")]
    pub requeue: bool,
    /// Never start the job again, regardless of the server's lost_policy
    #[arg(long, overrides_with = "requeue", help_heading = "Where and when")]
    pub no_requeue: bool,

    /// Job name; that of the script or program if absent
    #[arg(short = 'J', long, visible_alias = "job-name", value_name = "NAME", help_heading = "What runs")]
    pub name: Option<String>,
    /// Working directory
    #[arg(short = 'D', long, value_name = "DIR", help_heading = "What runs")]
    pub chdir: Option<String>,
    /// File for standard output; %j job, %x name, %u user, %N node, %n node index, %t task, %s step, %% a percent sign
    #[arg(short = 'o', long, value_name = "FILE", help_heading = "What runs")]
    pub output: Option<String>,
    /// File for standard error; that of standard output if absent
    #[arg(short = 'e', long, value_name = "FILE", help_heading = "What runs")]
    pub error: Option<String>,
    /// File for standard input
    #[arg(short = 'i', long, value_name = "FILE", help_heading = "What runs")]
    pub input: Option<String>,
    /// Append to the output files or truncate them
    #[arg(long, value_name = "append|truncate", help_heading = "What runs")]
    pub open_mode: Option<OpenMode>,
    /// Environment variables to pass to the job: ALL, NONE, or a list like PATH,LEVEL=2 (ALL,LEVEL=2 adds)
    #[arg(long, value_name = "LIST", help_heading = "What runs")]
    pub export: Option<String>,
    /// Set Slurm's variables for the job, too: SLURM_JOB_ID and others; implied by #SBATCH lines in a script
    #[arg(long, help_heading = "What runs")]
    pub slurm_env: bool,
    /// Slurm variables that the script may use although they will not be set; 'all' for any
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = "What runs")]
    pub allow_unset: Option<Vec<String>>,
    /// What the job is told of options that mean nothing here.
    #[arg(skip)]
    pub slurm: Vec<(String, String)>,
    /// Account of the job, as 'rms show' and the history show it
    #[arg(short = 'A', long, value_name = "NAME", help_heading = "What runs")]
    pub account: Option<String>,
    /// Comment to keep with the job
    #[arg(long, value_name = "TEXT", help_heading = "What runs")]
    pub comment: Option<String>,
}

impl JobOptions {
    /// Returns the other options on which a malleable job depends; see [`OtherOptions::largest`] for `largest`.
    pub fn others(&self, largest: u32) -> OtherOptions<'_> {
        OtherOptions {
            nodes: self.nodes.as_ref(),
            has_shapes: self.shapes.is_some(),
            has_profile: self.profile.is_some(),
            has_tasks: self.tasks.is_some(),
            model: &self.model,
            largest,
        }
    }

    /// Returns these options, completed by those of `lower`.
    pub fn over(self, lower: JobOptions) -> JobOptions {
        let names_a_size = self.nodes.is_some() || self.time.is_some() || self.shapes.is_some();
        let is_malleable = self.malleable.is_some();
        let (names_memory, names_share) = (self.mem.is_some(), self.resources.mem_per_cpu.is_some());
        let says_whether_again = self.requeue || self.no_requeue;
        let profile = self.profile.clone().or(lower.profile.clone().filter(|_| !names_a_size && !is_malleable));
        let lower_malleable =
            if self.profile.is_some() { MalleableOptions::default() } else { lower.malleable.clone() };
        let (nodes, time, shapes) = self.size_over(&lower);
        JobOptions {
            nodes,
            tasks: self.tasks.or(lower.tasks),
            cpus_per_task: self.cpus_per_task.or(lower.cpus_per_task),
            overcommit: self.overcommit || lower.overcommit,
            tasks_per_node: self.tasks_per_node.or(lower.tasks_per_node),
            time,
            shapes,
            profile,
            expand: self.expand.or(lower.expand),
            compact: self.compact || lower.compact,
            rigid: self.rigid || lower.rigid,
            open: self.open || lower.open,
            model: if self.shapes.is_some() { ModelOptions::default() } else { self.model.or(lower.model) },
            malleable: self.malleable.or(lower_malleable),
            malleable_threads: self.malleable_threads || lower.malleable_threads,
            resources: self.resources.over(lower.resources, names_memory),
            clusters: self.clusters.or(lower.clusters),
            constraint: self.constraint.or(lower.constraint),
            nodelist: self.nodelist.or(lower.nodelist),
            exclude: self.exclude.or(lower.exclude),
            mem: self.mem.or(lower.mem.filter(|_| !names_share)),
            mincpus: self.mincpus.or(lower.mincpus),
            sockets_per_node: self.sockets_per_node.or(lower.sockets_per_node),
            tmp: self.tmp.or(lower.tmp),
            min_speed: self.min_speed.or(lower.min_speed),
            begin: self.begin.or(lower.begin),
            priority: self.priority.or(lower.priority),
            hold: self.hold || lower.hold,
            requeue: if says_whether_again { self.requeue } else { lower.requeue },
            no_requeue: if says_whether_again { self.no_requeue } else { lower.no_requeue },
            name: self.name.or(lower.name),
            chdir: self.chdir.or(lower.chdir),
            output: self.output.or(lower.output),
            error: self.error.or(lower.error),
            input: self.input.or(lower.input),
            open_mode: self.open_mode.or(lower.open_mode),
            export: self.export.or(lower.export),
            slurm_env: self.slurm_env || lower.slurm_env,
            allow_unset: self.allow_unset.or(lower.allow_unset),
            slurm: [lower.slurm, self.slurm].concat(),
            account: self.account.or(lower.account),
            comment: self.comment.or(lower.comment),
        }
    }

    /// Returns the size. `--shapes` replaces both `-N` and `-t`, so the higher source overrides the other form.
    fn size_over(&self, lower: &JobOptions) -> (Option<NodeCount>, Option<Span>, Option<Shapes>) {
        if self.shapes.is_some() {
            return (None, None, self.shapes.clone());
        }
        if self.profile.is_some() {
            return (None, None, None);
        }
        let names_a_size =
            self.nodes.is_some() || self.time.is_some() || self.tasks_per_node.is_some() || self.model.is_some();
        let shapes = if names_a_size { None } else { lower.shapes.clone() };
        (self.nodes.clone().or(lower.nodes.clone()), self.time.or(lower.time), shapes)
    }
}

/// Whether output files are appended to or truncated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum OpenMode {
    Append,
    Truncate,
}

pub fn priority(text: &str) -> Result<i32, &'static str> {
    text.parse().map_err(|_| "write a whole number, like -10; above 0 only as an admin, and at most 2147483647")
}

/// Features that every node must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Features(pub Vec<String>);

/// Why a text is not a list of features.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FeaturesError {
    #[error("alternatives ('|') are not supported: name features that every node must have, like fast,bigmem")]
    Alternatives,
    #[error(
        "numbers of nodes by feature ('[a*1&b*2]') are not supported: name features that every node must have, like \
         fast,bigmem"
    )]
    Counts,
    #[error("a feature has no name: write a list like fast,bigmem")]
    Empty,
    #[error(transparent)]
    Name(#[from] NameError),
}

impl FromStr for Features {
    type Err = FeaturesError;

    fn from_str(text: &str) -> Result<Features, FeaturesError> {
        if text.contains('|') {
            return Err(FeaturesError::Alternatives);
        }
        if text.contains(['[', '*']) {
            return Err(FeaturesError::Counts);
        }
        let names: Vec<String> = text.split([',', '&']).map(|name| name.trim().to_owned()).collect();
        if names.iter().any(String::is_empty) {
            return Err(FeaturesError::Empty);
        }
        names.iter().try_for_each(|name| check_name(name))?;
        Ok(Features(names))
    }
}

/// Names of nodes, in the order of the list and each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeNames(pub Vec<String>);

/// Why a text is not a list of nodes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(transparent)]
pub enum NodeNamesError {
    List(#[from] HostlistError),
    Name(#[from] NameError),
}

impl FromStr for NodeNames {
    type Err = NodeNamesError;

    fn from_str(text: &str) -> Result<NodeNames, NodeNamesError> {
        let mut known = BTreeSet::new();
        let names: Vec<String> =
            hostlist::expand(text)?.into_iter().filter(|name| known.insert(name.clone())).collect();
        names.iter().try_for_each(|name| check_name(name))?;
        Ok(NodeNames(names))
    }
}

/// Parses a speed in thousandths.
fn parse_speed(text: &str) -> Result<u32, &'static str> {
    let milli = text.parse::<f64>().ok().map(|speed| (speed * 1000.0).ceil());
    let milli = milli.filter(|milli| (1.0..=f64::from(u32::MAX)).contains(milli));
    milli.map(|milli| milli as u32).ok_or("write a factor above zero, like 1.5")
}

/// Reads a wall time. In Slurm 0 and UNLIMITED mean no limit, which no job has here.
fn wall(text: &str) -> Result<Span, String> {
    let is_endless = ["unlimited", "infinite"].iter().any(|word| text.eq_ignore_ascii_case(word));
    match parse_wall(text) {
        _ if is_endless => Err(NO_LIMIT.to_owned()),
        Ok(Span::ZERO) => Err(NO_LIMIT.to_owned()),
        Ok(span) => Ok(span),
        Err(error) => Err(error.to_string()),
    }
}

const NO_LIMIT: &str = "the wall time must be longer than zero, and every job has a limit: leave --time out or write \
                        the cluster's max_wall";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_all_needed_so_alternatives_are_refused() {
        assert_eq!("fast&big,gpu".parse(), Ok(Features(vec!["fast".into(), "big".into(), "gpu".into()])));
        assert_eq!("a|b".parse::<Features>(), Err(FeaturesError::Alternatives));
        assert_eq!("[a|b]".parse::<Features>(), Err(FeaturesError::Alternatives));
        assert_eq!("[a*1&b*1]".parse::<Features>(), Err(FeaturesError::Counts));
        assert_eq!("a,,b".parse::<Features>(), Err(FeaturesError::Empty));
        assert!(matches!("fast,a/b".parse::<Features>(), Err(FeaturesError::Name(_))));
    }

    #[test]
    fn a_higher_source_wins_and_silences_the_other_way_to_name_a_size() {
        let shapes = JobOptions { shapes: "2x1h".parse().ok(), ..JobOptions::default() };
        let counted = JobOptions { nodes: "4".parse().ok(), tasks: Some(8), ..JobOptions::default() };
        let both = counted.clone().over(shapes.clone());
        assert_eq!((both.nodes, both.shapes), ("4".parse().ok(), None));
        let both = shapes.clone().over(counted.clone());
        assert_eq!((both.nodes, both.shapes, both.tasks), (None, shapes.shapes, Some(8)));
        let per_node = JobOptions { tasks_per_node: Some(3), ..JobOptions::default() }.over(counted);
        // As under Slurm, both hold together: eight tasks, at most three on a node.
        assert_eq!((per_node.tasks, per_node.tasks_per_node), (Some(8), Some(3)));
    }
}
