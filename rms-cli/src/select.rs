//! Selects the jobs that a command applies to: `7`, `3,5-9`, `last`, `all`, `user:ada`.

use rms_api::call::Select;
use rms_model::{JobId, identity};
use thiserror::Error;

/// Why a text does not select jobs.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SelectError {
    #[error("'{0}' names no jobs: write ids like 7 or 3,5-9, or last, all, user:NAME")]
    Nonsense(String),
    #[error("'{0}' runs backwards: write the lower id first")]
    Backwards(String),
    #[error("'{text}' names more than {MAX_IDS} jobs: name fewer, or use all")]
    TooMany { text: String },
    #[error("'{0}' stands alone: name ids, or one of last, all, user:NAME")]
    Mixed(String),
    #[error("'{0}' is not a job's number: name one job, like 7")]
    NotOne(String),
}

/// The maximum number of ids in a command, so that `1-99999999999` is refused before it is expanded.
pub const MAX_IDS: usize = 10_000;

/// Returns the jobs that the words of a command line select together.
///
/// # Errors
/// See [`SelectError`].
pub fn parse(words: &[String]) -> Result<Select, SelectError> {
    let mut ids: Vec<JobId> = Vec::new();
    for word in words {
        if let Some(whole) = parse_word(word) {
            if words.len() > 1 {
                return Err(SelectError::Mixed(shorten(word)));
            }
            return whole;
        }
        for part in word.split(',') {
            push_range(&mut ids, part)?;
        }
    }
    ids.sort_unstable();
    ids.dedup();
    Ok(Select::Ids(ids))
}

/// Parses the selectors that are a word; `None` for a list of ids.
fn parse_word(word: &str) -> Option<Result<Select, SelectError>> {
    if let Some(user) = word.strip_prefix("user:") {
        let is_name = identity::check_name(user).is_ok();
        let select = Select::User(user.to_owned());
        return Some(is_name.then_some(select).ok_or_else(|| SelectError::Nonsense(shorten(word))));
    }
    match word {
        "last" => Some(Ok(Select::Last)),
        "all" => Some(Ok(Select::All)),
        _ => None,
    }
}

fn push_range(ids: &mut Vec<JobId>, part: &str) -> Result<(), SelectError> {
    let (first, last) = part.split_once('-').unwrap_or((part, part));
    let (Ok(JobId(low)), Ok(JobId(high))) = (first.parse(), last.parse()) else {
        return Err(SelectError::Nonsense(shorten(part)));
    };
    if low > high {
        return Err(SelectError::Backwards(shorten(part)));
    }
    let room = MAX_IDS.saturating_sub(ids.len()) as u64;
    if high - low >= room {
        return Err(SelectError::TooMany { text: shorten(part) });
    }
    ids.extend((low..=high).map(JobId));
    Ok(())
}

fn shorten(text: &str) -> String {
    text.chars().take(80).collect()
}

/// Parses the id of one job, for commands that take exactly one.
///
/// # Errors
/// The text is not a single id.
pub fn parse_one(text: &str) -> Result<JobId, SelectError> {
    text.parse().map_err(|_| SelectError::NotOne(shorten(text)))
}

/// One job, as named on a command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum One {
    Job(JobId),
    /// The caller's newest job.
    Last,
}

impl One {
    /// Returns the job that is named by its id.
    pub fn id(self) -> Option<JobId> {
        match self {
            One::Job(job) => Some(job),
            One::Last => None,
        }
    }
}

/// # Errors
/// The text is neither a single id nor `last`.
pub fn one(text: &str) -> Result<One, SelectError> {
    if text == "last" { Ok(One::Last) } else { parse_one(text).map(One::Job) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn selectors_read_as_the_field_writes_them() {
        let ids = |ids: &[u64]| Select::Ids(ids.iter().copied().map(JobId).collect());
        let check = |line: &str, expected: Select| assert_eq!(parse(&words(line)), Ok(expected), "{line}");
        check("7", ids(&[7]));
        check("3,5-9", ids(&[3, 5, 6, 7, 8, 9]));
        check("9 3,3 4-5", ids(&[3, 4, 5, 9]));
        check("last", Select::Last);
        check("all", Select::All);
        check("user:ada", Select::User("ada".into()));
    }

    #[test]
    fn what_names_no_jobs_is_refused_with_what_to_write() {
        for line in [
            "x",
            "1,,2",
            "-3",
            "3-",
            "9-5",
            "1-99999999999",
            "99999999999999999999",
            "last 3",
            "user:",
            "1.5",
            "user:/",
        ] {
            let error = parse(&words(line)).expect_err(line).to_string();
            assert!(error.contains(':'), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = parse(&[text]);
        }

        #[test]
        fn a_range_names_all_of_its_ids(low in 1_u64..1_000_000, n_more in 0_u64..100) {
            let select = parse(&[format!("{low}-{}", low + n_more)]);
            prop_assert_eq!(select, Ok(Select::Ids((low..=low + n_more).map(JobId).collect())));
        }
    }
}
