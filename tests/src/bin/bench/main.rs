//! Measures the product beside its targets and prints tables. It judges nothing: numbers of a shared machine do not fail builds.

mod bargain;
mod ceiling;
mod cluster;
mod commit;
mod delegated;
mod fleet;
mod jobs;
mod lend;
mod memory;
mod mix;
mod model_launcher;
mod offline;
mod pass;
mod process;
mod profile;
mod resize;
mod restart;
mod scale;
mod server;
mod shared;
mod strangers;
mod swf;
mod table;
mod teams;
mod views;
mod watch;
mod wide;
mod world;

use std::process::ExitCode;

use anyhow::Result;

use table::Table;

/// A part of the bench, by the word that selects it.
type Part = (&'static str, fn() -> Result<Table>);

const PARTS: &[Part] = &[
    ("floor", floor),
    ("jobs", jobs::rate),
    ("shared-node", jobs::shared_node),
    ("latency", jobs::latency),
    ("pass", pass::table),
    ("wide", wide::table),
    ("views", views::table),
    ("profile", profile::table),
    ("offline", offline::table),
    ("swf", swf::table),
    ("shared", shared::table),
    ("shared-swf", swf::shared),
    ("sd", swf::lending),
    ("commit", commit::table),
    ("dispatch", scale::dispatch),
    ("queue", scale::queue),
    ("watch", watch::table),
    ("agents", scale::agents),
    ("launchers", delegated::table),
    ("negotiation", bargain::table),
    ("resize", resize::table),
    ("lend", lend::table),
    ("teams", teams::table),
    ("mix", mix::table),
    ("restart", restart::table),
    ("strangers", strangers::table),
];

/// What this program does as a process that another part of it has started.
type Life = fn(&[String]) -> Result<()>;

fn main() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    if let Some((word, args)) = wanted.split_first() {
        let life: Option<Life> = match word.as_str() {
            fleet::WORD => Some(fleet::live),
            model_launcher::WORD => Some(model_launcher::live),
            _ => None,
        };
        if let Some(life) = life {
            return match life(args) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    eprintln!("bench: {word}: {error:#}");
                    ExitCode::FAILURE
                }
            };
        }
    }
    if let Some(unknown) = wanted.iter().find(|word| !PARTS.iter().any(|(name, _)| name == word)) {
        let known: Vec<&str> = PARTS.iter().map(|(name, _)| *name).collect();
        eprintln!("bench: there is no part '{unknown}'; the parts are {}", known.join(", "));
        return ExitCode::from(2);
    }
    memory::watch();
    let mut code = ExitCode::SUCCESS;
    for (name, part) in PARTS.iter().filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|word| word == name)) {
        match part() {
            Ok(table) => print!("{table}"),
            Err(error) => {
                println!("\n{name}: not measured: {error:#}");
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}

fn floor() -> Result<Table> {
    let mut table = Table::new("The floor: fork + exec + wait of `true`");
    for n_threads in [1, 2] {
        let ceiling = ceiling::measure(2000, n_threads)?;
        table.note(format!("CPU per round, {n_threads} at a time"), ceiling.cpu_ms, "ms");
        table.note(format!("rounds, {n_threads} at a time"), ceiling.per_second, "/s");
    }
    Ok(table)
}
