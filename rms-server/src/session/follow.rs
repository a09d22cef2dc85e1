//! Streams a job to its user: the output of all nodes and the job's changes, and input in the other direction.

use rms_api::Refused;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use rms_api::Refusal;
use rms_api::answer::JobChange;
use rms_model::{Identity, JobId, Owner, Role, Run, Time};
use rms_wire::link::{Receiver, Sender};
use rms_wire::{Follow, Followed, Input, InputAt, Offset};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::SessionError;
use super::join::watch_refused;
use super::pull::{Inputs, Offsets, Pull, PullEvent, reserve_memory};
use super::watch::recorded;
use crate::shared::Shared;

/// Chunks on their way to the follower, over all nodes. When it is full, the agents wait: a slow reader slows down only
/// the streams that it follows, and their output is in files meanwhile.
const MAX_CHUNKS: usize = 2;

/// Input that the job has not read yet. When it is full, the client waits.
const MAX_INPUTS: usize = 1;

/// Streams until the job is over and all its output was delivered, or the client leaves.
pub async fn serve(
    mut sender: Sender,
    receiver: Receiver,
    who: &Identity,
    order: Follow,
    held: &Arc<Semaphore>,
    shared: &Arc<Shared>,
) -> Result<(), SessionError> {
    let are_repeated = order.input_from.is_some();
    let last = match FollowSession::begin(who, order, held, shared).await {
        Err(refused) => Followed::Refused(refused),
        Ok((session, input)) => {
            // A task of its own, because a job that reads no input must not block its output.
            let (left, has_left) = oneshot::channel();
            let reader = tokio::spawn(forward_input(receiver, are_repeated, input, left));
            let followed = session.run(&mut sender, has_left).await;
            reader.abort();
            match followed? {
                Some(last) => last,
                None => return Ok(()),
            }
        }
    };
    sender.send(&last).await?;
    sender.finish();
    Ok(())
}

/// Passes input on; drops `left` when the client is gone.
async fn forward_input(
    mut receiver: Receiver,
    are_repeated: bool,
    input: mpsc::Sender<InputAt>,
    left: oneshot::Sender<()>,
) {
    let mut left = left;
    loop {
        let received = match are_repeated {
            true => receiver.recv::<InputAt>().await,
            false => {
                let received = receiver.recv::<Input>().await;
                received.map(|input| input.map(|Input { bytes, eof }| InputAt { offset: 0, bytes, eof }))
            }
        };
        match received {
            Ok(Some(frame)) => {
                let is_last = frame.eof && !are_repeated;
                let _ = input.send(frame).await;
                if is_last {
                    break;
                }
            }
            Ok(None) => break,
            Err(_) => return,
        }
    }
    // There is no more input, but the client still listens until its link ends.
    left.closed().await;
}

/// A job that is being followed.
struct FollowSession {
    shared: Arc<Shared>,
    who: Identity,
    job: JobId,
    submitted: Time,
    /// The run to which the client's offsets refer.
    known: Option<Run>,
    from: Vec<Offset>,
    /// The memory for everything that this identity follows, and the part that these offsets take.
    held: Arc<Semaphore>,
    _held_for_offsets: OwnedSemaphorePermit,
    /// Whether the client sends input, which goes to node 0.
    has_input: bool,
    /// How much input `known` has taken, for a follower that repeats input.
    input_from: Option<u64>,
    /// How much input this run has taken.
    input_taken: Option<Arc<AtomicU64>>,
    first: JobChange,
    changes: Option<mpsc::Receiver<JobChange>>,
    input: Arc<Mutex<Inputs>>,
    run: Option<Run>,
    pulls: JoinSet<()>,
    /// The nodes of this run that were or are pulled from, numbered in the order in which they came; and those that the
    /// run has now: a node that leaves and comes back has new tasks.
    nodes: BTreeMap<String, u32>,
    present: BTreeSet<String>,
    open: BTreeSet<u32>,
    /// Nodes that came back before all of their earlier output was pulled.
    returned: BTreeSet<u32>,
    is_over: watch::Sender<bool>,
}

enum Next {
    Pulled(Option<PullEvent>),
    Change(Option<JobChange>),
    Left,
}

impl FollowSession {
    async fn begin(
        who: &Identity,
        order: Follow,
        held: &Arc<Semaphore>,
        shared: &Arc<Shared>,
    ) -> Result<(FollowSession, mpsc::Sender<InputAt>), Refused> {
        let held_for_offsets = reserve_memory(held, size_of_val(order.from.as_slice()))?;
        let (mut found, changes) = shared.inbox.watch(vec![order.job]).await.map_err(|error| watch_refused(&error))?;
        let (owner, submitted, first, changes) = match found.pop() {
            Some(found) => (found.owner, found.submitted, found.change, Some(changes)),
            None => {
                let (change, record) = recorded(order.job, who, shared).await?;
                (record.owner, record.submitted, change, None)
            }
        };
        may_follow(who, order.job, &owner)?;
        let (input, inputs) = mpsc::channel(MAX_INPUTS);
        let session = FollowSession {
            shared: Arc::clone(shared),
            who: who.clone(),
            job: order.job,
            submitted,
            known: order.run,
            from: order.from,
            held: Arc::clone(held),
            _held_for_offsets: held_for_offsets,
            has_input: order.input,
            input_from: order.input_from,
            input_taken: None,
            first,
            changes,
            input: Arc::new(Mutex::new(Inputs::new(inputs, order.input_from.is_some()))),
            run: None,
            pulls: JoinSet::new(),
            nodes: BTreeMap::new(),
            present: BTreeSet::new(),
            open: BTreeSet::new(),
            returned: BTreeSet::new(),
            is_over: watch::Sender::new(false),
        };
        Ok((session, input))
    }

    /// Runs the session; returns the last frame to send, or nothing if the client has left.
    async fn run(
        mut self,
        sender: &mut Sender,
        mut has_left: oneshot::Receiver<()>,
    ) -> Result<Option<Followed>, SessionError> {
        let (pulled, mut arriving) = mpsc::channel(MAX_CHUNKS);
        let first = self.first.clone();
        if let Some(n_bytes) = self.input_from {
            sender
                .send(&Followed::Taken { run: first.run, n_bytes: self.taken_by(first.run, n_bytes), again: false })
                .await?;
        }
        self.changed(sender, first, &pulled).await?;
        while !(*self.is_over.borrow() && self.open.is_empty()) {
            let next = tokio::select! {
                pulled = arriving.recv() => Next::Pulled(pulled),
                change = next_change(&mut self.changes) => Next::Change(change),
                _ = &mut has_left => Next::Left,
            };
            match next {
                Next::Pulled(Some(PullEvent::Chunk(chunk, _held))) => sender.send(&Followed::Chunk(chunk)).await?,
                Next::Pulled(Some(PullEvent::Away { node, at_most })) => {
                    sender.send(&Followed::Away { node, secs: at_most.as_secs() }).await?;
                }
                Next::Pulled(Some(PullEvent::Taken { run, n_bytes, again })) => {
                    sender.send(&Followed::Taken { run, n_bytes, again }).await?;
                }
                Next::Pulled(Some(PullEvent::End { node_idx, missing })) => {
                    if let Some(missing) = missing {
                        sender.send(&Followed::Missing(missing)).await?;
                    }
                    self.ended(sender, node_idx, &pulled).await?;
                }
                // Cannot happen: this function holds a sender itself.
                Next::Pulled(None) => {}
                Next::Change(Some(change)) => self.changed(sender, change, &pulled).await?,
                Next::Change(None) if *self.is_over.borrow() => self.changes = None,
                Next::Change(None) => {
                    let refused = Refused::new("too_slow", "you read too slowly: follow again");
                    return Ok(Some(Followed::Refused(refused)));
                }
                Next::Left => return Ok(None),
            }
        }
        Ok(Some(Followed::End))
    }

    async fn changed(
        &mut self,
        sender: &mut Sender,
        change: JobChange,
        pulled: &mpsc::Sender<PullEvent>,
    ) -> Result<(), SessionError> {
        sender.send(&Followed::Change(change.clone())).await?;
        if change.state.is_over() {
            self.is_over.send_replace(true);
        }
        if !change.nodes.is_empty() {
            self.pull_run(&change, pulled);
        }
        Ok(())
    }

    /// Begins to pull from every new node of this run, and stops pulling from an earlier run.
    fn pull_run(&mut self, change: &JobChange, pulled: &mpsc::Sender<PullEvent>) {
        if self.run != Some(change.run) {
            self.pulls.abort_all();
            self.open.clear();
            self.nodes.clear();
            self.present.clear();
            self.returned.clear();
            self.run = Some(change.run);
            let taken = self.input_from.map(|n_bytes| self.taken_by(change.run, n_bytes));
            self.input_taken = taken.map(|n_bytes| Arc::new(AtomicU64::new(n_bytes)));
        }
        let before = std::mem::replace(&mut self.present, change.nodes.iter().cloned().collect());
        for node in change.nodes.iter().filter(|node| !before.contains(*node)) {
            let n_nodes = self.nodes.len() as u32;
            let node_idx = *self.nodes.entry(node.clone()).or_insert(n_nodes);
            if self.open.contains(&node_idx) {
                self.returned.insert(node_idx);
            } else {
                self.pull(change.run, node.clone(), node_idx, pulled);
            }
        }
    }

    /// Returns how much input a run has taken, if `n_bytes` is what the follower's run has.
    fn taken_by(&self, run: Run, n_bytes: u64) -> u64 {
        if self.known == Some(run) { n_bytes } else { 0 }
    }

    fn pull(&mut self, run: Run, node: String, node_idx: u32, pulled: &mpsc::Sender<PullEvent>) {
        let is_known = self.known == Some(run);
        // The offsets refer to one run: in another run, every stream begins at 0.
        let of_node = |offset: &&Offset| is_known && offset.node_idx == node_idx;
        let offsets: Offsets =
            self.from.iter().filter(of_node).map(|offset| ((offset.task, offset.stream), offset.offset)).collect();
        let pull = Pull {
            shared: Arc::clone(&self.shared),
            who: self.who.clone(),
            job: self.job,
            submitted: self.submitted,
            run,
            node_idx,
            node,
            offsets,
            pulled: pulled.clone(),
            held: Arc::clone(&self.held),
            held_for_offsets: Vec::new(),
            input: (self.has_input && node_idx == 0).then(|| Arc::clone(&self.input)),
            input_taken: self.input_taken.clone(),
            is_over: self.is_over.subscribe(),
        };
        self.open.insert(node_idx);
        self.pulls.spawn(pull.run());
    }

    /// Handles the end of a node's output.
    async fn ended(
        &mut self,
        sender: &mut Sender,
        node_idx: u32,
        pulled: &mpsc::Sender<PullEvent>,
    ) -> Result<(), SessionError> {
        self.open.remove(&node_idx);
        let node = self.nodes.iter().find(|(_, idx)| **idx == node_idx).map(|(node, _)| node.clone());
        match (node, self.run) {
            (Some(node), Some(run)) if self.returned.remove(&node_idx) => self.pull(run, node, node_idx, pulled),
            (Some(node), _) => sender.send(&Followed::Whole { node }).await?,
            (None, _) => {}
        }
        Ok(())
    }
}

async fn next_change(changes: &mut Option<mpsc::Receiver<JobChange>>) -> Option<JobChange> {
    match changes {
        Some(changes) => changes.recv().await,
        // The job is over already: there are no more changes.
        None => std::future::pending().await,
    }
}

/// Checks that the caller may read the job's streams: they are private to its owner and admins.
fn may_follow(who: &Identity, job: JobId, owner: &Owner) -> Result<(), Refused> {
    let is_allowed = match who.role {
        Role::Admin => true,
        Role::User => who.name == owner.0,
        Role::Job => who.as_job().is_some_and(|(own, _)| own == job),
        Role::Agent | Role::Server => false,
    };
    if is_allowed { Ok(()) } else { Err(Refused::from(&Refusal::NotYourJob { job, owner: owner.0.clone() })) }
}
