//! Options of Slurm's commands, for tables that say what each of them means here.

/// Whether an option takes an argument, as in getopt_long(3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    Required,
    /// Only after an equals sign.
    Optional,
    No,
}

/// An option with its meaning.
#[derive(Debug)]
pub struct SlurmOption<M> {
    pub short: Option<char>,
    pub long: &'static str,
    pub argument: Argument,
    pub meaning: M,
}

/// Creates an option with a required argument.
pub const fn value<M: Copy>(short: Option<char>, long: &'static str, meaning: M) -> SlurmOption<M> {
    SlurmOption { short, long, argument: Argument::Required, meaning }
}

/// Creates an option with an optional argument.
pub const fn perhaps<M: Copy>(short: Option<char>, long: &'static str, meaning: M) -> SlurmOption<M> {
    SlurmOption { short, long, argument: Argument::Optional, meaning }
}

/// Creates an option without an argument.
pub const fn flag<M: Copy>(short: Option<char>, long: &'static str, meaning: M) -> SlurmOption<M> {
    SlurmOption { short, long, argument: Argument::No, meaning }
}
