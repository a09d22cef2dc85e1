//! Tests the journal on a disk that lies about the order of its writes: after a loss of power, any blocks of what was
//! not synced are old or zero. What was synced is there, and nothing that follows a gap.

use std::fs;
use std::ops::Range;
use std::path::Path;

use rms_server::journal::{FactLog, SnapshotPolicy};
use test_kit::{Dice, for_seeds, one_seed};

use crate::story::{facts, reopened, replayed};

/// The unit in which a disk writes.
const SECTOR: usize = 512;

/// The first page of the file; its sectors with the marks are written after a sync, and not synced.
const PAGE: usize = 8 * SECTOR;
const MARKS: Range<usize> = SECTOR..3 * SECTOR;

/// The length of a batch's header.
const HEADER: usize = 64;

#[test]
fn long_what_was_synced_is_found_and_nothing_behind_a_gap() {
    let (mut n_gaps, mut n_whole) = (0, 0);
    for_seeds("what_was_synced_is_found", 4, |dice| {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("journal");
        drop(FactLog::create(&path, SnapshotPolicy::default()).expect("a new journal"));
        let mut n_facts = 0;
        for life in 0..5 {
            let written = Written::by_a_life(&path, n_facts, dice);
            let disk = written.after_loss(dice);
            fs::write(path.join("log.1"), &disk).expect("a file");
            n_facts = written.n_intact(&disk);
            // The second time, after the first has cut the rest off.
            for _ in 0..2 {
                let found = replayed(&path).unwrap_or_else(|error| panic!("life {life}: {error}"));
                assert!(found == facts(0..n_facts), "life {life}: {} facts instead of {n_facts}", found.len());
            }
            let is_behind = |batch: &Batch| batch.facts.start >= n_facts && written.has(batch, &disk);
            n_gaps += u32::from(written.noted.iter().any(is_behind));
            n_whole += u32::from(written.noted.iter().all(|batch| batch.facts.end <= n_facts));
        }
    });
    let is_varied = n_gaps > 0 && n_whole > 0;
    assert!(
        one_seed().is_some() || is_varied,
        "{n_gaps} gaps with a batch behind them, {n_whole} times nothing was lost"
    );
}

/// What a process has written until the power was lost.
struct Written {
    /// The file when it was last synced, with the marks from before.
    synced: Vec<u8>,
    synced_end: usize,
    n_synced: u64,
    /// The file as the process saw it at last.
    file: Vec<u8>,
    /// The batches after the sync.
    noted: Vec<Batch>,
}

struct Batch {
    facts: Range<u64>,
    bytes: Range<usize>,
}

impl Written {
    /// Appends facts and notes others. Where facts of the life before were lost, the same are written again.
    fn by_a_life(path: &Path, n_found: u64, dice: &mut Dice) -> Written {
        let read = || fs::read(path.join("log.1")).expect("a file");
        let mut log = reopened(path, SnapshotPolicy::default());
        let mut n_facts = n_found;
        let mut next = |dice: &mut Dice| {
            let first = n_facts;
            n_facts += 1 + dice.below(29);
            first..n_facts
        };
        let (mut synced, mut n_synced) = (read(), n_found);
        for _ in 0..dice.below(3) {
            let before = read();
            // Becomes durable with the append.
            log.note(&facts(next(dice))).expect("space");
            let appended = next(dice);
            n_synced = appended.end;
            log.append(&facts(appended)).expect("space");
            synced = read();
            synced[MARKS].copy_from_slice(&before[MARKS]);
        }
        let noted: Vec<Range<u64>> = (0..dice.number(1, 6)).map(|_| next(dice)).collect();
        noted.iter().for_each(|noted| log.note(&facts(noted.clone())).expect("space"));
        let file = read();
        let n_before = batches(&synced).len();
        let of_noted = batches(&file).split_off(n_before);
        let noted = noted.into_iter().zip(of_noted).map(|(facts, bytes)| Batch { facts, bytes }).collect();
        Written { synced_end: batches(&synced).last().map_or(PAGE, |batch| batch.end), synced, n_synced, file, noted }
    }

    /// Returns what the disk has: of each block the new or the old content, or zeros if nothing synced is in it.
    fn after_loss(&self, dice: &mut Dice) -> Vec<u8> {
        let block = SECTOR * if dice.chance(50) { 1 } else { 8 };
        let lost = dice.one_of(&[0, 20, 50, 100]);
        let mut disk = self.file.clone();
        for begin in (0..disk.len()).step_by(block) {
            if !dice.chance(lost) {
                continue;
            }
            let end = disk.len().min(begin + block);
            let has_old = end <= self.synced.len() && (begin < self.synced_end || dice.chance(70));
            match has_old {
                true => disk[begin..end].copy_from_slice(&self.synced[begin..end]),
                false if begin >= self.synced_end => disk[begin..end].fill(0),
                false => {}
            }
        }
        // The length is written like everything else.
        if dice.chance(30) {
            let n_more = disk.len() - self.synced_end;
            disk.truncate(self.synced_end + dice.below(n_more as u64 + 1) as usize);
        }
        disk
    }

    fn has(&self, batch: &Batch, disk: &[u8]) -> bool {
        disk.get(batch.bytes.clone()) == Some(&self.file[batch.bytes.clone()])
    }

    /// Returns how many facts come before the first block that is missing.
    fn n_intact(&self, disk: &[u8]) -> u64 {
        let intact = self.noted.iter().take_while(|batch| self.has(batch, disk));
        intact.last().map_or(self.n_synced, |batch| batch.facts.end)
    }
}

/// Returns where the batches of a file are.
fn batches(file: &[u8]) -> Vec<Range<usize>> {
    let next = |begin: usize| {
        let header = file.get(begin..begin + HEADER).filter(|header| header.starts_with(b"LMBF"))?;
        let n_bytes = u32::from_le_bytes(header[4..8].try_into().expect("four bytes"));
        Some(begin..begin + HEADER + n_bytes as usize)
    };
    std::iter::successors(next(PAGE), |batch| next(batch.end)).collect()
}
