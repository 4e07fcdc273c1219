//! How late each change was seen: of all changes, and of the earlier and the later half of them
//! apart. A subject that does not keep up falls behind further and further, and that shows between the
//! halves.

use anyhow::Result;
use hdrhistogram::Histogram;

use super::control::{record, values};

/// When something changed, and after how many ns that was seen.
#[derive(Debug, Default)]
pub(super) struct Lags(Vec<(i64, u64)>);

impl Lags {
    /// A change of that moment was seen at the other one.
    pub(super) fn note(&mut self, changed: i64, seen: i64) {
        let lag = u64::try_from(seen - changed).unwrap_or(0).max(1);
        self.0.push((changed, lag));
    }

    pub(super) fn all(&self) -> Result<crate::protocol::Histogram> {
        spread(&self.0)
    }

    /// Of the changes that came first, and of as many that came after them.
    pub(super) fn halves(mut self) -> Result<[crate::protocol::Histogram; 2]> {
        self.0.sort_unstable();
        let (earlier, later) = self.0.split_at(self.0.len() / 2);
        Ok([spread(earlier)?, spread(later)?])
    }
}

fn spread(of: &[(i64, u64)]) -> Result<crate::protocol::Histogram> {
    let mut histogram = Histogram::new(3)?;
    for (_, lag) in of {
        record(&mut histogram, *lag);
    }
    Ok(values(&histogram))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_that_falls_behind_shows_it_between_the_halves() {
        let mut lags = Lags::default();
        // Noted in another order than they happened, as it is with pods that wait for each other.
        for n in (0..100).rev() {
            lags.note(n, 2 * n + 10);
        }
        assert_eq!(lags.all().unwrap().len(), 100);
        let [earlier, later] = lags.halves().unwrap();
        let of = |half: &[(u64, u64)]| (half[0].0, half[half.len() - 1].0);
        assert_eq!((of(&earlier), of(&later)), ((10, 59), (60, 109)));
    }

    #[test]
    fn of_nothing_there_is_nothing() {
        assert!(Lags::default().all().unwrap().is_empty());
        assert_eq!(Lags::default().halves().unwrap(), [vec![], vec![]]);
    }
}
