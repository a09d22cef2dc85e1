//! Finds OpenMP programs that were moved to fewer CPUs than they have threads and cannot adapt: they become
//! disproportionately slow, and their owners cannot see why.

use std::fs;
use std::path::Path;

use nix::unistd::Pid;
use rms_malleable::LIBRARY;

use crate::share::Share;
use crate::supervisor::tree;

/// The runtime whose threads spin while they wait, which on too few CPUs blocks the threads that they wait for.
const SPINNING: &str = "libgomp";

/// Logs a warning for each such process of the job.
pub fn warn_of(share: &Share) {
    let Some(supervisor) = share.supervisor() else { return };
    for pid in tree::descendants(Pid::from_raw(supervisor)) {
        let process = Path::new("/proc").join(pid.to_string());
        let Some((n_threads, n_cpus)) = threads_and_cpus(&process) else { continue };
        if let Some(n_threads) = slow_team(&process, n_threads, n_cpus) {
            tracing::warn!(
                job = %share.job(), %pid, n_threads, n_cpus,
                "an OpenMP program of GCC has more threads than CPUs and does not follow: it may be many times slower than \
                 its CPUs; its owner can submit with --malleable-threads"
            );
        }
    }
}

/// Returns the number of threads and of CPUs of a process; `None` if it has ended.
fn threads_and_cpus(process: &Path) -> Option<(usize, usize)> {
    let status = fs::read_to_string(process.join("status")).ok()?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let n_threads = field("Threads:")?.parse().ok()?;
    let mask = field("Cpus_allowed:")?.chars().filter_map(|digit| digit.to_digit(16));
    Some((n_threads, mask.map(|digit| digit.count_ones() as usize).sum()))
}

/// Returns the number of threads, at most, of a team of such a process; `None` if it is not such a process.
pub fn slow_team(process: &Path, n_threads: usize, n_cpus: usize) -> Option<usize> {
    // Most processes have one thread: their maps are not read.
    if n_threads <= n_cpus {
        return None;
    }
    // Other threads, as those of MPI, do not spin.
    let n_threads = most_in_team(process).map_or(n_threads, |most| most.min(n_threads));
    (n_threads > n_cpus && cannot_follow(process)).then_some(n_threads)
}

/// Returns the largest team of a process, with nested ones, if its environment limits it.
fn most_in_team(process: &Path) -> Option<usize> {
    let environ = fs::read(process.join("environ")).ok()?;
    let value = environ.split(|byte| *byte == 0).find_map(|variable| variable.strip_prefix(b"OMP_NUM_THREADS="))?;
    let levels = std::str::from_utf8(value).ok()?.split(',').map(|level| level.trim().parse::<usize>());
    levels.collect::<Result<Vec<_>, _>>().ok().map(|levels| levels.into_iter().fold(1, usize::saturating_mul))
}

/// Returns whether the process uses GCC's OpenMP without the library that makes it follow its CPUs.
fn cannot_follow(process: &Path) -> bool {
    let maps = fs::read_to_string(process.join("maps"));
    maps.is_ok_and(|maps| maps.contains(SPINNING) && !maps.contains(LIBRARY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_team_is_slow_that_has_more_threads_than_cpus_and_nothing_to_follow_by() {
        let dir = tempfile::tempdir().expect("a directory");
        let check = |n_threads: u32, mask: &str, maps: &str, expected: Option<(usize, usize)>| {
            let status = format!("Name:\tx\nThreads:\t{n_threads}\nCpus_allowed:\t{mask}\nCpus_allowed_list:\t0\n");
            fs::write(dir.path().join("status"), status).expect("a file");
            fs::write(dir.path().join("maps"), maps).expect("a file");
            let (n_threads, n_cpus) = threads_and_cpus(dir.path()).expect("it is there");
            let team = slow_team(dir.path(), n_threads, n_cpus).map(|n_threads| (n_threads, n_cpus));
            assert_eq!(team, expected, "{n_threads} on {mask}: {maps}");
        };
        let gomp = "7f00-7f01 r-xp 0 08:01 1 /usr/lib/libgomp.so.1.0.0\n";
        check(4, "3", gomp, Some((4, 2)));
        check(4, "00000001,00000001", gomp, Some((4, 2)));
        check(2, "3", gomp, None);
        check(4, "3", "7f00-7f01 r-xp 0 08:01 1 /usr/lib/libc.so.6\n", None);
        for (variable, expected) in
            [("1", None), ("2", None), ("3", Some((3, 2))), ("2,2", Some((4, 2))), ("x", Some((4, 2)))]
        {
            fs::write(dir.path().join("environ"), format!("A=1\0OMP_NUM_THREADS={variable}\0")).expect("a file");
            check(4, "3", gomp, expected);
        }
        check(4, "3", &format!("{gomp}7f02-7f03 r-xp 0 08:01 2 /usr/lib/librms-malleable.so\n"), None);
        assert_eq!(threads_and_cpus(Path::new("/no/such/process")), None);
    }
}
