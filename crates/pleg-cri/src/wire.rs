//! An iterator over the fields of a protobuf message that borrows from the buffer and copies
//! nothing.
//!
//! It supports only the encoding that the usual encoders write. For everything else it returns
//! [`Fallback`], and the caller decodes the message with prost, which supports the whole format and
//! reports errors.

/// The message must be decoded with prost: it is malformed or unusually encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fallback;

/// A map entry: key and value.
pub(crate) type Pair<'a> = (&'a [u8], &'a [u8]);

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    /// Four or eight bytes. No field that is read has this type.
    Fixed,
}

impl<'a> Value<'a> {
    pub(crate) const fn varint(self) -> Result<u64, Fallback> {
        match self {
            Self::Varint(value) => Ok(value),
            _ => Err(Fallback),
        }
    }

    pub(crate) const fn bytes(self) -> Result<&'a [u8], Fallback> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err(Fallback),
        }
    }
}

/// Checks that the value of a string field is UTF-8.
pub(crate) fn text(bytes: &[u8]) -> Result<&str, Fallback> {
    std::str::from_utf8(bytes).map_err(|_| Fallback)
}

/// The fields of one message, in wire order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) const fn new(message: &'a [u8]) -> Self {
        Self(message)
    }

    /// What is not read yet.
    pub(crate) const fn encoded(self) -> &'a [u8] {
        self.0
    }

    /// The number and the value of the next field.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Result<Option<(u32, Value<'a>)>, Fallback> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let key = u32::try_from(self.varint()?).map_err(|_| Fallback)?;
        let value = match key & 7 {
            0 => Value::Varint(self.varint()?),
            1 => self.fixed(8)?,
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| Fallback)?;
                Value::Bytes(self.take(length)?)
            }
            5 => self.fixed(4)?,
            // Groups, which are obsolete, and invalid wire types.
            _ => return Err(Fallback),
        };
        match key >> 3 {
            0 => Err(Fallback),
            number => Ok(Some((number, value))),
        }
    }

    #[inline(always)]
    fn fixed(&mut self, length: usize) -> Result<Value<'a>, Fallback> {
        self.take(length).map(|_| Value::Fixed)
    }

    #[inline(always)]
    fn take(&mut self, length: usize) -> Result<&'a [u8], Fallback> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Fallback)?;
        self.0 = rest;
        Ok(taken)
    }

    #[inline(always)]
    fn varint(&mut self) -> Result<u64, Fallback> {
        match *self.0 {
            [byte, ref rest @ ..] if byte < 0x80 => {
                self.0 = rest;
                Ok(u64::from(byte))
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
    fn long_varint(&mut self) -> Result<u64, Fallback> {
        let mut value = 0;
        for (n, byte) in self.0.iter().enumerate().take(10) {
            // The tenth byte has only one significant bit.
            if n == 9 && *byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << (7 * n);
            if *byte < 0x80 {
                self.0 = self.0.get(n + 1..).unwrap_or_default();
                return Ok(value);
            }
        }
        Err(Fallback)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_field(message: &[u8]) -> Result<Option<(u32, Value<'_>)>, Fallback> {
        Fields::new(message).next()
    }

    #[test]
    fn fields_are_returned_in_wire_order() {
        let mut fields = Fields::new(&[0x08, 0x96, 0x01, 0x12, 2, b'h', b'i', 0x1d, 1, 2, 3, 4]);
        assert_eq!(fields.next(), Ok(Some((1, Value::Varint(150)))));
        assert_eq!(fields.next(), Ok(Some((2, Value::Bytes(b"hi")))));
        assert_eq!(fields.next(), Ok(Some((3, Value::Fixed))));
        assert_eq!(fields.next(), Ok(None));
    }

    #[test]
    fn truncated_or_invalid_field_returns_fallback() {
        let largest = [
            0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01,
        ];
        assert_eq!(
            first_field(&largest),
            Ok(Some((1, Value::Varint(u64::MAX))))
        );
        let too_large = [
            0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02,
        ];
        for message in [
            &too_large[..],
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
            assert_eq!(first_field(message), Err(Fallback), "{message:?}");
        }
    }
}
