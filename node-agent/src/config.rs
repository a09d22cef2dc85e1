//! The agent's configuration: one TOML file with documented defaults, and flags that take precedence over it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;
use std::path::{Path, PathBuf};

use clap::Args;
use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};
use rms_model::devices::DevicesError;
use rms_model::error::chain;
use rms_model::identity::{NameError, check_name};
use rms_model::pointed::pointed;
use rms_model::resources::ENFORCEABLE;
use rms_model::{Devices, Mebibytes, Span};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use toml::Spanned;

use self::devices::{WrittenDevices, declared, misplaced};
use crate::cgroup::{CgroupMode, CgroupModeError};
use crate::devices::DeviceFiles;
use crate::order::SHRINK_PATIENCE;
use crate::topology::Overrides;
use crate::topology::cpulist::{self, CpuListError};
use crate::topology::declared::{Declared, DeclaredError};

pub mod devices;

/// All settings, as written in a file or given as flags. All are optional but `server`.
#[derive(Args, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Written {
    /// Address of the server, as host:port
    #[arg(long, value_name = "ADDR")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Directory of the agent: credentials, spool, socket [default: /var/lib/limber/agent]
    #[arg(long, value_name = "DIR")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dir: Option<PathBuf>,
    /// Name of the node; it must match the certificate [default: that of the certificate]
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Cluster that the node belongs to [default: that of the token, or "main"]
    #[arg(long, value_name = "C")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Topology to use instead of the machine's own, as "pack:2 core:24 pu:1"; CPUs that do not exist are only counted
    #[arg(long, value_name = "T")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology: Option<String>,
    /// CPUs that jobs may use, as 0-3,6 [default: all]
    #[arg(long, value_name = "L")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<String>,
    /// Memory for jobs in MiB [default: the machine's]
    #[arg(long, value_name = "MIB")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u64>,
    /// Speed relative to the reference node [default: 1.0]
    #[arg(long, value_name = "X")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed: Option<f64>,
    /// Scratch space in MiB, for launchers that select nodes by it [default: 0]
    #[arg(long, value_name = "MIB")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scratch_mib: Option<u64>,
    /// Address to listen on for other agents, as ip:port; port 0 takes any free one [default: any port, on IPv6 if the
    /// server has an IPv6 address]
    #[arg(long, value_name = "ADDR")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<String>,
    /// Address announced to other agents [default: the one from which the server is reached]
    #[arg(long, value_name = "IP")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advertise: Option<String>,
    /// Features that jobs may request by name
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub features: Option<Vec<String>>,
    /// How process trees are tracked: auto, v1, v2 or none [default: auto]
    #[arg(long, value_name = "KIND")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// Parent cgroup of the agent's cgroups [default: limber]
    #[arg(long, value_name = "PATH")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup_parent: Option<String>,
    /// Supervisors kept ready for the next job, 0 to 64 [default: 2]
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warm_supervisors: Option<u32>,
    /// Spool space for the output of a job, in MiB; a job that exceeds it is ended [default: a tenth of the disk]
    #[arg(long, value_name = "MIB")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spool_quota_mib: Option<u64>,
    /// Resources whose limits the kernel must enforce, else no job starts here: cpus, memory, devices [default: none]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub must_enforce: Option<Vec<String>>,
    /// Time for processes to leave CPUs that their job loses, in ms, 0 to 60000 [default: 1000]
    #[arg(long, value_name = "MS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shrink_patience_ms: Option<u32>,
    /// Devices of the node, as gpu:a100:4,fpga:1, or none; the configuration file can name their device files, too
    /// [default: the NVIDIA and AMD GPUs found]
    #[arg(long, value_name = "LIST")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub devices: Option<WrittenDevices>,
}

/// A checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    pub server: String,
    pub dir: PathBuf,
    pub name: Option<String>,
    pub cluster: String,
    pub overrides: Overrides,
    pub devices: DeviceFiles,
    /// If absent, any port, of the kind of the server's address.
    pub listen: Option<SocketAddr>,
    pub advertise: Option<IpAddr>,
    pub cgroup: CgroupMode,
    pub cgroup_parent: String,
    pub n_warm: usize,
    pub spool_quota_mib: Option<u64>,
    pub must_enforce: BTreeSet<String>,
    pub shrink_patience: Span,
}

/// An error in the configuration.
#[derive(Debug, Error)]
pub enum ConfigError {
    #[error("cannot read {path}")]
    Read { path: PathBuf, source: io::Error },
    /// The whole message with line and caret.
    #[error("{0}")]
    Wrong(String),
    #[error(
        "listen = \"{listen}\" is where the server listens: an agent beside it needs a port of its own (0 takes any)"
    )]
    ServersPort { listen: SocketAddr },
    #[error("listen = \"{listen}\" is {}: no packet goes from there to server = \"{server}\"; set listen = \"{}\"",
        if listen.is_ipv4() { "IPv4" } else { "IPv6" }, any_port(server))]
    OtherFamily { listen: SocketAddr, server: SocketAddr },
    #[error("advertise = \"{advertise}\" leads nowhere, as listen = \"{listen}\" is reached from this machine alone")]
    Unreachable { advertise: IpAddr, listen: SocketAddr },
    #[error("the agent's directory {dir} cannot be written by this user")]
    NotWritable { dir: PathBuf, source: io::Error },
    #[error("no server is given: set server = \"host:port\", use --server, or join with a token first")]
    NoServer,
    #[error(
        "server = \"{0}\" is no address: write host:port, with an IPv6 address in brackets, such as [fd00::1]:7117"
    )]
    Server(String),
    #[error("name is not usable")]
    Name(#[source] NameError),
    #[error("cluster is not usable")]
    Cluster(#[source] NameError),
    #[error("features are not usable")]
    Feature(#[source] NameError),
    #[error("features name '{0}' twice")]
    FeatureTwice(String),
    #[error("devices are not usable")]
    Devices(#[from] DevicesError),
    #[error(
        "devices = \"{0}\" names GPUs of several types: jobs number the GPUs of a node as its driver does, so say which file \
         is which, as \"gpu:a100\" = [\"/dev/nvidia0\"], or give all of them one name"
    )]
    SeveralTypes(Devices),
    #[error("devices are not usable: {0} is no absolute path of a file, or comes twice")]
    DeviceFile(PathBuf),
    #[error(
        "devices are not usable: {0} is what every program needs, and would be closed to those that did not ask for it"
    )]
    EveryonesFile(PathBuf),
    #[error("devices = \"{text}\" names {name} twice: write one number for it")]
    DeviceTwice { text: String, name: String },
    #[error("'{0}' is a setting of the agent and no device: write it on a line of its own, above [devices]")]
    Misplaced(String),
    #[error("'none' is no name of a device: write devices = \"none\" without others, or leave it out")]
    NoneBesideOthers,
    #[error(
        "devices are not usable: a {0} has no file where others have: name the files of each, or only their number"
    )]
    NoFile(String),
    #[error("must_enforce = \"{0}\" is nothing that can be enforced: write cpus, memory or devices")]
    MustEnforce(String),
    #[error("topology is not usable")]
    Topology(#[from] DeclaredError),
    #[error("cpus are not usable")]
    Cpus(#[from] CpuListError),
    #[error("cpus is empty: name at least one CPU, or leave it out for all")]
    NoCpus,
    #[error("speed = {0} is not usable: write a number from 0.001 to 1000")]
    Speed(f64),
    #[error("memory_mib = 0 leaves no memory for jobs")]
    NoMemory,
    #[error("memory_mib = {0} is more than a node has: the number counts MiB")]
    TooMuchMemory(u64),
    #[error("spool_quota_mib = 0 leaves no room for output: leave it out for a tenth of the disk")]
    NoQuota,
    #[error("devices are not usable: there is no {0}: name the file of each, or leave it out")]
    NoDevice(String),
    #[error("listen = \"{0}\" is no address: write ip:port, such as 0.0.0.0:0")]
    Listen(String),
    #[error("advertise = \"{0}\" is no IP address")]
    Advertise(String),
    #[error(
        "advertise = \"{0}\" stands for any address: write the one at which other nodes reach this one, or leave it out"
    )]
    AdvertiseAny(IpAddr),
    #[error("cgroup is not usable")]
    Cgroup(#[from] CgroupModeError),
    #[error("cgroup_parent = \"{0}\" is not usable: write a relative path without '..'")]
    CgroupParent(String),
    #[error("warm_supervisors = {0} is not usable: write 0 to 64")]
    Warm(u32),
    #[error("shrink_patience_ms = {0} is not usable: write 0 to {MOST_PATIENCE_MS}")]
    Patience(u32),
}

/// The default directory of the agent.
pub const DEFAULT_DIR: &str = "/var/lib/limber/agent";
/// The upper bound of the patience, because guests wait for the CPUs.
const MOST_PATIENCE_MS: u32 = 60_000;
/// A pebibyte. A larger value was given in bytes or KiB by mistake.
const MOST_MEMORY_MIB: u64 = 1 << 30;
/// The file in the agent's directory that `join` writes and `run` reads unless another one is named.
pub const FILE: &str = "agent.toml";

/// Points an error about a value from the file at its line in the file.
fn located(file: &Path, error: ConfigError) -> ConfigError {
    let said = chain(&error);
    let is_of_file = Written::read(file).and_then(Written::check).err().is_some_and(|own| chain(&own) == said);
    let place = || -> Option<(String, Range<usize>)> {
        let text = fs::read_to_string(file).ok()?;
        let values: BTreeMap<String, Spanned<toml::Value>> = toml::from_str(&text).ok()?;
        let span = values.get(error.key()?)?.span();
        Some((text, span))
    };
    match place().filter(|_| is_of_file) {
        Some((text, span)) => ConfigError::Wrong(pointed(&file.display().to_string(), &text, span, &said)),
        None => error,
    }
}

impl ConfigError {
    /// Returns the key of the invalid setting.
    fn key(&self) -> Option<&'static str> {
        Some(match self {
            ConfigError::Read { .. } | ConfigError::Wrong(_) | ConfigError::NoServer => return None,
            ConfigError::NotWritable { .. } => "dir",
            ConfigError::Server(_) => "server",
            ConfigError::Name(_) => "name",
            ConfigError::Cluster(_) => "cluster",
            ConfigError::Feature(_) | ConfigError::FeatureTwice(_) => "features",
            ConfigError::Devices(_)
            | ConfigError::DeviceTwice { .. }
            | ConfigError::SeveralTypes(_)
            | ConfigError::DeviceFile(_)
            | ConfigError::EveryonesFile(_)
            | ConfigError::Misplaced(_)
            | ConfigError::NoneBesideOthers
            | ConfigError::NoFile(_)
            | ConfigError::NoDevice(_) => "devices",
            ConfigError::MustEnforce(_) => "must_enforce",
            ConfigError::Topology(_) => "topology",
            ConfigError::Cpus(_) | ConfigError::NoCpus => "cpus",
            ConfigError::Speed(_) => "speed",
            ConfigError::NoMemory | ConfigError::TooMuchMemory(_) => "memory_mib",
            ConfigError::NoQuota => "spool_quota_mib",
            ConfigError::Listen(_) | ConfigError::ServersPort { .. } | ConfigError::OtherFamily { .. } => "listen",
            ConfigError::Advertise(_) | ConfigError::AdvertiseAny(_) | ConfigError::Unreachable { .. } => "advertise",
            ConfigError::Cgroup(_) => "cgroup",
            ConfigError::CgroupParent(_) => "cgroup_parent",
            ConfigError::Warm(_) => "warm_supervisors",
            ConfigError::Patience(_) => "shrink_patience_ms",
        })
    }
}

impl Written {
    /// # Errors
    /// The file cannot be read or parsed; the message shows the line.
    pub fn read(path: &Path) -> Result<Written, ConfigError> {
        let text = fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        let wrong = |span, said: &str| ConfigError::Wrong(pointed(&path.display().to_string(), &text, span, said));
        if let Some((setting, span)) = misplaced(&text) {
            return Err(wrong(span, &ConfigError::Misplaced(setting).to_string()));
        }
        toml::from_str(&text).map_err(|error| wrong(error.span().unwrap_or(0..0), error.message()))
    }

    /// Checks all settings from flags and the file; an error in the file is shown with its location.
    ///
    /// # Errors
    /// Those of [`Written::read`] and [`Written::check`].
    pub fn into_config(self, config: Option<&Path>) -> Result<Config, ConfigError> {
        let own = self.dir.as_deref().unwrap_or(Path::new(DEFAULT_DIR)).join(FILE);
        let file = config.unwrap_or(&own).to_owned();
        self.with_file(config)?.check().map_err(|error| located(&file, error))
    }

    /// Merges the file into the flags, which take precedence. Without `config`, the directory's own file is read if it
    /// exists.
    ///
    /// # Errors
    /// See [`Written::read`].
    pub fn with_file(self, config: Option<&Path>) -> Result<Written, ConfigError> {
        let own = self.dir.as_deref().unwrap_or(Path::new(DEFAULT_DIR)).join(FILE);
        let file = match config {
            Some(path) => Written::read(path)?,
            None => match Written::read(&own) {
                Err(ConfigError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => Written::default(),
                read => read?,
            },
        };
        Ok(self.or(file))
    }

    fn or(self, file: Written) -> Written {
        Written {
            server: self.server.or(file.server),
            dir: self.dir.or(file.dir),
            name: self.name.or(file.name),
            cluster: self.cluster.or(file.cluster),
            topology: self.topology.or(file.topology),
            cpus: self.cpus.or(file.cpus),
            memory_mib: self.memory_mib.or(file.memory_mib),
            speed: self.speed.or(file.speed),
            scratch_mib: self.scratch_mib.or(file.scratch_mib),
            listen: self.listen.or(file.listen),
            advertise: self.advertise.or(file.advertise),
            features: self.features.or(file.features),
            devices: self.devices.or(file.devices),
            cgroup: self.cgroup.or(file.cgroup),
            cgroup_parent: self.cgroup_parent.or(file.cgroup_parent),
            warm_supervisors: self.warm_supervisors.or(file.warm_supervisors),
            spool_quota_mib: self.spool_quota_mib.or(file.spool_quota_mib),
            must_enforce: self.must_enforce.or(file.must_enforce),
            shrink_patience_ms: self.shrink_patience_ms.or(file.shrink_patience_ms),
        }
    }

    /// # Errors
    /// A setting is invalid; the message says what would be valid.
    pub fn check(self) -> Result<Config, ConfigError> {
        if let Some(server) = self.server.as_ref().filter(|server| !is_server(server)) {
            return Err(ConfigError::Server(server.clone()));
        }
        if let Some(name) = &self.name {
            check_name(name).map_err(ConfigError::Name)?;
        }
        let cluster = self.cluster.unwrap_or_else(|| "main".to_owned());
        check_name(&cluster).map_err(ConfigError::Cluster)?;
        let mut features = BTreeSet::new();
        for feature in self.features.unwrap_or_default() {
            check_name(&feature).map_err(ConfigError::Feature)?;
            if let Some(twice) = features.replace(feature) {
                return Err(ConfigError::FeatureTwice(twice));
            }
        }
        let devices = declared(self.devices)?;
        let must_enforce: BTreeSet<String> = self.must_enforce.unwrap_or_default().into_iter().collect();
        if let Some(unknown) = must_enforce.iter().find(|name| !ENFORCEABLE.contains(&name.as_str())) {
            return Err(ConfigError::MustEnforce(unknown.clone()));
        }
        let cpus = self.cpus.map(|text| cpulist::parse(&text)).transpose()?;
        if cpus.as_ref().is_some_and(|cpus| cpus.is_empty()) {
            return Err(ConfigError::NoCpus);
        }
        if self.memory_mib == Some(0) {
            return Err(ConfigError::NoMemory);
        }
        if let Some(memory_mib) = self.memory_mib.filter(|memory_mib| *memory_mib > MOST_MEMORY_MIB) {
            return Err(ConfigError::TooMuchMemory(memory_mib));
        }
        if self.spool_quota_mib == Some(0) {
            return Err(ConfigError::NoQuota);
        }
        let speed_milli = match self.speed {
            Some(speed) if !(0.001..=1000.0).contains(&speed) => return Err(ConfigError::Speed(speed)),
            speed => speed.map(|speed| (speed * 1000.0).round() as u32),
        };
        let listen = self.listen.map(|text| text.parse::<SocketAddr>().map_err(|_| ConfigError::Listen(text)));
        let listen = listen.transpose()?;
        let server = self.server.as_ref().and_then(|server| server.parse::<SocketAddr>().ok());
        if let (Some(listen), Some(server)) = (listen, server) {
            if listen.port() != 0 && server == listen {
                return Err(ConfigError::ServersPort { listen });
            }
            if !reaches(listen, server) {
                return Err(ConfigError::OtherFamily { listen, server });
            }
        }
        let advertise = self.advertise.map(|text| match text.parse::<IpAddr>() {
            Ok(ip) if ip.is_unspecified() => Err(ConfigError::AdvertiseAny(ip)),
            Ok(ip) => Ok(ip),
            Err(_) => Err(ConfigError::Advertise(text)),
        });
        let advertise = advertise.transpose()?;
        if let (Some(advertise), Some(listen)) = (advertise, listen)
            && listen.ip().is_loopback()
            && !advertise.is_loopback()
        {
            return Err(ConfigError::Unreachable { advertise, listen });
        }
        let cgroup_parent = self.cgroup_parent.unwrap_or_else(|| "limber".to_owned());
        let is_plain = |part: &str| !part.is_empty() && part != "." && part != "..";
        if !cgroup_parent.split('/').all(is_plain) {
            return Err(ConfigError::CgroupParent(cgroup_parent));
        }
        let n_warm = self.warm_supervisors.unwrap_or(2);
        if n_warm > 64 {
            return Err(ConfigError::Warm(n_warm));
        }
        let patience_ms = self.shrink_patience_ms;
        if let Some(patience_ms) = patience_ms.filter(|patience_ms| *patience_ms > MOST_PATIENCE_MS) {
            return Err(ConfigError::Patience(patience_ms));
        }
        let declared = self.topology.as_deref().map(Declared::parse).transpose()?;
        let cgroup = self.cgroup.map_or(Ok(CgroupMode::Auto), |kind| kind.parse())?;
        let memory = self.memory_mib.map(Mebibytes);
        let scratch = Mebibytes(self.scratch_mib.unwrap_or(0));
        Ok(Config {
            // Checked last: the server may come from a flag or a join, so other errors of the file are reported first.
            server: self.server.ok_or(ConfigError::NoServer)?,
            dir: self.dir.unwrap_or_else(|| PathBuf::from(DEFAULT_DIR)),
            name: self.name,
            cluster,
            overrides: Overrides { cpus, declared, memory, speed_milli, features, devices: devices.counts(), scratch },
            devices,
            listen,
            advertise,
            cgroup,
            cgroup_parent,
            n_warm: n_warm as usize,
            spool_quota_mib: self.spool_quota_mib,
            must_enforce,
            shrink_patience: patience_ms.map_or(SHRINK_PATIENCE, |ms| Span::from_millis(ms.into())),
        })
    }
}

/// Returns whether the text is `host:port` or `[IPv6]:port`.
fn is_server(text: &str) -> bool {
    let Some((node, port)) = text.rsplit_once(':') else { return false };
    let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
    let is_node = !node.is_empty() && (!node.contains(':') || text.parse::<SocketAddr>().is_ok());
    is_port && is_node
}

/// Returns whether packets can be sent to the server from a socket that listens there. A socket for any IPv6 address
/// accepts IPv4, too.
pub fn reaches(listen: SocketAddr, server: SocketAddr) -> bool {
    listen.is_ipv4() == server.is_ipv4() || (listen.is_ipv6() && listen.ip().is_unspecified())
}

/// Returns the default address to listen at, from which the server can be reached.
pub fn any_port(server: &SocketAddr) -> SocketAddr {
    match server {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

impl Config {
    /// Checks whether the agent can run with this configuration as this user on this machine.
    ///
    /// # Errors
    /// The directory exists and cannot be written.
    pub fn check_here(&self) -> Result<(), ConfigError> {
        let not_writable = |source| ConfigError::NotWritable { dir: self.dir.clone(), source };
        match access(&self.dir, AccessFlags::W_OK | AccessFlags::X_OK) {
            // `join` creates the directory.
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(errno) => Err(not_writable(errno.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(toml: &str) -> Result<Config, String> {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("agent.toml");
        fs::write(&path, toml).expect("a file");
        let error = |error: ConfigError| format!("{:#}", anyhow::Error::from(error));
        Written::default().into_config(Some(&path)).map_err(error)
    }

    #[test]
    fn defaults_need_only_a_server() {
        let config = written("server = 'head:7411'").expect("valid");
        assert_eq!((config.cluster.as_str(), config.n_warm), ("main", 2));
        assert_eq!(config.dir, Path::new(DEFAULT_DIR));
    }

    #[test]
    fn a_server_may_have_ipv6() {
        let config = written("server = '[::1]:7411'").expect("valid");
        assert_eq!((config.server.as_str(), config.listen), ("[::1]:7411", None));
        let config = written("server = '10.0.0.1:7411'\nlisten = '[::]:0'").expect("it takes IPv4, too");
        assert!(reaches(config.listen.expect("it was set"), "10.0.0.1:7411".parse().expect("an address")));
        assert_eq!(any_port(&"[::1]:7411".parse().expect("an address")).to_string(), "[::]:0");
    }

    #[test]
    fn flags_go_before_the_file() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join(FILE), "server = 'a:1'\ncluster = 'x'\n").expect("a file");
        let flags = Written { dir: Some(dir.path().to_owned()), cluster: Some("y".to_owned()), ..Written::default() };
        let config = flags.with_file(None).expect("readable").check().expect("valid");
        assert_eq!((config.server.as_str(), config.cluster.as_str()), ("a:1", "y"));
    }

    #[test]
    fn each_mistake_is_named_with_what_is_right() {
        for (toml, problem) in [
            ("", "no server is given"),
            ("speed = -1.0", "0.001 to 1000"),
            ("cgroup = 'v9'", "auto, v1, v2 or none"),
            ("must_enforce = ['cpu']", "cpus, memory"),
            ("server = 'head'", "write host:port"),
            ("server = 'h:1'\nserve = 1", "unknown field `serve`"),
            ("server = 'h:1'\ntopology = 'pack:0 core:1'", "'pack:0' needs a count"),
            ("server = 'h:1'\ncpus = 'x'", "not a list of CPUs"),
            ("server = 'h:1'\ncpus = ''", "name at least one CPU"),
            ("server = 'h:1'\nspeed = 0.0", "0.001 to 1000"),
            ("server = 'h:1'\nlisten = 'here'", "write ip:port"),
            ("server = 'h:1'\nadvertise = 'me'", "no IP address"),
            ("server = 'h:1'\ncgroup = 'v3'", "auto, v1, v2 or none"),
            ("server = 'h:1'\ncgroup_parent = '../x'", "without '..'"),
            ("server = 'h:1'\nfeatures = ['a b']", "'a b' is not a name"),
            ("server = 'h:1'\ndevices = 'gpu::2'", "does not name devices"),
            ("server = 'h:1'\ndevices = 'gpu:a:1,gpu:b:1'", "several types"),
            ("server = 'h:1'\ndevices = 7", "or as a table"),
            ("server = 'h:1'\ndevices = { gpu = ['nvidia0'] }", "nvidia0 is no absolute path"),
            ("server = 'h:1'\ndevices = { gpu = ['/dev/a', ['/dev/a']] }", "comes twice"),
            ("server = 'h:1'\ndevices = { gpu = ['/dev/a'], fpga = ['/dev/a'] }", "comes twice"),
            ("server = 'h:1'\ndevices = { gpu = ['/dev/null'] }", "/dev/null is what every program needs"),
            ("server = 'h:1'\ndevices = { 'g u' = 2 }", "does not name devices"),
            ("server = 'h:1'\ndevices = { gpu = 70000 }", "does not name devices"),
            ("server = 'h:1'\ndevices = { 'gpu:a' = 1, 'gpu:b' = ['/dev/b'] }", "say which file"),
            ("server = 'h:1'\nmust_enforce = ['cpu']", "cpus, memory or devices"),
            ("server = 'h:1'\nwarm_supervisors = 65", "0 to 64"),
            ("server = 'h:1'\nshrink_patience_ms = 60001", "0 to 60000"),
            ("server = 'h:1'\nmemory_mib = 0", "no memory"),
            ("server = 'h:1'\nspool_quota_mib = 0", "no room for output"),
            ("server = 'h:1'\ndevices = { gpu = [] }", "there is no gpu"),
            ("server = 'h:1'\ndevices = 'gpu:2,memory_mib:100'", "'memory_mib' is a setting of the agent"),
            ("server = 'h:1'\ndevices = 'none,gpu:2'", "without others"),
            ("server = 'h:1'\ndevices = { none = 1, gpu = 2 }", "without others"),
            ("server = 'h:1'\ndevices = { gpu = ['/dev/a', []] }", "a gpu has no file"),
            ("server = '10.0.0.1:7117'\nlisten = '10.0.0.1:7117'", "where the server listens"),
            ("server = 'h:1'\nlisten = '127.0.0.1:0'\nadvertise = '10.0.0.7'", "from this machine alone"),
            ("server = 'h:1'\nadvertise = '0.0.0.0'", "stands for any address"),
            ("server = '::1:7117'", "in brackets"),
            ("server = '[::1:7117'", "in brackets"),
            ("server = '[::1]:7117'\nlisten = '0.0.0.0:0'", "is IPv4: no packet"),
            ("server = '10.0.0.1:7117'\nlisten = '[::1]:0'", "set listen = \"0.0.0.0:0\""),
            ("server = 'h:1'\nfeatures = ['a', 'b', 'a']", "'a' twice"),
            ("server = 'h:1'\ndevices = 'gpu:a:1,gpu:a:2'", "gpu:a twice"),
            ("server = 'h:1'\nmemory_mib = 68719476736", "more than a node has"),
        ] {
            let error = written(toml).expect_err(toml);
            assert!(error.contains(problem), "{toml}: {error}");
            // As in the server's errors: file, line and column, and the place itself.
            let is_pointed_at = error.contains("agent.toml:") && error.contains('^');
            assert!(toml.is_empty() || is_pointed_at, "{toml}: {error}");
        }
        let error = written("server = 'h:1'\nspeed = 0.0\n").expect_err("no speed");
        assert!(error.ends_with("2 | speed = 0.0\n  |         ^^^"), "{error}");
        for setting in ["memory_mib = 100", "cgroup = 'v1'", "features = ['a']"] {
            let error = written(&format!("server = 'h:1'\n[devices]\ngpu = 2\n{setting}\n")).expect_err(setting);
            let key = setting.split(' ').next().unwrap_or_default();
            assert!(error.contains("agent.toml:4:1: ") && error.contains("above [devices]"), "{error}");
            assert!(error.ends_with(&format!("4 | {setting}\n  | {}", "^".repeat(key.len()))), "{error}");
        }
        assert!(written("server = 'h:1'\nserve = 1").expect_err("unknown").contains('^'), "the place is shown");
    }
}
