//! The socket for processes of jobs, and no others: commands and steps on the nodes of their job, and its credentials.

use std::collections::HashMap;
use std::io;
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::unistd::{Pid, Uid};
use rms_api::desired::LaunchNode;
use rms_model::checked::MAX_ENVIRONMENT_BYTES;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf, UCred};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;

use crate::exec::{self, Command, FromCommand, ToCommand};
use crate::frame::{self, Decoder, Frame};
use crate::keys::Keys;
use crate::lookup;
use crate::peer::Peers;
use crate::rsh::{Call, CommandEnd, Request, STDERR, STDIN, STDOUT};
use crate::share::{MAX_STEPS, Share, Shares};
use crate::spool;
use crate::step;
use crate::supervisor::tree;

/// Opens the socket to all users: each caller is checked.
///
/// # Errors
/// The socket cannot be bound.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    let listener: StdUnixListener = spool::bind_socket_for_all(path)?;
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}

/// The most callers served at a time, and the most of one user. They are processes of jobs, because others are rejected
/// at once.
const MAX_CALLERS: usize = 1024;
const MAX_CALLERS_OF_USER: usize = 512;
/// A caller that sends no request within this time loses its slot.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The most bytes of a request. The largest is a step with its environment and arguments, for which the kernel allows 2
/// MiB, as a submission does; quotes and newlines take twice their size in JSON.
const MAX_CALL_BYTES: usize = 2 * MAX_ENVIRONMENT_BYTES;
/// The most bytes of all requests of one user: they stay in the agent's memory for as long as steps run.
const MAX_CALL_BYTES_OF_USER: usize = 32 << 20;
/// The most bytes of input that may wait for the rest of their frame: callers send pieces of 16 KiB.
const MAX_INPUT_BYTES: usize = 32 << 10;
/// The pause before accepting again when there are no file descriptors. No event says when some are free again.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Serves callers until the agent ends.
pub async fn serve(listener: UnixListener, shares: Shares, peers: Peers, keys: Keys, server: String) {
    let callers = Arc::new(Callers::default());
    loop {
        match listener.accept().await {
            Ok((stream, _)) => match admit(&stream, &shares, &callers) {
                Ok((share, place)) => {
                    let (peers, keys, server) = (peers.clone(), keys.clone(), server.clone());
                    tokio::spawn(async move { serve_caller(stream, share, place, peers, &keys, server).await });
                }
                Err(reason) => reject(&stream, reason),
            },
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection on the agent's socket");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
}

/// Counts the resources held by the callers of each user.
#[derive(Debug, Default)]
struct Callers(Mutex<HashMap<Uid, Held>>);

#[derive(Debug, Default)]
struct Held {
    n_callers: usize,
    n_call_bytes: usize,
}

/// The slot of one caller, released on drop.
#[derive(Debug)]
struct Place {
    callers: Arc<Callers>,
    user: Uid,
    n_call_bytes: usize,
}

impl Callers {
    fn users(&self) -> MutexGuard<'_, HashMap<Uid, Held>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a slot for one more caller of this user.
    ///
    /// # Errors
    /// The user, or all users together, have reached their limit.
    fn place(self: &Arc<Self>, user: Uid) -> Result<Place, String> {
        let mut users = self.users();
        let n_callers: usize = users.values().map(|held| held.n_callers).sum();
        let n_of_user = users.get(&user).map_or(0, |held| held.n_callers);
        let (most, of) = match n_of_user < MAX_CALLERS_OF_USER {
            true if n_callers < MAX_CALLERS => {
                users.entry(user).or_default().n_callers += 1;
                return Ok(Place { callers: Arc::clone(self), user, n_call_bytes: 0 });
            }
            true => (MAX_CALLERS, "all users"),
            false => (MAX_CALLERS_OF_USER, "this user"),
        };
        Err(format!(
            "{most} commands and steps of {of} run or wait on this node, and more may not: wait for some of them"
        ))
    }
}

impl Place {
    /// Records that `n_bytes` of the caller's request have arrived.
    ///
    /// # Errors
    /// The request, or those of the user together, are too large.
    fn hold(&mut self, n_bytes: usize) -> Result<(), String> {
        let mut users = self.callers.users();
        let held = users.entry(self.user).or_default();
        held.n_call_bytes = held.n_call_bytes - self.n_call_bytes + n_bytes;
        self.n_call_bytes = n_bytes;
        if n_bytes > MAX_CALL_BYTES {
            return Err(format!("the environment and arguments take more than {} MiB", MAX_CALL_BYTES >> 20));
        }
        if held.n_call_bytes > MAX_CALL_BYTES_OF_USER {
            let most = MAX_CALL_BYTES_OF_USER >> 20;
            return Err(format!(
                "the environments and arguments of all steps of this user take more than {most} MiB on this node: wait for some of them"
            ));
        }
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut users = self.callers.users();
        let held = users.entry(self.user).or_default();
        held.n_callers -= 1;
        held.n_call_bytes -= self.n_call_bytes;
        users.retain(|_, held| held.n_callers > 0);
    }
}

/// Returns the caller's share and its slot among the callers.
///
/// # Errors
/// The caller belongs to no job here, or there is no slot.
fn admit(stream: &UnixStream, shares: &Shares, callers: &Arc<Callers>) -> Result<(Share, Place), String> {
    let peer = stream.peer_cred().map_err(|error| format!("cannot identify the caller: {error}"))?;
    Ok((caller_share(peer, shares)?, callers.place(Uid::from_raw(peer.uid()))?))
}

/// Rejects a caller. Any process on the node may connect, so a caller that belongs to no job, or for which there is no
/// slot, gets an error at once, without a wait for its request and without keeping a file descriptor.
fn reject(stream: &UnixStream, reason: String) {
    tracing::debug!(reason, "rejected a caller");
    let _caller_left = stream.try_write(&frame::message(&CommandEnd::Failed { reason }));
}

async fn serve_caller(stream: UnixStream, share: Share, mut place: Place, peers: Peers, keys: &Keys, server: String) {
    if let Err(reason) = check_owner(&share, place.user).await {
        return reject(&stream, reason);
    }
    let (mut read, mut write) = stream.into_split();
    let mut decoder = Decoder::default();
    let call = tokio::time::timeout(REQUEST_TIMEOUT, first_frame(&mut read, &mut decoder, &mut place)).await;
    let call = match call {
        Ok(Ok(Some(call))) => call,
        Ok(Ok(None)) | Err(_) => return,
        Ok(Err(reason)) => {
            let _caller_left = write.write_all(&frame::message(&CommandEnd::Failed { reason })).await;
            return;
        }
    };
    let request = match call {
        Call::Command(request) => request,
        Call::Step { step } => match share.acquire_step_slot() {
            Some(_place) => return step::serve(share, peers, *step, read, decoder, write).await,
            None => {
                let reason = format!(
                    "{MAX_STEPS} steps of this job run or wait on this node, and more may not: wait for some of them"
                );
                let _caller_left = write.write_all(&frame::message(&CommandEnd::Failed { reason })).await;
                return;
            }
        },
        Call::Credentials { credentials: () } => {
            let answer = frame::message(&credentials(&share, keys, server));
            let _caller_left = write.write_all(&answer).await;
            return;
        }
    };
    match start(&share, &peers, request).await {
        Ok(Command { to, from }) => {
            let input = tokio::spawn(forward_input(read, decoder, to));
            forward_output(from, write).await;
            input.abort();
        }
        Err(reason) => {
            let _caller_left = write.write_all(&frame::message(&CommandEnd::Failed { reason })).await;
        }
    }
}

/// Returns the share to which the caller belongs. The kernel identifies the caller; the process tree identifies its
/// job.
fn caller_share(peer: UCred, shares: &Shares) -> Result<Share, String> {
    let running = shares.all();
    for pid in tree::ancestry(peer.pid().map(Pid::from_raw)) {
        if let Some(share) = running.iter().find(|share| share.supervisor() == Some(pid.as_raw())) {
            return Ok(share.clone());
        }
    }
    Err("only processes of a job on this node are served here".to_owned())
}

/// # Errors
/// The job belongs to another user than the caller.
async fn check_owner(share: &Share, caller: Uid) -> Result<(), String> {
    let owner = share.order().launch.owner.0.clone();
    let is_owner = lookup::uid(owner.clone()).await.is_none_or(|uid| uid == caller);
    if is_owner { Ok(()) } else { Err(format!("the job is {owner}'s")) }
}

/// Requests the key of a job unless that was done already; the caller waits for its files.
fn credentials(share: &Share, keys: &Keys, server: String) -> CommandEnd {
    let (job, run) = (share.job(), share.run());
    keys.want(job, run, &share.order().launch.owner);
    // If the share had ended already, the key would never be removed.
    if share.has_ended() {
        if keys.forget(job, run) {
            let keys = keys.clone();
            tokio::task::spawn_blocking(move || keys.remove(job, run));
        }
        return CommandEnd::Failed { reason: format!("job {job} has ended") };
    }
    CommandEnd::Credentials { dir: keys.dir(job, run), server }
}

/// Reads the request; `None` if the caller has left or sends something else.
///
/// # Errors
/// The request is too large.
async fn first_frame(
    read: &mut OwnedReadHalf,
    decoder: &mut Decoder,
    place: &mut Place,
) -> Result<Option<Call>, String> {
    let mut piece = [0; 16 << 10];
    loop {
        match read.read(&mut piece).await {
            Ok(0) | Err(_) => return Ok(None),
            Ok(n) => decoder.push(&piece[..n]),
        }
        place.hold(decoder.n_waiting())?;
        match decoder.take::<Call>() {
            Ok(Some(Frame::Message(call))) => return Ok(Some(call)),
            Ok(Some(Frame::Bytes { .. })) | Err(_) => return Ok(None),
            Ok(None) => {}
        }
    }
}

async fn start(share: &Share, peers: &Peers, request: Request) -> Result<Command, String> {
    let order = share.order();
    let names = |place: &LaunchNode| place.name == request.node;
    let is_local = ["localhost", "127.0.0.1"].contains(&request.node.as_str());
    let node_idx = order.launch.nodes.iter().position(names).or(is_local.then_some(order.node_idx as usize));
    let Some(node_idx) = node_idx else {
        return Err(format!("{} is not a node of job {}", request.node, order.job));
    };
    if node_idx == order.node_idx as usize {
        return Ok(exec::start(share, request.command, request.inherited, false));
    }
    let place = &order.launch.nodes[node_idx];
    peers
        .exec(share, place, request.command, request.inherited)
        .await
        .map_err(|error| format!("{:#}", anyhow::Error::from(error)))
}

async fn forward_input(mut read: OwnedReadHalf, mut decoder: Decoder, to: mpsc::Sender<ToCommand>) {
    let mut piece = vec![0; 16 << 10];
    loop {
        while let Ok(Some(frame)) = decoder.take::<Request>() {
            let input = match frame {
                Frame::Bytes { stream: STDIN, bytes } if bytes.is_empty() => ToCommand::InputEnds,
                Frame::Bytes { stream: STDIN, bytes } => ToCommand::Input(bytes),
                Frame::Bytes { .. } | Frame::Message(_) => return,
            };
            if to.send(input).await.is_err() {
                return;
            }
        }
        // Each frame is forwarded before more is read, so a caller waits for the command that reads its input. A caller
        // that sends a longer frame is not `rms-rsh`.
        if decoder.n_waiting() > MAX_INPUT_BYTES {
            return;
        }
        match read.read(&mut piece).await {
            // The caller has left; dropping `to` abandons the command.
            Ok(0) | Err(_) => return,
            Ok(n) => decoder.push(&piece[..n]),
        }
    }
}

async fn forward_output(mut from: mpsc::Receiver<FromCommand>, mut write: OwnedWriteHalf) {
    while let Some(heard) = from.recv().await {
        let frame = match heard {
            FromCommand::Output(bytes) => frame::bytes(STDOUT, &bytes),
            FromCommand::Errors(bytes) => frame::bytes(STDERR, &bytes),
            FromCommand::Ended { code } => frame::message(&CommandEnd::Ended { code }),
            FromCommand::Failed { reason } => frame::message(&CommandEnd::Failed { reason }),
        };
        if write.write_all(&frame).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use rms_model::{Identity, Role, Span};
    use rms_wire::tls::draw_serial;
    use rms_wire::{Authority, Endpoint, NewKey};

    use super::*;
    use crate::exec::MAX_PIECES;
    use crate::keys::KeyDirs;
    use crate::order;
    use crate::rsh::StepRequest;
    use crate::supervisor::now;
    use crate::work_queues::WorkQueues;

    /// A node with one job, whose processes are this one; its supervisor reads nothing.
    struct Node {
        dir: tempfile::TempDir,
        _to_supervisor: mpsc::Receiver<Vec<u8>>,
    }

    impl Node {
        fn start() -> Node {
            let dir = tempfile::tempdir().expect("a directory");
            let authority = Authority::create(&dir.path().join("ca"), "d1", now()).expect("a new authority");
            let (key, identity) =
                (NewKey::generate().expect("a key"), Identity::new(Role::Agent, "n1").expect("a name"));
            let (from, until) = (now() - Span::from_secs(1), now() + Span::from_hours(1));
            let chain = authority.sign(key.csr_der(), &identity, &draw_serial(), from, until).expect("a certificate");
            let endpoint = Endpoint::dial(&key.into_credentials(&chain, authority.ca_pem()).expect("credentials"));
            let (to_supervisor, queue) = mpsc::channel(MAX_PIECES);
            let share = Share::new(
                order::tests::order([test_kit::place("n1")]),
                dir.path().to_owned(),
                0,
                WorkQueues::default(),
            );
            share.attach(to_supervisor, Pid::this().as_raw());
            let shares = Shares::default();
            shares.insert(share);
            let listener = listen(&dir.path().join("agent.sock")).expect("bound");
            let peers = Peers::new(endpoint.expect("a port"), shares.clone());
            let keys = Keys::new(KeyDirs::create(&dir.path().join("keys")).expect("made"));
            tokio::spawn(serve(listener, shares, peers, keys, "head:1".to_owned()));
            Node { dir, _to_supervisor: queue }
        }

        async fn call(&self) -> UnixStream {
            loop {
                match UnixStream::connect(self.dir.path().join("agent.sock")).await {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => tokio::time::sleep(SOON / 1000).await,
                    connected => return connected.expect("the agent listens"),
                }
            }
        }
    }

    const SOON: Duration = Duration::from_secs(5);

    /// Returns the agent's answer; empty if the agent closed the connection without one.
    async fn answer(caller: &mut UnixStream) -> String {
        let mut answer = Vec::new();
        let read = tokio::time::timeout(SOON, caller.read_to_end(&mut answer)).await;
        assert!(read.is_ok(), "it hears nothing");
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Sends the beginning of a frame of this kind and length.
    async fn begin_frame(caller: &mut UnixStream, kind: u8, length: usize) {
        let _agent_left =
            caller.write_all(&[&(64_u32 << 20).to_le_bytes()[..], &[kind], &vec![b' '; length]].concat()).await;
    }

    #[tokio::test]
    async fn a_caller_for_whom_there_is_no_room_hears_so_at_once() {
        let node = Node::start();
        let mut callers = Vec::new();
        for _ in 0..MAX_CALLERS_OF_USER {
            callers.push(node.call().await);
        }
        let refusal = answer(&mut node.call().await).await;
        assert!(refusal.contains("512 commands and steps of this user"), "{refusal}");
        let last = callers.last_mut().expect("a caller");
        let call = Call::Command(Request { node: "n9".to_owned(), command: "true".to_owned(), inherited: None });
        last.write_all(&frame::message(&call)).await.expect("it is served");
        assert!(answer(last).await.contains("n9 is not a node of job 1"));
    }

    #[tokio::test]
    async fn requests_are_refused_that_no_program_would_send() {
        let node = Node::start();
        let mut caller = node.call().await;
        begin_frame(&mut caller, 0, MAX_CALL_BYTES + 1).await;
        let refusal = answer(&mut caller).await;
        assert!(refusal.contains("4 MiB"), "{refusal}");
        let mut callers = Vec::new();
        for _ in 0..=MAX_CALL_BYTES_OF_USER / MAX_CALL_BYTES {
            let mut caller = node.call().await;
            begin_frame(&mut caller, 0, MAX_CALL_BYTES - 5).await;
            callers.push(caller);
        }
        let refusal = answer(callers.last_mut().expect("a caller")).await;
        assert!(refusal.contains("32 MiB"), "{refusal}");
    }

    #[test]
    fn two_users_have_all_places_and_others_hear_so() {
        let callers = Arc::new(Callers::default());
        let place = |user: u32| callers.place(Uid::from_raw(user));
        let mut places: Vec<Place> = (0..1024).map(|n| place(n % 2).expect("a place")).collect();
        assert!(place(2).expect_err("there is none").contains("1024 commands and steps of all users"));
        places.truncate(1023);
        assert!(place(0).expect_err("it has its half").contains("512 commands and steps of this user"));
        place(2).expect("one was left");
    }

    #[test]
    fn the_largest_environment_that_a_job_may_have_is_small_enough_for_a_step() {
        let variable = |n: usize| (format!("V{n}"), "\"line\"\n".repeat(MAX_ENVIRONMENT_BYTES / 160));
        let step = StepRequest { environment: (0..20).map(variable).collect(), ..StepRequest::default() };
        let frame = frame::message(&Call::Step { step: Box::new(step) });
        assert!(frame.len() < MAX_CALL_BYTES, "{}", frame.len());
    }

    #[tokio::test]
    async fn input_that_cannot_be_passed_on_ends_the_command() {
        let node = Node::start();
        let mut caller = node.call().await;
        let call = Call::Command(Request { node: "n1".to_owned(), command: "cat".to_owned(), inherited: None });
        caller.write_all(&frame::message(&call)).await.expect("it is served");
        begin_frame(&mut caller, 1, 1 << 20).await;
        answer(&mut caller).await;
    }
}
