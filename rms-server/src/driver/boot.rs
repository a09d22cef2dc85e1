//! Brings the core back as it was, and what the configuration file says into force.

use std::path::Path;

use rms_api::answer::Answer;
use rms_api::audit::AuditEntry;
use rms_api::{Call, Query};
use rms_core::effect::Effect;
use rms_core::{Config, Event, Fact, Misfit, Rms, ServerLoop, State, Step, Ticket, Uncommitted};
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
    /// Each fact is whole, but they do not fit together: the journal is not of one piece, or there is a bug.
    #[error("the facts in the journal contradict each other: restore the data directory from a backup")]
    Misfit(#[from] Misfit),
    #[error("cannot start")]
    Commit(#[source] AppendError),
    #[error("no thread for the driver")]
    Thread(#[source] std::io::Error),
}

/// In the audit, the name behind changes that came from the file. No user can have it: it has spaces.
const FROM_FILE: &str = "the configuration file";

/// The core starts with the built-in settings; the file's are changes to them, as facts, so that a replay gives
/// the same settings whatever the file says by then.
pub fn core_config(config: &ServerConfig) -> Config {
    Config { certificate_life: config.certificate_life, ..Config::default() }
}

/// Replays the journal and makes durable what became true by the restart itself.
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
    rms.state().untried_serials().for_each(|serial| registry.await_use(serial));

    let mut clock = Clock::start();
    let now = clock.now();
    let mut storage = Storage::new(log);
    let step = rms.boot(now);
    commit(step, &mut storage)?;
    let changed_by_admins = changed_by_admins(&mut rms, &mut storage, now)?;
    let mut step = Step::default();
    // Twice: a value may contradict another that the file changes, too, further down.
    for key in KEYS.into_iter().chain(KEYS) {
        let (Ok(wanted), Ok(current)) = (config.settings.get(key), rms.state().settings().get(key)) else { continue };
        if wanted == current {
            continue;
        }
        if changed_by_admins.iter().any(|changed| changed == key) {
            tracing::info!("{key} stays {current}, set by 'rms admin set'; the configuration file says {wanted}");
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

/// The settings that were last changed by somebody at run time.
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
    step.commit(storage).map_err(|Uncommitted { step: _, error }| BootError::Commit(error))
}

fn file() -> Identity {
    Identity { role: Role::Admin, name: FROM_FILE.to_owned() }
}

/// Nobody waits for the answers to what the server asks itself.
const BOOT: Ticket = Ticket(0);
