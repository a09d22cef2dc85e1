//! Turns the limits of a malleable application into the sizes that it may start with, or says what is wrong with them
//! (002).

use rms_api::call::{Nodes, Shape};
use rms_api::negotiate::Declared;
use rms_api::refusal::Refusal;
use rms_model::job::TaskCount;
use rms_model::{Malleable, OnResize, Request, Work};

use crate::executable::too_large;

/// Checks limits independently of the clusters.
///
/// # Errors
/// What is wrong with them, or with how the application learns of changes.
pub(crate) fn check(malleable: &Malleable, work: &Work) -> Result<(), Refusal> {
    let Malleable { least, most, sizes, on_resize, speedup, survives_loss: _ } = malleable;
    let declared = Declared { least: *least, most: *most, sizes: sizes.clone(), speedup: speedup.clone() };
    match malleable.is_as_started() {
        true => check_declared(&Declared { least: 1, most: u32::MAX, ..declared })?,
        false => check_declared(&declared)?,
    }
    match on_resize {
        OnResize::Negotiates => Ok(()),
        // No process can catch KILL or STOP: the application would never learn of a change.
        OnResize::Signal(signal) if (1..=64).contains(signal) && !matches!(signal, 9 | 19) => Ok(()),
        OnResize::Signal(_) => Err(Refusal::Malformed("the signal for changes is one that can be caught")),
        OnResize::Hook(command) => {
            too_large("the command for changes", command.len(), MAX_HOOK)?;
            let is_command = !command.trim().is_empty() && !command.contains('\0');
            if is_command {
                Ok(())
            } else {
                Err(Refusal::Malformed("the command for changes is empty or holds a NUL byte"))
            }
        }
        OnResize::Workers => match work {
            Work::Tasks { .. } => Ok(()),
            Work::Script { .. } | Work::Nodes => {
                Err(Refusal::Malformed("workers are tasks: name a program, no script"))
            }
        },
    }
}

/// Checks limits, including those that an application declares while it runs.
///
/// # Errors
/// They allow no number of nodes, or the speed-up is invalid.
pub(crate) fn check_declared(declared: &Declared) -> Result<(), Refusal> {
    let Declared { least, most, sizes, speedup } = declared;
    if *least == 0 || least > most {
        return Err(Refusal::MalleableSizes);
    }
    if !sizes.is_valid() {
        return Err(Refusal::BadSizes);
    }
    let has_sizes = sizes.least(u64::from(*least)).is_some_and(|size| size <= u64::from(*most));
    if !has_sizes {
        return Err(Refusal::NoSuchSize { least: *least, most: *most, sizes: sizes.clone() });
    }
    if speedup.is_sound() {
        Ok(())
    } else {
        Err(Refusal::Malformed("a speed-up names at most 256 numbers of nodes, ascending and above 0"))
    }
}

/// Returns the shapes to start with. A shape that leaves the number of nodes open stands for all usable numbers, the
/// largest first: of those that complete at the same time the first is taken, so a job starts with the most nodes that
/// are free now, and with fewer rather than wait. Sizes that no cluster has are left out, like those of a list that a
/// user wrote: the range may be wider than the `largest` cluster, as long as some size of it is possible.
///
/// # Errors
/// A number of nodes that the limits exclude.
pub(super) fn shapes(malleable: &Malleable, shapes: &[Shape], largest: u32) -> Result<Vec<Shape>, Refusal> {
    let open = [Shape { nodes: Nodes::FromTasks, wall: None }];
    let shapes = if shapes.is_empty() { &open } else { shapes };
    if malleable.is_as_started() {
        return Ok(shapes.to_vec());
    }
    let sizes = start_sizes(malleable, largest);
    let mut all = Vec::new();
    for shape in shapes {
        match &shape.nodes {
            Nodes::FromTasks => {
                all.extend(sizes.iter().map(|nodes| Shape { nodes: Nodes::Count(*nodes), wall: shape.wall }));
            }
            Nodes::Count(nodes) => {
                check_size(malleable, *nodes)?;
                all.push(shape.clone());
            }
            Nodes::PerCluster(_) => all.push(shape.clone()),
        }
    }
    Ok(all)
}

/// Converts the number of workers to a number on each node, because it changes with the nodes.
///
/// # Errors
/// A number of workers that is not a multiple of the nodes to start with, or several such sizes.
pub(super) fn tasks(malleable: &Malleable, tasks: TaskCount, shapes: &[Shape]) -> Result<TaskCount, Refusal> {
    let TaskCount::Total(n_tasks) = tasks else { return Ok(tasks) };
    if malleable.on_resize != OnResize::Workers {
        return Ok(tasks);
    }
    match shapes {
        [Shape { nodes: Nodes::Count(nodes), wall: _ }] if *nodes > 0 && n_tasks.is_multiple_of(*nodes) => {
            Ok(TaskCount::PerNode(n_tasks / nodes))
        }
        _ => Err(Refusal::Malformed(
            "workers are counted on each node: with a number of tasks, name one number of nodes by which it divides",
        )),
    }
}

/// Checks that the application that a launcher starts can use the nodes that the launcher was granted.
///
/// # Errors
/// They are of several clusters, or their number is outside the limits.
pub(crate) fn check_launched(malleable: &Malleable, granted: &Request) -> Result<(), Refusal> {
    check_options(std::slice::from_ref(granted))?;
    if malleable.is_as_started() { Ok(()) } else { check_size(malleable, granted.n_nodes()) }
}

fn check_size(malleable: &Malleable, nodes: u32) -> Result<(), Refusal> {
    let Malleable { least, most, .. } = *malleable;
    if (least..=most).contains(&nodes) && fits(malleable, nodes) {
        return Ok(());
    }
    Err(Refusal::NotItsSize { nodes, least, most, sizes: malleable.sizes.clone() })
}

/// Checks that the nodes of each size are on one cluster, whichever that is.
///
/// # Errors
/// A size with nodes of several clusters.
pub(super) fn check_options(options: &[Request]) -> Result<(), Refusal> {
    let is_on_one = |request: &Request| request.nodes.len() == 1;
    if options.iter().all(is_on_one) {
        Ok(())
    } else {
        Err(Refusal::Malformed("a job that changes its size has all its nodes on one cluster"))
    }
}

/// Returns the usable numbers of nodes, ascending.
fn usable(malleable: &Malleable) -> impl Iterator<Item = u32> + '_ {
    let next = move |from: Option<u32>| {
        let size = u32::try_from(malleable.sizes.least(from?.into())?).ok()?;
        Some(size).filter(|size| *size <= malleable.most)
    };
    std::iter::successors(next(Some(malleable.least)), move |size| next(size.checked_add(1)))
}

fn fits(malleable: &Malleable, nodes: u32) -> bool {
    malleable.sizes.fits(nodes.into())
}

/// Returns the sizes to start with on clusters of at most `largest` nodes, the largest first: the least usable size even
/// if it is larger. Of very many, only some: a pass examines each, and later offers fill the gaps.
fn start_sizes(malleable: &Malleable, largest: u32) -> Vec<u32> {
    let first = usable(malleable).next();
    let possible = || usable(malleable).take_while(|size| *size <= largest || Some(*size) == first);
    let n_sizes = possible().count();
    let n_kept = n_sizes.min(MAX_STARTS);
    let kept = (0..n_kept).map(|idx| idx * (n_sizes - 1) / (n_kept - 1).max(1));
    let mut kept = kept.peekable();
    let mut sizes: Vec<u32> = Vec::new();
    for (idx, size) in possible().enumerate() {
        if kept.next_if_eq(&idx).is_some() {
            sizes.push(size);
        }
    }
    sizes.reverse();
    sizes
}

const MAX_HOOK: usize = 4096;
/// The most sizes that a job may start with.
const MAX_STARTS: usize = 32;

#[cfg(test)]
mod tests {
    use rms_model::Speedup;

    use rms_model::Sizes;

    use super::*;

    fn limits(least: u32, most: u32, sizes: Sizes) -> Malleable {
        Malleable {
            least,
            most,
            sizes,
            on_resize: OnResize::Negotiates,
            speedup: Speedup::default(),
            survives_loss: None,
        }
    }

    fn check_limits(malleable: &Malleable) -> Result<(), Refusal> {
        check(malleable, &Work::Tasks { argv: vec!["true".to_owned()] })
    }

    #[test]
    fn the_sizes_to_start_with_are_those_of_use_the_largest_first() {
        assert_eq!(start_sizes(&limits(2, 6, Sizes::Any), 1000), [6, 5, 4, 3, 2]);
        assert_eq!(start_sizes(&limits(2, 17, Sizes::PowerOfTwo), 1000), [16, 8, 4, 2]);
        assert_eq!(start_sizes(&limits(3, 3, Sizes::Any), 1000), [3]);
        assert_eq!(start_sizes(&limits(2, 20, Sizes::Listed(vec![1, 4, 9, 25])), 1000), [9, 4]);
        assert_eq!(start_sizes(&limits(2, u32::MAX, Sizes::Any), 5), [5, 4, 3, 2]);
        assert_eq!(start_sizes(&limits(7, 9, Sizes::Any), 5), [7], "to be refused by its number of nodes");
        let many = start_sizes(&limits(1, 1000, Sizes::Any), 1000);
        assert_eq!((many.len(), many.first(), many.last()), (MAX_STARTS, Some(&1000), Some(&1)));
        assert!(many.is_sorted_by(|one, next| one > next));
    }

    #[test]
    fn limits_that_allow_nothing_are_refused() {
        let order = "the sizes of a malleable job are at least 1, and the least is not above the most";
        let shape = "sizes are any, powers of two, multiples of a number above 0, or at most 256 numbers that rise";
        let power = "from 5 to 7 there is no size that is a power of two: widen the range";
        let multiple = "from 1 to 4 there is no size that is a multiple of 7: widen the range";
        for (least, most, sizes, expected) in [
            (0, 4, Sizes::Any, order),
            (5, 4, Sizes::Any, order),
            (1, 0, Sizes::Any, order),
            (5, 7, Sizes::PowerOfTwo, power),
            (1, 4, Sizes::MultipleOf(7), multiple),
            (1, 4, Sizes::MultipleOf(0), shape),
            (1, 4, Sizes::Listed(Vec::new()), shape),
            (1, 4, Sizes::Listed(vec![3, 2]), shape),
            (1, 4, Sizes::Listed((1..400).collect()), shape),
        ] {
            let limits = limits(least, most, sizes);
            assert_eq!(check_limits(&limits).expect_err("nothing").to_string(), expected, "{limits:?}");
        }
        assert_eq!(check_limits(&limits(0, 0, Sizes::Any)), Ok(()), "as it starts");
        assert_eq!(check_limits(&limits(1, u32::MAX, Sizes::Any)), Ok(()));
    }

    #[test]
    fn changes_are_told_in_a_way_that_can_be_heard() {
        let with = |on_resize| check_limits(&Malleable { on_resize, ..limits(1, 2, Sizes::Any) });
        assert_eq!(with(OnResize::Signal(10)), Ok(()));
        assert_eq!(with(OnResize::Hook("./resize".to_owned())), Ok(()));
        assert_eq!(with(OnResize::Workers), Ok(()));
        for deaf in [OnResize::Signal(9), OnResize::Signal(0), OnResize::Signal(65), OnResize::Hook(" ".to_owned())] {
            assert!(with(deaf).is_err());
        }
        assert!(with(OnResize::Hook("x".repeat(MAX_HOOK + 1))).is_err());
        let script = Work::Script { script: "#!/bin/sh\n".to_owned(), args: Vec::new() };
        let workers = Malleable { on_resize: OnResize::Workers, ..limits(1, 2, Sizes::Any) };
        assert!(check(&workers, &script).is_err());
    }

    #[test]
    fn workers_are_counted_on_each_node() {
        let farm = Malleable { on_resize: OnResize::Workers, ..limits(2, 8, Sizes::Any) };
        let on = |nodes| Shape { nodes: Nodes::Count(nodes), wall: None };
        assert_eq!(tasks(&farm, TaskCount::Total(6), &[on(3)]), Ok(TaskCount::PerNode(2)));
        assert_eq!(tasks(&farm, TaskCount::PerNode(1), &[on(3), on(2)]), Ok(TaskCount::PerNode(1)));
        assert!(tasks(&farm, TaskCount::Total(5), &[on(3)]).is_err());
        assert!(tasks(&farm, TaskCount::Total(6), &[on(3), on(2)]).is_err());
        let told = Malleable { on_resize: OnResize::Signal(10), ..farm };
        assert_eq!(
            tasks(&told, TaskCount::Total(5), &[on(3)]),
            Ok(TaskCount::Total(5)),
            "a script uses them as it likes"
        );
    }

    #[test]
    fn a_size_to_start_with_is_within_the_limits() {
        let limits = limits(2, 8, Sizes::PowerOfTwo);
        let of = |nodes| shapes(&limits, &[Shape { nodes: Nodes::Count(nodes), wall: None }], 9);
        assert_eq!(of(4).map(|shapes| shapes.len()), Ok(1));
        let refused = |nodes| Err(Refusal::NotItsSize { nodes, least: 2, most: 8, sizes: Sizes::PowerOfTwo });
        assert_eq!(of(16), refused(16));
        assert_eq!(of(6), refused(6));
        assert_eq!(shapes(&limits, &[], 9).map(|shapes| shapes.len()), Ok(3));
    }
}
