//! Variables of OpenMP programs whose threads should follow the CPUs of their job.

use rms_malleable::SOCKET_VARIABLE;
use rms_model::variables::OPENMP;

use super::hostfile::HostFiles;
use super::variables::Variables;
use crate::order::Order;
use crate::spool;

/// The initial number of threads of a program, which is also its maximum. On fewer CPUs than the job requested, the
/// library keeps its teams smaller.
const THREADS: &str = "OMP_NUM_THREADS";
const PRELOAD: &str = "LD_PRELOAD";
/// Whether threads are bound, and the places that they are bound to, which also turn this on.
const BIND: &str = "OMP_PROC_BIND";
const PLACES: &str = "OMP_PLACES";
/// Variables of the runtimes themselves. With one of them LLVM's ignores [`BIND`].
const OWN_PLACES: [&str; 2] = ["KMP_AFFINITY", "GOMP_CPU_AFFINITY"];

/// Sets the variables of a job that has, or requested, `n_cpus` here. Variables set by the user are kept.
pub fn of_job(variables: &mut Variables, order: &Order, files: &HostFiles, n_cpus: usize) {
    let Some(library) = &order.malleable_library else { return };
    let library = library.display().to_string();
    // First, so that it is loaded before a runtime that the user preloads.
    let preload = match variables.get(PRELOAD).filter(|own| !own.is_empty()) {
        Some(own) => format!("{library}:{own}"),
        None => library.clone(),
    };
    variables.insert(PRELOAD.to_owned(), preload);
    if let Some(dir) = files.generation.parent() {
        variables.insert(SOCKET_VARIABLE.to_owned(), spool::malleable_socket_path(dir).display().to_string());
    }
    // A runtime that binds its threads puts later ones where the first ones were: they would not use the new CPUs.
    let is_bound = [BIND, PLACES].iter().chain(&OWN_PLACES).any(|name| variables.contains_key(*name));
    let mut proposed = vec![format!("{PRELOAD}={library}")];
    let mut propose = |name: &str, value: String| {
        if !variables.contains_key(name) {
            proposed.push(format!("{name}={value}"));
            variables.insert(name.to_owned(), value);
        }
    };
    if !is_bound {
        propose(BIND, "false".to_owned());
    }
    propose("OMP_TOOL_LIBRARIES", library);
    let n_tasks = order.place().map_or(1, |place| place.n_tasks.max(1)) as usize;
    // One task has all of the node, whatever it asked for.
    let each = if n_tasks == 1 { 1 } else { order.launch.cpus_per_task as usize };
    propose(THREADS, threads(n_tasks, each, n_cpus).to_string());
    variables.insert(OPENMP.to_owned(), proposed.join(";"));
}

/// Sets the number of threads of each of a step's `n_tasks` tasks here, unless the user has set it.
pub fn of_step(variables: &mut Variables, (n_tasks, each): (u32, u32), n_cpus: usize) {
    let (Some(proposed), Some(of_job)) = (variables.get(OPENMP), variables.get(THREADS)) else { return };
    let of_job = format!("{THREADS}={of_job}");
    let n_threads = threads(n_tasks.max(1) as usize, each as usize, n_cpus).to_string();
    let of_step = format!("{THREADS}={n_threads}");
    if proposed.split(';').any(|own| own == of_job) {
        let own = |own| if own == of_job { of_step.as_str() } else { own };
        let proposed = proposed.split(';').map(own).collect::<Vec<_>>().join(";");
        variables.insert(OPENMP.to_owned(), proposed);
        variables.insert(THREADS.to_owned(), n_threads);
    }
}

/// Removes what was set for the job from which this one was submitted: the user has not chosen it.
pub fn forget(variables: &mut Variables, submitted: &[(String, String)]) {
    let Some((_, proposed)) = submitted.iter().find(|(name, _)| name == OPENMP) else { return };
    for (name, value) in proposed.split(';').filter_map(|own| own.split_once('=')) {
        let Some(now) = variables.get(name) else { continue };
        let after_ours = now.strip_prefix(value).and_then(|rest| rest.strip_prefix(':')).map(str::to_owned);
        if now == value {
            variables.remove(name);
        } else if let (PRELOAD, Some(own)) = (name, after_ours) {
            variables.insert(name.to_owned(), own);
        }
    }
}

/// Returns whether OpenMP may bind the threads of a process with this environment, as it was executed, to places: then no
/// thread's CPUs are those of the process.
pub fn binds_threads(environ: &[u8]) -> bool {
    let value = |name: &str| {
        let of_name = |variable: &[u8]| variable.strip_prefix(name.as_bytes())?.strip_prefix(b"=").map(<[u8]>::to_vec);
        let value = environ.split(|byte| *byte == 0).find_map(of_name)?;
        Some(String::from_utf8_lossy(&value).trim().to_ascii_lowercase())
    };
    let is_type = |affinity: &str, name: &str| affinity.split(',').any(|part| part.trim() == name);
    let own = OWN_PLACES.iter().find_map(|name| value(name));
    match (own, value(BIND)) {
        (Some(own), _) => !is_type(&own, "none") && !is_type(&own, "disabled"),
        (None, Some(bind)) => bind != "false",
        (None, None) => value(PLACES).is_some(),
    }
}

/// Returns the number of threads of each task, which asks for `each` CPUs; several tasks share the CPUs.
fn threads(n_tasks: usize, each: usize, n_cpus: usize) -> usize {
    if each > 1 { each } else { (n_cpus / n_tasks).max(1) }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::order::tests;

    fn check(own: &[(&str, &str)], n_tasks: u32, each: u32, expected: &[(&str, Option<&str>)]) {
        let mut order = tests::order([rms_api::desired::LaunchNode { n_tasks, ..test_kit::place("a1") }]);
        order.malleable_library = Some(PathBuf::from("/l.so"));
        order.launch_mut().cpus_per_task = each;
        let mut variables: Variables = own.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        of_job(&mut variables, &order, &HostFiles::of(Path::new("/d")), 8);
        for (name, value) in expected {
            assert_eq!(variables.get(*name).map(String::as_str), *value, "{name} beside {own:?}");
        }
    }

    #[test]
    fn programs_begin_with_all_that_they_will_ever_have_and_are_bound_to_nothing() {
        let plain = [
            ("LD_PRELOAD", Some("/l.so")),
            ("OMP_TOOL_LIBRARIES", Some("/l.so")),
            (SOCKET_VARIABLE, Some("/d/malleable.sock")),
            ("OMP_PROC_BIND", Some("false")),
            // LLVM's runtime would warn of the other one.
            ("KMP_AFFINITY", None),
        ];
        check(&[], 1, 1, &plain);
        for (n_tasks, each, threads) in [(1, 1, "8"), (1, 4, "8"), (2, 1, "4"), (2, 3, "3"), (16, 1, "1")] {
            check(&[], n_tasks, each, &[(THREADS, Some(threads))]);
        }
    }

    #[test]
    fn steps_and_inner_jobs_have_threads_of_their_own_unless_the_user_has_set_them() {
        let of = |own: &[(&str, &str)], n_cpus| {
            let mut order = tests::order([rms_api::desired::LaunchNode { n_tasks: 1, ..test_kit::place("a1") }]);
            order.malleable_library = Some(PathBuf::from("/l.so"));
            let mut variables: Variables = own.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
            of_job(&mut variables, &order, &HostFiles::of(Path::new("/d")), n_cpus);
            variables
        };
        let threads = |variables: &Variables| variables[THREADS].clone();
        for ((n_tasks, each), expected) in [((4, 2), "2"), ((4, 1), "2"), ((1, 1), "8"), ((1, 4), "4")] {
            let mut variables = of(&[], 8);
            of_step(&mut variables, (n_tasks, each), 8);
            assert_eq!(threads(&variables), expected, "{n_tasks} tasks of {each}");
        }
        let mut chosen = of(&[(THREADS, "7")], 8);
        of_step(&mut chosen, (4, 2), 8);
        assert_eq!(threads(&chosen), "7");

        let mut outer = of(&[("LD_PRELOAD", "/own.so")], 2);
        of_step(&mut outer, (2, 1), 2);
        let submitted: Vec<(String, String)> = outer.into_iter().collect();
        let mut inner: Variables = submitted.iter().cloned().collect();
        forget(&mut inner, &submitted);
        let left: Vec<(&str, &str)> = inner.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let ours = |(name, _): &(&str, &str)| !name.starts_with("RMS_");
        assert_eq!(left.into_iter().filter(ours).collect::<Vec<_>>(), [("LD_PRELOAD", "/own.so")]);
        inner.insert(THREADS.to_owned(), "7".to_owned());
        forget(&mut inner, &submitted);
        assert_eq!(threads(&inner), "7", "the script has set it");
    }

    #[test]
    fn threads_are_bound_by_places_unless_binding_is_off() {
        for (environ, expected) in [
            ("A=1\0OMP_PROC_BIND=close\0B=2\0", true),
            ("OMP_PLACES=threads\0", true),
            ("GOMP_CPU_AFFINITY=0-3\0", true),
            ("OMP_PLACES=threads\0OMP_PROC_BIND= FALSE\0", false),
            // LLVM's runtime says that it ignores the other one then.
            ("KMP_AFFINITY=granularity=fine,compact\0OMP_PROC_BIND=false\0", true),
            ("KMP_AFFINITY=verbose, none\0OMP_PROC_BIND=close\0", false),
            ("XOMP_PROC_BIND=close\0OMP_PROC_BINDS=close\0", false),
            ("", false),
        ] {
            assert_eq!(binds_threads(environ.as_bytes()), expected, "{environ:?}");
        }
    }

    #[test]
    fn what_the_user_has_set_stays() {
        check(&[(THREADS, "3")], 1, 1, &[(THREADS, Some("3"))]);
        check(&[("LD_PRELOAD", "/own.so")], 1, 1, &[("LD_PRELOAD", Some("/l.so:/own.so"))]);
        check(&[("OMP_PLACES", "cores")], 1, 1, &[("OMP_PROC_BIND", None), ("KMP_AFFINITY", None)]);
        check(&[("OMP_TOOL_LIBRARIES", "/t.so")], 1, 1, &[("OMP_TOOL_LIBRARIES", Some("/t.so"))]);
    }
}
