//! Answers the ranks of one host: lines in, lines out, and what has to be asked at the hub.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::hub::{Down, Pair, Up};
use super::line::{Line, LineError};
use super::{KEYLEN_MAX, KVSNAME_MAX, LINE_MAX, VALLEN_MAX};
use crate::sys::End;

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Out {
    /// A whole line, with its end.
    Line {
        local: usize,
        line: String,
    },
    Hub(Up),
    /// The job must end.
    Abort {
        code: i32,
        reason: String,
    },
}

/// The ranks of one host of one job.
#[derive(Debug)]
pub struct Ranks {
    kvsname: String,
    n_ranks: u32,
    first_rank: u32,
    ranks: Vec<Rank>,
    kvs: BTreeMap<String, String>,
    /// Put here since the last fence.
    fresh: Vec<Pair>,
    n_fresh_bytes: usize,
    /// The fence that the ranks are in, or will enter next.
    seq: u64,
    /// What the hub was told and has not answered: the fence, and questions by their ids.
    asked_fence: Option<Up>,
    asked: BTreeMap<u64, (usize, Up)>,
    next_id: u64,
    is_finalized: bool,
    is_aborted: bool,
}

#[derive(Debug, Default)]
struct Rank {
    state: State,
    unfinished: Vec<u8>,
    /// Lines of a `mcmd=spawn … endcmd`, counted only: spawning is refused.
    spawn: Option<Spawn>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Has not said `init`, and perhaps never will: not every program is one of MPI.
    #[default]
    Silent,
    Active,
    InBarrier,
    Finalized,
    Gone,
}

#[derive(Debug, Default)]
struct Spawn {
    n_lines: usize,
    n_total: u32,
    n_so_far: u32,
}

/// A host's ranks may put so much between two fences; a real program puts a few hundred bytes a rank.
const MAX_FRESH_BYTES: usize = 4 << 20;
const MAX_SPAWN_LINES: usize = 10_000;

impl Ranks {
    /// `ranks_per_host` in the order of the job's hosts, of which this is `host_idx`.
    pub fn new(kvsname: String, ranks_per_host: &[u32], host_idx: u32) -> Ranks {
        let here = host_idx as usize;
        let n_local = ranks_per_host.get(here).copied().unwrap_or(0) as usize;
        let mut kvs = BTreeMap::new();
        let mapping = process_mapping(ranks_per_host);
        // A mapping that no value can hold is left out: ranks then ask each other.
        if mapping.len() < VALLEN_MAX {
            kvs.insert("PMI_process_mapping".to_owned(), mapping);
        }
        Ranks {
            kvsname,
            n_ranks: ranks_per_host.iter().sum(),
            first_rank: ranks_per_host.iter().take(here).sum(),
            ranks: (0..n_local).map(|_| Rank::default()).collect(),
            kvs,
            fresh: Vec::new(),
            n_fresh_bytes: 0,
            seq: 1,
            asked_fence: None,
            asked: BTreeMap::new(),
            next_id: 1,
            is_finalized: false,
            is_aborted: false,
        }
    }

    /// Bytes from a rank's socket.
    pub fn bytes(&mut self, local: usize, bytes: &[u8]) -> Vec<Out> {
        let mut outs = Vec::new();
        let Some(rank) = self.ranks.get_mut(local) else { return outs };
        rank.unfinished.extend_from_slice(bytes);
        let mut lines = std::mem::take(&mut rank.unfinished);
        let n_whole = lines.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let rest = lines.split_off(n_whole);
        let is_too_long = rest.len() > LINE_MAX;
        self.ranks[local].unfinished = rest;
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            if self.is_aborted {
                return outs;
            }
            if line.len() > LINE_MAX {
                self.abort(local, 1, format!("sent a line of {} bytes", line.len()), &mut outs);
            } else if let Err(error) = self.line(local, line, &mut outs) {
                self.abort(local, 1, error.to_string(), &mut outs);
            }
        }
        if is_too_long && !self.is_aborted {
            self.abort(local, 1, format!("sent more than {LINE_MAX} bytes without an end of line"), &mut outs);
        }
        outs
    }

    /// The process that was started as this rank has ended. What it had sent before was given to
    /// [`bytes`](Ranks::bytes).
    pub fn left(&mut self, local: usize, end: End) -> Vec<Out> {
        let mut outs = Vec::new();
        let Some(rank) = self.ranks.get_mut(local) else { return outs };
        match rank.state {
            State::Silent => {
                rank.state = State::Gone;
                self.check_nobody_waits_for_the_gone(&mut outs);
            }
            State::Active | State::InBarrier => {
                let (code, how) = match end {
                    End::Exited(0) => (1, "exited without finalizing".to_owned()),
                    End::Exited(code) => (code, format!("exited with code {code} without finalizing")),
                    End::Signaled(signal) => (128 + signal, format!("was killed by signal {signal}")),
                };
                self.abort(local, code, how, &mut outs);
            }
            State::Finalized | State::Gone => rank.state = State::Gone,
        }
        outs
    }

    /// The hub has answered.
    pub fn hear(&mut self, down: Down) -> Vec<Out> {
        let mut outs = Vec::new();
        match down {
            Down::FenceDone { seq, pairs } => {
                let is_awaited = seq == self.seq && self.asked_fence.is_some();
                if is_awaited {
                    self.asked_fence = None;
                    self.seq += 1;
                    self.kvs.extend(pairs.into_iter().map(|pair| (pair.key, pair.value)));
                    for (local, rank) in self.ranks.iter_mut().enumerate() {
                        if rank.state == State::InBarrier {
                            rank.state = State::Active;
                            outs.push(Out::Line { local, line: "cmd=barrier_out\n".to_owned() });
                        }
                    }
                }
            }
            Down::PublishDone { id, ok } => self.answer(id, |out| named(out, "publish_result", ok), &mut outs),
            Down::UnpublishDone { id, ok } => self.answer(id, |out| named(out, "unpublish_result", ok), &mut outs),
            Down::LookupDone { id, port: Some(port) } => {
                let line = |out: &mut String| {
                    let _infallible = write!(out, "cmd=lookup_result info=ok rc=0 port={port}");
                };
                self.answer(id, line, &mut outs);
            }
            Down::LookupDone { id, port: None } => {
                self.answer(id, |out| named(out, "lookup_result", false), &mut outs);
            }
            Down::Aborted { code } => {
                if !self.is_aborted {
                    self.is_aborted = true;
                    outs.push(Out::Abort { code, reason: "the ranks on another host aborted".to_owned() });
                }
            }
        }
        outs
    }

    /// The way to the hub was broken and is there again.
    pub fn relinked(&self) -> Vec<Up> {
        let finalized = self.is_finalized.then_some(Up::Finalized);
        let questions = self.asked.values().map(|(_, up)| up.clone());
        self.asked_fence.iter().cloned().chain(questions).chain(finalized).collect()
    }

    fn answer(&mut self, id: u64, write: impl FnOnce(&mut String), outs: &mut Vec<Out>) {
        if let Some((local, _)) = self.asked.remove(&id) {
            let mut line = String::new();
            write(&mut line);
            line.push('\n');
            outs.push(Out::Line { local, line });
        }
    }

    fn ask(&mut self, local: usize, up: impl FnOnce(u64) -> Up, outs: &mut Vec<Out>) {
        let id = self.next_id;
        self.next_id += 1;
        let up = up(id);
        self.asked.insert(id, (local, up.clone()));
        outs.push(Out::Hub(up));
    }

    fn abort(&mut self, local: usize, code: i32, what: String, outs: &mut Vec<Out>) {
        if self.is_aborted {
            return;
        }
        self.is_aborted = true;
        let reason = format!("rank {} {what}", self.first_rank + local as u32);
        outs.push(Out::Abort { code, reason: reason.clone() });
        outs.push(Out::Hub(Up::Abort { code, message: reason }));
    }

    fn line(&mut self, local: usize, bytes: &[u8], outs: &mut Vec<Out>) -> Result<(), RankError> {
        if self.ranks[local].spawn.is_some() {
            return self.spawn_line(local, bytes, outs);
        }
        let line = Line::parse(bytes)?;
        if line.get("mcmd") == Some("spawn") {
            self.ranks[local].spawn = Some(Spawn::default());
            return Ok(());
        }
        let command = line.need("cmd", 64)?;
        let is_known = self.ranks[local].state == State::Active;
        match command {
            "init" => {
                let version = line.need("pmi_version", 8)?;
                let rc = if version == "1" { 0 } else { -1 };
                self.ranks[local].state = State::Active;
                self.reply(local, outs, format_args!("cmd=response_to_init pmi_version=1 pmi_subversion=1 rc={rc}"));
            }
            _ if !is_known => return Err(RankError::OutOfTurn(command.to_owned())),
            "get_maxes" => self.reply(
                local,
                outs,
                format_args!("cmd=maxes kvsname_max={KVSNAME_MAX} keylen_max={KEYLEN_MAX} vallen_max={VALLEN_MAX}"),
            ),
            "get_appnum" => self.reply(local, outs, format_args!("cmd=appnum appnum=0")),
            "get_universe_size" => {
                self.reply(local, outs, format_args!("cmd=universe_size rc=0 size={}", self.n_ranks));
            }
            "get_my_kvsname" => {
                self.reply(local, outs, format_args!("cmd=my_kvsname kvsname={}", self.kvsname));
            }
            "put" => self.put(local, &line, outs)?,
            "get" => self.get(local, &line, outs)?,
            "getbyidx" => self.get_by_idx(local, &line, outs)?,
            "barrier_in" => {
                self.ranks[local].state = State::InBarrier;
                self.check_nobody_waits_for_the_gone(outs);
                self.check_fence(outs);
            }
            "finalize" => {
                self.ranks[local].state = State::Finalized;
                self.reply(local, outs, format_args!("cmd=finalize_ack rc=0"));
                self.check_fence(outs);
            }
            "abort" => {
                let code = line.get("exitcode").and_then(|code| code.parse().ok()).unwrap_or(1);
                self.abort(local, code, format!("called abort with code {code}"), outs);
            }
            "publish_name" => {
                let service = line.need("service", KVSNAME_MAX)?.to_owned();
                let port = line.need("port", VALLEN_MAX)?.to_owned();
                self.ask(local, |id| Up::Publish { id, service, port }, outs);
            }
            "unpublish_name" => {
                let service = line.need("service", KVSNAME_MAX)?.to_owned();
                self.ask(local, |id| Up::Unpublish { id, service }, outs);
            }
            "lookup_name" => {
                let service = line.need("service", KVSNAME_MAX)?.to_owned();
                self.ask(local, |id| Up::Lookup { id, service }, outs);
            }
            unknown => return Err(RankError::Unknown(unknown.to_owned())),
        }
        Ok(())
    }

    fn reply(&self, local: usize, outs: &mut Vec<Out>, line: std::fmt::Arguments<'_>) {
        outs.push(Out::Line { local, line: format!("{line}\n") });
    }

    fn put(&mut self, local: usize, line: &Line<'_>, outs: &mut Vec<Out>) -> Result<(), RankError> {
        let key = line.need("key", KEYLEN_MAX)?;
        let value = line.need("value", VALLEN_MAX)?;
        if line.need("kvsname", KVSNAME_MAX)? != self.kvsname {
            self.reply(local, outs, format_args!("cmd=put_result rc=-1 msg=unknown_kvsname"));
            return Ok(());
        }
        self.n_fresh_bytes += key.len() + value.len();
        if self.n_fresh_bytes > MAX_FRESH_BYTES {
            return Err(RankError::Flood);
        }
        self.fresh.push(Pair { key: key.to_owned(), value: value.to_owned() });
        self.kvs.insert(key.to_owned(), value.to_owned());
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

    /// Collects `mcmd=spawn … endcmd` and refuses it; programs with MPI_ERRORS_RETURN go on.
    fn spawn_line(&mut self, local: usize, bytes: &[u8], outs: &mut Vec<Out>) -> Result<(), RankError> {
        let spawn = self.ranks[local].spawn.get_or_insert_default();
        spawn.n_lines += 1;
        if spawn.n_lines > MAX_SPAWN_LINES {
            return Err(RankError::Flood);
        }
        let text = std::str::from_utf8(bytes).map_err(|_| LineError::NotText)?.trim_end();
        if text == "endcmd" {
            // Several programs come as several blocks; the last one is answered.
            let is_last = spawn.n_so_far >= spawn.n_total;
            self.ranks[local].spawn = None;
            if is_last {
                self.reply(local, outs, format_args!("cmd=spawn_result rc=-1 msg=spawn_is_not_supported"));
            }
        } else if let Some(count) = text.strip_prefix("totspawns=") {
            spawn.n_total = count.parse().unwrap_or(0);
        } else if let Some(count) = text.strip_prefix("spawnssofar=") {
            spawn.n_so_far = count.parse().unwrap_or(0);
        }
        Ok(())
    }

    /// A fence in which a rank is missing for ever would hang until the wall time.
    fn check_nobody_waits_for_the_gone(&mut self, outs: &mut Vec<Out>) {
        let somebody_waits = self.ranks.iter().any(|rank| rank.state == State::InBarrier);
        let gone = self.ranks.iter().position(|rank| rank.state == State::Gone);
        if let Some(local) = gone.filter(|_| somebody_waits) {
            self.abort(local, 1, "ended without MPI_Init while others wait for it".to_owned(), outs);
        }
    }

    /// Tells the hub when all ranks that take part have arrived, or none takes part any more.
    fn check_fence(&mut self, outs: &mut Vec<Out>) {
        let has_ended = |rank: &Rank| matches!(rank.state, State::Finalized | State::Gone);
        let n_ended = self.ranks.iter().filter(|rank| has_ended(rank)).count();
        let n_waiting = self.ranks.iter().filter(|rank| rank.state == State::InBarrier).count();
        let all_arrived = n_waiting > 0 && n_waiting + n_ended == self.ranks.len();
        if all_arrived && self.asked_fence.is_none() {
            self.n_fresh_bytes = 0;
            let fence = Up::Fence { seq: self.seq, pairs: std::mem::take(&mut self.fresh) };
            self.asked_fence = Some(fence.clone());
            outs.push(Out::Hub(fence));
        }
        self.is_finalized = n_ended == self.ranks.len();
        if self.is_finalized {
            outs.push(Out::Hub(Up::Finalized));
        }
    }
}

/// What a rank did wrong.
#[derive(Debug, thiserror::Error)]
enum RankError {
    #[error("broke the PMI protocol: {0}")]
    Line(#[from] LineError),
    #[error("broke the PMI protocol: there is no command '{0}'")]
    Unknown(String),
    #[error("broke the PMI protocol: '{0}' out of turn")]
    OutOfTurn(String),
    #[error("broke the PMI protocol: an index that is no number")]
    Index,
    #[error("sent more to its process manager than any program has reason to")]
    Flood,
}

fn named(out: &mut String, command: &str, ok: bool) {
    let (info, rc) = if ok { ("ok", 0) } else { ("fail", -1) };
    let _infallible = write!(out, "cmd={command} info={info} rc={rc} msg={info}");
}

/// Which ranks live together: `(vector,(first host,hosts,ranks on each),…)`.
pub fn process_mapping(ranks_per_host: &[u32]) -> String {
    let mut blocks: Vec<(usize, usize, u32)> = Vec::new();
    for (host_idx, n_ranks) in ranks_per_host.iter().enumerate() {
        match blocks.last_mut() {
            Some((_, n_hosts, ranks)) if ranks == n_ranks => *n_hosts += 1,
            Some(_) | None => blocks.push((host_idx, 1, *n_ranks)),
        }
    }
    let texts: Vec<String> = blocks
        .iter()
        .filter(|(_, _, ranks)| *ranks > 0)
        .map(|(host, n_hosts, ranks)| format!("({host},{n_hosts},{ranks})"))
        .collect();
    format!("(vector,{})", texts.join(","))
}

#[cfg(test)]
#[path = "ranks_tests.rs"]
mod tests;
