//! The server's answers to calls: one frame, or the parts of a list.

use rms_api::{Answer, Refused};
use serde::{Deserialize, Serialize};

use crate::message::{Kind, Message, Size};

/// A part of an answer. A refusal is complete in itself; a long list is sent as several answers of the same kind, each
/// with some of the lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerPart {
    pub answer: Result<Answer, Refused>,
    /// Whether this is the last part.
    pub last: bool,
}

impl AnswerPart {
    /// Returns an answer of one part.
    pub fn whole(answer: Result<Answer, Refused>) -> AnswerPart {
        AnswerPart { answer, last: true }
    }
}

impl Message for AnswerPart {
    const KIND: Kind = Kind::AnswerPart;
    const SIZE: Size = Size::Whole;
}
