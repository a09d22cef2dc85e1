//! Parses the configuration file: its keys, their defaults, and errors with their position.

mod problem;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use rms_model::settings::SettingError;
use rms_model::{Settings, Span};
use serde::Deserialize;
use toml::Spanned;

pub use self::problem::ConfigError;
use crate::journal::SnapshotPolicy;
use crate::reach::{advertised_address, is_advertisable};

/// Everything that an admin can set before the server starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    pub listen: SocketAddr,
    /// The address that others connect to, as `HOST` or `HOST:PORT`; found by [`crate::reach::advertised_address`] if
    /// absent.
    pub advertise: Option<String>,
    /// The local socket; found by [`run`](crate::run::run) if absent.
    pub socket: Option<PathBuf>,
    /// Initial values: values changed by `rms admin set` are in the journal and take precedence.
    pub settings: Settings,
    /// The settings that the file names; the others have their built-in values.
    pub named: BTreeSet<String>,
    pub certificate_life: Span,
    pub snapshot: SnapshotPolicy,
    pub limits: LinkLimits,
}

/// Limits on the resources that peers may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkLimits {
    /// Live links in total.
    pub links: usize,
    /// Live links of one user or admin.
    pub links_per_user: usize,
    /// Calls of one link that are served at once; more of them wait in the transport.
    pub calls_per_link: usize,
    /// Join attempts, and renewals, per second in total.
    pub joins_per_second: u32,
}

/// A file with every value commented out at its default: the output of `rms-server print-config`.
pub const DEFAULTS: &str = include_str!("../../deploy/rms-server.toml");

/// Port 7117 is unassigned in the lists of well-known services.
pub const DEFAULT_LISTEN: &str = "0.0.0.0:7117";

impl Default for ServerConfig {
    fn default() -> ServerConfig {
        ServerConfig {
            listen: SocketAddr::from(([0, 0, 0, 0], 7117)),
            advertise: None,
            socket: None,
            settings: Settings::default(),
            named: BTreeSet::new(),
            certificate_life: Span::from_hours(24 * 90),
            snapshot: SnapshotPolicy::default(),
            limits: LinkLimits::default(),
        }
    }
}

impl Default for LinkLimits {
    fn default() -> LinkLimits {
        LinkLimits { links: 20_000, links_per_user: 256, calls_per_link: 256, joins_per_second: 50 }
    }
}

/// Reads and checks a file.
///
/// # Errors
/// An unreadable file, or an error in it, with its line, a caret and what was expected.
pub fn load(path: &Path) -> Result<ServerConfig, ConfigError> {
    let source =
        std::fs::read_to_string(path).map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
    parse(&path.display().to_string(), &source)
}

/// Parses and checks the text of a file, which messages call `name`.
///
/// # Errors
/// See [`load`].
pub fn parse(name: &str, source: &str) -> Result<ServerConfig, ConfigError> {
    let text: Text = toml::from_str(source).map_err(|error| ConfigError::of_toml(name, source, &error))?;
    let wrong = |span, message: String| ConfigError::at(name, source, span, message);
    let mut config = ServerConfig::default();
    if let Some(listen) = &text.listen {
        config.listen = listen.get_ref().parse().map_err(|_| {
            let message =
                format!("'{}' is not an address: write IP:PORT, as in \"{DEFAULT_LISTEN}\"", listen.get_ref());
            wrong(listen.span(), message)
        })?;
    }
    if let Some(advertise) = text.advertise.as_ref().filter(|advertise| !advertise.get_ref().is_empty()) {
        if !is_advertisable(advertise.get_ref()) {
            let message = format!(
                "'{}' leads nowhere: write a host name or an address of this machine, with a port or without, as in \
                 \"head.example.org\"",
                advertise.get_ref()
            );
            return Err(wrong(advertise.span(), message));
        }
        let leads_elsewhere = advertised_address(Some(advertise.get_ref()), config.listen)
            .parse::<SocketAddr>()
            .map_or(!advertise.get_ref().starts_with("localhost"), |address| !address.ip().is_loopback());
        if config.listen.ip().is_loopback() && leads_elsewhere {
            let message = format!(
                "'{}' leads to other machines, but listen = \"{}\" is reached from this one alone",
                advertise.get_ref(),
                config.listen
            );
            return Err(wrong(advertise.span(), message));
        }
        config.advertise = Some(advertise.get_ref().clone());
    }
    if let Some(socket) = text.socket.as_ref().filter(|socket| !socket.get_ref().as_os_str().is_empty()) {
        if !socket.get_ref().is_absolute() {
            let message = format!("'{}' is not a whole path: begin it with /", socket.get_ref().display());
            return Err(wrong(socket.span(), message));
        }
        let name_bytes = socket.get_ref().file_name().map_or(0, |name| name.len());
        if name_bytes > MAX_SOCKET_NAME {
            let message =
                format!("the name of the socket has {name_bytes} bytes: at most {MAX_SOCKET_NAME} can be used");
            return Err(wrong(socket.span(), message));
        }
        config.socket = Some(socket.get_ref().clone());
    }
    for (key, value) in &text.settings {
        if let Some((setting, _)) = key.get_ref().split_once('@') {
            let message = format!(
                "this file has the {setting} of all; that of one cluster or user is set by 'rms admin set {} VALUE'",
                key.get_ref()
            );
            return Err(wrong(key.span(), message));
        }
        config.settings.set(key.get_ref(), &value.get_ref().0).map_err(|error| {
            let is_of_key = matches!(error, SettingError::Unknown(_));
            wrong(if is_of_key { key.span() } else { value.span() }, error.to_string())
        })?;
        config.named.insert(key.get_ref().clone());
    }
    if let Err(error) = config.settings.check() {
        // The error points at whichever of the two is in the file.
        let key = match &error {
            SettingError::Contradiction { key, other, .. } => [*key, *other],
            SettingError::Unknown(_)
            | SettingError::NotOwn { .. }
            | SettingError::Span(_)
            | SettingError::Value { .. } => ["", ""],
        };
        let span = key.into_iter().filter_map(|key| text.settings.get(key)).map(Spanned::span).next_back();
        return Err(wrong(span.unwrap_or(0..0), error.to_string()));
    }
    if let Some(life) = &text.certificates.life {
        config.certificate_life = life.get_ref().parse().map_err(|error| wrong(life.span(), format!("{error}")))?;
        let is_sane = (MIN_LIFE..=MAX_LIFE).contains(&config.certificate_life);
        if !is_sane {
            let message = format!("a certificate lives from {MIN_LIFE} to {MAX_LIFE}, not {}", config.certificate_life);
            return Err(wrong(life.span(), message));
        }
    }
    let at_least_one = |value: &Option<Spanned<u64>>, default: u64| match value {
        None => Ok(default),
        Some(value) if *value.get_ref() == 0 => Err(wrong(value.span(), "expected a number of at least 1".to_owned())),
        Some(value) => Ok(*value.get_ref()),
    };
    let limit = |value: &Option<Spanned<u64>>, default: usize| match value {
        Some(value) if *value.get_ref() > MAX_LIMIT => {
            Err(wrong(value.span(), format!("expected a number of at most {MAX_LIMIT}")))
        }
        Some(_) | None => Ok(at_least_one(value, default as u64)? as usize),
    };
    config.snapshot.facts = at_least_one(&text.journal.snapshot_facts, config.snapshot.facts)?;
    config.snapshot.bytes = at_least_one(&text.journal.snapshot_mib, config.snapshot.bytes / MIB)?.saturating_mul(MIB);
    let limits = &mut config.limits;
    limits.links = limit(&text.limits.links, limits.links)?;
    limits.links_per_user = limit(&text.limits.links_per_user, limits.links_per_user)?;
    limits.calls_per_link = limit(&text.limits.calls_per_link, limits.calls_per_link)?;
    if limits.links_per_user > limits.links {
        let message = format!(
            "links_per_user = {} cannot hold together with links = {}: one user is among all",
            limits.links_per_user, limits.links
        );
        let span = text.limits.links_per_user.as_ref().or(text.limits.links.as_ref()).map_or(0..0, Spanned::span);
        return Err(wrong(span, message));
    }
    limits.joins_per_second = limit(&text.limits.joins_per_second, limits.joins_per_second as usize)? as u32;
    Ok(config)
}

const MIB: u64 = 1024 * 1024;
/// The most that a limit of links, calls or joins may be set to.
const MAX_LIMIT: u64 = 1_000_000;
/// The system takes 107 bytes of a socket's address, and the directory needs some of them, however long its path is.
const MAX_SOCKET_NAME: usize = 80;
const MIN_LIFE: Span = Span::from_hours(1);
const MAX_LIFE: Span = Span::from_hours(24 * 3650);

/// The file before its values are checked.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Text {
    listen: Option<Spanned<String>>,
    advertise: Option<Spanned<String>>,
    socket: Option<Spanned<PathBuf>>,
    settings: BTreeMap<Spanned<String>, Spanned<Scalar>>,
    certificates: CertificatesText,
    journal: JournalText,
    limits: LimitsText,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct CertificatesText {
    life: Option<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct JournalText {
    snapshot_facts: Option<Spanned<u64>>,
    snapshot_mib: Option<Spanned<u64>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LimitsText {
    links: Option<Spanned<u64>>,
    links_per_user: Option<Spanned<u64>>,
    calls_per_link: Option<Spanned<u64>>,
    joins_per_second: Option<Spanned<u64>>,
}

/// A value of a setting, in the form that `rms admin set` takes; a number needs no quotes.
#[derive(Debug)]
struct Scalar(String);

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Scalar, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Scalar;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a quoted string or a number")
            }

            fn visit_str<E>(self, text: &str) -> Result<Scalar, E> {
                Ok(Scalar(text.to_owned()))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Scalar, E> {
                Ok(Scalar(number.to_string()))
            }

            fn visit_f64<E>(self, number: f64) -> Result<Scalar, E> {
                Ok(Scalar(number.to_string()))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use rms_model::settings::{Depth, KEYS};

    use super::*;

    fn check(source: &str, expected: &str) {
        let error = parse("rms-server.toml", source).expect_err("a wrong file");
        assert_eq!(error.to_string(), expected.trim_start_matches('\n'), "\n{error}");
    }

    #[test]
    fn the_printed_defaults_are_the_defaults() {
        assert_eq!(parse("defaults", DEFAULTS).expect("the comments"), ServerConfig::default());
        // Each commented value, uncommented, is still the default.
        let switched_on: String = DEFAULTS
            .lines()
            .map(|line| match line.strip_prefix("# ") {
                Some(rest) if rest.contains(" = ") => format!("{rest}\n"),
                Some(_) | None => format!("{line}\n"),
            })
            .collect();
        let parsed = parse("defaults", &switched_on).expect("the values");
        assert_eq!(parsed, ServerConfig { named: parsed.named.clone(), ..ServerConfig::default() });
        for key in KEYS {
            assert!(switched_on.contains(&format!("\n{key} = ")), "{key} is not documented");
        }
    }

    #[test]
    fn a_file_sets_what_it_names_and_leaves_the_rest() {
        let source = "listen = '127.0.0.1:0'\n[settings]\nfair_start = '10s'\nqueue_depth = 50\nmax_wall = '1h'\nsharing_factor = 0.75\n";
        let config = parse("f", source).expect("a right file");
        assert_eq!(config.listen, SocketAddr::from(([127, 0, 0, 1], 0)));
        assert_eq!(config.settings.fair_start, Span::from_secs(10));
        assert_eq!(config.settings.queue_depth, Depth::First(50));
        assert_eq!(config.settings.max_wall, Span::from_hours(1));
        assert_eq!(config.settings.sharing.sharing_factor.to_string(), "0.75");
        assert_eq!(config.settings.kill_grace, Settings::default().kill_grace);
        assert!(config.named.contains("max_wall") && !config.named.contains("kill_grace"));
    }

    #[test]
    fn a_limit_beyond_all_reason_is_refused() {
        let refused = |line: &str| parse("f", &format!("[limits]\n{line}\n")).expect_err(line).to_string();
        for line in ["links = 1000001", "links_per_user = 0", "calls_per_link = 18446744073709551615"] {
            let expected = if line.ends_with(" 0") { "at least 1" } else { "at most 1000000" };
            assert!(refused(line).contains(expected), "{}", refused(line));
        }
    }

    #[test]
    fn a_wrong_duration_is_pointed_at() {
        check(
            "[settings]\nfair_start = \"soon\"\n",
            r#"
rms-server.toml:2:14: 'soon' is not a duration: write 90s, 1h30m, 2d, 250ms, MM:SS, HH:MM:SS or D-HH:MM:SS
  |
2 | fair_start = "soon"
  |              ^^^^^^"#,
        );
    }

    #[test]
    fn an_unknown_key_is_pointed_at_with_the_known_ones() {
        let error = parse("f.toml", "[settings]\nfair_strat = \"1s\"\n").expect_err("no setting").to_string();
        assert!(
            error.starts_with("f.toml:2:1: there is no setting 'fair_strat'; the settings are fair_start, "),
            "{error}"
        );
        assert!(error.ends_with("\n  |\n2 | fair_strat = \"1s\"\n  | ^^^^^^^^^^"), "{error}");
        let error = parse("f.toml", "[settings]\n'price@a' = 7\n").expect_err("not here").to_string();
        assert!(error.contains("is set by 'rms admin set price@a VALUE'"), "{error}");
    }

    #[test]
    fn broken_toml_is_pointed_at() {
        let error = parse("f.toml", "listen = \n").expect_err("no value").to_string();
        assert!(error.starts_with("f.toml:1:"), "{error}");
        assert!(error.contains("\n1 | listen = \n"), "{error}");
    }

    #[test]
    fn an_address_without_a_port_is_pointed_at() {
        check(
            "listen = \"localhost\"\n",
            r#"
rms-server.toml:1:10: 'localhost' is not an address: write IP:PORT, as in "0.0.0.0:7117"
  |
1 | listen = "localhost"
  |          ^^^^^^^^^^^"#,
        );
    }

    #[test]
    fn values_that_cannot_hold_together_are_pointed_at() {
        check(
            "[settings]\ndefault_wall = \"2h\"\nmax_wall = \"1h\"\n",
            r#"
rms-server.toml:3:12: default_wall = 2h cannot hold together with max_wall = 1h: every job that names no wall time would be refused
  |
3 | max_wall = "1h"
  |            ^^^^"#,
        );
        let wrong = |text: &str| parse("f", text).expect_err("a contradiction").to_string();
        assert!(wrong("[settings]\nmax_wall = '10m'\n").contains("f:2:12: default_wall = 1h cannot hold"));
        assert!(wrong("[limits]\nlinks = 10\n").contains("f:2:9: links_per_user = 256 cannot hold"));
        assert!(wrong("listen = '127.0.0.1:1'\nadvertise = 'head'\n").contains("f:2:13: 'head' leads to other"));
        assert!(parse("f", "listen = '127.0.0.1:1'\nadvertise = 'localhost'\n").is_ok());
        assert!(wrong("advertise = '0.0.0.0'\n").contains("'0.0.0.0' leads nowhere"));
        assert!(wrong("socket = 'run/socket'\n").contains("f:1:10: 'run/socket' is not a whole path"));
        let named = |n_bytes: usize| format!("socket = '/run/{}'\n", "s".repeat(n_bytes));
        assert!(wrong(&named(81)).contains("at most 80"));
        parse("f", &named(80)).expect("right");
        assert_eq!(parse("f", "socket = '/run/s'\n").expect("right").socket, Some("/run/s".into()));
    }

    #[test]
    fn zero_limits_and_silly_lives_are_pointed_at() {
        check(
            "[limits]\n\nlinks = 0\n",
            r"
rms-server.toml:3:9: expected a number of at least 1
  |
3 | links = 0
  |         ^",
        );
        let error = parse("f", "[certificates]\nlife = '1s'").expect_err("too short").to_string();
        assert!(error.contains("a certificate lives from 1h to 3650d, not 1s"), "{error}");
    }
}
