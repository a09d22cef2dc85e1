//! Stories about the server: its journal under crashes and full disks, and whole servers over real links.

mod crash;
mod deployment;
mod disk;
mod golden;
mod journal;
mod server;
mod story;
