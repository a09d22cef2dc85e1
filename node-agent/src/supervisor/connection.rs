//! A supervisor's end of its socket to the agent: frames in and out without blocking.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use crate::frame::{Decoder, Frame};
use crate::order::{FromSupervisor, ToSupervisor};

/// The connection to the agent, as long as it exists.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    decoder: Decoder,
    /// Bytes that the socket has not taken yet. Reports are few; bytes of streams are bounded by their windows.
    outgoing: VecDeque<u8>,
}

impl Connection {
    pub fn new(stream: UnixStream) -> io::Result<Connection> {
        stream.set_nonblocking(true)?;
        Ok(Connection { stream, decoder: Decoder::default(), outgoing: VecDeque::new() })
    }

    pub fn has_outgoing(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Receives everything that has arrived.
    ///
    /// # Errors
    /// The agent has exited or sent an invalid frame; frames before that are in `into`.
    pub fn receive(&mut self, into: &mut Vec<Frame<ToSupervisor>>) -> io::Result<()> {
        let mut piece = [0; 16 << 10];
        let end = loop {
            match self.stream.read(&mut piece) {
                Ok(0) => break Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => {
                    self.decoder.push(&piece[..n]);
                    // A short read: nothing more is available.
                    if n < piece.len() {
                        break Ok(());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        while let Some(frame) = self.decoder.take().map_err(io::Error::other)? {
            into.push(frame);
        }
        end
    }

    pub fn send(&mut self, message: &FromSupervisor) -> io::Result<()> {
        self.push(&crate::frame::message(message))
    }

    pub fn send_bytes(&mut self, stream: u64, bytes: &[u8]) -> io::Result<()> {
        self.push(&crate::frame::bytes(stream, bytes))
    }

    fn push(&mut self, frame: &[u8]) -> io::Result<()> {
        self.outgoing.extend(frame);
        self.flush()
    }

    /// Writes as much as the socket takes.
    pub fn flush(&mut self) -> io::Result<()> {
        while !self.outgoing.is_empty() {
            match self.stream.write(self.outgoing.as_slices().0) {
                Ok(n) => drop(self.outgoing.drain(..n)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
