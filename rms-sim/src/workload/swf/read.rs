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

pub(super) fn trace(mut input: impl BufRead) -> Result<Trace, SwfError> {
    let mut trace = Trace::default();
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
        if let Some(header) = text.strip_prefix(';') {
            trace.header.push(header.trim().to_owned());
        } else if !text.is_empty() {
            trace.records.push(record(line, text)?);
        }
    }
    Ok(trace)
}

fn record(line: usize, text: &str) -> Result<Record, SwfError> {
    // Some traces have a column more, which nobody documents.
    let found = text.split_ascii_whitespace().count();
    if found < N_FIELDS {
        return Err(SwfError::Columns { line, found });
    }
    let mut numbers = [0.0; N_FIELDS];
    for (idx, word) in text.split_ascii_whitespace().take(N_FIELDS).enumerate() {
        let number = word.parse::<f64>().ok().filter(|number| number.abs() <= LARGEST);
        numbers[idx] = number.ok_or_else(|| wrong(line, idx, word, "a number"))?;
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

fn wrong(line: usize, idx: usize, word: &str, expected: &'static str) -> SwfError {
    let text = word.chars().take(40).collect();
    SwfError::Number { line, column: idx + 1, name: NAMES[idx], text, expected }
}
