//! Polls what no event reports: the disk, what jobs have left on it, and processes that cannot be killed.

use nix::sys::signal::{Signal, kill};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::Pid;
use rms_core::node_loop::{Disk, Look};
use rms_model::JobId;

use crate::setup::Setup;
use crate::share::{Share, Shares};
use crate::spool;
use crate::supervisor::tree;

/// Polls the node. It reads the directories of all running jobs, so it may take a while.
pub fn look(setup: &Setup, shares: &Shares, mut unkillable: Vec<i32>) -> Look {
    let dir = setup.spool.dir();
    unkillable.retain(|pid| !tree::is_dead(Pid::from_raw(*pid)));
    let most = setup.spool_quota.unwrap_or_else(|| spool::share_of_disk(dir));
    let mut violations = Vec::new();
    for share in shares.all().iter().filter(|share| !share.has_ended()) {
        let keys = setup.spool.keys_dir().join(spool::entry_name(share.job(), share.run()));
        let n_bytes = spool::bytes_in(share.entry_dir()).saturating_add(spool::bytes_in(&keys));
        if n_bytes > most {
            violations.push(((share.job(), share.run()), quota_message(n_bytes, most)));
        }
        if let Some(supervisor) = share.supervisor().map(Pid::from_raw).filter(|pid| tree::is_stopped_supervisor(*pid))
        {
            tracing::warn!(job = %share.job(), pid = supervisor.as_raw(), "somebody has stopped a supervisor: it continues");
            let _gone_already = kill(supervisor, Signal::SIGCONT);
        }
    }
    Look { disk: disk(setup), unkillable, violations, problem: problem(setup, shares) }
}

/// Returns any other reason why this node cannot start jobs, with what to do about it.
fn problem(setup: &Setup, shares: &Shares) -> Option<String> {
    if !setup.missing_enforcement.is_empty() {
        let what = setup.missing_enforcement.join(" and ");
        return Some(format!(
            "its kernel does not enforce {what}, which must_enforce in agent.toml demands; its log says why: repair that, or \
             demand less, and restart the agent"
        ));
    }
    if let Some(job) = job_exceeding_node(setup, shares) {
        return Some(format!(
            "job {job} began when this node had more cores, memory or devices, or numbered them otherwise; when such jobs have \
             ended it resumes by itself with what it has now: restore the former hardware or configuration, or wait for these jobs"
        ));
    }
    if setup.announce() {
        return Some("it has other cores, memory or devices than before; it resumes by itself in a moment".to_owned());
    }
    let mut missing = setup.devices.missing();
    let first = missing.next()?.display();
    let more = match missing.count() {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    Some(format!(
        "the device file {first}{more} is gone, or is none any more; bring the device back, and the node resumes by itself, or \
         declare only what is there (devices in agent.toml) and restart the agent"
    ))
}

/// Returns a running job that uses resources which the node no longer has.
pub fn job_exceeding_node(setup: &Setup, shares: &Shares) -> Option<JobId> {
    let mut memory = 0_u64;
    shares.all().iter().filter(|share| !share.has_ended()).map(Share::order).find_map(|order| {
        let granted = order.place().and_then(|place| place.grant.as_ref()).map_or(0, |grant| grant.memory.0);
        memory = memory.saturating_add(granted);
        let exceeds_node = (granted > 0 && memory > setup.inventory.memory.0) || setup.exceeds_node(&order);
        exceeds_node.then_some(order.job)
    })
}

fn disk(setup: &Setup) -> Option<Disk> {
    let dir = setup.spool.dir();
    let disk = statvfs(dir).ok()?;
    let part = disk.fragment_size();
    Some(Disk {
        size: disk.blocks() * part,
        free: disk.blocks_available() * part,
        // Some file systems do not count files.
        has_files: disk.files() == 0 || disk.files_available() > 64,
        is_out_of_room: spool::is_out_of_room(dir, false),
        is_read_only: disk.flags().contains(FsFlags::ST_RDONLY),
    })
}

fn quota_message(n_bytes: u64, most: u64) -> String {
    let most = most >> 20;
    match n_bytes {
        u64::MAX => {
            format!("it has more than {} files in the spool; write to files of your own (-o)", spool::MOST_ENTRIES)
        }
        _bytes => {
            format!("its output and files in the spool take more than spool_quota_mib = {most}; write to a file (-o)")
        }
    }
}
