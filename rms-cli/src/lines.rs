//! Writes the output of many tasks to our two streams, whole or line by line with labels.

use std::collections::BTreeMap;
use std::io::{self, Write};

use launcher_sdk::Stream;

use crate::failure::Failure;
use crate::output;

/// Where tasks' output goes.
#[derive(Debug)]
pub struct Streams {
    label: bool,
    /// Beginnings of lines that wait for their ends, so that tasks do not mix within a line.
    partial: BTreeMap<(u32, Stream), Vec<u8>>,
}

impl Streams {
    pub fn new(label: bool) -> Streams {
        Streams { label, partial: BTreeMap::new() }
    }

    /// # Errors
    /// A stream that takes nothing; see [`output::write_out`].
    pub fn write(&mut self, task: u32, stream: Stream, bytes: &[u8]) -> Result<(), Failure> {
        if self.label {
            let lines = self.labelled(task, stream, bytes);
            return put(stream, &lines);
        }
        put(stream, bytes)
    }

    /// The lines that are complete now, each with its label.
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

    /// Writes what has no line end.
    ///
    /// # Errors
    /// As [`Streams::write`].
    pub fn finish(&mut self) -> Result<(), Failure> {
        for ((task, stream), bytes) in std::mem::take(&mut self.partial) {
            if !bytes.is_empty() {
                put(stream, &[format!("{task}: ").as_bytes(), &bytes, b"\n"].concat())?;
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
            // Nobody to tell if even this fails.
            let _ = io::stderr().lock().write_all(bytes);
            Ok(())
        }
    }
}

/// A line that is longer is cut, or a task that writes none would fill our memory.
const MAX_LINE_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

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
