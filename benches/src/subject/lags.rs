//! The delay until each change was visible, for all changes and for the earlier and the later half. If a
//! subject cannot keep up, the delays of the later half are longer.

use anyhow::Result;
use hdrhistogram::Histogram;

use super::control::{record, values};

/// The time of each change, and the delay in ns until it was visible.
#[derive(Debug, Default)]
pub(super) struct Lags(Vec<(i64, u64)>);

impl Lags {
    /// Adds a change at `changed` that was visible at `seen`.
    pub(super) fn add(&mut self, changed: i64, seen: i64) {
        let lag = u64::try_from(seen - changed).unwrap_or(0).max(1);
        self.0.push((changed, lag));
    }

    pub(super) fn all(&self) -> Result<crate::protocol::Histogram> {
        spread(&self.0)
    }

    /// The delays of the earlier and of the later half of the changes.
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
    fn increasing_lags_differ_between_halves() {
        let mut lags = Lags::default();
        // Added in another order than the changes, as for pods that wait for each other.
        for n in (0..100).rev() {
            lags.add(n, 2 * n + 10);
        }
        assert_eq!(lags.all().unwrap().len(), 100);
        let [earlier, later] = lags.halves().unwrap();
        let of = |half: &[(u64, u64)]| (half[0].0, half[half.len() - 1].0);
        assert_eq!((of(&earlier), of(&later)), ((10, 59), (60, 109)));
    }

    #[test]
    fn empty_lags_give_empty_histograms() {
        assert!(Lags::default().all().unwrap().is_empty());
        assert_eq!(Lags::default().halves().unwrap(), [vec![], vec![]]);
    }
}
