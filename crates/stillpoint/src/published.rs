//! What a domain's block in the statistics page has: `docs/design/027-statistics-page.md`.
//!
//! Each word is written where the event is counted, through a
//! [`Tap`](crate::platform::stats::Tap); these are the words' numbers.

use crate::{
    histogram::{BUCKETS, TIMES_WORDS},
    platform::stats::layout::{Field, Fields},
};

pub(crate) const GRACE_PERIODS: usize = 0;
pub(crate) const HEAVY_BARRIERS: usize = 1;
pub(crate) const UNRECLAIMED_BYTES: usize = 2;
pub(crate) const BUDGET_BYTES: usize = 3;
pub(crate) const OBJECTS_FREED: usize = 4;
pub(crate) const ASSISTS: usize = 5;
pub(crate) const WAITS: usize = 6;
pub(crate) const INLINE_WAITS: usize = 7;
pub(crate) const OBJECTS_LEAKED: usize = 8;
pub(crate) const CALLBACKS_PENDING: usize = 9;
pub(crate) const CALLBACKS_INVOKED: usize = 10;
pub(crate) const STALLS: usize = 11;
pub(crate) const SERVICE_STALLS: usize = 12;
pub(crate) const PANICS: usize = 13;
pub(crate) const SERVICE_FAILURES: usize = 14;
pub(crate) const READER_RECORDS: usize = 15;
pub(crate) const STALLED_SINCE: usize = 16;
pub(crate) const SERVICE_STALLED_SINCE: usize = 17;
pub(crate) const GRACE_PERIOD_TIMES: usize = 18;
pub(crate) const WAIT_TIMES: usize = GRACE_PERIOD_TIMES + TIMES_WORDS;
pub(crate) const CALLBACK_TIMES: usize = WAIT_TIMES + TIMES_WORDS;
pub(crate) const RECLAIM_TIMES: usize = CALLBACK_TIMES + TIMES_WORDS;
pub(crate) const STALL: usize = RECLAIM_TIMES + TIMES_WORDS;

/// The fields of a domain.
pub(crate) static DOMAIN: Fields = Fields::new(&[
    Field::counter("grace_periods"),
    Field::counter("heavy_barriers"),
    Field::bytes("unreclaimed_bytes"),
    Field::bytes("budget_bytes"),
    Field::counter("objects_freed"),
    Field::counter("assists"),
    Field::counter("waits"),
    Field::counter("inline_waits"),
    Field::counter("objects_leaked"),
    Field::gauge("callbacks_pending"),
    Field::counter("callbacks_invoked"),
    Field::counter("stalls"),
    Field::counter("service_stalls"),
    Field::counter("panics"),
    Field::counter("service_failures"),
    Field::gauge("reader_records"),
    Field::time("stalled_since"),
    Field::time("service_stalled_since"),
    Field::histogram("grace_period_times", BUCKETS),
    Field::histogram("wait_times", BUCKETS),
    Field::histogram("callback_times", BUCKETS),
    Field::histogram("reclaim_times", BUCKETS),
    Field::text("stall"),
]);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_that_of_its_field() {
        let numbers = [
            ("heavy_barriers", HEAVY_BARRIERS),
            ("callbacks_pending", CALLBACKS_PENDING),
            ("reader_records", READER_RECORDS),
            ("service_stalled_since", SERVICE_STALLED_SINCE),
            ("grace_period_times", GRACE_PERIOD_TIMES),
            ("wait_times", WAIT_TIMES),
            ("callback_times", CALLBACK_TIMES),
            ("reclaim_times", RECLAIM_TIMES),
            ("stall", STALL),
        ];
        for (name, at) in numbers {
            assert_eq!(DOMAIN.place_of(name), Some(at), "{name}");
        }
        assert!(DOMAIN.block_words() <= crate::platform::stats::layout::MOST_BLOCK_WORDS);
    }
}
