//! Links `rms` to run at a fixed address: a short command would spend more time on relocating 23,000 addresses than on
//! its work.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Each page with such an address costs a page fault and a copy at every start. Servers and agents, which listen,
    // keep their random addresses.
    println!("cargo:rustc-link-arg-bin=rms=-no-pie");
}
