//! Which cores of a node a job lends (004, §3.3).

use std::ops::Range;

use rms_model::{Indices, Inventory};

/// Returns the cores that a job lends of those that it has on a node, except `kept` of each package. They are of as few
/// packages as possible, and of those that it then leaves or of which least remains, so that owner and guest are
/// separated by packages as far as their numbers allow. In a package, they are the last ones.
pub fn lend(own: &Indices, n_cores: u32, inventory: &Inventory, kept: u32) -> Indices {
    let of_package = |package: Range<u32>| {
        let lendable = own.iter().filter(|core| package.contains(core)).skip(kept as usize);
        lendable.collect::<Vec<u32>>()
    };
    let mut packages: Vec<Vec<u32>> = inventory.packages().map(of_package).collect();
    let mut lent = Vec::new();
    while lent.len() < n_cores as usize {
        let wanted = n_cores as usize - lent.len();
        let holds_all = packages.iter_mut().rev().filter(|lendable| lendable.len() >= wanted);
        let best = match holds_all.min_by_key(|lendable| lendable.len()) {
            Some(smallest) => Some(smallest),
            None => packages.iter_mut().max_by_key(|lendable| lendable.len()),
        };
        let Some(lendable) = best.filter(|lendable| !lendable.is_empty()) else { break };
        lent.extend(lendable.split_off(lendable.len().saturating_sub(wanted)));
    }
    lent.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use test_kit::{Dice, for_seeds};

    use super::*;

    /// Creates a node of up to four packages, equal ones or not.
    fn topology(dice: &mut Dice) -> Inventory {
        let n_packages = dice.number(1, 4);
        let equal = dice.number(1, 16);
        let are_equal = dice.chance(50);
        let packages: Vec<u32> = (0..n_packages).map(|_| if are_equal { equal } else { dice.number(1, 16) }).collect();
        let cores = packages.iter().sum();
        let whole =
            Inventory { sockets: n_packages, numa_nodes: n_packages, cores, cpus: cores, ..Inventory::default() };
        whole.with_parts(packages.clone(), packages)
    }

    #[test]
    fn guest_and_owner_share_as_few_packages_as_possible() {
        for_seeds("guest_and_owner_share_as_few_packages_as_possible", 2000, |dice| {
            let inventory = topology(dice);
            let is_part = dice.chance(50);
            let own: Indices = (0..inventory.cores).filter(|_| !is_part || dice.chance(70)).collect();
            let (n_cores, kept) = (dice.number(1, inventory.cores), dice.number(0, 3) / 2);
            let lent: BTreeSet<u32> = lend(&own, n_cores, &inventory, kept).iter().collect();

            let mut lendable = Vec::new();
            let mut n_touched = 0;
            for package in inventory.packages() {
                let here: Vec<u32> = own.iter().filter(|core| package.contains(core)).collect();
                let lent_here: Vec<u32> = lent.iter().copied().filter(|core| package.contains(core)).collect();
                assert!(here.ends_with(&lent_here), "{lent_here:?} of {here:?}");
                assert!(here.len() - lent_here.len() >= here.len().min(kept as usize), "{lent_here:?} of {here:?}");
                n_touched += usize::from(!lent_here.is_empty());
                lendable.push(here.len().saturating_sub(kept as usize));
            }
            let n_lent = lendable.iter().sum::<usize>().min(n_cores as usize);
            assert_eq!(lent.len(), n_lent, "{own:?}");
            lendable.sort_unstable();
            let mut n_needed = 0;
            let mut rest = n_lent;
            while rest > 0 {
                n_needed += 1;
                rest = rest.saturating_sub(lendable.pop().unwrap_or(0));
            }
            assert_eq!(n_touched, n_needed, "{n_cores} of {own:?} on {inventory:?} are {lent:?}");
        });
    }

    #[test]
    fn a_guest_has_the_package_that_its_mate_can_leave() {
        let two = Inventory { sockets: 2, numa_nodes: 2, cores: 8, cpus: 8, ..Inventory::default() };
        let lends = |own: &[u32], n_cores| {
            let own: Indices = own.iter().copied().collect();
            lend(&own, n_cores, &two, 0).to_string()
        };
        assert_eq!(lends(&[0, 1, 2, 3, 4, 5, 6, 7], 4), "4-7");
        assert_eq!(lends(&[0, 1, 2, 3, 4], 2), "2-3", "not one of each package");
        assert_eq!(lends(&[0, 1, 4, 5, 6], 2), "0-1", "the owner leaves this package");
        assert_eq!(lends(&[0, 1, 2, 3, 4, 5, 6, 7], 5), "3-7");
    }
}
