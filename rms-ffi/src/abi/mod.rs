//! The functions of the header, and all code that dereferences foreign pointers; the logic is in `session`.
#![allow(unsafe_code)]

mod arguments;
mod breakpoint;
mod events;
mod keep;
mod negotiate;
pub mod pointer;
mod session;
mod text;
