//! What a command finds inside a job: the job, the generation, and the job's own credentials.

use rms_model::JobId;

use crate::failure::Failure;
use crate::select;

/// Returns the named job, or else the surrounding one.
///
/// # Errors
/// There is neither, or the name is not an id.
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

/// Returns the generation for which this process was started, or else the newest that the agent has written.
///
/// # Errors
/// This process is not in a job, or the file does not exist any more.
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

/// Returns a non-empty variable of the environment.
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
