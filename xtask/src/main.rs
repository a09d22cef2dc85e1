//! Runs the chores of the project: set-up, the whole test suite, the demonstration, the bench.

mod dependencies;
mod fuzz;
mod programs;
mod sdk;
mod setup;
mod step;
mod suite;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask <chore>

  setup           install what tests and demonstrations need (Open MPI, MPICH, ip), where allowed
  test [FILTER…]  set up, format, lint, dependencies, docs, a short demonstration, every test
  demo [--short]  bring up two clusters on this machine and run a scaled real trace with MPI programs
  bench [PART…]   measure and print the table of performance targets
  fuzz [SECONDS] [TARGET…] [--keep]
                  feed all decoders, guided by coverage; --keep adds to fuzz/corpus
  deps            check licences, bans, duplicates and advisory floors of all dependencies
  install-sdk PREFIX [--libdir LIB] [--built DIR]
                  build librms and put it, its header and manual below PREFIX
  run STEP        one step of `test` alone (its headlines name them)";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (chore, rest) = match args.split_first() {
        Some((chore, rest)) => (chore.as_str(), rest),
        None => ("help", [].as_slice()),
    };
    let outcome = match (chore, rest) {
        ("setup", []) => setup::run(),
        ("test", filters) => return suite::run(filters),
        ("run", [step]) => suite::run_one(step),
        ("demo", flags) => programs::demo(flags),
        ("bench", parts) => programs::bench(parts),
        ("install-sdk", args) => sdk::install(args),
        ("fuzz", args) => fuzz::run(&fuzz::Order::parse(args)),
        ("deps", []) => dependencies::check(),
        ("help" | "--help" | "-h", _) => {
            println!("{USAGE}");
            Ok(())
        }
        _ => {
            eprintln!("xtask: there is no chore '{}'\n\n{USAGE}", args.join(" "));
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
