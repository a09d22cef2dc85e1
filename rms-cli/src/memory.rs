//! Amounts of memory as they are typed: `512M`, `4G`, `1.5G`.

use std::str::FromStr;

use rms_model::Mebibytes;
use thiserror::Error;

/// Memory, rounded up to MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory(pub Mebibytes);

/// Why a text is not an amount of memory.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{0}' is no amount of memory: write 512M, 4G, 1.5G, 1T or a number of MiB")]
pub struct MemoryError(String);

impl FromStr for Memory {
    type Err = MemoryError;

    fn from_str(text: &str) -> Result<Memory, MemoryError> {
        let fail = || MemoryError(text.chars().take(80).collect());
        let n_number = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(n_number);
        let unit = unit.to_ascii_lowercase();
        let kib = match unit.trim_end_matches("ib").trim_end_matches('b') {
            "k" => 1.0,
            "" | "m" => 1024.0,
            "g" => 1024.0 * 1024.0,
            "t" => 1024.0 * 1024.0 * 1024.0,
            _ => return Err(fail()),
        };
        let mebibytes = (number.parse::<f64>().map_err(|_| fail())? * kib / 1024.0).ceil();
        // Below 2^53 every whole number is an exact float.
        if (0.0..9e15).contains(&mebibytes) { Ok(Memory(Mebibytes(mebibytes as u64))) } else { Err(fail()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_reads_with_its_units() {
        let check = |text: &str, expected: u64| assert_eq!(text.parse(), Ok(Memory(Mebibytes(expected))), "{text}");
        check("512", 512);
        check("512M", 512);
        check("4G", 4096);
        check("4GiB", 4096);
        check("1.5g", 1536);
        check("1T", 1_048_576);
        check("1K", 1);
        for text in ["", "G", "4X", "1e99", "-1", "1.2.3G", "é"] {
            assert!(text.parse::<Memory>().is_err(), "{text}");
        }
    }
}
