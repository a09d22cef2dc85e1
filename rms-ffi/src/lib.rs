//! The launcher SDK for C, C++ and Fortran: an application negotiates its size with the RMS (002).
//!
//! `include/rms.h` is written from this source by cbindgen. Nothing here decides or speaks: it turns arguments into
//! values, calls `launcher_sdk::negotiator`, and turns what comes of it into numbers and texts.

mod abi;
mod breakpoint;
mod callback;
mod counter;
mod failure;
mod guard;
mod layout;
mod mailbox;
mod number;
mod session;
mod sessions;
mod thread;
mod told;
