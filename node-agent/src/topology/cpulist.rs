//! Lists of CPUs (`0-3,6`) as the kernel prints them and people write them.

use std::collections::BTreeSet;

use thiserror::Error;

/// The kernel's own numbers of logical CPUs.
pub type CpuSet = BTreeSet<u32>;

/// More CPUs than any kernel supports, so that `0-4000000000` is refused instead of expanded.
const MAX_CPUS: u32 = 8192;

/// Why a text is not a list of CPUs.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{text}' is not a list of CPUs: {problem}; write 0-3,6")]
pub struct CpuListError {
    text: String,
    problem: &'static str,
}

/// # Errors
/// The text contains anything but numbers and ranges separated by commas. The empty text is the empty list.
pub fn parse(text: &str) -> Result<CpuSet, CpuListError> {
    let fail = |problem| CpuListError { text: text.trim().chars().take(80).collect(), problem };
    let mut cpus = CpuSet::new();
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Ok(cpus);
    }
    for part in trimmed.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |digits: &str| digits.trim().parse::<u32>().map_err(|_| fail("a part is no number"));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(fail("a range runs backwards"));
        }
        if last >= MAX_CPUS {
            return Err(fail("a CPU number is 8192 or higher"));
        }
        cpus.extend(first..=last);
    }
    Ok(cpus)
}

/// Returns the shortest list that [`parse`] accepts.
pub fn print(cpus: &CpuSet) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *cpu => *last = *cpu,
            Some(_) | None => ranges.push((*cpu, *cpu)),
        }
    }
    let texts: Vec<String> = ranges
        .iter()
        .map(|(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") })
        .collect();
    texts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_parses_back() {
        for text in ["", "0", "0-3,6", "1,3,5-7"] {
            assert_eq!(print(&parse(text).expect(text)), text);
        }
        assert_eq!(print(&parse(" 2,0-1\n").expect("spaces")), "0-2");
    }

    #[test]
    fn nonsense_is_refused_with_the_reason() {
        for (text, problem) in [
            ("a", "no number"),
            ("3-1", "backwards"),
            ("0-9999999", "8192"),
            ("1,,2", "no number"),
            ("-1", "no number"),
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains(problem), "{error}");
        }
    }
}
