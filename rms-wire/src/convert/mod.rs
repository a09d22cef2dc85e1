//! Parses wire types into the domain's and writes them back; what does not parse never gets further.

mod answer;
mod answered;
mod call;
mod desired;
mod evolving;
mod follow;
mod launcher;
mod launcher_report;
mod negotiate;
mod report;
mod told;
mod vocabulary;

pub use answer::{answer_parts, history_parts};
pub use call::client_call;
pub use desired::{DesiredParts, desire_parts};
pub use negotiate::{negotiator_answer, parse_negotiator_answer};
pub use report::{ReportParts, report_parts};
pub use told::{ViewParts, launcher_answer, notice_parts, parse_launcher_answer};

use rms_model::evolution::EvolutionError;
use rms_model::identity::NameError;
use rms_model::{Span, Time};
use thiserror::Error;

/// Why a message means nothing here, although it could be decoded.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Malformed {
    #[error("{field} has an unusable name")]
    Name { field: &'static str, source: NameError },
    #[error("{field} is a negative span of {millis} ms")]
    NegativeSpan { field: &'static str, millis: i64 },
    #[error("{field} is {n_bytes} bytes long, but at most {max} are taken")]
    TooLarge { field: &'static str, n_bytes: usize, max: usize },
    #[error("{field} has {n} entries, but at most {max} are taken")]
    TooMany { field: &'static str, n: usize, max: usize },
    #[error("{field} names the same cluster twice")]
    ClusterTwice { field: &'static str },
    #[error("{field} is no step profile: its steps must go forward, differ, and end at 0")]
    Profile { field: &'static str },
    #[error("{field} holds a character that it cannot")]
    Character { field: &'static str },
    #[error("parts of generation {first} and of {later} are mixed")]
    MixedGenerations { first: u64, later: u64 },
    #[error("the parts of one list are of different kinds")]
    MixedParts,
    #[error("the stages of a profile cannot be")]
    Stages { source: EvolutionError },
    #[error("what is proposed cannot be negotiated")]
    Template { source: negotiation::TemplateError },
    #[error("the numbers of hosts of a speed-up do not rise")]
    Speedup,
    #[error("a part is empty but is not the only one")]
    EmptyPart,
}

pub(crate) fn span(field: &'static str, millis: i64) -> Result<Span, Malformed> {
    if millis < 0 { Err(Malformed::NegativeSpan { field, millis }) } else { Ok(Span::from_millis(millis)) }
}

pub(crate) fn time(millis: i64) -> Time {
    Time::from_millis(millis)
}

pub(crate) fn opt_time(millis: Option<i64>) -> Option<Time> {
    millis.map(Time::from_millis)
}

pub(crate) fn opt_millis(time: Option<Time>) -> Option<i64> {
    time.map(Time::as_millis)
}

pub(crate) fn all<A, B, E>(items: Vec<A>, parse: impl Fn(A) -> Result<B, E>) -> Result<Vec<B>, E> {
    items.into_iter().map(parse).collect()
}
