//! How a model application behaves: what it can use, what it wants, how it answers, what it keeps of its promises.

use negotiation::{Direction, Price};
use rms_model::{Sizes, Span};

/// The behaviour of the process that negotiates for one application, the same in every execution.
#[derive(Clone, Debug)]
pub struct Manner {
    /// Totals of nodes that it can use, and between which bounds.
    pub least: u32,
    pub most: u32,
    pub sizes: Sizes,
    /// It declares them when it is attached; else those of its submission count.
    pub declares: bool,
    /// From one breakpoint to the next. It gives nodes, and opens negotiations, at breakpoints only.
    pub breakpoint: Span,
    /// From hearing a proposal until it has chosen an answer.
    pub thinks: Span,
    /// Its answer arrives when the proposal lapses, or a moment before or after.
    pub last_minute: bool,
    /// The most it pays for a node and hour.
    pub ceiling: Price,
    pub answers: Answers,
    pub promises: Promises,
    /// What it wants by itself, in this order.
    pub wants: Vec<Want>,
    /// Its processes end themselves on nodes that it lets go of, after this time; absent: they are ended.
    pub clears_in: Option<Span>,
    pub absence: Option<Absence>,
    /// In so many of a hundred breakpoints it says what is not true.
    pub lies: u32,
    /// In so many of a hundred cases it does not what is best for it, but anything.
    pub whims: u32,
    /// Its clock is wrong by so much.
    pub skew: Span,
    pub weather: Weather,
    /// It says that it can go on without nodes that are lost.
    pub survives_loss: bool,
}

/// How it answers the proposals of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// Takes what it can use, and says what of it that is.
    ByItsSizes,
    /// The same, but comes up by so much a round before it pays what is asked.
    Haggles {
        step: u64,
    },
    Declines,
    /// Says nothing.
    Ignores,
}

/// What becomes of nodes that it has agreed to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promises {
    /// It lets go of them at its next breakpoint.
    Keeps,
    /// It never does.
    Breaks,
    /// It says that it cannot.
    Fails,
}

/// Something that it opens a negotiation for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    /// At the first breakpoint so long after it began.
    pub after: Span,
    pub direction: Direction,
    pub what: Wanted,
    pub quantity: u64,
    pub least: u64,
    pub price: Price,
    pub duration: Option<Span>,
    /// Ready within this time.
    pub within: Option<Span>,
    pub valid_for: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Nodes of the cluster on which its first node is.
    Nodes,
    /// Nodes of the other one of two clusters.
    Elsewhere,
    /// As many of both, all or nothing.
    OnBoth,
    /// As many of both, of which any would do.
    OnEither,
    /// So many seconds of wall time.
    Time,
    /// So many nodes, or half as many: alternatives.
    NodesOrHalf,
    /// Nodes and time, either of which would do.
    NodesAndTime,
}

/// It is not there for a while, or for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Absence {
    /// So long after it began.
    pub after: Span,
    /// Absent: it never comes back.
    pub back_after: Option<Span>,
    /// It is the same process again; else another one, which knows nothing.
    pub remembers: bool,
}

/// What its channel does to the messages of dialogues. Calls and their answers keep their order, as on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weather {
    /// Of a hundred messages so many are lost, and so many come twice.
    pub loss: u32,
    pub twice: u32,
    /// Each takes up to this time, whatever others take.
    pub slowest: Span,
}

impl Weather {
    /// Nothing is lost, and nothing overtakes anything.
    pub const FINE: Weather = Weather { loss: 0, twice: 0, slowest: Span::from_millis(1) };
}

impl Manner {
    /// Honest, quick, between these sizes, and wants nothing.
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

    /// Its totals are powers of two.
    pub fn in_powers_of_two(mut self) -> Manner {
        self.sizes = Sizes::PowerOfTwo;
        self
    }

    /// It wants so many nodes more, or what it can get of them, so long after it began.
    pub fn grows(self, after: Span, quantity: u64) -> Manner {
        self.wants(Want::nodes(Direction::Grow, after, quantity))
    }

    /// It gives so many nodes back, so long after it began.
    pub fn shrinks(self, after: Span, quantity: u64) -> Manner {
        self.wants(Want::nodes(Direction::Shrink, after, quantity))
    }

    pub fn wants(mut self, want: Want) -> Manner {
        self.wants.push(want);
        self
    }

    /// How it answers.
    pub fn answers(mut self, answers: Answers) -> Manner {
        self.answers = answers;
        self
    }

    /// What it keeps.
    pub fn promises(mut self, promises: Promises) -> Manner {
        self.promises = promises;
        self
    }

    /// Does it keep to all rules of a dialogue?
    pub fn is_honest(&self) -> bool {
        self.lies == 0
    }
}

impl Want {
    /// From one node to so many, for nothing, until its end.
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
