//! The kinds of frames: their numbers, versions and sizes.

use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A type that a frame can hold.
///
/// Published types stay decodable in all later versions. A type in the [named](Encoding::Named) encoding grows by
/// fields that have a `#[serde(default)]` and by variants; anything else is a new [`Kind`] or a new version.
pub trait Message: Serialize + DeserializeOwned + fmt::Debug + Send + Sync + 'static {
    const KIND: Kind;
    const VERSION: u16 = 1;
    const ENCODING: Encoding = Encoding::Named;
    const SIZE: Size = Size::Ordinary;
    /// Whether the sender waits without a limit while the peer reads nothing: for messages that cannot be sent again.
    const MAY_WAIT: bool = false;
}

/// The kind of a frame. The numbers are on the wire and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum Kind {
    Hello = 1,
    HelloAnswer = 2,
    JoinRequest = 3,
    JoinAnswer = 4,
    ToServer = 10,
    ToAgent = 11,
    FollowOrder = 12,
    Spooled = 13,
    MasksAsked = 14,
    MasksSeen = 15,
    ClientRequest = 20,
    AnswerPart = 21,
    Followed = 22,
    Input = 23,
    InputAt = 24,
    PeerOpen = 30,
    PmiUp = 31,
    PmiDown = 32,
    PeerExec = 33,
    StepDown = 34,
    StepUp = 35,
    LauncherSays = 40,
    LauncherTold = 41,
    NegotiatorSays = 42,
    NegotiatorTold = 43,
}

impl Kind {
    /// Every kind, in the order of the numbers.
    pub const ALL: [Kind; 25] = [
        Kind::Hello,
        Kind::HelloAnswer,
        Kind::JoinRequest,
        Kind::JoinAnswer,
        Kind::ToServer,
        Kind::ToAgent,
        Kind::FollowOrder,
        Kind::Spooled,
        Kind::MasksAsked,
        Kind::MasksSeen,
        Kind::ClientRequest,
        Kind::AnswerPart,
        Kind::Followed,
        Kind::Input,
        Kind::InputAt,
        Kind::PeerOpen,
        Kind::PmiUp,
        Kind::PmiDown,
        Kind::PeerExec,
        Kind::StepDown,
        Kind::StepUp,
        Kind::LauncherSays,
        Kind::LauncherTold,
        Kind::NegotiatorSays,
        Kind::NegotiatorTold,
    ];

    pub const fn number(self) -> u16 {
        self as u16
    }

    /// Returns the kind with this number, if there is one.
    pub fn from_number(number: u16) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.number() == number)
    }
}

/// How a payload is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// MessagePack with the names of fields and variants: a reader skips unknown fields, and a missing field has its
    /// default.
    Named,
    /// bincode: for pieces of streams, whose layout is fixed. Only an enum may grow, at its end.
    Fixed,
}

/// The maximum size of a frame of a kind. It also bounds what decoding may allocate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// For frames that are sent before the peer is authenticated.
    Hello,
    /// A piece of a stream.
    Chunk,
    Ordinary,
    /// May hold a script and an environment.
    Bulk,
    /// May hold a complete job, a whole occupation profile, or the keys of all ranks.
    Whole,
}

impl Size {
    pub const fn bytes(self) -> usize {
        match self {
            Size::Hello => HELLO_BYTES,
            Size::Chunk => CHUNK_BYTES,
            Size::Ordinary => ORDINARY_BYTES,
            Size::Bulk => BULK_BYTES,
            Size::Whole => WHOLE_BYTES,
        }
    }
}

pub(crate) const HELLO_BYTES: usize = 16 << 10;
/// The bytes themselves, and the fields that say where they belong.
pub(crate) const CHUNK_BYTES: usize = MAX_CHUNK_BYTES + (4 << 10);
pub(crate) const ORDINARY_BYTES: usize = 1 << 20;
pub(crate) const BULK_BYTES: usize = 8 << 20;
pub(crate) const WHOLE_BYTES: usize = 16 << 20;

/// The most bytes of a stream in one frame.
pub const MAX_CHUNK_BYTES: usize = 64 << 10;
/// The most lines of a list in one frame; longer lists are sent in parts.
pub const MAX_LINES: usize = 256;
