//! The fields of a protobuf message, one by one, where they lie: nothing is copied.
//!
//! It takes what every encoder writes. Of anything else it says [`Unusual`], and prost is asked,
//! which knows all of the format and has the words for what is wrong.

/// Not what an encoder of this contract writes: malformed, or merely rare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unusual;

/// An entry of a map: its key and its value.
pub(crate) type Pair<'a> = (&'a [u8], &'a [u8]);

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    /// Four or eight bytes; the contract has none that are read.
    Fixed,
}

impl<'a> Value<'a> {
    pub(crate) const fn varint(self) -> Result<u64, Unusual> {
        match self {
            Self::Varint(value) => Ok(value),
            _ => Err(Unusual),
        }
    }

    pub(crate) const fn bytes(self) -> Result<&'a [u8], Unusual> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err(Unusual),
        }
    }
}

/// The text of a field of text.
pub(crate) fn text(bytes: &[u8]) -> Result<&str, Unusual> {
    std::str::from_utf8(bytes).map_err(|_| Unusual)
}

/// The fields of one message, in the order in which they were written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) const fn of(message: &'a [u8]) -> Self {
        Self(message)
    }

    /// The number and the value of the next field.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Result<Option<(u32, Value<'a>)>, Unusual> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let key = u32::try_from(self.varint()?).map_err(|_| Unusual)?;
        let value = match key & 7 {
            0 => Value::Varint(self.varint()?),
            1 => self.fixed(8)?,
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| Unusual)?;
                Value::Bytes(self.take(length)?)
            }
            5 => self.fixed(4)?,
            // Groups, which nobody writes any more, and what is no type.
            _ => return Err(Unusual),
        };
        match key >> 3 {
            0 => Err(Unusual),
            number => Ok(Some((number, value))),
        }
    }

    #[inline(always)]
    fn fixed(&mut self, length: usize) -> Result<Value<'a>, Unusual> {
        self.take(length).map(|_| Value::Fixed)
    }

    #[inline(always)]
    fn take(&mut self, length: usize) -> Result<&'a [u8], Unusual> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Unusual)?;
        self.0 = rest;
        Ok(taken)
    }

    #[inline(always)]
    fn varint(&mut self) -> Result<u64, Unusual> {
        match *self.0 {
            [one, ref rest @ ..] if one < 0x80 => {
                self.0 = rest;
                Ok(u64::from(one))
            }
            [low, high, ref rest @ ..] if high < 0x80 => {
                self.0 = rest;
                Ok(u64::from(low & 0x7f) | u64::from(high) << 7)
            }
            _ => self.long_varint(),
        }
    }

    #[cold]
    #[inline(never)]
    fn long_varint(&mut self) -> Result<u64, Unusual> {
        let mut value = 0;
        for (n, byte) in self.0.iter().enumerate().take(10) {
            // Of the tenth byte one bit is left.
            if n == 9 && *byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << (7 * n);
            if *byte < 0x80 {
                self.0 = self.0.get(n + 1..).unwrap_or_default();
                return Ok(value);
            }
        }
        Err(Unusual)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(message: &[u8]) -> Result<Option<(u32, Value<'_>)>, Unusual> {
        Fields::of(message).next()
    }

    #[test]
    fn fields_come_one_by_one() {
        let mut fields = Fields::of(&[0x08, 0x96, 0x01, 0x12, 2, b'h', b'i', 0x1d, 1, 2, 3, 4]);
        assert_eq!(fields.next(), Ok(Some((1, Value::Varint(150)))));
        assert_eq!(fields.next(), Ok(Some((2, Value::Bytes(b"hi")))));
        assert_eq!(fields.next(), Ok(Some((3, Value::Fixed))));
        assert_eq!(fields.next(), Ok(None));
    }

    #[test]
    fn what_ends_too_early_or_is_no_field_is_unusual() {
        let most = [
            0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01,
        ];
        assert_eq!(one(&most), Ok(Some((1, Value::Varint(u64::MAX)))));
        let more = [
            0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02,
        ];
        for message in [
            &more[..],
            &[0x08],
            &[0x08, 0x80],
            &[0x0a, 1],
            &[0x0d, 1, 2, 3],
            &[0x09, 1, 2, 3, 4, 5, 6, 7],
            &[0x00, 0],
            &[0x0b],
            &[0x0e],
            &[0x88, 0x80, 0x80, 0x80, 0x10, 0],
        ] {
            assert_eq!(one(message), Err(Unusual), "{message:?}");
        }
    }
}
