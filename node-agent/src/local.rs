//! The socket for processes of jobs, and no others: commands and steps on the nodes of their job, and its credentials.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nix::unistd::{Pid, Uid, User};
use rms_api::desired::LaunchNode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc};

use crate::exec::{self, Command, FromCommand, ToCommand};
use crate::frame::{self, Decoder, Frame};
use crate::peer::Peers;
use crate::rsh::{Call, CommandEnd, Request, STDERR, STDIN, STDOUT};
use crate::setup::Setup;
use crate::share::{MAX_STEPS, Share, Shares};
use crate::spool;
use crate::step;
use crate::supervisor::tree;

/// Opens the socket to all users: each caller is checked.
///
/// # Errors
/// The socket cannot be bound.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    let listener: StdUnixListener = spool::bind_socket(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}

/// The most callers served at a time. They are processes of jobs, because others are rejected at once; further ones
/// wait in the socket's queue.
const MAX_CALLERS: usize = 1024;
/// A caller that sends no request in this time loses its slot.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The most bytes of a request: a command and an environment, which the kernel bounds, in JSON.
const MAX_CALL_BYTES: usize = 16 << 20;
/// The pause before accepting again when there are no file descriptors. No event tells when some are free again.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Serves callers until the agent ends.
pub async fn serve(listener: UnixListener, shares: Shares, peers: Peers, setup: Arc<Setup>) {
    let places = Arc::new(Semaphore::new(MAX_CALLERS));
    loop {
        let place = Arc::clone(&places).acquire_owned().await.expect("the semaphore is never closed");
        match listener.accept().await {
            Ok((stream, _)) => match caller_share(&stream, &shares) {
                Ok(share) => {
                    let (peers, setup) = (peers.clone(), Arc::clone(&setup));
                    tokio::spawn(async move {
                        serve_caller(stream, share, peers, &setup).await;
                        drop(place);
                    });
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

/// Rejects a caller. Any process on the node may connect, so a caller that belongs to no job gets an error at once,
/// without a wait for its request and without keeping a file descriptor.
fn reject(stream: &UnixStream, reason: String) {
    tracing::debug!(reason, "rejected a caller");
    let _caller_left = stream.try_write(&frame::message(&CommandEnd::Failed { reason }));
}

async fn serve_caller(stream: UnixStream, share: Share, peers: Peers, setup: &Setup) {
    let (mut read, mut write) = stream.into_split();
    let mut decoder = Decoder::default();
    let call = tokio::time::timeout(REQUEST_TIMEOUT, first_frame(&mut read, &mut decoder)).await;
    let Ok(Ok(Some(call))) = call else { return };
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
            let answer = frame::message(&credentials(&share, setup));
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

/// Returns the share that the caller is a process of. The kernel identifies the caller, and the process tree its job.
fn caller_share(stream: &UnixStream, shares: &Shares) -> Result<Share, String> {
    let peer = stream.peer_cred().map_err(|error| format!("cannot identify the caller: {error}"))?;
    let mut ancestor = peer.pid().map(Pid::from_raw);
    let running = shares.all();
    while let Some(pid) = ancestor.filter(|pid| pid.as_raw() > 1) {
        if let Some(share) = running.iter().find(|share| share.supervisor() == Some(pid.as_raw())) {
            let owner = &share.order().launch.owner.0;
            let uid = Uid::from_raw(peer.uid());
            let is_owner = User::from_name(owner).ok().flatten().is_none_or(|user| user.uid == uid);
            return if is_owner { Ok(share.clone()) } else { Err(format!("the job is {owner}'s")) };
        }
        ancestor = tree::parent_of(pid);
    }
    Err("only processes of a job on this node are served here".to_owned())
}

/// Requests the key of a job if that was not done before; the caller waits for its files.
fn credentials(share: &Share, setup: &Setup) -> CommandEnd {
    let (job, run) = (share.job(), share.run());
    setup.keys.want(job, run, &share.order().launch.owner);
    // If the share had ended before, the key would never be removed.
    if share.has_ended() {
        if setup.keys.forget(job, run) {
            let keys = setup.keys.clone();
            tokio::task::spawn_blocking(move || keys.remove(job, run));
        }
        return CommandEnd::Failed { reason: format!("job {job} has ended") };
    }
    CommandEnd::Credentials { dir: setup.keys.dir(job, run), server: setup.server.clone() }
}

async fn first_frame(read: &mut OwnedReadHalf, decoder: &mut Decoder) -> io::Result<Option<Call>> {
    let mut piece = [0; 16 << 10];
    loop {
        let n = read.read(&mut piece).await?;
        if n == 0 {
            return Ok(None);
        }
        decoder.push(&piece[..n]);
        match decoder.take::<Call>().map_err(io::Error::other)? {
            Some(Frame::Message(call)) => return Ok(Some(call)),
            Some(Frame::Bytes { .. }) => return Ok(None),
            None if decoder.n_waiting() > MAX_CALL_BYTES => return Ok(None),
            None => {}
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
        return Ok(exec::start(share, request.command));
    }
    let place = &order.launch.nodes[node_idx];
    peers.exec(share, place, request.command).await.map_err(|error| format!("{:#}", anyhow::Error::from(error)))
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
        match read.read(&mut piece).await {
            // The caller is gone; dropping `to` abandons the command.
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
