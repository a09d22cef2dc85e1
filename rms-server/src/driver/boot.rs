//! Restores the core from the journal, and applies the configuration file.

use std::collections::BTreeMap;
use std::path::Path;

use rms_api::answer::Answer;
use rms_api::audit::AuditEntry;
use rms_api::{Call, Query};
use rms_core::effect::Effect;
use rms_core::{ApplyError, CommitError, Config, Event, Fact, Rms, ServerLoop, State, Step, Ticket};
use rms_model::settings::{AS_OTHERS, KEYS};
use rms_model::{Identity, Role, Time};
use thiserror::Error;

use super::storage::Storage;
use crate::clock::Clock;
use crate::config::ServerConfig;
use crate::journal::{AppendError, FactLog};
use crate::open_error::OpenError;
use crate::registry::Registry;

/// Why the core cannot be started.
#[derive(Debug, Error)]
pub enum BootError {
    #[error(transparent)]
    Journal(#[from] OpenError),
    /// Each fact is intact, but they contradict each other: the journal was put together from parts, or there is a bug.
    #[error("the facts in the journal contradict each other: restore the data directory from a backup")]
    ApplyError(#[from] ApplyError),
    #[error("cannot start")]
    Commit(#[source] AppendError),
    #[error("cannot start the driver's thread")]
    Thread(#[source] std::io::Error),
}

/// The author of changes from the file, in the audit. No user can have this name: it has spaces.
const FROM_FILE: &str = "the configuration file";

/// Returns the core's configuration, with the built-in settings. Settings of the file are recorded as changes to them,
/// so that a replay gives the same settings even if the file has changed.
pub fn core_config(config: &ServerConfig) -> Config {
    Config { certificate_life: config.certificate_life, ..Config::default() }
}

/// Replays the journal, and commits the facts that the restart itself causes.
pub fn boot(
    journal: &Path,
    core_config: &Config,
    config: &ServerConfig,
    registry: &Registry,
) -> Result<(ServerLoop, Storage, Clock), BootError> {
    let started = std::time::Instant::now();
    let restore = |snapshot: Option<State>, facts: &mut dyn Iterator<Item = Fact>| {
        Rms::restore(core_config.clone(), snapshot, facts)
    };
    let (log, restored) = FactLog::open(journal, config.snapshot, restore)?;
    let mut rms = restored?;
    let (n_jobs, n_nodes) = (rms.state().jobs().len(), rms.state().nodes().len());
    tracing::info!(facts = log.last_seq(), jobs = n_jobs, nodes = n_nodes, took = ?started.elapsed(), "restored");
    registry.restore_revoked(rms.state().revoked_serials().map(str::to_owned));
    rms.state().unused_serials().for_each(|serial| registry.await_use(serial));

    let mut clock = Clock::start();
    let now = clock.now();
    let mut storage = Storage::new(log);
    let step = rms.boot(now);
    commit(step, &mut storage)?;
    let changed_by_admins = changed_by_admins(&mut rms, &mut storage, now)?;
    let remarks = apply_file(&mut rms, &mut storage, config, &changed_by_admins, now)?;
    remarks.kept.iter().for_each(|kept| tracing::info!("{kept}"));
    remarks.refused.iter().for_each(|refused| tracing::warn!("{refused}"));
    Ok((ServerLoop::new(rms, Step::default()), storage, clock))
}

/// What the log says of settings for which the file does not count.
#[derive(Debug, Default, PartialEq, Eq)]
struct Remarks {
    /// Set by an admin.
    kept: Vec<String>,
    /// Contradicts another setting.
    refused: Vec<String>,
}

/// Changes the settings to the values of the file, except for those that admins have changed.
fn apply_file(
    rms: &mut Rms,
    storage: &mut Storage,
    config: &ServerConfig,
    changed_by_admins: &[String],
    now: Time,
) -> Result<Remarks, BootError> {
    let is_by_admin = |key: &str| changed_by_admins.iter().any(|changed| changed == key);
    let mut step = Step::default();
    // Twice: a value may contradict the old value of a setting that the file changes further down.
    for key in KEYS.into_iter().chain(KEYS).filter(|key| !is_by_admin(key)) {
        if let Some((wanted, _)) = differing(rms, config, key) {
            step.merge(rms.handle(now, setting(key, wanted)));
        }
    }
    commit(step, storage)?;
    let mut remarks = Remarks::default();
    for key in KEYS {
        let Some((wanted, current)) = differing(rms, config, key) else { continue };
        if is_by_admin(key) {
            if config.named.contains(key) {
                let by_admin = format!("{key} stays {current}, set by 'rms admin set'");
                remarks.kept.push(format!("{by_admin}; the configuration file says {wanted}"));
            }
            continue;
        }
        let of = if config.named.contains(key) { "the configuration file" } else { "the built-in defaults" };
        // Asked once more, for the answer.
        let asked = rms.handle(now, setting(key, wanted.clone()));
        for effect in commit(asked, storage)? {
            if let Effect::Answer { answer: Err(refusal), ticket: _ } = effect {
                remarks.refused.push(format!("{key} stays {current}: the {wanted} of {of} is refused: {refusal}"));
            }
        }
    }
    Ok(remarks)
}

/// Returns the value of the file, or the built-in one if it names none, and the current one, if they differ.
fn differing(rms: &Rms, config: &ServerConfig, key: &str) -> Option<(String, String)> {
    let (wanted, current) = (config.settings.get(key).ok()?, rms.state().settings().get(key).ok()?);
    (wanted != current).then_some((wanted, current))
}

fn setting(key: &str, value: String) -> Event {
    Event::Called { ticket: BOOT, who: file(), call: Call::Set { key: key.to_owned(), value } }
}

/// Returns the settings whose last change was made at run time, and did not give them back to the file.
fn changed_by_admins(rms: &mut Rms, storage: &mut Storage, now: Time) -> Result<Vec<String>, BootError> {
    let audit = Event::Called { ticket: BOOT, who: file(), call: Call::Query(Query::Audit) };
    let step = rms.handle(now, audit);
    let mut last: BTreeMap<String, AuditEntry> = BTreeMap::new();
    for effect in commit(step, storage)? {
        if let Effect::Answer { answer: Ok(Answer::Audit(changes)), ticket: _ } = effect {
            let mut changes = changes;
            changes.sort_by_key(|change| change.at);
            let set = changes.into_iter().filter(AuditEntry::is_setting);
            last.extend(set.map(|change| (change.subject.clone(), change)));
        }
    }
    let is_by_admin = |change: &AuditEntry| change.by != FROM_FILE && change.new != AS_OTHERS;
    Ok(last.into_iter().filter(|(_, change)| is_by_admin(change)).map(|(key, _)| key).collect())
}

fn commit(step: Step, storage: &mut Storage) -> Result<Vec<Effect>, BootError> {
    step.commit(storage).map_err(|CommitError { step: _, error }| BootError::Commit(error))
}

fn file() -> Identity {
    Identity { role: Role::Admin, name: FROM_FILE.to_owned() }
}

/// The ticket of the server's own calls: nobody waits for their answers.
const BOOT: Ticket = Ticket(0);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;

    fn set(rms: &mut Rms, storage: &mut Storage, key: &str, value: &str) {
        let who = Identity { role: Role::Admin, name: "ada".to_owned() };
        let call = Call::Set { key: key.to_owned(), value: value.to_owned() };
        let step = rms.handle(Time::from_secs(1), Event::Called { ticket: BOOT, who, call });
        commit(step, storage).expect("it is written");
    }

    #[test]
    fn the_log_names_what_the_file_says_in_vain_and_nothing_else() {
        let dir = tempfile::tempdir().expect("a directory");
        let log = FactLog::create(&dir.path().join("journal"), Default::default()).expect("a journal");
        let (mut rms, mut storage) = (Rms::new(Config::default()), Storage::new(log));
        for (key, value) in [("fair_start", "9s"), ("kill_grace", "20s"), ("default_wall", "2h"), ("max_wall", "3h")] {
            set(&mut rms, &mut storage, key, value);
        }
        set(&mut rms, &mut storage, "kill_grace", "default");
        set(&mut rms, &mut storage, "max_wall", "default");
        let text = "[settings]\nfair_start = '5s'\nkill_grace = '40s'\nmax_wall = '90m'\n";
        let config = parse("f", text).expect("a right file");
        let now = Time::from_secs(2);
        let by_admins = changed_by_admins(&mut rms, &mut storage, now).expect("an audit");
        assert_eq!(by_admins, ["default_wall", "fair_start"]);
        let remarks = apply_file(&mut rms, &mut storage, &config, &by_admins, now).expect("it is written");
        let kept = "fair_start stays 9s, set by 'rms admin set'; the configuration file says 5s";
        // The file does not name default_wall.
        assert_eq!(remarks.kept, [kept]);
        let [refused] = remarks.refused.as_slice() else { panic!("{remarks:?}") };
        assert!(refused.contains("the 1h30m of the configuration file is refused"), "{refused}");
        assert!(refused.starts_with("max_wall stays ") && refused.contains("default_wall"), "{refused}");
        let settings = rms.state().settings();
        assert_eq!(settings.get("kill_grace").as_deref(), Ok("40s"), "it was given back to the file");
    }
}
