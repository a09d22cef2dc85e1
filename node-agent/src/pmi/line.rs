//! Takes one line of PMI-1 apart: `cmd=put kvsname=k key=a value=b`.

use thiserror::Error;

/// The pairs of one line in their order; small, so looked up by walking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line<'a>(Vec<(&'a str, &'a str)>);

/// Why a line is none of PMI-1.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LineError {
    #[error("a line that is not text")]
    NotText,
    #[error("'{0}' has no '=' in it")]
    NoPair(String),
    #[error("{command} has no {key}")]
    Missing { command: String, key: &'static str },
    #[error("{key} of {command} is {length} bytes long; at most {max} are taken")]
    TooLong { command: String, key: &'static str, length: usize, max: usize },
}

impl<'a> Line<'a> {
    /// # Errors
    /// Not UTF-8, or a word without `=`.
    pub fn parse(bytes: &'a [u8]) -> Result<Line<'a>, LineError> {
        let text = std::str::from_utf8(bytes).map_err(|_| LineError::NotText)?;
        let pair =
            |word: &'a str| word.split_once('=').ok_or_else(|| LineError::NoPair(word.chars().take(40).collect()));
        Ok(Line(text.split_ascii_whitespace().map(pair).collect::<Result<_, _>>()?))
    }

    pub fn get(&self, key: &str) -> Option<&'a str> {
        self.0.iter().find(|(known, _)| *known == key).map(|(_, value)| *value)
    }

    /// # Errors
    /// The key is missing, or its value longer than `max`.
    pub fn need(&self, key: &'static str, max: usize) -> Result<&'a str, LineError> {
        let value = self.get(key).ok_or_else(|| LineError::Missing { command: self.command(), key })?;
        if value.len() > max {
            return Err(LineError::TooLong { command: self.command(), key, length: value.len(), max });
        }
        Ok(value)
    }

    fn command(&self) -> String {
        self.get("cmd").unwrap_or("a line").chars().take(40).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_may_hold_equal_signs_and_brackets() {
        let line = Line::parse(b"cmd=put kvsname=k key=a value=tag#0$connentry#6E=[8]$\n").expect("valid");
        assert_eq!(line.get("value"), Some("tag#0$connentry#6E=[8]$"));
        assert_eq!(line.need("key", 64), Ok("a"));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let check = |bytes: &[u8], problem: &str| {
            let error = Line::parse(bytes).and_then(|line| line.need("key", 4).map(drop)).expect_err(problem);
            assert!(error.to_string().contains(problem), "{error}");
        };
        check(b"cmd=get kvsname=k", "get has no key");
        check(b"cmd=get key=abcde", "key of get is 5 bytes long; at most 4");
        check(b"hello", "'hello' has no '='");
        check(b"cmd=\xff", "not text");
    }
}
