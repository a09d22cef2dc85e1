//! Computes what each external launcher sees after a pass, and which clusters changed for it (001, Fig. 5, step 5).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use rms_api::subscription::{ClusterChange, Filter, ViewChange};
use rms_model::{ClusterId, Inventory, JobId, Mebibytes, Profile, Slice, Span, Time};

use super::digest::Digest;
use super::ledger::{Ledger, Subset};
use super::pass::{Moment, Pass};
use super::watched::Class;
use super::{Placed, Plan, Scope, policy};
use crate::state::State;
use crate::state::fact::Fact;
use crate::state::job::Job;

/// What was sent to the launchers of applications that have not started. It is not part of the state: a launcher that
/// reconnects is sent everything again.
#[derive(Debug, Default)]
pub struct Streams {
    streams: BTreeMap<JobId, Stream>,
    n_open: usize,
    /// The classes that connected launchers watch, and the number of launchers for each.
    classes: BTreeMap<Class, u32>,
    /// How often the information on each cluster has changed while this server ran.
    infos: BTreeMap<ClusterId, u64>,
    n_infos: u64,
    /// Counts passes, to know which launchers the present one has served.
    n_looks: u64,
    latest: Option<Latest>,
    sent: Sent,
}

/// The amount sent, counted as in 001, B.1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    pub notices: u64,
    pub bytes: u64,
}

/// What was sent to one launcher.
#[derive(Debug)]
struct Stream {
    filter: Filter,
    is_open: bool,
    version: u64,
    /// The state last sent, by cluster and shape.
    told: BTreeMap<(ClusterId, u32), Told>,
    /// When its newest versions were sent, to know how long it takes to answer them.
    versions: VecDeque<(u64, Time)>,
    /// The clusters that its filter shows, valid for this number of information changes.
    shown: Vec<ClusterId>,
    shown_at: Option<u64>,
    looked_at: u64,
}

#[derive(Clone, Debug)]
struct Told {
    info: u64,
    /// The capacity as shown, without nodes that it may not choose from.
    capacity: u32,
    hidden: u32,
    cop: Seen,
    occupied: Arc<Profile>,
}

/// A profile that a launcher saw, and what is left of it.
#[derive(Clone, Debug)]
struct Seen {
    occupied: Arc<Profile>,
    /// The digest of what is after `as_of`.
    digest: Digest,
    as_of: Time,
    /// The time of its next step.
    next: Option<Time>,
}

/// A cluster as seen by all launchers with the same view.
#[derive(Clone, Debug)]
struct Snapshot {
    /// An application may choose from all nodes but `hidden`.
    capacity: u32,
    hidden: u32,
    cop: Seen,
    /// The occupation as shown: it leaves the free nodes free, but never shows more than may be chosen from.
    occupied: Arc<Profile>,
    /// The cost of sending it (001, B.1).
    bytes: u64,
}

/// Nodes that an application may use, which are all or those that meet a constraint, and what it wants of each.
type Kind = (Option<Subset>, Slice);

/// Lists what a filter shows, by shape: whole nodes, and its slices.
fn classes(filter: &Filter) -> impl Iterator<Item = Class> + '_ {
    let whole = Slice::default();
    std::iter::once(whole).chain(filter.slices.iter().cloned()).map(|slice| (filter.constraint.clone(), slice))
}

/// Results of the latest pass for launchers that connect later.
#[derive(Debug)]
struct Latest {
    classes: BTreeMap<Class, Kind>,
    shown: BTreeMap<(Kind, ClusterId), Snapshot>,
}

impl Streams {
    /// Opens the stream of a launcher; its first message contains all that it may see.
    pub fn open(&mut self, job: JobId, filter: &Filter) {
        let version = self.streams.get(&job).map_or(0, |before| before.version);
        self.close(job);
        let stream = Stream {
            filter: filter.clone(),
            is_open: true,
            version,
            told: BTreeMap::new(),
            versions: VecDeque::new(),
            shown: Vec::new(),
            shown_at: None,
            looked_at: 0,
        };
        for class in classes(&stream.filter) {
            *self.classes.entry(class).or_default() += 1;
        }
        self.streams.insert(job, stream);
        self.n_open += 1;
    }

    /// Closes the stream of a launcher whose connection is gone. Its version numbers continue if it reconnects.
    pub fn close(&mut self, job: JobId) {
        if let Some(stream) = self.streams.get_mut(&job)
            && stream.is_open
        {
            stream.is_open = false;
            stream.told.clear();
            self.n_open -= 1;
            for class in classes(&stream.filter) {
                if let Some(n_alike) = self.classes.get_mut(&class) {
                    *n_alike -= 1;
                    if *n_alike == 0 {
                        self.classes.remove(&class);
                    }
                }
            }
        }
    }

    /// Forgets an application that has started or left: it is sent nothing any more.
    pub fn forget(&mut self, job: JobId) {
        self.close(job);
        self.streams.remove(&job);
    }

    /// Returns whether any launcher is connected.
    pub fn is_watched(&self) -> bool {
        self.n_open > 0
    }

    /// Returns whether everything that this filter shows is watched.
    pub(crate) fn watches(&self, filter: &Filter) -> bool {
        classes(filter).all(|class| self.classes.contains_key(&class))
    }

    pub fn n_open(&self) -> usize {
        self.n_open
    }

    pub fn sent(&self) -> Sent {
        self.sent
    }

    /// Assumes that a launcher was sent this at that time.
    pub fn assume(&mut self, job: JobId, view: &rms_model::View, capacities: &BTreeMap<ClusterId, u32>, at: Time) {
        let Some(stream) = self.streams.get_mut(&job) else { return };
        for (cluster, capacity) in capacities {
            let profile = view.get(cluster).cloned().unwrap_or_default().cut_before(at);
            let info = self.infos.get(cluster).copied().unwrap_or(0);
            let cop = Seen::of(profile, at);
            let occupied = Arc::clone(&cop.occupied);
            stream.told.insert((*cluster, 0), Told { info, capacity: *capacity, hidden: 0, cop, occupied });
        }
    }

    /// Notes a fact that is about to be applied; some facts change the information on clusters.
    pub(crate) fn note(&mut self, state: &State, fact: &Fact) {
        if let Fact::ClusterAdded { cluster, .. } | Fact::NodeJoined { cluster, .. } = fact {
            self.info_changed(*cluster);
        }
        if let Fact::NodeDescribed { node, inventory, .. } = fact
            && let Some(entry) = state.nodes().get(node)
            && entry.inventory != *inventory
        {
            self.info_changed(entry.cluster);
        }
        if let Fact::NodeRemoved { node } = fact
            && let Some(entry) = state.nodes().get(node)
        {
            self.info_changed(entry.cluster);
        }
        if let Fact::SettingChanged { change } = fact
            && let Some(subject) = ["allocation", "view_share"].iter().find_map(|key| change.subject.strip_prefix(key))
        {
            let is_meant = |name: &String| subject.strip_prefix('@').is_none_or(|subject| subject == name);
            let clusters = state.clusters().iter().filter(|(_, name)| is_meant(name));
            clusters.for_each(|(cluster, _)| self.info_changed(*cluster));
        }
        if let Fact::ClusterLinkSet { link, .. } = fact {
            self.info_changed(link.between.0);
            self.info_changed(link.between.1);
        }
    }

    fn info_changed(&mut self, cluster: ClusterId) {
        *self.infos.entry(cluster).or_default() += 1;
        self.n_infos += 1;
    }

    /// Returns how long the launcher took to answer a version of its view; `None` if that version is too old or was
    /// answered.
    pub(crate) fn answered(&mut self, job: JobId, version: u64, now: Time) -> Option<Span> {
        let stream = self.streams.get_mut(&job)?;
        let (_, sent) = stream.versions.iter().find(|(sent, _)| *sent == version).copied()?;
        stream.versions.retain(|(sent, _)| *sent > version);
        Some(now.since(sent))
    }

    /// Records a pass that no launcher observed: what it left is unknown.
    pub(crate) fn unseen_pass(&mut self) {
        self.latest = None;
    }

    /// Runs the pass, and returns what each launcher is to be sent after it.
    pub fn pass(&mut self, state: &State, now: Time) -> (Plan, Vec<(JobId, ViewChange)>) {
        let (plan, changes) = self.run(state, now, true);
        let starts = |placement: &&super::Placement| {
            let is_told = state.jobs()[&placement.job].launcher_away_since().is_none();
            matches!(placement.outcome, Placed::Now { .. }) && is_told
        };
        for placement in plan.placements.iter().filter(starts) {
            // R6: started applications are told of the start and of nothing else.
            self.forget(placement.job);
        }
        let mut notices = Vec::with_capacity(changes.len());
        for (job, clusters, bytes) in changes {
            let Some(stream) = self.streams.get_mut(&job) else { continue };
            notices.push((job, stream.change(clusters, now)));
            self.sent.notices += 1;
            self.sent.bytes += bytes;
        }
        (plan, notices)
    }

    /// Returns what a launcher is sent at once when it subscribes, before it has a place in the queue (001, §5.3.1: the
    /// last view).
    pub fn first(&mut self, state: &State, now: Time, job: JobId) -> Option<ViewChange> {
        let filter = &self.streams.get(&job)?.filter;
        let is_known = |latest: &Latest| classes(filter).all(|class| latest.classes.contains_key(&class));
        if !self.latest.as_ref().is_some_and(is_known) {
            // This is what the next pass would leave, also if the latest pass had no launcher to serve.
            self.run(state, now, false);
        }
        let (stream, latest) = (self.streams.get_mut(&job)?, self.latest.as_mut()?);
        let mut clusters = Vec::new();
        let mut bytes = 0;
        for cluster in shown(state, &stream.filter) {
            let info = self.infos.get(&cluster).copied().unwrap_or(0);
            for (class, shape) in classes(&stream.filter).zip(0..) {
                let kind = latest.classes.get(&class)?.clone();
                let Some(snapshot) = latest.shown.get_mut(&(kind, cluster)) else { continue };
                snapshot.cut(now);
                let told = snapshot.told(info);
                let occupied = Some(Arc::clone(&told.occupied));
                clusters.push(ClusterChange { cluster, shape, info: shape == 0, capacity: told.capacity, occupied });
                stream.told.insert((cluster, shape), told);
                bytes += snapshot.bytes;
            }
        }
        self.sent.notices += 1;
        self.sent.bytes += bytes;
        Some(stream.change(clusters, now))
    }

    fn run(&mut self, state: &State, now: Time, tells: bool) -> (Plan, Vec<News>) {
        self.n_looks += 1;
        let mut looker = Looker {
            state,
            now,
            number: self.n_looks,
            streams: &mut self.streams,
            classes: &self.classes,
            infos: &self.infos,
            n_infos: self.n_infos,
            snapshots: BTreeMap::new(),
            news: Vec::new(),
        };
        let mut latest = None;
        let mut look = |pass: &mut Pass<'_>, moment: Moment| match moment {
            Moment::Begins => looker.begin(pass),
            Moment::Before(job) if tells => looker.look(pass, job),
            Moment::Before(_) => {}
            Moment::Ends => {
                if tells {
                    looker.look_for_others(pass);
                }
                latest = Some(looker.latest(pass));
            }
        };
        let plan = policy::run(state, now, Scope::Estimates, Some(&mut look), None);
        let news = looker.news;
        self.latest = latest;
        (plan, news)
    }
}

/// For one application: the clusters that have changed, and the cost of sending them.
type News = (JobId, Vec<ClusterChange>, u64);

/// Observes a pass for all connected launchers.
struct Looker<'s> {
    state: &'s State,
    now: Time,
    number: u64,
    streams: &'s mut BTreeMap<JobId, Stream>,
    classes: &'s BTreeMap<Class, u32>,
    infos: &'s BTreeMap<ClusterId, u64>,
    n_infos: u64,
    /// The newest snapshot of each cluster; consecutive launchers mostly see the same.
    snapshots: BTreeMap<(Kind, ClusterId), Snapshot>,
    news: Vec<News>,
}

impl Looker<'_> {
    /// Opens all ledgers, because placements must be counted in each of them.
    fn begin(&mut self, pass: &mut Pass<'_>) {
        for class in self.classes.keys() {
            pass.watch(class);
        }
    }

    fn look(&mut self, pass: &Pass<'_>, job: JobId) {
        let Some(stream) = self.streams.get_mut(&job).filter(|stream| stream.is_open) else { return };
        stream.looked_at = self.number;
        if stream.shown_at != Some(self.n_infos) {
            stream.shown = shown(self.state, &stream.filter);
            stream.shown_at = Some(self.n_infos);
        }
        let seen: Vec<(&Ledger<'_>, Kind)> = classes(&stream.filter).map(|class| pass.seen_as(&class)).collect();
        let mut clusters = Vec::new();
        let mut bytes = 0;
        for cluster in &stream.shown {
            let info = self.infos.get(cluster).copied().unwrap_or(0);
            for ((ledger, kind), shape) in seen.iter().zip(0..) {
                let usable = ledger.capacity_of(*cluster);
                let capacity = choosable(self.state, *cluster, usable);
                let hidden = usable - capacity;
                let told = stream.told.get_mut(&(*cluster, shape));
                let is_known = told.is_some();
                let (mut is_same, mut is_info_same) = (false, false);
                if let Some(told) = told {
                    told.cop.pass_time(self.now);
                    is_same = told.cop.digest == ledger.digest(*cluster) && told.hidden == hidden;
                    is_info_same = told.info == info;
                    if !is_same && told.hidden.max(hidden) > 0 {
                        // The change may concern only hidden nodes.
                        let snapshot = snapshot(&mut self.snapshots, (self.state, ledger), kind, *cluster, self.now);
                        is_same = told.occupied.cut_before(self.now) == *snapshot.occupied;
                        if is_same {
                            *told = Told { capacity: told.capacity, ..snapshot.told(told.info) };
                        }
                    }
                    let is_size_same = told.capacity == capacity;
                    (told.info, told.capacity) = (info, capacity);
                    if is_same && is_size_same && (is_info_same || shape > 0) {
                        continue;
                    }
                }
                // A change without a profile and without capacity would be read as the removal of the cluster.
                let tells_occupied = !is_same || capacity == 0;
                let mut occupied = None;
                bytes += 1;
                if tells_occupied {
                    let snapshot = snapshot(&mut self.snapshots, (self.state, ledger), kind, *cluster, self.now);
                    bytes += snapshot.bytes - 1;
                    occupied = Some(Arc::clone(&snapshot.occupied));
                    stream.told.insert((*cluster, shape), snapshot.told(info));
                }
                let info = shape == 0 && (!is_known || !is_info_same);
                clusters.push(ClusterChange { cluster: *cluster, shape, info, capacity, occupied });
            }
        }
        if stream.told.len() > stream.shown.len() * seen.len() {
            let is_gone = |cluster: &ClusterId| stream.shown.binary_search(cluster).is_err();
            let mut gone: Vec<ClusterId> = stream.told.keys().map(|(cluster, _)| *cluster).filter(is_gone).collect();
            gone.dedup();
            stream.told.retain(|(cluster, _), _| gone.binary_search(cluster).is_err());
            for cluster in gone {
                clusters.push(ClusterChange { cluster, shape: 0, info: true, capacity: 0, occupied: None });
                bytes += 1;
            }
        }
        // A new subscriber is sent even an empty view.
        let is_first = stream.versions.is_empty() && stream.told.is_empty();
        if !clusters.is_empty() || is_first {
            self.news.push((job, clusters, bytes));
        }
    }

    /// Shows what is left to launchers that have sent no request yet, and to jobs beyond the considered ones.
    fn look_for_others(&mut self, pass: &Pass<'_>) {
        let is_left = |(job, stream): &(&JobId, &Stream)| {
            let waits = self.state.jobs().get(job).is_some_and(Job::is_before_its_start);
            stream.is_open && stream.looked_at != self.number && waits
        };
        let others: Vec<JobId> = self.streams.iter().filter(is_left).map(|(job, _)| *job).collect();
        for job in others {
            self.look(pass, job);
        }
    }

    fn latest(&mut self, pass: &mut Pass<'_>) -> Latest {
        let mut classes = BTreeMap::new();
        let mut shown = BTreeMap::new();
        // Most new launchers use the default class.
        let everybody = Class::default();
        pass.watch(&everybody);
        for class in std::iter::once(&everybody).chain(self.classes.keys()) {
            if classes.contains_key(class) {
                continue;
            }
            let (ledger, kind) = pass.seen_as(class);
            for cluster in self.state.clusters().keys() {
                let snapshot = snapshot(&mut self.snapshots, (self.state, ledger), &kind, *cluster, self.now);
                shown.insert((kind.clone(), *cluster), snapshot.clone());
            }
            classes.insert(class.clone(), kind);
        }
        Latest { classes, shown }
    }
}

/// Returns the present state of the cluster, computed once for all launchers that see the same.
fn snapshot<'m>(
    snapshots: &'m mut BTreeMap<(Kind, ClusterId), Snapshot>,
    (state, ledger): (&State, &Ledger<'_>),
    kind: &Kind,
    cluster: ClusterId,
    now: Time,
) -> &'m Snapshot {
    let digest = ledger.digest(cluster);
    let make = || {
        let occupied = ledger.view.get(&cluster).map(|profile| profile.cut_before(now)).unwrap_or_default();
        let capacity = ledger.capacity_of(cluster);
        let hidden = capacity - choosable(state, cluster, capacity);
        Snapshot::of(capacity, hidden, Seen::with_digest(occupied, digest, now))
    };
    let snapshot = snapshots.entry((kind.clone(), cluster)).or_insert_with(make);
    if snapshot.cop.digest != digest {
        *snapshot = make();
    }
    snapshot
}

impl Snapshot {
    fn of(capacity: u32, hidden: u32, cop: Seen) -> Snapshot {
        let occupied = match hidden {
            0 => Arc::clone(&cop.occupied),
            hidden => Arc::new(Profile::new().or_beyond(&cop.occupied, i64::from(hidden))),
        };
        let begins_now = occupied.steps().next().is_some_and(|step| step.from == cop.as_of);
        // A gap before the first step counts as one, and the end of the last one does not.
        let n_pairs = occupied.n_steps() - usize::from(begins_now);
        Snapshot { capacity, hidden, cop, occupied, bytes: 1 + 8 * n_pairs as u64 }
    }

    /// Returns what the launcher was sent.
    fn told(&self, info: u64) -> Told {
        let Snapshot { capacity, hidden, cop, occupied, bytes: _ } = self;
        Told { info, capacity: capacity - hidden, hidden: *hidden, cop: cop.clone(), occupied: Arc::clone(occupied) }
    }

    /// Removes what has passed.
    fn cut(&mut self, now: Time) {
        if self.cop.as_of < now {
            *self = Snapshot::of(self.capacity, self.hidden, Seen::of(self.cop.occupied.cut_before(now), now));
        }
    }
}

impl Seen {
    fn of(occupied: Profile, now: Time) -> Seen {
        let digest = Digest::of(&occupied, now);
        Seen::with_digest(occupied, digest, now)
    }

    fn with_digest(occupied: Profile, digest: Digest, now: Time) -> Seen {
        debug_assert_eq!(digest, Digest::of(&occupied, now), "a digest is kept up with each block");
        let next = occupied.change_points(now).nth(1);
        Seen { occupied: Arc::new(occupied), digest, as_of: now, next }
    }

    fn pass_time(&mut self, now: Time) {
        if self.next.is_some_and(|next| next <= now) {
            self.digest.pass_time(&self.occupied, self.as_of, now);
            self.next = self.occupied.change_points(now).nth(1);
            self.as_of = now;
        }
    }
}

impl Stream {
    fn change(&mut self, clusters: Vec<ClusterChange>, now: Time) -> ViewChange {
        self.version += 1;
        if self.versions.len() == VERSIONS_KEPT {
            self.versions.pop_front();
        }
        self.versions.push_back((self.version, now));
        ViewChange { version: self.version, at: now, clusters }
    }
}

/// Returns the clusters that a filter lets through: those with enough nodes that meet it.
pub(crate) fn shown(state: &State, filter: &Filter) -> Vec<ClusterId> {
    let is_named = |name: &String| filter.clusters.is_empty() || filter.clusters.contains(name);
    let has_enough = |cluster: ClusterId| {
        let has_nodes = n_choosable(state, filter, cluster) >= filter.least_nodes.max(1);
        has_nodes && total_memory(state, filter, cluster) >= filter.total_memory
    };
    let clusters = state.clusters().iter();
    clusters.filter(|(cluster, name)| is_named(name) && has_enough(**cluster)).map(|(cluster, _)| *cluster).collect()
}

/// Returns the memory of all nodes of a cluster that meet the filter.
pub(crate) fn total_memory(state: &State, filter: &Filter, cluster: ClusterId) -> Mebibytes {
    let of_alike = |(kind, n_alike): (&Inventory, u32)| kind.memory.0.saturating_mul(n_alike.into());
    Mebibytes(kinds_meeting(state, filter, cluster).map(of_alike).fold(0, u64::saturating_add))
}

/// Returns how many of `n_nodes` nodes of a cluster an application with an external launcher may choose from (001, §8).
pub(crate) fn choosable(state: &State, cluster: ClusterId, n_nodes: u32) -> u32 {
    state.clusters().get(&cluster).map_or(n_nodes, |name| state.settings().choosable_in(name, n_nodes))
}

/// Returns how many of the nodes that meet the filter the application may choose from.
pub(crate) fn n_choosable(state: &State, filter: &Filter, cluster: ClusterId) -> u32 {
    choosable(state, cluster, n_meeting(state, filter, cluster))
}

/// Returns how many nodes of a cluster meet the filter, whether or not they are up today.
pub(crate) fn n_meeting(state: &State, filter: &Filter, cluster: ClusterId) -> u32 {
    kinds_meeting(state, filter, cluster).map(|(_, n_alike)| n_alike).sum()
}

/// Lists the kinds of these nodes, with the number of each.
pub(crate) fn kinds_meeting<'a>(
    state: &'a State,
    filter: &'a Filter,
    cluster: ClusterId,
) -> impl Iterator<Item = (&'a Inventory, u32)> {
    let kinds = state.kinds_allowed(cluster, &filter.constraint).into_iter();
    kinds.filter(|(inventory, _)| filter.constraint.is_met_by(inventory))
}

/// A launcher that answers an older version has missed so many changes that its delay says little.
const VERSIONS_KEPT: usize = 16;
