//! Restores the core from the journal, and applies the configuration file.

use std::path::Path;

use rms_api::answer::Answer;
use rms_api::audit::AuditEntry;
use rms_api::{Call, Query};
use rms_core::effect::Effect;
use rms_core::{ApplyError, CommitError, Config, Event, Fact, Rms, ServerLoop, State, Step, Ticket};
use rms_model::settings::KEYS;
use rms_model::{Identity, Role};
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
    let mut step = Step::default();
    // Twice: a value may contradict the old value of a setting that the file changes further down.
    for (nth, key) in KEYS.into_iter().chain(KEYS).enumerate() {
        let (Ok(wanted), Ok(current)) = (config.settings.get(key), rms.state().settings().get(key)) else { continue };
        if wanted == current {
            continue;
        }
        if changed_by_admins.iter().any(|changed| changed == key) {
            if nth < KEYS.len() {
                tracing::info!("{key} stays {current}, set by 'rms admin set'; the configuration file says {wanted}");
            }
            continue;
        }
        let call = Call::Set { key: key.to_owned(), value: wanted };
        step.merge(rms.handle(now, Event::Called { ticket: BOOT, who: file(), call }));
    }
    for effect in commit(step, &mut storage)? {
        if let Effect::Answer { answer: Err(refusal), ticket: _ } = effect {
            tracing::warn!("the configuration file: {refusal}");
        }
    }
    Ok((ServerLoop::new(rms, Step::default()), storage, clock))
}

/// Returns the settings whose last change was made at run time.
fn changed_by_admins(rms: &mut Rms, storage: &mut Storage, now: rms_model::Time) -> Result<Vec<String>, BootError> {
    let audit = Event::Called { ticket: BOOT, who: file(), call: Call::Query(Query::Audit) };
    let step = rms.handle(now, audit);
    let mut last_by: std::collections::BTreeMap<String, String> = std::collections::BTreeMap::new();
    for effect in commit(step, storage)? {
        if let Effect::Answer { answer: Ok(Answer::Audit(changes)), ticket: _ } = effect {
            let mut changes = changes;
            changes.sort_by_key(|change| change.at);
            let set = changes.into_iter().filter(AuditEntry::is_setting);
            last_by.extend(set.map(|change| (change.subject, change.by)));
        }
    }
    Ok(last_by.into_iter().filter(|(_, by)| by != FROM_FILE).map(|(key, _)| key).collect())
}

fn commit(step: Step, storage: &mut Storage) -> Result<Vec<Effect>, BootError> {
    step.commit(storage).map_err(|CommitError { step: _, error }| BootError::Commit(error))
}

fn file() -> Identity {
    Identity { role: Role::Admin, name: FROM_FILE.to_owned() }
}

/// The ticket of the server's own calls: nobody waits for their answers.
const BOOT: Ticket = Ticket(0);
