//! Sets the shared library's soname.

fn main() {
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    // While the major version is 0, a minor version may break the ABI, so the soname contains both.
    let soname = match version.split('.').collect::<Vec<&str>>().as_slice() {
        ["0", minor, ..] => format!("librms.so.0.{minor}"),
        [major, ..] => format!("librms.so.{major}"),
        [] => "librms.so".to_owned(),
    };
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,{soname}");
    // The library's threads would run unmapped code after a dlclose.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
