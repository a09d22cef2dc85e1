//! Compares the versions of packages, as far as floors and duplicates need it.

/// The three numbers of a version; what follows a `-` or `+` is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(u64, u64, u64);

impl Version {
    pub fn of(text: &str) -> Version {
        let numbers = text.split(['-', '+']).next().unwrap_or_default();
        let mut parts = numbers.split('.').map(|part| part.parse().unwrap_or(0));
        let mut next = || parts.next().unwrap_or(0);
        Version(next(), next(), next())
    }

    /// The part that two versions share when one can stand in for the other.
    pub fn compatible(self) -> String {
        match self {
            Version(0, 0, patch) => format!("0.0.{patch}"),
            Version(0, minor, _) => format!("0.{minor}"),
            Version(major, _, _) => major.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_number() {
        assert!(Version::of("0.11.9") < Version::of("0.11.15"));
        assert!(Version::of("1.54.1+build") >= Version::of("1.54.1"));
        assert_eq!(Version::of("0.11.15").compatible(), "0.11");
        assert_eq!(Version::of("2.1.0").compatible(), "2");
    }
}
