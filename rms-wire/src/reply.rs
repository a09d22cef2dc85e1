//! The client's side of a call: sends it, and joins the parts of the answer.

use rms_api::{Answer, Refused};
use thiserror::Error;

use crate::answer::AnswerPart;
use crate::link::{Link, LinkError};
use crate::parts::AnswerParts;
use crate::request::ClientRequest;

/// Why a call has no answer.
#[derive(Debug, Error)]
pub enum CallError {
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error(transparent)]
    Link(#[from] LinkError),
}

impl Link {
    /// Sends a request to the server and waits for the whole answer. Not for `Follow` and `Watch`, whose answers have
    /// no defined end.
    ///
    /// # Errors
    /// The server refuses, or the link ends before the answer does.
    pub async fn call(&self, request: &ClientRequest) -> Result<Answer, CallError> {
        let mut channel = self.open().await?;
        channel.send(request).await?;
        channel.finish();
        let (_sender, mut receiver) = channel.split();
        let mut parts = AnswerParts::new();
        loop {
            let AnswerPart { answer, last } = receiver.recv_required::<AnswerPart>().await?;
            match parts.push(answer?, last) {
                Ok(Some(answer)) => return Ok(answer),
                Ok(None) => {}
                Err(malformed) => {
                    let error = LinkError::Malformed(malformed);
                    self.close_for(&error);
                    return Err(error.into());
                }
            }
        }
    }
}
