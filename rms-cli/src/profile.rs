//! Reads an evolution profile from the command line, or from a TOML or JSON file.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use rms_model::evolution::{EvolutionError, ExpandLimitError};
use rms_model::{Evolution, ExpandLimit, Span, Stage};
use serde::{Deserialize, Deserializer};
use thiserror::Error;

use crate::small_file;

/// The value of `--profile`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProfileText {
    /// `2x500s,8x1h,2x10m`
    Stages(Evolution),
    /// A name that ends in `.toml` or `.json`.
    File(String),
}

/// A profile and the options that a file gives in addition to its stages; flags override them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announced {
    pub stages: Evolution,
    pub expand: Option<ExpandLimit>,
    pub compact: bool,
    pub open: bool,
}

/// Why a profile cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ProfileError {
    #[error("cannot read {path}: {reason}")]
    Read { path: String, reason: String },
    #[error("{path}:{line}: {problem}")]
    File { path: String, line: usize, problem: String },
    #[error("{path}: {source}")]
    Stages { path: String, source: EvolutionError },
}

/// The contents of a file, the same in both formats.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default, deserialize_with = "limit")]
    expand: Option<ExpandLimit>,
    #[serde(default)]
    compact: bool,
    #[serde(default)]
    open: bool,
    stage: Vec<WrittenStage>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenStage {
    nodes: u32,
    #[serde(deserialize_with = "span")]
    time: Span,
}

impl FromStr for ProfileText {
    type Err = EvolutionError;

    fn from_str(text: &str) -> Result<ProfileText, EvolutionError> {
        let is_file = text.ends_with(".toml") || text.ends_with(".json");
        if is_file { Ok(ProfileText::File(text.to_owned())) } else { text.parse().map(ProfileText::Stages) }
    }
}

impl ProfileText {
    /// # Errors
    /// Names the file, the line and what was expected there.
    pub fn read(&self, cwd: &Path) -> Result<Announced, ProfileError> {
        match self {
            ProfileText::Stages(stages) => {
                Ok(Announced { stages: stages.clone(), expand: None, compact: false, open: false })
            }
            ProfileText::File(path) => {
                let read = |error: std::io::Error| ProfileError::Read { path: path.clone(), reason: error.to_string() };
                let text = small_file::read(&cwd.join(path)).map_err(read)?;
                parse(path, &text)
            }
        }
    }
}

/// Parses the contents of a file of this name.
///
/// # Errors
/// Those of [`ProfileText::read`].
pub fn parse(path: &str, text: &str) -> Result<Announced, ProfileError> {
    let fail = |line: usize, problem: String| {
        // Both libraries append the position to the problem, in their own words.
        let problem = problem.lines().next().unwrap_or_default().to_owned();
        let problem = problem.split(" at line ").next().unwrap_or_default().to_owned();
        ProfileError::File { path: path.to_owned(), line, problem }
    };
    let written: Written = if path.ends_with(".json") {
        // serde would take an array for the fields of an object, by their places.
        if text.trim_start().starts_with('[') {
            return Err(fail(
                1,
                "expected an object, like {\"stage\": [{\"nodes\": 2, \"time\": \"500s\"}]}".to_owned(),
            ));
        }
        serde_json::from_str(text).map_err(|error| fail(error.line(), error.to_string()))?
    } else {
        toml::from_str(text).map_err(|error| {
            let start = error.span().map_or(0, |span| span.start.min(text.len()));
            let line = text.as_bytes()[..start].iter().filter(|byte| **byte == b'\n').count() + 1;
            fail(line, error.message().to_owned())
        })?
    };
    let stage = |stage: &WrittenStage| Stage { nodes: stage.nodes, span: stage.time };
    let stages = Evolution::new(written.stage.iter().map(stage).collect());
    let stages = stages.map_err(|source| ProfileError::Stages { path: path.to_owned(), source })?;
    Ok(Announced { stages, expand: written.expand, compact: written.compact, open: written.open })
}

/// Reads a duration as on the command line, but without bare numbers: there they are minutes, while most authors of
/// files would mean seconds.
fn span<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
    parsed(deserializer, "a duration in quotes, like \"500s\" or \"1h30m\"")
}

fn limit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<ExpandLimit>, D::Error> {
    parsed(deserializer, "an expand limit in quotes, like \"1.5\" or \"inf\"").map(Some)
}

fn parsed<'de, D: Deserializer<'de>, T: FromStr>(deserializer: D, expected: &'static str) -> Result<T, D::Error>
where
    T::Err: fmt::Display,
{
    struct Visitor<T>(&'static str, std::marker::PhantomData<T>);

    impl<T: FromStr> serde::de::Visitor<'_> for Visitor<T>
    where
        T::Err: fmt::Display,
    {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
            text.parse().map_err(E::custom)
        }
    }

    deserializer.deserialize_str(Visitor(expected, std::marker::PhantomData))
}

/// Parses the limit as on the command line, for `--expand`.
///
/// # Errors
/// The text is not such a limit.
pub fn parse_limit(text: &str) -> Result<ExpandLimit, ExpandLimitError> {
    text.parse()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(path: &str, text: &str) -> String {
        parse(path, text).expect_err(text).to_string()
    }

    #[test]
    fn both_forms_of_a_file_say_the_same() {
        let toml = "expand = \"1.5\"\nopen = true\n[[stage]]\nnodes = 2\ntime = \"500s\"\n[[stage]]\nnodes = 8\ntime = \"1h\"\n";
        let json =
            r#"{"expand": "1.5", "open": true, "stage": [{"nodes": 2, "time": "500s"}, {"nodes": 8, "time": "1h"}]}"#;
        let announced = parse("p.toml", toml).expect("right");
        assert_eq!(parse("p.json", json), Ok(announced.clone()));
        assert_eq!((announced.stages.to_string().as_str(), announced.open), ("2x8m20s,8x1h", true));
        assert_eq!(announced.expand, Some(ExpandLimit::Milli(1500)));
    }

    #[test]
    fn what_is_wrong_is_said_with_file_and_line() {
        let check = |path: &str, text: &str, start: &str, part: &str| {
            let problem = problem(path, text);
            assert!(problem.starts_with(start) && problem.contains(part), "{problem}");
        };
        check("p.toml", "[[stage]]\nnodes = 2\ntime = 500\n", "p.toml:3: ", "a duration in quotes");
        check("p.toml", "[[stage]]\nnodes = -2\ntime = \"5s\"\n", "p.toml:2: ", "u32");
        check("p.toml", "[[stage]]\nnodes = 2\ntime = \"soon\"\n", "p.toml:3: ", "soon");
        check("p.toml", "[[stages]]\n", "p.toml:1: ", "stage");
        check("p.toml", "expand = \"0.5\"\n", "p.toml:1: ", "from 1 to 1000");
        check("p.json", "[[2, 500]]", "p.json:1: ", "expected an object");
        check("p.json", "{\"stage\": [\n{\"nodes\": 2}]}", "p.json:2: ", "time");
        check("p.json", "{\"stage\": [\n{\"nodes\": 2, \"time\": \"5s\"]}", "p.json:2: ", "expected");
        check("p.toml", "[[stage]]\nnodes = 2\ntime = \"0s\"\n", "p.toml: ", "stage 1 lasts 0s");
    }

    #[test]
    fn a_name_with_an_extension_is_a_file() {
        assert_eq!("a/p.toml".parse(), Ok(ProfileText::File("a/p.toml".to_owned())));
        assert!(matches!("2x1h".parse(), Ok(ProfileText::Stages(_))));
        assert!("2y1h".parse::<ProfileText>().is_err());
    }
}
