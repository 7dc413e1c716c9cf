//! The fields of a domain's block in the statistics page, in their order. The version of the page
//! stands for them: a change of this table is another [`VERSION`](super::layout::VERSION).

/// Number of words of a histogram: its sum, then its buckets.
pub const TIMES_WORDS: usize = 157;
/// Number of words of a text.
pub const TEXT_WORDS: usize = 32;

/// What a field is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows, and wraps.
    Counter,
    /// Goes up and down. Read as a signed number: it may be below 0 for a moment, and then counts
    /// as 0.
    Gauge,
    /// A gauge of bytes; all ones means no limit.
    Bytes,
    /// A sum in nanoseconds, then buckets, four for each power of two (`stillpoint::Histogram`).
    Times,
    /// A moment of the monotonic clock, in nanoseconds; 0 for none.
    Moment,
    /// UTF-8, up to the first zero.
    Text,
}

impl Kind {
    pub(super) const fn words(self) -> usize {
        match self {
            Self::Counter | Self::Gauge | Self::Bytes | Self::Moment => 1,
            Self::Times => TIMES_WORDS,
            Self::Text => TEXT_WORDS,
        }
    }
}

/// Returns the first word of the field with this number.
const fn first_word(number: usize) -> usize {
    let (mut at, mut field) = (0, 0);
    while field < number {
        at += FIELDS[field].1.words();
        field += 1;
    }
    at
}

macro_rules! fields {
    ($($at:ident: $kind:ident = $name:literal,)*) => {
        #[expect(clippy::upper_case_acronyms, non_camel_case_types, reason = "names of constants")]
        enum Number { $($at),* }

        $(
            #[doc = concat!("The first word of `", $name, "`.")]
            pub const $at: usize = first_word(Number::$at as usize);
        )*

        /// The names and kinds of the fields.
        pub const FIELDS: &[(&str, Kind)] = &[$(($name, Kind::$kind)),*];
    };
}

fields! {
    GRACE_PERIODS: Counter = "grace_periods",
    HEAVY_BARRIERS: Counter = "heavy_barriers",
    UNRECLAIMED_BYTES: Bytes = "unreclaimed_bytes",
    BUDGET_BYTES: Bytes = "budget_bytes",
    OBJECTS_FREED: Counter = "objects_freed",
    ASSISTS: Counter = "assists",
    WAITS: Counter = "waits",
    INLINE_WAITS: Counter = "inline_waits",
    OBJECTS_LEAKED: Counter = "objects_leaked",
    CALLBACKS_PENDING: Gauge = "callbacks_pending",
    CALLBACKS_INVOKED: Counter = "callbacks_invoked",
    STALLS: Counter = "stalls",
    SERVICE_STALLS: Counter = "service_stalls",
    PANICS: Counter = "panics",
    SERVICE_FAILURES: Counter = "service_failures",
    READER_RECORDS: Gauge = "reader_records",
    STALLED_SINCE: Moment = "stalled_since",
    SERVICE_STALLED_SINCE: Moment = "service_stalled_since",
    GRACE_PERIOD_TIMES: Times = "grace_period_times",
    WAIT_TIMES: Times = "wait_times",
    CALLBACK_TIMES: Times = "callback_times",
    RECLAIM_TIMES: Times = "reclaim_times",
    STALL: Text = "stall",
}

/// Number of words of a block.
pub const BLOCK_WORDS: usize = first_word(FIELDS.len());
