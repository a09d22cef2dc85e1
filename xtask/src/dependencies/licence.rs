//! Decides whether a licence expression can be met with licences from a list.

use thiserror::Error;

/// Why an expression cannot be parsed.
#[derive(Debug, PartialEq, Eq, Error)]
#[error("the licence expression '{0}' cannot be read")]
pub struct UnknownExpression(String);

/// Whether every `AND` part of an SPDX expression offers an allowed `OR` alternative. The old form `MIT/Apache-2.0`
/// means `OR`.
///
/// # Errors
/// Text that is no expression of licence names, `AND`, `OR`, `WITH` and parentheses.
pub fn is_allowed(expression: &str, allowed: &[&str]) -> Result<bool, UnknownExpression> {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut reader = Reader { words: &words, allowed };
    match reader.any() {
        Some(verdict) if reader.words.is_empty() => Ok(verdict),
        Some(_) | None => Err(UnknownExpression(expression.to_owned())),
    }
}

struct Reader<'a> {
    words: &'a [&'a str],
    allowed: &'a [&'a str],
}

impl Reader<'_> {
    fn any(&mut self) -> Option<bool> {
        let mut verdict = self.all()?;
        while self.eat("OR") {
            verdict |= self.all()?;
        }
        Some(verdict)
    }

    fn all(&mut self) -> Option<bool> {
        let mut verdict = self.one()?;
        while self.eat("AND") {
            verdict &= self.one()?;
        }
        Some(verdict)
    }

    fn one(&mut self) -> Option<bool> {
        if self.eat("(") {
            let verdict = self.any()?;
            return self.eat(")").then_some(verdict);
        }
        let mut name = self.word()?.to_owned();
        if self.eat("WITH") {
            name = format!("{name} WITH {}", self.word()?);
        }
        Some(self.allowed.contains(&name.as_str()))
    }

    fn word(&mut self) -> Option<&str> {
        let (word, rest) = self.words.split_first()?;
        let is_name = !["AND", "OR", "WITH", "(", ")"].contains(word);
        self.words = rest;
        is_name.then_some(*word)
    }

    fn eat(&mut self, expected: &str) -> bool {
        let found = self.words.first() == Some(&expected);
        if found {
            self.words = &self.words[1..];
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_met_by_one_alternative_of_every_part() {
        let check = |expression: &str, verdict: bool| {
            assert_eq!(is_allowed(expression, &["MIT", "ISC", "A WITH x"]), Ok(verdict), "{expression}");
        };
        check("MIT", true);
        check("GPL-3.0-only", false);
        check("GPL-3.0-only OR MIT", true);
        check("GPL-3.0-only/MIT", true);
        check("MIT AND GPL-3.0-only", false);
        check("(GPL-3.0-only OR MIT) AND ISC", true);
        check("GPL-3.0-only OR MIT AND ISC", true);
        check("A WITH x", true);
        check("A WITH y", false);
        check("A", false);
    }

    #[test]
    fn text_that_is_no_expression_is_an_error() {
        for text in ["", "MIT OR", "(MIT", "MIT MIT", "OR", "MIT)", "A WITH"] {
            assert!(is_allowed(text, &["MIT"]).is_err(), "{text}");
        }
    }
}
