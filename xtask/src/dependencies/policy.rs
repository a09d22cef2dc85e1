//! What may be depended on, and why the exceptions are made.

/// The rules of the dependency check; every exception carries its reason.
pub struct Policy {
    /// SPDX names that may be chosen.
    pub licences: &'static [&'static str],
    /// Crate, its licence that is not among these, and why it may be used nevertheless: nothing of it is shipped, so only
    /// tests and build scripts may depend on it.
    pub tools: &'static [(&'static str, &'static str, &'static str)],
    /// Crate, and why it stays out.
    pub banned: &'static [(&'static str, &'static str)],
    /// Crate, least version, and the advisories that it fixes.
    pub floors: &'static [(&'static str, &'static str, &'static str)],
    /// Crates that are built in two incompatible versions.
    pub duplicates: &'static [(&'static str, &'static str)],
    pub unmaintained: &'static [(&'static str, &'static str)],
    /// Crates of ours that decide, and the only crates they may use.
    pub pure: &'static [(&'static str, &'static [&'static str])],
    /// A crate that only one crate of ours may use.
    pub confined: &'static [(&'static str, &'static str)],
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            licences: &[
                "MIT",
                "Apache-2.0",
                "Apache-2.0 WITH LLVM-exception",
                "BSD-2-Clause",
                "BSD-3-Clause",
                "ISC",
                "Unicode-3.0",
                "Unlicense",
                "Zlib",
            ],
            tools: &[
                (
                    "cbindgen",
                    "MPL-2.0",
                    "it writes rms-ffi/include/rms.h from the source, and a test compares the two: a header by hand is \
                     wrong one day, and C finds out at run time",
                ),
                (
                    "libfuzzer-sys",
                    "(MIT OR Apache-2.0) AND NCSA",
                    "it searches for what the decoders do not expect, by coverage and compared values, which no random \
                     test does; `cargo xtask fuzz` alone builds it, from its sources",
                ),
            ],
            banned: &[
                ("openssl", "TLS is rustls with ring; a second TLS library doubles the advisories to watch"),
                ("openssl-sys", "TLS is rustls with ring; a second TLS library doubles the advisories to watch"),
                ("native-tls", "TLS is rustls with ring; a second TLS library doubles the advisories to watch"),
                ("async-std", "the runtime is tokio"),
                ("core_affinity", "masks are set with nix and rustix, which see every thread of a process"),
                ("cgroups-rs", "cgroups are plain file writes; it would bring a D-Bus client"),
            ],
            // The advisories known to concern what is used here. No tool that needs an hour to build watches them.
            floors: &[
                ("quinn-proto", "0.11.15", "RUSTSEC-2026-0037 and RUSTSEC-2026-0185"),
                ("rustls", "0.23.45", "RUSTSEC-2026-0285"),
                ("rustls-webpki", "0.103.13", "RUSTSEC-2026-0049, -0098, -0099 and -0104"),
                ("bytes", "1.11.1", "RUSTSEC-2026-0007"),
                ("time", "0.3.47", "RUSTSEC-2026-0009"),
                ("crossbeam-epoch", "0.9.20", "RUSTSEC-2026-0204"),
                ("lru", "0.16.3", "RUSTSEC-2026-0002"),
                ("tokio", "1.54.1", "no advisory: 1.54.0 was yanked"),
            ],
            duplicates: &[
                ("getrandom", "ring 0.17 still uses 0.2"),
                ("toml", "cbindgen still uses 0.9; for one test only"),
                ("toml_datetime", "as toml"),
                ("winnow", "as toml"),
                ("syn", "derive macros are moving from 2 to 3; a build-time cost only"),
            ],
            unmaintained: &[(
                "bincode",
                "RUSTSEC-2025-0141. The pieces of streams are specified with it; it is pinned, called in one module of \
                 rms-wire under hard limits, never on types that nest, and fuzzed. wincode reads the same bytes, \
                 should it have to go",
            )],
            pure: &[
                ("rms-model", &["serde", "thiserror"]),
                ("negotiation", &["rms-model", "serde", "thiserror"]),
                ("rms-api", &["rms-model", "negotiation", "serde", "serde_bytes", "thiserror"]),
                ("rms-core", &["rms-api", "rms-model", "negotiation", "serde", "thiserror"]),
                ("launcher-schedule", &["rms-model", "thiserror"]),
            ],
            confined: &[("bincode", "rms-wire")],
        }
    }
}
