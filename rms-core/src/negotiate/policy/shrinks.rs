//! Which applications are asked to give nodes back, and how many.

use std::cmp::Reverse;

use rms_model::ShrinkRule;

use super::{Candidate, Change, Occasion};

/// Decides which application gives back how many nodes, so that at least `needed` nodes of one cluster become available
/// for a waiting job; `None` if the rule forbids it, or if all together cannot give that many. "Only when that
/// suffices" is what makes it an agreement policy: no job shrinks in vain.
///
/// Jobs of the lowest priority are asked first, and of them those with the most to give above their minimum, so that
/// few are disturbed. Then each is asked for no more than is missing without it, and those of the highest priority are
/// spared first; where sizes do not allow exactly that many, it is the least that they allow.
pub fn shrinks(needed: u32, occasion: Occasion, candidates: &[Candidate<'_>], rule: ShrinkRule) -> Option<Vec<Change>> {
    let mut donors: Vec<Donor<'_>> = donors(occasion, candidates, rule).collect();
    donors.sort_by_key(|donor| (donor.candidate.priority, Reverse(donor.most), donor.candidate.job));
    let mut sum: u64 = 0;
    let mut n_asked = 0;
    while sum < u64::from(needed) {
        sum += u64::from(donors.get(n_asked)?.most);
        n_asked += 1;
    }
    donors.truncate(n_asked);
    let mut changes = Vec::new();
    // From the last one on: the job chosen last is asked for what the others do not have.
    while let Some(donor) = donors.pop() {
        let others = sum - u64::from(donor.most);
        let missing = u64::from(needed).saturating_sub(others);
        let given = donor.at_least(u32::try_from(missing).unwrap_or(u32::MAX)).unwrap_or(donor.most);
        sum = others + u64::from(given);
        if given > 0 {
            changes.push(Change { job: donor.candidate.job, nodes: given });
        }
    }
    changes.reverse();
    Some(changes)
}

/// Returns the greatest number that `shrinks` can make available.
pub fn most_shrinks(occasion: Occasion, candidates: &[Candidate<'_>], rule: ShrinkRule) -> u64 {
    donors(occasion, candidates, rule).map(|donor| u64::from(donor.most)).sum()
}

fn donors<'a>(
    occasion: Occasion,
    candidates: &'a [Candidate<'a>],
    rule: ShrinkRule,
) -> impl Iterator<Item = Donor<'a>> {
    let may_be_asked =
        move |candidate: &&Candidate<'_>| !candidate.is_negotiating && occasion.may_disturb(rule, candidate.priority);
    candidates.iter().filter(may_be_asked).filter_map(Donor::new)
}

struct Donor<'a> {
    candidate: &'a Candidate<'a>,
    /// The most that it can give back.
    most: u32,
}

impl<'a> Donor<'a> {
    /// Creates a donor; `None` if it has nothing to give.
    fn new(candidate: &'a Candidate<'a>) -> Option<Donor<'a>> {
        let mut donor = Donor { candidate, most: 0 };
        // The number that was declined is not asked for again, nor a larger one.
        let bound = match candidate.declined {
            0 => candidate.held,
            declined => declined - 1,
        };
        let bound = bound.min(candidate.room);
        let total = candidate.held.saturating_sub(bound).max(donor.floor());
        let total = candidate.declared.sizes.least(total.into())?;
        donor.most = candidate.held.checked_sub(u32::try_from(total).ok()?).filter(|most| *most > 0)?;
        Some(donor)
    }

    /// Returns the least that it keeps: node 0 runs the script, so one node always stays.
    fn floor(&self) -> u32 {
        self.candidate.declared.least.max(1)
    }

    /// Returns the least that its sizes allow it to give back, but no less than `wanted`.
    fn at_least(&self, wanted: u32) -> Option<u32> {
        if wanted == 0 {
            return Some(0);
        }
        let total = self.candidate.held.checked_sub(wanted)?;
        let total = u32::try_from(self.candidate.declared.sizes.greatest(total.into())?).ok()?;
        let given = self.candidate.held - total;
        (total >= self.floor() && given <= self.most).then_some(given)
    }
}

#[cfg(test)]
#[path = "shrinks/tests.rs"]
mod tests;
