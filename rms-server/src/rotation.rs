//! Who has not renewed since the last step in the change to another certificate authority.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use rms_model::{Identity, Time};
use rms_wire::tls::{Authority, Rotation};

use crate::dir::DataDir;
use crate::journal::{OpenError, Past};

/// Those whose newest valid certificate is older than the last step: they do not trust the new CA yet, or were signed by
/// the old one. Nobody, where no change is under way.
///
/// # Errors
/// A journal that cannot be read.
pub fn behind(dir: &DataDir) -> Result<Vec<Identity>, OpenError> {
    let mark = match Authority::rotation(&dir.authority()) {
        Rotation::None => return Ok(Vec::new()),
        Rotation::Begun => "next.pem",
        Rotation::Switched => "old.pem",
    };
    let path = dir.authority().join(mark);
    let written = path.metadata().and_then(|found| found.modified());
    let written = written.map_err(|source| OpenError::Read { path, source })?;
    let since = written.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_millis());
    let time = |millis: u128| Time::from_millis(i64::try_from(millis).unwrap_or(i64::MAX));
    let (since, now) = (time(since), time(now));
    let mut newest: BTreeMap<Identity, Time> = BTreeMap::new();
    for issued in Past::read(&dir.journal())?.state.certificates() {
        if issued.revoked.is_none() && issued.expires > now {
            let known = newest.entry(issued.identity.clone()).or_insert(issued.issued);
            *known = issued.issued.max(*known);
        }
    }
    Ok(newest.into_iter().filter(|(_, issued)| *issued < since).map(|(identity, _)| identity).collect())
}
