//! The limits within which an application can be resized, as it declares them.

use negotiation::Sizes;
use rms_api::negotiate::Declared;
use rms_model::{Malleable, OnResize, Speedup};

/// The limits of the server's offers and demands: the possible numbers of nodes, and the speed-up.
///
/// ```
/// use launcher_sdk::negotiator::Limits;
///
/// let limits = Limits::between(2, 64).in_powers_of_two().with_speedup([(2, 1900), (16, 12_000), (64, 30_000)]);
/// assert!(limits.fits(16) && !limits.fits(12) && !limits.fits(128));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The server never asks to hold fewer nodes.
    pub least: u32,
    /// The server never offers more.
    pub most: u32,
    /// Which numbers of nodes in this range are usable.
    pub sizes: Sizes,
    /// Pairs of a number of nodes and the speed relative to one node, in thousandths; ascending by nodes. Empty if not
    /// declared. A server that prefers efficient applications uses it.
    pub speedup: Speedup,
}

impl Limits {
    /// Allows any number of nodes between these, both included.
    pub fn between(least: u32, most: u32) -> Limits {
        Limits { least, most, sizes: Sizes::Any, speedup: Speedup::default() }
    }

    /// Restricts the sizes to powers of two (002, §6).
    #[must_use]
    pub fn in_powers_of_two(self) -> Limits {
        Limits { sizes: Sizes::PowerOfTwo, ..self }
    }

    /// Restricts the sizes to multiples of `unit`.
    #[must_use]
    pub fn in_multiples_of(self, unit: u32) -> Limits {
        Limits { sizes: Sizes::MultipleOf(u64::from(unit)), ..self }
    }

    /// Restricts the sizes to these numbers, which must ascend.
    #[must_use]
    pub fn in_sizes(self, sizes: impl IntoIterator<Item = u32>) -> Limits {
        Limits { sizes: Sizes::Listed(sizes.into_iter().map(u64::from).collect()), ..self }
    }

    /// Declares a speed-up: pairs of a number of nodes and the speed relative to one node in thousandths, ascending.
    #[must_use]
    pub fn with_speedup(self, points: impl IntoIterator<Item = (u32, u32)>) -> Limits {
        Limits { speedup: Speedup(points.into_iter().collect()), ..self }
    }

    /// Returns whether the application can be of this size.
    pub fn fits(&self, n_nodes: u64) -> bool {
        (u64::from(self.least)..=u64::from(self.most)).contains(&n_nodes) && self.sizes.fits(n_nodes)
    }
}

impl From<Limits> for Declared {
    fn from(limits: Limits) -> Declared {
        let Limits { least, most, sizes, speedup } = limits;
        Declared { least, most, sizes, speedup }
    }
}

/// For a program that a launcher starts: its processes negotiate.
impl From<Limits> for Malleable {
    fn from(limits: Limits) -> Malleable {
        let Limits { least, most, sizes, speedup } = limits;
        Malleable { least, most, sizes, on_resize: OnResize::Negotiates, speedup, survives_loss: None }
    }
}

impl From<Declared> for Limits {
    fn from(declared: Declared) -> Limits {
        let Declared { least, most, sizes, speedup } = declared;
        Limits { least, most, sizes, speedup }
    }
}
