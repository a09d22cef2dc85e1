//! A hash for names that is stable across versions of this program.

/// Returns the FNV-1a hash, 32 bits. A later version of this program must find the same names, which the standard
/// library's hashes do not guarantee.
pub fn fnv1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_published_hash() {
        let published = [("", 0x811c_9dc5), ("a", 0xe40c_292c), ("foobar", 0xbf9c_f968)];
        for (text, hash) in published {
            assert_eq!(fnv1a(text.as_bytes()), hash, "{text}");
        }
    }
}
