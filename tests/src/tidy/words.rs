//! One word for a thing: words that were replaced stay away. `docs/glossary.md` has those that stay.

use super::{read, tracked};

/// A word that is not written any more, and the one that is. In two parts each, so that this file passes, too.
const RETIRED: &[(&str, &str, &str)] = &[
    ("launcher ", "outside", "external launcher"),
    ("launchers ", "outside", "external launchers"),
    ("voice", "less", "detached"),
    ("un", "tell", "forget what was sent"),
    ("spa", "te", "rate limit"),
    ("de", "sk", "dialogues, PMI server"),
    ("de", "ed", "statement kind"),
    ("pur", "se", "budget"),
    ("ber", "th", "place"),
    ("no", "d", "acknowledgement"),
    ("pi", "ty", "harmless"),
    ("be", "ll", "wake-up"),
    ("me", "nd", "fix, repair"),
    ("who speaks for ", "it", "its negotiator"),
    ("does not let us ", "in", "access denied by …"),
    ("is not under", "stood", "cannot parse …"),
];

/// Where a host is not a node of ours: in addresses, in names of machines, and where others' programs say so.
const HOSTS: &[&str] = &[
    "host:port",
    "host name",
    "hosts.openmpi",
    "hosts.mpich",
    "host_file",
    "submit_host",
    "lookup_host",
    "of_hosts",
    "info key",
    "*host*",
    "`host`",
    "`hosts`",
    "--host ",
    "-host ",
    "host=",
    "\"host",
];
const OF_HOSTS: &[&str] = &[
    "node-agent/src/pmi/",
    "node-agent/tests/",
    "rms-server/src/reach.rs",
    "rms-wire/src/token.rs",
    "tests/apps/",
    "tests/src/conformance/",
    "tests/src/network.rs",
    "tests/src/tidy/",
    "tests/tests/e2e_guide.rs",
    "tests/tests/e2e_mpirun.rs",
    "xtask/",
];

#[test]
fn a_node_is_not_called_a_host() {
    let is_ours = |name: &String| {
        let is_text = [".rs", ".md", ".toml", ".h", ".f90", ".3"].iter().any(|end| name.ends_with(end));
        is_text
            && name != "CHANGELOG.md"
            && ![OF_HOSTS, &["tests/data/"]].concat().iter().any(|of| name.starts_with(of))
    };
    let mut found = Vec::new();
    for name in tracked().into_iter().filter(is_ours) {
        for (line_idx, line) in read(&name).lines().enumerate() {
            let line = HOSTS.iter().fold(line.to_lowercase(), |line, of| line.replace(of, ""));
            if words(&line, "host") {
                found.push(format!("{name}:{}", line_idx + 1));
            }
        }
    }
    assert!(found.is_empty(), "a node is called a host:\n  {}", found.join("\n  "));
}

#[test]
fn retired_words_stay_away() {
    let is_ours = |name: &String| {
        let is_text = [".rs", ".md", ".toml", ".h", ".f90", ".3"].iter().any(|end| name.ends_with(end));
        is_text && name != "CHANGELOG.md" && !name.starts_with("tests/data/")
    };
    let mut found = Vec::new();
    for name in tracked().into_iter().filter(is_ours) {
        for (line_idx, line) in read(&name).lines().enumerate() {
            let line = line.to_lowercase();
            for (first, second, now) in RETIRED {
                let retired = format!("{first}{second}");
                if words(&line, &retired) {
                    found.push(format!("{name}:{}: '{retired}' is '{now}' today", line_idx + 1));
                }
            }
        }
    }
    assert!(found.is_empty(), "retired words (docs/glossary.md):\n  {}", found.join("\n  "));
}

/// Is it there, and not inside a longer word?
fn words(line: &str, retired: &str) -> bool {
    line.match_indices(retired).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + retired.len()..].trim_start_matches('s').chars().next();
        ![before, after].into_iter().flatten().any(char::is_alphabetic)
    })
}
