//! What launchers are told: written by the server, parsed by them; long views in parts.

use std::sync::Arc;

use rms_api::subscription as core;
use rms_api::subscription::Tag;
use rms_model::{ClusterId, JobId, Mebibytes, Profile, Run, Span, Time};

use super::vocabulary::features;
use super::{Malformed, all, opt_millis, opt_time, time};
use crate::launcher as wire;
use crate::launcher::{HostSpan, LauncherTold, MAX_PAIRS};
use crate::message::MAX_LINES;
use crate::refused::Refused;

/// The answer to the call `seq`.
pub fn launcher_answer(seq: u64, answer: &Result<core::LauncherAnswer, Refused>) -> LauncherTold {
    let answer = match answer {
        Err(refused) => wire::LauncherAnswer::Refused(refused.clone()),
        Ok(core::LauncherAnswer::Subscribed { job, request_until }) => {
            wire::LauncherAnswer::Subscribed { job: job.0, request_until: opt_millis(*request_until) }
        }
        Ok(core::LauncherAnswer::Clusters(infos)) => wire::LauncherAnswer::Clusters(infos.into()),
        Ok(core::LauncherAnswer::Done) => wire::LauncherAnswer::Done,
    };
    LauncherTold::Answer { seq, answer }
}

/// The frames of a notice, in order; never none.
pub fn notice_parts(notice: &core::Notice) -> Vec<LauncherTold> {
    match notice {
        core::Notice::Changed(change) => view_parts(change).into_iter().map(LauncherTold::Changed).collect(),
        core::Notice::Started(grant) => vec![LauncherTold::Started(Box::new(grant.into()))],
        core::Notice::Ended { outcome } => vec![LauncherTold::Ended { outcome: outcome.into() }],
        core::Notice::Replaced => vec![LauncherTold::Replaced],
    }
}

/// Cuts a change where its pairs or clusters would be too many for one frame.
fn view_parts(change: &core::ViewChange) -> Vec<wire::ViewPart> {
    let at = change.at.as_millis();
    let part = || wire::ViewPart { version: change.version, at, clusters: Vec::new(), last: false };
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
            clusters.expect("there is always a part").push(wire::ClusterPart {
                cluster: cluster.cluster.0,
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

/// What is beyond the first `room` pairs.
fn cut_off(whole: &mut wire::Occupied, room: usize) -> Option<wire::Occupied> {
    if whole.pairs.len() <= room {
        return None;
    }
    let pairs = whole.pairs.split_off(room);
    let lasted: u64 = whole.pairs.iter().map(|pair| pair.millis).sum();
    // Both ends of a profile are within what times can be.
    Some(wire::Occupied { after: whole.after.saturating_add_unsigned(lasted), pairs })
}

fn compact(profile: &Profile, at: i64) -> wire::Occupied {
    let mut steps = profile.steps().peekable();
    let after = steps.peek().map_or(0, |first| first.from.as_millis().saturating_sub(at));
    let mut pairs = Vec::with_capacity(profile.n_steps().saturating_sub(1));
    while let (Some(step), Some(next)) = (steps.next(), steps.peek()) {
        pairs.push(HostSpan { millis: next.from.since(step.from).as_millis().unsigned_abs(), hosts: step.hosts });
    }
    wire::Occupied { after, pairs }
}

/// Puts the parts of a change of the view together.
#[derive(Debug, Default)]
pub struct ViewParts {
    version: Option<u64>,
    at: Time,
    clusters: Vec<Gathering>,
    n_pairs: usize,
}

/// A cluster's change as far as it has come.
#[derive(Debug)]
struct Gathering {
    cluster: ClusterId,
    info: bool,
    capacity: u32,
    occupied: Option<(i64, Vec<HostSpan>)>,
}

impl ViewParts {
    pub fn new() -> ViewParts {
        ViewParts::default()
    }

    /// Takes the next part; returns the whole with the last one.
    ///
    /// # Errors
    /// A part that is of another change, or a profile that is none.
    pub fn push(&mut self, part: wire::ViewPart) -> Result<Option<core::ViewChange>, Malformed> {
        match self.version {
            Some(first) if first != part.version => {
                return Err(Malformed::MixedGenerations { first, later: part.version });
            }
            Some(_) if part.clusters.is_empty() => return Err(Malformed::EmptyPart),
            Some(_) => {}
            None => {
                self.version = Some(part.version);
                self.at = time(part.at);
            }
        }
        for (idx, cluster) in part.clusters.into_iter().enumerate() {
            self.gather(idx == 0, cluster)?;
        }
        if !part.last {
            return Ok(None);
        }
        let ViewParts { version: _, at, clusters, n_pairs: _ } = std::mem::take(self);
        let clusters = clusters.into_iter().map(|gathering| gathering.parse(at)).collect::<Result<Vec<_>, _>>()?;
        Ok(Some(core::ViewChange { version: part.version, at, clusters }))
    }

    fn gather(&mut self, is_first: bool, part: wire::ClusterPart) -> Result<(), Malformed> {
        self.n_pairs += part.occupied.as_ref().map_or(0, |occupied| occupied.pairs.len());
        if self.n_pairs > MAX_TOTAL_PAIRS {
            return Err(Malformed::TooMany { field: "a view", n: self.n_pairs, max: MAX_TOTAL_PAIRS });
        }
        let wire::ClusterPart { cluster, info, capacity, occupied } = part;
        let cluster = ClusterId(cluster);
        if let Some(last) = self.clusters.last_mut().filter(|last| is_first && last.cluster == cluster) {
            let (Some((_, so_far)), Some(occupied)) = (&mut last.occupied, occupied) else {
                return Err(Malformed::ClusterTwice { field: "a view" });
            };
            so_far.extend(occupied.pairs);
            return Ok(());
        }
        if self.clusters.last().is_some_and(|last| last.cluster >= cluster) {
            return Err(Malformed::ClusterTwice { field: "a view" });
        }
        let occupied = occupied.map(|occupied| (occupied.after, occupied.pairs));
        self.clusters.push(Gathering { cluster, info, capacity, occupied });
        Ok(())
    }
}

impl Gathering {
    fn parse(self, at: Time) -> Result<core::ClusterChange, Malformed> {
        let Gathering { cluster, info, capacity, occupied } = self;
        let occupied = occupied.map(|(after, pairs)| profile(at, after, &pairs)).transpose()?.map(Arc::new);
        Ok(core::ClusterChange { cluster, info, capacity, occupied })
    }
}

/// The profile that compact pairs stand for.
fn profile(at: Time, after: i64, pairs: &[HostSpan]) -> Result<Profile, Malformed> {
    let fail = || Malformed::Profile { field: "the occupation of a cluster" };
    let ends_busy = pairs.first().zip(pairs.last()).is_none_or(|(first, last)| first.hosts != 0 && last.hosts != 0);
    let differ = pairs.windows(2).all(|two| two[0].hosts != two[1].hosts);
    if !ends_busy || !differ || (pairs.is_empty() && after != 0) {
        return Err(fail());
    }
    let begin = at.as_millis().checked_add(after).ok_or_else(fail)?;
    let mut end = begin;
    let mut spans = Vec::with_capacity(pairs.len());
    for HostSpan { millis, hosts } in pairs {
        end = end.checked_add_unsigned(*millis).filter(|_| *millis > 0).ok_or_else(fail)?;
        let millis = i64::try_from(*millis).map_err(|_| fail())?;
        spans.push((Span::from_millis(millis), *hosts));
    }
    Ok(Profile::from_pairs(time(begin), spans))
}

/// More steps than the plan of a full system has.
const MAX_TOTAL_PAIRS: usize = 8_000_000;

/// Parses an answer; a refusal is the inner error.
///
/// # Errors
/// An answer that cannot be.
pub fn parse_launcher_answer(answer: wire::LauncherAnswer) -> Result<Result<core::LauncherAnswer, Refused>, Malformed> {
    Ok(Ok(match answer {
        wire::LauncherAnswer::Refused(refused) => return Ok(Err(refused)),
        wire::LauncherAnswer::Subscribed { job, request_until } => {
            core::LauncherAnswer::Subscribed { job: JobId(job), request_until: opt_time(request_until) }
        }
        wire::LauncherAnswer::Clusters(infos) => core::LauncherAnswer::Clusters(infos.try_into()?),
        wire::LauncherAnswer::Done => core::LauncherAnswer::Done,
    }))
}

impl From<&core::ClusterInfos> for wire::ClusterInfos {
    fn from(infos: &core::ClusterInfos) -> wire::ClusterInfos {
        let clusters = infos.clusters.iter().map(wire::ClusterInfo::from).collect();
        wire::ClusterInfos { clusters, links: infos.links.iter().map(wire::ClusterLink::from).collect() }
    }
}

impl TryFrom<wire::ClusterInfos> for core::ClusterInfos {
    type Error = Malformed;

    fn try_from(infos: wire::ClusterInfos) -> Result<core::ClusterInfos, Malformed> {
        let clusters = all(infos.clusters, core::ClusterInfo::try_from)?;
        Ok(core::ClusterInfos { clusters, links: all(infos.links, core::ClusterLink::try_from)? })
    }
}

impl From<&core::ClusterInfo> for wire::ClusterInfo {
    fn from(info: &core::ClusterInfo) -> wire::ClusterInfo {
        wire::ClusterInfo {
            cluster: info.cluster.0,
            name: info.name.clone(),
            hosts: info.hosts,
            cpus: info.cpus,
            memory_mib: info.memory.0,
            features: info.features.iter().cloned().collect(),
        }
    }
}

impl TryFrom<wire::ClusterInfo> for core::ClusterInfo {
    type Error = Malformed;

    fn try_from(info: wire::ClusterInfo) -> Result<core::ClusterInfo, Malformed> {
        let wire::ClusterInfo { cluster, name, hosts, cpus, memory_mib, features: names } = info;
        Ok(core::ClusterInfo {
            cluster: ClusterId(cluster),
            name,
            hosts,
            cpus,
            memory: Mebibytes(memory_mib),
            features: features(names)?,
        })
    }
}

impl From<&core::ClusterLink> for wire::ClusterLink {
    fn from(link: &core::ClusterLink) -> wire::ClusterLink {
        let (one, other) = link.between;
        let core::ClusterLink { between: _, latency_us, bandwidth_mbit } = *link;
        wire::ClusterLink { one: one.0, other: other.0, latency_us, bandwidth_mbit }
    }
}

impl TryFrom<wire::ClusterLink> for core::ClusterLink {
    type Error = Malformed;

    fn try_from(link: wire::ClusterLink) -> Result<core::ClusterLink, Malformed> {
        let wire::ClusterLink { one, other, latency_us, bandwidth_mbit } = link;
        if one == other {
            return Err(Malformed::ClusterTwice { field: "a link between clusters" });
        }
        let between = (ClusterId(one.min(other)), ClusterId(one.max(other)));
        Ok(core::ClusterLink { between, latency_us, bandwidth_mbit })
    }
}

impl From<&core::Grant> for wire::Grant {
    fn from(grant: &core::Grant) -> wire::Grant {
        let host = |host: &core::GrantedHost| wire::GrantedHost {
            name: host.name.clone(),
            cluster: host.cluster.0,
            address: host.address.clone(),
            cpus: host.cpus,
        };
        wire::Grant {
            tag: grant.tag.0,
            run: grant.run.0,
            at: grant.at.as_millis(),
            request: (&grant.request).into(),
            until: grant.until.as_millis(),
            answer_until: grant.answer_until.as_millis(),
            hosts: grant.hosts.iter().map(host).collect(),
        }
    }
}

impl TryFrom<wire::Grant> for core::Grant {
    type Error = Malformed;

    fn try_from(grant: wire::Grant) -> Result<core::Grant, Malformed> {
        let host = |host: wire::GrantedHost| core::GrantedHost {
            name: host.name,
            cluster: ClusterId(host.cluster),
            address: host.address,
            cpus: host.cpus,
        };
        Ok(core::Grant {
            tag: Tag(grant.tag),
            run: Run(grant.run),
            at: time(grant.at),
            request: grant.request.try_into()?,
            until: time(grant.until),
            answer_until: time(grant.answer_until),
            hosts: grant.hosts.into_iter().map(host).collect(),
        })
    }
}
