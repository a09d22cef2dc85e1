//! What people see on their screens: times in their own zone, tables as wide as the terminal, and why a job waits.

use rms_tests::harness::{Deployment, Output};

/// As somebody whose clock shows that zone.
fn rms_at(deployment: &Deployment, zone: &str, arguments: &[&str]) -> Output {
    let mut command = deployment.command(arguments);
    command.env("TZ", zone);
    deployment.finish(command)
}

#[test]
fn times_are_local_unless_utc_is_asked_for() {
    let deployment = Deployment::of_nodes(1);
    // Half an hour beside the whole ones, so that no zone of the machine is taken for it.
    let zone = "TST-05:30";
    let submit = |arguments: &[&str]| {
        let arguments = [&["submit", "-q"], arguments, &["--wrap", "true"]].concat();
        let id = rms_at(&deployment, zone, &arguments).ok().text().parse::<u64>();
        id.expect("a bare id").to_string()
    };
    let begin = |job: &str, flags: &[&str]| {
        let shown = rms_at(&deployment, zone, &[flags, &["show", "--json", job]].concat()).ok().json();
        shown["begin"].as_str().expect("it has a begin").to_owned()
    };
    let local = submit(&["--begin", "2031-07-01T08:00"]);
    assert_eq!(begin(&local, &[]), "2031-07-01T08:00:00.000+05:30");
    assert_eq!(begin(&local, &["--utc"]), "2031-07-01T02:30:00.000Z");
    let utc = submit(&["--utc", "--begin", "2031-07-01T08:00"]);
    assert_eq!(begin(&utc, &["--utc"]), "2031-07-01T08:00:00.000Z");
    let elsewhere = submit(&["--begin", "2031-07-01T08:00-04:00"]);
    assert_eq!(begin(&elsewhere, &["--utc"]), "2031-07-01T12:00:00.000Z");
    let script = deployment.script("later.sh", "#!/bin/sh\n#SBATCH --begin=2031-07-01T08:00:00 --time=30\n");
    let written = rms_at(&deployment, zone, &["submit", "-q", &script]).ok().text().to_owned();
    assert_eq!(begin(&written, &[]), "2031-07-01T08:00:00.000+05:30");
    let shown = rms_at(&deployment, zone, &["show", "--json", &written]).ok().json();
    assert_eq!(shown["request"]["wall_ms"], 1_800_000, "a bare number of sbatch is minutes");

    let explained = rms_at(&deployment, zone, &["explain", &local]).ok().stdout;
    assert!(explained.contains("2031-07-01T08:00:00+05:30"), "{explained}");
    let lost = rms_at(&deployment, "Nowhere/Atall", &["queue", "-q"]).ok();
    assert!(lost.stderr.contains("TZ='Nowhere/Atall' names no time zone"), "{lost:?}");
    let refused = deployment.rms(&["submit", "--begin", "now+60", "--wrap", "true"]);
    assert!(refused.code != 0 && refused.stderr.contains("write 60s, 60m or 60h"), "{refused:?}");
}
