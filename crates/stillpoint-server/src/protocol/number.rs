//! Decimal numbers: parsed without a panic whatever the bytes, formatted without an allocation.

/// Parses an unsigned number; `None` for anything but digits behind an optional `+`, and for more than `u64::MAX`.
#[must_use]
pub fn parse_u64(token: &[u8]) -> Option<u64> {
    let digits = token.strip_prefix(b"+").unwrap_or(token);
    if digits.is_empty() {
        return None;
    }
    let mut value = 0u64;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(value)
}

/// Parses an unsigned 32-bit number, as [`parse_u64`] does.
#[must_use]
pub fn parse_u32(token: &[u8]) -> Option<u32> {
    parse_u64(token)?.try_into().ok()
}

/// Parses a signed 32-bit number.
#[must_use]
pub fn parse_i32(token: &[u8]) -> Option<i32> {
    let value = match token.strip_prefix(b"-") {
        // "-+1" is no number.
        Some(digits) if digits.first() != Some(&b'+') => -i64::try_from(parse_u64(digits)?).ok()?,
        Some(_) => return None,
        None => i64::try_from(parse_u64(token)?).ok()?,
    };
    value.try_into().ok()
}

/// Appends `value` in decimal.
pub fn push_u64(out: &mut Vec<u8>, mut value: u64) {
    // 20 digits are the longest u64.
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_strictly() {
        assert_eq!(parse_u64(b"0"), Some(0));
        assert_eq!(parse_u64(b"+7"), Some(7));
        assert_eq!(parse_u64(b"18446744073709551615"), Some(u64::MAX));
        for bad in [
            &b""[..],
            b"+",
            b"-1",
            b"18446744073709551616",
            b"99999999999999999999999",
            b"1a",
            b" 1",
            b"0x1",
            b"1\0",
            b"\xff",
        ] {
            assert_eq!(parse_u64(bad), None, "{bad:?}");
        }
        assert_eq!(parse_u32(b"4294967295"), Some(u32::MAX));
        assert_eq!(parse_u32(b"4294967296"), None);
    }

    #[test]
    fn signed_numbers_end_at_32_bits() {
        assert_eq!(parse_i32(b"-2147483648"), Some(i32::MIN));
        assert_eq!(parse_i32(b"2147483647"), Some(i32::MAX));
        for bad in [
            &b"2147483648"[..],
            b"-2147483649",
            b"-",
            b"--1",
            b"-+1",
            b"-18446744073709551615",
        ] {
            assert_eq!(parse_i32(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        for value in [0, 9, 10, 99, 100, 12_345, u64::MAX - 1, u64::MAX] {
            let mut out = Vec::new();
            push_u64(&mut out, value);
            assert_eq!(out, value.to_string().as_bytes());
            assert_eq!(parse_u64(&out), Some(value));
        }
    }
}
