//! Encodes negotiation identifiers as numbers for C: the initiator in the upper half, its counter in the lower.

use launcher_sdk::negotiator::{NegotiationId, Side};

use crate::failure::Failure;

/// Returns the negotiation that a number identifies.
pub fn negotiation(id: u64) -> Result<NegotiationId, Failure> {
    let number = (id & u64::from(u32::MAX)) as u32;
    let initiator = match id >> 32 {
        OF_RMS => Side::Rms,
        OF_APPLICATION => Side::Application,
        _ => return Err(Failure::unknown(&id)),
    };
    Ok(NegotiationId { initiator, number })
}

/// Returns the number of a negotiation, which is never 0.
pub fn id(id: NegotiationId) -> u64 {
    let initiator = match id.initiator {
        Side::Rms => OF_RMS,
        Side::Application => OF_APPLICATION,
    };
    initiator << 32 | u64::from(id.number)
}

const OF_RMS: u64 = 1;
const OF_APPLICATION: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_names_the_negotiation_that_it_was_made_of() {
        for initiator in [Side::Rms, Side::Application] {
            for number in [0, 1, u32::MAX] {
                let negotiation = NegotiationId { initiator, number };
                assert_eq!(super::negotiation(id(negotiation)).expect("it is one"), negotiation);
            }
        }
        for none in [0, 7, 3 << 32, u64::MAX] {
            assert!(matches!(negotiation(none), Err(Failure::UnknownNegotiation(_))), "{none}");
        }
    }
}
