//! The agent's state of one execution: the connection to its supervisor, and the receivers of its streams.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rms_model::{JobId, Run, Time};
use rms_wire::InputAt;
use tokio::sync::{Notify, mpsc, oneshot, watch};

use crate::frame;
use crate::order::{
    FIRST_EXEC, FromSupervisor, InputCount, Order, STREAMS_PER_EXEC, STREAMS_PER_STEP, TASK_INPUT, ToSupervisor,
};
use crate::pmi::JobNode;
use crate::pmi::frames::{Down, Up};
use crate::spool;
use crate::work_queues::{WorkKey, WorkQueues};

/// An execution on this node; clones are the same one.
#[derive(Clone, Debug)]
pub struct Share(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    job: JobId,
    run: Run,
    /// Replaced when the job's nodes change.
    order: Mutex<Arc<Order>>,
    entry_dir: PathBuf,
    work_queues: WorkQueues,
    state: Mutex<State>,
    /// What the supervisor has received for task 0, including what is queued for it; unknown while there is none.
    input: watch::Sender<Option<InputCount>>,
    /// Wakes tasks that wait for the end of the streams or for a supervisor.
    changed: Notify,
}

#[derive(Debug)]
struct State {
    to: Option<ToSeat>,
    supervisor: Option<i32>,
    has_ended: bool,
    /// Steps that run here or wait for callers.
    n_callers: usize,
    next_stream: u64,
    next_step_stream: u64,
    /// The steps requested on this node, including those before a restart of the agent, and the CPUs of their tasks on
    /// each node of the job.
    n_steps: u32,
    step_cpus: BTreeMap<String, u32>,
    routes: BTreeMap<u64, mpsc::Sender<StreamEvent>>,
    /// The sender to the hub on the first node; used on other nodes.
    hub: Option<mpsc::Sender<Up>>,
    /// The senders to the other nodes; used on the first node.
    nodes: BTreeMap<JobNode, mpsc::Sender<Down>>,
}

/// The queue of frames to a supervisor. If it is full, senders wait: a supervisor that does not read is starting a job.
pub type ToSeat = mpsc::Sender<Vec<u8>>;

/// What a supervisor reports about one stream or command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamEvent {
    Bytes { stream: u64, bytes: Vec<u8> },
    Taken { stream: u64, n_bytes: u64 },
    Ended { code: i32 },
    Failed { reason: String },
    TaskEnded { task: u32, code: Option<i32>, signal: Option<i32> },
    Aborted { code: i32 },
    Pmi(Up),
    Done,
}

/// The capacity of a listener's queue: the windows of its streams hold fewer pieces than this.
const MAX_EVENTS: usize = 256;
/// The same for the streams of all tasks of a step, of which a node can have many.
const MAX_STEP_EVENTS: usize = 1 << 22;

impl Share {
    /// Creates a share for which `n_steps` steps were already requested here.
    pub fn new(order: Order, entry_dir: PathBuf, n_steps: u32, work_queues: WorkQueues) -> Share {
        let state = State {
            to: None,
            supervisor: None,
            has_ended: false,
            next_stream: FIRST_EXEC,
            next_step_stream: STREAMS_PER_STEP,
            n_callers: 0,
            n_steps,
            step_cpus: BTreeMap::new(),
            routes: BTreeMap::new(),
            hub: None,
            nodes: BTreeMap::new(),
        };
        let (job, run, order) = (order.job, order.run, Mutex::new(Arc::new(order)));
        let (state, changed) = (Mutex::new(state), Notify::new());
        let input = watch::Sender::new(None);
        Share(Arc::new(Parts { job, run, order, entry_dir, work_queues, state, input, changed }))
    }

    /// Returns the latest order.
    pub fn order(&self) -> Arc<Order> {
        Arc::clone(&self.0.order.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the order after the job's nodes have changed.
    pub fn update(&self, order: Order) {
        *self.0.order.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(order);
        self.0.changed.notify_waiters();
    }

    pub fn entry_dir(&self) -> &PathBuf {
        &self.0.entry_dir
    }

    pub fn job(&self) -> JobId {
        self.0.job
    }

    pub fn run(&self) -> Run {
        self.0.run
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Attaches the supervisor that now serves the execution.
    pub fn attach(&self, to: ToSeat, supervisor: i32) {
        let mut state = self.state();
        state.to = Some(to);
        state.supervisor = Some(supervisor);
        drop(state);
        self.0.changed.notify_waiters();
    }

    /// Detaches the supervisor, which has exited or serves another job; all receivers end.
    pub fn detach(&self) {
        let mut state = self.state();
        state.to = None;
        state.supervisor = None;
        state.routes.clear();
        state.hub = None;
        state.nodes.clear();
        drop(state);
        self.0.input.send_replace(None);
        self.0.changed.notify_waiters();
    }

    /// Records that the processes were started, and that the spool entry exists.
    pub fn begin(&self) {
        self.0.changed.notify_waiters();
    }

    /// Records that no process of the execution is left.
    pub fn end(&self) {
        self.state().has_ended = true;
        self.0.changed.notify_waiters();
    }

    pub fn has_ended(&self) -> bool {
        self.state().has_ended
    }

    /// Returns the process id of the supervisor, from which all processes of this execution descend.
    pub fn supervisor(&self) -> Option<i32> {
        self.state().supervisor
    }

    /// Returns a future that resolves at the next change of what the other functions return. Create it before calling
    /// them.
    pub fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.0.changed.notified()
    }

    /// Returns the sender to its supervisor, if it has one.
    pub fn to_supervisor(&self) -> Option<ToSeat> {
        self.state().to.clone()
    }

    /// Waits for a supervisor; `None` once the share has ended.
    pub async fn wait_for_supervisor(&self) -> Option<ToSeat> {
        loop {
            let changed = self.changed();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(to) = self.to_supervisor() {
                return Some(to);
            }
            if self.has_ended() {
                return None;
            }
            changed.await;
        }
    }

    /// Sends without waiting for the supervisor to read.
    pub fn send(&self, message: &ToSupervisor) {
        if let Some(to) = self.to_supervisor() {
            push(&to, frame::message(message));
        }
    }

    /// Returns how much input the supervisor has received for task 0.
    pub fn input(&self) -> watch::Receiver<Option<InputCount>> {
        self.0.input.subscribe()
    }

    /// Records how much input the supervisor has received so far, unless that is known.
    pub fn count_input(&self, total: InputCount) {
        self.0.input.send_if_modified(|count| {
            let is_news = count.is_none();
            count.get_or_insert(total);
            is_news
        });
    }

    /// Queues the part of the input that the supervisor has not received. Drops it if bytes before it are missing: they
    /// will be sent again, and it after them.
    pub async fn queue_input(&self, input: InputAt, to: &ToSeat) {
        // One frame for the bytes, and one for their end.
        let Ok(mut room) = to.reserve_many(2).await else { return };
        let is_current = || self.to_supervisor().is_some_and(|current| current.same_channel(to));
        // Counted and queued at once: another channel may bring the same bytes.
        self.0.input.send_if_modified(|count| {
            let Some(count) = count.as_mut().filter(|_| is_current()) else { return false };
            let Some(InputAt { offset: _, bytes, eof }) = input.after(count.received) else { return false };
            count.received += bytes.len() as u64;
            let end: &[u8] = b"";
            let frames = [bytes.as_slice()].into_iter().filter(|bytes| !bytes.is_empty()).chain(eof.then_some(end));
            room.by_ref().zip(frames).for_each(|(room, piece)| room.send(frame::bytes(TASK_INPUT, piece)));
            true
        });
    }

    /// Listens to one stream, or to the streams of one command.
    pub fn listen(&self, stream: u64) -> mpsc::Receiver<StreamEvent> {
        let (route, events) = mpsc::channel(MAX_EVENTS);
        self.state().routes.insert(stream, route);
        events
    }

    /// Returns the first stream of a new command.
    pub fn new_streams(&self) -> u64 {
        let mut state = self.state();
        let stream = state.next_stream;
        state.next_stream += STREAMS_PER_EXEC;
        stream
    }

    /// Listens to all streams of a new step; also returns the first stream.
    pub fn listen_to_step(&self) -> (u64, mpsc::Receiver<StreamEvent>) {
        let (route, events) = mpsc::channel(MAX_STEP_EVENTS);
        let mut state = self.state();
        let stream = state.next_step_stream;
        state.next_step_stream += STREAMS_PER_STEP;
        state.routes.insert(stream, route);
        (stream, events)
    }

    /// Returns how many steps of the job were requested here.
    pub fn n_steps(&self) -> u32 {
        self.state().n_steps
    }

    /// Returns a slot for one more caller of a step; `None` if the job has reached its limit.
    pub fn acquire_step_slot(&self) -> Option<StepSlot> {
        let mut state = self.state();
        let has_room = state.n_callers < MAX_STEPS;
        state.n_callers += usize::from(has_room);
        has_room.then(|| StepSlot(self.clone()))
    }

    /// Returns the number of a new step that is requested here, once it is on disk.
    pub async fn new_step(&self) -> u32 {
        let node_idx = self.order().node_idx;
        let (n_before, written) = self.number_step();
        // Written before the number is used: a restarted agent continues after it, or files of `%s` would be
        // overwritten.
        let _failure_was_logged = written.await;
        // Steps that are requested on other nodes are numbered by the agents there.
        n_before + node_idx * STEPS_PER_NODE
    }

    /// Returns how many steps were requested before, and queues the write of the new number.
    fn number_step(&self) -> (u32, oneshot::Receiver<()>) {
        let (job, run, entry_dir) = (self.0.job, self.0.run, self.0.entry_dir.clone());
        let (noted, written) = oneshot::channel();
        let mut state = self.state();
        let n_before = state.n_steps;
        state.n_steps += 1;
        let n_steps = state.n_steps;
        // Queued under the lock, so that the numbers are written in their order.
        self.0.work_queues.add(WorkKey::Execution(job, run), move || {
            if let Err(error) = spool::write_steps(&entry_dir, n_steps) {
                tracing::warn!(%job, %run, %error, "cannot note the number of a step: after a restart it may come again");
            }
            let _caller_left = noted.send(());
        });
        (n_before, written)
    }

    /// Calls `decide` with the CPUs that steps use on each node, and counts those of the new step until the guard is
    /// dropped.
    ///
    /// # Errors
    /// The error of `decide`.
    pub fn take_cpus<T, E>(
        &self,
        decide: impl FnOnce(&BTreeMap<String, u32>) -> Result<(T, BTreeMap<String, u32>), E>,
    ) -> Result<(T, ClaimedCpus), E> {
        let mut state = self.state();
        let (decided, cpus) = decide(&state.step_cpus)?;
        for (node, n_cpus) in &cpus {
            let taken = state.step_cpus.entry(node.clone()).or_default();
            *taken = taken.saturating_add(*n_cpus);
        }
        drop(state);
        Ok((decided, ClaimedCpus { share: self.clone(), cpus }))
    }

    pub fn forget_stream(&self, stream: u64) {
        self.state().routes.remove(&stream);
    }

    /// Dispatches bytes from the supervisor.
    pub fn receive_bytes(&self, stream: u64, bytes: Vec<u8>) {
        self.dispatch(route(stream), StreamEvent::Bytes { stream, bytes });
    }

    /// Dispatches a message of the supervisor, unless it is about the whole job.
    pub fn receive(&self, message: FromSupervisor) {
        match message {
            FromSupervisor::Taken { stream: TASK_INPUT, n_bytes: _, total: Some(total) } => self.count_input(total),
            FromSupervisor::Taken { stream, n_bytes, total: _ } => {
                if stream == TASK_INPUT {
                    self.0.input.send_modify(|count| count.iter_mut().for_each(|count| count.written += n_bytes));
                }
                self.dispatch(route(stream), StreamEvent::Taken { stream, n_bytes });
            }
            FromSupervisor::ExecEnded { stream, code } => self.dispatch(stream, StreamEvent::Ended { code }),
            FromSupervisor::ExecFailed { stream, reason } => self.dispatch(stream, StreamEvent::Failed { reason }),
            FromSupervisor::StepTaskEnded { stream, task, code, signal } => {
                self.dispatch(stream, StreamEvent::TaskEnded { task, code, signal });
            }
            FromSupervisor::StepAborted { stream, code } => self.dispatch(stream, StreamEvent::Aborted { code }),
            FromSupervisor::StepPmi { stream, frame } => self.dispatch(stream, StreamEvent::Pmi(frame)),
            FromSupervisor::StepDone { stream } => self.dispatch(stream, StreamEvent::Done),
            FromSupervisor::StepFailed { stream, reason } => self.dispatch(stream, StreamEvent::Failed { reason }),
            FromSupervisor::Idle
            | FromSupervisor::Job(_)
            | FromSupervisor::AlreadyThere { .. }
            | FromSupervisor::Fault { .. }
            | FromSupervisor::Unkillable { .. }
            | FromSupervisor::ExecStarted { .. }
            | FromSupervisor::Pmi { .. }
            | FromSupervisor::AskGrowth { .. } => {}
        }
    }

    fn dispatch(&self, route: u64, event: StreamEvent) {
        let mut state = self.state();
        let is_lost = state.routes.get(&route).is_some_and(|listener| listener.try_send(event).is_err());
        if is_lost {
            // The listener has left, or is so far behind that its stream is broken: its queue is closed.
            state.routes.remove(&route);
        }
    }

    /// Returns the sender to the hub, created by `make` if there is none.
    pub fn hub(&self, make: impl FnOnce() -> mpsc::Sender<Up>) -> mpsc::Sender<Up> {
        self.state().hub.get_or_insert_with(make).clone()
    }

    /// Adds a node of the job that has connected to this hub.
    pub fn node_linked(&self, node: JobNode, downs: mpsc::Sender<Down>) {
        self.state().nodes.insert(node, downs);
    }

    pub fn node(&self, node: &JobNode) -> Option<mpsc::Sender<Down>> {
        self.state().nodes.get(node).cloned()
    }
}

/// Returns the first stream of the command or step to which a stream belongs.
fn route(stream: u64) -> u64 {
    let n_streams = if stream >= STREAMS_PER_STEP { STREAMS_PER_STEP } else { STREAMS_PER_EXEC };
    stream - stream % n_streams
}

/// The numbers of steps per node: steps are numbered in the order of their requests, and the numbers of each node of
/// the job begin at a multiple of this.
const STEPS_PER_NODE: u32 = 1 << 16;

/// The CPUs that the tasks of a step use.
#[derive(Debug)]
pub struct ClaimedCpus {
    share: Share,
    cpus: BTreeMap<String, u32>,
}

/// The slot of one caller, released on drop.
#[derive(Debug)]
pub struct StepSlot(Share);

impl Drop for StepSlot {
    fn drop(&mut self) {
        self.0.state().n_callers -= 1;
    }
}

/// The most steps of one job that run or wait here at a time: the agent serves a limited number of callers, and must
/// keep room for commands of `mpirun` and for other jobs.
pub const MAX_STEPS: usize = 256;

impl Drop for ClaimedCpus {
    fn drop(&mut self) {
        let mut state = self.share.state();
        for (node, n_cpus) in &self.cpus {
            let taken = state.step_cpus.entry(node.clone()).or_default();
            *taken = taken.saturating_sub(*n_cpus);
        }
        drop(state);
        self.share.0.changed.notify_waiters();
    }
}

/// All executions that this agent knows; clones share the registry.
#[derive(Clone, Debug, Default)]
pub struct Shares(Arc<Registry>);

#[derive(Debug, Default)]
struct Registry {
    shares: Mutex<BTreeMap<(JobId, Run), Share>>,
    added: Notify,
}

impl Shares {
    fn shares(&self) -> MutexGuard<'_, BTreeMap<(JobId, Run), Share>> {
        self.0.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn insert(&self, share: Share) {
        self.shares().insert((share.job(), share.run()), share);
        self.0.added.notify_waiters();
    }

    pub fn get(&self, job: JobId, run: Run) -> Option<Share> {
        self.shares().get(&(job, run)).cloned()
    }

    /// Waits for the execution: frames from other nodes may arrive before the server's order.
    pub async fn wait_for(&self, job: JobId, run: Run, submitted: Option<Time>) -> Share {
        loop {
            let added = self.0.added.notified();
            tokio::pin!(added);
            added.as_mut().enable();
            let is_right = |share: &Share| {
                let known = share.order().launch.submitted;
                known == Time::EPOCH || submitted.is_none_or(|submitted| submitted == known)
            };
            if let Some(share) = self.get(job, run).filter(is_right) {
                return share;
            }
            added.await;
        }
    }

    pub fn remove(&self, job: JobId, run: Run) -> Option<Share> {
        self.shares().remove(&(job, run))
    }

    pub fn all(&self) -> Vec<Share> {
        self.shares().values().cloned().collect()
    }
}

/// Queues a frame; if the queue is full, a spawned task waits.
pub fn push(to: &ToSeat, frame: Vec<u8>) {
    match to.try_send(frame) {
        Ok(()) => {}
        Err(mpsc::error::TrySendError::Full(frame)) => {
            let to = to.clone();
            tokio::spawn(async move { to.send(frame).await });
        }
        // The supervisor's end is reported by a separate event.
        Err(mpsc::error::TrySendError::Closed(_)) => {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::order;

    #[tokio::test]
    async fn the_number_of_a_step_is_written_off_the_task_and_before_it_is_used() {
        let dir = tempfile::tempdir().expect("a directory");
        let work_queues = WorkQueues::default();
        let order = order::tests::order([test_kit::place("n1")]);
        let share = Share::new(order, dir.path().to_owned(), 3, work_queues.clone());
        let (release, hung) = mpsc::channel::<()>();
        work_queues.add(WorkKey::Execution(share.job(), share.run()), move || {
            let _released = hung.recv();
        });
        let steps = tokio::spawn({
            let share = share.clone();
            async move { tokio::join!(share.new_step(), share.new_step()) }
        });
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(!steps.is_finished(), "a number is used that is not on disk");
        drop(release);
        assert_eq!(steps.await.expect("the disk works"), (3, 4));
        assert_eq!(spool::read_steps(dir.path()), 5);
    }

    #[tokio::test]
    async fn input_that_comes_over_two_channels_is_queued_once() {
        let order = order::tests::order([test_kit::place("n1")]);
        let share = Share::new(order, PathBuf::new(), 0, WorkQueues::default());
        let (to, mut queue) = tokio::sync::mpsc::channel(8);
        let input = |offset, bytes: &[u8], eof| InputAt { offset, bytes: bytes.to_vec(), eof };
        share.attach(to.clone(), 1);
        share.queue_input(input(100, b"x", false), &to).await;
        share.count_input(InputCount { received: 100, written: 70 });
        share.count_input(InputCount::default());
        for again in [
            input(90, b"0123456789abc", false),
            input(101, b"bcde", false),
            input(109, b"j", false),
            input(101, b"bcde", true),
        ] {
            share.queue_input(again, &to).await;
        }
        let taken = FromSupervisor::Taken { stream: TASK_INPUT, n_bytes: 30, total: None };
        share.receive(taken);
        assert_eq!(*share.input().borrow(), Some(InputCount { received: 105, written: 100 }));
        share.detach();
        share.queue_input(input(105, b"f", false), &to).await;
        let mut frames = Vec::new();
        while let Ok(frame) = queue.try_recv() {
            frames.push(frame);
        }
        assert_eq!(frames, [b"abc".as_slice(), b"de", b""].map(|piece| frame::bytes(TASK_INPUT, piece)));
    }
}
