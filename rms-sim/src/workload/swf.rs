//! Traces in the Standard Workload Format: reads and writes records unchanged, and converts them to jobs by explicit
//! rules.

mod clean;
mod read;

use std::fmt;
use std::io::{self, Write};

use rms_model::{Span, Time};

pub use clean::{Cleaned, Cleaning, Doubles, Overrun, SizeFrom, TraceJob, ZeroRun};
pub use read::SwfError;

/// A trace: the lines of its header without the `;`, and its records in the order of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    pub header: Vec<String>,
    pub records: Vec<Record>,
}

/// One line. Where the format writes −1 for unknown values, times are `None`; so are negative ones, which occur. Other
/// counts and ids are stored as they are.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Field 1; not necessarily consecutive.
    pub number: i64,
    /// Field 2: since the beginning of the trace, which is not necessarily the first submit. Unknown if negative.
    pub submit: Time,
    /// Field 3. Unknown in some traces, whose submit is really the start.
    pub wait: Option<Span>,
    /// Field 4.
    pub run: Option<Span>,
    /// Field 5: processors, a part of one counted as one.
    pub allocated: i64,
    /// Field 6: mean seconds for each processor.
    pub cpu_secs: f64,
    /// Field 7: KiB for each processor.
    pub memory_kib: f64,
    /// Field 8: processors, as in field 5.
    pub requested: i64,
    /// Field 9.
    pub requested_time: Option<Span>,
    /// Field 10: KiB for each processor.
    pub requested_memory_kib: f64,
    /// Field 11: 1 completed, 0 failed, 5 cancelled (maybe after it ran), −1 unknown; in some traces an exit code.
    pub status: i64,
    /// Fields 12 to 17.
    pub user: i64,
    pub group: i64,
    pub executable: i64,
    pub queue: i64,
    pub partition: i64,
    pub preceding: i64,
    /// Field 18.
    pub think: Option<Span>,
}

impl Default for Record {
    fn default() -> Record {
        Record {
            number: -1,
            submit: Time::EPOCH,
            wait: None,
            run: None,
            allocated: -1,
            cpu_secs: -1.0,
            memory_kib: -1.0,
            requested: -1,
            requested_time: None,
            requested_memory_kib: -1.0,
            status: -1,
            user: -1,
            group: -1,
            executable: -1,
            queue: -1,
            partition: -1,
            preceding: -1,
            think: None,
        }
    }
}

impl Trace {
    /// # Errors
    /// A line cannot be read or is not a record; says what was expected.
    pub fn read(input: impl io::BufRead) -> Result<Trace, SwfError> {
        read::trace(input)
    }

    /// Reads the jobs of a trace, record by record, without keeping the records.
    ///
    /// # Errors
    /// Those of [`Trace::read`].
    pub fn read_clean(input: impl io::BufRead, cleaning: &Cleaning) -> Result<Cleaned, SwfError> {
        let mut cleaner = clean::Cleaner::new(cleaning);
        read::lines(input, |_| {}, |record| cleaner.take(&record))?;
        Ok(cleaner.finish())
    }

    /// # Errors
    /// Those of the writer.
    pub fn write(&self, mut output: impl Write) -> io::Result<()> {
        for line in &self.header {
            writeln!(output, ";{space}{line}", space = if line.is_empty() { "" } else { " " })?;
        }
        self.records.iter().try_for_each(|record| writeln!(output, "{record}"))
    }

    /// Returns the header's value of a key; it may be any text, even where a number belongs.
    pub fn header_value(&self, key: &str) -> Option<&str> {
        let mut entries = self.header.iter().filter_map(|line| line.split_once(':'));
        entries.find(|(name, _)| name.trim().eq_ignore_ascii_case(key)).map(|(_, value)| value.trim())
    }

    /// Returns the same value as a count, if it is one.
    pub fn header_count(&self, key: &str) -> Option<u64> {
        self.header_value(key)?.parse().ok()
    }

    /// Converts the records to jobs by the rules in `cleaning`.
    pub fn clean(&self, cleaning: &Cleaning) -> Cleaned {
        clean::clean(self, cleaning)
    }
}

/// Prints whole numbers without a point, as most readers expect them.
impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secs = |span: Option<Span>| span.map_or(-1.0, Span::as_secs_f64);
        write!(f, "{} {} ", self.number, self.submit.as_millis() as f64 / 1000.0)?;
        write!(f, "{} {} {} {} ", secs(self.wait), secs(self.run), self.allocated, self.cpu_secs)?;
        write!(f, "{} {} {} ", self.memory_kib, self.requested, secs(self.requested_time))?;
        write!(f, "{} {} {} {} ", self.requested_memory_kib, self.status, self.user, self.group)?;
        write!(f, "{} {} {} {} ", self.executable, self.queue, self.partition, self.preceding)?;
        write!(f, "{}", secs(self.think))
    }
}

#[cfg(test)]
mod tests;
