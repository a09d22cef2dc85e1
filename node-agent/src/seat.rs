//! The agent's end of the sockets to its spawner and its supervisors.

use std::io;
use std::os::unix::net::UnixStream as StdUnixStream;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use crate::frame::{Decoder, Frame};
use crate::order::FromSupervisor;
use crate::share::ToSeat;
use crate::spawner::SeatMade;

/// An event of the spawner or of a supervisor.
#[derive(Debug)]
pub enum SeatEvent {
    Made(SeatMade),
    Message {
        seat: String,
        message: FromSupervisor,
    },
    Bytes {
        seat: String,
        stream: u64,
        bytes: Vec<u8>,
    },
    /// The supervisor has ended.
    Closed {
        seat: String,
    },
    SpawnerGone,
}

/// The queue of those events. If it is full, reading from the sockets waits, and so do their senders.
pub type Events = mpsc::Sender<SeatEvent>;

/// The most frames queued for one supervisor.
const MAX_QUEUED: usize = 256;

/// Attaches the connection to a supervisor; its messages become events.
///
/// # Errors
/// The socket cannot be registered with the runtime.
pub fn attach(stream: StdUnixStream, seat: String, events: Events) -> io::Result<ToSeat> {
    stream.set_nonblocking(true)?;
    let stream = UnixStream::from_std(stream)?;
    let (to, queue) = mpsc::channel(MAX_QUEUED);
    tokio::spawn(serve(stream, seat, queue, events));
    Ok(to)
}

async fn serve(stream: UnixStream, seat: String, mut queue: mpsc::Receiver<Vec<u8>>, events: Events) {
    let (mut read, mut write) = stream.into_split();
    // Writing must not wait for reading, or two full sockets would wait for each other.
    let writer = tokio::spawn(async move {
        let mut frames = Vec::new();
        while queue.recv_many(&mut frames, MAX_QUEUED).await > 0 {
            // All at once, so that an order that follows the end of a job wakes its supervisor only once.
            if write.write_all(&frames.concat()).await.is_err() {
                return;
            }
            frames.clear();
        }
    });
    let mut decoder = Decoder::default();
    let mut piece = vec![0; 16 << 10];
    'reading: loop {
        match read.read(&mut piece).await {
            Ok(0) | Err(_) => break,
            Ok(n) => decoder.push(&piece[..n]),
        }
        loop {
            let event = match decoder.take::<FromSupervisor>() {
                Ok(None) => break,
                Ok(Some(Frame::Message(message))) => SeatEvent::Message { seat: seat.clone(), message },
                Ok(Some(Frame::Bytes { stream, bytes })) => SeatEvent::Bytes { seat: seat.clone(), stream, bytes },
                Err(error) => {
                    tracing::error!(seat, %error, "cannot parse what a supervisor says");
                    break 'reading;
                }
            };
            if events.send(event).await.is_err() {
                break 'reading;
            }
        }
    }
    writer.abort();
    // Fails only when the agent is ending.
    let _agent_ends = events.send(SeatEvent::Closed { seat }).await;
}

/// Attaches the connection to the spawner.
///
/// # Errors
/// The socket cannot be registered with the runtime.
pub fn attach_spawner(stream: StdUnixStream, events: Events) -> io::Result<ToSeat> {
    stream.set_nonblocking(true)?;
    let (mut read, mut write) = UnixStream::from_std(stream)?.into_split();
    let (to, mut queue) = mpsc::channel::<Vec<u8>>(MAX_QUEUED);
    tokio::spawn(async move {
        while let Some(frame) = queue.recv().await {
            if write.write_all(&frame).await.is_err() {
                return;
            }
        }
    });
    tokio::spawn(async move {
        let mut decoder = Decoder::default();
        let mut piece = [0; 1024];
        while let Ok(n @ 1..) = read.read(&mut piece).await {
            decoder.push(&piece[..n]);
            while let Ok(Some(Frame::Message(made))) = decoder.take::<SeatMade>() {
                if events.send(SeatEvent::Made(made)).await.is_err() {
                    return;
                }
            }
        }
        let _agent_ends = events.send(SeatEvent::SpawnerGone).await;
    });
    Ok(to)
}
