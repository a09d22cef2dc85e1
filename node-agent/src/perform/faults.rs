//! Tells the server when the node can start no job, and ends jobs that leave too much in the spool.

use std::time::Instant;

use super::Node;
use crate::order::ToSupervisor;
use crate::spool;

impl Node {
    /// Looks at what no event tells: the disk, what jobs have left on it, and processes that do not die.
    pub(super) fn look(&mut self) {
        self.trouble.look(Instant::now());
        self.tell_trouble();
        if spool::is_out_of_room(self.setup.spool.dir(), false) {
            self.shares
                .all()
                .iter()
                .filter(|share| !share.has_ended())
                .for_each(|share| share.tell(&ToSupervisor::SpoolFull));
        }
        let most = self.setup.spool_quota.unwrap_or_else(|| spool::share_of_disk(self.setup.spool.dir()));
        for share in self.shares.all().iter().filter(|share| !share.has_ended()) {
            let keys = self.setup.spool.keys_dir().join(spool::entry_name(share.job(), share.run()));
            let n_bytes = spool::bytes_in(share.entry_dir()).saturating_add(spool::bytes_in(&keys));
            if n_bytes > most && share.violate() {
                let most = most >> 20;
                let reason = match n_bytes {
                    u64::MAX => format!(
                        "it has more than {} files in the spool; write to files of your own (-o)",
                        spool::MOST_ENTRIES
                    ),
                    _bytes => format!(
                        "its output and files in the spool take more than spool_quota_mib = {most}; write to a file (-o)"
                    ),
                };
                share.tell(&ToSupervisor::Violated { reason });
            }
        }
    }

    /// Says whether the node can start jobs, when that is news.
    pub(super) fn tell_trouble(&mut self) {
        let reason = self.trouble.reason();
        let Some(reporter) = self.reporter.as_ref().filter(|_| reason != self.told) else { return };
        match &reason {
            Some(reason) => tracing::error!(reason, "no job can start here; the node asks to be drained"),
            None => tracing::info!("jobs can start here again"),
        }
        reporter.trouble(reason.as_deref());
        self.told = reason;
    }

    /// Starts fail here for no reason of the jobs.
    pub(super) fn fault(&mut self, reason: &str) {
        tracing::error!(reason, "a job could not be started, and it was not its own fault");
        self.trouble.fault(reason, Instant::now());
        self.trouble.look(Instant::now());
        self.tell_trouble();
    }
}
