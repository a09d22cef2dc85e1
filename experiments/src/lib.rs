//! The experiments of the papers, and of the tables in the documents, on the production core in virtual time.
//!
//! [`views`] is the evaluation of 001, [`offline`] that of 003 and 000, [`sd`] that of 004, and [`gain`] measures the
//! benefit of malleable jobs. The simulator does not depend on them.

pub mod delegated;
pub mod evolving;
pub mod gain;
pub mod offline;
pub mod sd;
pub mod views;
