//! Runs traces through the production core, by the command that users type, beside the figures of peers.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::server::sibling;
use crate::table::{Table, Target};

/// A trace, how it is read, and what it may cost.
struct Part {
    file: &'static str,
    args: &'static [&'static str],
    n_jobs: &'static str,
    peers: &'static str,
}

/// The first 10,000 jobs are what peers were measured with, on other machines' traces of like size.
const PARTS: [Part; 4] = [
    Part {
        file: "SDSC-SP2-1998-4.2-cln.swf.gz",
        args: &["--nodes", "128"],
        n_jobs: "10000",
        peers: "peers on 10,000 jobs: EASY 1,080 to 3,190, conservative 1,130 to 1,740; a bare loop 3,800,000 and 1,000,000",
    },
    Part {
        file: "SDSC-SP2-1998-4.2-cln.swf.gz",
        args: &["--nodes", "128"],
        n_jobs: "1000000",
        peers: "the whole trace",
    },
    Part {
        file: "RICC-2010-2.sept10k.swf.gz",
        args: &["--nodes", "1024", "--cores-per-node", "8", "--field", "requested"],
        n_jobs: "1000000",
        peers: "10,000 jobs that come in a burst: thousands wait",
    },
    Part {
        file: "CEA-Curie-2011-2.1-cln.p10.swf.gz",
        args: &["--nodes", "5040", "--cores-per-node", "16"],
        n_jobs: "1000000",
        peers: "198,509 jobs; a bare loop 1,160,000 and 19,000",
    },
];

/// Jobs per CPU second, parsing included, and peak memory.
pub fn table() -> Result<Table> {
    let mut table = Table::new("Traces through the production core (rms sim swf), parsing included");
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/traces");
    for Part { file, args, n_jobs, peers } in PARTS {
        let trace = traces.join(file);
        if !trace.exists() {
            println!("swf: {file} is skipped: there is no {}", traces.display());
            continue;
        }
        for (policy, target) in [("easy", 300_000.0), ("conservative", 100_000.0)] {
            let figures = run(&trace, args, n_jobs, policy)?;
            let figure = |name: &str| figures[name].as_f64().with_context(|| format!("{name} is missing"));
            let what = format!("{file}, {:.0} jobs, {policy} ({peers})", figure("jobs")?);
            let bound = "what is written down of each job, and whom an early end makes us ask";
            table.measure(what, figure("jobs_per_s")?, "/CPU s", Target::AtLeast(target), bound);
            let what = format!("{file}, {policy}: peak memory");
            table.measure(what, figure("peak_rss_mib")?, "MiB", Target::AtMost(50.0), "jobs in memory and the binary");
        }
    }
    Ok(table)
}

/// Logs that count processors, on nodes of several cores: by cores beside by nodes.
const SHARED: [(&str, &str, &str); 4] = [
    ("SDSC-SP2-1998-4.2-cln.swf.gz", "16", "8"),
    ("RICC-2010-2.sept10k.swf.gz", "1024", "8"),
    ("LLNL-Atlas-2006-2.1-cln.swf.gz", "1152", "8"),
    ("CEA-Curie-2011-2.1-cln.p10.swf.gz", "5040", "16"),
];

/// Jobs per CPU second where jobs share nodes, and what sharing gives them.
pub fn shared() -> Result<Table> {
    let mut table = Table::new("Traces on nodes that jobs share, beside whole nodes (rms sim swf --allocation)");
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/traces");
    for (file, nodes, cores) in SHARED {
        let trace = traces.join(file);
        if !trace.exists() {
            println!("shared-swf: {file} is skipped: there is no {}", traces.display());
            continue;
        }
        // Promises name nodes where they are shared, so that passes take longer.
        for (policy, n_jobs) in [("easy", "1000000"), ("conservative", "10000")] {
            for allocation in ["nodes", "cores"] {
                let args = ["--nodes", nodes, "--cores-per-node", cores, "--allocation", allocation];
                let figures = run(&trace, &args, n_jobs, policy)?;
                let figure = |name: &str| figures[name].as_f64().with_context(|| format!("{name} is missing"));
                let what = format!(
                    "{file}, {:.0} jobs, {nodes} x {cores}, {policy}, by {allocation}: mean wait {:.0} s, bounded slowdown {:.1}, cores used {:.2}",
                    figure("jobs")?,
                    figure("mean_wait_s")?,
                    figure("mean_bounded_slowdown")?,
                    figure("core_utilisation")?
                );
                let target = if policy == "easy" { Target::AtLeast(100_000.0) } else { Target::Reference };
                table.measure(what, figure("jobs_per_s")?, "/CPU s", target, "what is written down of each job");
            }
        }
    }
    Ok(table)
}

/// Slowdown-driven sharing of nodes (004) on the largest trace: time and memory.
pub fn lending() -> Result<Table> {
    let mut table = Table::new("All of Curie under slowdown-driven sharing of nodes (rms sim sd)");
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/traces/CEA-Curie-2011-2.1-cln.p10.swf.gz");
    if !trace.exists() {
        println!("sd: there is no {}", trace.display());
        return Ok(table);
    }
    let mut command = Command::new(sibling("rms")?);
    command.args(["sim", "sd", "--trace"]).arg(&trace).args(["--nodes", "5040", "--cores-per-node", "16"]);
    let output = command.args(["--wall-unit", "60s", "--cut-offs", "10", "--json"]).output()?;
    let answer = answer(output, "rms sim sd")?;
    let run = &answer["runs"][0];
    let figure = |value: &Value, name: &str| value[name].as_f64().with_context(|| format!("{name} is missing"));
    let measured = &run["measured"];
    let what = format!("{:.0} jobs, {:.0} guests: CPU time", figure(measured, "jobs")?, figure(measured, "guests")?);
    table.measure(what, figure(run, "cpu_s")?, "s", Target::AtMost(120.0), "the search for mates, and passes");
    let what = "peak memory, with the jobs under static backfill to compare with";
    table.note(what, figure(&answer, "peak_rss_mib")?, "MiB");
    Ok(table)
}

fn run(trace: &PathBuf, args: &[&str], n_jobs: &str, policy: &str) -> Result<Value> {
    let mut command = Command::new(sibling("rms")?);
    command.args(["sim", "swf"]).arg(trace).args(args);
    let output = command.args(["--jobs", n_jobs, "--policy", policy, "--json"]).output()?;
    answer(output, "rms sim swf")
}

fn answer(output: Output, what: &str) -> Result<Value> {
    if !output.status.success() {
        bail!("{what} fails: {}", String::from_utf8_lossy(&output.stdout));
    }
    serde_json::from_slice(&output.stdout).with_context(|| format!("{what} prints no JSON"))
}
