//! The running system as the demonstration uses it: the real command `rms`, and the real server process to kill.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::report::Fared;
use crate::workload::{Planned, Work};

/// A cluster on this machine, made by `rms up` in a directory of its own.
pub struct Limber {
    rms: PathBuf,
    dir: PathBuf,
    layout: &'static str,
}

/// The queue, again after each change of any job.
pub struct Changes {
    // Held so that the process ends with it.
    _child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Limber {
    /// The programs beside this one.
    pub fn new(dir: &Path, layout: &'static str) -> Result<Limber> {
        let own = std::env::current_exe().context("where am I?")?;
        let rms = own.with_file_name("rms");
        if !rms.exists() {
            bail!("{} is not built: run `cargo xtask demo`", rms.display());
        }
        Ok(Limber { rms, dir: dir.to_owned(), layout })
    }

    /// Starts everything; where parts of it run, starts what is missing.
    pub async fn up(&self) -> Result<()> {
        let args = ["up", "--clusters", self.layout, "--topology", "pack:1 core:4 pu:1"];
        self.rms(&args).await.map(|_| ())
    }

    pub async fn down(&self) -> Result<()> {
        self.rms(&["down"]).await.map(|_| ())
    }

    /// Submits a batch job and returns its acknowledged number.
    pub async fn submit(&self, job: &Planned, script: &Path, output: &Path) -> Result<u64> {
        let (nodes, tasks) = (job.nodes.to_string(), (job.nodes * TASKS_PER_NODE).to_string());
        let (wall, output, script) = (wall(job), path(output)?, path(script)?);
        let size = ["--json", "submit", "-J", &job.name, "-N", &nodes, "-n", &tasks, "-t", &wall];
        let args: Vec<&str> = size.into_iter().chain(["-o", output, script]).collect();
        let answer = self.json(&args).await?;
        answer["job"].as_u64().with_context(|| format!("`rms submit` answered {answer}"))
    }

    /// Starts the ranks of `program` directly; ends when they have ended.
    pub fn run(&self, job: &Planned, program: &[String], output: &Path) -> Result<Child> {
        let (nodes, tasks) = (job.nodes.to_string(), (job.nodes * TASKS_PER_NODE).to_string());
        let output = std::fs::File::create(output).with_context(|| format!("cannot write {}", output.display()))?;
        let mut command = self.command(&["run", "-J", &job.name, "-N", &nodes, "-n", &tasks, "-t", &wall(job), "--"]);
        command.args(program).stderr(output.try_clone()?).stdout(output);
        command.spawn().context("cannot start rms run")
    }

    pub async fn view(&self) -> Result<String> {
        self.rms(&["view"]).await
    }

    /// The profile as a picture.
    pub async fn draw(&self, file: &Path) -> Result<()> {
        self.rms(&["view", "--svg", path(file)?]).await.map(|_| ())
    }

    pub async fn history(&self) -> Result<Vec<Fared>> {
        let answer = self.json(&["--json", "history", "--limit", "0"]).await?;
        let records = answer["jobs"].as_array().with_context(|| format!("`rms history` answered {answer}"))?;
        records.iter().map(fared).collect()
    }

    pub fn changes(&self) -> Result<Changes> {
        let mut command = self.command(&["--json", "queue", "--watch"]);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().context("cannot start rms queue")?;
        let stdout = child.stdout.take().context("rms queue has an output")?;
        Ok(Changes { _child: child, lines: BufReader::new(stdout).lines() })
    }

    /// Ends the server as a power cut would; its process number.
    pub fn kill_server(&self) -> Result<i32> {
        let pid = self.server()?.context("no server of this cluster runs")?;
        kill(Pid::from_raw(pid), Signal::SIGKILL).context("cannot kill the server")?;
        Ok(pid)
    }

    /// The server's process: the one that was started with our directory.
    pub fn server(&self) -> Result<Option<i32>> {
        let dir = path(&self.dir)?;
        let is_ours = |command: &str| {
            let mut words = command.split('\0');
            words.next().is_some_and(|program| program.ends_with("rms-server")) && words.any(|word| word.contains(dir))
        };
        for entry in std::fs::read_dir("/proc").context("cannot list processes")? {
            let name = entry.context("cannot list processes")?.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
            let command = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            if is_ours(&command) {
                return Ok(Some(pid));
            }
        }
        Ok(None)
    }

    async fn json(&self, args: &[&str]) -> Result<Value> {
        let text = self.rms(args).await?;
        serde_json::from_str(&text).with_context(|| format!("`rms {}` printed no JSON: {text}", args.join(" ")))
    }

    async fn rms(&self, args: &[&str]) -> Result<String> {
        let output = self.command(args).output().await.context("cannot run rms")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
            bail!("`rms {}` ended with {}: {}{}", args.join(" "), output.status, text.trim(), complaint.trim());
        }
        Ok(text)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.rms);
        command.arg("--dir").arg(&self.dir).args(args);
        command.env("NO_COLOR", "1").stdin(Stdio::null()).kill_on_drop(true);
        command
    }
}

impl Changes {
    /// The jobs in the system, or nothing when the server is gone.
    pub async fn next(&mut self) -> Option<Vec<Value>> {
        let line = self.lines.next_line().await.ok()??;
        let answer: Value = serde_json::from_str(&line).ok()?;
        answer["jobs"].as_array().cloned()
    }
}

/// Two, so that a job on one node has something to say to itself.
pub const TASKS_PER_NODE: u32 = 2;

/// Twice what it takes and some more: machines that show this are busy.
fn wall(job: &Planned) -> String {
    format!("{}s", job.lasts.as_secs() * 2 + 20)
}

fn path(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}

fn fared(record: &Value) -> Result<Fared> {
    let time = |field: &str| record[field].as_str().and_then(seconds);
    let word = |field: &str| record["outcome"][field].as_str().map(str::to_owned);
    let ended = || {
        Some(Fared {
            job: record["job"].as_u64()?,
            name: record["name"].as_str()?.to_owned(),
            submitted: time("submitted")?,
            started: time("started"),
            ended: time("ended"),
            nodes: record["nodes"].as_array()?.iter().filter_map(|node| node.as_str().map(str::to_owned)).collect(),
            state: word("word")?,
            code: record["outcome"]["code"].as_i64(),
            run: record["run"].as_u64()?,
        })
    };
    ended().with_context(|| format!("`rms history` has a record that cannot be parsed: {record}"))
}

fn seconds(text: &str) -> Option<f64> {
    let at: jiff::Timestamp = text.parse().ok()?;
    Some(at.as_millisecond() as f64 / 1000.0)
}

/// The command line of the N-body program for this job: it computes the same whatever its size and duration.
pub fn nbody(job: &Planned, program: &Path) -> Result<Vec<String>> {
    let millis_per_step = job.lasts.as_millis() / u128::from(N_STEPS);
    Ok(vec![path(program)?.to_owned(), "96".to_owned(), N_STEPS.to_string(), millis_per_step.to_string()])
}

const N_STEPS: u32 = 20;

/// What a batch job runs.
pub fn script(job: &Planned, mpirun: &Path, program: &Path) -> Result<String> {
    let command = match job.work {
        Work::Sleep { code } => format!("sleep {:.3}\nexit {code}", job.lasts.as_secs_f64()),
        Work::Mpirun(_) | Work::Direct(_) => {
            format!("exec {} -n $RMS_NTASKS {}", path(mpirun)?, nbody(job, program)?.join(" "))
        }
    };
    Ok(format!("#!/bin/sh\n{command}\n"))
}
