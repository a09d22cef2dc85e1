//! Answers the ranks of one world on one node: lines in, lines and questions to the hub out.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::frames::{HubAnswer, Pair, Placement, Question, Up};
use super::line::{Line, LineError};
use super::spawn::{Collector, Progress};
use super::{KEYLEN_MAX, KVSNAME_MAX, LINE_MAX, RankId, SPAWN_LINE_MAX, VALLEN_MAX, WorldId};
use crate::sys::End;

/// An action that the caller performs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Out {
    /// A whole line, with its line end.
    Line {
        task: u32,
        line: String,
    },
    Hub(Up),
    /// The job must end.
    Abort {
        code: i32,
        reason: String,
    },
    /// Hostfiles to be read as the job's owner: a rank names them to choose the nodes of a spawn.
    Read {
        from: RankId,
        paths: Vec<String>,
    },
    /// Starts ranks of a new world; the caller then calls [`NodeRanks::started`](super::node::NodeRanks::started).
    Start(Placement),
    /// An error, for readers of the job's output.
    WriteError(String),
    /// Kills tasks of a spawn that failed.
    Kill {
        tasks: Vec<u32>,
    },
}

/// The initial state of the ranks of a world.
#[derive(Clone, Debug)]
pub struct WorldInit {
    pub world: WorldId,
    pub kvsname: String,
    /// The number of ranks on all nodes.
    pub n_ranks: u32,
    pub universe: u32,
    /// The initial content of the key-value space.
    pub pairs: Vec<Pair>,
    /// The ranks on this node.
    pub members: Vec<Member>,
}

/// One rank, and the number of its task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    pub rank: u32,
    pub task: u32,
    pub appnum: u32,
}

/// The ranks of one world on one node.
#[derive(Debug)]
pub struct Ranks {
    world: WorldId,
    kvsname: String,
    universe: u32,
    ranks: Vec<Rank>,
    kvs: BTreeMap<String, String>,
    n_kvs_bytes: usize,
    /// Pairs put on this node since the last fence.
    fresh: Vec<Pair>,
    n_fresh_bytes: usize,
    /// The number of the fence that the ranks are in, or will enter next.
    seq: u64,
    /// The fence that was sent to the hub and is not answered.
    asked_fence: Option<Up>,
    is_aborted: bool,
    /// How the ranks are being ended on this node, if so: the whole job ends, or it leaves this node.
    ending: Option<Ending>,
}

/// How ranks are ended that do not end on their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ending {
    /// The ranks get TERM: a rank that then ends without finalizing has not crashed.
    Ordered,
    /// The job has left this node and continues elsewhere. The ranks may finalize before TERM, and must not wait for
    /// the ranks that stay.
    Leaving,
}

#[derive(Debug)]
struct Rank {
    member: Member,
    state: State,
    unfinished: Vec<u8>,
    spawn: Option<Collector>,
    n_asked: u64,
    asked: Option<Question>,
    /// Whether the rank has sent `init`.
    uses_mpi: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The rank has not sent `init`, and perhaps never will: not every program uses MPI.
    Silent,
    Active,
    InBarrier,
    Finalized,
    Gone,
}

/// The most bytes of pairs that a node's ranks may put between two fences; a real program puts a few hundred bytes per
/// rank.
pub(super) const MAX_FRESH_BYTES: usize = 6 << 20;
/// The overhead of a pair in bytes, in addition to its key and value: two strings, and their part of a tree.
const PAIR_BYTES: usize = 96;
/// The result of a larger spawn has no list of error codes: old programs read lines of at most 1024 bytes.
const MAX_ERROR_CODES: u32 = 400;

impl Ranks {
    pub fn new(birth: WorldInit) -> Ranks {
        let rank = |member: Member| Rank {
            member,
            state: State::Silent,
            unfinished: Vec::new(),
            spawn: None,
            n_asked: 0,
            asked: None,
            uses_mpi: false,
        };
        let mut ranks = Ranks {
            world: birth.world,
            kvsname: birth.kvsname,
            universe: birth.universe,
            ranks: birth.members.into_iter().map(rank).collect(),
            kvs: BTreeMap::new(),
            n_kvs_bytes: 0,
            fresh: Vec::new(),
            n_fresh_bytes: 0,
            seq: 1,
            asked_fence: None,
            is_aborted: false,
            ending: None,
        };
        birth.pairs.into_iter().for_each(|pair| ranks.insert(pair));
        ranks
    }

    /// Returns the approximate size of the key-value space in bytes.
    pub fn n_kvs_bytes(&self) -> usize {
        self.n_kvs_bytes
    }

    fn insert(&mut self, pair: Pair) {
        let n_key_bytes = PAIR_BYTES + pair.key.len();
        self.n_kvs_bytes += n_key_bytes + pair.value.len();
        if let Some(replaced) = self.kvs.insert(pair.key, pair.value) {
            self.n_kvs_bytes -= n_key_bytes + replaced.len();
        }
    }

    /// Returns how many ranks still participate.
    pub fn n_remaining(&self) -> u32 {
        self.ranks.iter().filter(|rank| !rank.has_ended()).count() as u32
    }

    /// Returns whether any rank has used PMI.
    pub fn uses_mpi(&self) -> bool {
        self.ranks.iter().any(|rank| rank.uses_mpi)
    }

    /// Returns whether ranks wait for a barrier or an answer.
    pub fn has_waiting_ranks(&self) -> bool {
        self.ranks.iter().any(|rank| rank.state == State::InBarrier || rank.asked.is_some())
    }

    /// Returns whether the processes of all ranks have ended.
    pub fn have_ended(&self) -> bool {
        self.ranks.iter().all(|rank| rank.state == State::Gone)
    }

    pub fn tasks(&self) -> impl Iterator<Item = u32> {
        self.ranks.iter().map(|rank| rank.member.task)
    }

    /// Records that the ranks are being ended by order: however they end from now on is no crash.
    pub fn end(&mut self, ending: Ending, outs: &mut Vec<Out>) {
        self.ending = self.ending.max(Some(ending));
        self.release_leaving_ranks(outs);
    }

    /// Releases the ranks from a barrier if the job leaves this node. The fence of `MPI_Finalize` opens when the last
    /// rank of the world arrives, which may be long after these ranks have ended.
    fn release_leaving_ranks(&mut self, outs: &mut Vec<Out>) {
        if self.ending == Some(Ending::Leaving) {
            self.asked_fence = None;
            self.release_barrier(outs);
        }
    }

    fn release_barrier(&mut self, outs: &mut Vec<Out>) {
        for rank in self.ranks.iter_mut().filter(|rank| rank.state == State::InBarrier) {
            rank.state = State::Active;
            outs.push(Out::Line { task: rank.member.task, line: "cmd=barrier_out\n".to_owned() });
        }
    }

    /// Ignores all further messages of the ranks, because the job ends.
    pub fn mute(&mut self) {
        self.is_aborted = true;
    }

    /// Handles bytes from a rank's socket.
    pub fn bytes(&mut self, local: usize, bytes: &[u8], outs: &mut Vec<Out>) {
        let Some(rank) = self.ranks.get_mut(local) else { return };
        rank.unfinished.extend_from_slice(bytes);
        let mut lines = std::mem::take(&mut rank.unfinished);
        let n_whole = lines.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let rest = lines.split_off(n_whole);
        let n_rest = rest.len();
        self.ranks[local].unfinished = rest;
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            if self.is_aborted {
                return;
            }
            if line.len() > self.line_max(local) {
                self.abort(local, 1, format!("sent a line of {} bytes", line.len()), outs);
            } else if let Err(error) = self.line(local, line, outs) {
                self.abort(local, 1, error.to_string(), outs);
            }
        }
        let line_max = self.line_max(local);
        if n_rest > line_max && !self.is_aborted {
            self.abort(local, 1, format!("sent more than {line_max} bytes without an end of line"), outs);
        }
    }

    fn line_max(&self, local: usize) -> usize {
        if self.is_spawning(local) { SPAWN_LINE_MAX } else { LINE_MAX }
    }

    fn is_spawning(&self, local: usize) -> bool {
        self.ranks[local].spawn.as_ref().is_some_and(Collector::is_open)
    }

    /// Handles the end of a rank's process. What it sent earlier was passed to [`bytes`](Ranks::bytes).
    pub fn task_ended(&mut self, local: usize, end: End, outs: &mut Vec<Out>) {
        let Some(rank) = self.ranks.get_mut(local) else { return };
        let state = std::mem::replace(&mut rank.state, State::Gone);
        match state {
            State::Silent | State::Active | State::InBarrier if self.ending.is_some() => {}
            // The ranks that spawned it wait until it connects.
            State::Silent if self.world != WorldId::FIRST && !self.is_aborted => {
                self.abort(local, code_of(end), format!("{} without MPI_Init", how(end)), outs);
            }
            State::Silent => self.abort_if_barrier_misses_rank(outs),
            State::Active | State::InBarrier => {
                self.abort(local, code_of(end), format!("{} without finalizing", how(end)), outs);
            }
            State::Finalized | State::Gone => {}
        }
    }

    /// Handles that all nodes are in fence `seq`.
    pub fn fence_done(&mut self, seq: u64, pairs: Vec<Pair>, outs: &mut Vec<Out>) {
        let is_awaited = seq == self.seq && self.asked_fence.is_some();
        if !is_awaited {
            return;
        }
        self.asked_fence = None;
        self.seq += 1;
        pairs.into_iter().for_each(|pair| self.insert(pair));
        self.release_barrier(outs);
    }

    /// Handles the hub's answer to a question of this rank.
    pub fn answered(&mut self, rank: u32, id: u64, answer: HubAnswer, outs: &mut Vec<Out>) {
        let Some(rank) = self.ranks.iter_mut().find(|known| known.member.rank == rank) else { return };
        let is_awaited = rank.n_asked == id && rank.asked.is_some();
        if is_awaited {
            rank.asked = None;
            outs.push(Out::Line { task: rank.member.task, line: answer_line(answer) });
        }
    }

    /// Handles the contents of the hostfiles that a spawn of this rank names, or why they cannot be read.
    pub fn hostfiles_read(&mut self, rank: u32, contents: Vec<Result<String, String>>, outs: &mut Vec<Out>) {
        let Some(local) = self.ranks.iter().position(|known| known.member.rank == rank) else { return };
        self.spawn(local, contents, outs);
    }

    /// Returns the messages that the hub has not answered.
    pub fn unanswered(&self) -> impl Iterator<Item = Up> {
        let questions = self.ranks.iter().filter_map(|rank| {
            let question = rank.asked.clone()?;
            Some(Up::Ask { from: self.name(rank), id: rank.n_asked, question })
        });
        self.asked_fence.iter().cloned().chain(questions)
    }

    fn name(&self, rank: &Rank) -> RankId {
        RankId { world: self.world, rank: rank.member.rank }
    }

    fn ask(&mut self, local: usize, question: Question, outs: &mut Vec<Out>) -> Result<(), RankError> {
        let from = self.name(&self.ranks[local]);
        let rank = &mut self.ranks[local];
        if rank.asked.is_some() {
            return Err(RankError::RequestPending);
        }
        rank.n_asked += 1;
        rank.asked = Some(question.clone());
        outs.push(Out::Hub(Up::Ask { from, id: rank.n_asked, question }));
        Ok(())
    }

    /// Ends the job because of a rank.
    pub fn abort(&mut self, local: usize, code: i32, what: String, outs: &mut Vec<Out>) {
        if self.is_aborted {
            return;
        }
        self.is_aborted = true;
        let reason = format!("{} {what}", self.name(&self.ranks[local]));
        // The hub is notified first: once the job ends, no process may be left that could be told the reason.
        outs.push(Out::Hub(Up::Abort { code, message: reason.clone() }));
        outs.push(Out::Abort { code, reason });
    }

    fn line(&mut self, local: usize, bytes: &[u8], outs: &mut Vec<Out>) -> Result<(), RankError> {
        if self.is_spawning(local) {
            return self.spawn_line(local, bytes, outs);
        }
        let line = Line::parse(bytes)?;
        let is_active = self.ranks[local].state == State::Active;
        if line.get("mcmd") == Some("spawn") {
            if !is_active || self.ranks[local].asked.is_some() {
                return Err(RankError::OutOfTurn("spawn".to_owned()));
            }
            self.ranks[local].spawn.get_or_insert_default().open();
            return Ok(());
        }
        let command = line.need("cmd", 64)?;
        match command {
            "init" => {
                let version = line.need("pmi_version", 8)?;
                let rc = if version == "1" { 0 } else { -1 };
                self.ranks[local].state = State::Active;
                self.ranks[local].uses_mpi = true;
                self.reply(local, outs, format_args!("cmd=response_to_init pmi_version=1 pmi_subversion=1 rc={rc}"));
            }
            _ if !is_active => return Err(RankError::OutOfTurn(command.to_owned())),
            "get_maxes" => self.reply(
                local,
                outs,
                format_args!("cmd=maxes kvsname_max={KVSNAME_MAX} keylen_max={KEYLEN_MAX} vallen_max={VALLEN_MAX}"),
            ),
            "get_appnum" => {
                let appnum = self.ranks[local].member.appnum;
                self.reply(local, outs, format_args!("cmd=appnum appnum={appnum}"));
            }
            "get_universe_size" => {
                self.reply(local, outs, format_args!("cmd=universe_size rc=0 size={}", self.universe));
            }
            "get_my_kvsname" => {
                self.reply(local, outs, format_args!("cmd=my_kvsname kvsname={}", self.kvsname));
            }
            "put" => self.put(local, &line, outs)?,
            "get" => self.get(local, &line, outs)?,
            "getbyidx" => self.get_by_idx(local, &line, outs)?,
            "barrier_in" => {
                self.ranks[local].state = State::InBarrier;
                self.abort_if_barrier_misses_rank(outs);
                self.check_fence(outs);
                self.release_leaving_ranks(outs);
            }
            "finalize" => {
                self.ranks[local].state = State::Finalized;
                self.reply(local, outs, format_args!("cmd=finalize_ack rc=0"));
                self.check_fence(outs);
            }
            "abort" => {
                let said = line.get("exitcode").and_then(|code| code.parse().ok()).unwrap_or(1);
                self.abort(local, kept_of(said), format!("called abort with code {said}"), outs);
            }
            "publish_name" => {
                let service = line.need("service", KVSNAME_MAX)?.to_owned();
                let port = line.need("port", VALLEN_MAX)?.to_owned();
                self.ask(local, Question::Publish { service, port }, outs)?;
            }
            "unpublish_name" => {
                let service = line.need("service", KVSNAME_MAX)?.to_owned();
                self.ask(local, Question::Unpublish { service }, outs)?;
            }
            "lookup_name" => {
                let service = line.need("service", KVSNAME_MAX)?.to_owned();
                self.ask(local, Question::Lookup { service }, outs)?;
            }
            unknown => return Err(RankError::Unknown(unknown.to_owned())),
        }
        Ok(())
    }

    fn reply(&self, local: usize, outs: &mut Vec<Out>, line: std::fmt::Arguments<'_>) {
        outs.push(Out::Line { task: self.ranks[local].member.task, line: format!("{line}\n") });
    }

    fn put(&mut self, local: usize, line: &Line<'_>, outs: &mut Vec<Out>) -> Result<(), RankError> {
        let key = line.need("key", KEYLEN_MAX)?;
        let value = line.need("value", VALLEN_MAX)?;
        if line.need("kvsname", KVSNAME_MAX)? != self.kvsname {
            self.reply(local, outs, format_args!("cmd=put_result rc=-1 msg=unknown_kvsname"));
            return Ok(());
        }
        let pair = Pair { key: key.to_owned(), value: value.to_owned() };
        self.n_fresh_bytes += pair.n_bytes();
        if self.n_fresh_bytes > MAX_FRESH_BYTES {
            return Err(RankError::TooMany);
        }
        self.fresh.push(pair.clone());
        self.insert(pair);
        self.reply(local, outs, format_args!("cmd=put_result rc=0 msg=success"));
        Ok(())
    }

    fn get(&mut self, local: usize, line: &Line<'_>, outs: &mut Vec<Out>) -> Result<(), RankError> {
        let key = line.need("key", KEYLEN_MAX)?;
        let is_ours = line.need("kvsname", KVSNAME_MAX)? == self.kvsname;
        match self.kvs.get(key).filter(|_| is_ours) {
            Some(value) => self.reply(local, outs, format_args!("cmd=get_result rc=0 msg=success value={value}")),
            None => {
                self.reply(local, outs, format_args!("cmd=get_result rc=-1 msg=key_{key}_not_found value=unknown"));
            }
        }
        Ok(())
    }

    fn get_by_idx(&mut self, local: usize, line: &Line<'_>, outs: &mut Vec<Out>) -> Result<(), RankError> {
        let idx = line.need("idx", 16)?.parse::<usize>().map_err(|_| RankError::Index)?;
        match self.kvs.iter().nth(idx) {
            Some((key, value)) => self.reply(
                local,
                outs,
                format_args!("cmd=getbyidx_results rc=0 nextidx={} key={key} val={value}", idx + 1),
            ),
            None => self.reply(local, outs, format_args!("cmd=getbyidx_results rc=-1 reason=no_more_keyvals")),
        }
        Ok(())
    }

    fn spawn_line(&mut self, local: usize, bytes: &[u8], outs: &mut Vec<Out>) -> Result<(), RankError> {
        let text = std::str::from_utf8(bytes).map_err(|_| LineError::NotText)?.trim_end_matches(['\n', '\r']);
        let from = self.name(&self.ranks[local]);
        let Some(collector) = &mut self.ranks[local].spawn else { return Ok(()) };
        match collector.line(text) {
            Progress::More => {}
            Progress::Complete => match collector.hostfiles() {
                paths if paths.is_empty() => self.spawn(local, Vec::new(), outs),
                paths => outs.push(Out::Read { from, paths }),
            },
        }
        Ok(())
    }

    fn spawn(&mut self, local: usize, hostfiles: Vec<Result<String, String>>, outs: &mut Vec<Out>) {
        let Some(collector) = self.ranks[local].spawn.take() else { return };
        let asked = match collector.finish(hostfiles) {
            Ok(question) => self.ask(local, question, outs).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(reason) = asked {
            let task = self.ranks[local].member.task;
            outs.push(Out::WriteError(format!("a spawn by {} has failed: {reason}", self.name(&self.ranks[local]))));
            outs.push(Out::Line { task, line: answer_line(HubAnswer::NotSpawned { reason }) });
        }
    }

    /// Aborts if ranks wait in a fence for a rank that will never arrive: they would hang until the wall time.
    fn abort_if_barrier_misses_rank(&mut self, outs: &mut Vec<Out>) {
        let has_waiting_ranks = self.ending.is_none() && self.ranks.iter().any(|rank| rank.state == State::InBarrier);
        let gone = self.ranks.iter().position(|rank| rank.state == State::Gone && !rank.uses_mpi);
        if let Some(local) = gone.filter(|_| has_waiting_ranks) {
            self.abort(local, 1, "ended without MPI_Init while others wait for it".to_owned(), outs);
        }
    }

    /// Notifies the hub when all participating ranks have arrived.
    fn check_fence(&mut self, outs: &mut Vec<Out>) {
        let n_waiting = self.ranks.iter().filter(|rank| rank.state == State::InBarrier).count();
        let all_arrived = n_waiting > 0 && n_waiting == self.n_remaining() as usize;
        let is_for_all = self.ending != Some(Ending::Leaving);
        if all_arrived && is_for_all && self.asked_fence.is_none() {
            self.n_fresh_bytes = 0;
            let fence = Up::Fence { world: self.world, seq: self.seq, pairs: std::mem::take(&mut self.fresh) };
            self.asked_fence = Some(fence.clone());
            outs.push(Out::Hub(fence));
        }
    }
}

impl Rank {
    fn has_ended(&self) -> bool {
        matches!(self.state, State::Finalized | State::Gone)
    }
}

/// An error of a rank.
#[derive(Debug, thiserror::Error)]
enum RankError {
    #[error("broke the PMI protocol: {0}")]
    Line(#[from] LineError),
    #[error("broke the PMI protocol: there is no command '{0}'")]
    Unknown(String),
    #[error("broke the PMI protocol: '{0}' out of turn")]
    OutOfTurn(String),
    #[error("broke the PMI protocol: it asked again before it was answered")]
    RequestPending,
    #[error("broke the PMI protocol: an index that is no number")]
    Index,
    #[error("sent more to its process manager than any program has reason to")]
    TooMany,
}

/// Returns what the kernel keeps of the code with which a rank aborts, 8 bits, as if it had exited with it; it is never
/// success.
fn kept_of(said: i32) -> i32 {
    match said & 0xff {
        0 => 1,
        code => code,
    }
}

/// Returns the exit code of the job if a rank has ended too early; it is never success.
fn code_of(end: End) -> i32 {
    match end {
        End::Exited(code) => code.max(1),
        End::Signaled(signal) => 128 + signal,
    }
}

fn how(end: End) -> String {
    match end {
        End::Exited(0) => "exited".to_owned(),
        End::Exited(code) => format!("exited with code {code}"),
        End::Signaled(signal) => format!("was killed by signal {signal}"),
    }
}

fn answer_line(answer: HubAnswer) -> String {
    let named = |command: &str, ok: bool| {
        let (info, rc) = if ok { ("ok", 0) } else { ("fail", -1) };
        format!("cmd={command} info={info} rc={rc} msg={info}\n")
    };
    match answer {
        HubAnswer::Published { ok } => named("publish_result", ok),
        HubAnswer::Unpublished { ok } => named("unpublish_result", ok),
        HubAnswer::Found { port: Some(port) } => format!("cmd=lookup_result info=ok rc=0 port={port}\n"),
        HubAnswer::Found { port: None } => named("lookup_result", false),
        HubAnswer::Spawned { n_ranks } => {
            let mut line = "cmd=spawn_result rc=0".to_owned();
            if n_ranks <= MAX_ERROR_CODES {
                let codes = vec!["0"; n_ranks as usize].join(",");
                let _infallible = write!(line, " errcodes={codes}");
            }
            line.push('\n');
            line
        }
        HubAnswer::NotSpawned { reason } => {
            // The message is a single word at the end of the line.
            let is_plain = |letter: char| letter.is_ascii_graphic() && letter != '=';
            let word: String =
                reason.chars().take(200).map(|letter| if is_plain(letter) { letter } else { '_' }).collect();
            format!("cmd=spawn_result rc=-1 msg={word}\n")
        }
    }
}
