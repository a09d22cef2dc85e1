//! The functions of the header, and all that follows foreign pointers; what they do is in `session`.
#![allow(unsafe_code)]

mod arguments;
mod breakpoint;
mod events;
mod keep;
mod negotiate;
pub mod pointer;
mod session;
mod text;
