//! The flags of a job whose nodes may change while it runs, and their combined meaning.

use std::str::FromStr;

use clap::Args;
use rms_api::call::update::{self, ResizingChanges};
use rms_api::call::{Nodes, Shape};
use rms_model::{Malleable, OnResize, Sizes, Span, Speedup};
use thiserror::Error;

use crate::model_options::ModelOptions;
use crate::signal;
use crate::size::NodeCount;
use crate::size_range::SizeRange;

// No doc comment: clap would print it as the help of each verb that has these flags.
// How a job may change its size while it runs (002).
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(next_help_heading = "Size and time")]
pub struct MalleableOptions {
    /// Sizes in nodes that the job may be changed to while it runs: 2-8, 4, 2+ (or more), 2-8:pow2, 2-8:mult=4 or
    /// 2,4,6,8; -N is then the initial size
    #[arg(long, value_name = "SIZES", conflicts_with_all = ["profile", "shapes"])]
    pub malleable: Option<SizeRange>,
    /// How to notify the job of a change of its nodes: signal:USR1 to its main process, or exec:COMMAND on its first
    /// node; it confirms with 'rms resize-done'
    #[arg(long, value_name = "HOW", conflicts_with_all = ["workers", "negotiable"])]
    pub on_resize: Option<ResizeHow>,
    /// Run the program as an independent worker on each node: with --malleable, it is started on nodes that are added
    /// and ended on nodes that are removed
    #[arg(long, conflicts_with = "negotiable")]
    pub workers: bool,
    /// Let a process of the job negotiate for it through the SDK
    #[arg(long, conflicts_with_all = ["profile", "shapes"])]
    pub negotiable: bool,
    /// Speed by number of nodes, as multiples of the speed on one: 1:1,2:1.9,4:3.4; from --amdahl, --downey or --table
    /// if absent
    #[arg(long, value_name = "LIST")]
    pub speedup: Option<SpeedupList>,
    /// What to do when a node of the job is lost: shrink (continue without it, unless that is below the minimum size:
    /// then fail or requeue), fail or requeue; if absent, workers shrink, and so does a job whose negotiator says that
    /// it can
    #[arg(long, value_name = "shrink|fail|requeue")]
    pub on_node_loss: Option<OnNodeLoss>,
}

/// The value of `--on-node-loss`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnNodeLoss {
    Shrink,
    Fail,
    Requeue,
}

/// The value of `--on-resize`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResizeHow {
    Signal(i32),
    Exec(String),
}

/// The value of `--speedup`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpeedupList(Speedup);

/// Why flags about a changing size are refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MalleableError {
    #[error("--{0} is for jobs whose nodes change: write --malleable 2-8, too")]
    NotMalleable(&'static str),
    #[error(
        "a malleable job must learn that its nodes have changed: add --workers, --on-resize signal:USR1, \
         --on-resize exec:COMMAND or --negotiable"
    )]
    NoWay,
    #[error("--on-node-loss {0} and --{1} contradict each other: leave one of them out")]
    Again(&'static str, &'static str),
    #[error("a job changes its nodes by --profile or by --malleable, not by both: leave one of them out")]
    Profile,
    #[error(
        "--shapes lists sizes to start with: leave it out, and write -N for the size that a malleable job starts with"
    )]
    Shapes,
    #[error(
        "-N is the size to start with, and none of it is within --malleable {range}: write another one, or leave -N out"
    )]
    OutOfRange { range: SizeRange },
    #[error("a malleable job has its nodes on one cluster: write -N 4, and -M for the clusters that it may use")]
    ManyClusters,
    #[error("workers are counted on each node: write --tasks-per-node in the place of -n")]
    Tasks,
    #[error(
        "--workers says that the program itself is the work: for a script that runs once write --on-resize, or name the \
         program: rms submit --malleable 2-8 --workers ./worker"
    )]
    Script,
}

/// Why a text about resizes or speeds is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MalleableTextError {
    #[error("'{0}' tells a job nothing: write signal:USR1 or exec:'command'")]
    How(String),
    #[error("'{0}' is no signal: {1}")]
    Signal(String, &'static str),
    #[error("{0} cannot be caught, so it would end the job: write signal:USR1")]
    Deadly(String),
    #[error("the command after exec: is empty: write exec:./resize.sh")]
    NoCommand,
    #[error(
        "'{0}' is no list of speeds: write nodes and how many times as fast as one node they are, like 1:1,2:1.9,4:3.4"
    )]
    Speedup(String),
    #[error("{0} nodes stand in the list of speeds twice")]
    Twice(u32),
    #[error("'{0}' is nothing that can be done when a node is lost: write shrink, fail or requeue")]
    Loss(String),
}

impl FromStr for ResizeHow {
    type Err = MalleableTextError;

    fn from_str(text: &str) -> Result<ResizeHow, MalleableTextError> {
        match text.split_once(':') {
            Some(("signal", name)) => {
                let fail = |what| MalleableTextError::Signal(shorten(name), what);
                match signal::parse(name).map_err(fail)? {
                    nix::libc::SIGKILL | nix::libc::SIGSTOP => Err(MalleableTextError::Deadly(shorten(name))),
                    signal => Ok(ResizeHow::Signal(signal)),
                }
            }
            Some(("exec", command)) if command.trim().is_empty() => Err(MalleableTextError::NoCommand),
            Some(("exec", command)) => Ok(ResizeHow::Exec(command.to_owned())),
            Some(_) | None => Err(MalleableTextError::How(shorten(text))),
        }
    }
}

impl FromStr for OnNodeLoss {
    type Err = MalleableTextError;

    fn from_str(text: &str) -> Result<OnNodeLoss, MalleableTextError> {
        match text {
            "shrink" => Ok(OnNodeLoss::Shrink),
            "fail" => Ok(OnNodeLoss::Fail),
            "requeue" => Ok(OnNodeLoss::Requeue),
            text => Err(MalleableTextError::Loss(shorten(text))),
        }
    }
}

impl FromStr for SpeedupList {
    type Err = MalleableTextError;

    fn from_str(text: &str) -> Result<SpeedupList, MalleableTextError> {
        let fail = || MalleableTextError::Speedup(shorten(text));
        let point = |part: &str| {
            let (n_nodes, speed) = part.split_once(':')?;
            let n_nodes: u32 = n_nodes.trim().parse().ok().filter(|n_nodes| *n_nodes > 0)?;
            Some((n_nodes, milli(speed.trim().parse().ok()?)?))
        };
        let mut points: Vec<(u32, u32)> =
            text.split(',').map(|part| point(part).ok_or_else(fail)).collect::<Result<_, _>>()?;
        points.sort_unstable();
        if let Some(twice) = points.windows(2).find(|two| two[0].0 == two[1].0) {
            return Err(MalleableTextError::Twice(twice[0].0));
        }
        Ok(SpeedupList(Speedup(points)))
    }
}

/// Converts a speed to thousandths; `None` if it is out of range.
fn milli(speed: f64) -> Option<u32> {
    let milli = (speed * 1000.0).round();
    (1.0..=f64::from(u32::MAX)).contains(&milli).then_some(milli as u32)
}

fn shorten(text: &str) -> String {
    text.chars().take(80).collect()
}

/// The other options on which the size depends.
#[derive(Clone, Copy, Debug)]
pub struct OtherOptions<'a> {
    pub nodes: Option<&'a NodeCount>,
    pub has_shapes: bool,
    pub has_profile: bool,
    pub has_tasks: bool,
    pub model: &'a ModelOptions,
    /// The number of nodes of the largest usable cluster; only an open range needs it.
    pub largest: u32,
}

impl MalleableOptions {
    /// Returns whether the job's nodes may change.
    pub fn is_some(&self) -> bool {
        self.malleable.is_some() || self.negotiable
    }

    /// Returns these options, completed by `lower`. How the job learns of a change is taken from the higher of the two
    /// only.
    pub fn or(self, lower: MalleableOptions) -> MalleableOptions {
        let says_how = self.on_resize.is_some() || self.workers || self.negotiable;
        let lower_how = !says_how;
        MalleableOptions {
            malleable: self.malleable.or(lower.malleable),
            on_resize: self.on_resize.or(lower.on_resize.filter(|_| lower_how)),
            workers: self.workers || (lower_how && lower.workers),
            negotiable: self.negotiable || (lower_how && lower.negotiable),
            speedup: self.speedup.or(lower.speedup),
            on_node_loss: self.on_node_loss.or(lower.on_node_loss),
        }
    }

    /// Returns how a job learns of a change, if they say it.
    fn how(&self) -> Option<OnResize> {
        match (&self.on_resize, self.workers, self.negotiable) {
            (Some(ResizeHow::Signal(signal)), _, _) => Some(OnResize::Signal(*signal)),
            (Some(ResizeHow::Exec(command)), _, _) => Some(OnResize::Hook(command.clone())),
            (None, true, _) => Some(OnResize::Workers),
            (None, false, true) => Some(OnResize::Negotiates),
            (None, false, false) => None,
        }
    }

    /// Returns what they change of the limits that a job has; `None` if they say a range and how the job learns of a
    /// change, which replaces all of them.
    pub fn part(&self) -> Option<ResizingChanges> {
        let range = self.malleable.as_ref().map(|SizeRange { least, most, sizes }| update::SizeRange {
            least: *least,
            most: *most,
            sizes: sizes.clone(),
        });
        let on_resize = self.how();
        let is_whole = range.is_some() && on_resize.is_some();
        let speedup = self.speedup.as_ref().map(|SpeedupList(speedup)| speedup.clone());
        (!is_whole).then(|| ResizingChanges { range, on_resize, speedup, ..ResizingChanges::default() })
    }

    /// Returns their combined meaning; `None` for a job whose nodes do not change.
    ///
    /// # Errors
    /// See [`MalleableError`].
    pub fn read(&self, others: &OtherOptions<'_>) -> Result<Option<Malleable>, MalleableError> {
        if !self.is_some() {
            // Without a range, workers are tasks, one per node, on a fixed set of nodes.
            let strays = [(self.on_resize.is_some(), "on-resize"), (self.speedup.is_some(), "speedup")];
            let shrinks = self.on_node_loss == Some(OnNodeLoss::Shrink);
            let strays = strays.into_iter().chain([(shrinks, "on-node-loss shrink")]);
            let stray = strays.into_iter().find(|(is_given, _)| *is_given);
            return stray.map_or(Ok(None), |(_, flag)| Err(MalleableError::NotMalleable(flag)));
        }
        if others.has_profile {
            return Err(MalleableError::Profile);
        }
        if others.has_shapes {
            return Err(MalleableError::Shapes);
        }
        if self.workers && others.has_tasks {
            return Err(MalleableError::Tasks);
        }
        let on_resize = self.how().ok_or(MalleableError::NoWay)?;
        let range = self.malleable.as_ref().map(|range| range.within(others.largest));
        let speedup = match (&self.speedup, &range) {
            (Some(SpeedupList(speedup)), _) => speedup.clone(),
            (None, Some(range)) => {
                let counts = range.counts().into_iter().rev();
                Speedup(counts.filter_map(|count| Some((count, others.model.speed_up(count)?))).collect())
            }
            (None, None) => Speedup::default(),
        };
        // From 0 to 0: as many as it starts with, until it requests others.
        let (least, most, sizes) =
            range.map_or((0, 0, Sizes::Any), |SizeRange { least, most, sizes }| (least, most, sizes));
        let survives_loss = self.on_node_loss.map(|on_loss| on_loss == OnNodeLoss::Shrink);
        Ok(Some(Malleable { least, most, sizes, on_resize, speedup, survives_loss }))
    }

    /// Returns whether the job may run again after the loss of a node; `says` is the value of `--requeue` and
    /// `--no-requeue`.
    ///
    /// # Errors
    /// The flags contradict each other.
    pub fn may_run_again(&self, says: Option<bool>) -> Result<Option<bool>, MalleableError> {
        match (self.on_node_loss, says) {
            (Some(OnNodeLoss::Fail), Some(true)) => Err(MalleableError::Again("fail", "requeue")),
            (Some(OnNodeLoss::Requeue), Some(false)) => Err(MalleableError::Again("requeue", "no-requeue")),
            (Some(OnNodeLoss::Fail), _) => Ok(Some(false)),
            (Some(OnNodeLoss::Requeue), _) => Ok(Some(true)),
            (Some(OnNodeLoss::Shrink) | None, says) => Ok(says),
        }
    }

    /// Returns the sizes with which a malleable job may start: those of -N within the range. Without -N or a model of
    /// its running time the server chooses from the whole range.
    ///
    /// # Errors
    /// No size of -N is within the range, or it names several clusters.
    pub fn shapes(&self, others: &OtherOptions<'_>, wall: Option<Span>) -> Result<Vec<Shape>, MalleableError> {
        let range = self.malleable.as_ref().map(|range| range.within(others.largest));
        let mut shapes = match (others.nodes, &range) {
            (Some(nodes), _) => nodes.shapes(wall, || others.largest),
            (None, Some(range)) if others.model.is_some() => {
                let shape = |n_nodes| Shape { nodes: Nodes::Count(n_nodes), wall };
                range.counts().into_iter().map(shape).collect()
            }
            (None, Some(_) | None) => vec![Shape { nodes: Nodes::FromTasks, wall }],
        };
        let is_on_one = |shape: &Shape| match shape.nodes {
            Nodes::Count(_) | Nodes::FromTasks => true,
            Nodes::PerCluster(_) => false,
        };
        if !shapes.iter().all(is_on_one) {
            return Err(MalleableError::ManyClusters);
        }
        if let Some(range) = range {
            shapes.retain(|shape| match shape.nodes {
                Nodes::Count(n_nodes) => range.allows(n_nodes),
                Nodes::FromTasks | Nodes::PerCluster(_) => true,
            });
            if shapes.is_empty() {
                return Err(MalleableError::OutOfRange { range });
            }
        }
        Ok(shapes)
    }

    /// Returns whether the range has no end, so that the largest cluster bounds it.
    pub fn has_no_end(&self) -> bool {
        self.malleable.as_ref().is_some_and(|range| range.most == crate::size_range::NO_END)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn others<'a>(nodes: Option<&'a NodeCount>, model: &'a ModelOptions) -> OtherOptions<'a> {
        OtherOptions { nodes, has_shapes: false, has_profile: false, has_tasks: false, model, largest: 4 }
    }

    fn workers(range: &str) -> MalleableOptions {
        MalleableOptions { malleable: range.parse().ok(), workers: true, ..MalleableOptions::default() }
    }

    #[test]
    fn a_way_to_tell_the_job_is_part_of_it() {
        let model = ModelOptions::default();
        let others = others(None, &model);
        let read = |options: MalleableOptions| options.read(&others).map(|malleable| malleable.map(|it| it.on_resize));
        let range = || MalleableOptions { malleable: "2-8".parse().ok(), ..MalleableOptions::default() };
        assert_eq!(read(MalleableOptions::default()), Ok(None));
        assert_eq!(read(workers("2-8")), Ok(Some(OnResize::Workers)));
        let told = |how: &str| MalleableOptions { on_resize: how.parse().ok(), ..range() };
        assert_eq!(read(told("signal:USR1")), Ok(Some(OnResize::Signal(10))));
        assert_eq!(read(told("exec:./resize a:b")), Ok(Some(OnResize::Hook("./resize a:b".into()))));
        let alone = MalleableOptions { negotiable: true, ..MalleableOptions::default() };
        let limits = alone.read(&others).expect("right").expect("it is negotiable");
        assert_eq!((limits.least, limits.most), (0, 0), "as it starts");
        assert_eq!(read(alone), Ok(Some(OnResize::Negotiates)));
        assert_eq!(read(range()), Err(MalleableError::NoWay));
        let rigid = MalleableOptions { workers: true, ..MalleableOptions::default() };
        assert_eq!(read(rigid), Ok(None), "on nodes that stay");
        let stray = MalleableOptions { on_resize: "signal:USR1".parse().ok(), ..MalleableOptions::default() };
        assert_eq!(read(stray), Err(MalleableError::NotMalleable("on-resize")));
    }

    #[test]
    fn what_contradicts_it_is_refused() {
        let model = ModelOptions::default();
        let plain = others(None, &model);
        let read = |others: OtherOptions<'_>| workers("2-8").read(&others).expect_err("a contradiction");
        assert_eq!(read(OtherOptions { has_profile: true, ..plain }), MalleableError::Profile);
        assert_eq!(read(OtherOptions { has_shapes: true, ..plain }), MalleableError::Shapes);
        assert_eq!(read(OtherOptions { has_tasks: true, ..plain }), MalleableError::Tasks);
        for text in ["", "USR1", "signal:", "signal:KILL", "signal:STOP", "exec: ", "mail:me"] {
            assert!(text.parse::<ResizeHow>().is_err(), "{text}");
        }
    }

    #[test]
    fn it_starts_with_a_size_of_its_range() {
        let model = ModelOptions::default();
        let counts = |range: &str, nodes: Option<&str>| {
            let nodes: Option<NodeCount> = nodes.map(|nodes| nodes.parse().expect("a size"));
            let shapes = workers(range).shapes(&others(nodes.as_ref(), &model), None)?;
            let count = |shape: Shape| match shape.nodes {
                Nodes::Count(count) => count,
                Nodes::FromTasks | Nodes::PerCluster(_) => 0,
            };
            Ok::<_, MalleableError>(shapes.into_iter().map(count).collect::<Vec<u32>>())
        };
        assert_eq!(counts("2-4", None), Ok(vec![0]), "the server chooses");
        assert_eq!(counts("2+", Some("1-8")), Ok(vec![4, 3, 2]), "the largest cluster bounds it");
        assert_eq!(counts("2-8", Some("3")), Ok(vec![3]));
        assert_eq!(counts("2-8:pow2", Some("1-8")), Ok(vec![8, 4, 2]));
        let out = MalleableError::OutOfRange { range: "2-8".parse().expect("a range") };
        assert_eq!(counts("2-8", Some("9")), Err(out));
        assert_eq!(counts("2-8", Some("a:1,b:1")), Err(MalleableError::ManyClusters));
    }

    #[test]
    fn speeds_are_listed_or_follow_from_a_model() {
        let list: SpeedupList = "4:3.4,1:1,2:1.9".parse().expect("a list");
        assert_eq!(list, SpeedupList(Speedup(vec![(1, 1000), (2, 1900), (4, 3400)])));
        for text in ["", "2", "2:", "0:1", "2:0", "2:-1", "2:NaN", "1:1,1:2"] {
            assert!(text.parse::<SpeedupList>().is_err(), "{text}");
        }
        let amdahl = ModelOptions { amdahl: "0.5".parse().ok(), ..ModelOptions::default() };
        let malleable = workers("1-4:pow2").read(&others(None, &amdahl)).expect("right").expect("malleable");
        assert_eq!(malleable.speedup, Speedup(vec![(1, 1000), (2, 1333), (4, 1600)]));
        assert_eq!(malleable.sizes, Sizes::PowerOfTwo);
    }

    #[test]
    fn a_higher_source_says_how_in_the_place_of_a_lower() {
        let lower = MalleableOptions { on_resize: "signal:USR1".parse().ok(), ..workers("2-8") };
        let lower = MalleableOptions { workers: false, ..lower };
        let higher = MalleableOptions { workers: true, ..MalleableOptions::default() };
        assert_eq!(higher.or(lower.clone()), workers("2-8"));
        assert_eq!(MalleableOptions::default().or(lower.clone()), lower);
    }

    #[test]
    fn what_becomes_of_a_job_that_loses_a_node() {
        let nothing = ModelOptions::default();
        let others = others(None, &nothing);
        let with = |on_node_loss: Option<OnNodeLoss>| MalleableOptions { on_node_loss, ..workers("2-8") };
        let survives = |on_loss| with(on_loss).read(&others).expect("right").expect("malleable").survives_loss;
        let [shrink, fail, requeue] = ["shrink", "fail", "requeue"].map(|word| word.parse().ok());
        assert_eq!([None, shrink, fail, requeue].map(survives), [None, Some(true), Some(false), Some(false)]);
        let again = |on_loss, says| with(on_loss).may_run_again(says);
        assert_eq!(again(fail, None), Ok(Some(false)));
        assert_eq!(again(requeue, None), Ok(Some(true)));
        assert_eq!(
            [None, Some(true), Some(false)].map(|says| again(shrink, says)),
            [Ok(None), Ok(Some(true)), Ok(Some(false))]
        );
        assert_eq!(again(fail, Some(true)), Err(MalleableError::Again("fail", "requeue")));
        assert_eq!(again(requeue, Some(false)), Err(MalleableError::Again("requeue", "no-requeue")));
        assert_eq!("shrug".parse::<OnNodeLoss>(), Err(MalleableTextError::Loss("shrug".to_owned())));
        // For a job whose nodes do not change, the flag only says whether it starts again.
        let rigid = |on_node_loss| MalleableOptions { on_node_loss, ..MalleableOptions::default() }.read(&others);
        assert_eq!((rigid(fail), rigid(requeue)), (Ok(None), Ok(None)));
        assert_eq!(rigid(shrink), Err(MalleableError::NotMalleable("on-node-loss shrink")));
    }
}
