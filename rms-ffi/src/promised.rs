//! Shrinks that are promised and not complete, as far as the session has heard: also before breakpoints are declared.
//!
//! An application that is started again learns at once what its former process has promised, mostly before it declares
//! that the library answers for it.

use std::collections::BTreeMap;

use launcher_sdk::negotiator::{Agreed, Direction, Event, HeldNode, Holding, NegotiationId, StageEnds};

use crate::breakpoint::Breakpoint;

/// What the RMS expects the application to leave.
#[derive(Debug, Default)]
pub struct Promised {
    shrinks: BTreeMap<NegotiationId, Agreed>,
    /// The end of the current stage, if the next one is smaller.
    stage_ends: Option<StageEnds>,
}

impl Promised {
    /// Applies an event.
    pub fn hear(&mut self, event: &Event) {
        match event {
            Event::Accepted(agreed) if agreed.direction == Direction::Shrink => {
                self.shrinks.insert(agreed.negotiation, agreed.clone());
            }
            Event::Ready(_) | Event::Ended { .. } => {
                if let Some(id) = event.negotiation() {
                    self.shrinks.remove(&id);
                }
            }
            Event::StageEnds(stage_ends) => self.stage_ends = Some(stage_ends.clone()),
            Event::Accepted(_) | Event::Offered(_) | Event::Countered(_) => {}
            // What is gone, and which stage it is, is compared with the holding when it matters.
            Event::Holding(_) | Event::NodesLost(_) => {}
            Event::Warned(_) | Event::JobEnding(_) | Event::Replaced | Event::Lost(_) => {}
        }
    }

    /// Records that the application has released the nodes of a shrink; without `id`, those for the next stage.
    pub fn released(&mut self, id: Option<NegotiationId>) {
        match id {
            Some(id) => drop(self.shrinks.remove(&id)),
            None => self.stage_ends = None,
        }
    }

    /// Creates the state of an application that uses the nodes of `holding`, and has yet to leave what is promised.
    pub fn breakpoint(&self, holding: &Holding) -> Breakpoint {
        let is_held = |node: &HeldNode| holding.nodes.iter().any(|held| held.node == node.node);
        let mut breakpoint = Breakpoint::of(holding);
        for agreed in self.shrinks.values() {
            let leaving = agreed.leaving.iter().filter(|node| is_held(node)).cloned().collect();
            breakpoint.hear(&Event::Accepted(Agreed { leaving, ..agreed.clone() }));
        }
        if let Some(stage_ends) = self.stage_ends.as_ref().filter(|stage_ends| is_ahead(stage_ends, holding)) {
            let leaving = stage_ends.leaving.iter().filter(|node| is_held(node)).cloned().collect();
            breakpoint.hear(&Event::StageEnds(StageEnds { leaving, ..stage_ends.clone() }));
        }
        breakpoint
    }
}

/// Returns whether the announced stage is still the next one, and smaller.
fn is_ahead(stage_ends: &StageEnds, holding: &Holding) -> bool {
    holding.stages.as_deref().is_some_and(|stages| {
        let shrinks = matches!(stages.legs.as_slice(), [now, next, ..] if next.nodes < now.nodes);
        shrinks && stage_ends.next == stages.number + 1
    })
}

#[cfg(test)]
mod tests {
    use launcher_sdk::negotiator::Direction;

    use super::*;
    use crate::breakpoint::Release;
    use crate::breakpoint::tests::{R1, agreed, ends, failed, frees, holding, in_stage, ready, say, told};

    fn after(events: &[Event]) -> Promised {
        let mut promised = Promised::default();
        events.iter().for_each(|event| promised.hear(event));
        promised
    }

    fn holding_of(event: Event) -> Holding {
        let Event::Holding(holding) = event else { panic!("{event:?}") };
        holding
    }

    #[test]
    fn what_was_promised_before_is_told_once() {
        let promised = after(&[agreed("c")]);
        let mut breakpoint = promised.breakpoint(&holding("a b c"));
        assert_eq!(told(&mut breakpoint), Some((Direction::Shrink, "c".into(), false)));
        assert_eq!((breakpoint.release(), told(&mut breakpoint)), (say("c"), None));
        breakpoint.hear(&ready(Direction::Shrink, "c"));
        assert_eq!(told(&mut breakpoint), None);
    }

    #[test]
    fn what_is_complete_or_released_is_not_told() {
        for event in [ready(Direction::Shrink, "c"), failed()] {
            assert_eq!(told(&mut after(&[agreed("c"), event]).breakpoint(&holding("a b"))), None);
        }
        let mut promised = after(&[agreed("c")]);
        promised.released(Some(R1));
        assert_eq!(told(&mut promised.breakpoint(&holding("a b c"))), None);
        // Lost meanwhile: there is nothing to leave.
        assert_eq!(told(&mut after(&[agreed("c")]).breakpoint(&holding("a b"))), None);
    }

    #[test]
    fn the_end_of_a_stage_that_was_announced_before_is_told() {
        let first = || holding_of(in_stage(1, &[3, 2], "a b c"));
        let mut breakpoint = after(&[ends(2, "c")]).breakpoint(&first());
        assert_eq!(told(&mut breakpoint), Some((Direction::Shrink, "c".into(), false)));
        assert_eq!((breakpoint.release(), told(&mut breakpoint)), (frees("c"), None));
        let mut promised = after(&[ends(2, "c")]);
        promised.released(None);
        assert_eq!(told(&mut promised.breakpoint(&first())), None);
    }

    #[test]
    fn a_stage_that_has_begun_or_is_not_smaller_any_more_is_not_told() {
        for now in [in_stage(2, &[3, 2], "a b c"), in_stage(2, &[2], "a b"), in_stage(1, &[3, 4], "a b c")] {
            let mut breakpoint = after(&[ends(2, "c")]).breakpoint(&holding_of(now));
            assert_eq!((breakpoint.release(), told(&mut breakpoint)), (Release::Nothing, None));
        }
    }
}
