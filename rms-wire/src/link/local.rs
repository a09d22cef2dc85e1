//! A connection over a Unix socket. The socket itself carries control messages and shows the end of the connection;
//! each channel is a socket pair, which the accepting side creates and passes to the peer.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quinn::{ApplicationClose, ConnectionError, ReadError, VarInt, WriteError};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    Shutdown, recv, recvmsg, send, sendmsg, shutdown, sockopt,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Mutex as AsyncMutex, OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};

/// A connection. Clones share it. It ends when it is closed; dropping it does not end it.
#[derive(Clone, Debug)]
pub(super) struct Connection(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    control: UnixStream,
    ended: watch::Sender<Option<ConnectionError>>,
    side: Side,
}

#[derive(Debug)]
enum Side {
    /// The side that opens channels, with the senders for those that it waits for.
    Dialled(Mutex<VecDeque<oneshot::Sender<StdStream>>>),
    /// The side whose peer opens channels. The queue is never full: it has room for the peer's limit.
    Accepted(AsyncMutex<mpsc::Receiver<Streams>>),
}

type Streams = (SendStream, RecvStream);

#[derive(Debug)]
pub(super) struct SendStream {
    half: OwnedWriteHalf,
    stream: Stream,
}

#[derive(Debug)]
pub(super) struct RecvStream {
    half: OwnedReadHalf,
    stream: Stream,
}

/// The state shared by both halves of a stream.
#[derive(Clone, Debug)]
struct Stream {
    connection: Connection,
    ended: watch::Receiver<Option<ConnectionError>>,
    /// The place of a channel of the peer, released when both halves are dropped.
    _place: Option<Arc<OwnedSemaphorePermit>>,
}

/// A message on the control socket.
enum ControlMessage {
    /// A request for a channel, or a channel with its file descriptor.
    Channel(Option<OwnedFd>),
    End(ConnectionError),
}

impl Connection {
    /// Creates the side that opens channels.
    pub fn dialled(control: UnixStream) -> Connection {
        let connection = Connection::new(control, Side::Dialled(Mutex::default()));
        tokio::spawn(connection.clone().take_channels());
        connection
    }

    /// Creates the side whose peer opens channels, at most `max_channels` at once; the peer waits for more.
    pub fn accepted(control: UnixStream, max_channels: usize) -> Connection {
        let (sender, opened) = mpsc::channel(max_channels);
        let connection = Connection::new(control, Side::Accepted(AsyncMutex::new(opened)));
        tokio::spawn(connection.clone().hand_out_channels(sender, Arc::new(Semaphore::new(max_channels))));
        connection
    }

    fn new(control: UnixStream, side: Side) -> Connection {
        Connection(Arc::new(Parts { control, ended: watch::Sender::new(None), side }))
    }

    pub async fn open_bi(&self) -> Result<Streams, ConnectionError> {
        // The accepting side opens no channels.
        let Side::Dialled(waiting) = &self.0.side else { return Err(self.closed().await) };
        let (sender, handed_over) = oneshot::channel();
        {
            let mut waiting = lock(waiting);
            waiting.push_back(sender);
            if send(&self.0.control, &[CHANNEL], SendFlags::DONTWAIT | SendFlags::NOSIGNAL).is_err() {
                self.end(self.peek_end().unwrap_or(ConnectionError::Reset));
            }
        }
        tokio::select! {
            biased;
            Ok(stream) = handed_over => self.streams(stream, None).map_err(|_| ConnectionError::Reset),
            error = self.closed() => Err(error),
        }
    }

    pub async fn accept_bi(&self) -> Result<Streams, ConnectionError> {
        // The connecting side accepts no channels.
        let Side::Accepted(opened) = &self.0.side else { return Err(self.closed().await) };
        let next = async { opened.lock().await.recv().await };
        tokio::select! {
            biased;
            error = self.closed() => Err(error),
            Some(streams) = next => Ok(streams),
        }
    }

    pub fn close(&self, code: VarInt, reason: &[u8]) {
        if self.end(ConnectionError::LocallyClosed) {
            let code = u8::try_from(code.into_inner()).unwrap_or(u8::MAX);
            let message = [&[CLOSE, code], reason].concat();
            // A peer that does not read, or has ended, sees the end without the reason.
            let _ = send(&self.0.control, &message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
            let _ = shutdown(&self.0.control, Shutdown::Both);
        }
    }

    pub async fn closed(&self) -> ConnectionError {
        end_of(&mut self.0.ended.subscribe()).await
    }

    pub fn close_reason(&self) -> Option<ConnectionError> {
        self.0.ended.borrow().clone()
    }

    /// Ends the connection; returns whether it was open.
    fn end(&self, why: ConnectionError) -> bool {
        self.0.ended.send_if_modified(|ended| {
            let is_first = ended.is_none();
            ended.get_or_insert(why);
            is_first
        })
    }

    async fn take_channels(self) {
        loop {
            match self.recv_control().await {
                ControlMessage::Channel(fd) => {
                    let waiting = match &self.0.side {
                        Side::Dialled(waiting) => lock(waiting).pop_front(),
                        Side::Accepted(_) => None,
                    };
                    if let (Some(waiting), Some(fd)) = (waiting, fd) {
                        // The caller may have given up; then the channel ends here.
                        let _ = waiting.send(fd.into());
                    }
                }
                ControlMessage::End(why) => {
                    self.end(why);
                    return;
                }
            }
        }
    }

    async fn hand_out_channels(self, opened: mpsc::Sender<Streams>, places: Arc<Semaphore>) {
        let mut n_wanted = 0_u64;
        loop {
            let place = tokio::select! {
                message = self.recv_control() => match message {
                    ControlMessage::Channel(_) => {
                        n_wanted += 1;
                        continue;
                    }
                    ControlMessage::End(why) => {
                        self.end(why);
                        return;
                    }
                },
                place = Arc::clone(&places).acquire_owned(), if n_wanted > 0 => place.expect("it is never closed"),
            };
            n_wanted -= 1;
            match self.hand_out(place) {
                // There is room for all places.
                Ok(streams) => drop(opened.try_send(streams)),
                Err(error) => {
                    tracing::warn!(%error, "cannot open a channel over the local socket");
                    return self.close(super::error::CODE_CLOSED, b"the server cannot make a channel");
                }
            }
        }
    }

    fn hand_out(&self, place: OwnedSemaphorePermit) -> io::Result<Streams> {
        let (ours, theirs) = StdStream::pair()?;
        // Limits the data that the kernel holds between send and receive.
        for end in [&ours, &theirs] {
            sockopt::set_socket_send_buffer_size(end, BUFFER_BYTES)?;
        }
        let fds = [theirs.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        sendmsg(&self.0.control, &[IoSlice::new(&[CHANNEL])], &mut ancillary, flags)?;
        self.streams(ours, Some(place))
    }

    fn streams(&self, stream: StdStream, place: Option<OwnedSemaphorePermit>) -> io::Result<Streams> {
        stream.set_nonblocking(true)?;
        let (reading, writing) = UnixStream::from_std(stream)?.into_split();
        let ended = self.0.ended.subscribe();
        let stream = Stream { connection: self.clone(), ended, _place: place.map(Arc::new) };
        Ok((SendStream { half: writing, stream: stream.clone() }, RecvStream { half: reading, stream }))
    }

    /// Receives the next control message. Cancel safe.
    async fn recv_control(&self) -> ControlMessage {
        let control = &self.0.control;
        match control.async_io(Interest::READABLE, || self.read_control()).await {
            Ok((0, _)) | Err(_) => ControlMessage::End(ConnectionError::Reset),
            Ok((CHANNEL, fd)) => ControlMessage::Channel(fd),
            Ok((_, _)) => ControlMessage::End(self.peek_end().unwrap_or(ConnectionError::Reset)),
        }
    }

    /// Reads one control byte; 0 at the end. A close is only peeked at, so that it can be read with its reason.
    fn read_control(&self) -> io::Result<(u8, Option<OwnedFd>)> {
        let control = &self.0.control;
        let mut message = [0];
        let peek = RecvFlags::DONTWAIT | RecvFlags::PEEK;
        let (_, n_bytes) = recv(control, &mut message, peek)?;
        if n_bytes == 0 || message[0] != CHANNEL {
            return Ok((message[0], None));
        }
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        // Only the connecting side trusts its peer enough to accept file descriptors.
        if let Side::Accepted(_) = self.0.side {
            recv(control, &mut message, RecvFlags::DONTWAIT)?;
            return Ok((CHANNEL, None));
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        recvmsg(control, &mut [IoSliceMut::new(&mut message)], &mut ancillary, flags)?;
        let fd = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        Ok((CHANNEL, fd))
    }

    /// Returns the end of the connection, if it is next on the control socket: the end of a stream may be its
    /// consequence.
    fn peek_end(&self) -> Option<ConnectionError> {
        let mut message = [0; 2 + super::error::MAX_REASON_BYTES];
        match recv(&self.0.control, &mut message, RecvFlags::DONTWAIT | RecvFlags::PEEK) {
            Ok((_, 0)) => Some(ConnectionError::Reset),
            Ok((_, n_bytes)) if n_bytes >= 2 && message[0] == CLOSE => {
                let reason = message[2..n_bytes].to_vec().into();
                let error_code = VarInt::from_u32(message[1].into());
                Some(ConnectionError::ApplicationClosed(ApplicationClose { error_code, reason }))
            }
            Ok((_, _)) => None,
            Err(error) if error == rustix::io::Errno::AGAIN => None,
            Err(_) => Some(ConnectionError::Reset),
        }
    }
}

impl Stream {
    /// Runs `work` until the connection ends.
    async fn work<T>(&mut self, work: impl Future<Output = io::Result<T>>) -> Result<io::Result<T>, ConnectionError> {
        tokio::select! {
            biased;
            done = work => Ok(done),
            error = end_of(&mut self.ended) => Err(error),
        }
    }

    /// Converts the result of a read.
    fn read(&self, read: Result<io::Result<usize>, ConnectionError>) -> Result<usize, ReadError> {
        match read {
            Ok(Ok(n_read)) if n_read > 0 => Ok(n_read),
            Ok(ended) => match (self.connection_end(), ended) {
                (Some(error), _) => Err(ReadError::ConnectionLost(error)),
                (None, Ok(_)) => Ok(0),
                (None, Err(_)) => Err(ReadError::Reset(GIVEN_UP)),
            },
            Err(error) => Err(ReadError::ConnectionLost(error)),
        }
    }

    fn connection_end(&self) -> Option<ConnectionError> {
        if let Some(error) = self.connection.peek_end() {
            self.connection.end(error);
        }
        self.connection.close_reason()
    }
}

impl SendStream {
    pub async fn write_all(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        let written = self.stream.work(self.half.write_all(bytes)).await;
        match written.map_err(WriteError::ConnectionLost)? {
            Ok(()) => Ok(()),
            Err(_) => match self.stream.connection_end() {
                Some(error) => Err(WriteError::ConnectionLost(error)),
                None => Err(WriteError::Stopped(GIVEN_UP)),
            },
        }
    }

    pub fn finish(&mut self) {
        // The peer may have closed it earlier.
        let _ = shutdown(self.half.as_ref(), Shutdown::Write);
    }
}

impl RecvStream {
    pub async fn read(&mut self, into: &mut [u8]) -> Result<usize, ReadError> {
        let read = self.stream.work(self.half.read(into)).await;
        self.stream.read(read)
    }

    pub async fn read_more(&mut self, at_most: usize, into: &mut Vec<u8>) -> Result<usize, ReadError> {
        into.reserve(at_most);
        let read = self.stream.work((&mut self.half).take(at_most as u64).read_buf(into)).await;
        self.stream.read(read)
    }

    pub fn stop(&mut self) {
        let _ = shutdown(self.half.as_ref(), Shutdown::Read);
    }
}

impl Drop for RecvStream {
    fn drop(&mut self) {
        // The peer's writes fail from here on, though the other half may continue.
        self.stop();
    }
}

async fn end_of(ended: &mut watch::Receiver<Option<ConnectionError>>) -> ConnectionError {
    let found = ended.wait_for(Option::is_some).await.ok().and_then(|found| found.clone());
    found.unwrap_or(ConnectionError::LocallyClosed)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No change under the lock can panic half-way.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Requests or passes a channel.
const CHANNEL: u8 = 1;
/// Ends the connection: a code and the reason follow.
const CLOSE: u8 = 2;

/// The kernel doubles it and counts its own overhead in it.
const BUFFER_BYTES: usize = 32 << 10;

/// A local stream carries no error code.
const GIVEN_UP: VarInt = VarInt::from_u32(0);
