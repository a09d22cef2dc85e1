//! Turns a job's flags, directives and script into the submission that the server checks.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use rms_api::call::{Nodes, Shape, Submission};
use rms_model::job::Constraint;
use rms_model::variables;
use rms_model::{Environment, Evolving, Execution, Expansion, Labels, Malleable, Mebibytes, OnResize, Stdio, Work};
use thiserror::Error;

use crate::caller::Caller;
use crate::export::{self, ExportError, Of};
use crate::job_options::{JobOptions, NodeNames, OpenMode};
use crate::malleable_options::MalleableError;
use crate::model_options::ModelError;
use crate::profile::ProfileError;
use crate::resource_options::ResourceError;
use crate::script::Script;
use crate::size::NodeCount;
use crate::stamp::{self, ParseTimeError};

/// What runs, and where its output goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    pub work: Work,
    /// The name of a job that does not specify one.
    pub name: String,
    /// The target of the output if no file is named.
    pub output: Output,
    pub test_only: bool,
    /// The script that runs, if it can be read here.
    pub script: Option<Script>,
}

/// The target of the output if no flag names one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// [`DEFAULT_OUTPUT`] in the working directory.
    File,
    /// To the client that follows the job.
    Stream,
}

/// The output file of a batch job that specifies none.
pub const DEFAULT_OUTPUT: &str = "rms-%j.out";

/// Why flags and directives do not form a submission.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SubmissionError {
    #[error("--begin: {0}")]
    Begin(#[from] ParseTimeError),
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error(transparent)]
    Export(#[from] ExportError),
    #[error(transparent)]
    Profile(#[from] ProfileError),
    #[error(transparent)]
    Malleable(#[from] MalleableError),
    #[error(transparent)]
    Resources(#[from] ResourceError),
    #[error("--{0} says how a profile is planned: write --profile, too")]
    NoProfile(&'static str),
    #[error("--tasks-per-node needs one fixed number of nodes: write -N 4, or say the tasks by -n alone")]
    PerNodeOfRange,
    #[error("{per_node} tasks on each of {n_nodes} nodes are more than can be counted")]
    TooManyTasks { per_node: u32, n_nodes: u32 },
    #[error(
        "{n_tasks} tasks are more than {per_node} on each of {n_nodes} nodes: ask for {} nodes, or leave out -n or \
         --tasks-per-node",
        n_tasks.div_ceil(*per_node)
    )]
    TasksDoNotFit { n_tasks: u32, per_node: u32, n_nodes: u32 },
    #[error(
        "{n_tasks} task{} cannot be on {n_nodes} nodes: ask for at least one task a node (-n {n_nodes}), or for fewer nodes",
        if *n_tasks == 1 { "" } else { "s" }
    )]
    FewerTasksThanNodes { n_tasks: u32, n_nodes: u32 },
    #[error("the directory '{0}' is not text in UTF-8: use --chdir with another one")]
    OddDirectory(String),
}

/// Returns the submission. `largest` is the number of nodes of the largest usable cluster; only `-N min+` and a
/// malleable job without an upper end need it.
///
/// # Errors
/// See [`SubmissionError`].
pub fn build(options: JobOptions, order: Order, caller: &Caller, largest: u32) -> Result<Submission, SubmissionError> {
    let options = on_all_named(options);
    let others = options.others(largest);
    let malleable = options.malleable.read(&others)?;
    let says_whether_again = (options.requeue || options.no_requeue).then_some(options.requeue);
    let requeue = options.malleable.may_run_again(says_whether_again)?;
    check_workers(malleable.as_ref(), &order.work)?;
    let range = options.malleable.malleable.as_ref();
    let is_wanted = |n_nodes| {
        let is_named = options.nodes.as_ref().is_none_or(|nodes| nodes.allows(n_nodes));
        is_named && range.is_none_or(|range| range.allows(n_nodes))
    };
    let listed = options.model.listed(is_wanted)?;
    let shapes = match (listed.as_ref().or(options.shapes.as_ref().map(|shapes| &shapes.0)), &options.nodes) {
        (Some(shapes), _) => shapes.clone(),
        (None, _) if malleable.is_some() => options.malleable.shapes(&others, options.time)?,
        (None, Some(nodes)) => nodes.shapes(options.time, || largest),
        (None, None) if options.tasks_per_node.is_some() => {
            let per_node = options.tasks_per_node.unwrap_or(1);
            let n_nodes = options.tasks.unwrap_or(per_node).div_ceil(per_node);
            vec![Shape { nodes: Nodes::Count(n_nodes), wall: options.time }]
        }
        (None, None) if options.time.is_some() => vec![Shape { nodes: Nodes::FromTasks, wall: options.time }],
        (None, None) => Vec::new(),
    };
    let shapes = options.model.timed(shapes, options.time)?;
    let (shapes, evolving) = match announced(&options, caller)? {
        Some(evolving) if options.rigid => {
            let wall = Some(evolving.stages.span());
            (vec![Shape { nodes: Nodes::Count(evolving.stages.peak()), wall }], None)
        }
        evolving => (shapes, evolving),
    };
    let begin = options.begin.as_deref().map(|text| stamp::parse_begin(text, caller.now)).transpose()?;
    let environment = environment(&options, caller)?;
    let n_tasks = n_tasks(&options, evolving.as_ref())?;
    let n_nodes = options.nodes.as_ref().and_then(NodeCount::fixed);
    check_nodes(&options, n_nodes)?;
    let resources = options.resources.request(options.tasks_per_node, n_nodes)?;
    let stream = order.output == Output::Stream && options.output.is_none();
    let output = if stream { None } else { Some(options.output.unwrap_or_else(|| DEFAULT_OUTPUT.to_owned())) };
    let constraint = Constraint {
        features: options
            .constraint
            .map(|features| features.0.into_iter().collect::<BTreeSet<_>>())
            .unwrap_or_default(),
        memory: options.mem.map_or(Mebibytes(0), |memory| memory.0),
        nodelist: options.nodelist.map(|names| names.0.into_iter().collect()).unwrap_or_default(),
        exclude: options.exclude.map(|names| names.0.into_iter().collect()).unwrap_or_default(),
        cpus: options.mincpus.unwrap_or(0),
        sockets: options.sockets_per_node.unwrap_or(0),
        scratch: options.tmp.map_or(Mebibytes(0), |scratch| scratch.0),
        speed_milli: options.min_speed.unwrap_or(0),
        ..Constraint::default()
    };
    let labels = Labels {
        name: options.name.unwrap_or_else(|| Labels::name_of_file(&order.name)),
        comment: options.comment.unwrap_or_default(),
        account: options.account.unwrap_or_default(),
    };
    Ok(Submission {
        labels,
        execution: Execution {
            work: order.work,
            cwd: directory(options.chdir.as_deref(), &caller.cwd)?,
            environment: Arc::new(Environment(environment)),
            umask: caller.inherited.umask,
            stdio: Stdio {
                input: options.input,
                output,
                error: options.error,
                append: options.open_mode == Some(OpenMode::Append),
                stream,
            },
            limits: caller.inherited.limits.clone(),
            malleable_threads: options.malleable_threads,
        },
        n_tasks,
        // CPUs are not counted for tasks that share them.
        cpus_per_task: if options.overcommit { 0 } else { options.cpus_per_task.unwrap_or(1) },
        shapes,
        clusters: options.clusters.unwrap_or_default(),
        constraint,
        resources,
        priority: options.priority.unwrap_or(0),
        hold: options.hold,
        requeue,
        begin,
        test_only: order.test_only,
        malleable,
        evolving,
    })
}

/// Returns the environment that the job inherits, and what only its submitter knows.
pub fn environment(options: &JobOptions, caller: &Caller) -> Result<Vec<(String, String)>, SubmissionError> {
    options.export.as_deref().map_or(Ok(()), export::check_job)?;
    let mut environment =
        export::select(options.export.as_deref(), &caller.environment, Of::Job { speaks_slurm: options.slurm_env })?;
    let mut set = |name: &str, value: String| {
        // Variables given by --export take precedence.
        if !environment.iter().any(|(given, _)| given == name) {
            environment.push((name.to_owned(), value));
        }
    };
    // With --chdir, the job may be submitted from a directory that cannot be named to it.
    let submit_dir = caller.cwd.to_str();
    submit_dir.into_iter().for_each(|dir| set(variables::SUBMIT_DIR, dir.to_owned()));
    set(variables::SUBMIT_HOST, caller.node.clone());
    if options.slurm_env {
        set(variables::SLURM, "1".to_owned());
        submit_dir.into_iter().for_each(|dir| set("SLURM_SUBMIT_DIR", dir.to_owned()));
        set("SLURM_SUBMIT_HOST", caller.node.clone());
        if let Some(cpus) = options.cpus_per_task {
            set("SLURM_CPUS_PER_TASK", cpus.to_string());
        }
        if let Some(per_node) = options.tasks_per_node {
            set("SLURM_NTASKS_PER_NODE", per_node.to_string());
        }
        if let Some(memory) = options.mem.filter(|memory| memory.0.0 > 0) {
            set("SLURM_MEM_PER_NODE", memory.0.0.to_string());
        }
        let resources = &options.resources;
        if let Some(memory) = resources.mem_per_cpu {
            set("SLURM_MEM_PER_CPU", memory.0.0.to_string());
        }
        for (name, gpus) in [("SLURM_GPUS", &resources.gpus), ("SLURM_GPUS_PER_NODE", &resources.gpus_per_node)] {
            if let Some(gpus) = gpus {
                set(name, gpus.to_string());
            }
        }
        if let Some(account) = &options.account {
            set("SLURM_JOB_ACCOUNT", account.clone());
        }
        // If an option is given twice, the last one counts.
        for (name, value) in options.slurm.iter().rev() {
            set(name, value.clone());
        }
    }
    environment.sort();
    Ok(environment)
}

/// Returns what `--profile` and related flags announce.
pub fn announced(options: &JobOptions, caller: &Caller) -> Result<Option<Evolving>, SubmissionError> {
    let Some(profile) = &options.profile else {
        let flags = [
            (options.expand.is_some(), "expand"),
            (options.compact, "compact"),
            (options.rigid, "rigid"),
            (options.open, "open"),
        ];
        let stray = flags.into_iter().find(|(is_given, _)| *is_given);
        return stray.map_or(Ok(None), |(_, flag)| Err(SubmissionError::NoProfile(flag)));
    };
    let announced = profile.read(&caller.cwd)?;
    let limit = options.expand.or(announced.expand).unwrap_or(Expansion::default().limit);
    let expansion = Expansion { limit, compacting: options.compact || announced.compact };
    Ok(Some(Evolving { stages: announced.stages, expansion, open: options.open || announced.open }))
}

/// Checks that workers are tasks, as a script runs only once.
fn check_workers(malleable: Option<&Malleable>, work: &Work) -> Result<(), MalleableError> {
    let has_workers = malleable.is_some_and(|malleable| malleable.on_resize == OnResize::Workers);
    match work {
        Work::Script { .. } | Work::Nodes if has_workers => Err(MalleableError::Script),
        Work::Script { .. } | Work::Nodes | Work::Tasks { .. } => Ok(()),
    }
}

fn n_tasks(options: &JobOptions, evolving: Option<&Evolving>) -> Result<Option<u32>, SubmissionError> {
    let Some(per_node) = options.tasks_per_node else {
        return Ok(options.tasks);
    };
    if options.shapes.is_some() {
        return Err(SubmissionError::PerNodeOfRange);
    }
    // For a profile the server counts the tasks on each node, starting from those of its first stage.
    let first = evolving.and_then(|evolving| evolving.stages.stages().first()).map(|first| first.nodes);
    let n_nodes = match &options.nodes {
        None if first.is_some() => first.unwrap_or(1),
        Some(nodes) => nodes.fixed().ok_or(SubmissionError::PerNodeOfRange)?,
        None => options.tasks.unwrap_or(per_node).div_ceil(per_node),
    };
    let most = per_node.checked_mul(n_nodes).ok_or(SubmissionError::TooManyTasks { per_node, n_nodes })?;
    match options.tasks {
        Some(n_tasks) if n_tasks > most => Err(SubmissionError::TasksDoNotFit { n_tasks, per_node, n_nodes }),
        Some(n_tasks) => Ok(Some(n_tasks)),
        None => Ok(Some(most)),
    }
}

/// Adds the number of nodes, if the nodes are named and nothing says how many of them: all, if there are enough tasks.
fn on_all_named(mut options: JobOptions) -> JobOptions {
    let has_no_size = options.nodes.is_none()
        && options.shapes.is_none()
        && options.profile.is_none()
        && options.malleable.malleable.is_none();
    if let Some(NodeNames(names)) = options.nodelist.as_ref().filter(|_| has_no_size) {
        let n_named = names.len() as u32;
        options.nodes = Some(NodeCount::Exactly(options.tasks.map_or(n_named, |n_tasks| n_tasks.min(n_named))));
    }
    options
}

/// Checks that each node has at least one task.
fn check_nodes(options: &JobOptions, n_nodes: Option<u32>) -> Result<(), SubmissionError> {
    match (options.tasks, n_nodes) {
        (Some(n_tasks), Some(n_nodes)) if n_tasks < n_nodes => {
            Err(SubmissionError::FewerTasksThanNodes { n_tasks, n_nodes })
        }
        _ => Ok(()),
    }
}

/// Returns the working directory as an absolute path: the server has no directory to which a relative one could refer.
fn directory(chdir: Option<&str>, cwd: &Path) -> Result<String, SubmissionError> {
    let path = chdir.map_or_else(|| cwd.to_owned(), |dir| cwd.join(dir));
    path.to_str().map(str::to_owned).ok_or_else(|| SubmissionError::OddDirectory(path.to_string_lossy().into_owned()))
}

#[cfg(test)]
mod tests {
    use rms_model::{Inherited, Limits, Span, Time};

    use super::*;

    fn caller() -> Caller {
        Caller {
            cwd: "/home/ada".into(),
            node: "login1".into(),
            environment: vec![("PATH".into(), "/bin".into())],
            inherited: Inherited { umask: 0o022, limits: Limits::default() },
            now: Time::from_secs(1000),
        }
    }

    fn order(output: Output) -> Order {
        Order {
            work: Work::Tasks { argv: vec!["true".into()] },
            name: "true".into(),
            output,
            test_only: false,
            script: None,
        }
    }

    fn submission(options: JobOptions) -> Submission {
        build(options, order(Output::File), &caller(), 4).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn a_directory_that_is_no_text_is_left_by_chdir() {
        use std::os::unix::ffi::OsStringExt;
        let here = Caller { cwd: std::ffi::OsString::from_vec(b"/d\xff".to_vec()).into(), ..caller() };
        let error = build(JobOptions::default(), order(Output::File), &here, 4).expect_err("the job would run there");
        assert!(error.to_string().contains("--chdir"), "{error}");
        let options = JobOptions { chdir: Some("/tmp".to_owned()), ..JobOptions::default() };
        let submission = build(options, order(Output::File), &here, 4).expect("it runs elsewhere");
        assert_eq!(submission.execution.cwd, "/tmp");
        assert!(submission.execution.environment.0.iter().all(|(name, _)| name != variables::SUBMIT_DIR));
    }

    #[test]
    fn each_node_has_the_cpus_that_are_asked_for() {
        let asked = submission(JobOptions { mincpus: Some(16), ..JobOptions::default() });
        assert_eq!((asked.constraint.cpus, asked.cpus_per_task), (16, submission(JobOptions::default()).cpus_per_task));
    }

    #[test]
    fn nothing_said_is_the_least_job() {
        let submission = submission(JobOptions::default());
        assert!(submission.shapes.is_empty());
        assert_eq!(submission.n_tasks, None);
        assert_eq!(submission.execution.cwd, "/home/ada");
        assert_eq!(submission.execution.stdio.output.as_deref(), Some(DEFAULT_OUTPUT));
        assert_eq!(submission.labels.name, "true");
    }

    #[test]
    fn sizes_become_shapes() {
        let hour = Some(Span::from_hours(1));
        let options = JobOptions { nodes: "3+".parse().ok(), time: hour, ..JobOptions::default() };
        let shape = |n_nodes| Shape { nodes: Nodes::Count(n_nodes), wall: hour };
        assert_eq!(submission(options).shapes, [shape(4), shape(3)]);
        let options = JobOptions { time: hour, tasks: Some(5), ..JobOptions::default() };
        assert_eq!(submission(options).shapes, [Shape { nodes: Nodes::FromTasks, wall: hour }]);
    }

    #[test]
    fn a_job_that_names_nodes_has_all_of_them_unless_it_says_how_many() {
        let on = |nodelist: &str, options: JobOptions| {
            let nodelist = Some(nodelist.parse().expect("a list of nodes"));
            submission(JobOptions { nodelist, ..options })
        };
        let count = |n_nodes| [Shape { nodes: Nodes::Count(n_nodes), wall: None }];
        let named = on("n[1-3],n2", JobOptions::default());
        assert_eq!(named.shapes, count(3));
        assert_eq!(named.constraint.nodelist, ["n1", "n2", "n3"].map(str::to_owned).into());
        let with = |nodes: Option<&str>, tasks, tasks_per_node| JobOptions {
            nodes: nodes.and_then(|nodes| nodes.parse().ok()),
            tasks,
            tasks_per_node,
            ..JobOptions::default()
        };
        assert_eq!(on("n[1-3]", with(Some("2"), None, None)).shapes, count(2));
        assert_eq!(on("n[1-3]", with(None, Some(8), None)).shapes, count(3));
        assert_eq!(on("n[1-3]", with(None, Some(1), None)).shapes, count(1));
        let each = on("n[1-3]", with(None, None, Some(2)));
        assert_eq!((each.shapes.as_slice(), each.n_tasks), (count(3).as_slice(), Some(6)));
        let exclude = Some("n7".parse().expect("a list of nodes"));
        let not = submission(JobOptions { exclude, ..JobOptions::default() });
        assert_eq!((not.shapes.len(), not.constraint.exclude), (0, ["n7".to_owned()].into()));
    }

    #[test]
    fn tasks_on_each_node_need_a_fixed_number_of_nodes() {
        let per_node =
            |nodes: &str| JobOptions { nodes: nodes.parse().ok(), tasks_per_node: Some(3), ..JobOptions::default() };
        assert_eq!(submission(per_node("4")).n_tasks, Some(12));
        assert_eq!(submission(per_node("a:1,b:1")).n_tasks, Some(6));
        let both = |nodes: Option<&str>, tasks, per_node| {
            let nodes = nodes.and_then(|nodes| nodes.parse().ok());
            let (tasks, tasks_per_node) = (Some(tasks), Some(per_node));
            JobOptions { nodes, tasks, tasks_per_node, ..JobOptions::default() }
        };
        let shape = |n_nodes| vec![Shape { nodes: Nodes::Count(n_nodes), wall: None }];
        // At most that many on a node, as under Slurm: without -N, as many nodes as that requires.
        let four = submission(both(None, 4, 1));
        assert_eq!((four.n_tasks, four.shapes), (Some(4), shape(4)));
        let five = submission(both(None, 5, 2));
        assert_eq!((five.n_tasks, five.shapes), (Some(5), shape(3)));
        let four = submission(both(Some("4"), 4, 2));
        assert_eq!((four.n_tasks, four.shapes), (Some(4), shape(4)));
        let error = build(both(Some("2"), 4, 1), order(Output::File), &caller(), 4);
        assert_eq!(error, Err(SubmissionError::TasksDoNotFit { n_tasks: 4, per_node: 1, n_nodes: 2 }));
        let shapes = JobOptions { shapes: "2x1h".parse().ok(), ..JobOptions::default() };
        let error = build(shapes.over(per_node("4")), order(Output::File), &caller(), 4);
        assert_eq!(error, Err(SubmissionError::PerNodeOfRange));
        let error = build(per_node("1-4"), order(Output::File), &caller(), 4);
        assert_eq!(error, Err(SubmissionError::PerNodeOfRange));
        let error = build(per_node("4000000000"), order(Output::File), &caller(), 4);
        assert!(matches!(error, Err(SubmissionError::TooManyTasks { .. })));
    }

    #[test]
    fn a_node_without_a_task_is_refused() {
        let error = |nodes: &str, tasks| {
            let options = JobOptions { nodes: nodes.parse().ok(), tasks: Some(tasks), ..JobOptions::default() };
            build(options, order(Output::File), &caller(), 4).err()
        };
        assert_eq!(error("2", 1), Some(SubmissionError::FewerTasksThanNodes { n_tasks: 1, n_nodes: 2 }));
        assert_eq!(error("a:2,b:2", 3), Some(SubmissionError::FewerTasksThanNodes { n_tasks: 3, n_nodes: 4 }));
        assert_eq!((error("2", 2), error("1-2", 1)), (None, None));
    }

    #[test]
    fn what_it_takes_of_its_nodes_is_asked_for_and_told_in_slurms_words() {
        let resources = crate::directive::parse_options(&[
            "--gpus=a100:4".to_owned(),
            "--mem-per-cpu=2G".to_owned(),
            "--slurm-env".to_owned(),
            "-N2".to_owned(),
            "--tasks-per-node=3".to_owned(),
        ]);
        let submission = submission(resources.expect("they are right"));
        let asked = &submission.resources;
        assert_eq!((asked.tasks_per_node, asked.memory_per_cpu), (3, Mebibytes(2048)));
        assert_eq!(asked.devices_in_all.to_string(), "gpu:a100:4");
        for (name, value) in [("SLURM_GPUS", "a100:4"), ("SLURM_MEM_PER_CPU", "2048")] {
            assert!(submission.execution.environment.0.contains(&(name.to_owned(), value.to_owned())), "{name}");
        }
    }

    #[test]
    fn output_is_streamed_unless_a_file_is_named() {
        let stdio = |options| build(options, order(Output::Stream), &caller(), 4).expect("it is right").execution.stdio;
        let streamed = stdio(JobOptions::default());
        assert_eq!((streamed.stream, streamed.output), (true, None));
        let to_file = stdio(JobOptions { output: Some("x".into()), ..JobOptions::default() });
        assert_eq!((to_file.stream, to_file.output.as_deref()), (false, Some("x")));
    }

    #[test]
    fn the_submitters_words_travel_in_the_environment() {
        let has = |options: JobOptions, name: &str| {
            let environment = submission(options).execution.environment.0.clone();
            environment.into_iter().find(|(given, _)| given == name).map(|(_, value)| value)
        };
        let slurm = |account: &str| vec![("SLURM_JOB_ACCOUNT".to_owned(), account.to_owned())];
        let plain = || JobOptions { slurm: slurm("a"), ..JobOptions::default() };
        let told = || JobOptions { slurm_env: true, chdir: Some("/tmp".into()), ..plain() };
        assert_eq!(has(plain(), "RMS_SUBMIT_DIR").as_deref(), Some("/home/ada"));
        assert_eq!((has(plain(), "SLURM_SUBMIT_DIR"), has(plain(), "SLURM_JOB_ACCOUNT")), (None, None));
        assert_eq!(has(told(), "SLURM_SUBMIT_DIR").as_deref(), Some("/home/ada"));
        assert_eq!(has(told(), "SLURM_SUBMIT_HOST").as_deref(), Some("login1"));
        let later = || JobOptions { slurm: slurm("b"), ..JobOptions::default() }.over(told());
        assert_eq!(has(later(), "SLURM_JOB_ACCOUNT").as_deref(), Some("b"));
        let given = JobOptions { export: Some("ALL,SLURM_JOB_ACCOUNT=c".into()), ..later() };
        assert_eq!(has(given, "SLURM_JOB_ACCOUNT").as_deref(), Some("c"));
    }

    #[test]
    fn the_higher_source_says_whether_it_runs_again() {
        let yes = || JobOptions { requeue: true, ..JobOptions::default() };
        let no = || JobOptions { no_requeue: true, ..JobOptions::default() };
        assert_eq!(submission(JobOptions::default()).requeue, None);
        assert_eq!(submission(yes().over(no())).requeue, Some(true));
        assert_eq!(submission(no().over(yes())).requeue, Some(false));
        assert_eq!(submission(JobOptions::default().over(no())).requeue, Some(false));
    }

    #[test]
    fn relative_directories_start_here() {
        let chdir =
            |dir: &str| submission(JobOptions { chdir: Some(dir.into()), ..JobOptions::default() }).execution.cwd;
        assert_eq!(chdir("run"), "/home/ada/run");
        assert_eq!(chdir("/tmp"), "/tmp");
    }
}
