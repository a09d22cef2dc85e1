//! Feeds bytes to every decoder that reads what others wrote: none may panic, hang, or misread what it accepts.
//!
//! `cargo xtask fuzz` runs the targets under libFuzzer, guided by coverage. What it found interesting is kept, minimised,
//! in `fuzz/corpus`, and an ordinary test feeds that to the same targets.

mod files;
mod frames;
mod local;
mod texts;

use std::sync::OnceLock;

/// One decoder, or some that read the same.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Also the name of its directory in the corpus.
    pub name: &'static str,
    /// Panics if something is wrong with the decoder.
    pub run: fn(&[u8]),
}

pub const TARGETS: [Target; 18] = [
    Target { name: "frames_entry", run: frames::of_entry },
    Target { name: "frames_agent", run: frames::of_agents },
    Target { name: "frames_client", run: frames::of_clients },
    Target { name: "frames_launcher", run: frames::of_launchers },
    Target { name: "frames_negotiator", run: frames::of_negotiators },
    Target { name: "frames_peer", run: frames::of_peers },
    Target { name: "local_rsh", run: local::rsh },
    Target { name: "local_supervisor", run: local::supervisor },
    Target { name: "pmi", run: local::pmi },
    Target { name: "malleable", run: local::malleable },
    Target { name: "journal_bytes", run: files::journal_bytes },
    Target { name: "journal_facts", run: files::journal_facts },
    Target { name: "snapshot", run: files::snapshot },
    Target { name: "swf", run: files::swf },
    Target { name: "config", run: files::config },
    Target { name: "script", run: texts::script },
    Target { name: "profile", run: texts::profile },
    Target { name: "words", run: texts::words },
];

/// The target that the environment names.
///
/// # Panics
/// There is no such target.
pub fn chosen() -> fn(&[u8]) {
    static CHOSEN: OnceLock<fn(&[u8])> = OnceLock::new();
    *CHOSEN.get_or_init(|| {
        let name = std::env::var("LIMBER_FUZZ_TARGET").unwrap_or_default();
        let target = TARGETS.iter().find(|target| target.name == name);
        target.unwrap_or_else(|| panic!("LIMBER_FUZZ_TARGET={name} is no target")).run
    })
}
