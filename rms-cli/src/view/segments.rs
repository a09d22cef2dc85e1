//! Divides the layers of a cluster's occupation into segments of time in which nothing changes.

use rms_api::answer::ClusterView;
use rms_model::{Profile, Span, Time};

/// What the layers count: the nodes of a cluster, or its cores where jobs share nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Nodes,
    Cores,
}

impl Unit {
    /// Returns the unit in which a cluster is drawn.
    pub fn of(view: &ClusterView) -> Unit {
        if view.cores.is_some() { Unit::Cores } else { Unit::Nodes }
    }

    pub fn word(self) -> &'static str {
        match self {
            Unit::Nodes => "nodes",
            Unit::Cores => "cores",
        }
    }

    /// Returns how much of it there is.
    pub fn capacity(self, view: &ClusterView) -> u32 {
        match self {
            Unit::Nodes => view.capacity,
            Unit::Cores => view.cores.as_ref().map_or(0, |cores| cores.capacity),
        }
    }
}

/// Nodes or cores by layer during `[from, until)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub from: Time,
    pub until: Time,
    pub started: i64,
    /// Held for negotiations with running jobs.
    pub offered: i64,
    pub ghosts: i64,
    pub planned: i64,
}

impl Segment {
    /// Returns the cluster occupation profile here: the sum of the layers.
    pub fn total(&self) -> i64 {
        self.started + self.offered + self.ghosts + self.planned
    }
}

/// The window of time that is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub from: Time,
    pub until: Time,
}

impl Window {
    /// Returns the window from now to the end of the last known job, or of the length `wanted`.
    pub fn of(now: Time, clusters: &[ClusterView], wanted: Option<Span>) -> Window {
        if let Some(span) = wanted {
            return Window { from: now, until: now + span.max(Span::from_secs(1)) };
        }
        let profiles = clusters.iter().flat_map(|view| [&view.started, &view.offered, &view.ghosts, &view.planned]);
        let last = profiles.filter_map(|profile| profile.steps().last()).map(|step| step.from).max();
        let until = last.filter(|last| *last > now).unwrap_or(now + IDLE_WINDOW);
        // A job without an end would leave no room for the others.
        Window { from: now, until: until.min(now + Span::MAX_WALL) }
    }

    pub fn span(&self) -> Span {
        self.until.since(self.from)
    }
}

/// The window for an idle cluster.
const IDLE_WINDOW: Span = Span::from_hours(1);

/// Returns the segments of `view` that fill the window without a gap. Cores have no layers of offers and ghosts: these
/// count as started.
pub fn cut(view: &ClusterView, unit: Unit, window: Window) -> Vec<Segment> {
    let none = Profile::new();
    let layers = match (unit, &view.cores) {
        (Unit::Cores, Some(cores)) => [&cores.taken, &none, &none, &cores.planned],
        (Unit::Cores, None) | (Unit::Nodes, _) => [&view.started, &view.offered, &view.ghosts, &view.planned],
    };
    let [started, offered, ghosts, planned] = layers;
    let steps = layers.into_iter().flat_map(|profile| profile.steps()).map(|step| step.from);
    let mut cuts: Vec<Time> = steps.filter(|at| *at > window.from && *at < window.until).collect();
    cuts.extend([window.from, window.until]);
    cuts.sort_unstable();
    cuts.dedup();
    let segment = |two: &[Time]| Segment {
        from: two[0],
        until: two[1],
        started: started.at(two[0]),
        offered: offered.at(two[0]),
        ghosts: ghosts.at(two[0]),
        planned: planned.at(two[0]),
    };
    cuts.windows(2).map(segment).collect()
}

#[cfg(test)]
pub mod tests {
    use proptest::prelude::*;
    use rms_model::ClusterId;
    use rms_model::profile::Block;

    use super::*;

    pub fn profile(blocks: &[(i64, i64, i64)]) -> Profile {
        let block = |(from, span, nodes): &(i64, i64, i64)| Block {
            from: Time::from_secs(*from),
            until: Time::from_secs(from + span),
            nodes: *nodes,
        };
        Profile::from_blocks(blocks.iter().map(block))
    }

    /// Returns a cluster with these blocks, as (from, span, nodes) in seconds.
    pub fn cluster(
        started: &[(i64, i64, i64)],
        ghosts: &[(i64, i64, i64)],
        planned: &[(i64, i64, i64)],
    ) -> ClusterView {
        let profiles = [started, ghosts, planned].map(profile);
        let [started, ghosts, planned] = profiles;
        let offered = Profile::new();
        ClusterView {
            cluster: ClusterId(0),
            name: "a".into(),
            capacity: 4,
            total: 4,
            started,
            ghosts,
            planned,
            offered,
            choosable: None,
            cores: None,
        }
    }

    pub fn blocks() -> impl Strategy<Value = Vec<(i64, i64, i64)>> {
        proptest::collection::vec((-50_i64..500, 1_i64..200, 1_i64..4), 0..8)
    }

    #[test]
    fn an_idle_cluster_is_drawn_for_an_hour() {
        let window = Window::of(Time::from_secs(5), &[cluster(&[], &[], &[])], None);
        assert_eq!(window, Window { from: Time::from_secs(5), until: Time::from_secs(3605) });
    }

    proptest! {
        #[test]
        fn segments_fill_the_window_and_their_totals_are_the_profile(
            started in blocks(), ghosts in blocks(), planned in blocks(), offered in blocks()
        ) {
            let view = ClusterView { offered: profile(&offered), ..cluster(&started, &ghosts, &planned) };
            let now = Time::from_secs(10);
            let window = Window::of(now, std::slice::from_ref(&view), None);
            let segments = cut(&view, Unit::Nodes, window);
            prop_assert_eq!(segments.first().map(|segment| segment.from), Some(window.from));
            prop_assert_eq!(segments.last().map(|segment| segment.until), Some(window.until));
            prop_assert!(segments.windows(2).all(|two| two[0].until == two[1].from));
            let total = profile(&[started, ghosts, planned, offered].concat());
            for secs in 10..window.until.as_secs() {
                let at = Time::from_secs(secs);
                let segment = segments.iter().find(|segment| segment.from <= at && at < segment.until).expect("no gap");
                prop_assert_eq!(segment.total(), total.at(at));
            }
        }
    }
}
