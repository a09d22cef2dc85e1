//! The built-in launcher of batch jobs: chooses among the sizes that its user listed.
//!
//! It takes the same path as an external launcher: it subscribes with the submit, sends its first request when
//! the job is eligible, and adapts the request to each view, here without delay.

use rms_model::{Request, Time};

use super::{Blocked, Shortage};

/// The request a launcher sends for its view.
#[derive(Debug)]
pub(super) struct Choice<'a> {
    /// The index in the list of its spec.
    pub(super) option_idx: u32,
    pub(super) request: &'a Request,
    pub(super) start: Time,
    pub(super) blocked: Option<Blocked>,
}

/// The index of a size in its spec, the size, and where it fits.
pub(super) type SizedHole<'a> = (usize, &'a Request, Result<(Time, Option<Blocked>), Shortage>);

/// Chooses the size that completes first; between equals the one listed first (PAPERS §2: strict <, as OAR does).
///
/// # Errors
/// No size fits: names the cluster of the last size listed that is too small, and the number of nodes wanted.
pub(super) fn choose<'a>(holes: impl Iterator<Item = SizedHole<'a>>) -> Result<Choice<'a>, Shortage> {
    let mut best: Option<Choice<'a>> = None;
    let mut too_small = None;
    for (option_idx, request, hole) in holes {
        match hole {
            Ok((start, blocked)) => {
                let completes_first =
                    best.as_ref().is_none_or(|best| start + request.wall < best.start + best.request.wall);
                if completes_first {
                    best = Some(Choice { option_idx: option_idx as u32, request, start, blocked });
                }
            }
            Err(shortage) => too_small = Some(shortage),
        }
    }
    best.ok_or_else(|| too_small.expect("an accepted job has at least one size"))
}
