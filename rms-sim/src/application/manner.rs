//! How a model application behaves: what it can use, what it wants, how it answers, and which promises it keeps.

use negotiation::{Direction, Price};
use rms_model::{Sizes, Span};

/// The behaviour of the process that negotiates for one application, the same in every execution.
#[derive(Clone, Debug)]
pub struct Manner {
    /// The totals of nodes that it can use, and their bounds.
    pub least: u32,
    pub most: u32,
    pub sizes: Sizes,
    /// Whether it declares them when it is attached; else those of its submission count.
    pub declares: bool,
    /// The time between two breakpoints. It gives nodes, and opens negotiations, at breakpoints only.
    pub breakpoint: Span,
    /// The time from receiving a proposal until it has chosen an answer.
    pub thinks: Span,
    /// Whether its answer arrives when the proposal lapses, or a moment before or after.
    pub last_minute: bool,
    /// The most it pays for a node per hour.
    pub ceiling: Price,
    pub answers: Answers,
    pub promises: Promises,
    /// What it wants itself, in this order.
    pub wants: Vec<Want>,
    /// The time after which its processes end themselves on nodes that it releases; absent: they are ended by the RMS.
    pub clears_in: Option<Span>,
    pub absence: Option<Absence>,
    /// The percentage of breakpoints at which it sends something untrue.
    pub lies: u32,
    /// The percentage of cases in which it does something random instead of what is best for it.
    pub whims: u32,
    /// By how much its clock is wrong.
    pub skew: Span,
    pub weather: Weather,
    /// Whether it declares that it can go on without lost nodes.
    pub survives_loss: bool,
}

/// How it answers the proposals of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// Takes what it can use, and proposes that part.
    ByItsSizes,
    /// The same, but raises its price by this much per round before it pays what is asked.
    Haggles {
        step: u64,
    },
    Declines,
    /// Does not answer.
    Ignores,
}

/// What it does with nodes that it has agreed to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promises {
    /// It releases them at its next breakpoint.
    Keeps,
    /// It never releases them.
    Breaks,
    /// It reports that it cannot.
    Fails,
}

/// The subject of a negotiation that it opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    /// At the first breakpoint this long after it began.
    pub after: Span,
    pub direction: Direction,
    pub what: Wanted,
    pub quantity: u64,
    pub least: u64,
    pub price: Price,
    pub duration: Option<Span>,
    /// It must be ready within this time.
    pub within: Option<Span>,
    pub valid_for: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Nodes of the cluster of its first node.
    Nodes,
    /// Nodes of the other one of two clusters.
    Elsewhere,
    /// The same number on both, all or nothing.
    OnBoth,
    /// The same number on both, of which either would do.
    OnEither,
    /// This many seconds of wall time.
    Time,
    /// This many nodes, or half as many: alternatives.
    NodesOrHalf,
    /// Nodes and time, either of which would do.
    NodesAndTime,
}

/// It is absent for a while, or for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Absence {
    /// This long after it began.
    pub after: Span,
    /// Absent: it never returns.
    pub back_after: Option<Span>,
    /// Whether the same process returns; else a new one that knows nothing.
    pub remembers: bool,
}

/// How its channel treats the messages of dialogues. Calls and their answers keep their order, as on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weather {
    /// The percentages of messages that are lost, and that arrive twice.
    pub loss: u32,
    pub twice: u32,
    /// The longest delay of a message; each is delayed independently.
    pub slowest: Span,
}

impl Weather {
    /// Nothing is lost or overtaken.
    pub const FINE: Weather = Weather { loss: 0, twice: 0, slowest: Span::from_millis(1) };
}

impl Manner {
    /// Returns an honest, quick application between these sizes that wants nothing.
    pub fn between(least: u32, most: u32) -> Manner {
        Manner {
            least,
            most,
            sizes: Sizes::Any,
            declares: true,
            breakpoint: Span::from_secs(1),
            thinks: Span::from_millis(10),
            last_minute: false,
            ceiling: Price(0),
            answers: Answers::ByItsSizes,
            promises: Promises::Keeps,
            wants: Vec::new(),
            clears_in: None,
            absence: None,
            lies: 0,
            whims: 0,
            skew: Span::ZERO,
            weather: Weather::FINE,
            survives_loss: false,
        }
    }

    /// Restricts its totals to powers of two.
    pub fn in_powers_of_two(mut self) -> Manner {
        self.sizes = Sizes::PowerOfTwo;
        self
    }

    /// Makes it ask for this many nodes more, or a part of them, this long after it began.
    pub fn grows(self, after: Span, quantity: u64) -> Manner {
        self.wants(Want::nodes(Direction::Grow, after, quantity))
    }

    /// Makes it give this many nodes back, this long after it began.
    pub fn shrinks(self, after: Span, quantity: u64) -> Manner {
        self.wants(Want::nodes(Direction::Shrink, after, quantity))
    }

    pub fn wants(mut self, want: Want) -> Manner {
        self.wants.push(want);
        self
    }

    /// Sets how it answers.
    pub fn answers(mut self, answers: Answers) -> Manner {
        self.answers = answers;
        self
    }

    /// Sets which promises it keeps.
    pub fn promises(mut self, promises: Promises) -> Manner {
        self.promises = promises;
        self
    }

    /// Returns whether it keeps all rules of a dialogue.
    pub fn is_honest(&self) -> bool {
        self.lies == 0
    }
}

impl Want {
    /// Returns a wish for one to `quantity` nodes, for free, until the application ends.
    pub fn nodes(direction: Direction, after: Span, quantity: u64) -> Want {
        Want {
            after,
            direction,
            what: Wanted::Nodes,
            quantity,
            least: 1,
            price: Price(0),
            duration: None,
            within: None,
            valid_for: Span::from_mins(1),
        }
    }
}
