//! Hostlists (`n[01-04],x7`), as other resource managers write them.

use std::collections::BTreeSet;

use thiserror::Error;

use crate::natural;

/// The error for a text that is not a hostlist.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{text}' is not a list of nodes: {problem}; write n1,n2 or n[1-4,7]")]
pub struct HostlistError {
    text: String,
    problem: &'static str,
}

/// The most nodes of a list, so that `n[1-999999999]` is rejected instead of expanded.
pub const MAX_NODES: usize = 100_000;

/// Returns the nodes of a list, in its order.
///
/// # Errors
/// Unbalanced brackets, empty parts, backward ranges, more than [`MAX_NODES`].
pub fn expand(text: &str) -> Result<Vec<String>, HostlistError> {
    let fail = |problem| HostlistError { text: text.chars().take(80).collect(), problem };
    let mut nodes = Vec::new();
    for part in split_outside_brackets(text).ok_or_else(|| fail("unbalanced brackets"))? {
        if part.is_empty() {
            return Err(fail("an empty part"));
        }
        let Some((prefix, rest)) = part.split_once('[') else {
            nodes.push(part.to_owned());
            continue;
        };
        let (ranges, suffix) = rest.split_once(']').ok_or_else(|| fail("unbalanced brackets"))?;
        if suffix.contains('[') {
            return Err(fail("more than one pair of brackets in a name"));
        }
        for range in ranges.split(',') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let number = |digits: &str| {
                let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
                is_number.then(|| digits.parse::<u64>().ok()).flatten()
            };
            let (Some(low), Some(high)) = (number(first), number(last)) else {
                return Err(fail("a range that is no number"));
            };
            if low > high {
                return Err(fail("a range that runs backwards"));
            }
            if high - low >= (MAX_NODES - nodes.len().min(MAX_NODES)) as u64 {
                return Err(fail("too many nodes"));
            }
            let width = first.len();
            nodes.extend((low..=high).map(|n| format!("{prefix}{n:0width$}{suffix}")));
        }
        if nodes.len() > MAX_NODES {
            return Err(fail("too many nodes"));
        }
    }
    Ok(nodes)
}

/// Returns the shortest hostlist for nodes in their order: consecutive numbers are folded.
pub fn fold<S: AsRef<str>>(nodes: &[S]) -> String {
    let mut groups: Vec<(String, Vec<(String, u64)>)> = Vec::new();
    for node in nodes {
        let node = node.as_ref();
        let n_prefix = node.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        let (prefix, digits) = node.split_at(n_prefix);
        let number = digits.parse::<u64>().ok();
        match (groups.last_mut(), number) {
            (Some((last, members)), Some(number)) if last == prefix && !members.is_empty() => {
                members.push((digits.to_owned(), number));
            }
            (_, Some(number)) => groups.push((prefix.to_owned(), vec![(digits.to_owned(), number)])),
            (_, None) => groups.push((node.to_owned(), Vec::new())),
        }
    }
    let parts: Vec<String> = groups.iter().map(|(prefix, members)| fold_group(prefix, members)).collect();
    parts.join(",")
}

/// As [`fold`], for nodes in the natural order of their names.
pub fn fold_sorted(nodes: &BTreeSet<String>) -> String {
    let mut nodes: Vec<&String> = nodes.iter().collect();
    nodes.sort_by(|one, other| natural::compare(one, other));
    fold(&nodes)
}

fn fold_group(prefix: &str, members: &[(String, u64)]) -> String {
    match members {
        [] => prefix.to_owned(),
        [(digits, _)] => format!("{prefix}{digits}"),
        _ => {
            let mut ranges: Vec<(&str, &str, u64)> = Vec::new();
            for (digits, number) in members {
                // Numbers are folded only if `expand` prints them the same: `n[9-11]`, but `n[9,010]`.
                let continues = |first: &str| format!("{number:0width$}", width = first.len()) == *digits;
                match ranges.last_mut() {
                    Some((first, last, high)) if high.checked_add(1) == Some(*number) && continues(first) => {
                        *last = digits;
                        *high = *number;
                    }
                    _ => ranges.push((digits, digits, *number)),
                }
            }
            let texts: Vec<String> = ranges
                .iter()
                .map(|(first, last, _)| if first == last { (*first).to_owned() } else { format!("{first}-{last}") })
                .collect();
            format!("{prefix}[{}]", texts.join(","))
        }
    }
}

fn split_outside_brackets(text: &str) -> Option<Vec<&str>> {
    let mut parts = Vec::new();
    let mut depth = 0_u32;
    let mut start = 0;
    for (idx, c) in text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.checked_sub(1)?,
            ',' if depth == 0 => {
                parts.push(&text[start..idx]);
                start = idx + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    (depth == 0).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_expand_and_fold_back() {
        let check = |folded: &str, nodes: &[&str]| {
            assert_eq!(expand(folded).expect(folded), nodes, "{folded}");
            assert_eq!(fold(nodes), folded);
        };
        check("n1", &["n1"]);
        check("n[1-3]", &["n1", "n2", "n3"]);
        check("n[01-03,07]", &["n01", "n02", "n03", "n07"]);
        check("a[1-2],b7,head", &["a1", "a2", "b7", "head"]);
        check("n[9-11]", &["n9", "n10", "n11"]);
        check("n[09-11,100]", &["n09", "n10", "n11", "n100"]);
        check("n[098-101]", &["n098", "n099", "n100", "n101"]);
        check("n[9,010-011]", &["n9", "n010", "n011"]);
        let many: Vec<String> = (1..=150).map(|number| format!("n{number}")).collect();
        assert_eq!(fold(&many), "n[1-150]");
        assert_eq!(expand("n[1-150]"), Ok(many));
    }

    #[test]
    fn hostile_lists_are_refused() {
        for text in ["n[1-", "n]1[", "n[3-1]", "n[1-999999999]", "a,,b", "", "n[x]", "n[1-2]m[3-4]", "n[]"] {
            assert!(expand(text).is_err(), "{text}");
        }
    }
}
