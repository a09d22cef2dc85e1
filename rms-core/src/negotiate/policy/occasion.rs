//! When running applications may be asked to give nodes back, and which of them.

use rms_model::ShrinkRule;

/// Why nodes are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// The first job of the queue cannot start.
    Waiting {
        /// The priority of that job.
        priority: i32,
    },
    /// A node is drained.
    Drain,
}

impl Occasion {
    /// Returns whether a job of this priority may be asked. A drained node must be left whatever the rule for the queue
    /// is.
    pub fn may_disturb(self, rule: ShrinkRule, victim: i32) -> bool {
        match (self, rule) {
            (Occasion::Drain, ShrinkRule::Never | ShrinkRule::Priority | ShrinkRule::Queue) => true,
            (Occasion::Waiting { priority: _ }, ShrinkRule::Never) => false,
            (Occasion::Waiting { priority }, ShrinkRule::Priority) => victim < priority,
            (Occasion::Waiting { priority }, ShrinkRule::Queue) => victim <= priority,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_gives_way_to_a_lower_priority_and_everybody_leaves_a_drained_node() {
        let waiting = Occasion::Waiting { priority: 0 };
        let asked = |occasion: Occasion, rule| [-1, 0, 1].map(|victim| occasion.may_disturb(rule, victim));
        assert_eq!(asked(waiting, ShrinkRule::Never), [false, false, false]);
        assert_eq!(asked(waiting, ShrinkRule::Priority), [true, false, false]);
        assert_eq!(asked(waiting, ShrinkRule::Queue), [true, true, false]);
        assert_eq!(asked(Occasion::Drain, ShrinkRule::Never), [true, true, true]);
    }
}
