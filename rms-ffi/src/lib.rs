//! The launcher SDK for C, C++ and Fortran, by which an application negotiates its size with the RMS (002).
//!
//! cbindgen generates `include/rms.h` from this source. This crate neither decides nor communicates: it turns arguments
//! into values, calls `launcher_sdk::negotiator`, and turns the results into numbers and texts.

mod abi;
mod breakpoint;
mod callback;
mod counter;
mod failure;
mod guard;
mod kind;
mod layout;
mod mailbox;
mod number;
mod promised;
mod session;
mod sessions;
mod thread;
mod told;
