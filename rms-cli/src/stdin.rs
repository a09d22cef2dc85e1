//! Forwards the standard input to a job.

use std::io::{self, IsTerminal, Read};

use launcher_sdk::InputSender;
use tokio::runtime::Handle;

pub fn is_terminal() -> bool {
    io::stdin().is_terminal()
}

/// Reads on a separate thread, because a read of the standard input cannot be cancelled; the thread ends with the
/// process.
pub fn forward(to: InputSender) {
    let runtime = Handle::current();
    std::thread::spawn(move || {
        let mut input = io::stdin().lock();
        let mut buffer = vec![0; CHUNK_BYTES];
        loop {
            match input.read(&mut buffer) {
                Ok(0) => break,
                Ok(n_bytes) => {
                    let is_wanted = runtime.block_on(to.send(buffer[..n_bytes].to_vec()));
                    if !is_wanted {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A terminal that is closed, or that may not be read, counts as the end of the input.
                Err(_) => break,
            }
        }
        runtime.block_on(to.end());
    });
}

/// Well below the capacity of a frame.
const CHUNK_BYTES: usize = 16 * 1024;
