//! The CPUs that jobs have on a node that they share (004, §3.3).

use std::ops::Range;

use rms_model::{Indices, Inventory};

use crate::plan::slowdown::Fraction;

/// A job on the node, the owner first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharer {
    pub id: u64,
    pub n_ranks: u32,
}

/// The CPUs that a job has on the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Masks {
    pub id: u64,
    /// Ascending.
    pub cpus: Vec<u32>,
    /// The CPUs of each rank, in order.
    pub ranks: Vec<Vec<u32>>,
}

/// Distributes the CPUs of a node to its owner alone, or to the owner and a guest. The guest gets the highest CPUs: its
/// part by the sharing factor, as far as the owner keeps one for each of its ranks. `None` if either would have fewer
/// CPUs than ranks, or more than two would share.
pub fn distribute(n_cpus: u32, sharing_factor: Fraction, sharers: &[Sharer]) -> Option<Vec<Masks>> {
    let counts = match sharers {
        [_] => vec![n_cpus],
        [owner, _] => {
            let (numerator, denominator) = sharing_factor.parts();
            let part = (numerator * i128::from(n_cpus)).div_euclid(denominator);
            let most = n_cpus.checked_sub(owner.n_ranks)?;
            let of_guest = u32::try_from(part.max(0)).unwrap_or(u32::MAX).min(most);
            vec![n_cpus - of_guest, of_guest]
        }
        _ => return None,
    };
    let mut first = 0;
    let mut masks = Vec::with_capacity(sharers.len());
    for (sharer, count) in sharers.iter().zip(counts) {
        if count < sharer.n_ranks || sharer.n_ranks == 0 {
            return None;
        }
        let cpus: Vec<u32> = (first..first + count).collect();
        masks.push(Masks { id: sharer.id, ranks: runs(&cpus, sharer.n_ranks), cpus });
        first += count;
    }
    Some(masks)
}

/// Returns the cores that a job lends of those that it has on a node: the last ones, except `kept` of each package. The
/// cores of a package are contiguous, so owner and guest are separated by packages as far as their numbers allow.
pub(crate) fn lend(own: &Indices, n_cores: u32, inventory: &Inventory, kept: u32) -> Indices {
    let of_package = |package: Range<u32>| own.iter().filter(move |core| package.contains(core)).skip(kept as usize);
    let lendable: Vec<u32> = inventory.packages().flat_map(of_package).collect();
    lendable[lendable.len().saturating_sub(n_cores as usize)..].iter().copied().collect()
}

/// Returns contiguous CPUs for each rank; the first ranks get one more if the CPUs do not divide evenly.
fn runs(cpus: &[u32], n_ranks: u32) -> Vec<Vec<u32>> {
    let (least, n_with_more) = (cpus.len() / n_ranks as usize, cpus.len() % n_ranks as usize);
    let mut rest = cpus;
    let run = |rank: usize| {
        let (run, others) = rest.split_at(least + usize::from(rank < n_with_more));
        rest = others;
        run.to_vec()
    };
    (0..n_ranks as usize).map(run).collect()
}
