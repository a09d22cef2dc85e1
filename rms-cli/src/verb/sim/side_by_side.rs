//! Runs independent experiments on several threads, and reports their progress.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use super::progress::Progress;

/// Returns how many runs of this size may run at once: one per processor, if free memory allows.
pub(super) fn n_threads(n_jobs: usize, n_nodes: usize) -> usize {
    let processors = std::thread::available_parallelism().map_or(1, Into::into);
    let need = n_jobs * BYTES_OF_JOB + n_nodes * BYTES_OF_NODE;
    // If the free memory is unknown, the runs are sequential.
    let fit = free_memory().map_or(1, |free| free / 2 / need.max(1));
    processors.min(fit).max(1)
}

/// Returns the free memory in bytes, as estimated by the kernel.
fn free_memory() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()?.checked_mul(1024)
}

/// The memory that a run needs at most; Curie's 198,509 jobs on 5,040 nodes took 34 MiB, including the jobs of the
/// trace.
const BYTES_OF_JOB: usize = 1024;
const BYTES_OF_NODE: usize = 8 * 1024;

/// Returns the result of `run` for each item, in the order of the items.
pub(super) fn map<T: Sync, R: Send>(items: &[T], n_threads: usize, run: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    // Bounded by the number of items: a thread never waits for its results to be received.
    let (sender, receiver) = mpsc::sync_channel(items.len());
    let mut results: Vec<Option<R>> = items.iter().map(|_| None).collect();
    std::thread::scope(|scope| {
        for _ in 0..n_threads.clamp(1, items.len().max(1)) {
            let (sender, next, run) = (sender.clone(), &next, &run);
            scope.spawn(move || {
                while let Some((idx, item)) = {
                    let idx = next.fetch_add(1, Ordering::Relaxed);
                    items.get(idx).map(|item| (idx, item))
                } {
                    if sender.send((idx, run(item))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        let mut progress = Progress::of("run", items.len());
        let mut n_done = 0;
        while let Ok((idx, result)) = receiver.recv() {
            results[idx] = Some(result);
            n_done += 1;
            progress.at(n_done);
        }
    });
    results.into_iter().map(|result| result.expect("every item was taken by a thread")).collect()
}

/// Returns the CPU time of the calling thread; concurrent runs do not count.
pub(super) fn thread_cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_beside_each_other_runs_one_by_one() {
        assert_eq!(n_threads(usize::MAX / BYTES_OF_JOB / 2, 0), 1);
        assert_eq!(n_threads(0, 0), std::thread::available_parallelism().map_or(1, Into::into));
        assert!(free_memory().is_some_and(|free| free > 1 << 20), "every Linux tells it");
    }

    #[test]
    fn results_come_in_the_order_of_the_items() {
        let items: Vec<u64> = (0..100).collect();
        for n_threads in [1, 3, 500] {
            let doubled = map(&items, n_threads, |item| item * 2);
            assert_eq!(doubled, items.iter().map(|item| item * 2).collect::<Vec<_>>());
        }
        assert!(map(&[] as &[u64], 2, |item| *item).is_empty());
    }
}
