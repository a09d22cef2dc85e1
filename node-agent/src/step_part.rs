//! The part of a step on one node: forwards messages between the agent that runs the step and the supervisor there.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rms_wire::peer::StepPart;
use rms_wire::{Channel, StepDown, StepUp};
use tokio::sync::{Notify, mpsc};

use crate::exec::{MAX_PIECES, not_running, supervisor_left};
use crate::frame;
use crate::order::{STREAMS_PER_EXEC, STREAMS_PER_STEP, StepOrder, ToSupervisor};
use crate::pmi::place::MAX_PER_NODE;
use crate::share::{Share, StreamEvent, ToSeat};

/// Both directions to the tasks of a step on one node. Dropping `to` ends them; the last message from them is `Done` or
/// `Failed`. If a queue is full, its sender waits; messages in `to` are taken at once, because input is bounded by a
/// window.
#[derive(Debug)]
pub struct Part {
    pub to: mpsc::Sender<StepDown>,
    pub from: mpsc::Receiver<StepUp>,
}

/// Starts the part under the supervisor of this node, for a process of the job here or on another node.
pub fn start(share: &Share, step: StepPart, is_of_other_node: bool) -> Part {
    let (to, downs) = mpsc::channel(MAX_PIECES);
    let (ups, from) = mpsc::channel(MAX_PIECES);
    tokio::spawn(run_part(share.clone(), step, is_of_other_node, downs, ups));
    Part { to, from }
}

async fn run_part(
    share: Share,
    step: StepPart,
    is_of_other_node: bool,
    mut downs: mpsc::Receiver<StepDown>,
    ups: mpsc::Sender<StepUp>,
) {
    // The first node of a job may be faster than this one, so its request may arrive before the order to start.
    let supervisor = tokio::select! {
        supervisor = share.wait_for_supervisor() => supervisor,
        () = ups.closed() => return,
    };
    if step.n_local > MAX_PER_NODE {
        let reason = format!("at most {MAX_PER_NODE} tasks are started on one node");
        let _nobody_waits = ups.send(StepUp::Failed { reason }).await;
        return;
    }
    let Some(supervisor) = supervisor else {
        let _nobody_waits = ups.send(StepUp::Failed { reason: not_running(&share) }).await;
        return;
    };
    let (stream, mut events) = share.listen_to_step();
    let readers = (0..step.n_readers.min(step.n_local)).map(|local| step.first_task.saturating_add(local));
    let input = Input { credit: Mutex::new(Credit::new(readers)), unread: Notify::new(), stream };
    let order = ToSupervisor::Step(Box::new(StepOrder { stream, part: step, is_of_other_node }));
    let _gone_is_heard_below = supervisor.send(frame::message(&order)).await;
    // Both directions at once, so that tasks whose output is not read can be ended.
    let is_over = tokio::select! {
        is_over = forward_events(&mut events, &share, &supervisor, &input, &ups) => is_over,
        () = forward_orders(&mut downs, &supervisor, &input) => false,
        () = ups.closed() => false,
    };
    share.forget_stream(stream);
    if !is_over {
        let end = ToSupervisor::StepEnd { stream, silent: true };
        let _gone_with_the_job = supervisor.send(frame::message(&end)).await;
    }
}

/// Forwards events of the supervisor until the last one; returns false if the receiver has left.
async fn forward_events(
    events: &mut mpsc::Receiver<StreamEvent>,
    share: &Share,
    supervisor: &ToSeat,
    input: &Input,
    ups: &mpsc::Sender<StepUp>,
) -> bool {
    loop {
        let event = tokio::select! {
            event = events.recv() => event,
            () = input.unread.notified() => {
                let n_bytes = input.credit().take_new();
                if n_bytes > 0 && ups.send(StepUp::Taken { n_bytes }).await.is_err() {
                    return false;
                }
                continue;
            }
        };
        let said = match event {
            Some(StreamEvent::Bytes { stream, bytes }) if !bytes.is_empty() => {
                let confirm = ToSupervisor::Taken { stream, n_bytes: bytes.len() as u64 };
                let task = task_of(stream);
                let is_output = stream % STREAMS_PER_EXEC == 1;
                let up = if is_output { StepUp::Stdout { task, bytes } } else { StepUp::Stderr { task, bytes } };
                if ups.send(up).await.is_err() {
                    return false;
                }
                let _gone_is_heard = supervisor.send(frame::message(&confirm)).await;
                continue;
            }
            // The end of one stream; the end of the task is a separate event.
            Some(StreamEvent::Bytes { .. }) => continue,
            Some(StreamEvent::Taken { stream, n_bytes }) => match input.credit().taken(task_of(stream), n_bytes) {
                0 => continue,
                n_bytes => StepUp::Taken { n_bytes },
            },
            Some(StreamEvent::TaskEnded { task, code, signal }) => {
                let n_bytes = input.credit().remove_reader(task);
                if n_bytes > 0 && ups.send(StepUp::Taken { n_bytes }).await.is_err() {
                    return false;
                }
                StepUp::TaskEnded { task, code, signal }
            }
            Some(StreamEvent::Aborted { code }) => StepUp::Aborted { code },
            Some(StreamEvent::Pmi(up)) => StepUp::Pmi(up),
            Some(StreamEvent::Done) => StepUp::Done,
            Some(StreamEvent::Failed { reason }) => StepUp::Failed { reason },
            // Only commands send this.
            Some(StreamEvent::Ended { .. }) => continue,
            None => StepUp::Failed { reason: supervisor_left(share) },
        };
        let is_last = matches!(said, StepUp::Done | StepUp::Failed { .. });
        let is_heard = ups.send(said).await.is_ok();
        if is_last || !is_heard {
            return is_last;
        }
    }
}

/// Forwards orders to the supervisor until the sender is dropped.
async fn forward_orders(downs: &mut mpsc::Receiver<StepDown>, supervisor: &ToSeat, input: &Input) {
    let stream = input.stream;
    while let Some(down) = downs.recv().await {
        let frames = match down {
            StepDown::Stdin { bytes } => {
                let mut credit = input.credit();
                credit.sent(bytes.len() as u64);
                if credit.readers().next().is_none() {
                    input.unread.notify_one();
                }
                drop(credit);
                input.frames(&bytes)
            }
            StepDown::StdinEof => input.frames(b""),
            StepDown::Signal { signal } => vec![frame::message(&ToSupervisor::StepSignal { stream, signal })],
            StepDown::End => vec![frame::message(&ToSupervisor::StepEnd { stream, silent: false })],
            StepDown::Pmi(frame) => vec![frame::message(&ToSupervisor::StepPmi { stream, frame })],
        };
        for frame in frames {
            let _gone_is_heard = supervisor.send(frame).await;
        }
    }
}

struct Input {
    credit: Mutex<Credit<u32>>,
    /// Input came that no task reads any more.
    unread: Notify,
    /// The first stream of the step.
    stream: u64,
}

impl Input {
    fn credit(&self) -> MutexGuard<'_, Credit<u32>> {
        self.credit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns frames for each task that reads and has not ended.
    fn frames(&self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let stream = |task: u32| self.stream + u64::from(task) * STREAMS_PER_EXEC;
        self.credit().readers().map(|task| frame::bytes(stream(task), bytes)).collect()
    }
}

fn task_of(stream: u64) -> u32 {
    (stream % STREAMS_PER_STEP / STREAMS_PER_EXEC) as u32
}

/// Counts how much of an input all of its readers have read.
#[derive(Debug)]
pub struct Credit<K> {
    n_sent: u64,
    n_told: u64,
    n_taken: BTreeMap<K, u64>,
}

impl<K: Ord + Copy> Credit<K> {
    pub fn new(readers: impl IntoIterator<Item = K>) -> Credit<K> {
        Credit { n_sent: 0, n_told: 0, n_taken: readers.into_iter().map(|reader| (reader, 0)).collect() }
    }

    pub fn readers(&self) -> impl Iterator<Item = K> + '_ {
        self.n_taken.keys().copied()
    }

    pub fn sent(&mut self, n_bytes: u64) {
        self.n_sent += n_bytes;
    }

    /// Returns the bytes sent and not yet read by all.
    pub fn n_open(&self) -> u64 {
        self.n_sent - self.n_told
    }

    /// Records what one reader has read, and returns how much more all have read.
    pub fn taken(&mut self, reader: K, n_bytes: u64) -> u64 {
        if let Some(n_taken) = self.n_taken.get_mut(&reader) {
            *n_taken = n_taken.saturating_add(n_bytes).min(self.n_sent);
        }
        self.take_new()
    }

    /// Removes a reader that reads no more, and returns how much more all others have read.
    pub fn remove_reader(&mut self, reader: K) -> u64 {
        self.n_taken.remove(&reader);
        self.take_new()
    }

    /// Returns how much more all have read than was reported so far.
    pub fn take_new(&mut self) -> u64 {
        let by_all = self.n_taken.values().copied().min().unwrap_or(self.n_sent);
        let take_new = by_all.saturating_sub(self.n_told);
        self.n_told += take_new;
        take_new
    }
}

/// Forwards messages between tasks here and a peer that runs the step.
pub async fn serve(channel: Channel, part: Part) {
    let (mut sender, mut receiver) = channel.split();
    let Part { to, mut from } = part;
    let orders = tokio::spawn(async move {
        while let Ok(Some(down)) = receiver.recv::<StepDown>().await {
            if to.send(down).await.is_err() {
                return;
            }
        }
        // The peer has left, so the tasks are ended.
    });
    while let Some(up) = from.recv().await {
        if sender.send(&up).await.is_err() {
            break;
        }
    }
    sender.finish();
    sender.delivered().await;
    orders.abort();
}

/// Forwards messages between a step that runs here and tasks under another agent.
pub fn on_channel(channel: Channel) -> Part {
    let (to, mut downs) = mpsc::channel::<StepDown>(MAX_PIECES);
    let (ups, from) = mpsc::channel(MAX_PIECES);
    let (mut sender, mut receiver) = channel.split();
    tokio::spawn(async move {
        while let Some(down) = downs.recv().await {
            if sender.send(&down).await.is_err() {
                return;
            }
        }
        // The other agent ends the tasks when this connection is closed.
        sender.finish();
    });
    tokio::spawn(async move {
        loop {
            let up = tokio::select! {
                up = receiver.recv::<StepUp>() => match up {
                    Ok(Some(up)) => up,
                    Ok(None) => StepUp::Failed { reason: "its agent has ended the tasks".to_owned() },
                    Err(error) => StepUp::Failed { reason: format!("lost its agent: {error}") },
                },
                () = ups.closed() => return,
            };
            let is_last = matches!(up, StepUp::Done | StepUp::Failed { .. });
            if ups.send(up).await.is_err() || is_last {
                return;
            }
        }
    });
    Part { to, from }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_reader_opens_the_window_and_who_has_left_does_not_hold_it() {
        let mut credit = Credit::new([1, 2]);
        credit.sent(10);
        assert_eq!((credit.taken(1, 10), credit.n_open()), (0, 10));
        assert_eq!((credit.taken(2, 4), credit.n_open()), (4, 6));
        assert_eq!(credit.remove_reader(2), 6);
        credit.sent(5);
        assert_eq!((credit.remove_reader(1), credit.n_open()), (5, 0), "nobody reads");
    }
}
