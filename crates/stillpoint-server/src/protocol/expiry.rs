//! The meaning of a client's expiration time.

/// More seconds than these are a time since the epoch, and no longer from now.
pub const MAX_RELATIVE: i64 = 60 * 60 * 24 * 30;

/// Turns an expiration time of the protocol into a time of a clock that reads `now` when it is `unix_now` seconds since the epoch: 0 is never; a time that is
/// over, and a negative one, become 1, which that clock has passed already (it starts at 2 or later).
#[must_use]
pub fn deadline(exptime: i64, now: u32, unix_now: i64) -> u32 {
    let relative = match exptime {
        0 => return 0,
        ..0 => return 1,
        1..=MAX_RELATIVE => exptime,
        _ => exptime - unix_now,
    };
    if relative <= 0 {
        return 1;
    }
    // A time that the clock does not reach is never.
    u32::try_from(i64::from(now) + relative).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thirty_days_divide_relative_from_absolute() {
        let (now, unix) = (1000, 1_700_000_000);
        assert_eq!(deadline(0, now, unix), 0);
        assert_eq!(deadline(-1, now, unix), 1);
        assert_eq!(deadline(i64::MIN, now, unix), 1);
        assert_eq!(deadline(5, now, unix), 1005);
        assert_eq!(
            deadline(MAX_RELATIVE, now, unix),
            1000 + MAX_RELATIVE as u32
        );
        // One second more is a day in February 1970.
        assert_eq!(deadline(MAX_RELATIVE + 1, now, unix), 1);
        assert_eq!(deadline(unix + 60, now, unix), 1060);
        assert_eq!(deadline(unix, now, unix), 1);
        assert_eq!(deadline(i64::MAX, now, unix), 0);
    }
}
