//! Tests of the server: its journal under crashes and full disks, and complete servers over real links.

mod cli;
#[path = "../../../rms-wire/tests/common/contained.rs"]
mod contained;
mod crash;
mod deployment;
mod disk;
mod golden;
mod golden_negotiation;
mod journal;
mod launchers;
mod masks;
mod measure;
mod negotiators;
mod node;
mod past;
mod power;
mod rights;
mod samples;
mod server;
mod settings;
mod story;
mod stream;
mod version_1;
mod versions;
