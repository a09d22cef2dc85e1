//! Everything that a job's processes are started with, passed unchanged from the submission to the supervisor that
//! starts them.
//!
//! A new attribute is a field here; the supervisor applies it and a flag of `rms submit` sets it.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::checked::MAX_ENVIRONMENT_BYTES;

/// What is started on each node, and its environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Execution {
    pub work: Work,
    /// An absolute path, on every node.
    #[serde(deserialize_with = "crate::checked::text")]
    pub cwd: String,
    #[serde(default)]
    pub environment: Arc<Environment>,
    pub umask: u32,
    #[serde(default)]
    pub stdio: Stdio,
    #[serde(default)]
    pub limits: Limits,
    /// OpenMP programs of the job, and others that ask for it, adapt to the CPUs that the job has on each node while it
    /// runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub malleable_threads: bool,
}

impl From<Work> for Execution {
    /// Uses the minimal attributes: this work in `/`, with an empty environment and the umask 022.
    fn from(work: Work) -> Execution {
        Execution {
            work,
            cwd: "/".to_owned(),
            environment: Arc::default(),
            umask: 0o022,
            stdio: Stdio::default(),
            limits: Limits::default(),
            malleable_threads: false,
        }
    }
}

/// What is executed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Work {
    /// A batch script; it runs once, on the first node, and the job ends with it.
    Script {
        #[serde(deserialize_with = "crate::checked::script")]
        script: String,
        #[serde(deserialize_with = "crate::checked::texts")]
        args: Vec<String>,
    },
    /// `n_tasks` processes, spread over the nodes in blocks; the job ends with the last of them.
    Tasks {
        #[serde(deserialize_with = "crate::checked::texts")]
        argv: Vec<String>,
    },
    /// Nothing is started: a launcher uses the nodes by its own means.
    Nodes,
}

/// Where a task's streams go, as [patterns](crate::pattern); relative paths are relative to the working directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stdio {
    #[serde(default, deserialize_with = "crate::checked::opt_text")]
    pub input: Option<String>,
    #[serde(default, deserialize_with = "crate::checked::opt_text")]
    pub output: Option<String>,
    /// Same as `output` if absent.
    #[serde(default, deserialize_with = "crate::checked::opt_text")]
    pub error: Option<String>,
    /// Append to the files instead of truncating them.
    pub append: bool,
    /// Keep the streams in the agent's spool for a client that follows them (`rms run`).
    pub stream: bool,
}

impl Stdio {
    /// Returns whether the streams stay in the spool for a client that follows them.
    pub fn is_followed(&self) -> bool {
        self.stream && self.output.is_none()
    }
}

/// Soft resource limits to set before the work is executed; absent ones are inherited from the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    pub open_files: Option<u64>,
    pub core_bytes: Option<u64>,
    pub stack_bytes: Option<u64>,
    pub locked_bytes: Option<u64>,
    pub processes: Option<u64>,
    pub address_space_bytes: Option<u64>,
}

/// What a process has from the shell that starts it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inherited {
    pub umask: u32,
    pub limits: Limits,
}

/// Environment variables in the given order; shared between jobs with the same ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<(String, String)>")]
pub struct Environment(pub Vec<(String, String)>);

impl TryFrom<Vec<(String, String)>> for Environment {
    type Error = BadEnvironment;

    fn try_from(variables: Vec<(String, String)>) -> Result<Environment, BadEnvironment> {
        let n_bytes: usize = variables.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
        if n_bytes > MAX_ENVIRONMENT_BYTES {
            return Err(BadEnvironment::TooLarge { n_bytes });
        }
        let is_good =
            |(name, value): &(String, String)| !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0');
        match variables.iter().find(|variable| !is_good(variable)) {
            Some((name, _)) => Err(BadEnvironment::Variable { name: name.chars().take(80).collect() }),
            None => Ok(Environment(variables)),
        }
    }
}

/// The error for variables that are not an environment.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadEnvironment {
    #[error("the environment is {n_bytes} bytes long, but at most {MAX_ENVIRONMENT_BYTES} are taken")]
    TooLarge { n_bytes: usize },
    #[error("'{name}' is no environment variable: its name is empty or holds '=', or it holds the character NUL")]
    Variable { name: String },
}

/// Encodes bytes as text to be sent and stored: UTF-8 stays unchanged, any other byte becomes a reserved character that
/// no script uses. [`to_bytes`] restores exactly these bytes.
pub fn from_bytes(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            // A reserved character in the input must not be mistaken for an encoded byte.
            let is_strange = FOR_BYTES.contains(&c);
            match is_strange {
                true => c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| text.push(for_byte(byte))),
                false => text.push(c),
            }
        }
        chunk.invalid().iter().for_each(|byte| text.push(for_byte(*byte)));
    }
    text
}

/// Returns the bytes that were passed to [`from_bytes`]; any other text stays unchanged.
pub fn to_bytes(text: &str) -> Cow<'_, [u8]> {
    if !text.as_bytes().contains(&FIRST_OF_THEM) {
        return Cow::Borrowed(text.as_bytes());
    }
    let mut bytes = Vec::with_capacity(text.len());
    for c in text.chars() {
        match FOR_BYTES.contains(&c) {
            true => bytes.push(c as u8),
            false => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Cow::Owned(bytes)
}

/// The last private-use characters, which no script uses.
const FOR_BYTES: std::ops::RangeInclusive<char> = '\u{10ff80}'..='\u{10ffff}';
/// The first byte of each of them, which hardly any other text contains.
const FIRST_OF_THEM: u8 = 0xf4;

fn for_byte(byte: u8) -> char {
    char::from_u32(0x10_ff00 | u32::from(byte)).expect("below the last character")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_text_come_back_as_they_were() {
        let check = |bytes: &[u8]| {
            let text = from_bytes(bytes);
            assert_eq!(to_bytes(&text), bytes, "{text:?}");
            // The text as it is encoded in a journal or a frame.
            assert_eq!(from_bytes(&to_bytes(&text)), text);
        };
        check(b"plain");
        check("caf\u{e9} \u{10ff41} \u{10ff80} \u{10ffff}".as_bytes());
        check(b"\xff\xfe/latin1-\xe9\xf4\x8f\xbf");
        check(&(1..=255).collect::<Vec<u8>>());
        assert_eq!(from_bytes("caf\u{e9}".as_bytes()), "caf\u{e9}", "text is itself");
    }
}
