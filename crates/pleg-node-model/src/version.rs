//! The version of a runtime.

use std::fmt;

/// A version: major, minor, patch. A suffix (`-rc.1`, `~ds1`) is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u32, pub u32, pub u32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

impl Version {
    /// Parses versions as runtimes report them: `1.7.24~ds1`, `v2.4.0-beta.0`, `1.37`. `None` if the text is
    /// not a version.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.');
        let (numbers, _) = text.split_at(end.unwrap_or(text.len()));
        let mut numbers = numbers.trim_end_matches('.').split('.').map(str::parse);
        let (major, minor) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        let patch = numbers.next().unwrap_or(Ok(0)).ok()?;
        Some(Self(major, minor, patch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_real_runtimes_are_parsed() {
        for (text, version) in [
            ("1.7.24~ds1", Version(1, 7, 24)),
            ("v2.4.0-beta.0", Version(2, 4, 0)),
            ("1.37", Version(1, 37, 0)),
        ] {
            assert_eq!(Version::parse(text), Some(version), "{text}");
            assert_eq!(Version::parse(&version.to_string()), Some(version));
        }
        for text in ["", "v", "two", "2", "1..2", "1.x"] {
            assert_eq!(Version::parse(text), None, "{text}");
        }
    }
}
