//! Collects the output of tasks for `--json`.

use launcher_sdk::Stream;

/// The output of tasks, up to a limit: a program's output is not bounded, but this process's memory must be.
#[derive(Debug, Default)]
pub struct Collected {
    pub out: Vec<u8>,
    pub err: Vec<u8>,
    pub is_truncated: bool,
}

impl Collected {
    pub fn add(&mut self, stream: Stream, bytes: &[u8]) {
        let to = match stream {
            Stream::Out => &mut self.out,
            Stream::Err => &mut self.err,
        };
        let room = MAX_COLLECTED_BYTES.saturating_sub(to.len());
        self.is_truncated |= bytes.len() > room;
        to.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

const MAX_COLLECTED_BYTES: usize = 16 << 20;
