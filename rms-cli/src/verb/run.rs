//! `rms run`: runs a program on the nodes as if it ran here: output, input, signals and exit code.

use std::time::Duration;

use launcher_sdk::{Client, Follow, FollowEvent, Missing};
use node_agent::rsh::Input;
use rms_api::answer::{JobChange, JobLine, JobState};
use rms_api::call::Select;
use rms_model::{JobId, Outcome, Time, Work, hostlist};
use serde_json::json;

use crate::agent;
use crate::collected::Collected;
use crate::context::Context;
use crate::exit_code;
use crate::failure::{Exit, Failure};
use crate::interrupt::{Interrupt, Interrupts};
use crate::job_options::{JobOptions, NodeNames, OpenMode};
use crate::json;
use crate::lines::Streams;
use crate::missing;
use crate::notice::WaitNotice;
use crate::orders::{JobOrder, Orders, Underway};
use crate::output::{self, Form, GONE};
use crate::request_job::{self, Requested};
use crate::script::Script;
use crate::signal;
use crate::size::NodeCount;
use crate::stdin;
use crate::step::{self, Wanted};
use crate::step_files::Target;
use crate::submission::{Order, Output};
use crate::verb::queue;

#[derive(clap::Args, Debug)]
#[command(
    args_override_self = true,
    after_help = "\
The output of all tasks is printed here as it is written, even if the server is
restarted meanwhile. Standard input goes to task 0 unless it is a terminal.
Ctrl-C asks the job to end (TERM, and KILL after the grace time), a second one
kills it, and a third stops waiting for its end. TERM, HUP, QUIT, USR1 and USR2
are forwarded to its tasks; before these run, each of them ends the job.

Inside a job, this starts a step of it: tasks on the job's own nodes, all of
them or those that -N, -n, -c, -w and --tasks-per-node ask for. It waits for no
other job; several steps may run side by side. Ctrl-C, TERM and -t end the step,
not the job. --new-job starts a job of its own, as outside.

Examples:
  rms run hostname                         one task on one node
  rms run -N 2 -n 4 ./mpi_program          four ranks on two nodes
  rms run -N 4 -l uptime                   label each line with its task
  rms run -N 1 sort < big.txt              input from a file
  rms run --malleable 2-8 --workers ./worker
                                           on two to eight nodes, as many as are
                                           idle
  rms run -t 30s -- ./program --flag       '--' ends the flags of rms

Exit codes:
  the highest of the tasks' codes; 128 + signal if a signal ended one
  74   the job ended with 0, but some output is missing: an agent did not
       come back within node_lost_after, or its disk was full or damaged;
       or the output could not be written here, and the job was ended
  75   the link to the server broke while the job was submitted: 'rms queue'
       and 'rms history' show whether it was
  143  it was cancelled, or its wall time was over
  141  who reads its output here had gone, and the job was ended
  130  it was ended by Ctrl-C
  125  the system lost it or could not start it
  1    it was refused
  2    a flag is wrong"
)]
pub struct Args {
    #[command(flatten)]
    options: JobOptions,
    /// Label each line with the number of its task
    #[arg(short, long, help_heading = "What runs")]
    label: bool,
    /// Forward standard input even if it is a terminal
    #[arg(long, conflicts_with = "no_stdin", help_heading = "What runs")]
    stdin: bool,
    /// Do not give the tasks standard input
    #[arg(long, help_heading = "What runs")]
    no_stdin: bool,
    /// Inside a job: start a job of its own instead of a step
    #[arg(long, help_heading = "Inside a job")]
    new_job: bool,
    /// Only say when it would start; run nothing
    #[arg(long, help_heading = "Where and when")]
    test_only: bool,
    /// The program and its arguments
    // Without `allow_hyphen_values`: everything from the program on belongs to it anyway, and before it everything that
    // looks like a flag is one, `-N2` as well as a mistyped `--lable`.
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND", help_heading = "What runs")]
    command: Vec<String>,
}

pub async fn run(mut args: Args, context: &Context) -> Result<Exit, Failure> {
    if args.command.first().is_some_and(String::is_empty) {
        return Err(Failure::usage("the name of the program is empty"));
    }
    let script = Script::named_by(&args.command[0])?;
    let socket = agent::socket().filter(|_| !args.new_job);
    if let Some(socket) = socket {
        return step::run(as_step(args)?, &socket, context.output.form()).await;
    }
    // Installed before the job exists, so that no signal is missed.
    let mut interrupts = Interrupts::listen()?;
    let wants_input = args.stdin || (!args.no_stdin && !stdin::is_terminal());
    let has_input = wants_input && args.options.input.is_none();
    if !has_input {
        // Otherwise task 0 would wait for the end of what nobody sends.
        args.options.input.get_or_insert_with(|| "/dev/null".to_owned());
    }
    let has_file = args.options.output.is_some();
    let name = args.command[0].rsplit('/').next().unwrap_or_default().to_owned();
    let work = Work::Tasks { argv: args.command };
    let order = Order { work, name, output: Output::Stream, test_only: args.test_only, script };
    let client = context.client().await?;
    let job = match request_job::request(&client, context, args.options, order).await? {
        Requested::Job(job) => job,
        answer @ Requested::WouldStart { .. } => {
            context.output.show(&answer)?;
            return Ok(Exit::OK);
        }
    };
    let mut follow = client.follow(job, has_input);
    if has_input {
        stdin::forward(follow.input());
    }
    let mut running = Running { has_file, ..Running::new(job, client.clone(), context.output.form(), args.label) };
    let exit = context.tell_absence(&client, running.attend(&mut follow, &mut interrupts)).await?;
    running.report(exit)?;
    Ok(exit)
}

/// Checks whether a step inside a job can have these options.
///
/// # Errors
/// An option that only a separate job can have is given.
pub fn check_step(args: Args) -> Result<(), Failure> {
    if args.new_job { Ok(()) } else { as_step(args).map(drop) }
}

/// Converts the options of a job to those of a step.
fn as_step(args: Args) -> Result<Wanted, Failure> {
    let Args { mut options, label, stdin, no_stdin, new_job: _, test_only, command } = args;
    let no = |what: &str| {
        Failure::usage(format!("{what} is not possible for a step inside a job"))
            .hint("leave it out: the step has what the job has; or make a job of its own with --new-job")
    };
    if test_only {
        return Err(no("--test-only"));
    }
    let nodes = match options.nodes.take() {
        None => None,
        Some(NodeCount::Exactly(n_nodes)) => Some((n_nodes, n_nodes)),
        Some(NodeCount::Range { min, max, step: 1 }) => Some((min, max)),
        Some(NodeCount::AtLeast(min)) => Some((min, u32::MAX)),
        Some(NodeCount::Range { .. } | NodeCount::PerCluster(_)) => return Err(no("--nodes in steps or by cluster")),
    };
    let wants_input = stdin || (!no_stdin && (options.input.is_some() || !stdin::is_terminal()));
    let names = |names: Option<NodeNames>| names.map(|names| names.0).unwrap_or_default();
    let wanted = Wanted {
        program: "rms",
        argv: command,
        export: options.export.take(),
        chdir: options.chdir.take(),
        nodes,
        tasks: options.tasks.take(),
        tasks_per_node: options.tasks_per_node.take(),
        cpus_per_task: options.cpus_per_task.take(),
        named: names(options.nodelist.take()),
        excluded: names(options.exclude.take()),
        overcommit: std::mem::take(&mut options.overcommit),
        exclusive: std::mem::take(&mut options.resources.exclusive),
        time: options.time.take(),
        label,
        input: if wants_input { Input::First } else { Input::None },
        input_file: options.input.take(),
        output: options.output.take().map(|name| Target::parse(&name)).transpose()?.unwrap_or_default(),
        error: options.error.take().map(|name| Target::parse(&name)).transpose()?,
        append: options.open_mode.take() == Some(OpenMode::Append),
        ..Wanted::default()
    };
    // A name distinguishes jobs; steps are not listed.
    options.name = None;
    let rest = [
        ("--mem", options.mem.is_some()),
        (
            "an option of the job's nodes (--gpus, --gres, --mem-per-cpu, --hint, …)",
            options.resources != Default::default(),
        ),
        ("--constraint", options.constraint.is_some()),
        ("--clusters", options.clusters.is_some()),
        ("--begin", options.begin.is_some()),
        ("--priority", options.priority.is_some()),
        ("a malleable size", options.malleable.is_some()),
        ("--shapes", options.shapes.is_some()),
        ("--profile", options.profile.is_some()),
        ("--malleable-threads", options.malleable_threads),
        ("an option of jobs alone (--hold, --requeue, --comment, --amdahl, …)", options != JobOptions::default()),
    ];
    match rest.into_iter().find(|(_, is_there)| *is_there) {
        Some((what, _)) => Err(no(what)),
        None => Ok(wanted),
    }
}

/// A job that is attached to this terminal.
struct Running {
    job: JobId,
    client: Client,
    orders: Orders,
    form: Form,
    streams: Streams,
    /// For `--json`, which prints one value at the end.
    collected: Collected,
    last: Option<JobChange>,
    /// Whether the user has asked the job to end.
    is_interrupted: bool,
    is_killed: bool,
    /// Whether the reader of the output has closed it, which ends a program by SIGPIPE.
    is_unread: bool,
    /// Whether it cannot be written for another reason.
    is_unwritable: bool,
    /// Whether the job writes to a file: nodes keep no output of it, and forget it at its end.
    has_file: bool,
    notice: WaitNotice,
    missing: Vec<Missing>,
}

impl Running {
    fn new(job: JobId, client: Client, form: Form, label: bool) -> Running {
        Running {
            job,
            orders: Orders::new(client.clone(), job),
            client,
            form,
            streams: Streams::new(label),
            collected: Collected::default(),
            last: None,
            is_interrupted: false,
            is_killed: false,
            is_unread: false,
            is_unwritable: false,
            has_file: false,
            notice: WaitNotice::default(),
            missing: Vec::new(),
        }
    }

    async fn attend(&mut self, follow: &mut Follow, interrupts: &mut Interrupts) -> Result<Exit, Failure> {
        let mut look = tokio::time::interval_at(tokio::time::Instant::now() + FIRST_LOOK, LOOK_AGAIN);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        // The query runs concurrently: nothing that arrives meanwhile waits for its answer.
        let mut why: Option<Underway<Option<(JobLine, Time)>>> = None;
        loop {
            let waits = self.form == Form::Text && self.last.as_ref().is_none_or(|change| is_waiting(change.state));
            tokio::select! {
                event = follow.next() => match event? {
                    Some(FollowEvent::Output { task: _, stream, bytes, node_idx: _ }) if self.form == Form::Json => {
                        self.collected.add(stream, &bytes);
                    }
                    Some(FollowEvent::Output { task, stream, bytes, node_idx: _ }) => {
                        if !self.is_unread {
                            let written = self.streams.write(task, stream, &bytes);
                            self.check_reader(written);
                        }
                    }
                    Some(FollowEvent::Change(change)) => self.changed(change),
                    Some(FollowEvent::Missing(_)) if self.has_file => {}
                    Some(FollowEvent::Missing(missing)) => self.missing.push(missing),
                    Some(FollowEvent::Away { node, at_most }) => missing::tell_away(self.job, &node, at_most, self.form),
                    None => break,
                },
                () = self.streams.due() => {
                    let written = self.streams.show_beginnings();
                    self.check_reader(written);
                }
                interrupt = interrupts.next() => {
                    if let Some(exit) = self.leaves(&interrupt) {
                        return self.leave(exit);
                    }
                    self.interrupted(interrupt);
                }
                _ = look.tick(), if waits && why.is_none() => {
                    why = Some(Box::pin(why_it_waits(self.client.clone(), self.job)));
                }
                answer = asked(&mut why), if why.is_some() => {
                    why = None;
                    if let Some((line, now)) = answer.filter(|_| waits) {
                        self.notice.show(self.job, &line, now);
                    }
                }
                done = self.orders.next(), if !self.orders.is_empty() => done?,
            }
        }
        let flushed = self.streams.finish();
        self.check_reader(flushed);
        let exit = self.ended()?;
        Ok(if self.is_short() { self.short(exit) } else { exit })
    }

    /// Returns the exit code if the user leaves, which is possible once the end of the job is certain, or if the server
    /// does not answer: then only the wait for it and for its output ends.
    fn leaves(&self, interrupt: &Interrupt) -> Option<Exit> {
        let is_certain = self.last.as_ref().is_some_and(|change| change.outcome.is_some());
        if !is_certain && !self.orders.are_unanswered() {
            return None;
        }
        match interrupt {
            // A job that is being ended may still be killed.
            Interrupt::CtrlC => (self.is_over() || self.is_killed).then_some(BY_INTERRUPT),
            Interrupt::Signal(HANGUP) => Some(Exit(129)),
            Interrupt::Signal(TERM) => Some(Exit(143)),
            Interrupt::Signal(_) => None,
        }
    }

    fn is_over(&self) -> bool {
        self.last.as_ref().is_some_and(|change| !queue::is_active(change.state))
    }

    fn leave(&mut self, exit: Exit) -> Result<Exit, Failure> {
        let flushed = self.streams.finish();
        self.check_reader(flushed);
        let job = self.job;
        output::warn(&match self.is_over() {
            true => format!("rms: job {job} has ended, but not all of its output has come; 'rms logs {job}' shows it"),
            false if self.orders.are_unanswered() => {
                format!(
                    "rms: the server does not answer, so job {job} may go on; 'rms show {job}' says so once it does"
                )
            }
            false => format!("rms: job {job} is still being ended; 'rms show {job}' says where"),
        });
        Ok(exit)
    }

    /// Returns whether some output of the job is missing. A job that never started has written nothing.
    fn is_short(&self) -> bool {
        let outcome = self.last.as_ref().and_then(|change| change.outcome.as_ref());
        let is_started = !matches!(outcome, Some(Outcome::NotStarted { .. }));
        is_started && !self.is_unread && !self.missing.is_empty()
    }

    fn short(&self, exit: Exit) -> Exit {
        if self.form == Form::Text {
            missing::tell(self.job, &self.missing);
        }
        missing::exit(exit)
    }

    fn changed(&mut self, change: JobChange) {
        // A job that waits for its first run has no run yet.
        let is_new_run = self.last.as_ref().is_some_and(|last| last.run.0 != 0 && last.run != change.run);
        if is_new_run && self.form == Form::Text {
            output::warn(&format!("rms: job {} lost a node and is started again", self.job));
        }
        if !is_waiting(change.state) {
            self.notice.clear();
        }
        self.orders.submitted = change.submitted;
        self.last = Some(change);
    }

    /// Ends the job if its output cannot be written: as SIGPIPE ends a program whose reader has gone, and as a program
    /// that fails where the disk is full or the terminal is closed.
    fn check_reader(&mut self, written: Result<(), Failure>) {
        let Err(failure) = written else { return };
        if self.is_unread {
            return;
        }
        if failure.kind != GONE {
            output::warn(&format!("rms: {}: job {} is ended", failure.message, self.job));
            self.is_unwritable = true;
        }
        self.is_unread = true;
        self.cancel();
    }

    fn interrupted(&mut self, interrupt: Interrupt) {
        self.notice.clear();
        let signal = match interrupt {
            Interrupt::CtrlC => return self.ctrl_c(),
            Interrupt::Signal(signal) => signal,
        };
        let has_tasks = self.last.as_ref().is_some_and(|change| change.state == JobState::Started);
        if has_tasks {
            return self.signal(signal);
        }
        // No task runs yet that could be signalled. Each of these signals ends a program by default, so it ends the
        // job.
        if self.last.as_ref().is_none_or(|change| is_waiting(change.state)) {
            output::warn(&format!("rms: ending job {}: {} came before its tasks", self.state(), signal::name(signal)));
        }
        self.cancel();
    }

    fn ctrl_c(&mut self) {
        if self.is_interrupted {
            output::warn(&format!("rms: job {} gets KILL", self.job));
            self.is_killed = true;
            return self.signal(KILL);
        }
        self.is_interrupted = true;
        output::warn(&format!("rms: ending job {}; Ctrl-C again kills it", self.state()));
        self.cancel();
    }

    fn state(&self) -> String {
        match &self.last {
            Some(change) if !change.nodes.is_empty() => {
                format!("{}, {} on {}", self.job, change.state.word(), hostlist::fold(&change.nodes))
            }
            Some(change) => format!("{}, {}", self.job, change.state.word()),
            None => format!("{}, submitted", self.job),
        }
    }

    fn cancel(&mut self) {
        self.orders.send(JobOrder::Cancel);
    }

    fn signal(&mut self, signal: i32) {
        self.orders.send(JobOrder::Signal(signal));
    }

    fn report(&self, exit: Exit) -> Result<(), Failure> {
        if self.form != Form::Json {
            return Ok(());
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let value = json!({
            "job": self.job.0,
            "nodes": self.last.as_ref().map(|change| change.nodes.clone()).unwrap_or_default(),
            "outcome": json::outcome(self.last.as_ref().and_then(|change| change.outcome.as_ref())),
            "exit": exit.0,
            "stdout": text(&self.collected.out),
            "stderr": text(&self.collected.err),
            "truncated": self.collected.is_truncated,
            "missing": missing::to_json(&self.missing),
        });
        let is_gone = |failure: &Failure| failure.exit == Exit::OK;
        output::write_out(format!("{value}\n").as_bytes()).map_err(|failure| match is_gone(&failure) {
            true => failure,
            false => failure.exit(Exit::OUTPUT_MISSING),
        })
    }

    fn ended(&self) -> Result<Exit, Failure> {
        let outcome = self.last.as_ref().and_then(|change| change.outcome.as_ref());
        let Some(outcome) = outcome else {
            let failure =
                Failure::new("lost_sight", format!("connection lost: the state of job {} is unknown", self.job));
            return Err(failure
                .hint(format!("'rms show {}' shows it when the server can be reached again", self.job))
                .exit(Exit::SYSTEM));
        };
        if self.is_unread {
            return Ok(if self.is_unwritable { Exit::OUTPUT_MISSING } else { BY_PIPE });
        }
        let is_worth_words = match outcome {
            Outcome::Completed | Outcome::Failed { .. } => false,
            Outcome::Cancelled { .. } => !self.is_interrupted,
            Outcome::Signaled { .. }
            | Outcome::WallTime
            | Outcome::NodeLost { .. }
            | Outcome::LauncherLost
            | Outcome::NotStarted { .. }
            | Outcome::Violation { .. }
            | Outcome::OutOfMemory { .. }
            | Outcome::Unsupervised { .. }
            | Outcome::StageLate { .. } => true,
        };
        if is_worth_words && self.form == Form::Text {
            output::warn(&format!("rms: job {}: {outcome}", self.job));
        }
        let exit = exit_code::of(outcome);
        let by_ctrl_c = self.is_interrupted && matches!(outcome, Outcome::Cancelled { .. });
        Ok(if by_ctrl_c { BY_INTERRUPT } else { exit })
    }
}

fn is_waiting(state: JobState) -> bool {
    match state {
        JobState::Submitted | JobState::Held | JobState::RequestSent | JobState::Waiting => true,
        JobState::Started | JobState::Ending | JobState::Ghost | JobState::Finished => false,
    }
}

/// Returns why a job waits and until when, if the server answers in time.
async fn why_it_waits(client: Client, job: JobId) -> Option<(JobLine, Time)> {
    let explained = client.explain(Select::Ids(vec![job]));
    let explained = tokio::time::timeout(EXPLAIN_WITHIN, explained).await.ok()?.ok()?;
    let line = explained.jobs.into_iter().next().map(|detail| detail.line)?;
    is_waiting(line.state).then_some((line, explained.now))
}

/// Waits for the answer to a query; waits forever if there is no query.
async fn asked<T>(question: &mut Option<Underway<Option<T>>>) -> Option<T> {
    match question {
        Some(question) => question.await,
        None => std::future::pending().await,
    }
}

/// When to query the reason for the first time, and how often: a user who waits this long wants to know it.
const FIRST_LOOK: Duration = Duration::from_millis(1500);
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// How long to wait for the reason: a later answer is useless.
const EXPLAIN_WITHIN: Duration = Duration::from_millis(500);

const HANGUP: i32 = 1;
const KILL: i32 = 9;
const TERM: i32 = 15;
/// 128 + PIPE.
const BY_PIPE: Exit = Exit(141);
/// 128 + INT.
const BY_INTERRUPT: Exit = Exit(130);
