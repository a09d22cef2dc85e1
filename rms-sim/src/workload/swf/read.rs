//! Reads the lines of a trace and says of a bad one where it is and what was expected.

use std::io::{self, BufRead, Read};

use rms_model::{Span, Time};
use thiserror::Error;

use super::{Record, Trace};

/// Why a trace can not be read.
#[derive(Debug, Error)]
pub enum SwfError {
    #[error("line {line} can not be read")]
    Read { line: usize, source: io::Error },
    #[error("line {line} is longer than {MAX_LINE} bytes: this is no trace in the Standard Workload Format")]
    TooLong { line: usize },
    #[error("line {line} has {found} columns: a record has {N_FIELDS} numbers")]
    Columns { line: usize, found: usize },
    #[error("line {line}, column {column} ({name}): '{text}' is not {expected}")]
    Number { line: usize, column: usize, name: &'static str, text: String, expected: &'static str },
}

const MAX_LINE: u64 = 64 * 1024;
const N_FIELDS: usize = 18;

const NAMES: [&str; N_FIELDS] = [
    "job number",
    "submit time",
    "wait time",
    "run time",
    "allocated processors",
    "CPU time used",
    "memory used",
    "requested processors",
    "requested time",
    "requested memory",
    "status",
    "user",
    "group",
    "executable",
    "queue",
    "partition",
    "preceding job",
    "think time",
];

/// A number beyond this is damage: it is three million years of seconds.
const LARGEST: f64 = 1e14;

pub(super) fn trace(input: impl BufRead) -> Result<Trace, SwfError> {
    let mut trace = Trace::default();
    lines(input, |header| trace.header.push(header.to_owned()), |record| trace.records.push(record))?;
    Ok(trace)
}

/// Hands out each line of the header and each record.
pub(super) fn lines(
    mut input: impl BufRead,
    mut header: impl FnMut(&str),
    mut take: impl FnMut(Record),
) -> Result<(), SwfError> {
    let mut bytes = Vec::new();
    for line in 1.. {
        bytes.clear();
        let mut limited = (&mut input).take(MAX_LINE + 1);
        let n_read = limited.read_until(b'\n', &mut bytes).map_err(|source| SwfError::Read { line, source })?;
        if n_read == 0 {
            break;
        }
        if n_read as u64 > MAX_LINE {
            return Err(SwfError::TooLong { line });
        }
        // Headers hold people's names in encodings of their time.
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim();
        if let Some(line_of_header) = text.strip_prefix(';') {
            header(line_of_header.trim());
        } else if !text.is_empty() {
            take(record(line, text)?);
        }
    }
    Ok(())
}

fn record(line: usize, text: &str) -> Result<Record, SwfError> {
    // Some traces have a column more, which nobody documents.
    let mut numbers = [0.0; N_FIELDS];
    let mut found = 0;
    for word in text.split_ascii_whitespace().take(N_FIELDS) {
        numbers[found] = number(word).map_or_else(|| wrong(line, text, found, word), Ok)?;
        found += 1;
    }
    if found < N_FIELDS {
        return Err(SwfError::Columns { line, found });
    }
    // Floats occur in times only by intention; a count that is none is cut.
    let whole = |column: usize| numbers[column - 1] as i64;
    let millis = |column: usize| (numbers[column - 1] * 1000.0).round() as i64;
    let span = |column: usize| (numbers[column - 1] >= 0.0).then(|| Span::from_millis(millis(column)));
    Ok(Record {
        number: whole(1),
        submit: Time::from_millis(millis(2)),
        wait: span(3),
        run: span(4),
        allocated: whole(5),
        cpu_secs: numbers[5],
        memory_kib: numbers[6],
        requested: whole(8),
        requested_time: span(9),
        requested_memory_kib: numbers[9],
        status: whole(11),
        user: whole(12),
        group: whole(13),
        executable: whole(14),
        queue: whole(15),
        partition: whole(16),
        preceding: whole(17),
        think: span(18),
    })
}

/// Almost all numbers are whole, which are read faster.
fn number(word: &str) -> Option<f64> {
    let number = match word.parse::<i32>() {
        Ok(whole) => f64::from(whole),
        Err(_) => word.parse::<f64>().ok()?,
    };
    (number.abs() <= LARGEST).then_some(number)
}

/// A line with too few columns is no record at all, whatever stands in them.
fn wrong(line: usize, text: &str, idx: usize, word: &str) -> Result<f64, SwfError> {
    let found = text.split_ascii_whitespace().count();
    if found < N_FIELDS {
        return Err(SwfError::Columns { line, found });
    }
    let text = word.chars().take(40).collect();
    Err(SwfError::Number { line, column: idx + 1, name: NAMES[idx], text, expected: "a number" })
}
