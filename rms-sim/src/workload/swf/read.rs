//! Reads the lines of a trace, and reports where a bad line is and what was expected.

use std::io::{self, BufRead, Read};

use rms_model::{Span, Time};
use thiserror::Error;

use super::{Record, Trace};

/// Why a trace cannot be read.
#[derive(Debug, Error)]
pub enum SwfError {
    #[error("line {line} can not be read")]
    Read { line: usize, source: io::Error },
    #[error("line {line} is longer than {MAX_LINE} bytes: this is no trace in the Standard Workload Format")]
    TooLong { line: usize },
    #[error("line {line} has {found} columns: a record has {N_FIELDS} numbers")]
    Columns { line: usize, found: usize },
    #[error(
        "line {line} has {found} columns, which is more than one record of {N_FIELDS} numbers: write each record on a line \
         that ends with a line feed"
    )]
    Joined { line: usize, found: usize },
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

/// A larger number is an error: in seconds, it is three million years.
const LARGEST: f64 = 1e14;

pub(super) fn trace(input: impl BufRead) -> Result<Trace, SwfError> {
    let mut trace = Trace::default();
    lines(input, |header| trace.header.push(header.to_owned()), |record| trace.records.push(record))?;
    Ok(trace)
}

/// Calls `header` for each line of the header and `record` for each record.
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
        if let Some(numbers) = plain_numbers(&bytes) {
            take(record(&numbers));
            continue;
        }
        // Headers contain people's names in the encodings of their time.
        let text = String::from_utf8_lossy(&bytes);
        // Some editors begin a file with a byte order mark.
        let text = text.trim_start_matches('\u{feff}').trim();
        if let Some(line_of_header) = text.strip_prefix(';') {
            header(line_of_header.trim());
        } else if !text.is_empty() {
            take(record(&numbers(line, text)?));
        }
    }
    Ok(())
}

/// Parses the form of almost all lines in a fraction of the time: decimal numbers between blanks. Other lines are left
/// to the parser that reports errors.
fn plain_numbers(line: &[u8]) -> Option<[f64; N_FIELDS]> {
    let mut numbers = [0.0; N_FIELDS];
    let mut bytes = line.iter();
    // A last line without a line break ends like one with it.
    let mut next = || bytes.next().copied().unwrap_or(b'\n');
    for number in &mut numbers {
        let mut byte = next();
        while matches!(byte, b' ' | b'\t') {
            byte = next();
        }
        let is_negative = byte == b'-';
        if is_negative {
            byte = next();
        }
        let (mut digits, mut n_whole, mut n_decimals) = (0_i64, 0, 0);
        while byte.is_ascii_digit() {
            digits = digits.wrapping_mul(10).wrapping_add(i64::from(byte - b'0'));
            n_whole += 1;
            byte = next();
        }
        let has_decimals = byte == b'.';
        if has_decimals {
            byte = next();
            while byte.is_ascii_digit() {
                digits = digits.wrapping_mul(10).wrapping_add(i64::from(byte - b'0'));
                n_decimals += 1;
                byte = next();
            }
        }
        // A number that has wrapped around has too many digits.
        let is_plain = n_whole > 0
            && has_decimals == (n_decimals > 0)
            && n_whole + n_decimals <= MOST_DIGITS
            && byte.is_ascii_whitespace();
        if !is_plain {
            return None;
        }
        let magnitude = if has_decimals { digits as f64 / POWERS[n_decimals] } else { digits as f64 };
        *number = if is_negative && digits > 0 { -magnitude } else { magnitude };
    }
    let rest = bytes.as_slice().split(u8::is_ascii_whitespace);
    (rest.filter(|word| !word.is_empty()).count() < N_FIELDS).then_some(numbers)
}

/// Numbers of this many digits, and the powers of ten by which they are divided, are exact floats: the quotient is
/// rounded once, as the number itself would be.
const MOST_DIGITS: usize = 14;
const POWERS: [f64; MOST_DIGITS] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13];

fn numbers(line: usize, text: &str) -> Result<[f64; N_FIELDS], SwfError> {
    let mut numbers = [0.0; N_FIELDS];
    let mut found = 0;
    for word in text.split_ascii_whitespace() {
        // Some traces have another, undocumented column.
        if found < N_FIELDS {
            numbers[found] = number(word).map_or_else(|| wrong(line, text, found, word), Ok)?;
        }
        found += 1;
    }
    match found {
        0..N_FIELDS => Err(SwfError::Columns { line, found }),
        TWO_RECORDS.. => Err(SwfError::Joined { line, found }),
        _ => Ok(numbers),
    }
}

/// A line with this many columns contains more than one record.
const TWO_RECORDS: usize = 2 * N_FIELDS;

fn record(numbers: &[f64; N_FIELDS]) -> Record {
    // Floats occur in times only by intention. An id that is not whole is truncated; a part of a processor is one.
    let whole = |column: usize| numbers[column - 1] as i64;
    let processors = |column: usize| numbers[column - 1].ceil() as i64;
    let millis = |column: usize| (numbers[column - 1] * 1000.0).round() as i64;
    let span = |column: usize| (numbers[column - 1] >= 0.0).then(|| Span::from_millis(millis(column)));
    Record {
        number: whole(1),
        submit: Time::from_millis(millis(2)),
        wait: span(3),
        run: span(4),
        allocated: processors(5),
        cpu_secs: numbers[5],
        memory_kib: numbers[6],
        requested: processors(8),
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
    }
}

fn number(word: &str) -> Option<f64> {
    let number = word.parse::<f64>().ok()?;
    (number.abs() <= LARGEST).then_some(number)
}

/// Returns the error of a bad word. A line with too few columns is not a record at all, whatever its words are.
fn wrong(line: usize, text: &str, idx: usize, word: &str) -> Result<f64, SwfError> {
    let found = text.split_ascii_whitespace().count();
    if found < N_FIELDS {
        return Err(SwfError::Columns { line, found });
    }
    let expected = if word.parse::<f64>().is_ok_and(f64::is_finite) { "a number of at most 1e14" } else { "a number" };
    let text = word.chars().take(40).collect();
    Err(SwfError::Number { line, column: idx + 1, name: NAMES[idx], text, expected })
}

#[cfg(test)]
mod tests {
    use test_kit::Dice;

    use super::*;

    #[test]
    fn plain_numbers_are_read_as_any_others() {
        let check = |line: &str, is_plain: bool| {
            let plain = plain_numbers(line.as_bytes());
            assert_eq!(plain.is_some(), is_plain, "{line}");
            if let Some(plain) = plain {
                assert_eq!(plain, numbers(1, line.trim()).expect("numbers"), "{line}");
            }
        };
        let rest = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17";
        for first in ["0", "7", "-1", "000000123", "99999999999999", "0.1", "-2.675", "1234567.1234567", "3.00", "-0.0"]
        {
            check(&format!("{first} {rest}"), true);
            check(&format!("  \t{first}\t{rest}\r\n"), true);
            check(&format!("{first} {rest} a column more\n"), true);
        }
        for first in ["", "-", "--1", "+1", "1.", ".5", "1.2.3", "1e3", "1;", "123456789012345", "; 1", "n", "\u{a0}1"]
        {
            check(&format!("{first} {rest}"), false);
        }
        check(rest, false);
        check("", false);
        let mut dice = Dice::new(1);
        for _ in 0..10_000 {
            let state = dice.roll();
            let (whole, decimals) = (state >> 40, (state >> 20) % 1_000_000);
            check(&format!("{whole}.{decimals} {rest}"), true);
        }
    }
}
