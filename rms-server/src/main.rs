//! The command `rms-server`: makes a deployment, checks a configuration, runs the server.

use std::io::{self, IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use rms_server::config::{self, ConfigError, DEFAULT_LISTEN, DEFAULTS, ServerConfig};
use rms_server::dir::DataDir;
use rms_server::init::{Deployment, init};
use rms_server::run::run;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::prelude::*;

/// The server of a Limber deployment.
#[derive(Debug, Parser)]
#[command(name = "rms-server", version)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make a new deployment: its certificate authority, the server's and the first admin's certificates.
    Init {
        /// The data directory to make.
        #[arg(long)]
        dir: PathBuf,
        /// The name of the deployment; it is in every certificate.
        #[arg(long, default_value = "limber")]
        name: String,
        /// Where agents and clients will reach the server, as IP:PORT.
        #[arg(long, default_value = DEFAULT_LISTEN)]
        listen: SocketAddr,
        /// The first admin; the user who calls, if absent.
        #[arg(long)]
        admin: Option<String>,
    },
    /// Run the server of a deployment until TERM.
    Run {
        /// The data directory.
        #[arg(long)]
        dir: PathBuf,
        /// The configuration file; rms-server.toml in the data directory, if absent.
        #[arg(long)]
        config: Option<PathBuf>,
        /// Where to listen, as IP:PORT; it goes before the configuration.
        #[arg(long)]
        listen: Option<SocketAddr>,
    },
    /// Check a configuration file, and say what is wrong in it and where.
    CheckConfig {
        /// The file.
        file: PathBuf,
    },
    /// Print every configuration value with its default and what it means.
    PrintConfig,
}

fn main() -> ExitCode {
    match execute(Arguments::parse().verb) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rms-server: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn execute(verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::Init { dir, name, listen, admin } => make(&dir, name, listen, admin),
        Verb::Run { dir, config, listen } => serve(&DataDir::new(&dir), config.as_deref(), listen),
        Verb::CheckConfig { file } => {
            config::load(&file)?;
            println!("{} is right", file.display());
            Ok(())
        }
        Verb::PrintConfig => Ok(io::stdout().write_all(DEFAULTS.as_bytes())?),
    }
}

fn make(dir: &Path, name: String, listen: SocketAddr, admin: Option<String>) -> anyhow::Result<()> {
    let admin = match admin {
        Some(admin) => admin,
        None => calling_user()?,
    };
    let deployment = Deployment { dir: DataDir::new(dir), name, listen, admin };
    init(&deployment)?;
    println!("made deployment {} in {}", deployment.name, dir.display());
    println!("run it with: rms-server run --dir {}", dir.display());
    println!("{} is its admin: rms --dir {}", deployment.admin, deployment.dir.admin().display());
    Ok(())
}

fn calling_user() -> anyhow::Result<String> {
    let uid = nix::unistd::getuid();
    let user = nix::unistd::User::from_uid(uid).with_context(|| format!("cannot look up user {uid}"))?;
    user.map(|user| user.name).with_context(|| format!("user {uid} has no name: give one with --admin"))
}

fn serve(dir: &DataDir, config: Option<&Path>, listen: Option<SocketAddr>) -> anyhow::Result<()> {
    // By target and level: filters by the fields of spans would look at every span, and need regular expressions.
    let wanted = std::env::var("RUST_LOG").ok().and_then(|text| text.parse::<Targets>().ok());
    let filter = wanted.unwrap_or_else(|| Targets::new().with_default(LevelFilter::INFO));
    let lines = tracing_subscriber::fmt::layer().with_ansi(io::stderr().is_terminal()).with_writer(io::stderr);
    tracing_subscriber::registry().with(lines).with(filter).init();
    let config = read_config(dir, config)?;
    let address = listen.unwrap_or(config.listen);
    // Sessions only move bytes; what is decided, is decided on the driver's thread. They share the endpoint's one
    // socket and its locks, so a second thread beside them costs more than it does.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run(dir, &config, address))?;
    Ok(())
}

fn read_config(dir: &DataDir, named: Option<&Path>) -> Result<ServerConfig, ConfigError> {
    let default = dir.config();
    match named {
        Some(path) => config::load(path),
        None if default.exists() => config::load(&default),
        None => Ok(ServerConfig::default()),
    }
}
