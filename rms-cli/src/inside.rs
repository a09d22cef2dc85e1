//! What a command finds when it runs inside of a job: which job, which generation, and the job's own credentials.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use launcher_sdk::Client;
use rms_model::JobId;

use crate::agent;
use crate::context::Context;
use crate::failure::Failure;
use crate::select;

/// The job that was named, or the one that we are in.
///
/// # Errors
/// Neither, or no id.
pub fn job(named: Option<&str>) -> Result<JobId, Failure> {
    if let Some(named) = named {
        return Ok(select::parse_one(named)?);
    }
    let inside = variable("RMS_JOB_ID").ok_or_else(|| {
        Failure::usage("which job? RMS_JOB_ID is not set, so this is not inside of one")
            .hint("name a job: 'rms queue' lists them")
    })?;
    Ok(select::parse_one(&inside)?)
}

/// The generation that we were started for, or the newest that the agent has written.
///
/// # Errors
/// We are in no job, or in one whose file is gone.
pub fn generation() -> Result<u32, Failure> {
    let number = |text: &str| {
        text.trim().parse().map_err(|_| Failure::new("generation", format!("'{}' is no generation", text.trim())))
    };
    if let Some(text) = variable("RMS_RESIZE_GENERATION") {
        return number(&text);
    }
    let path = variable("RMS_GENERATION_FILE").ok_or_else(|| {
        Failure::usage("which generation? RMS_GENERATION_FILE is not set, so this is not inside of a job")
            .hint("say it: --generation 3")
    })?;
    let text = std::fs::read_to_string(&path).map_err(|error| Failure::io(format!("{path} cannot be read"), error))?;
    number(&text)
}

/// A client with the credentials of the job that we are in, unless others were named; outside, the usual one.
///
/// # Errors
/// As [`Context::client`].
pub async fn client(context: &Context) -> Result<Client, Failure> {
    let is_named = context.dir.is_some() || context.places.rms_dir.is_some();
    let Some(dir) = variable("RMS_JOB_CREDENTIALS").map(PathBuf::from).filter(|_| !is_named) else {
        return context.client().await;
    };
    let server = variable("RMS_SERVER").ok_or_else(|| {
        Failure::new(
            "not_in_job",
            "RMS_JOB_CREDENTIALS is set, but RMS_SERVER is not: the job's environment was changed",
        )
    })?;
    connect(context, &dir, &server).await
}

/// A client with the credentials of the job that we are in, for whose owner there are none on this node; none outside.
///
/// # Errors
/// No agent or no server that answers.
pub async fn client_of_job(context: &Context) -> Result<Option<Client>, Failure> {
    let Some(socket) = agent::socket() else { return Ok(None) };
    let (dir, server) = agent::credentials(&socket).await?;
    connect(context, &dir, &server).await.map(Some)
}

async fn connect(context: &Context, dir: &Path, server: &str) -> Result<Client, Failure> {
    await_credentials(dir).await;
    let client = Client::connect_as(dir, server).await?;
    context.clients.borrow_mut().push(client.clone());
    Ok(client)
}

/// The agent asks for them beside the start of the job, so the first command of a script may be too early.
async fn await_credentials(dir: &Path) {
    let begun = Instant::now();
    while !dir.join("cert.pem").exists() && begun.elapsed() < PATIENCE {
        // The directory may be on any file system, so there is nothing to be woken by.
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

const PATIENCE: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(20);
