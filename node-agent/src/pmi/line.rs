//! Parses one line of PMI-1: `cmd=put kvsname=k key=a value=b`.

use thiserror::Error;

/// The pairs of one line in their order; few, so a lookup searches linearly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line<'a>(Vec<(&'a str, &'a str)>);

/// Why a line is not valid PMI-1.
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
    /// The line is not UTF-8, or it begins with a word without `=`.
    pub fn parse(bytes: &'a [u8]) -> Result<Line<'a>, LineError> {
        let text = std::str::from_utf8(bytes).map_err(|_| LineError::NotText)?;
        let mut pairs: Vec<(&str, &str)> = Vec::new();
        // The start of the last value, and the start of the next word.
        let (mut value_start, mut start) = (0, 0);
        for word in text.split(|letter: char| letter.is_ascii_whitespace()) {
            let end = start + word.len();
            match (word.split_once('='), pairs.last_mut()) {
                (Some((key, value)), _) => {
                    value_start = end - value.len();
                    pairs.push((key, value));
                }
                (None, _) if word.is_empty() => {}
                // A name that a program publishes may consist of several words, and is not quoted.
                (None, Some((_, value))) => *value = &text[value_start..end],
                (None, None) => return Err(LineError::NoPair(word.chars().take(40).collect())),
            }
            start = end + 1;
        }
        Ok(Line(pairs))
    }

    pub fn get(&self, key: &str) -> Option<&'a str> {
        self.0.iter().find(|(known, _)| *known == key).map(|(_, value)| *value)
    }

    /// # Errors
    /// The key is missing, or its value is longer than `max`.
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
    fn a_value_may_be_of_several_words() {
        let line = Line::parse(b"cmd=publish_name  service=two  words \xc3\xa9 port=tag#0$ \n").expect("valid");
        assert_eq!((line.get("service"), line.get("port")), (Some("two  words \u{e9}"), Some("tag#0$")));
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
