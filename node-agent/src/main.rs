//! The program `node-agent`: reads its configuration, and runs as the agent or as its spawner.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use node_agent::config::{DEFAULT_DIR, Written};
use node_agent::{run, spawner, sys};
use rms_wire::TokenText;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::prelude::*;

/// The agent of one node: starts, watches and ends the jobs that the server places here.
#[derive(Parser, Debug)]
#[command(version, name = "node-agent")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run the agent; jobs keep running when it is stopped
    Run {
        /// Read settings from this file [default: agent.toml in the agent's directory, if it is there]
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        #[command(flatten)]
        flags: Written,
    },
    /// Redeem a token: create a key and get a certificate for it
    Join {
        /// Token printed by 'rms token create --role agent'
        token: TokenText,
        /// The agent's directory
        #[arg(long, value_name = "DIR", default_value = DEFAULT_DIR)]
        dir: PathBuf,
        /// Name of the node, if the token has none [default: that of the
        /// certificate in the directory, else the machine's own name]
        #[arg(long, value_name = "N")]
        name: Option<String>,
    },
    /// Check the settings and report errors
    CheckConfig {
        /// The file to check
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        #[command(flatten)]
        flags: Written,
    },
}

fn main() -> ExitCode {
    sys::close_inherited();
    // First, so that the process has one thread and has read nothing.
    let is_spawner = std::env::args_os().nth(1).is_some_and(|arg| arg == spawner::SUBCOMMAND);
    let done = if is_spawner { spawner::main().map_err(anyhow::Error::from) } else { command(Cli::parse().command) };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("node-agent: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn command(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Run { config, flags } => {
            let config = flags.into_config(config.as_deref())?;
            let wanted = std::env::var("RUST_LOG").ok().and_then(|text| text.parse::<Targets>().ok());
            let filter = wanted.unwrap_or_else(|| Targets::new().with_default(LevelFilter::INFO));
            let with_color = std::io::stderr().is_terminal();
            let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(with_color);
            tracing_subscriber::registry().with(lines).with(filter).init();
            run::run(config)
        }
        Command::Join { token, dir, name } => run::join(&token, &dir, name.as_deref()),
        Command::CheckConfig { config, flags } => {
            flags.into_config(config.as_deref())?.check_here()?;
            let checked = config.map_or("what is set".to_owned(), |file| file.display().to_string());
            println!("{checked} is right");
            Ok(())
        }
    }
}
