//! Runs one command inside a job on this node and forwards its streams.

use rms_model::Inherited;
use tokio::sync::mpsc;

use crate::frame;
use crate::order::{ExecOrder, ToSupervisor, WINDOW};
use crate::share::{Share, StreamEvent, ToSeat};

/// A message to a command. Dropping the sender abandons the command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToCommand {
    Input(Vec<u8>),
    InputEnds,
}

/// A message from a command; the last is `Ended` or `Failed`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromCommand {
    Output(Vec<u8>),
    Errors(Vec<u8>),
    Ended { code: i32 },
    Failed { reason: String },
}

/// Both directions to a command. If a queue is full, its sender waits.
#[derive(Debug)]
pub struct Command {
    pub to: mpsc::Sender<ToCommand>,
    pub from: mpsc::Receiver<FromCommand>,
}

/// Returns why nothing can be run under a share without a supervisor.
pub fn not_running(share: &Share) -> String {
    format!("the job runs nothing on {} any more: its tasks there have ended", node_of(share))
}

/// Returns why a supervisor has left without a last word on a command or a step.
pub fn supervisor_left(share: &Share) -> String {
    format!("the job has ended on {}, or its supervisor there is gone", node_of(share))
}

fn node_of(share: &Share) -> String {
    share.order().place().map_or_else(|| "this node".to_owned(), |place| place.name.clone())
}

/// The most pieces queued in each direction.
pub const MAX_PIECES: usize = 8;

/// Starts a command under the share's supervisor, for a process of the job here or on another node.
pub fn start(share: &Share, command: String, inherited: Option<Inherited>, is_of_other_node: bool) -> Command {
    let (to, input) = mpsc::channel(MAX_PIECES);
    let (output, from) = mpsc::channel(MAX_PIECES);
    let stream = share.new_streams();
    let order = ExecOrder { stream, command, inherited, is_of_other_node };
    tokio::spawn(carry(share.clone(), order, input, output));
    Command { to, from }
}

async fn carry(
    share: Share,
    order: ExecOrder,
    mut input: mpsc::Receiver<ToCommand>,
    output: mpsc::Sender<FromCommand>,
) {
    let stream = order.stream;
    // The first node of a job may be faster than this one, so its request may arrive before the order to start.
    let supervisor = tokio::select! {
        supervisor = share.wait_for_supervisor() => supervisor,
        () = output.closed() => return,
    };
    let Some(supervisor) = supervisor else {
        let _nobody_waits = output.send(FromCommand::Failed { reason: not_running(&share) }).await;
        return;
    };
    let mut events = share.listen(stream);
    let order = ToSupervisor::Exec(Box::new(order));
    let _gone_is_heard_below = supervisor.send(frame::message(&order)).await;
    let mut window = Window::default();
    loop {
        tokio::select! {
            event = events.recv() => {
                let Some(heard) = translate(event, stream, &share, &supervisor, &mut window).await else { continue };
                let is_last = matches!(heard, FromCommand::Ended { .. } | FromCommand::Failed { .. });
                let is_lost = output.send(heard).await.is_err();
                if is_lost {
                    break;
                }
                if is_last {
                    share.forget_stream(stream);
                    return;
                }
            }
            piece = input.recv(), if window.is_open() => match piece {
                Some(ToCommand::Input(bytes)) => {
                    window.sent(bytes.len());
                    let _gone_is_heard_above = supervisor.send(frame::bytes(stream, &bytes)).await;
                }
                Some(ToCommand::InputEnds) => {
                    window.ended = true;
                    let _gone_is_heard_above = supervisor.send(frame::bytes(stream, b"")).await;
                }
                None => break,
            },
            // Once the input has ended, only the listener can abandon the command.
            () = output.closed() => break,
        }
    }
    share.forget_stream(stream);
    let _gone_with_the_job = supervisor.send(frame::message(&ToSupervisor::ExecAbandon { stream })).await;
}

/// Translates an event for the receiver; bytes are confirmed as soon as they are passed on.
async fn translate(
    event: Option<StreamEvent>,
    stream: u64,
    share: &Share,
    supervisor: &ToSeat,
    window: &mut Window,
) -> Option<FromCommand> {
    match event {
        Some(StreamEvent::Bytes { stream: from, bytes }) if !bytes.is_empty() => {
            let n_bytes = bytes.len() as u64;
            let confirm = ToSupervisor::Taken { stream: from, n_bytes };
            let _gone_is_heard = supervisor.send(frame::message(&confirm)).await;
            let is_output = from == stream + 1;
            Some(if is_output { FromCommand::Output(bytes) } else { FromCommand::Errors(bytes) })
        }
        // The end of one stream; the end of the command is a separate event.
        Some(StreamEvent::Bytes { .. }) => None,
        Some(StreamEvent::Taken { stream: _, n_bytes }) => {
            window.n_unconfirmed = window.n_unconfirmed.saturating_sub(n_bytes);
            None
        }
        Some(StreamEvent::Ended { code }) => Some(FromCommand::Ended { code }),
        Some(StreamEvent::Failed { reason }) => Some(FromCommand::Failed { reason }),
        // Only steps send these.
        Some(StreamEvent::TaskEnded { .. } | StreamEvent::Aborted { .. } | StreamEvent::Pmi(_) | StreamEvent::Done) => {
            None
        }
        None => Some(FromCommand::Failed { reason: supervisor_left(share) }),
    }
}

#[derive(Debug, Default)]
struct Window {
    n_unconfirmed: u64,
    ended: bool,
}

impl Window {
    fn is_open(&self) -> bool {
        self.n_unconfirmed < WINDOW && !self.ended
    }

    fn sent(&mut self, n_bytes: usize) {
        self.n_unconfirmed += n_bytes as u64;
    }
}
