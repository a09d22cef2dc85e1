//! Texts that people write: scripts and their directives, profiles, and the words of command lines.

use rms_cli::{directive, profile, script, shell, size, size_range, stamp, unmet};
use rms_model::evolution::ExpandLimit;
use rms_model::time::parse_wall;
use rms_model::{Evolution, OfferRule, Policy, Settings, ShrinkRule, Span, Time, hostlist};
use rms_wire::TokenText;

/// What `rms submit` does with a script before it asks anybody.
pub fn script(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let n_lines = text.matches('\n').count() + 1;
    for found in shell::read(text) {
        assert!((1..=n_lines).contains(&found.line), "{found:?}");
    }
    let _wrong = directive::read("job.sh", text);
    let script = script::Script { file: "job.sh".to_owned(), job_name: "job".to_owned(), text: text.to_owned() };
    let work = rms_model::Work::Script { script: String::new(), args: Vec::new() };
    let _missing =
        unmet::check(&script, &[("SLURM_JOB_ID".to_owned(), "1".to_owned())], &work, &[], rms_cli::check_step);
}

pub fn profile(input: &[u8]) {
    let Some((form, text)) = input.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let _wrong = profile::parse(if form % 2 == 0 { "p.toml" } else { "p.json" }, text);
}

/// A duration that was read is written as one that reads the same.
fn span(text: &str) {
    let Ok(span) = text.parse::<Span>() else { return };
    let again: Span = span.to_string().parse().expect("what is shown can be typed");
    assert_eq!(again, span, "{text}");
}

pub fn words(input: &[u8]) {
    let Some((kind, text)) = input.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    match kind % 12 {
        0 => drop(text.parse::<TokenText>()),
        1 => {
            if let Ok(nodes) = hostlist::expand(text) {
                let again = hostlist::expand(&hostlist::fold(&nodes)).expect("what was folded can be expanded");
                assert_eq!(again.len(), nodes.len(), "{text}");
            }
        }
        2 => span(text),
        3 => drop(parse_wall(text)),
        4 => drop(text.parse::<Evolution>()),
        5 => drop(text.parse::<ExpandLimit>()),
        6 => drop(text.parse::<Policy>()),
        7 => drop((text.parse::<OfferRule>(), text.parse::<ShrinkRule>())),
        8 => drop((text.parse::<size::NodeCount>(), text.parse::<size::Shapes>())),
        9 => drop((text.parse::<size_range::SizeRange>(), size_range::parse_sizes(text))),
        10 => {
            let now = Time::from_secs(1_700_000_000);
            drop((stamp::parse(text, now, stamp::Occurrence::Next), stamp::parse(text, now, stamp::Occurrence::Last)));
        }
        _ => {
            let Some((key, value)) = text.split_once('=') else { return };
            drop(Settings::default().set(key, value));
        }
    }
}
