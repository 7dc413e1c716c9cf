//! The kernel's timer wheel: at which tick a timer fires. A timer is put into a bucket one granule
//! later than asked for, so that it never fires early, and is not sorted within its bucket: the
//! further away, the coarser.

/// Bits of the buckets of a level, and of the granularity from one level to the next.
const BUCKETS: u64 = 64;
const LEVEL_SHIFT: u32 = 3;

/// The deepest level: whatever is further away fires as this level can.
const LAST_LEVEL: u32 = 8;

/// The jiffy at which a timer fires that is armed in jiffy `now` for `timeout` jiffies
/// (`schedule_timeout`, `calc_wheel_index`).
pub fn expiry(now: u64, timeout: u64) -> u64 {
    let starts_beyond = |level: &u32| timeout < (BUCKETS - 1) << (level * LEVEL_SHIFT);
    let level = (0..LAST_LEVEL).find(starts_beyond).unwrap_or(LAST_LEVEL);
    let shift = level * LEVEL_SHIFT;
    ((now + timeout + (1 << shift)) >> shift) << shift
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn short_timers_fire_one_tick_late() {
        for timeout in 0..63 {
            assert_eq!(expiry(1000, timeout), 1000 + timeout + 1);
        }
    }

    #[test]
    fn a_tenth_of_a_second_is_rounded_to_eight_jiffies() {
        assert_eq!(expiry(1000, 100), 1104);
        assert_eq!(expiry(1003, 100), 1104);
        assert_eq!(expiry(1004, 100), 1112);
    }

    proptest! {
        #[test]
        fn never_early_and_late_by_one_granule_at_most(now in 0_u64..1 << 40, timeout in 0_u64..1 << 24) {
            let late = expiry(now, timeout) - (now + timeout);
            // The granule of level k is 8^k, and the level's timeouts are at least 63 * 8^(k-1).
            let granule = std::iter::successors(Some(1_u64), |granule| Some(granule * 8)).find(|g| timeout < 63 * g).expect("one fits");
            prop_assert!(late >= 1 && late <= granule, "{late} {granule}");
        }
    }
}
