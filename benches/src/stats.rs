//! Medians, their confidence intervals, and quantiles.

use crate::protocol::Histogram;
use crate::random::Random;

/// The number of bootstrap samples.
const SAMPLES: usize = 4000;
/// The confidence level of the interval.
const CONFIDENCE: f64 = 0.95;

/// The median; `None` without values.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = *sorted.get((sorted.len() - 1) / 2)?;
    Some(f64::midpoint(lower, upper))
}

/// A median and its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The median of the measured values.
    pub median: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
    /// The number of values.
    pub count: usize,
}

/// The median of the values and its interval, which is estimated with the bootstrap from a fixed seed.
/// `None` without values.
#[must_use]
pub fn estimate(values: &[f64]) -> Option<Estimate> {
    let median_of_all = median(values)?;
    let mut random = Random::new(0xb007);
    let mut medians: Vec<f64> = (0..SAMPLES)
        .filter_map(|_| {
            let drawn: Vec<f64> = (0..values.len())
                .filter_map(|_| values.get(random.below(values.len())))
                .copied()
                .collect();
            median(&drawn)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    let at = |quantile: f64| {
        let place = (quantile * (medians.len() - 1) as f64).round() as usize;
        medians.get(place).copied().unwrap_or(median_of_all)
    };
    Some(Estimate {
        median: median_of_all,
        low: at((1.0 - CONFIDENCE) / 2.0),
        high: at(f64::midpoint(1.0, CONFIDENCE)),
        count: values.len(),
    })
}

/// The quantile `part` of a histogram; `None` if it is empty.
#[must_use]
pub fn quantile(histogram: &Histogram, part: f64) -> Option<u64> {
    let all: u64 = histogram.iter().map(|(_, count)| count).sum();
    let wanted = ((part * all as f64).ceil() as u64).max(1);
    let mut passed = 0;
    for (value, count) in histogram {
        passed += count;
        if passed >= wanted {
            return Some(*value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_contains_median() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        let of = estimate(&[1.0, 2.0, 3.0, 4.0, 100.0]).unwrap();
        assert_eq!((of.median, of.count), (3.0, 5));
        assert!(of.low >= 1.0 && of.low < 3.0 && of.high > 3.0 && of.high <= 100.0);
        let equal = estimate(&[5.0; 7]).unwrap();
        assert_eq!((equal.low, equal.high), (5.0, 5.0));
    }

    #[test]
    fn quantiles() {
        let histogram = vec![(10, 50), (20, 49), (30, 1)];
        assert_eq!(quantile(&histogram, 0.5), Some(10));
        assert_eq!(quantile(&histogram, 0.99), Some(20));
        assert_eq!(quantile(&histogram, 1.0), Some(30));
        assert_eq!(quantile(&Vec::new(), 0.5), None);
    }
}
