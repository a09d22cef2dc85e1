//! Tests each property of traces that was found in the archive's files.

use super::*;

fn read(text: &str) -> Trace {
    Trace::read(text.as_bytes()).expect("a trace")
}

/// Returns a record that ran for 10 s on 4 processors; `fields` replace its values, by their column.
fn line(fields: &[(usize, &str)]) -> String {
    let mut words = "1 0 -1 10 4 -1 -1 4 60 -1 1 3 1 -1 1 10 -1 -1".split(' ').collect::<Vec<_>>();
    for (column, word) in fields {
        words[column - 1] = word;
    }
    words.join(" ")
}

fn jobs(lines: &[&[(usize, &str)]], cleaning: Cleaning) -> Cleaned {
    let text: Vec<String> = lines.iter().map(|fields| line(fields)).collect();
    read(&text.join("\n")).clean(&cleaning)
}

fn secs(secs: i64) -> Span {
    Span::from_secs(secs)
}

#[test]
fn the_size_is_what_was_allocated_else_what_was_requested_else_there_is_no_job() {
    let lines: [&[(usize, &str)]; 4] =
        [&[(5, "-1"), (8, "7")], &[(5, "0"), (8, "7")], &[(5, "-1"), (8, "-1")], &[(8, "9")]];
    let cleaned = jobs(&lines, Cleaning::default());
    let sizes: Vec<u32> = cleaned.jobs.iter().map(|job| job.n_nodes).collect();
    assert_eq!((sizes, cleaned.n_without_size, cleaned.n_dropped), (vec![7, 7, 4], 1, 1));
    let requested = Cleaning { size_from: SizeFrom::Requested, cores_per_node: 8, ..Cleaning::default() };
    assert_eq!(jobs(&[&[(5, "1"), (8, "9")]], requested).jobs[0].n_nodes, 2);
}

/// Means over the time of a job, as some logs have them.
#[test]
fn a_part_of_a_processor_is_a_processor() {
    for (allocated, size) in [("2.99", 3), ("3.0", 3), ("0.99", 1), ("0.0", 7), ("-1", 7), ("-0.5", 7)] {
        let cleaned = jobs(&[&[(5, allocated), (8, "6.2")]], Cleaning::default());
        assert_eq!(cleaned.jobs[0].n_procs, size, "{allocated}");
    }
}

#[test]
fn submits_that_go_backwards_are_sorted_and_equal_ones_keep_their_order() {
    let lines: [&[(usize, &str)]; 4] =
        [&[(1, "1"), (2, "50")], &[(1, "2"), (2, "20")], &[(1, "3"), (2, "50")], &[(1, "4"), (2, "20")]];
    let order: Vec<i64> = jobs(&lines, Cleaning::default()).jobs.iter().map(|job| job.number).collect();
    assert_eq!(order, [2, 4, 1, 3]);
}

/// Else all other jobs would come later by its second before the first one.
#[test]
fn jobs_without_a_submit_time_are_dropped() {
    let lines: [&[(usize, &str)]; 4] = [&[(2, "-1")], &[(2, "0")], &[(2, "-17"), (5, "-1"), (8, "-1")], &[(2, "5")]];
    let cleaned = jobs(&lines, Cleaning::default());
    let submits: Vec<Time> = cleaned.jobs.iter().map(|job| job.submit).collect();
    assert_eq!(submits, [Time::EPOCH, Time::from_secs(5)]);
    assert_eq!((cleaned.n_without_submit, cleaned.n_without_size, cleaned.n_dropped), (2, 0, 2));
}

/// In Atlas and Thunder no wait is known: the submit is really the start.
#[test]
fn an_unknown_wait_is_unknown() {
    assert_eq!(read(&line(&[])).records[0].wait, None);
    assert_eq!(read(&line(&[(3, "0")])).records[0].wait, Some(Span::ZERO));
}

#[test]
fn jobs_without_a_run_time_run_for_a_second_or_are_dropped() {
    let lines: [&[(usize, &str)]; 4] = [&[(4, "0")], &[(4, "-1")], &[(4, "-17")], &[]];
    let kept = jobs(&lines, Cleaning::default());
    assert_eq!(kept.jobs.iter().map(|job| job.run).collect::<Vec<_>>(), [secs(1), secs(1), secs(1), secs(10)]);
    assert_eq!((kept.n_without_run, kept.n_dropped), (3, 0));
    let dropped = jobs(&lines, Cleaning { zero_run: ZeroRun::Drop, ..Cleaning::default() });
    assert_eq!((dropped.jobs.len(), dropped.n_without_run, dropped.n_dropped), (1, 3, 3));
}

#[test]
fn without_a_requested_time_the_run_time_was_requested() {
    for requested in ["0", "-1"] {
        let cleaned = jobs(&[&[(9, requested)]], Cleaning::default());
        assert_eq!((cleaned.jobs[0].wall, cleaned.n_overrun), (secs(10), 0));
    }
}

#[test]
fn a_job_that_ran_for_too_long_is_killed_at_its_limit_or_had_asked_for_more() {
    let times = |overrun| {
        let cleaned = jobs(&[&[(9, "7")]], Cleaning { overrun, ..Cleaning::default() });
        (cleaned.jobs[0].run, cleaned.jobs[0].wall, cleaned.n_overrun)
    };
    assert_eq!(times(Overrun::Kill), (secs(7), secs(7), 1));
    assert_eq!(times(Overrun::Extend), (secs(10), secs(10), 1));
    let minutes = Cleaning { wall_unit: Span::from_mins(1), ..Cleaning::default() };
    assert_eq!(jobs(&[&[(9, "61")]], minutes).jobs[0].wall, secs(120));
}

/// Status 5 includes jobs that ran before they were cancelled; elsewhere it is a raw exit code.
#[test]
fn no_job_is_dropped_for_its_status() {
    for status in ["-1", "0", "1", "5", "137", "32512"] {
        let trace = read(&line(&[(11, status)]));
        assert_eq!(trace.records[0].status.to_string(), status);
        assert_eq!(trace.clean(&Cleaning::default()).jobs.len(), 1);
    }
}

/// Elsewhere these numbers are exit codes.
#[test]
fn the_stretches_in_which_an_interrupted_job_ran_are_no_jobs_of_their_own() {
    let lines: [&[(usize, &str)]; 10] = [
        &[(1, "7"), (11, "1")],
        &[(1, "7"), (2, "-1"), (4, "6"), (11, "2")],
        &[(1, "7"), (2, "-1"), (4, "4"), (11, "3")],
        &[(1, "8"), (11, "2")],
        &[(1, "7"), (11, "3")],
        // A job without a line of its own.
        &[(1, "9"), (4, "6"), (11, "2")],
        &[(1, "9"), (4, "4"), (11, "3")],
        &[(1, "10"), (11, "1")],
        // After lines of other jobs.
        &[(1, "7"), (11, "2")],
        &[(1, "9"), (4, "3"), (11, "2")],
    ];
    let cleaned = jobs(&lines, Cleaning::default());
    let kept: Vec<(i64, Span)> = cleaned.jobs.iter().map(|job| (job.number, job.run)).collect();
    assert_eq!(kept, [(7, secs(10)), (8, secs(10)), (9, secs(6)), (9, secs(4)), (10, secs(10)), (9, secs(3))]);
    assert_eq!(cleaned.n_dropped, 0);
}

#[test]
fn job_numbers_have_gaps_and_the_first_submit_is_not_zero() {
    let lines: [&[(usize, &str)]; 2] = [&[(1, "414970"), (2, "31656837")], &[(1, "414999"), (2, "31656840")]];
    let jobs = jobs(&lines, Cleaning::default()).jobs;
    assert_eq!((jobs[0].number, jobs[0].submit, jobs[1].submit), (414_970, Time::EPOCH, Time::from_secs(3)));
}

#[test]
fn headers_may_hold_text_where_a_number_belongs_or_be_missing() {
    let trace = read(&format!(";MaxNodes: 1152 (144 boards)\n; MaxProcs: 9216\n;\n\n{}\n", line(&[])));
    assert_eq!(trace.header_value("maxnodes"), Some("1152 (144 boards)"));
    assert_eq!((trace.header_count("MaxNodes"), trace.header_count("MaxProcs")), (None, Some(9216)));
    assert_eq!((trace.records.len(), trace.header_count("MaxJobs")), (1, None));
    assert_eq!(read(&line(&[])).header.len(), 0);
    let marked = read(&format!("\u{feff}; MaxProcs: 9216\r\n{}\r\n", line(&[])));
    assert_eq!((marked.header_count("MaxProcs"), marked.records.len()), (Some(9216), 1));
    let latin = [b"; Acknowledge: J\xf6rg\n".as_slice(), line(&[]).as_bytes()].concat();
    assert_eq!(Trace::read(latin.as_slice()).expect("a trace").records.len(), 1);
}

#[test]
fn floats_and_a_nineteenth_column_occur() {
    let trace = read(&format!("{} 0.37", line(&[(2, "12.5"), (6, "9.87"), (7, "1e3")])));
    let record = &trace.records[0];
    assert_eq!((record.submit, record.cpu_secs, record.memory_kib), (Time::from_millis(12_500), 9.87, 1000.0));
    assert_eq!(record.to_string(), line(&[(2, "12.5"), (6, "9.87"), (7, "1000")]));
}

#[test]
fn jobs_that_are_too_large_are_cut_and_counted_and_partitions_are_selected() {
    let lines: [&[(usize, &str)]; 3] = [&[(5, "900")], &[(16, "2")], &[]];
    let cleaning = Cleaning { most_nodes: Some(128), partition: Some(10), most_jobs: Some(5), ..Cleaning::default() };
    let cleaned = jobs(&lines, cleaning);
    assert_eq!(cleaned.jobs.iter().map(|job| job.n_nodes).collect::<Vec<_>>(), [128, 4]);
    assert_eq!((cleaned.n_cut, cleaned.n_dropped), (1, 0));
}

/// Concatenated logs count from 1 each.
#[test]
fn jobs_with_the_number_of_an_earlier_one_get_their_own() {
    let lines: [&[(usize, &str)]; 5] =
        [&[(1, "1")], &[(1, "7"), (2, "5")], &[(1, "1"), (2, "9")], &[(1, "7"), (2, "7")], &[(1, "1"), (2, "8")]];
    let mut cleaned = jobs(&lines, Cleaning::default());
    let doubles = cleaned.renumber_doubles();
    assert_eq!(doubles, Some(Doubles { first: 7, n_jobs: 3, from: 8 }));
    assert_eq!(cleaned.jobs.iter().map(|job| job.number).collect::<Vec<_>>(), [1, 7, 8, 9, 10]);
    assert_eq!(cleaned.renumber_doubles(), None);
}

#[test]
fn a_new_number_is_one_that_no_job_of_the_whole_trace_has() {
    let lines: [&[(usize, &str)]; 5] =
        [&[(1, "1")], &[(1, "1")], &[(1, "2")], &[(1, "3"), (16, "7")], &[(1, "9"), (5, "-1"), (8, "-1")]];
    let numbers = |lines: &[&[(usize, &str)]], partition| {
        let mut cleaned = jobs(lines, Cleaning { partition, ..Cleaning::default() });
        cleaned.keep(0, Some(2));
        cleaned.renumber_doubles();
        cleaned.jobs.iter().map(|job| job.number).collect::<Vec<_>>()
    };
    assert_eq!(numbers(&lines[..3], None), [1, 3], "2 is a job that is not run");
    assert_eq!(numbers(&lines[..4], Some(10)), [1, 4], "3 is one of another partition");
    assert_eq!(numbers(&lines, None), [1, 10], "9 is one that was dropped");
}

#[test]
fn as_many_jobs_are_kept_as_are_wanted_of_those_that_can_run() {
    let lines: [&[(usize, &str)]; 5] =
        [&[(1, "1"), (5, "9")], &[(1, "2")], &[(1, "3")], &[(1, "4"), (5, "9")], &[(1, "5")]];
    let mut cleaned = jobs(&lines, Cleaning::default());
    cleaned.drop_larger_than(4);
    cleaned.keep(1, Some(1));
    assert_eq!(cleaned.jobs.iter().map(|job| job.number).collect::<Vec<_>>(), [3]);
}

#[test]
fn a_bad_line_says_where_it_is_and_what_was_expected() {
    let check = |text: &str, expected: &str| {
        let error = Trace::read(text.as_bytes()).expect_err(expected).to_string();
        assert_eq!(error, expected);
    };
    check("; x\n1 2 3\n", "line 2 has 3 columns: a record has 18 numbers");
    check(&line(&[(4, "ten")]), "line 1, column 4 (run time): 'ten' is not a number");
    check(&line(&[(9, "nan")]), "line 1, column 9 (requested time): 'nan' is not a number");
    check(
        &line(&[(2, "899999999999999")]),
        "line 1, column 2 (submit time): '899999999999999' is not a number of at most 1e14",
    );
    check(&line(&[(2, "1e300")]), "line 1, column 2 (submit time): '1e300' is not a number of at most 1e14");
    let two = [line(&[]).trim_end(), line(&[]).trim_end()].join("\r");
    check(
        &two,
        "line 1 has 36 columns, which is more than one record of 18 numbers: write each record on a line that ends with a \
         line feed",
    );
    let endless = "1 ".repeat(50_000);
    check(&endless, "line 1 is longer than 65536 bytes: this is no trace in the Standard Workload Format");
}

#[test]
fn what_is_written_is_what_was_read() {
    let text = include_str!("../../../../tests/data/traces/LLNL-Atlas-2006-2.1-cln.first200-ran.swf");
    let trace = read(text);
    assert_eq!(trace.records.len(), 200);
    let mut written = Vec::new();
    trace.write(&mut written).expect("memory takes it");
    assert_eq!(Trace::read(written.as_slice()).expect("a trace"), trace);
    let cleaned = trace.clean(&Cleaning { cores_per_node: 8, ..Cleaning::default() });
    assert_eq!((cleaned.jobs.len(), cleaned.n_dropped, cleaned.n_without_run), (200, 0, 0));
    assert!(cleaned.jobs.iter().all(|job| job.n_nodes >= 1 && job.run <= job.wall));
}
