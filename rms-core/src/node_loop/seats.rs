//! The supervisors of a node, one per seat: which are being started, are idle, or serve an execution, and which
//! executions wait for one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::message::{ExecutionId, Made, Outbound};

/// All supervisors of a node.
#[derive(Debug)]
pub(super) struct Seats {
    /// Distinguishes the seats of this agent from those of every earlier one.
    prefix: String,
    /// How many supervisors wait for jobs, so that a job need not wait for a fork.
    n_warm: usize,
    n_made: u64,
    making: BTreeSet<String>,
    seats: BTreeMap<String, Seat>,
    idle: Vec<String>,
    /// Executions for which no supervisor was free.
    waiting: VecDeque<ExecutionId>,
    /// Executions whose entry is being removed, and how often: a supervisor that took their name now would lose its
    /// files.
    removing: BTreeMap<ExecutionId, u32>,
}

/// One supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seat {
    pub can_start_over: bool,
    pub serves: Option<ExecutionId>,
    /// The previous execution, if its entry may still exist: the supervisor was told to remove it.
    pub cleared: Option<ExecutionId>,
}

impl Seats {
    pub fn new(prefix: String, n_warm: usize) -> Seats {
        Seats {
            prefix,
            n_warm,
            n_made: 0,
            making: BTreeSet::new(),
            seats: BTreeMap::new(),
            idle: Vec::new(),
            waiting: VecDeque::new(),
            removing: BTreeMap::new(),
        }
    }

    pub fn serves(&self, seat: &str) -> Option<ExecutionId> {
        self.seats.get(seat)?.serves
    }

    pub fn seat_of(&self, execution: ExecutionId) -> Option<&str> {
        let serves = |(_, seat): &(&String, &Seat)| seat.serves == Some(execution);
        self.seats.iter().find(serves).map(|(name, _)| name.as_str())
    }

    /// Queues an execution for a supervisor; one that waited before goes first.
    pub fn wait(&mut self, execution: ExecutionId, is_first: bool) {
        match is_first {
            true => self.waiting.push_front(execution),
            false => self.waiting.push_back(execution),
        }
    }

    /// Removes an execution from the queue. Returns false if it did not wait.
    pub fn stop_waiting(&mut self, execution: ExecutionId) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|waiting| *waiting != execution);
        self.waiting.len() < before
    }

    /// Removes and returns the execution that has waited longest, for which there will be no supervisor.
    pub fn pop_waiting(&mut self) -> Option<ExecutionId> {
        self.waiting.pop_front()
    }

    /// Assigns idle supervisors to waiting executions, orders as many more as are missing, and ends surplus ones.
    pub fn assign(&mut self, has_spawner: bool, out: &mut Vec<Outbound>) -> Vec<(ExecutionId, String)> {
        let mut given = Vec::new();
        while let Some(idx) = self.waiting.iter().position(|waiting| !self.removing.contains_key(waiting)) {
            let Some(name) = self.idle.pop() else { break };
            let Some(execution) = self.waiting.remove(idx) else { break };
            let Some(seat) = self.seats.get_mut(&name) else { continue };
            seat.serves = Some(execution);
            given.push((execution, name));
        }
        let n_wanted = self.waiting.len() + self.n_warm;
        while has_spawner && self.idle.len() + self.making.len() < n_wanted {
            self.n_made += 1;
            let seat = format!("{}-{}", self.prefix, self.n_made);
            self.making.insert(seat.clone());
            out.push(Outbound::MakeSeat { seat });
        }
        // Where many jobs run at a time, many end at a time, and as many begin soon after.
        let n_serving = self.seats.values().filter(|seat| seat.serves.is_some()).count();
        while self.idle.len() > self.n_warm + SURPLUS.max(n_serving) {
            let seat = self.idle.remove(0);
            self.seats.remove(&seat);
            out.push(Outbound::EndSeat { seat, with_folder: true });
        }
        given
    }

    /// Adds a supervisor that was started. Returns false if it is no longer expected.
    pub fn made(&mut self, name: &str, made: Made) -> bool {
        let is_expected = self.making.remove(name);
        if is_expected {
            let seat = Seat { can_start_over: made.can_start_over, serves: None, cleared: None };
            self.seats.insert(name.to_owned(), seat);
        }
        is_expected
    }

    /// Handles a failed start. Returns false if the supervisor is no longer expected.
    pub fn not_made(&mut self, name: &str) -> bool {
        self.making.remove(name)
    }

    /// Adds a supervisor of an earlier agent.
    pub fn adopt(&mut self, name: String, can_start_over: bool, execution: ExecutionId) {
        self.seats.insert(name, Seat { can_start_over, serves: Some(execution), cleared: None });
    }

    /// Marks a supervisor as idle: it waits for an order.
    pub fn is_idle(&mut self, name: &str) {
        let is_free = self.seats.get(name).is_some_and(|seat| seat.serves.is_none());
        if is_free && !self.idle.iter().any(|idle| idle == name) {
            self.idle.push(name.to_owned());
        }
    }

    /// Takes back an execution that the supervisor did not start.
    pub fn hand_back(&mut self, name: &str) {
        if let Some(seat) = self.seats.get_mut(name) {
            seat.serves = None;
        }
        self.is_idle(name);
    }

    /// Frees the supervisor of a forgotten execution for another one at once. If it has to end instead, the new
    /// execution is not begun, and waits for the next supervisor. Returns false if there is no supervisor, or it cannot
    /// serve another job.
    pub fn free(&mut self, execution: ExecutionId, is_cleared: bool) -> bool {
        let serves = |(_, seat): &(&String, &mut Seat)| seat.serves == Some(execution) && seat.can_start_over;
        let Some((name, seat)) = self.seats.iter_mut().find(serves) else { return false };
        seat.serves = None;
        seat.cleared = is_cleared.then_some(execution);
        self.idle.push(name.clone());
        true
    }

    /// Notes that an execution has begun: the folder of its supervisor now has its name, and no longer that of the
    /// previous one.
    pub fn begun(&mut self, execution: ExecutionId) {
        for seat in self.seats.values_mut().filter(|seat| seat.serves == Some(execution)) {
            seat.cleared = None;
        }
    }

    /// Returns whether a supervisor is about to remove the entry of this execution.
    pub fn is_being_cleared(&self, execution: ExecutionId) -> bool {
        self.seats.values().any(|seat| seat.cleared == Some(execution))
    }

    /// Removes a supervisor whose process has ended.
    pub fn gone(&mut self, name: &str) -> Option<Seat> {
        self.idle.retain(|idle| idle != name);
        self.seats.remove(name)
    }

    /// Ends the supervisors that are being started: the spawner has ended, so they will not come.
    pub fn spawner_gone(&mut self, out: &mut Vec<Outbound>) {
        for seat in std::mem::take(&mut self.making) {
            out.push(Outbound::EndSeat { seat, with_folder: true });
        }
    }

    /// Ends idle supervisors: their folders are gone, so they cannot take a job.
    pub fn end_idle(&mut self, out: &mut Vec<Outbound>) {
        for seat in std::mem::take(&mut self.idle) {
            self.seats.remove(&seat);
            out.push(Outbound::EndSeat { seat, with_folder: true });
        }
    }

    pub fn removing(&mut self, execution: ExecutionId) {
        *self.removing.entry(execution).or_default() += 1;
    }

    pub fn removed(&mut self, execution: ExecutionId) {
        if let Some(n) = self.removing.get_mut(&execution) {
            *n -= 1;
            if *n == 0 {
                self.removing.remove(&execution);
            }
        }
    }
}

/// How many idle supervisors beyond those wanted are kept for the next jobs, at least.
const SURPLUS: usize = 2;
