//! The command `rms-server`: creates a deployment, checks a configuration, runs the server.

use std::io::{self, IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{Parser, Subcommand};
use rms_server::allocator;
use rms_server::clock::Clock;
use rms_server::config::{self, ConfigError, DEFAULTS, ServerConfig};
use rms_server::dir::{DataDir, DirLock};
use rms_server::init::{Deployment, certify_admin, init};
use rms_server::journal::{RecoveryReport, backup, recover};
use rms_server::reach::advertised_address;
use rms_server::rotation;
use rms_server::run::run;
use rms_wire::tls::{Authority, Rotation};
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
    /// Create a new deployment: its certificate authority, and certificates for the server and the first admin.
    Init {
        /// The data directory to create.
        #[arg(long)]
        dir: PathBuf,
        /// The name of the deployment; it is in every certificate.
        #[arg(long, default_value = "limber")]
        name: String,
        /// The configuration that the server will run with, which says where others reach it; if absent,
        /// rms-server.toml in the data directory, if it exists. It is only read.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Address that the server will listen on, as IP:PORT; overrides the configuration
        #[arg(long, value_name = "IP:PORT")]
        listen: Option<SocketAddr>,
        /// The login name of the first administrator; the calling user if absent
        #[arg(long, value_name = "NAME")]
        admin: Option<String>,
    },
    /// Run the server of a deployment until TERM.
    Run {
        /// The data directory.
        #[arg(long)]
        dir: PathBuf,
        /// The configuration file; rms-server.toml in the data directory if absent.
        #[arg(long)]
        config: Option<PathBuf>,
        /// Address to listen on, as IP:PORT; overrides the configuration.
        #[arg(long)]
        listen: Option<SocketAddr>,
    },
    /// Copy the journal of a server, running or not, to a new directory, and read the copy back.
    Backup {
        /// The data directory.
        #[arg(long)]
        dir: PathBuf,
        /// The directory to create.
        #[arg(long)]
        to: PathBuf,
    },
    /// Show what would be lost by cutting off the damaged part of a journal, and with --yes cut it off.
    ///
    /// The server must be stopped. Restore a backup instead if there is one. What is cut off is kept beside the
    /// journal, in files whose names begin with 'damaged.'.
    Recover {
        /// The data directory.
        #[arg(long)]
        dir: PathBuf,
        /// Cut off the damaged part.
        #[arg(long)]
        yes: bool,
    },
    /// Change to another certificate authority while jobs run: begin, switch, finish
    Ca {
        /// The step to take, or status to show the progress
        #[arg(value_enum)]
        step: CaStep,
        /// The data directory
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
        /// Take the step even if some have not renewed their certificates yet: those must join again
        #[arg(long)]
        anyway: bool,
    },
    /// Certify an administrator while the server is stopped, if no administrator has a valid certificate any more
    Admin {
        /// The login name of the administrator
        name: String,
        /// The data directory
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
        /// The configuration of the server; rms-server.toml in the data directory if absent
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Check a configuration file, and report errors with their positions.
    CheckConfig {
        /// The file.
        file: PathBuf,
    },
    /// Print every configuration value with its default and meaning.
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
        Verb::Init { dir, name, config, listen, admin } => {
            let dir = DataDir::new(&dir);
            let run = run_command(&dir, config.as_deref(), listen);
            let config = read_config(&dir, config.as_deref())?;
            make(dir, name, listen.unwrap_or(config.listen), &config, admin)?;
            println!("run it with: {run}");
            Ok(())
        }
        Verb::Run { dir, config, listen } => {
            allocator::apply_settings();
            serve(&DataDir::new(&dir), config.as_deref(), listen)
        }
        Verb::Ca { step, dir, anyway } => authority(&DataDir::new(&dir), step, anyway),
        Verb::Admin { name, dir, config } => certify(&DataDir::new(&dir), &name, config.as_deref()),
        Verb::CheckConfig { file } => {
            config::load(&file)?;
            println!("{} is right", file.display());
            Ok(())
        }
        Verb::Backup { dir, to } => Ok(backup(&DataDir::new(&dir).journal(), &to)?),
        Verb::Recover { dir, yes } => recover_journal(&DataDir::new(&dir), yes),
        Verb::PrintConfig => Ok(io::stdout().write_all(DEFAULTS.as_bytes())?),
    }
}

/// Returns the command that runs a new deployment as it was set up: with the same configuration and address.
fn run_command(dir: &DataDir, config: Option<&Path>, listen: Option<SocketAddr>) -> String {
    let config = config.map(|config| format!(" --config {}", config.display())).unwrap_or_default();
    let listen = listen.map(|listen| format!(" --listen {listen}")).unwrap_or_default();
    format!("rms-server run --dir {}{config}{listen}", dir.root().display())
}

fn make(
    dir: DataDir,
    name: String,
    listen: SocketAddr,
    config: &ServerConfig,
    admin: Option<String>,
) -> anyhow::Result<()> {
    let admin = match admin {
        // `--admin "$SUDO_USER"` in a root login, where that variable is empty.
        Some(admin) if admin.is_empty() => bail!(
            "--admin is empty: write the login name of the first administrator, as in --admin ada \
             (SUDO_USER is set by sudo only, not in a root login)"
        ),
        Some(admin) => admin,
        None => calling_user()?,
    };
    let reached = advertised_address(config.advertise.as_deref(), listen);
    let deployment = Deployment { dir, name, reached, certificate_life: config.certificate_life, admin };
    init(&deployment)?;
    let Deployment { dir, name, reached, admin, .. } = &deployment;
    println!("made deployment {name} in {}", dir.root().display());
    println!("nodes and users connect to {reached} (set advertise in the configuration to change this)");
    println!("{admin} is its admin: rms --dir {}", dir.admin().display());
    Ok(())
}

fn certify(dir: &DataDir, admin: &str, config: Option<&Path>) -> anyhow::Result<()> {
    let config = read_config(dir, config)?;
    certify_admin(dir, admin, config.certificate_life)?;
    println!("{admin} is an admin: rms --dir {}; start the server now", dir.admin().display());
    Ok(())
}

fn recover_journal(dir: &DataDir, yes: bool) -> anyhow::Result<()> {
    let _lock = DirLock::acquire(dir)?;
    let RecoveryReport { last_seq, problems, history } = recover(&dir.journal(), yes)?;
    if problems.is_empty() && history.is_none() {
        println!("{} is whole: {last_seq} facts", dir.journal().display());
        return Ok(());
    }
    for problem in &problems {
        println!("{problem}");
    }
    let kept = if yes { "are kept" } else { "would be kept" };
    println!("facts up to {last_seq} {kept}; jobs whose submission or end came later are not as they were");
    if let Some((first, last)) = history {
        println!("the history lacks jobs that ended between facts {first} and {last}");
    }
    if yes && problems.is_empty() {
        println!("start the server now");
    } else if yes {
        println!("what was damaged is in {}/damaged.*; start the server now", dir.journal().display());
    } else {
        println!("to go on without the rest: rms-server recover --dir {} --yes", dir.root().display());
    }
    Ok(())
}

/// The steps of a change to another certificate authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum CaStep {
    /// Show the progress of the change, and who has not renewed yet
    Status,
    /// Create another CA, which is trusted beside the present one
    Begin,
    /// Sign with the new CA; the old one is still trusted
    Switch,
    /// Trust the new CA alone
    Finish,
}

fn authority(dir: &DataDir, step: CaStep, anyway: bool) -> anyhow::Result<()> {
    let behind = rotation::behind(dir)?;
    let to = match step {
        CaStep::Status => {
            println!("{}", Authority::rotation(&dir.authority()));
            behind.iter().for_each(|who| println!("not renewed since the last step: {who}"));
            if !behind.is_empty() {
                println!("{}", rotation::hint(&behind));
            }
            return Ok(());
        }
        CaStep::Begin => Rotation::Begun,
        CaStep::Switch => Rotation::Switched,
        CaStep::Finish => Rotation::None,
    };
    if !behind.is_empty() && !anyway {
        let who: Vec<String> = behind.iter().map(ToString::to_string).collect();
        bail!(
            "{} have not renewed their certificates since the last step: {}",
            who.join(", "),
            rotation::hint(&behind)
        );
    }
    Authority::rotate(&dir.authority(), to, Clock::start().now())?;
    println!(
        "{}; restart the server now (systemctl restart rms-server), jobs go on",
        Authority::rotation(&dir.authority())
    );
    Ok(())
}

fn calling_user() -> anyhow::Result<String> {
    let uid = nix::unistd::getuid();
    let user = nix::unistd::User::from_uid(uid).with_context(|| format!("cannot look up user {uid}"))?;
    user.map(|user| user.name).with_context(|| format!("user {uid} has no name: give one with --admin"))
}

fn serve(dir: &DataDir, config: Option<&Path>, listen: Option<SocketAddr>) -> anyhow::Result<()> {
    // By target and level: filters by the fields of spans would inspect every span, and need regular expressions.
    let wanted = std::env::var("RUST_LOG").ok().and_then(|text| text.parse::<Targets>().ok());
    let filter = wanted.unwrap_or_else(|| Targets::new().with_default(LevelFilter::INFO));
    let lines = tracing_subscriber::fmt::layer().with_ansi(io::stderr().is_terminal()).with_writer(io::stderr);
    tracing_subscriber::registry().with(lines).with(filter).init();
    if let Some(named) = config
        && dir.config().exists()
        && named.canonicalize().ok() != dir.config().canonicalize().ok()
    {
        let (named, other) = (named.display(), dir.config());
        tracing::warn!("{} is not read, as --config names {named}: remove it", other.display());
    }
    let config = read_config(dir, config)?;
    let address = listen.unwrap_or(config.listen);
    // Sessions only move bytes; decisions are made on the driver's thread. All sessions share the endpoint's one socket
    // and its locks, so a second thread would cost more than it gains.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run(dir, &config, address))?;
    Ok(())
}

fn read_config(dir: &DataDir, named: Option<&Path>) -> Result<ServerConfig, ConfigError> {
    let default = dir.config();
    match named {
        Some(path) => config::load(path),
        None => match config::load(&default) {
            Err(ConfigError::Unreadable { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Ok(ServerConfig::default())
            }
            loaded => loaded,
        },
    }
}
