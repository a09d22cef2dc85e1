//! Tests what settings parse, print and refuse.

use super::*;

#[test]
fn settings_that_cannot_hold_together_are_named() {
    let mut settings = Settings::default();
    settings.set("max_wall", "30m").expect("a wall time");
    let error = settings.check().expect_err("an hour is more").to_string();
    assert!(error.contains("default_wall = 1h cannot hold together with max_wall = 30m"), "{error}");
    settings.set("default_wall", "30m").expect("a wall time");
    assert_eq!(settings.check(), Ok(()));
}

#[test]
fn every_setting_reads_back_what_it_prints() {
    for key in KEYS {
        let mut settings = Settings::default();
        let value = settings.get(key).expect(key);
        settings.set(key, &value).expect(key);
        assert_eq!(settings, Settings::default(), "{key}");
    }
}

#[test]
fn a_cluster_may_have_its_own_memory_for_each_cpu_and_most_cpus() {
    let mut settings = Settings::default();
    settings.set("memory_per_cpu", "512").expect("for all");
    settings.set("memory_per_cpu@fat", "4096").expect("for one");
    settings.set("max_cpus@fat", "64").expect("for one");
    let of = |settings: &Settings, name| (settings.memory_per_cpu_of(name).0, settings.max_cpus_of(name));
    assert_eq!([of(&settings, "fat"), of(&settings, "a")], [(4096, Some(64)), (512, None)]);
    assert_eq!(settings.get("max_cpus@fat").as_deref(), Ok("64"));
    settings.set("licences@fat", "matlab:20,ansys").expect("for one");
    let licences = [settings.licences_of("fat"), settings.licences_of("a")].map(ToString::to_string);
    assert_eq!(licences, ["ansys:1,matlab:20", ""]);
    let twice = settings.set("licences@fat", "matlab:1,ansys:2,matlab:2").expect_err("20 are there, or 3").to_string();
    assert!(twice.contains("each name once"), "{twice}");
    assert!(settings.set("licences", "matlab:many").is_err() && settings.set("licences", "none").is_ok());
    assert!(settings.set("memory_per_cpu", "2G").is_err() && settings.set("max_cpus", "-1").is_err());
    settings.forget_cluster("fat");
    assert_eq!(of(&settings, "fat"), (512, None));
}

#[test]
fn a_cluster_may_have_its_own_fair_start_delay_until_it_is_taken_back() {
    let mut settings = Settings::default();
    settings.set("fair_start", "2s").expect("for all");
    settings.set("fair_start@fast", "0s").expect("for one");
    assert_eq!((settings.fair_start_of("fast"), settings.fair_start_of("b")), (Span::ZERO, Span::from_secs(2)));
    assert_eq!(settings.get("fair_start@fast").as_deref(), Ok("0s"));
    assert_eq!(settings.get("fair_start@b").as_deref(), Ok(AS_OTHERS));
    assert_eq!(settings.keys().last().as_deref(), Some("fair_start@fast"));
    settings.set("fair_start@fast", AS_OTHERS).expect("taken back");
    assert_eq!(settings.fair_start_of("fast"), Span::from_secs(2));
    assert!(settings.fair_start_at.is_empty());
}

#[test]
fn every_setting_that_may_be_someones_own_is_taken_back_by_the_same_word() {
    let rows = [
        ("fair_start@a", "5s", Subject::Cluster("a")),
        ("price@a", "1500", Subject::Cluster("a")),
        ("budget@ada", "100000", Subject::User("ada")),
        ("growth_limit@ada", "none", Subject::User("ada")),
        ("share@ada", "3", Subject::User("ada")),
    ];
    for (key, value, subject) in rows {
        let mut settings = Settings::default();
        assert_eq!(Settings::subject_of(key), Some(subject), "{key}");
        assert_eq!(settings.get(key).as_deref(), Ok(AS_OTHERS), "{key}");
        settings.set(key, value).expect(key);
        assert_eq!(settings.get(key).as_deref(), Ok(value), "{key}");
        assert_eq!(settings.keys().last().as_deref(), Some(key));
        settings.set(key, AS_OTHERS).expect("taken back");
        assert_eq!(settings, Settings::default(), "{key}");
    }
    assert_eq!(Settings::subject_of("policy@a"), None);
    let refused = Settings::default().get("policy@a").expect_err("there is one for all").to_string();
    assert_eq!(refused, "policy has one value for all clusters and users: write it without '@a'");
}

#[test]
fn someones_own_value_wins_over_the_one_for_all() {
    let mut settings = Settings::default();
    for (key, value) in [("budget", "10"), ("budget@ada", "none"), ("growth_limit", "4"), ("price@a", "7")] {
        settings.set(key, value).expect(key);
    }
    assert_eq!((settings.budget_of("ada"), settings.budget_of("bob")), (None, Some(10)));
    assert_eq!((settings.growth_limit_of("ada"), settings.share_of("ada")), (Some(4), 1));
    assert_eq!((settings.price_in("a"), settings.price_in("b")), (7, 0));
}

#[test]
fn no_value_is_large_enough_to_overflow_later() {
    let mut settings = Settings::default();
    for (key, value) in [
        ("price", "1099511627777"),
        ("price@a", "-1"),
        ("budget", "18446744073709551615"),
        ("share@ada", "0"),
        ("share", "1000001"),
        ("price_floor", "101"),
        ("offer_valid", "0s"),
        ("offer_valid", "2h"),
        ("offer_idle", "everybody"),
        ("shrink_for", "me"),
        ("offer_recall", "me"),
        ("fair_start", "9223372036854775807ms"),
        ("fair_start@a", "36601d"),
        ("kill_grace", "36601d"),
    ] {
        assert!(settings.set(key, value).is_err(), "{key} = {value}");
    }
    assert_eq!(settings, Settings::default());
}

#[test]
fn a_bad_value_changes_nothing_and_says_what_is_expected() {
    let mut settings = Settings::default();
    let error = settings.set("lost_policy", "shrug").unwrap_err();
    assert_eq!(error.to_string(), "'shrug' is not a value of lost_policy: fail or requeue");
    assert!(settings.set("fair_strat", "1s").unwrap_err().to_string().contains("fair_start"));
    assert!(settings.set("max_wall", "0s").is_err());
    assert_eq!(settings, Settings::default());
}

/// `auto` is stored as a number, so that older programs can read it.
#[test]
fn a_depth_is_a_number_or_auto() {
    let mut settings = Settings::default();
    for (text, depth, written) in
        [("auto", Depth::Auto, "4294967295"), ("0", Depth::All, "0"), ("50", Depth::First(50), "50")]
    {
        settings.set("queue_depth", text).expect("a depth");
        assert_eq!((settings.queue_depth, settings.get("queue_depth").as_deref()), (depth, Ok(text)));
        assert_eq!(serde_json::to_string(&depth).expect("a number"), written);
        assert_eq!(serde_json::from_str::<Depth>(written).expect("a depth"), depth);
    }
    for wrong in ["4294967295", "-1", "Auto", ""] {
        let error = settings.set("queue_depth", wrong).expect_err("no depth").to_string();
        assert!(error.ends_with("auto, or a whole number from 0 to 4294967294"), "{error}");
    }
    assert!(settings.set("pass_time", "0s").is_err());
}

#[test]
fn a_share_of_a_view_is_rounded_up_to_one_node_at_least() {
    let mut settings = Settings::default();
    assert_eq!([0, 1, 128].map(|n_nodes| settings.choosable_in("a", n_nodes)), [0, 1, 128]);
    settings.set("view_share", "25").expect("a share");
    settings.set("view_share@b", "1").expect("a share");
    assert_eq!([0, 1, 4, 5, u32::MAX].map(|n_nodes| settings.choosable_in("a", n_nodes)), [0, 1, 1, 2, 1 << 30]);
    assert_eq!([1, 100, 101].map(|n_nodes| settings.choosable_in("b", n_nodes)), [1, 1, 2]);
    for wrong in ["0", "101", "half"] {
        assert!(settings.set("view_share", wrong).is_err());
    }
    settings.forget_cluster("b");
    assert_eq!(settings.choosable_in("b", 8), 2);
}

#[test]
fn a_general_value_can_be_made_the_one_of_all() {
    let mut settings = Settings::default();
    for key in ["allocation@a", "allocation@b"] {
        settings.set(key, "cores").expect("for one");
    }
    settings.set("fair_start@a", "5s").expect("for one");
    settings.forget_own("allocation");
    settings.forget_own("policy");
    settings.forget_own("no_such_key");
    assert_eq!([settings.allocation_of("a"), settings.allocation_of("b")], [Allocation::Nodes; 2]);
    assert_eq!(settings.fair_start_of("a"), Span::from_secs(5), "another setting");
}
