//! What a program needs that speaks with the server: for now, the application-side schedulers.

pub mod schedule;
