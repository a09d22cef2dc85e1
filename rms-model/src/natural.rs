//! The natural order of names: numbers in them count as numbers, so n2 is before n10.

use std::cmp::Ordering;

/// Compares two names. If they differ only in leading zeros, the smaller text comes first.
pub fn compare(one: &str, other: &str) -> Ordering {
    let (mut left, mut right) = (one, other);
    while let (Some(first), Some(second)) = (left.chars().next(), right.chars().next()) {
        let ((number, left_rest), (other_number, right_rest)) = (split_number(left), split_number(right));
        let order = if number.is_empty() || other_number.is_empty() {
            (left, right) = (&left[first.len_utf8()..], &right[second.len_utf8()..]);
            first.cmp(&second)
        } else {
            (left, right) = (left_rest, right_rest);
            let (number, other_number) = (number.trim_start_matches('0'), other_number.trim_start_matches('0'));
            number.len().cmp(&other_number.len()).then_with(|| number.cmp(other_number))
        };
        if order != Ordering::Equal {
            return order;
        }
    }
    left.len().cmp(&right.len()).then_with(|| one.cmp(other))
}

/// Returns the digits at the beginning, and the rest.
fn split_number(text: &str) -> (&str, &str) {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_count_as_numbers() {
        let in_order = [
            "a",
            "a1",
            "a1b",
            "a2",
            "a10",
            "a10-1",
            "a10-2",
            "a10-11",
            "ab",
            "n001",
            "n01",
            "n1",
            "n002",
            "n99999999999999999999998",
            "n99999999999999999999999",
            "r1n9",
            "r2n1",
            "ü1",
        ];
        for (idx, one) in in_order.iter().enumerate() {
            for (other_idx, other) in in_order.iter().enumerate() {
                assert_eq!(compare(one, other), idx.cmp(&other_idx), "{one} and {other}");
            }
        }
    }
}
