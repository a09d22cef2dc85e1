//! Writes the output of many tasks to this command's two streams, by whole lines, with labels on request.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::time::{Duration, Instant};

use launcher_sdk::Stream;

use crate::failure::Failure;
use crate::output;

/// Where the tasks' output goes.
#[derive(Debug)]
pub struct Streams {
    label: bool,
    /// Incomplete lines that wait for their ends, so that tasks do not mix within a line.
    partial: BTreeMap<(u32, Stream), Vec<u8>>,
    /// The tasks that have written.
    writers: BTreeSet<u32>,
    /// The task whose line was shown incomplete: only if one task writes, for example when it asks for input.
    open: BTreeMap<Stream, u32>,
    /// Since when an incomplete line waits.
    since: Option<Instant>,
}

impl Streams {
    pub fn new(label: bool) -> Streams {
        let (partial, writers, open) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        Streams { label, partial, writers, open, since: None }
    }

    /// # Errors
    /// A stream cannot be written; see [`output::write_out`].
    pub fn write(&mut self, task: u32, stream: Stream, bytes: &[u8]) -> Result<(), Failure> {
        let lines = if self.label { self.labelled(task, stream, bytes) } else { self.whole(task, stream, bytes) };
        let waits = self.is_only() && self.partial.values().any(|bytes| !bytes.is_empty());
        self.since = waits.then(|| self.since.unwrap_or_else(Instant::now));
        put(stream, &lines)
    }

    /// Waits until an incomplete line is due to be shown; forever if there is none.
    pub async fn due(&self) {
        match self.since {
            Some(since) => tokio::time::sleep_until((since + PAUSE).into()).await,
            None => std::future::pending().await,
        }
    }

    /// Shows the incomplete lines of the only task that writes.
    ///
    /// # Errors
    /// Those of [`Streams::write`].
    pub fn show_beginnings(&mut self) -> Result<(), Failure> {
        self.since = None;
        for ((task, stream), bytes) in std::mem::take(&mut self.partial) {
            if !bytes.is_empty() {
                self.open.insert(stream, task);
                put(stream, &bytes)?;
            }
        }
        Ok(())
    }

    fn is_only(&self) -> bool {
        !self.label && self.writers.len() == 1
    }

    /// Returns the lines that are complete now, and the continuation of a line that was shown incomplete.
    fn whole(&mut self, task: u32, stream: Stream, bytes: &[u8]) -> Vec<u8> {
        self.writers.insert(task);
        let mut lines = Vec::with_capacity(bytes.len() + 1);
        let goes_on = self.open.get(&stream) == Some(&task);
        let partial = self.partial.entry((task, stream)).or_default();
        partial.extend_from_slice(bytes);
        let n_whole = partial.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let is_cut = partial.len() - n_whole >= MAX_LINE_BYTES;
        let is_alone = self.writers.len() == 1;
        let n_shown = if is_cut || goes_on && is_alone { partial.len() } else { n_whole };
        if n_shown == 0 {
            return lines;
        }
        let rest = partial.split_off(n_shown);
        lines.append(partial);
        *partial = rest;
        if self.open.remove(&stream).is_some_and(|open| open != task) {
            lines.insert(0, b'\n');
        }
        if !lines.ends_with(b"\n") {
            match is_alone {
                true => drop(self.open.insert(stream, task)),
                false => lines.push(b'\n'),
            }
        }
        lines
    }

    /// Returns the lines that are complete now, each with its label.
    fn labelled(&mut self, task: u32, stream: Stream, bytes: &[u8]) -> Vec<u8> {
        let partial = self.partial.entry((task, stream)).or_default();
        let mut lines = Vec::with_capacity(bytes.len());
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            partial.extend_from_slice(part);
            let is_whole = part.ends_with(b"\n") || partial.len() >= MAX_LINE_BYTES;
            if is_whole {
                lines.extend_from_slice(format!("{task}: ").as_bytes());
                lines.append(partial);
                if !lines.ends_with(b"\n") {
                    lines.push(b'\n');
                }
            }
        }
        lines
    }

    /// Writes the remaining incomplete lines; with several tasks, it puts a line end between them.
    ///
    /// # Errors
    /// Those of [`Streams::write`].
    pub fn finish(&mut self) -> Result<(), Failure> {
        let is_alone = self.writers.len() <= 1;
        for ((task, stream), bytes) in std::mem::take(&mut self.partial) {
            match self.label {
                _ if bytes.is_empty() => {}
                true => put(stream, &[format!("{task}: ").as_bytes(), &bytes, b"\n"].concat())?,
                false if is_alone => put(stream, &bytes)?,
                false => put(stream, &[&bytes, &b"\n"[..]].concat())?,
            }
        }
        Ok(())
    }
}

fn put(stream: Stream, bytes: &[u8]) -> Result<(), Failure> {
    if bytes.is_empty() {
        return Ok(());
    }
    match stream {
        Stream::Out => output::write_out(bytes),
        Stream::Err => {
            // If this fails, too, there is nowhere to report it.
            let _ = io::stderr().lock().write_all(bytes);
            Ok(())
        }
    }
}

/// The longest line that is kept whole: otherwise a task that writes no line ends would fill the memory.
const MAX_LINE_BYTES: usize = 1 << 20;
/// How long to wait for the rest of a line; after that it is a prompt, or a growing progress bar.
const PAUSE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_tasks_do_not_mix() {
        let mut streams = Streams::new(false);
        assert_eq!(streams.whole(0, Stream::Out, b"one\ntw"), b"one\n");
        assert_eq!(streams.whole(1, Stream::Out, b"un"), b"");
        assert_eq!(streams.whole(0, Stream::Out, b"o\nthree"), b"two\n");
        assert_eq!(streams.whole(1, Stream::Out, b"o\ndos\n"), b"uno\ndos\n");
        assert_eq!(streams.whole(1, Stream::Err, b"e\n"), b"e\n");
        let long = vec![b'x'; MAX_LINE_BYTES];
        assert_eq!(streams.whole(1, Stream::Out, &long).len(), MAX_LINE_BYTES + 1);
    }

    #[test]
    fn the_only_task_asks_without_the_end_of_a_line_and_its_bytes_come_as_they_are() {
        let mut streams = Streams::new(false);
        assert_eq!(streams.whole(0, Stream::Out, b"name? "), b"", "the rest may come at once");
        streams.show_beginnings().expect("standard output is there");
        assert_eq!(streams.whole(0, Stream::Out, b"Ada"), b"Ada");
        assert_eq!(streams.whole(0, Stream::Out, b"\nage? "), b"\nage? ");
        assert_eq!(streams.whole(1, Stream::Out, b"hello\n"), b"\nhello\n", "one that comes later has its own line");
        assert_eq!(streams.whole(0, Stream::Out, b"36"), b"", "and from then on all have");
        assert_eq!(streams.whole(0, Stream::Out, b"\n"), b"36\n");
        let mut streams = Streams::new(false);
        let long = vec![0; MAX_LINE_BYTES];
        assert_eq!(streams.whole(0, Stream::Out, &long), long);
        assert_eq!(streams.whole(0, Stream::Out, &[0, 1]), [0, 1], "nothing is added");
    }

    #[test]
    fn labelled_lines_of_tasks_do_not_mix() {
        let mut streams = Streams::new(true);
        assert_eq!(streams.labelled(0, Stream::Out, b"one\ntw"), b"0: one\n");
        assert_eq!(streams.labelled(1, Stream::Out, b"uno\n"), b"1: uno\n");
        assert_eq!(streams.labelled(0, Stream::Out, b"o\n\n"), b"0: two\n0: \n");
        let long = vec![b'x'; MAX_LINE_BYTES + 5];
        assert_eq!(streams.labelled(2, Stream::Out, &long).len(), "2: \n".len() + MAX_LINE_BYTES + 5);
    }
}
