//! The sizes of a job as typed: `4`, `1-16`, `1-15:4`, `2+`, `a:2,b:2` and `2x1h,4x35m`.

use std::collections::BTreeMap;
use std::str::FromStr;

use rms_api::call::{Nodes, Shape};
use rms_model::time::ParseSpanError;
use rms_model::{Span, identity};
use thiserror::Error;

/// The value of `-N`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeCount {
    Exactly(u32),
    /// `min`, `min + step`, … up to `max`.
    Range {
        min: u32,
        max: u32,
        step: u32,
    },
    /// As many nodes as the largest cluster has, but not fewer than this.
    AtLeast(u32),
    /// Nodes on several clusters at once.
    PerCluster(BTreeMap<String, u32>),
}

/// Why a text is not a size.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SizeError {
    #[error("'{0}' is no number of nodes: write 4, 1-16, 1-15:4 (in steps), 2+ (or more) or a:2,b:2 (by cluster)")]
    Nonsense(String),
    #[error("a job needs at least one node")]
    Zero,
    #[error("the range '{0}' runs backwards: write the smaller number first")]
    Backwards(String),
    #[error("the range '{0}' has a step of 0: write a step of 1 or more")]
    ZeroStep(String),
    #[error("the range '{text}' has {n_sizes} sizes, and at most {MAX_SIZES} are weighed: give a step, like 1-256:8")]
    TooMany { text: String, n_sizes: u64 },
    #[error("cluster '{0}' is named twice")]
    Twice(String),
    #[error("'{0}' is no list of sizes with wall times: write 2x1h,4x35m (nodes x time), or a:1+b:2x1h by cluster")]
    Shape(String),
    #[error(transparent)]
    Span(#[from] ParseSpanError),
}

/// The maximum number of sizes of a job; for each of them the scheduler searches the profile.
pub const MAX_SIZES: u64 = 64;

impl FromStr for NodeCount {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<NodeCount, SizeError> {
        let nonsense = || SizeError::Nonsense(shorten(text));
        let is_numeric = text.bytes().all(|b| b.is_ascii_digit() || b"-:+".contains(&b));
        if !is_numeric {
            return per_cluster(text, ',').map(NodeCount::PerCluster);
        }
        if let Some(min) = text.strip_suffix('+') {
            let min = number(min).ok_or_else(nonsense)?;
            return positive(min).map(NodeCount::AtLeast);
        }
        let Some((min, rest)) = text.split_once('-') else {
            return positive(number(text).ok_or_else(nonsense)?).map(NodeCount::Exactly);
        };
        let (max, step) = rest.split_once(':').unwrap_or((rest, "1"));
        let numbers = (number(min), number(max), number(step));
        let (Some(min), Some(max), Some(step)) = numbers else {
            return Err(nonsense());
        };
        range(text, positive(min)?, max, step)
    }
}

fn range(text: &str, min: u32, max: u32, step: u32) -> Result<NodeCount, SizeError> {
    if max < min {
        return Err(SizeError::Backwards(shorten(text)));
    }
    if step == 0 {
        return Err(SizeError::ZeroStep(shorten(text)));
    }
    let n_sizes = u64::from((max - min) / step) + 1;
    if n_sizes > MAX_SIZES {
        return Err(SizeError::TooMany { text: shorten(text), n_sizes });
    }
    Ok(if min == max { NodeCount::Exactly(min) } else { NodeCount::Range { min, max, step } })
}

fn per_cluster(text: &str, between: char) -> Result<BTreeMap<String, u32>, SizeError> {
    let nonsense = || SizeError::Nonsense(shorten(text));
    let mut nodes = BTreeMap::new();
    for part in text.split(between) {
        let (cluster, count) = part.split_once(':').ok_or_else(nonsense)?;
        identity::check_name(cluster).map_err(|_| nonsense())?;
        let count = positive(number(count).ok_or_else(nonsense)?)?;
        if nodes.insert(cluster.to_owned(), count).is_some() {
            return Err(SizeError::Twice(cluster.to_owned()));
        }
    }
    Ok(nodes)
}

fn positive(count: u32) -> Result<u32, SizeError> {
    if count == 0 { Err(SizeError::Zero) } else { Ok(count) }
}

fn number(text: &str) -> Option<u32> {
    let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

fn shorten(text: &str) -> String {
    text.chars().take(80).collect()
}

impl NodeCount {
    /// Returns the shapes to submit, largest first: of sizes that would end at the same time, the larger one is
    /// preferred. `largest` returns the number of nodes of the largest usable cluster; only [`NodeCount::AtLeast`]
    /// calls it.
    pub fn shapes(&self, wall: Option<Span>, largest: impl FnOnce() -> u32) -> Vec<Shape> {
        let count = |n_nodes| Shape { nodes: Nodes::Count(n_nodes), wall };
        match self {
            NodeCount::Exactly(n_nodes) => vec![count(*n_nodes)],
            NodeCount::Range { min, max, step } => sizes(*min, *max, *step).map(count).collect(),
            NodeCount::AtLeast(min) => {
                let max = largest().max(*min);
                // For a large cluster, evenly spaced sizes are chosen; the requested minimum and maximum are kept.
                let step = (max - min).div_ceil(MAX_SIZES as u32 - 1).max(1);
                let thinned = sizes(*min, max, step).map(count);
                let with_max = Some(max).filter(|max| !(max - min).is_multiple_of(step)).map(count);
                with_max.into_iter().chain(thinned).collect()
            }
            NodeCount::PerCluster(nodes) => vec![Shape { nodes: Nodes::PerCluster(nodes.clone()), wall }],
        }
    }

    /// Returns whether the job may have this many nodes of one cluster.
    pub fn allows(&self, n_nodes: u32) -> bool {
        match self {
            NodeCount::Exactly(exactly) => n_nodes == *exactly,
            NodeCount::Range { min, max, step } => {
                (*min..=*max).contains(&n_nodes) && (n_nodes - min).is_multiple_of(*step)
            }
            NodeCount::AtLeast(min) => n_nodes >= *min,
            NodeCount::PerCluster(_) => false,
        }
    }

    /// Returns the number of nodes, if there is only one.
    pub fn fixed(&self) -> Option<u32> {
        match self {
            NodeCount::Exactly(n_nodes) => Some(*n_nodes),
            NodeCount::PerCluster(nodes) => nodes.values().try_fold(0_u32, |sum, count| sum.checked_add(*count)),
            NodeCount::Range { .. } | NodeCount::AtLeast(_) => None,
        }
    }
}

/// Returns `min`, `min + step`, … up to `max`, largest first.
fn sizes(min: u32, max: u32, step: u32) -> impl Iterator<Item = u32> {
    (0..=(max - min) / step).rev().map(move |idx| min + idx * step)
}

/// The value of `--shapes`: sizes with a wall time each, in the order of preference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shapes(pub Vec<Shape>);

impl FromStr for Shapes {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Shapes, SizeError> {
        let nonsense = || SizeError::Shape(shorten(text));
        let mut shapes = Vec::new();
        for part in text.split(',') {
            // The last x, as the name of a cluster may contain one and a duration never does.
            let (nodes, wall) = part.rsplit_once('x').ok_or_else(nonsense)?;
            let nodes = match number(nodes) {
                Some(n_nodes) => Nodes::Count(positive(n_nodes)?),
                None => Nodes::PerCluster(per_cluster(nodes, '+').map_err(|_| nonsense())?),
            };
            shapes.push(Shape { nodes, wall: Some(wall.parse()?) });
        }
        let n_sizes = shapes.len() as u64;
        if n_sizes > MAX_SIZES {
            return Err(SizeError::TooMany { text: shorten(text), n_sizes });
        }
        Ok(Shapes(shapes))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn counts(text: &str, largest: u32) -> Vec<u32> {
        let count: NodeCount = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        let only_count = |shape: Shape| match shape.nodes {
            Nodes::Count(n_nodes) => n_nodes,
            Nodes::FromTasks | Nodes::PerCluster(_) => panic!("{text}: not a plain count"),
        };
        count.shapes(None, || largest).into_iter().map(only_count).collect()
    }

    #[test]
    fn node_counts_read_as_the_field_writes_them() {
        assert_eq!(counts("4", 0), [4]);
        assert_eq!(counts("1-4", 0), [4, 3, 2, 1]);
        assert_eq!(counts("1-15:4", 0), [13, 9, 5, 1]);
        assert_eq!(counts("3-3", 0), [3]);
        assert_eq!(counts("2+", 5), [5, 4, 3, 2]);
        assert_eq!(counts("7+", 5), [7]);
        let both = NodeCount::PerCluster(BTreeMap::from([("a".into(), 2), ("b1".into(), 3)]));
        assert_eq!("a:2,b1:3".parse(), Ok(both));
    }

    #[test]
    fn wrong_counts_say_what_to_write() {
        let check = |text: &str, part: &str| {
            let error = text.parse::<NodeCount>().expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        };
        check("", "write 4");
        check("0", "at least one");
        check("0-4", "at least one");
        check("4-1", "backwards");
        check("1-8:0", "step of 0");
        check("1-100000", "give a step");
        check("4:2", "write 4");
        check("a:0", "at least one");
        check("a:1,a:2", "twice");
        check("x", "write 4");
        check("99999999999", "write 4");
        check("1-2-3", "write 4");
        check("+", "write 4");
    }

    #[test]
    fn shapes_keep_their_order_and_walls() {
        let shapes: Shapes = "2x1h,4x35m,a:1+xx:2x10s".parse().unwrap();
        let count = |n_nodes, wall| Shape { nodes: Nodes::Count(n_nodes), wall: Some(wall) };
        let per = Nodes::PerCluster(BTreeMap::from([("a".into(), 1), ("xx".into(), 2)]));
        let third = Shape { nodes: per, wall: Some(Span::from_secs(10)) };
        assert_eq!(shapes.0, [count(2, Span::from_hours(1)), count(4, Span::from_mins(35)), third]);
        for text in ["", "2", "x1h", "2x", "2x1h,", "0x1h", "2x1q", "a:x1h"] {
            assert!(text.parse::<Shapes>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[-0-9a-c:+,x]{0,20}") {
            let _ = text.parse::<NodeCount>();
            let _ = text.parse::<Shapes>();
        }

        #[test]
        fn a_range_has_exactly_its_sizes(min in 1_u32..50, n_more in 0_u32..60, step in 1_u32..9) {
            let max = min + n_more;
            let mut expected: Vec<u32> = (min..=max).filter(|n| (n - min) % step == 0).collect();
            expected.reverse();
            prop_assert_eq!(counts(&format!("{min}-{max}:{step}"), 0), expected);
        }

        #[test]
        fn at_least_holds_both_ends_and_never_too_many(min in 1_u32..5000, largest in 0_u32..20_000) {
            let sizes = counts(&format!("{min}+"), largest);
            prop_assert_eq!(sizes.first(), Some(&largest.max(min)));
            prop_assert_eq!(sizes.last(), Some(&min));
            prop_assert!(sizes.len() as u64 <= MAX_SIZES);
            prop_assert!(sizes.windows(2).all(|two| two[0] > two[1]));
        }
    }
}
