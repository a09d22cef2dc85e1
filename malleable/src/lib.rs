//! The protocol between the supervisor of a job and one of its processes, as `src/c/wire.h` defines it in C: a shared
//! page, and messages.

use std::collections::BTreeSet;

/// CPUs by the kernel's numbers.
pub type Cpus = BTreeSet<u32>;

pub const MAGIC: u32 = 0x4d53_4d52;
pub const VERSION: u16 = 1;
const MASK_WORDS: usize = 128;
/// CPUs from this number on cannot be represented.
pub const MOST_CPUS: u32 = 64 * MASK_WORDS as u32;
/// The most processes of a job that may join on one node.
pub const MOST_PROCESSES: usize = 512;
/// The file name of the library.
pub const LIBRARY: &str = "librms-malleable.so";
/// The environment variable with the path of the supervisor's socket.
pub const SOCKET_VARIABLE: &str = "RMS_MALLEABLE_SOCKET";

/// Offsets in the page that a process shares with the supervisor.
pub mod page {
    use super::MASK_WORDS;

    pub const BYTES: usize = 4096;
    pub const MAGIC: usize = 0;
    pub const VERSION: usize = 4;
    pub const SEQ: usize = 8;
    pub const N_CPUS: usize = 16;
    pub const MOST: usize = 20;
    pub const IS_OVER: usize = 24;
    pub const MASK: usize = 32;
    pub const WORDS: usize = MASK_WORDS;
    pub const ACKED_SEQ: usize = 2048;
    pub const THREADS: usize = 2056;
}

/// A request of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Requests a page; the process may be one of several ranks of the job on this node.
    Join {
        rank: Option<Rank>,
        /// The process id under which CPUs were set aside for it, if another.
        set_aside_for: Option<i32>,
    },
    /// Announces that the page has a new acknowledgement. There is no answer.
    Acknowledged,
    List,
    Get {
        pid: i32,
        flags: Flags,
    },
    Set {
        pid: i32,
        cpus: Cpus,
        flags: Flags,
    },
    PreInit {
        pid: i32,
        cpus: Cpus,
        flags: Flags,
    },
    PostFinalize {
        pid: i32,
        flags: Flags,
    },
}

/// The rank of a process among the ranks of a job on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    pub rank: u32,
    pub n_ranks: u32,
}

/// How a mask is to be set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// CPUs that are set aside for others are taken from them.
    pub steals: bool,
    /// Taken CPUs are given back at the end.
    pub returns: bool,
    /// The answer is sent once the change has been acknowledged or enforced.
    pub waits: bool,
}

/// The result of a request: numbers of `rms_malleable.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Done,
    Failed,
    Already,
    NoProcess,
    Pending,
    NotAllowed,
    Timeout,
    TooMany,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub kind: Kind,
    pub status: Status,
    /// The CPUs of one process, or of the job.
    pub cpus: Cpus,
    pub pids: Vec<i32>,
    /// The threads of a process in its last parallel region, if known.
    pub threads: u32,
    pub is_acknowledged: bool,
    /// Milliseconds since 1970.
    pub since: u64,
}

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Join,
    Acknowledged,
    List,
    Get,
    Set,
    PreInit,
    PostFinalize,
    Changed,
}

const HEAD: usize = 24;
/// The size of a request.
pub const REQUEST_BYTES: usize = HEAD + 8 * MASK_WORDS;
const ANSWER_HEAD: usize = 32;
/// The size of an answer.
pub const ANSWER_BYTES: usize = ANSWER_HEAD + 8 * MASK_WORDS + 4 * MOST_PROCESSES;

impl Request {
    /// Parses a message; `None` if it is invalid, or of another version.
    pub fn parse(bytes: &[u8]) -> Option<Request> {
        let (magic, version, kind) = (u32_at(bytes, 0)?, u16_at(bytes, 4)?, Kind::of(u16_at(bytes, 6)?)?);
        if (magic, version) != (MAGIC, VERSION) {
            return None;
        }
        let pid = u32_at(bytes, 8)?.cast_signed();
        let flags = Flags::of(u32_at(bytes, 12)?);
        let rank = Rank { rank: u32_at(bytes, 16)?, n_ranks: u32_at(bytes, 20)? };
        Some(match kind {
            Kind::Join => Request::Join {
                rank: (rank.rank < rank.n_ranks).then_some(rank),
                set_aside_for: (pid > 0).then_some(pid),
            },
            Kind::Acknowledged => Request::Acknowledged,
            Kind::List => Request::List,
            Kind::Get => Request::Get { pid, flags },
            Kind::Set => Request::Set { pid, cpus: cpus_at(bytes, HEAD)?, flags },
            Kind::PreInit => Request::PreInit { pid, cpus: cpus_at(bytes, HEAD)?, flags },
            Kind::PostFinalize => Request::PostFinalize { pid, flags },
            Kind::Changed => return None,
        })
    }

    /// Serializes the request as the library does.
    pub fn to_bytes(&self) -> Vec<u8> {
        let (kind, pid, cpus, flags, rank) = match self {
            Request::Join { rank, set_aside_for } => {
                (Kind::Join, set_aside_for.unwrap_or(0), None, Flags::default(), *rank)
            }
            Request::Acknowledged => (Kind::Acknowledged, 0, None, Flags::default(), None),
            Request::List => (Kind::List, 0, None, Flags::default(), None),
            Request::Get { pid, flags } => (Kind::Get, *pid, None, *flags, None),
            Request::Set { pid, cpus, flags } => (Kind::Set, *pid, Some(cpus), *flags, None),
            Request::PreInit { pid, cpus, flags } => (Kind::PreInit, *pid, Some(cpus), *flags, None),
            Request::PostFinalize { pid, flags } => (Kind::PostFinalize, *pid, None, *flags, None),
        };
        let mut bytes = head(kind);
        bytes.extend(pid.to_ne_bytes());
        bytes.extend(flags.bits().to_ne_bytes());
        let rank = rank.unwrap_or(Rank { rank: 0, n_ranks: 0 });
        bytes.extend(rank.rank.to_ne_bytes());
        bytes.extend(rank.n_ranks.to_ne_bytes());
        push_mask(&mut bytes, cpus.unwrap_or(&Cpus::new()));
        bytes
    }
}

impl Answer {
    pub fn new(kind: Kind, status: Status) -> Answer {
        let (cpus, pids) = (Cpus::new(), Vec::new());
        Answer { kind, status, cpus, pids, threads: 0, is_acknowledged: false, since: 0 }
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = head(self.kind);
        bytes.extend(self.status.number().to_ne_bytes());
        let n = if self.kind == Kind::List { self.pids.len() } else { self.cpus.len() };
        bytes.extend((n as u32).to_ne_bytes());
        bytes.extend(self.threads.to_ne_bytes());
        bytes.extend(u32::from(self.is_acknowledged).to_ne_bytes());
        bytes.extend(self.since.to_ne_bytes());
        push_mask(&mut bytes, &self.cpus);
        self.pids.iter().take(MOST_PROCESSES).for_each(|pid| bytes.extend(pid.to_ne_bytes()));
        bytes.resize(ANSWER_BYTES, 0);
        bytes
    }

    /// Parses a message; `None` if it is invalid, or of another version.
    pub fn parse(bytes: &[u8]) -> Option<Answer> {
        let (magic, version, kind) = (u32_at(bytes, 0)?, u16_at(bytes, 4)?, Kind::of(u16_at(bytes, 6)?)?);
        if (magic, version) != (MAGIC, VERSION) {
            return None;
        }
        let status = Status::of(u32_at(bytes, 8)?.cast_signed());
        let n = u32_at(bytes, 12)? as usize;
        let pids = match kind {
            Kind::List => {
                let pid = |idx| u32_at(bytes, ANSWER_HEAD + 8 * MASK_WORDS + 4 * idx).map(u32::cast_signed);
                (0..n.min(MOST_PROCESSES)).map(pid).collect::<Option<Vec<i32>>>()?
            }
            Kind::Join | Kind::Acknowledged | Kind::Get | Kind::Set => Vec::new(),
            Kind::PreInit | Kind::PostFinalize | Kind::Changed => Vec::new(),
        };
        Some(Answer {
            kind,
            status,
            cpus: cpus_at(bytes, ANSWER_HEAD)?,
            pids,
            threads: u32_at(bytes, 16)?,
            is_acknowledged: u32_at(bytes, 20)? != 0,
            since: u64_at(bytes, 24)?,
        })
    }
}

impl Flags {
    fn of(bits: u32) -> Flags {
        let has = |bit: u32| bits & bit != 0;
        Flags { steals: has(1), returns: has(2), waits: has(4) }
    }

    fn bits(self) -> u32 {
        u32::from(self.steals) | u32::from(self.returns) << 1 | u32::from(self.waits) << 2
    }
}

impl Kind {
    const ALL: [Kind; 8] = [
        Kind::Join,
        Kind::Acknowledged,
        Kind::List,
        Kind::Get,
        Kind::Set,
        Kind::PreInit,
        Kind::PostFinalize,
        Kind::Changed,
    ];

    fn of(number: u16) -> Option<Kind> {
        Kind::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }

    fn number(self) -> u16 {
        let position = Kind::ALL.iter().position(|kind| *kind == self).expect("all are listed");
        position as u16 + 1
    }
}

impl Status {
    const ALL: [(Status, i32); 8] = [
        (Status::Done, 0),
        (Status::Failed, -1),
        (Status::Already, -3),
        (Status::NoProcess, -6),
        (Status::Pending, -7),
        (Status::NotAllowed, -8),
        (Status::Timeout, -9),
        (Status::TooMany, -14),
    ];

    fn number(self) -> i32 {
        Status::ALL.iter().find(|(status, _)| *status == self).map_or(-1, |(_, number)| *number)
    }

    fn of(number: i32) -> Status {
        Status::ALL.iter().find(|(_, known)| *known == number).map_or(Status::Failed, |(status, _)| *status)
    }
}

/// Returns the words of a mask.
pub fn words(cpus: &Cpus) -> [u64; MASK_WORDS] {
    let mut words = [0; MASK_WORDS];
    for cpu in cpus.iter().filter(|cpu| **cpu < MOST_CPUS) {
        words[*cpu as usize / 64] |= 1 << (cpu % 64);
    }
    words
}

fn push_mask(bytes: &mut Vec<u8>, cpus: &Cpus) {
    words(cpus).iter().for_each(|word| bytes.extend(word.to_ne_bytes()));
}

fn cpus_at(bytes: &[u8], place: usize) -> Option<Cpus> {
    let mut cpus = Cpus::new();
    for idx in 0..MASK_WORDS {
        let word = u64_at(bytes, place + 8 * idx)?;
        cpus.extend((0..64).filter(|bit| word >> bit & 1 == 1).map(|bit| idx as u32 * 64 + bit));
    }
    Some(cpus)
}

fn head(kind: Kind) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(ANSWER_BYTES);
    bytes.extend(MAGIC.to_ne_bytes());
    bytes.extend(VERSION.to_ne_bytes());
    bytes.extend(kind.number().to_ne_bytes());
    bytes
}

fn u16_at(bytes: &[u8], place: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(place..place + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], place: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(place..place + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], place: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(place..place + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_as_they_were() {
        let (cpus, flags) = (Cpus::from([0, 63, 64, 8191]), Flags { steals: true, returns: false, waits: true });
        for request in [
            Request::Join { rank: Some(Rank { rank: 1, n_ranks: 4 }), set_aside_for: Some(9) },
            Request::Join { rank: None, set_aside_for: None },
            Request::Acknowledged,
            Request::List,
            Request::Get { pid: 7, flags },
            Request::Set { pid: 7, cpus: cpus.clone(), flags },
            Request::PreInit { pid: 7, cpus: cpus.clone(), flags },
            Request::PostFinalize { pid: 7, flags },
        ] {
            let bytes = request.to_bytes();
            assert_eq!((Request::parse(&bytes), bytes.len()), (Some(request), REQUEST_BYTES));
        }
        let answer = Answer { pids: vec![3, 4], cpus, since: 12, ..Answer::new(Kind::List, Status::NotAllowed) };
        for answer in [Answer { pids: Vec::new(), ..answer.clone() }, answer] {
            let bytes = answer.to_bytes();
            assert_eq!((Answer::parse(&bytes), bytes.len()), (Some(answer), ANSWER_BYTES));
        }
    }

    #[test]
    fn nonsense_is_no_message() {
        let good = Request::List.to_bytes();
        for n in 0..HEAD {
            assert_eq!(Request::parse(&good[..n]), None, "{n} bytes");
        }
        let mut set = Request::Set { pid: 1, cpus: Cpus::new(), flags: Flags::default() }.to_bytes();
        set.truncate(HEAD + 3);
        assert_eq!(Request::parse(&set), None);
        for (place, value) in [(0, 0), (4, 9), (6, 0), (6, 8), (6, 99)] {
            let mut bad = good.clone();
            bad[place] = value;
            assert_eq!(Request::parse(&bad), None, "{value} at {place}");
        }
    }
}
