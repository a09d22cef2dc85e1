//! Gives the shared library the name by which programs that were linked with it will look for it.

fn main() {
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    // While the major version is 0, a minor version may break programs, so both are in the name.
    let soname = match version.split('.').collect::<Vec<&str>>().as_slice() {
        ["0", minor, ..] => format!("librms.so.0.{minor}"),
        [major, ..] => format!("librms.so.{major}"),
        [] => "librms.so".to_owned(),
    };
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,{soname}");
    // Its threads would run code that is not there any more after a dlclose.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
