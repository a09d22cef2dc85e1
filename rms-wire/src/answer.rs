//! What the server answers to a call: one frame, or the parts of a list.

use rms_api::{Answer, Refused};
use serde::{Deserialize, Serialize};

use crate::message::{Kind, Message, Size};

/// A refusal is whole by itself; a long list comes as several answers of the same kind, each with some of its lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerPart {
    pub answer: Result<Answer, Refused>,
    /// Nothing comes after it.
    pub last: bool,
}

impl AnswerPart {
    /// An answer of one part.
    pub fn whole(answer: Result<Answer, Refused>) -> AnswerPart {
        AnswerPart { answer, last: true }
    }
}

impl Message for AnswerPart {
    const KIND: Kind = Kind::AnswerPart;
    const SIZE: Size = Size::Whole;
}
