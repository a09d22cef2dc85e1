//! The identity of a peer: the role and the name in its certificate.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::id::{JobId, Run};
pub use crate::name::{NameError, check_name};

/// The role of a peer, which determines its rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The one server of a deployment.
    Server,
    /// A node agent; its name is the node's name.
    Agent,
    /// A person who submits jobs; the name is a Unix user name.
    User,
    /// A person who also administers the system; the name is a Unix user name.
    Admin,
    /// Any process of one execution of a job (002); the name is `JOB.RUN`.
    Job,
}

/// A role and a name, as proven by a certificate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Identity {
    pub role: Role,
    #[serde(deserialize_with = "crate::checked::name")]
    pub name: String,
}

impl Identity {
    /// # Errors
    /// A name is 1 to 64 bytes of letters, digits, `-`, `_` and `.`, and starts with a letter, a digit or `_`.
    pub fn new(role: Role, name: &str) -> Result<Identity, NameError> {
        check_name(name)?;
        Ok(Identity { role, name: name.to_owned() })
    }
}

impl Identity {
    /// Returns the identity of the processes of this execution of a job.
    pub fn of_job(job: JobId, run: Run) -> Identity {
        Identity { role: Role::Job, name: format!("{job}.{run}") }
    }

    /// Returns the execution of a job to which this identity belongs, if any.
    pub fn as_job(&self) -> Option<(JobId, Run)> {
        let (job, run) = self.name.split_once('.').filter(|_| self.role == Role::Job)?;
        let number =
            |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then_some(()).map(|()| text.to_owned());
        Some((JobId(number(job)?.parse().ok()?), Run(number(run)?.parse().ok()?)))
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Server => "server",
            Role::Agent => "agent",
            Role::User => "user",
            Role::Admin => "admin",
            Role::Job => "job",
        })
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.role, self.name)
    }
}

/// The error for a text that is not a role.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{0}' is not a role: write server, agent, user or admin")]
pub struct RoleError(String);

impl FromStr for Role {
    type Err = RoleError;

    fn from_str(text: &str) -> Result<Role, RoleError> {
        match text {
            "server" => Ok(Role::Server),
            "agent" => Ok(Role::Agent),
            "user" => Ok(Role::User),
            "admin" => Ok(Role::Admin),
            "job" => Ok(Role::Job),
            _ => Err(RoleError(text.to_owned())),
        }
    }
}
