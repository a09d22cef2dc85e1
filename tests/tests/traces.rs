//! Whole traces of the archive, where they are beside the project: what their readers must know of them holds.

use std::path::Path;
use std::process::Command;

use rms_sim::workload::swf::{Cleaning, Trace};

/// A trace's records, and how many have a run time of 0, no requested time, or ran for longer than requested.
const COUNTS: [(&str, [usize; 4]); 4] = [
    ("LLNL-Atlas-2006-2.1-cln", [43_778, 7_178, 8_233, 3_351]),
    ("RICC-2010-2.sept10k", [10_000, 0, 0, 22]),
    ("SDSC-SP2-1998-4.2-cln", [59_715, 10, 66, 4_134]),
    ("lublin_256", [10_000, 0, 10_000, 0]),
];

#[test]
fn traces_of_the_archive_are_read_and_written_back() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/traces");
    if !dir.is_dir() {
        println!("no whole trace is beside the project; the unit tests read a small one");
        return;
    }
    for (name, expected) in COUNTS {
        let path = dir.join(format!("{name}.swf.gz"));
        let unpacked = Command::new("gzip").arg("-dc").arg(&path).output().expect("gzip is installed");
        assert!(unpacked.status.success(), "{}", path.display());
        let trace = Trace::read(unpacked.stdout.as_slice()).expect(name);
        let count = |is: &dyn Fn(&rms_sim::workload::swf::Record) -> bool| {
            trace.records.iter().filter(|record| is(record)).count()
        };
        let n_zero = count(&|record| record.run.is_some_and(|run| run.is_zero()));
        let n_unasked = count(&|record| record.requested_time.is_none_or(|limit| limit.is_zero()));
        let cleaned = trace.clean(&Cleaning::default());
        assert_eq!([trace.records.len(), n_zero, n_unasked, cleaned.n_overrun], expected, "{name}");
        assert!(cleaned.jobs.windows(2).all(|two| two[0].submit <= two[1].submit), "{name}");
        let mut written = Vec::new();
        trace.write(&mut written).expect("memory takes it");
        assert_eq!(Trace::read(written.as_slice()).expect(name), trace, "{name}");
    }
}
