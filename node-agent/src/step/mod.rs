//! Runs a step of a job for one of its processes: starts its tasks on the job's nodes, forwards their streams, and ends
//! them all.
//!
//! A step needs no decision of the server, so it is started as with `mpirun`: from the caller to the agent of its node,
//! and from there to the agents of the other nodes. The hub of the step's ranks is here, too. When this agent ends, the
//! step ends.

pub mod layout;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use rms_api::desired::LaunchNode;
use rms_model::hostlist;
use rms_wire::peer::StepPart;
use rms_wire::{StepDown, StepUp};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::layout::{LayoutError, NodeTasks, lay_out};
use crate::exec::MAX_PIECES;
use crate::frame::{self, Decoder, Frame};
use crate::hash::fnv1a;
use crate::lookup;
use crate::order::Order;
use crate::peer::{PeerError, Peers};
use crate::pmi::JobNode;
use crate::pmi::hub::{Grown, Hub, HubOut, Member};
use crate::pmi::place::process_mapping;
use crate::rsh::{CommandEnd, EXIT_LOST, INPUT_WINDOW, Input, STDERR, STDIN, STDOUT, Say, StepRequest, task_stream};
use crate::share::{ClaimedCpus, Share};
use crate::step_part::{self, Credit, Part};
use crate::supervisor::environment;
use crate::supervisor::hostfile::HostFiles;
use crate::supervisor::slurm;
use crate::supervisor::variables::Variables;
use crate::supervisor::{Account, now};

/// The most frames queued for a caller that does not read. If the queue is full, the tasks' output waits.
const MAX_WAITING: usize = 32;
/// How far a caller may exceed its window: one that exceeds it further is not `rms`.
const SLACK: u64 = 64 << 10;
/// How long to retry an agent: one that is being upgraded returns sooner.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The pause before a retry. Ranks of a step that finalize meanwhile make room for others.
const PAUSE: Duration = Duration::from_millis(300);

/// Serves one caller of a step, until the step is over.
pub async fn serve(
    share: Share,
    peers: Peers,
    request: StepRequest,
    read: OwnedReadHalf,
    decoder: Decoder,
    write: OwnedWriteHalf,
) {
    let (to_caller, frames) = mpsc::channel(MAX_PIECES);
    let writer = tokio::spawn(write_frames(frames, write));
    let (to_step, from_caller) = mpsc::channel(MAX_PIECES);
    let reader = tokio::spawn(read_frames(read, decoder, to_step));
    let caller = Caller { to: to_caller, from: from_caller };
    run(&share, &peers, request, caller).await;
    reader.abort();
    // The writer ends when the caller has read everything, or has left.
    let _written = writer.await;
}

/// The process that requested a step.
struct Caller {
    to: mpsc::Sender<Vec<u8>>,
    from: mpsc::Receiver<CallerMessage>,
}

enum CallerMessage {
    Input(Vec<u8>),
    InputEnds,
    Say(Say),
}

async fn write_frames(mut frames: mpsc::Receiver<Vec<u8>>, mut write: OwnedWriteHalf) {
    while let Some(frame) = frames.recv().await {
        if write.write_all(&frame).await.is_err() {
            return;
        }
    }
}

/// Reads the caller's frames. Ends, and drops its sender to the step, when the caller has left.
async fn read_frames(mut read: OwnedReadHalf, mut decoder: Decoder, to: mpsc::Sender<CallerMessage>) {
    let mut piece = vec![0; 16 << 10];
    loop {
        while let Ok(Some(frame)) = decoder.take::<Say>() {
            let message = match frame {
                Frame::Bytes { stream: STDIN, bytes } if bytes.is_empty() => CallerMessage::InputEnds,
                Frame::Bytes { stream: STDIN, bytes } => CallerMessage::Input(bytes),
                Frame::Bytes { .. } => return,
                Frame::Message(say) => CallerMessage::Say(say),
            };
            if to.send(message).await.is_err() {
                return;
            }
        }
        match read.read(&mut piece).await {
            Ok(0) | Err(_) => return,
            Ok(n) => decoder.push(&piece[..n]),
        }
        if decoder.n_waiting() as u64 > INPUT_WINDOW {
            return;
        }
    }
}

async fn run(share: &Share, peers: &Peers, request: StepRequest, mut caller: Caller) {
    let fail = |reason: String| frame::message(&CommandEnd::Failed { reason });
    // Looked up before the step claims CPUs: it may take long.
    let account = match lookup::account(share.order().launch.owner.0.clone()).await {
        Ok(account) => account,
        Err(error) => return drop(caller.to.send(fail(error.to_string())).await),
    };
    let (layout, cpus) = match find_room(share, &request, &mut caller).await {
        Ok(Some(found)) => found,
        Ok(None) => return,
        Err(error) => return drop(caller.to.send(fail(error.to_string())).await),
    };
    let order = share.order();
    let number = share.new_step().await;
    let steps = orders(share, &order, number, &request, &account, &layout);
    let mut opening = JoinSet::new();
    for (idx, (step, node)) in steps.iter().cloned().zip(&layout).enumerate() {
        let (share, peers, place) = (share.clone(), peers.clone(), node.place.clone());
        let is_here = order.place() == Some(&place);
        opening.spawn(async move {
            let part = match is_here {
                true => Ok(step_part::start(&share, step, false)),
                false => open_there(&peers, &place, &step).await,
            };
            (idx, part)
        });
    }
    let mut parts = BTreeMap::new();
    loop {
        let opened = tokio::select! {
            opened = opening.join_next() => opened,
            // The caller has left. Other messages before the step runs are dropped.
            is_gone = caller_left(&mut caller.from) => match is_gone {
                true => return,
                false => continue,
            },
        };
        let Some(opened) = opened else { break };
        match opened {
            Ok((idx, Ok(part))) => drop(parts.insert(idx, part)),
            Ok((_, Err(reason))) => return drop(caller.to.send(fail(reason)).await),
            Err(_aborted) => return,
        }
    }
    let started = CommandEnd::Started {
        step: number,
        nodes: layout.iter().map(|node| node.place.name.clone()).collect(),
        tasks: layout.iter().map(|node| node.n_tasks).collect(),
    };
    if caller.to.send(frame::message(&started)).await.is_err() {
        return;
    }
    RunningStep::new(share, &request, layout, steps, parts, cpus).run(caller).await;
}

/// Opens the part on another node. The agent there may be restarting, so this retries.
async fn open_there(peers: &Peers, place: &LaunchNode, step: &StepPart) -> Result<Part, String> {
    let begun = Instant::now();
    loop {
        match peers.step(place, step.clone()).await {
            Ok(part) => return Ok(part),
            Err(PeerError::Link { .. }) if begun.elapsed() < TIMEOUT => tokio::time::sleep(PAUSE).await,
            Err(error) => return Err(format!("{:#}", anyhow::Error::from(error))),
        }
    }
}

/// Waits for room for the step's tasks and returns their placement; `None` if the caller has left.
async fn find_room(
    share: &Share,
    request: &StepRequest,
    caller: &mut Caller,
) -> Result<Option<(Vec<NodeTasks>, ClaimedCpus)>, LayoutError> {
    let mut has_told = false;
    loop {
        let changed = share.changed();
        tokio::pin!(changed);
        changed.as_mut().enable();
        let order = share.order();
        let cpus_per_task = request.cpus_per_task.unwrap_or(order.launch.cpus_per_task).max(1);
        let found = share.take_cpus(|taken| {
            let layout = lay_out(&order, request, taken)?;
            let cpus = |node: &NodeTasks| (node.place.name.clone(), node.n_tasks.saturating_mul(cpus_per_task));
            let cpus = layout.iter().map(cpus).collect();
            Ok((layout, cpus))
        });
        match found {
            Ok(found) => return Ok(Some(found)),
            Err(LayoutError::Busy) => {}
            Err(error) => return Err(error),
        }
        if !has_told && caller.to.send(frame::message(&CommandEnd::Waiting)).await.is_err() {
            return Ok(None);
        }
        has_told = true;
        tokio::select! {
            () = changed => {}
            caller_left = caller_left(&mut caller.from) => if caller_left {
                return Ok(None);
            },
        }
    }
}

/// Waits for the next message and returns whether the caller has left before the step runs. No input arrives then.
async fn caller_left(from: &mut mpsc::Receiver<CallerMessage>) -> bool {
    match from.recv().await {
        Some(CallerMessage::Say(Say::End)) | None => true,
        // A signal is for tasks, and there are none yet.
        Some(CallerMessage::Say(Say::Signal { .. }) | CallerMessage::Input(_) | CallerMessage::InputEnds) => false,
    }
}

/// Builds the order for each node.
fn orders(
    share: &Share,
    order: &Order,
    number: u32,
    request: &StepRequest,
    account: &Account,
    layout: &[NodeTasks],
) -> Vec<StepPart> {
    let names: Vec<&str> = layout.iter().map(|node| node.place.name.as_str()).collect();
    let n_tasks = layout.iter().map(|node| node.n_tasks).sum();
    let cpus_per_task = request.cpus_per_task.unwrap_or(order.launch.cpus_per_task).max(1);
    let files = HostFiles::of(share.entry_dir());
    let (set, unset) = changes(order, &environment::of_job(order, account, &files), &request.environment);
    let counts: Vec<u32> = layout.iter().map(|node| node.n_tasks).collect();
    let mapping = process_mapping(counts.iter().copied().enumerate());
    // MPICH names its shared memory after the key-value space: the name must be unique among all steps of all agents.
    let place = order.place().map(|place| format!("{} {}", place.address, place.name)).unwrap_or_default();
    let unique = fnv1a(format!("{place} {}", now().as_millis()).as_bytes());
    let kvsname = format!("kvs_{}_{}_s{number}_{unique:08x}", order.job, order.run);
    let mut first_task = 0;
    let step = |(node_idx, node): (u32, &NodeTasks)| {
        let own_first = first_task;
        first_task += node.n_tasks;
        let n_readers = match request.input {
            Input::None => 0,
            Input::First => u32::from(node_idx == 0),
            Input::All => node.n_tasks,
        };
        StepPart {
            job: order.job,
            run: order.run,
            step: number,
            argv: request.argv.clone(),
            set: set.clone(),
            unset: unset.clone(),
            cwd: request.cwd.clone(),
            umask: request.umask,
            limits: request.limits.clone(),
            first_task: own_first,
            n_local: node.n_tasks,
            n_tasks,
            cpus_per_task,
            n_readers,
            nodes: hostlist::fold(&names),
            n_nodes: layout.len() as u32,
            node_idx,
            tasks_per_node: slurm::on_each(counts.iter().copied()),
            kvsname: kvsname.clone(),
            mapping: mapping.clone(),
            universe: layout.iter().map(capacity).sum(),
            grace: order.launch.grace,
        }
    };
    (0..).zip(layout).map(step).collect()
}

/// Returns the number of ranks for which there is room, including the initial ranks of the step.
fn capacity(node: &NodeTasks) -> u32 {
    node.n_tasks.max(node.place.cpus)
}

/// Returns how an environment differs from that of the job here: variables that were set, and those of the job's owner
/// that were unset. The variables that describe the job differ on each node, and are never removed.
fn changes(order: &Order, of_job: &Variables, here: &[(String, String)]) -> (Vec<(String, String)>, Vec<String>) {
    let is_changed = |(name, value): &&(String, String)| of_job.get(name) != Some(value);
    let set = here.iter().filter(is_changed).cloned().collect();
    let there: BTreeSet<&String> = here.iter().map(|(name, _)| name).collect();
    let unset =
        order.launch.execution.environment.0.iter().map(|(name, _)| name).filter(|name| !there.contains(name)).cloned();
    (set, unset.collect())
}

/// A step whose tasks run.
struct RunningStep {
    layout: Vec<NodeTasks>,
    /// Senders to the parts that are not done, by position.
    parts: BTreeMap<usize, mpsc::Sender<StepDown>>,
    /// Messages from all parts.
    ups: mpsc::Receiver<(usize, StepUp)>,
    /// Aborted when the step is dropped.
    forwarders: JoinSet<()>,
    hub: Hub,
    paused_until: Option<Instant>,
    credit: Credit<usize>,
    kills_on_bad_exit: bool,
    is_ending: bool,
    /// The signal and the highest exit code of its tasks so far.
    signal: Option<i32>,
    code: i32,
    /// The exit code that replaces them.
    exit_override: Option<i32>,
    waiting: VecDeque<Vec<u8>>,
    /// Bytes of input that were read and not yet acknowledged to the caller.
    n_taken: u64,
    _cpus: ClaimedCpus,
}

impl RunningStep {
    fn new(
        share: &Share,
        request: &StepRequest,
        layout: Vec<NodeTasks>,
        steps: Vec<StepPart>,
        parts: BTreeMap<usize, Part>,
        cpus: ClaimedCpus,
    ) -> RunningStep {
        let order = share.order();
        let member = |node: &NodeTasks| Member { node: node_id(node), capacity: capacity(node), is_departing: false };
        let n_ranks: Vec<u32> = layout.iter().map(|node| node.n_tasks).collect();
        let n_tasks = n_ranks.iter().sum();
        let kvsname = steps.first().map(|step| step.kvsname.clone()).unwrap_or_default();
        let hub = Hub::new(kvsname, layout.iter().map(member).collect(), &n_ranks, order.launch.cpus_per_task, n_tasks);
        let reads = steps.iter().enumerate().filter(|(_, step)| step.n_readers > 0).map(|(idx, _)| idx);
        let (to, ups) = mpsc::channel(MAX_PIECES);
        let mut forwarders = JoinSet::new();
        let mut senders = BTreeMap::new();
        for (idx, Part { to: sender, mut from }) in parts {
            senders.insert(idx, sender);
            let to = to.clone();
            forwarders.spawn(async move {
                while let Some(up) = from.recv().await {
                    if to.send((idx, up)).await.is_err() {
                        return;
                    }
                }
                let gone = StepUp::Failed { reason: "the connection to its tasks was lost".to_owned() };
                let _often_over_already = to.send((idx, gone)).await;
            });
        }
        RunningStep {
            layout,
            parts: senders,
            ups,
            forwarders,
            hub,
            paused_until: None,
            credit: Credit::new(reads),
            kills_on_bad_exit: request.kill_on_bad_exit,
            is_ending: false,
            signal: None,
            code: 0,
            exit_override: None,
            waiting: VecDeque::new(),
            n_taken: 0,
            _cpus: cpus,
        }
    }

    async fn run(mut self, caller: Caller) {
        let Caller { to, mut from } = caller;
        loop {
            if self.parts.is_empty() && self.waiting.is_empty() {
                break;
            }
            let paused_until = self.paused_until.unwrap_or_else(Instant::now);
            tokio::select! {
                message = from.recv() => {
                    let is_valid = match message {
                        Some(message) => self.handle_message(message).await,
                        None => false,
                    };
                    if !is_valid {
                        // Without its caller a step is useless: the connections to its tasks are dropped, which ends
                        // them.
                        return;
                    }
                }
                place = to.reserve(), if !self.waiting.is_empty() => match (place, self.waiting.pop_front()) {
                    (Ok(place), Some(frame)) => {
                        place.send(frame);
                        self.taken(0);
                    }
                    (Err(_), _) => return,
                    (Ok(_), None) => {}
                },
                Some((idx, up)) = self.ups.recv(), if self.waiting.len() < MAX_WAITING => self.handle_up(idx, up).await,
                () = tokio::time::sleep_until(paused_until), if self.paused_until.is_some() => {
                    self.paused_until = None;
                    let outs = self.hub.paused();
                    self.run_hub_outs(outs).await;
                }
            }
        }
        self.forwarders.abort_all();
        let code = self.exit_override.or(self.signal.map(|signal| 128 + signal)).unwrap_or(self.code);
        let _caller_left = to.send(frame::message(&CommandEnd::Ended { code })).await;
    }

    /// Handles a message of the caller. Returns false if the caller violates the protocol.
    async fn handle_message(&mut self, message: CallerMessage) -> bool {
        match message {
            CallerMessage::Input(bytes) => {
                self.credit.sent(bytes.len() as u64);
                if self.credit.n_open() > INPUT_WINDOW + SLACK {
                    return false;
                }
                let readers: Vec<usize> = self.credit.readers().collect();
                if readers.is_empty() {
                    let n_bytes = self.credit.take_new();
                    self.taken(n_bytes);
                }
                for idx in readers {
                    self.send(idx, StepDown::Stdin { bytes: bytes.clone() }).await;
                }
            }
            CallerMessage::InputEnds => {
                for idx in self.credit.readers().collect::<Vec<_>>() {
                    self.send(idx, StepDown::StdinEof).await;
                }
            }
            CallerMessage::Say(say) => {
                // The caller learns that its message was handled; any frame that is queued for it says so, too.
                if self.waiting.is_empty() {
                    self.answer(&CommandEnd::Taken { n_bytes: 0 });
                }
                match say {
                    Say::Signal { signal } => self.send_all(&StepDown::Signal { signal }).await,
                    Say::End => self.end().await,
                }
            }
        }
        true
    }

    async fn end(&mut self) {
        self.is_ending = true;
        self.send_all(&StepDown::End).await;
    }

    async fn send_all(&mut self, down: &StepDown) {
        for idx in self.parts.keys().copied().collect::<Vec<_>>() {
            self.send(idx, down.clone()).await;
        }
    }

    async fn send(&mut self, idx: usize, down: StepDown) {
        if let Some(sender) = self.parts.get(&idx) {
            // If the part has ended, its receiver reports that.
            let _heard_apart = sender.send(down).await;
        }
    }

    fn answer(&mut self, answer: &CommandEnd) {
        self.waiting.push_back(frame::message(answer));
    }

    fn taken(&mut self, n_bytes: u64) {
        self.n_taken += n_bytes;
        // One message for everything that was read meanwhile: a caller that does not read must not fill the agent's
        // memory.
        if self.n_taken > 0 && self.waiting.is_empty() {
            let n_bytes = std::mem::take(&mut self.n_taken);
            self.answer(&CommandEnd::Taken { n_bytes });
        }
    }

    async fn handle_up(&mut self, idx: usize, up: StepUp) {
        match up {
            StepUp::Stdout { task, bytes } => {
                self.waiting.push_back(frame::bytes(task_stream(task, STDOUT), &bytes));
            }
            StepUp::Stderr { task, bytes } => {
                self.waiting.push_back(frame::bytes(task_stream(task, STDERR), &bytes));
            }
            StepUp::Taken { n_bytes } => {
                let n_bytes = self.credit.taken(idx, n_bytes);
                self.taken(n_bytes);
            }
            StepUp::TaskEnded { task, code, signal } => {
                self.code = self.code.max(code.unwrap_or(0));
                self.signal = self.signal.or(signal);
                let node = self.layout[idx].place.name.clone();
                self.answer(&CommandEnd::TaskEnded { task, node, code, signal });
                let is_bad = code != Some(0);
                if is_bad && self.kills_on_bad_exit && !self.is_ending {
                    self.end().await;
                }
            }
            StepUp::Aborted { code } => {
                self.exit_override = self.exit_override.or(Some(exit_code(code)));
                self.is_ending = true;
            }
            StepUp::Pmi(up) => {
                let outs = self.hub.receive(&node_id(&self.layout[idx]), up);
                self.run_hub_outs(outs).await;
            }
            StepUp::Done => self.done(idx),
            StepUp::Failed { reason } => self.failed(idx, reason).await,
        }
    }

    fn done(&mut self, idx: usize) {
        self.parts.remove(&idx);
        let n_bytes = self.credit.remove_reader(idx);
        self.taken(n_bytes);
    }

    /// Handles the loss of a part: the other tasks cannot finish without it.
    async fn failed(&mut self, idx: usize, reason: String) {
        if self.parts.contains_key(&idx) {
            let node = self.layout[idx].place.name.clone();
            // Later failures are consequences of the first one, or have the same cause.
            if self.exit_override.is_none() {
                self.answer(&CommandEnd::Told { reason: format!("node {node}: {reason}") });
            }
            self.done(idx);
            self.exit_override = self.exit_override.or(Some(EXIT_LOST));
            self.end().await;
        }
    }

    async fn run_hub_outs(&mut self, outs: Vec<HubOut>) {
        for out in outs {
            match out {
                HubOut::Down(node, down) => {
                    if let Some(idx) = self.layout.iter().position(|part| node_id(part) == node) {
                        self.send(idx, StepDown::Pmi(down)).await;
                    }
                }
                HubOut::Pause => self.paused_until = Some(Instant::now() + PAUSE),
                HubOut::RequestNodes(growth) => {
                    let reason =
                        "a step has the nodes that it began with: start the program as a job to let it have more";
                    let outs = self.hub.grown(growth.seq, Grown::Refused { reason: reason.to_owned() });
                    Box::pin(self.run_hub_outs(outs)).await;
                }
                HubOut::WriteError(reason) => self.answer(&CommandEnd::Told { reason }),
            }
        }
    }
}

fn node_id(node: &NodeTasks) -> JobNode {
    JobNode { node: node.place.name.clone(), joined: node.place.joined }
}

/// Returns the exit code as a shell would see it: an abort is never a success.
fn exit_code(code: i32) -> i32 {
    match code & 0xff {
        0 => 1,
        code => code,
    }
}
