//! Reads a trace from a file, compressed or not, or draws one, and converts it to jobs by options.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use flate2::bufread::MultiGzDecoder;
use rms_model::Span;
use rms_model::error::chain;
use rms_model::indices::MAX_INDEX;
use rms_sim::workload::lublin::Lublin;
use rms_sim::workload::swf::{Cleaned, Cleaning, Doubles, Overrun, SizeFrom, Trace, ZeroRun};

use crate::failure::Failure;
use crate::output;

/// Which trace, and for which cluster.
#[derive(clap::Args, Debug)]
pub(super) struct TraceArgs {
    /// File in the Standard Workload Format, plain or compressed with gzip
    #[arg(value_name = "TRACE", required_unless_present = "lublin")]
    pub trace: Option<PathBuf>,
    /// Draw this many jobs from the model of Lublin and Feitelson (2003) for the processors of the cluster; they ask for
    /// their run times
    #[arg(long, value_name = "COUNT", conflicts_with = "trace")]
    pub lublin: Option<usize>,
    /// Random seed of --lublin; the same seed gives the same jobs
    #[arg(long, value_name = "NUMBER", default_value_t = 4, conflicts_with = "trace")]
    pub seed: u64,
    /// Nodes of the cluster
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub nodes: u32,
    #[command(flatten)]
    pub cleaning: CleaningArgs,
}

/// What to make of the records that need a decision.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct CleaningArgs {
    /// Processors of a node
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_INDEX) + 1))]
    pub cores_per_node: u32,
    /// Field that gives the size: allocated (5) or requested (8); the other one where it is missing
    #[arg(long, value_name = "FIELD", default_value = "allocated")]
    field: SizeFieldArg,
    /// What to do with a job without a run time: run it for a second, or drop it
    #[arg(long, value_name = "WHAT", default_value = "second")]
    zero_run: ZeroRunArg,
    /// What to do with a job that ran longer than requested: kill it at its limit, before --wall-unit rounds that up,
    /// or extend the request to its run time
    #[arg(long, value_name = "WHAT", default_value = "kill")]
    overrun: OverrunArg,
    /// Round wall times up to multiples of this
    #[arg(long, value_name = "SPAN", default_value = "1s")]
    wall_unit: Span,
    /// What to do with a job larger than the cluster: drop it, or cut it to the cluster
    #[arg(long, value_name = "WHAT", default_value = "drop")]
    too_large: TooLargeArg,
    /// Only records of this partition (field 16)
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    partition: Option<i64>,
    /// Skip this many jobs at the beginning, not counting those that are dropped
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    skip: usize,
    /// Use only this many jobs, not counting those that are dropped
    #[arg(long, value_name = "COUNT")]
    pub jobs: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SizeFieldArg {
    #[value(alias = "5")]
    Allocated,
    #[value(alias = "8")]
    Requested,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ZeroRunArg {
    Second,
    Drop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OverrunArg {
    Kill,
    Extend,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum TooLargeArg {
    Drop,
    Cut,
}

impl TraceArgs {
    /// # Errors
    /// Those of [`read_trace`]; or the model has no such jobs.
    pub(super) fn read(&self) -> Result<Cleaned, Failure> {
        if let Some(path) = &self.trace {
            return read_trace(path, self.nodes, &self.cleaning);
        }
        let n_procs = self.nodes.saturating_mul(self.cleaning.cores_per_node);
        let model = Lublin { n_jobs: self.lublin.unwrap_or_default(), seed: self.seed, n_procs };
        let trace = model.generate().map_err(|error| Failure::new("workload", chain(&error)))?;
        of_model(&self.title(), &trace, self.nodes, &self.cleaning)
    }

    /// Returns the file, or the model and its seed.
    pub(super) fn title(&self) -> String {
        match &self.trace {
            Some(path) => path.display().to_string(),
            None => format!("Lublin's model, seed {}", self.seed),
        }
    }
}

/// Returns the jobs of a trace for a cluster of `nodes` nodes.
///
/// # Errors
/// The file cannot be read, a line is not a record, or no job is left to run.
pub(super) fn read_trace(path: &Path, nodes: u32, args: &CleaningArgs) -> Result<Cleaned, Failure> {
    let of_file =
        |error: &dyn std::error::Error| Failure::new("trace", format!("{}: {}", path.display(), chain(error)));
    let reader = open(path).map_err(|error| of_file(&error))?;
    let cleaned = Trace::read_clean(reader, &args.cleaning_of_all(nodes)).map_err(|error| of_file(&error))?;
    runnable(&path.display().to_string(), cleaned, nodes, args)
}

/// Returns the jobs of a model's trace for a cluster of `nodes` nodes.
///
/// # Errors
/// No job is left to run.
pub(super) fn of_model(title: &str, trace: &Trace, nodes: u32, args: &CleaningArgs) -> Result<Cleaned, Failure> {
    runnable(title, trace.clean(&args.cleaning_of_all(nodes)), nodes, args)
}

/// Returns those of all jobs of a trace that can run and that the options select.
///
/// # Errors
/// No job is left.
fn runnable(title: &str, mut cleaned: Cleaned, nodes: u32, args: &CleaningArgs) -> Result<Cleaned, Failure> {
    let n_readable = cleaned.jobs.len();
    if args.too_large == TooLargeArg::Drop {
        cleaned.drop_larger_than(nodes);
    }
    let n_runnable = cleaned.jobs.len();
    cleaned.keep(args.skip, args.jobs);
    if cleaned.jobs.is_empty() {
        let why = args.why_none(&cleaned, nodes, n_readable - n_runnable, n_runnable);
        return Err(Failure::new("trace", format!("{title}: no job of the trace is left to run: {why}")));
    }
    if let Some(Doubles { first, n_jobs, from }) = cleaned.renumber_doubles() {
        let have = if n_jobs == 1 { "job has" } else { "jobs have" };
        output::warn(&format!(
            "rms: warning: {title}: {n_jobs} {have} the number of an earlier one, the first is {first}: numbered from {from} on"
        ));
    }
    Ok(cleaned)
}

impl CleaningArgs {
    /// Returns why no job is left of a trace of which `n_runnable` could run and `n_larger` are too large.
    fn why_none(&self, cleaned: &Cleaned, nodes: u32, n_larger: usize, n_runnable: usize) -> String {
        if n_runnable > 0 {
            return match self.jobs {
                Some(0) => "--jobs 0 takes none".to_owned(),
                Some(_) | None => format!("--skip {} leaves out all {n_runnable}", self.skip),
            };
        }
        let n_without_run = match self.zero_run {
            ZeroRunArg::Second => 0,
            ZeroRunArg::Drop => cleaned.n_without_run,
        };
        let counted = |count: usize, one: &str, more: &str| match count {
            0 => None,
            1 => Some(format!("1 {one}")),
            count => Some(format!("{count} {more}")),
        };
        let dropped = [
            counted(cleaned.n_without_submit, "has no submit time", "have no submit time"),
            counted(cleaned.n_without_size, "has no size", "have no size"),
            counted(n_without_run, "has no run time", "have no run time"),
            counted(cleaned.n_too_long, "runs for more than 100 years", "run for more than 100 years"),
            counted(n_larger, "is larger than", "are larger than").map(|larger| format!("{larger} {nodes} nodes")),
        ];
        let dropped = dropped.into_iter().flatten().collect::<Vec<_>>().join(", ");
        match (dropped.is_empty(), self.partition) {
            (true, Some(partition)) => format!("it has no records of partition {partition}"),
            (true, None) => "it has no records".to_owned(),
            (false, _) if n_larger > 0 => format!("{dropped}; cut them by --too-large cut, or raise --nodes"),
            (false, _) => dropped,
        }
    }

    /// Returns the same options for nodes of so many cores.
    pub(super) fn of_cores(&self, cores_per_node: u32) -> CleaningArgs {
        CleaningArgs { cores_per_node, ..self.clone() }
    }

    /// Returns the rules without a limit to the number of jobs: they are counted after all that cannot run were dropped.
    fn cleaning_of_all(&self, nodes: u32) -> Cleaning {
        Cleaning { most_jobs: None, ..self.cleaning(nodes) }
    }

    /// Checks that no option was set that says something of a trace, where there is none.
    ///
    /// # Errors
    /// The first such option, but `--jobs` where it has another meaning.
    pub fn check_unused(&self, uses_jobs: bool) -> Result<(), Failure> {
        let CleaningArgs { cores_per_node, field, zero_run, overrun, wall_unit, too_large, partition, skip, jobs } =
            self;
        let set = [
            ("--cores-per-node", *cores_per_node != 1),
            ("--field", *field != SizeFieldArg::Allocated),
            ("--zero-run", *zero_run != ZeroRunArg::Second),
            ("--overrun", *overrun != OverrunArg::Kill),
            ("--wall-unit", *wall_unit != Span::from_secs(1)),
            ("--too-large", *too_large != TooLargeArg::Drop),
            ("--partition", partition.is_some()),
            ("--skip", *skip != 0),
            ("--jobs", jobs.is_some() && !uses_jobs),
        ];
        match set.into_iter().find(|(_, is_set)| *is_set) {
            Some((option, _)) => Err(Failure::usage(format!("{option} is for traces, and there is none"))),
            None => Ok(()),
        }
    }

    fn cleaning(&self, nodes: u32) -> Cleaning {
        Cleaning {
            cores_per_node: self.cores_per_node,
            size_from: match self.field {
                SizeFieldArg::Allocated => SizeFrom::Allocated,
                SizeFieldArg::Requested => SizeFrom::Requested,
            },
            most_nodes: match self.too_large {
                TooLargeArg::Drop => None,
                TooLargeArg::Cut => Some(nodes),
            },
            zero_run: match self.zero_run {
                ZeroRunArg::Second => ZeroRun::OneSecond,
                ZeroRunArg::Drop => ZeroRun::Drop,
            },
            overrun: match self.overrun {
                OverrunArg::Kill => Overrun::Kill,
                OverrunArg::Extend => Overrun::Extend,
            },
            wall_unit: self.wall_unit,
            partition: self.partition,
            most_jobs: self.jobs.map(|jobs| jobs.saturating_add(self.skip)),
        }
    }
}

/// Opens a file; a compressed one is recognized by its first two bytes, whatever its name.
pub(super) fn open(path: &Path) -> std::io::Result<Box<dyn BufRead>> {
    let mut file = BufReader::with_capacity(BUFFER, File::open(path)?);
    let is_compressed = file.fill_buf()?.starts_with(&GZIP);
    if is_compressed {
        // A file may consist of several concatenated gzip streams.
        let unpacked: Box<dyn Read> = Box::new(MultiGzDecoder::new(file));
        return Ok(Box::new(BufReader::with_capacity(BUFFER, unpacked)));
    }
    Ok(Box::new(file))
}

const GZIP: [u8; 2] = [0x1f, 0x8b];
const BUFFER: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        trace: TraceArgs,
    }

    /// Returns how many jobs of this trace are left, or why none is.
    fn read(content: &str, options: &str) -> Result<usize, String> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(&file, content).expect("it is written");
        let path = file.path().to_str().expect("its name is UTF-8");
        let args = ["swf", path].into_iter().chain(options.split_whitespace());
        let cleaned = Cli::parse_from(args).trace.read();
        cleaned.map(|cleaned| cleaned.jobs.len()).map_err(|failure| failure.to_text().replace(path, "FILE"))
    }

    #[test]
    fn a_trace_of_which_nothing_is_left_is_an_error_that_says_why() {
        // Two jobs of partition 1 on 8 processors, of which one has no run time.
        let two = "1 0 0 10 8 -1 -1 8 10 -1 1 1 1 1 1 1 -1 -1\n2 5 0 0 8 -1 -1 8 10 -1 1 1 1 1 1 1 -1 -1\n";
        let endless = "1 0 0 100000000000 8 -1 -1 8 100000000000 -1 1 1 1 1 1 1 -1 -1\n";
        assert_eq!(read(two, "--nodes 8"), Ok(2));
        for (content, options, why) in [
            ("", "--nodes 8", "it has no records"),
            ("; only a comment\n", "--nodes 8", "it has no records"),
            (two, "--nodes 8 --partition 7", "it has no records of partition 7"),
            (two, "--nodes 4", "2 are larger than 4 nodes; cut them by --too-large cut"),
            (two, "--nodes 4 --zero-run drop", "1 has no run time, 1 is larger than 4 nodes"),
            (endless, "--nodes 8", "1 runs for more than 100 years"),
            (&two.replace("1 0 0", "1 -1 0").replace("2 5 0", "2 -1 0"), "--nodes 8", "2 have no submit time"),
            (two, "--nodes 8 --skip 2", "--skip 2 leaves out all 2"),
            (two, "--nodes 8 --jobs 0", "--jobs 0 takes none"),
        ] {
            let said = read(content, options).expect_err(options);
            assert!(said.starts_with("rms: FILE: no job of the trace is left to run: "), "{options}: {said}");
            assert!(said.replace("\n     ", "; ").contains(why), "{options}: {said}");
        }
    }
}
