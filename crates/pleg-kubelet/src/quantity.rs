//! Quantities of resources (`500m`, `1.5Gi`), as numbers.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// One whole unit in billionths, which are the finest unit of the API.
const NANO: i128 = 1_000_000_000;

/// A quantity as a number of billionths, at most 2⁶³ whole units, which is the API's limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[must_use]
pub struct Amount(i128);

/// A text that is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a quantity: write a number such as 2, 0.5, 500m, 128Mi or 1e3")]
pub struct InvalidQuantity(pub String);

/// Suffixes such as `Mi`, and the unit that each stands for, in billionths.
fn binary() -> impl Iterator<Item = (&'static str, i128)> {
    let suffixes = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].into_iter();
    suffixes.zip((0..).map(|power| NANO << (10 * power)))
}

fn decimal() -> impl Iterator<Item = (&'static str, i128)> {
    let suffixes = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"].into_iter();
    suffixes.zip((0..).map(|power| 1000_i128.pow(power)))
}

impl Amount {
    /// Zero.
    pub const ZERO: Self = Self(0);

    const MAX: i128 = (1 << 63) * NANO;

    /// An amount of whole units.
    pub fn whole(units: i64) -> Self {
        Self(i128::from(units) * NANO)
    }

    pub(crate) fn millis(thousandths: i64) -> Self {
        Self(i128::from(thousandths) * 1_000_000)
    }

    /// The amount in whole units, rounded up.
    #[must_use]
    pub fn value(self) -> i64 {
        self.in_units_of(NANO)
    }

    /// The amount in thousandths, rounded up.
    #[must_use]
    pub fn milli_value(self) -> i64 {
        self.in_units_of(1_000_000)
    }

    fn in_units_of(self, unit: i128) -> i64 {
        let up = i128::from(self.0 > 0 && self.0 % unit != 0);
        i64::try_from(self.0 / unit + up).unwrap_or(if self.0 < 0 { i64::MIN } else { i64::MAX })
    }

    /// The sum of both amounts, at most the API's limit.
    pub fn plus(self, other: Self) -> Self {
        Self((self.0 + other.0).clamp(-Self::MAX, Self::MAX))
    }

    /// The amount in the API's canonical form with decimal suffixes, as for CPUs (`2`, `500m`).
    #[must_use]
    pub fn decimal(self) -> Quantity {
        shown(self.0, decimal())
    }

    /// The amount, rounded up to whole units, in the API's canonical form with binary suffixes, as for bytes (`128Mi`).
    #[must_use]
    pub fn binary(self) -> Quantity {
        shown(i128::from(self.value()) * NANO, binary())
    }
}

/// Formats an amount in billionths as a whole number with the largest suffix whose unit divides the amount.
fn shown(amount: i128, suffixes: impl Iterator<Item = (&'static str, i128)>) -> Quantity {
    let fits = suffixes.filter(|(_, unit)| amount != 0 && amount % unit == 0);
    let (suffix, unit) = fits.last().unwrap_or(("", NANO));
    Quantity(format!("{}{suffix}", amount / unit))
}

impl TryFrom<&Quantity> for Amount {
    type Error = InvalidQuantity;

    fn try_from(quantity: &Quantity) -> Result<Self, InvalidQuantity> {
        parse(&quantity.0).ok_or_else(|| InvalidQuantity(quantity.0.clone()))
    }
}

/// Parses the grammar of the API: a signed decimal number, and a suffix or an exponent.
fn parse(text: &str) -> Option<Amount> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, suffix) = unsigned.split_at(end.unwrap_or(unsigned.len()));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let unit = binary().chain(decimal()).find(|(name, _)| *name == suffix);
    let (unit, exponent) = match unit {
        Some((_, unit)) => (unit, 0),
        // No amount needs an exponent beyond the range of an `i16`.
        None => (NANO, suffix.strip_prefix(['e', 'E'])?.parse::<i16>().ok()?),
    };
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    // An `i128` has room for 38 digits.
    let read = digits.len().min(38);
    let power = i32::from(exponent) + i32::try_from(digits.len() - read).ok()?;
    let power = power - i32::try_from(fraction.len()).ok()?;
    let amount = format!("0{}", &digits[..read]).parse().ok()?;
    let sign = if text.starts_with('-') { -1 } else { 1 };
    Some(Amount(sign * scaled(amount, unit, power)))
}

/// Returns `amount` × `unit` × 10^`power`, rounded up, but at most [`Amount::MAX`].
fn scaled(amount: i128, unit: i128, power: i32) -> i128 {
    let ten_to = |power: i32| 10_i128.saturating_pow(u32::try_from(power).unwrap_or(0));
    let divisor = ten_to(-power);
    let scaled = match amount.checked_mul(unit) {
        Some(product) => product / divisor + i128::from(product % divisor != 0),
        None => (amount / divisor).saturating_mul(unit),
    };
    scaled.saturating_mul(ten_to(power)).min(Amount::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(text: &str) -> Option<Amount> {
        Amount::try_from(&Quantity(text.to_owned())).ok()
    }

    #[test]
    fn quantity_texts_are_parsed_to_numbers() {
        let cases = [
            ("0", 0, 0),
            ("2", 2000, 2),
            ("+2", 2000, 2),
            ("-1", -1000, -1),
            ("0.5", 500, 1),
            (".5", 500, 1),
            ("1.", 1000, 1),
            ("500m", 500, 1),
            ("100u", 1, 1),
            ("1n", 1, 1),
            ("1k", 1_000_000, 1_000),
            ("1.5Gi", 1_610_612_736_000, 1_610_612_736),
            ("128Mi", 134_217_728_000, 134_217_728),
            ("1e3", 1_000_000, 1_000),
            ("1E3", 1_000_000, 1_000),
            ("12e-1", 1_200, 2),
            ("0.0000000001", 1, 1),
            ("1E", i64::MAX, 1_000_000_000_000_000_000),
            ("8Ei", i64::MAX, i64::MAX),
            ("99999999999999999999999999999999", i64::MAX, i64::MAX),
            ("1e999", i64::MAX, i64::MAX),
            ("1e-999", 1, 1),
        ];
        for (text, millis, value) in cases {
            let amount = amount(text).unwrap_or_else(|| panic!("{text} is not read"));
            let found = (amount.milli_value(), amount.value());
            assert_eq!(found, (millis, value), "{text}");
        }
    }

    #[test]
    fn invalid_quantity_is_a_parse_error() {
        for text in [
            "", "-", ".", "1.2.3", "1 ", " 1", "1mm", "m", "1e", "1e+", "0x1", "1ki", "½",
        ] {
            assert_eq!(amount(text), None, "{text:?}");
        }
    }
}
