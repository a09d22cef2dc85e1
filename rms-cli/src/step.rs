//! A step of the surrounding job, as started by `rms run` and `srun`: its nodes, output, input, signals and exit code.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use launcher_sdk::Stream;
use node_agent::frame::{self, Frame};
use node_agent::rsh::{Call, CommandEnd, INPUT_WINDOW, Input, STDERR, STDIN, STDOUT, Say, StepRequest};
use rms_model::Span;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::agent::{self, FromAgent, ToAgent};
use crate::caller::Caller;
use crate::collected::Collected;
use crate::export::{self, Of};
use crate::failure::{Exit, Failure};
use crate::interrupt::{Interrupt, Interrupts};
use crate::lines::Streams;
use crate::output::{self, Form, GONE};
use crate::step_files::{StepFiles, Target};

/// The options of a step.
#[derive(Debug, Default)]
pub struct Wanted {
    /// The command that was typed; messages begin with it.
    pub program: &'static str,
    pub argv: Vec<String>,
    /// The environment of the tasks, as for a job.
    pub export: Option<String>,
    pub chdir: Option<String>,
    pub nodes: Option<(u32, u32)>,
    pub tasks: Option<u32>,
    pub tasks_per_node: Option<u32>,
    pub cpus_per_task: Option<u32>,
    pub named: Vec<String>,
    pub excluded: Vec<String>,
    pub first_node: u32,
    pub overcommit: bool,
    pub exclusive: bool,
    pub kill_on_bad_exit: bool,
    pub time: Option<Span>,
    pub label: bool,
    /// The tasks that read the input.
    pub input: Input,
    /// The input file, if the input is not the standard input.
    pub input_file: Option<String>,
    /// Whether to report how each failed task ended.
    pub reports_failures: bool,
    pub output: Target,
    /// The target of the standard error; absent for that of the output.
    pub error: Option<Target>,
    /// Whether to append to existing files.
    pub append: bool,
}

/// Runs a step to its end.
///
/// # Errors
/// Values are wrong, or the agent does not answer or refuses.
pub async fn run(wanted: Wanted, socket: &Path, form: Form) -> Result<Exit, Failure> {
    // Installed before the step exists, so that no signal is missed.
    let mut interrupts = Interrupts::listen()?;
    let caller = Caller::read()?;
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let files = StepFiles {
        error: wanted.error.unwrap_or_else(|| wanted.output.clone()),
        output: wanted.output,
        append: wanted.append,
        cwd: caller.cwd.clone(),
        job: variable("RMS_JOB_ID").parse().unwrap_or_default(),
        job_name: variable("RMS_JOB_NAME"),
        user: variable("USER"),
        step: 0,
        nodes: Vec::new(),
        n_tasks: Vec::new(),
        open: BTreeMap::new(),
    };
    let file = wanted.input_file.as_deref().map(|pattern| open(&files.input(pattern)?)).transpose()?;
    let environment = match &wanted.export {
        // The whole environment of the caller, as for a child of a shell: variables that the job has set are kept.
        None => caller.environment,
        Some(words) => export::select(Some(words), &caller.environment, Of::Step).map_err(Failure::usage)?,
    };
    let cwd = wanted.chdir.as_ref().map_or_else(|| caller.cwd.clone(), |dir| caller.cwd.join(dir));
    let cwd = cwd.into_os_string().into_string().map_err(|odd| {
        Failure::usage(format!("the directory '{}' is not text in UTF-8: use --chdir with another one", odd.display()))
    })?;
    let request = StepRequest {
        argv: wanted.argv,
        environment,
        cwd,
        umask: caller.inherited.umask,
        limits: Some(caller.inherited.limits),
        nodes: wanted.nodes,
        tasks: wanted.tasks,
        tasks_per_node: wanted.tasks_per_node,
        cpus_per_task: wanted.cpus_per_task,
        named: wanted.named,
        excluded: wanted.excluded,
        first_node: wanted.first_node,
        overcommit: wanted.overcommit,
        exclusive: wanted.exclusive,
        kill_on_bad_exit: wanted.kill_on_bad_exit,
        input: wanted.input,
    };
    let call = Call::Step { step: Box::new(request) };
    let (from, to) = call_agent(socket, &call, &mut interrupts).await?;
    let pieces = match (wanted.input, file) {
        (Input::None, _) => None,
        (Input::First | Input::All, Some(file)) => Some(read(file)),
        (Input::First | Input::All, None) => Some(read(io::stdin())),
    };
    let client = StepClient {
        program: wanted.program,
        form,
        reports_failures: wanted.reports_failures,
        time: wanted.time,
        deadline: None,
        socket: socket.to_owned(),
        call,
        has_sent_more: false,
        to,
        outgoing: Vec::new(),
        streams: Streams::new(wanted.label),
        files,
        collected: Collected::default(),
        started: None,
        n_interrupts: 0,
        exit_by_signal: None,
        gives_up_at: None,
        is_output_closed: false,
        n_unacknowledged: 0,
        n_reported: 0,
    };
    client.run(from, pieces, interrupts).await
}

/// Calls the agent, unless a signal arrives before the agent has accepted the call: the step then never begins.
async fn call_agent(socket: &Path, call: &Call, interrupts: &mut Interrupts) -> Result<(FromAgent, ToAgent), Failure> {
    let called = agent::call(socket, call);
    tokio::pin!(called);
    loop {
        tokio::select! {
            called = &mut called => return called,
            interrupt = interrupts.next() => if let Some(exit) = exit_by(interrupt) {
                return Err(silent("the step has not begun", exit));
            },
        }
    }
}

/// Returns the exit code if this signal ends the command.
fn exit_by(interrupt: Interrupt) -> Option<Exit> {
    match interrupt {
        Interrupt::CtrlC => Some(BY_INTERRUPT),
        Interrupt::Signal(USR1 | USR2) => None,
        Interrupt::Signal(signal) => Some(Exit(u8::try_from(128 + signal).unwrap_or(u8::MAX))),
    }
}

fn silent(then: &str, exit: Exit) -> Failure {
    Failure::new("agent_silent", format!("the agent of this node does not answer; {then}")).exit(exit)
}

fn open(path: &Path) -> Result<File, Failure> {
    File::open(path).map_err(|error| Failure::io(format!("{} cannot be read", path.display()), error))
}

/// Reads on a separate thread, because a read cannot be cancelled; the thread ends with the process. The last piece is
/// empty.
fn read(mut input: impl Read + Send + 'static) -> mpsc::Receiver<Vec<u8>> {
    let (to, pieces) = mpsc::channel(1);
    std::thread::spawn(move || {
        let mut piece = vec![0; 16 << 10];
        loop {
            let n_bytes = match input.read(&mut piece) {
                Ok(n_bytes) => n_bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // A terminal that is closed, or that may not be read, counts as the end of the input.
                Err(_) => 0,
            };
            if to.blocking_send(piece[..n_bytes].to_vec()).is_err() || n_bytes == 0 {
                return;
            }
        }
    });
    pieces
}

/// The client of one step: forwards its output, input and signals.
struct StepClient {
    program: &'static str,
    form: Form,
    reports_failures: bool,
    time: Option<Span>,
    deadline: Option<Instant>,
    /// The agent's socket and the call, to repeat it.
    socket: PathBuf,
    call: Call,
    has_sent_more: bool,
    to: ToAgent,
    /// Bytes for the agent, sent concurrently with all other work: a stopped agent reads nothing.
    outgoing: Vec<u8>,
    streams: Streams,
    files: StepFiles,
    /// For `--json`, which prints one value at the end.
    collected: Collected,
    started: Option<(u32, Vec<String>)>,
    n_interrupts: u32,
    /// The exit code by the last signal, if the step did not begin before it or the agent does not answer.
    exit_by_signal: Option<Exit>,
    /// The deadline for the agent's answer to a signal; `None` if it has answered.
    gives_up_at: Option<Instant>,
    /// Whether the reader of the output has closed it, which ends a program by SIGPIPE.
    is_output_closed: bool,
    /// Bytes of input that the agent has not acknowledged.
    n_unacknowledged: u64,
    /// Failed tasks that were reported.
    n_reported: u32,
}

impl StepClient {
    async fn run(
        mut self,
        mut from: FromAgent,
        mut pieces: Option<mpsc::Receiver<Vec<u8>>>,
        mut interrupts: Interrupts,
    ) -> Result<Exit, Failure> {
        let code = loop {
            let deadline = self.deadline.unwrap_or_else(Instant::now);
            let gives_up_at = self.gives_up_at.unwrap_or_else(Instant::now);
            let wants_input =
                self.started.is_some() && self.n_unacknowledged < INPUT_WINDOW && self.outgoing.is_empty();
            tokio::select! {
                frame = from.next() => match self.heard(frame?) {
                    Some(Frame::Message(CommandEnd::Ended { code })) => break code,
                    Some(Frame::Message(CommandEnd::Failed { reason })) if self.started.is_none() => {
                        return Err(self.refused(reason));
                    }
                    Some(Frame::Message(CommandEnd::Failed { reason })) => {
                        self.warn(&reason);
                        break i32::from(Exit::SYSTEM.0);
                    }
                    Some(frame) => self.on_frame(frame)?,
                    None if self.started.is_none() && self.exit_by_signal.is_some() => {
                        return Ok(self.exit_by_signal.unwrap_or(BY_INTERRUPT));
                    }
                    // The agent was stopped before it could begin the step.
                    None if from.left_words_unread() && self.started.is_none() && !self.has_sent_more => {
                        (from, self.to) = call_agent(&self.socket, &self.call, &mut interrupts).await?;
                    }
                    None => return Err(self.lost()),
                },
                piece = next(&mut pieces), if wants_input => {
                    let piece = piece.unwrap_or_default();
                    if piece.is_empty() {
                        pieces = None;
                    }
                    self.n_unacknowledged += piece.len() as u64;
                    self.outgoing.extend(frame::bytes(STDIN, &piece));
                }
                written = self.to.write(&self.outgoing), if !self.outgoing.is_empty() => match written {
                    Ok(n_bytes) => drop(self.outgoing.drain(..n_bytes)),
                    Err(_comes_by_reading) => self.outgoing.clear(),
                },
                () = self.streams.due() => {
                    let written = self.streams.show_beginnings();
                    self.check_reader(written)?;
                }
                interrupt = interrupts.next() => self.interrupted(interrupt)?,
                () = tokio::time::sleep_until(gives_up_at), if self.gives_up_at.is_some() => return Err(self.give_up()),
                () = tokio::time::sleep_until(deadline), if self.deadline.is_some() => {
                    self.deadline = None;
                    self.warn("its time is over; ending it");
                    self.say(&Say::End);
                }
            }
        };
        let flushed = self.streams.finish();
        self.check_reader(flushed)?;
        self.ended(code)
    }

    /// Records that the agent answers.
    fn heard(&mut self, frame: Option<Frame<CommandEnd>>) -> Option<Frame<CommandEnd>> {
        self.gives_up_at = None;
        frame
    }

    fn on_frame(&mut self, frame: Frame<CommandEnd>) -> Result<(), Failure> {
        match frame {
            Frame::Bytes { stream, bytes } => {
                let task = u32::try_from(stream >> 2).unwrap_or(u32::MAX);
                let stream = match stream & 3 {
                    STDOUT => Stream::Out,
                    STDERR => Stream::Err,
                    _ => return Ok(()),
                };
                if self.files.write(task, stream, &bytes)? {
                    return Ok(());
                }
                if self.form == Form::Json {
                    self.collected.add(stream, &bytes);
                } else if !self.is_output_closed {
                    let written = self.streams.write(task, stream, &bytes);
                    self.check_reader(written)?;
                }
            }
            Frame::Message(CommandEnd::Waiting) => self.warn("it waits for CPUs that other steps of the job have"),
            Frame::Message(CommandEnd::Started { step, nodes, tasks }) => {
                (self.files.step, self.files.nodes, self.files.n_tasks) = (step, nodes.clone(), tasks);
                self.files.create()?;
                self.started = Some((step, nodes));
                self.deadline = self.time.map(|time| Instant::now() + time.to_std().min(MAX_TIME));
            }
            Frame::Message(CommandEnd::TaskEnded { task, node, code, signal }) => {
                self.task_ended(task, &node, code, signal)
            }
            Frame::Message(CommandEnd::Taken { n_bytes }) => {
                self.n_unacknowledged = self.n_unacknowledged.saturating_sub(n_bytes)
            }
            Frame::Message(CommandEnd::Told { reason }) => self.warn(&reason),
            // The first two are handled by the caller; the last belongs to other calls.
            Frame::Message(CommandEnd::Ended { .. } | CommandEnd::Failed { .. } | CommandEnd::Credentials { .. }) => {}
        }
        Ok(())
    }

    fn task_ended(&mut self, task: u32, node: &str, code: Option<i32>, signal: Option<i32>) {
        let what = match (code, signal) {
            (_, Some(signal)) if self.n_interrupts == 0 => format!("was ended by signal {signal}"),
            (Some(code), None) if code != 0 && self.reports_failures => format!("exited with code {code}"),
            (_, _) => return,
        };
        self.n_reported += 1;
        if self.n_reported <= MAX_REPORTED {
            self.warn(&format!("task {task} on {node} {what}"));
        }
    }

    /// Ends the step if the reader of the output has closed it, as SIGPIPE ends a program.
    fn check_reader(&mut self, written: Result<(), Failure>) -> Result<(), Failure> {
        match written {
            Err(failure) if failure.kind == GONE => {
                self.is_output_closed = true;
                self.say(&Say::End);
                Ok(())
            }
            written => written,
        }
    }

    /// Ends the step, not the job; without the agent, if it has not answered the previous signal.
    fn interrupted(&mut self, interrupt: Interrupt) -> Result<(), Failure> {
        let Some(exit) = exit_by(interrupt) else {
            if let Interrupt::Signal(signal) = interrupt {
                self.say(&Say::Signal { signal });
            }
            return Ok(());
        };
        self.exit_by_signal = Some(exit);
        let now = Instant::now();
        if let Some(gives_up_at) = self.gives_up_at {
            // `timeout` sends its signal twice: to the process, and to its process group.
            let is_same_signal = gives_up_at - now > ANSWER_TIMEOUT - TWICE;
            return if is_same_signal { Ok(()) } else { Err(self.give_up()) };
        }
        self.gives_up_at = Some(now + ANSWER_TIMEOUT);
        self.n_interrupts += u32::from(interrupt == Interrupt::CtrlC);
        match (interrupt, self.n_interrupts) {
            (Interrupt::CtrlC, 1) => {
                self.warn("ending it; press Ctrl-C again to kill it");
                self.say(&Say::End);
            }
            (Interrupt::CtrlC, _again) => self.say(&Say::Signal { signal: KILL }),
            (Interrupt::Signal(_), _) => self.say(&Say::End),
        }
        Ok(())
    }

    fn give_up(&mut self) -> Failure {
        let _reader_left = self.streams.finish();
        silent(&format!("when it does, it ends {}", self.name()), self.exit_by_signal.unwrap_or(BY_INTERRUPT))
    }

    fn say(&mut self, word: &Say) {
        self.has_sent_more = true;
        self.outgoing.extend(frame::message(word));
    }

    fn name(&self) -> String {
        let job = std::env::var("RMS_JOB_ID").unwrap_or_default();
        match &self.started {
            Some((step, _)) => format!("step {job}.{step}"),
            None => format!("a step of job {job}"),
        }
    }

    fn warn(&self, what: &str) {
        if self.form == Form::Text {
            output::warn(&format!("{}: {}: {what}", self.program, self.name()));
        }
    }

    fn refused(&self, reason: String) -> Failure {
        Failure::new("step_refused", reason).hint("'rms run --new-job' makes a job of its own")
    }

    fn lost(&self) -> Failure {
        let what = format!("the agent of this node was stopped, which has ended {}; the job goes on", self.name());
        Failure::new("agent_lost", what)
            .hint("run it again: agents are restarted when they are upgraded")
            .exit(Exit::SYSTEM)
    }

    fn ended(&self, code: i32) -> Result<Exit, Failure> {
        let exit = match (self.is_output_closed, self.n_interrupts > 0) {
            (true, _) => BY_PIPE,
            (false, true) => BY_INTERRUPT,
            // Exit codes have eight bits; a failure must not look like a success.
            (false, false) => Exit(u8::try_from(code).unwrap_or(u8::MAX)),
        };
        if self.form == Form::Json {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let (step, nodes) = self.started.clone().unwrap_or_default();
            let value = json!({
                "job": std::env::var("RMS_JOB_ID").ok().and_then(|job| job.parse::<u64>().ok()),
                "step": step,
                "nodes": nodes,
                "exit": exit.0,
                "stdout": text(&self.collected.out),
                "stderr": text(&self.collected.err),
                "truncated": self.collected.is_truncated,
            });
            output::write_out(format!("{value}\n").as_bytes())?;
        }
        Ok(exit)
    }
}

/// Returns the next piece of input; waits forever if no input is read.
async fn next(pieces: &mut Option<mpsc::Receiver<Vec<u8>>>) -> Option<Vec<u8>> {
    match pieces {
        Some(pieces) => pieces.recv().await,
        None => std::future::pending().await,
    }
}

/// How long the agent may take to answer a signal: a running agent needs milliseconds, and seconds on a node that is
/// short of memory or CPU time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How soon after a signal another one counts as the same.
const TWICE: Duration = Duration::from_millis(100);
/// The limit of failures that are reported one by one.
const MAX_REPORTED: u32 = 16;
/// The longest time, which every clock can represent.
const MAX_TIME: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
const KILL: i32 = 9;
const USR1: i32 = 10;
const USR2: i32 = 12;
/// 128 + PIPE.
const BY_PIPE: Exit = Exit(141);
/// 128 + INT.
const BY_INTERRUPT: Exit = Exit(130);
