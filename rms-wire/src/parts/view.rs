//! Converts notices to launchers into frames and back, and splits long views into parts.

use std::sync::Arc;

use rms_api::subscription::{ClusterChange, Notice, ViewChange};
use rms_model::{ClusterId, Profile, Span, Time};

use super::{MAX_LINES, Malformed};
use crate::launcher::{ClusterPart, LauncherTold, MAX_PAIRS, NodeSpan, Occupied, ViewPart};

/// Returns the frames of a notice, in order; at least one.
pub fn notice_parts(notice: &Notice) -> Vec<LauncherTold> {
    match notice {
        Notice::Changed(change) => view_parts(change).into_iter().map(LauncherTold::Changed).collect(),
        Notice::Started(grant) => vec![LauncherTold::Started(Box::new(grant.clone()))],
        Notice::Ended { outcome } => vec![LauncherTold::Ended { outcome: outcome.clone() }],
        Notice::Replaced => vec![LauncherTold::Replaced],
    }
}

/// Splits a change where its pairs or clusters would be too many for one frame.
fn view_parts(change: &ViewChange) -> Vec<ViewPart> {
    let at = change.at;
    let part = || ViewPart { version: change.version, at, clusters: Vec::new(), last: false };
    let mut parts = vec![part()];
    let mut n_pairs = 0;
    for cluster in &change.clusters {
        let mut rest = cluster.occupied.as_deref().map(|profile| compact(profile, at));
        loop {
            let room = MAX_PAIRS - n_pairs;
            let is_full = parts.last().is_some_and(|part| part.clusters.len() == MAX_LINES) || room == 0;
            if is_full {
                parts.push(part());
                n_pairs = 0;
                continue;
            }
            let occupied = rest.take().map(|mut whole| {
                rest = cut_off(&mut whole, room);
                whole
            });
            n_pairs += occupied.as_ref().map_or(0, |occupied| occupied.pairs.len());
            let clusters = parts.last_mut().map(|part| &mut part.clusters);
            clusters.expect("there is always a part").push(ClusterPart {
                cluster: cluster.cluster,
                shape: cluster.shape,
                info: cluster.info,
                capacity: cluster.capacity,
                occupied,
            });
            if rest.is_none() {
                break;
            }
        }
    }
    parts.last_mut().expect("there is always a part").last = true;
    parts
}

/// Splits off everything after the first `room` pairs.
fn cut_off(whole: &mut Occupied, room: usize) -> Option<Occupied> {
    if whole.pairs.len() <= room {
        return None;
    }
    let pairs = whole.pairs.split_off(room);
    let lasted: u64 = whole.pairs.iter().map(|pair| pair.millis).sum();
    // Both ends of a profile are within the range of times.
    Some(Occupied { after: whole.after.saturating_add_unsigned(lasted), pairs })
}

fn compact(profile: &Profile, at: Time) -> Occupied {
    let mut steps = profile.steps().peekable();
    let after = steps.peek().map_or(0, |first| first.from.as_millis().saturating_sub(at.as_millis()));
    let mut pairs = Vec::with_capacity(profile.n_steps().saturating_sub(1));
    while let (Some(step), Some(next)) = (steps.next(), steps.peek()) {
        pairs.push(NodeSpan { millis: next.from.since(step.from).as_millis().unsigned_abs(), nodes: step.nodes });
    }
    Occupied { after, pairs }
}

/// Joins the parts of a change of the view.
#[derive(Debug, Default)]
pub struct ViewParts {
    version: Option<u64>,
    at: Time,
    clusters: Vec<PartialCluster>,
    n_pairs: usize,
}

/// The change of a cluster, as far as its parts have arrived.
#[derive(Debug)]
struct PartialCluster {
    cluster: ClusterId,
    shape: u32,
    info: bool,
    capacity: u32,
    occupied: Option<(i64, Vec<NodeSpan>)>,
}

impl ViewParts {
    pub fn new() -> ViewParts {
        ViewParts::default()
    }

    /// Adds the next part; returns the whole change with the last one.
    ///
    /// # Errors
    /// A part belongs to another change, or a profile is invalid.
    pub fn push(&mut self, part: ViewPart) -> Result<Option<ViewChange>, Malformed> {
        match self.version {
            Some(first) if first != part.version => {
                return Err(Malformed::MixedGenerations { first, later: part.version });
            }
            Some(_) if part.clusters.is_empty() => return Err(Malformed::EmptyPart),
            Some(_) => {}
            None => {
                self.version = Some(part.version);
                self.at = part.at;
            }
        }
        for (idx, cluster) in part.clusters.into_iter().enumerate() {
            self.add_cluster(idx == 0, cluster)?;
        }
        if !part.last {
            return Ok(None);
        }
        let ViewParts { version: _, at, clusters, n_pairs: _ } = std::mem::take(self);
        let clusters = clusters.into_iter().map(|partial| partial.parse(at)).collect::<Result<Vec<_>, _>>()?;
        Ok(Some(ViewChange { version: part.version, at, clusters }))
    }

    fn add_cluster(&mut self, is_first: bool, part: ClusterPart) -> Result<(), Malformed> {
        self.n_pairs += part.occupied.as_ref().map_or(0, |occupied| occupied.pairs.len());
        if self.n_pairs > MAX_TOTAL_PAIRS {
            return Err(Malformed::TooMany { field: "a view", n: self.n_pairs, max: MAX_TOTAL_PAIRS });
        }
        let ClusterPart { cluster, shape, info, capacity, occupied } = part;
        let place = (cluster, shape);
        if let Some(last) = self.clusters.last_mut().filter(|last| is_first && last.place() == place) {
            let (Some((_, so_far)), Some(occupied)) = (&mut last.occupied, occupied) else {
                return Err(Malformed::ClusterTwice { field: "a view" });
            };
            so_far.extend(occupied.pairs);
            return Ok(());
        }
        if self.clusters.last().is_some_and(|last| last.place() >= place) {
            return Err(Malformed::ClusterTwice { field: "a view" });
        }
        let occupied = occupied.map(|occupied| (occupied.after, occupied.pairs));
        self.clusters.push(PartialCluster { cluster, shape, info, capacity, occupied });
        Ok(())
    }
}

impl PartialCluster {
    fn place(&self) -> (ClusterId, u32) {
        (self.cluster, self.shape)
    }

    fn parse(self, at: Time) -> Result<ClusterChange, Malformed> {
        let PartialCluster { cluster, shape, info, capacity, occupied } = self;
        let occupied = occupied.map(|(after, pairs)| profile(at, after, &pairs)).transpose()?.map(Arc::new);
        Ok(ClusterChange { cluster, shape, info, capacity, occupied })
    }
}

/// Converts compact pairs to a profile.
fn profile(at: Time, after: i64, pairs: &[NodeSpan]) -> Result<Profile, Malformed> {
    let fail = || Malformed::Profile { field: "the occupation of a cluster" };
    let ends_busy = pairs.first().zip(pairs.last()).is_none_or(|(first, last)| first.nodes != 0 && last.nodes != 0);
    let differ = pairs.windows(2).all(|two| two[0].nodes != two[1].nodes);
    if !ends_busy || !differ || (pairs.is_empty() && after != 0) {
        return Err(fail());
    }
    let begin = at.as_millis().checked_add(after).ok_or_else(fail)?;
    let mut end = begin;
    let mut spans = Vec::with_capacity(pairs.len());
    for NodeSpan { millis, nodes } in pairs {
        end = end.checked_add_unsigned(*millis).filter(|_| *millis > 0).ok_or_else(fail)?;
        let millis = i64::try_from(*millis).map_err(|_| fail())?;
        spans.push((Span::from_millis(millis), *nodes));
    }
    Ok(Profile::from_pairs(Time::from_millis(begin), spans))
}

/// More steps than the plan of a full system has.
const MAX_TOTAL_PAIRS: usize = 8_000_000;
