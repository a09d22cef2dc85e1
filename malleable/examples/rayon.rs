//! Sizes a rayon pool by the job's CPUs: between two pieces of work it checks them, and replaces the pool if they
//! changed.
//!
//! Prints `threads CPUs` whenever either changes, until the file `done` exists.
#![allow(unsafe_code)]

use std::collections::BTreeSet;
use std::ffi::c_int;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

unsafe extern "C" {
    safe fn rms_malleable_cpus() -> c_int;
    safe fn rms_malleable_changed() -> c_int;
    safe fn rms_malleable_acknowledge(threads: c_int) -> c_int;
}

fn main() {
    let mut pool = pool_of(n_cpus());
    let mut told = (0, 0);
    while !Path::new("done").exists() {
        if rms_malleable_changed() == 1 {
            let n_threads = n_cpus();
            // The threads of the old pool have ended before the change is acknowledged.
            pool = pool_of(n_threads);
            rms_malleable_acknowledge(n_threads as c_int);
        }
        let seen = work(&pool);
        if seen != told {
            println!("{} {}", seen.0, seen.1);
            told = seen;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the number of the job's CPUs, or of the machine's if that is unknown.
fn n_cpus() -> usize {
    match usize::try_from(rms_malleable_cpus()) {
        Ok(n @ 1..) => n,
        Ok(0) | Err(_) => std::thread::available_parallelism().map_or(1, usize::from),
    }
}

fn pool_of(n_threads: usize) -> ThreadPool {
    ThreadPoolBuilder::new().num_threads(n_threads).build().expect("threads can be made")
}

/// Returns how many threads the pool has, and how many CPUs they may use.
fn work(pool: &ThreadPool) -> (usize, usize) {
    let cpus = Mutex::new(BTreeSet::new());
    pool.install(|| {
        (0..64_u32).into_par_iter().for_each(|_| {
            let n_cpus = std::thread::available_parallelism().map_or(1, usize::from);
            cpus.lock().expect("nobody panics").insert(n_cpus);
        });
    });
    let cpus = cpus.into_inner().expect("nobody panics");
    (pool.current_num_threads(), cpus.last().copied().unwrap_or(0))
}
