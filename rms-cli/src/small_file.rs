//! Reads files of a size that people write by hand: a wrong path (a disk image, `/dev/zero`) must cost nothing.

use std::fs::File;
use std::io::{Error, ErrorKind, Read as _, Result};
use std::path::Path;

/// More than anybody writes by hand.
const MOST_BYTES: u64 = 1 << 20;

/// # Errors
/// Those of `std::fs::read_to_string`, or the file is longer than a megabyte.
pub fn read(path: &Path) -> Result<String> {
    let mut text = String::new();
    File::open(path)?.take(MOST_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MOST_BYTES {
        return Err(Error::new(ErrorKind::FileTooLarge, format!("it is longer than {} KiB", MOST_BYTES >> 10)));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_ends_is_given_up() {
        let error = read(Path::new("/dev/zero")).expect_err("it has no end");
        assert_eq!(error.to_string(), "it is longer than 1024 KiB");
        assert_eq!(read(Path::new("/dev/null")).expect("it ends at once"), "");
    }
}
