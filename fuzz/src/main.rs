//! One target under libFuzzer: that which `LIMBER_FUZZ_TARGET` names. Started by `cargo xtask fuzz`.
#![no_main]
#![allow(unsafe_code, reason = "libFuzzer calls an exported C function")]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| limber_fuzz::chosen()(input));
