//! The patterns of output file names, such as `run-%j-%t.out`, and their meaning.

use std::fmt::Write as _;

use thiserror::Error;

/// The values that the patterns stand for.
#[derive(Clone, Debug)]
pub struct Names<'a> {
    pub job: u64,
    pub job_name: &'a str,
    pub user: &'a str,
    pub node: &'a str,
    pub node_idx: u32,
    pub task: u32,
    /// The step of the job; `None` for a script.
    pub step: Option<u32>,
}

/// The error for a percent sign without a meaning.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "the file name '{name}' has {what}, which stands for nothing: there are %j and %A (job), %J (job and step), %s (step), \
     %x (name), %u (user), %N and %h (node), %n (node index), %t (task), %a (array index), and %% is a percent sign"
)]
pub struct PatternError {
    name: String,
    what: String,
}

/// # Errors
/// The first percent sign without a meaning: keeping it would lose what was intended.
pub fn check(pattern: &str) -> Result<(), PatternError> {
    parts(pattern).into_iter().try_for_each(|part| match part {
        Part::Text(_) | Part::Letter { .. } => Ok(()),
        Part::Unknown(what) => {
            let shorten = |text: &str| text.chars().take(80).collect::<String>();
            let what = if what == "%" { "a '%' at its end".to_owned() } else { format!("'{}'", shorten(what)) };
            Err(PatternError { name: shorten(pattern), what })
        }
    })
}

/// Expands a pattern. A number between the percent sign and its letter pads numbers with zeros (`%4t`), to at most ten
/// digits, as in Slurm. A backslash anywhere disables all patterns, as there. Unknown patterns, in jobs accepted before they were rejected, stay
/// unchanged.
pub fn fill(pattern: &str, names: &Names<'_>) -> String {
    let mut filled = String::with_capacity(pattern.len() + 16);
    for part in parts(pattern) {
        let (letter, width) = match part {
            Part::Text(text) => {
                filled.extend(text.chars().filter(|c| *c != '\\'));
                continue;
            }
            Part::Unknown(text) => {
                filled.push_str(text);
                continue;
            }
            Part::Letter { letter, width } => (letter, width),
        };
        let written = match letter {
            'j' | 'A' => write!(filled, "{:0width$}", names.job),
            'J' | 's' => match (letter, names.step) {
                ('J', Some(step)) => write!(filled, "{:0width$}.{step}", names.job),
                ('J', None) => write!(filled, "{:0width$}", names.job),
                (_, Some(step)) => write!(filled, "{step:0width$}"),
                (_, None) => write!(filled, "batch"),
            },
            // Slurm's value for a job that is not an array.
            'a' => write!(filled, "{:0width$}", u32::MAX - 1),
            't' => write!(filled, "{:0width$}", names.task),
            'n' => write!(filled, "{:0width$}", names.node_idx),
            // A user-chosen name must not escape the directory that the pattern names.
            'x' => write!(filled, "{}", names.job_name.replace('/', "_")),
            'u' => write!(filled, "{}", names.user),
            'N' | 'h' => write!(filled, "{}", names.node),
            percent => write!(filled, "{percent}"),
        };
        written.expect("a String takes everything");
    }
    filled
}

/// Returns whether each task has a file of its own.
pub fn is_by_task(pattern: &str) -> bool {
    has_any(pattern, "t")
}

/// Returns whether each node has at least one file of its own.
pub fn is_by_node(pattern: &str) -> bool {
    has_any(pattern, "tnNh")
}

/// Returns whether the name is not known before a step has started.
pub fn is_by_step(pattern: &str) -> bool {
    has_any(pattern, "tnNhsJ")
}

fn has_any(pattern: &str, letters: &str) -> bool {
    parts(pattern).iter().any(|part| matches!(part, Part::Letter { letter, .. } if letters.contains(*letter)))
}

/// The largest width to which a number is padded.
const MOST_WIDTH: usize = 10;

const LETTERS: &str = "jAJsatnxuNh%";

enum Part<'a> {
    Text(&'a str),
    Letter { letter: char, width: usize },
    Unknown(&'a str),
}

fn parts(pattern: &str) -> Vec<Part<'_>> {
    if pattern.contains('\\') {
        return vec![Part::Text(pattern)];
    }
    let mut parts = Vec::new();
    let mut rest = pattern;
    while let Some(at) = rest.find('%') {
        parts.push(Part::Text(&rest[..at]));
        let after = &rest[at + 1..];
        let n_digits = after.bytes().take_while(u8::is_ascii_digit).count();
        // A width with more digits than a number holds is a large one.
        let width = if n_digits == 0 { 0 } else { after[..n_digits].parse().unwrap_or(MOST_WIDTH).min(MOST_WIDTH) };
        let letter = after[n_digits..].chars().next();
        let n_bytes = 1 + n_digits + letter.map_or(0, char::len_utf8);
        parts.push(match letter.filter(|letter| LETTERS.contains(*letter)) {
            Some(letter) => Part::Letter { letter, width },
            None => Part::Unknown(&rest[at..at + n_bytes]),
        });
        rest = &rest[at + n_bytes..];
    }
    parts.push(Part::Text(rest));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: Names<'_> =
        Names { job: 7, job_name: "a/b", user: "ada", node: "n3", node_idx: 2, task: 11, step: Some(0) };

    #[test]
    fn every_letter_is_filled_in() {
        let check = |pattern: &str, expected: &str| assert_eq!(fill(pattern, &NAMES), expected);
        check("rms-%j.out", "rms-7.out");
        check("%x-%u-%N-%n-%t", "a_b-ada-n3-2-11");
        check("%4t/%03j", "0011/007");
        check("%A_%a-%J-%s-%h", "7_4294967294-7.0-0-n3");
        check("%5A.%3s", "00007.000");
        for wide in ["%10t", "%11t", "%999t", "%99999999999999999999999t"] {
            check(wide, "0000000011");
        }
        check("100%%-%q-%", "100%-%q-%");
        check("%5", "%5");
        check("%ä%5ö", "%ä%5ö");
        check("plain", "plain");
        check("a\\%j", "a%j");
        assert_eq!(fill("%J.%s", &Names { step: None, ..NAMES }), "7.batch");
        assert_eq!(fill("%J.%2s", &Names { step: Some(3), ..NAMES }), "7.3.03");
    }

    #[test]
    fn files_of_nodes_and_tasks_are_told_from_common_ones() {
        for (pattern, by_task, by_node) in [
            ("%j.out", false, false),
            ("%03n", false, true),
            ("%h", false, true),
            ("%5t", true, true),
            ("%%t", false, false),
        ] {
            assert_eq!((is_by_task(pattern), is_by_node(pattern)), (by_task, by_node), "{pattern}");
        }
    }

    #[test]
    fn what_stands_for_nothing_is_refused() {
        for known in ["", "plain", "%j%A%J%s%a%t%n%x%u%N%h%%", "%10t", "a\\%q"] {
            assert_eq!(check(known), Ok(()), "{known}");
        }
        for (unknown, part) in
            [("x-%q.out", "'%q'"), ("100%", "at its end"), ("%5", "'%5'"), ("%5ö", "'%5ö'"), ("%", "end")]
        {
            let error = check(unknown).expect_err(unknown).to_string();
            assert!(error.contains(part) && error.contains("%%"), "{error}");
        }
    }
}
