//! The trace of a world: one line per action, recorded only on request.

use std::hash::{DefaultHasher, Hash, Hasher};

/// The recorded lines, their hash, or nothing.
#[derive(Clone, Debug, Default)]
pub enum Trace {
    #[default]
    Off,
    Recorded(Vec<(u64, String)>),
    Hashed(Box<DefaultHasher>, u64),
}

impl Trace {
    /// A trace that records its lines.
    pub const fn recording() -> Self {
        Self::Recorded(Vec::new())
    }

    /// A trace that keeps only the hash of its lines.
    pub fn hashed() -> Self {
        Self::Hashed(Box::default(), 0)
    }

    /// Adds a line at `now`.
    pub fn log(&mut self, now: u64, line: impl FnOnce() -> String) {
        match self {
            Self::Off => {}
            Self::Recorded(lines) => lines.push((now, line())),
            Self::Hashed(hasher, lines) => {
                (now, line()).hash(hasher);
                *lines += 1;
            }
        }
    }

    /// The hash and the number of the lines, if the trace is hashed.
    pub fn hash(&self) -> Option<(u64, u64)> {
        match self {
            Self::Hashed(hasher, lines) => Some((hasher.finish(), *lines)),
            _ => None,
        }
    }

    /// All lines.
    pub fn text(&self) -> String {
        self.lines(|_| true)
    }

    /// The lines about that pod, or about no pod.
    pub fn about(&self, pod: usize) -> String {
        self.lines(|line| {
            let mut others = false;
            for word in line.split(|c: char| !(c.is_alphanumeric() || c == '-')) {
                match pod_named(word) {
                    Some(named) if named == pod => return true,
                    Some(_) => others = true,
                    None => {}
                }
            }
            !others
        })
    }

    fn lines(&self, wanted: impl Fn(&str) -> bool) -> String {
        let Self::Recorded(lines) = self else {
            return String::new();
        };
        let mut text = String::new();
        for (now, line) in lines.iter().filter(|(_, line)| wanted(line)) {
            text.push_str(&format!("{:>14.6} {line}\n", *now as f64 / 1e9));
        }
        text
    }
}

/// The pod of a word such as `pod-3` or `ctr-17-3`.
fn pod_named(word: &str) -> Option<usize> {
    let rest = ["pod-", "sbx-", "ctr-"]
        .iter()
        .find_map(|prefix| word.strip_prefix(prefix))?;
    rest.rsplit('-').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::Trace;

    #[test]
    fn lines_about_other_pods_are_left_out() {
        let mut trace = Trace::recording();
        trace.log(1_000_000_000, || "publish pod-3 sbx-0-3:Ready".to_owned());
        trace.log(2_000_000_000, || "publish pod-13 sbx-1-13:Ready".to_owned());
        trace.log(3_000_000_000, || {
            "list [sbx-0-3:Running sbx-1-13:Running]".to_owned()
        });
        trace.log(4_000_000_000, || "disconnected".to_owned());
        let about = trace.about(3);
        assert_eq!(about.lines().count(), 3, "{about}");
        assert!(!about.contains("pod-13"));
    }
}
