//! `rms update`: changes the specification of a job.

use std::collections::BTreeSet;
use std::sync::Arc;

use rms_api::call::update::{Changes, Resizing, ResourceChanges, WHILE_RUNNING, WHILE_WAITING, WallChange};
use rms_model::time::parse_wall;
use rms_model::{Environment, Labels, Packing, Time};

use super::jobs_done::JobsDone;
use crate::caller::Caller;
use crate::context::Context;
use crate::directive::parse_options;
use crate::failure::{Exit, Failure};
use crate::job_options::{JobOptions, NodeNames};
use crate::look_up;
use crate::malleable_options::OnNodeLoss;
use crate::screen;
use crate::select;
use crate::size::NodeCount;
use crate::stamp;
use crate::submission;

#[derive(clap::Args, Debug)]
#[command(after_help = after_help())]
pub struct Args {
    /// Which jobs: 7, 3,5-9, last, all, user:NAME
    #[arg(value_name = "JOBS")]
    jobs: String,
    /// Changes: KEY=VALUE; a time may be +1h or -10m
    #[arg(required = true, value_name = "KEY=VALUE")]
    changes: Vec<String>,
}

fn after_help() -> String {
    let waiting = WHILE_WAITING.join(", ");
    let rules = format!(
        "While a job runs: {}. While it waits also {waiting}, as 'rms submit' takes them; 'compact=yes' stands for a \
         flag without a value. 'gpus=' and the like replace all GPUs, 'gres=none' all devices. 'clusters=', \
         'constraint=' and 'nodelist=' allow any; 'malleable=' and 'profile=' end changes of its size while it runs; \
         'export' replaces the whole environment. Keywords of scontrol (TimeLimit, JobName) are accepted.",
        WHILE_RUNNING.join(", ")
    );
    format!("{EXAMPLES}{}", screen::fold(&rules, 0, HELP_COLUMNS))
}

const EXAMPLES: &str = "\
Examples:
  rms update 7 time=+1h name=x account=y   all changes, or none
  rms update 7 nodes=4 tasks=16            while it waits
  rms update 7 hold=no begin=now
  rms update 7 malleable=2-8 on-resize=signal:USR1
  rms update 7 profile=2x500s,8x1h export=ALL,LEVEL=2
";

const HELP_COLUMNS: usize = 78;

pub async fn run(args: Args, context: &Context) -> Result<Exit, Failure> {
    let jobs = args.jobs.split_once('=').filter(|(key, _)| key.eq_ignore_ascii_case("jobid")).map(|(_, jobs)| jobs);
    let select = select::parse(&[jobs.unwrap_or(&args.jobs).to_owned()])?;
    let changes = read(&args.changes, stamp::now())?;
    let client = context.client().await?;
    let select = look_up::resolve(&client, select).await?;
    let done = client.update(select, changes).await?;
    JobsDone::new(&args.changes.join(" "), done).show(&context.output)
}

fn read(words: &[String], now: Time) -> Result<Changes, Failure> {
    let mut changes = Changes::default();
    let (mut flags, mut taken_back) = (Vec::new(), None);
    for word in words {
        let fail = |why: &dyn std::fmt::Display| Failure::usage(format!("{}: {why}", shorten(word)));
        let (key, value) = word.split_once('=').ok_or_else(|| fail(&"write KEY=VALUE, as time=+1h"))?;
        let key = key.to_lowercase();
        let key = SCONTROL.iter().find(|(theirs, _)| *theirs == key).map_or(key.as_str(), |(_, ours)| ours);
        match key {
            "time" => {
                let (sign, span) = match value.strip_prefix('+').or(value.strip_prefix('-')) {
                    Some(span) => (&value[..1], span),
                    None => ("", value),
                };
                let span = parse_wall(span).map_err(|error| fail(&error))?;
                changes.wall = Some(match sign {
                    "+" => WallChange::More(span),
                    "-" => WallChange::Less(span),
                    _ => WallChange::To(span),
                });
            }
            "hold" => changes.hold = Some(yes(value).ok_or_else(|| fail(&"write yes or no"))?),
            "requeue" => changes.requeue = Some(yes(value).ok_or_else(|| fail(&"write yes or no"))?),
            "exclusive" => {
                changes.resources.exclusive = Some(yes(value).ok_or_else(|| fail(&"write yes or no"))?);
            }
            "contiguous" => {
                changes.resources.contiguous = Some(yes(value).ok_or_else(|| fail(&"write yes or no"))?);
            }
            "share" => changes.resources.share = Some(yes(value).ok_or_else(|| fail(&"write yes or no"))?),
            "min-cpus-per-node" => {
                let least = value.parse().map_err(|_| fail(&"write how many, or 0 for one for each task"))?;
                changes.resources.min_cpus_per_node = Some(least);
            }
            "min-cpus-per-task" => {
                let counts: Result<Vec<u32>, _> =
                    value.split(',').filter(|_| !value.is_empty()).map(str::parse).collect();
                let least = counts.map_err(|_| fail(&"write how many for each task (4,1), or nothing for one each"))?;
                changes.resources.min_cpus_per_task = Some(least);
            }
            "cores-per-package" => {
                let least = value.parse().map_err(|_| fail(&"write how many, or 0 for any"))?;
                changes.resources.cores_per_package = Some(least);
            }
            "mincpus" => {
                let least = value.parse().map_err(|_| fail(&"write how many, or 0 for any"))?;
                changes.min_cpus = Some(least);
            }
            "spread" => {
                let spreads = yes(value).ok_or_else(|| fail(&"write yes or no"))?;
                changes.resources.packing = Some(if spreads { Packing::Spread } else { Packing::Pack });
            }
            "begin" => {
                let begin = stamp::parse_begin(value, now).map_err(|error| fail(&error))?;
                changes.begin = Some(begin);
            }
            "clusters" if value.is_empty() => changes.clusters = Some(Vec::new()),
            "constraint" if value.is_empty() => changes.features = Some(BTreeSet::new()),
            "nodelist" if value.is_empty() => changes.nodelist = Some(BTreeSet::new()),
            "exclude" if value.is_empty() => changes.exclude = Some(BTreeSet::new()),
            "malleable" | "profile" if value.is_empty() => changes.resizing = Some(Resizing::Never),
            _ if SWITCHES.contains(&key) => match yes(value).ok_or_else(|| fail(&"write yes or no"))? {
                true => flags.push(format!("--{key}")),
                false if key == "compact" => changes.resizing_changes.compacting = Some(false),
                false if key == "open" => changes.resizing_changes.open = Some(false),
                false => taken_back = Some(shorten(word)),
            },
            _ if Labels::default().set(key, String::new()) => {
                changes.labels.insert(key.to_owned(), value.to_owned());
            }
            _ if WHILE_RUNNING.contains(&key) || WHILE_WAITING.contains(&key) => flags.push(format!("--{key}={value}")),
            _ => {
                let known = [WHILE_RUNNING.as_slice(), WHILE_WAITING.as_slice()].concat().join(", ");
                return Err(fail(&format!("nothing of that name can be changed; there are {known}")));
            }
        }
    }
    let options = parse_options(&flags).map_err(Failure::usage)?;
    let open_ended = matches!(options.nodes, Some(NodeCount::AtLeast(_)));
    if open_ended {
        return Err(Failure::usage("nodes: write the most, too, as nodes=2-8"));
    }
    read_resizing(&mut changes, &options)?;
    if let Some(word) = taken_back.filter(|_| changes.resizing.is_none() && changes.resizing_changes.is_nothing()) {
        let hint = "write 'malleable=' or 'profile=' for a job whose nodes stay, or all that it is to be instead";
        return Err(Failure::usage(format!("{word}: {hint}")));
    }
    if options.export.is_some() {
        let environment = submission::environment(&options, &Caller::read()?).map_err(Failure::usage)?;
        changes.environment = Some(Arc::new(Environment(environment)));
    }
    let n_nodes = options.nodes.as_ref().and_then(NodeCount::fixed);
    let asked = options.resources.changes(options.tasks_per_node, n_nodes).map_err(Failure::usage)?;
    let Changes { resources: said, .. } = &changes;
    // Flags that can also be revoked take yes, no or 0 as their value.
    changes.resources = ResourceChanges {
        exclusive: said.exclusive,
        packing: said.packing,
        share: said.share,
        min_cpus_per_node: said.min_cpus_per_node,
        min_cpus_per_task: said.min_cpus_per_task.clone(),
        cores_per_package: said.cores_per_package,
        contiguous: said.contiguous,
        ..asked
    };
    let shapes = options.shapes.map(|shapes| shapes.0);
    changes.shapes = shapes.or(options.nodes.map(|nodes| nodes.shapes(None, || 0)));
    changes.n_tasks = options.tasks;
    changes.cpus_per_task = options.cpus_per_task;
    changes.clusters = options.clusters.or(changes.clusters);
    changes.features = options.constraint.map(|features| features.0.into_iter().collect()).or(changes.features);
    let names = |names: Option<NodeNames>| names.map(|names| names.0.into_iter().collect());
    changes.nodelist = names(options.nodelist).or(changes.nodelist);
    changes.exclude = names(options.exclude).or(changes.exclude);
    changes.memory = options.mem.map(|memory| memory.0);
    changes.priority = options.priority;
    if let Some(chdir) = options.chdir {
        changes.cwd = Some(Caller::read()?.cwd.join(chdir).to_string_lossy().into_owned());
    }
    (changes.input, changes.output, changes.error) = (options.input, options.output, options.error);
    Ok(changes)
}

/// Reads how the job's size may change while it runs.
fn read_resizing(changes: &mut Changes, options: &JobOptions) -> Result<(), Failure> {
    if options.malleable.has_no_end() {
        return Err(Failure::usage("malleable: write the most, too, as malleable=2-8"));
    }
    let others = options.others(0);
    // For a job that already has its limits.
    let on_loss = options.malleable.on_node_loss.filter(|_| options.malleable.part().is_some());
    changes.survives_loss = on_loss.map(|on_loss| on_loss == OnNodeLoss::Shrink);
    let said = changes.resizing_changes.clone();
    changes.resizing_changes = options.malleable.part().unwrap_or_default();
    let malleable = match options.malleable.part() {
        Some(_) => None,
        None => options.malleable.read(&others).map_err(Failure::usage)?,
    };
    changes.requeue = options.malleable.may_run_again(changes.requeue).map_err(Failure::usage)?;
    let evolving = match options.profile.is_some() || malleable.is_some() {
        true => submission::announced(options, &Caller::read()?).map_err(Failure::usage)?,
        false => {
            changes.resizing_changes.expand = options.expand;
            changes.resizing_changes.compacting = options.compact.then_some(true).or(said.compacting);
            changes.resizing_changes.open = options.open.then_some(true).or(said.open);
            None
        }
    };
    let part = &changes.resizing_changes;
    let ways = [
        malleable.is_some() || part.is_of_limits(),
        evolving.is_some() || part.is_of_profile(),
        changes.resizing.is_some(),
    ];
    if ways.into_iter().filter(|is_taken| *is_taken).count() > 1 {
        return Err(Failure::usage("a job changes its size by a profile or within limits, not by both"));
    }
    let resizing = malleable.map(Resizing::Within).or(evolving.map(Resizing::ByStages));
    changes.resizing = resizing.or(changes.resizing.take());
    Ok(())
}

/// The keys of flags without a value.
const SWITCHES: [&str; 4] = ["workers", "negotiable", "compact", "open"];

/// Words of scontrol, and Limber's.
const SCONTROL: [(&str, &str); 19] = [
    ("minmemorycpu", "mem-per-cpu"),
    ("mincpusnode", "mincpus"),
    ("gres", "gres"),
    ("licenses", "licences"),
    ("ntaskspernode", "tasks-per-node"),
    ("timelimit", "time"),
    ("jobname", "name"),
    ("numnodes", "nodes"),
    ("numtasks", "tasks"),
    ("partition", "clusters"),
    ("features", "constraint"),
    ("reqnodelist", "nodelist"),
    ("excnodelist", "exclude"),
    ("minmemorynode", "mem"),
    ("starttime", "begin"),
    ("workdir", "chdir"),
    ("stdout", "output"),
    ("stderr", "error"),
    ("stdin", "input"),
];

fn yes(text: &str) -> Option<bool> {
    match text.to_lowercase().as_str() {
        "yes" | "1" | "true" => Some(true),
        "no" | "0" | "false" => Some(false),
        _ => None,
    }
}

fn shorten(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use clap::Args as _;
    use rms_api::call::update::{ResizingChanges, SizeRange};
    use rms_model::{Devices, Mebibytes, OnResize, Sizes, Span, Speedup};

    use super::*;

    fn changes(words: &str) -> Result<Changes, Failure> {
        read(&words.split(' ').map(str::to_owned).collect::<Vec<_>>(), Time::from_secs(1000))
    }

    #[test]
    fn words_are_read_as_submit_and_scontrol_have_them() {
        let read = changes("TimeLimit=+1h name=x account= NumNodes=2 mem=4G hold=no clusters=").expect("it is right");
        assert_eq!(read.wall, Some(WallChange::More(Span::from_hours(1))));
        assert_eq!(
            read.labels.iter().map(|(key, text)| format!("{key}={text}")).collect::<Vec<_>>(),
            ["account=", "name=x"]
        );
        assert_eq!((read.shapes.map(|shapes| shapes.len()), read.memory.map(|memory| memory.0)), (Some(1), Some(4096)));
        assert_eq!((read.hold, read.clusters), (Some(false), Some(Vec::new())));
        assert_eq!(changes("time=30").expect("minutes").wall, Some(WallChange::To(Span::from_mins(30))));
        for wrong in [
            "time",
            "time=+",
            "wings=2",
            "hold=maybe",
            "nodes=2+",
            "nodes=x",
            "mem=4X",
            "profile=2y1h",
            "malleable=2+",
            "open=maybe",
        ] {
            assert!(changes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_a_job_takes_of_its_nodes_is_read_as_submit_has_it() {
        let resources = |words| changes(words).unwrap_or_else(|_| panic!("{words}")).resources;
        let devices = |text: &str| text.parse::<Devices>().ok();
        let nothing = ResourceChanges::default;
        for (words, read) in [
            ("mem=4G", nothing()),
            ("MinMemoryCPU=1G", ResourceChanges { memory_per_cpu: Some(Mebibytes(1024)), ..nothing() }),
            ("gpus=4", ResourceChanges { devices_in_all: devices("gpu:4"), ..nothing() }),
            ("gpus-per-node=a100:1", ResourceChanges { devices: devices("gpu:a100:1"), ..nothing() }),
            ("gres=none", ResourceChanges { devices: Some(Devices::default()), ..nothing() }),
            ("gres=gpu:2,fpga", ResourceChanges { devices: devices("gpu:2,fpga:1"), ..nothing() }),
            ("licences=matlab:2", ResourceChanges { licences: devices("matlab:2"), ..nothing() }),
            ("Licenses=none", ResourceChanges { licences: Some(Devices::default()), ..nothing() }),
            (
                "exclusive=yes spread=no",
                ResourceChanges { exclusive: Some(true), packing: Some(Packing::Pack), ..nothing() },
            ),
            (
                "exclusive=no spread=yes",
                ResourceChanges { exclusive: Some(false), packing: Some(Packing::Spread), ..nothing() },
            ),
            ("contiguous=yes", ResourceChanges { contiguous: Some(true), ..nothing() }),
            ("contiguous=no", ResourceChanges { contiguous: Some(false), ..nothing() }),
            ("hint=multithread", ResourceChanges { one_thread_a_core: Some(false), ..nothing() }),
            ("tasks-per-node=2", ResourceChanges { tasks_per_node: Some(2), ..nothing() }),
        ] {
            assert_eq!(resources(words), read, "{words}");
        }
        for wrong in
            ["mem=1G mem-per-cpu=1G", "gpus=3 nodes=2", "gpus=1 gres=gpu:1", "spread=maybe", "hint=fast", "licences=a:"]
        {
            assert!(changes(wrong).is_err(), "{wrong}");
        }
    }

    /// A new option of a job is an attribute that can be changed, or stands here.
    #[test]
    fn every_option_of_a_job_can_be_changed_or_cannot_on_purpose() {
        // What 'spread=no' and 'requeue=no' say, and what a job keeps.
        let fixed = [
            "overcommit",
            "rigid",
            "amdahl",
            "downey",
            "table",
            "time-on",
            "malleable-threads",
            "pack",
            "sockets-per-node",
            "tmp",
            "min-speed",
            "no-requeue",
            "open-mode",
            "slurm-env",
            "allow-unset",
        ];
        let options = JobOptions::augment_args(clap::Command::new("job"));
        let names = options.get_arguments().filter_map(clap::Arg::get_long);
        let is_known = |name: &&str| WHILE_RUNNING.contains(name) || WHILE_WAITING.contains(name);
        let unknown: Vec<&str> = names.filter(|name| !is_known(name)).collect();
        assert_eq!(unknown, fixed);
    }

    #[test]
    fn every_attribute_that_is_named_is_read() {
        for key in [WHILE_RUNNING.as_slice(), WHILE_WAITING.as_slice()].concat() {
            let without_value = changes(&format!("{key}="));
            let why = without_value.err().map(|failure| format!("{failure:?}")).unwrap_or_default();
            let is_unknown = why.contains("nothing of that name") || why.contains("unexpected argument");
            assert!(!is_unknown, "{key}: {why}");
        }
    }

    #[test]
    fn the_cpus_that_nodes_must_have_are_read_as_submit_and_scontrol_have_them() {
        for (words, least) in [("mincpus=16", 16), ("MinCPUsNode=4", 4), ("mincpus=0", 0)] {
            assert_eq!(changes(words).unwrap_or_else(|_| panic!("{words}")).min_cpus, Some(least), "{words}");
        }
        assert!(changes("mincpus=many").is_err() && changes("mincpus=").is_err());
    }

    #[test]
    fn nodes_are_named_as_submit_has_them() {
        let names = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<String>>());
        let read = changes("nodelist=a[1-2] exclude=a3").expect("it is right");
        assert_eq!((read.nodelist, read.exclude), (names(&["a1", "a2"]), names(&["a3"])));
        let read = changes("ReqNodeList=a1 ExcNodeList=").expect("it is right");
        assert_eq!((read.nodelist, read.exclude), (names(&["a1"]), names(&[])));
        assert!(changes("nodelist=a[1").is_err() && changes("nodelist=").is_ok_and(|read| read.nodelist == names(&[])));
    }

    #[test]
    fn limits_profiles_and_the_environment_are_read_as_submit_has_them() {
        let resizing = |words| changes(words).unwrap_or_else(|_| panic!("{words}")).resizing;
        let Some(Resizing::Within(limits)) = resizing("malleable=2-8:pow2 on-resize=signal:USR1") else {
            panic!("limits");
        };
        assert_eq!((limits.least, limits.most), (2, 8));
        let Some(Resizing::ByStages(evolving)) = resizing("profile=2x500s,8x1h compact=yes open=no") else {
            panic!("stages");
        };
        assert_eq!((evolving.stages.peak(), evolving.expansion.compacting, evolving.open), (8, true, false));
        assert_eq!([resizing("malleable="), resizing("profile=")], [Some(Resizing::Never), Some(Resizing::Never)]);
        let environment = changes("export=LEVEL=2").expect("it is right").environment.expect("it is given");
        assert!(environment.0.contains(&("LEVEL".to_owned(), "2".to_owned())), "{environment:?}");
        let on_loss = |word: &str| changes(word).expect("it is right");
        assert_eq!(
            (on_loss("on-node-loss=shrink").survives_loss, on_loss("on-node-loss=shrink").requeue),
            (Some(true), None)
        );
        assert_eq!(
            (on_loss("on-node-loss=fail").survives_loss, on_loss("on-node-loss=fail").requeue),
            (Some(false), Some(false))
        );
        assert!(changes("malleable=2-8 negotiable=yes workers=no").is_ok());
        let parts = |words| {
            let read = changes(words).unwrap_or_else(|_| panic!("{words}"));
            assert_eq!(read.resizing, None, "{words}: what the job has stays");
            read.resizing_changes
        };
        let nothing = ResizingChanges::default;
        let on_resize = |how| ResizingChanges { on_resize: Some(how), ..nothing() };
        assert_eq!(parts("workers=yes"), on_resize(OnResize::Workers));
        assert_eq!(parts("negotiable=yes workers=no"), on_resize(OnResize::Negotiates));
        assert_eq!(parts("on-resize=signal:USR2"), on_resize(OnResize::Signal(12)));
        let speedup = Some(Speedup(vec![(1, 1000), (2, 1900)]));
        assert_eq!(parts("speedup=1:1,2:1.9"), ResizingChanges { speedup, ..nothing() });
        let range = Some(SizeRange { least: 2, most: 4, sizes: Sizes::Any });
        assert_eq!(parts("malleable=2-4"), ResizingChanges { range, ..nothing() });
        assert_eq!(parts("compact=yes open=no").to_string(), "compact,open");
        assert_eq!(parts("expand=3 open=yes"), ResizingChanges { open: Some(true), ..parts("expand=3") });
        assert!(parts("expand=3").expand.is_some() && parts("time=+1h").is_nothing());
        for wrong in [
            "negotiable=no",
            "workers=no",
            "malleable=2+ workers=yes",
            "malleable=2-8 workers=yes profile=",
            "workers=yes profile=",
            "open=yes on-resize=signal:USR1",
            "expand=2 profile=",
        ] {
            assert!(changes(wrong).is_err(), "{wrong}");
        }
    }
}
