//! Counts of nodes, tasks, CPUs and the like, as typed.

/// Parses a count.
///
/// # Errors
/// It is no number, 0, or more than 32 bits hold.
pub fn parse(text: &str) -> Result<u32, &'static str> {
    match text.parse::<u32>() {
        Ok(0) | Err(_) => Err("write a whole number of at least 1 and at most 4294967295"),
        Ok(count) => Ok(count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_both_bounds() {
        assert_eq!((parse("1"), parse("4294967295")), (Ok(1), Ok(u32::MAX)));
        for wrong in ["0", "-1", "4294967296", "two", ""] {
            let error = parse(wrong).expect_err(wrong);
            assert!(error.contains("at least 1") && error.ends_with(&u32::MAX.to_string()), "{error}");
        }
    }
}
