//! What the gate of instruction counts has committed.

const COUNTED: &str = include_str!("../../instructions.toml");

/// Instructions of a round of that path.
pub(super) fn instructions(path: &str) -> Option<f64> {
    number("[paths]", path)
}

/// Allocations of a round of that path.
pub(super) fn allocations(path: &str) -> Option<f64> {
    number("[allocations]", path)
}

fn number(section: &str, path: &str) -> Option<f64> {
    let (_, after) = COUNTED.split_once(section)?;
    let lines = after.lines().take_while(|line| !line.starts_with('['));
    let mut pairs = lines.filter_map(|line| line.split_once(" = "));
    pairs.find(|(name, _)| *name == path)?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reported_was_counted() {
        for path in ["known", "stopped"] {
            assert!(instructions(path).is_some_and(|n| n > 1000.0), "{path}");
            assert!(allocations(path).is_some_and(|n| n < 1000.0), "{path}");
        }
        assert_eq!(instructions("prost"), None);
        assert_eq!(allocations("of nothing"), None);
    }
}
