//! `rms logs`: shows the output of a job, and follows it while the job writes.

use std::path::{Path, PathBuf};

use launcher_sdk::{CallError, Client, FollowEvent, Missing};
use rms_api::answer::{JobDetail, JobState};
use rms_api::call::Select;
use rms_model::{JobId, Outcome, Work};

use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::lines::Streams;
use crate::log_file;
use crate::look_up;
use crate::missing;
use crate::output::{self, Form};
use crate::select;
use crate::submission::DEFAULT_OUTPUT;

#[derive(clap::Args, Debug)]
#[command(after_help = "\
The nodes keep the output of 'rms run' for a while; while such a job runs, it
is followed until the job ends, with or without -f (Ctrl-C leaves it).
The output of 'rms submit' is in its file, which must be readable here.

Examples:
  rms logs 7                     what job 7 has written
  rms logs -f                    follow the newest job until it ends
  rms logs 7 -l                  label each line with its task

Exit code 74: some output is no longer kept, or its node did not come back in
time; a message says what is missing.")]
pub struct Args {
    /// The job: an id, or last
    #[arg(default_value = "last", value_name = "JOB")]
    job: String,
    /// Keep printing until the job has ended; always so for 'rms run'
    #[arg(short, long)]
    follow: bool,
    /// Label each line with the number of its task
    #[arg(short, long)]
    label: bool,
}

pub async fn run(args: Args, context: &Context) -> Result<Exit, Failure> {
    let select = match select::parse(&[args.job])? {
        Select::Ids(ids) if ids.len() != 1 => {
            return Err(Failure::usage("logs shows one job at a time").hint("name one id, or last"));
        }
        Select::All | Select::User(_) => {
            return Err(Failure::usage("logs shows one job at a time").hint("name one id, or last"));
        }
        select @ (Select::Ids(_) | Select::Last) => select,
    };
    let client = context.client().await?;
    let found = look_up::jobs(&client, select).await?;
    let job = found.ids().next().ok_or_else(|| Failure::new("no_such_job", "there is no such job"))?;
    let sink = Sink { form: context.output.form(), label: args.label };
    let shown = async {
        match found.live.first() {
            Some(detail) if !detail.spec.execution.stdio.stream => from_file(&client, detail, args.follow, &sink).await,
            Some(detail) => {
                let runs = super::queue::is_active(detail.line.state);
                let notice = (runs && !args.follow)
                    .then(|| format!("rms: job {job} still runs; its output follows until it ends (Ctrl-C leaves it)"));
                from_nodes(&client, job, &sink, notice, false).await?.finish(job, &sink)
            }
            None => of_ended(&client, job, found.ended.first().map(|record| &record.outcome), &sink).await,
        }
    };
    context.tell_absence(&client, shown).await
}

/// The form of the output.
struct Sink {
    form: Form,
    label: bool,
}

impl Sink {
    fn write(&self, job: JobId, bytes: &[u8]) -> Result<Exit, Failure> {
        if self.form == Form::Json {
            self.write_json(job, bytes, &[])?;
        } else {
            output::write_out(bytes)?;
        }
        Ok(Exit::OK)
    }

    fn write_json(&self, job: JobId, bytes: &[u8], missing: &[Missing]) -> Result<(), Failure> {
        let text = String::from_utf8_lossy(bytes);
        let answer = serde_json::json!({"job": job.0, "output": text, "missing": missing::to_json(missing)});
        output::write_out(format!("{answer}\n").as_bytes())
    }
}

/// The output that the nodes had.
#[derive(Default)]
struct Found {
    is_something: bool,
    /// The output, where it is printed as one JSON value.
    whole: Vec<u8>,
    missing: Vec<Missing>,
}

impl Found {
    /// Prints the rest, and reports what is missing.
    fn finish(&self, job: JobId, sink: &Sink) -> Result<Exit, Failure> {
        if sink.form == Form::Json {
            sink.write_json(job, &self.whole, &self.missing)?;
        }
        if self.missing.is_empty() {
            return Ok(Exit::OK);
        }
        missing::tell_lost(job, &self.missing);
        Ok(Exit::OUTPUT_MISSING)
    }
}

/// Reads the streams of 'rms run', which the nodes keep. Shows the notice once the server has permitted it. With
/// `has_file`, no node that is away is waited for while nothing was found: the file may have it all.
async fn from_nodes(
    client: &Client,
    job: JobId,
    sink: &Sink,
    mut notice: Option<String>,
    has_file: bool,
) -> Result<Found, Failure> {
    let mut follow = client.follow(job, false);
    let mut streams = Streams::new(sink.label);
    let mut found = Found::default();
    loop {
        let event = tokio::select! {
            event = follow.next() => event?,
            () = streams.due() => {
                streams.show_beginnings()?;
                continue;
            }
        };
        let Some(event) = event else { break };
        if let Some(notice) = notice.take() {
            output::warn(&notice);
        }
        let (task, stream, bytes) = match event {
            FollowEvent::Output { task, stream, bytes, node_idx: _ } => (task, stream, bytes),
            FollowEvent::Missing(missing) => {
                found.missing.push(missing);
                continue;
            }
            FollowEvent::Away { node, at_most: _ } if has_file && !found.is_something => {
                let reason = "its agent is away".to_owned();
                found.missing.push(Missing { node, reason, from: Vec::new(), is_unknown: false });
                break;
            }
            FollowEvent::Away { node, at_most } => {
                missing::tell_away(job, &node, at_most, sink.form);
                continue;
            }
            FollowEvent::Change(_) => continue,
        };
        found.is_something = true;
        if sink.form == Form::Json {
            found.whole.extend(bytes);
        } else {
            streams.write(task, stream, &bytes)?;
        }
    }
    streams.finish()?;
    Ok(found)
}

/// Shows a job whose description no longer exists: the nodes may still have its streams, or its file may be at the
/// default place.
async fn of_ended(client: &Client, job: JobId, outcome: Option<&Outcome>, sink: &Sink) -> Result<Exit, Failure> {
    let path = PathBuf::from(DEFAULT_OUTPUT.replace("%j", &job.to_string()));
    let has_file = path.is_file();
    let found = from_nodes(client, job, sink, None, has_file).await?;
    // Nodes that know nothing of the job have lost none of its output: a batch job writes to its file.
    let lost = found.missing.iter().find(|part| !part.is_unknown);
    let is_of_file = !found.is_something && !found.missing.is_empty() && (has_file || lost.is_none());
    if !is_of_file {
        return found.finish(job, sink);
    }
    if let Some(Missing { node, reason, .. }) = lost {
        let path = path.display();
        output::warn(&format!("rms: node {node} says nothing ({reason}); this is the file {path}"));
    }
    match std::fs::read(&path) {
        Ok(bytes) => sink.write(job, &bytes),
        Err(_) => {
            output::warn(&format!("rms: the nodes keep no output of job {job}: {}", nothing_kept(outcome, &path)));
            sink.write(job, b"")
        }
    }
}

/// Returns why the nodes and the default file have nothing of an ended job. Whether it was a batch job, and which file it
/// named, is no longer known.
fn nothing_kept(outcome: Option<&Outcome>, path: &Path) -> String {
    match outcome {
        Some(outcome @ Outcome::NotStarted { .. }) => format!("it {outcome}"),
        Some(_) | None => format!(
            "that of 'rms run' is kept for ten minutes, and a batch job writes to the file that its -o flag named \
             (without one, to {} in its working directory: that of its -D flag, or where it was submitted)",
            path.display()
        ),
    }
}

async fn from_file(client: &Client, detail: &JobDetail, follow: bool, sink: &Sink) -> Result<Exit, Failure> {
    let job = detail.line.job;
    let path = match log_file::path(detail) {
        Some(path) => path,
        None => return Err(not_one_file(detail)),
    };
    if follow && sink.form != Form::Json {
        let mut watch = client.watch(vec![job]);
        let ended = async {
            loop {
                match watch.next().await {
                    Ok(Some(change)) if is_over(change.state) => return Ok(()),
                    Ok(Some(_)) => {}
                    Ok(None) | Err(CallError::Refused(_)) => return Ok(()),
                    Err(error) => return Err(Failure::from(error)),
                }
            }
        };
        log_file::follow(&path, ended).await?;
        return Ok(Exit::OK);
    }
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && detail.line.started.is_none() => {
            return Err(Failure::new("no_output", format!("job {job} has not started, so it has written nothing yet"))
                .hint(format!("'rms logs -f {job}' waits for it")));
        }
        Err(error) => return Err(Failure::io(format!("{} cannot be read here", path.display()), error)),
    };
    sink.write(job, &bytes)
}

fn is_over(state: JobState) -> bool {
    !super::queue::is_active(state)
}

fn not_one_file(detail: &JobDetail) -> Failure {
    let Some(pattern) = &detail.spec.execution.stdio.output else {
        return Failure::new("no_output_file", format!("job {} names no output file", detail.line.job))
            .hint("the launcher that started its tasks says what becomes of their output");
    };
    let what = match &detail.spec.execution.work {
        Work::Script { .. } => "its output file has a name that only its node knows",
        Work::Tasks { .. } => "each of its tasks writes a file of its own",
        Work::Nodes => "its launcher uses the nodes by its own means",
    };
    Failure::new("many_files", format!("job {}: {what} ({pattern})", detail.line.job))
        .hint("read the files where they are")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_could_not_start_has_no_output_for_this_reason() {
        let path = Path::new("rms-7.out");
        let not_started = Outcome::NotStarted { node: "a1".into(), reason: "/none/x.out: no such directory".into() };
        assert_eq!(nothing_kept(Some(&not_started), path), "it could not start on a1: /none/x.out: no such directory");
        assert!(nothing_kept(Some(&Outcome::Completed), path).contains("its -o flag named (without one, to rms-7.out"));
    }
}
