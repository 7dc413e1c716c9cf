//! Figures of a page: rates between two looks at it, quantiles, and the JSON of one look.

use std::{collections::HashMap, time::Duration};

use rustix::time::{ClockId, clock_gettime};
use serde_json::{Map, Value as Json, json};
use stillpoint::{Histogram, internal};
use stillpoint_platform::stats::read::{Thing, Value};

use super::find::{Found, Hidden, Process};

/// Returns the time now, in nanoseconds of the clock that pages use.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Identifies a domain across looks. Process ids are used again, so it includes the time when the page
/// was made.
type Key = (u32, u64, u64);

fn key(process: &Process, thing: &Thing) -> Key {
    (process.pid, process.page.made, thing.number)
}

/// All things at one moment.
#[derive(Debug, Default)]
pub struct Look {
    /// The time in nanoseconds of the monotonic clock.
    pub at: u64,
    things: HashMap<Key, Thing>,
}

impl Look {
    /// Creates the look at everything that was found at the time `at`.
    pub fn of(found: &Found, at: u64) -> Self {
        let things = found.processes.iter().flat_map(|process| {
            let of = |thing: &Thing| (key(process, thing), thing.clone());
            process.page.things.iter().map(of)
        });
        Self {
            at,
            things: things.collect(),
        }
    }
}

/// A thing now, with the look before.
#[derive(Debug, Clone, Copy)]
pub struct Figures<'a> {
    now: u64,
    /// Its process.
    pub process: &'a Process,
    /// The thing now.
    pub thing: &'a Thing,
    before: Option<(u64, &'a Thing)>,
}

impl<'a> Figures<'a> {
    /// Creates the figures of `thing`; `before` may have it too.
    pub fn new(now: u64, process: &'a Process, thing: &'a Thing, before: &'a Look) -> Self {
        let then = before.things.get(&key(process, thing));
        Self {
            now,
            process,
            thing,
            before: then.map(|then| (before.at, then)),
        }
    }

    /// Returns a counter's rate per second since the look before, or since a new thing was made.
    pub fn rate(&self, counter: &str) -> f64 {
        let (since, before) = match self.before {
            Some((at, thing)) => (at, thing.number_of(counter)),
            None => (self.thing.made, 0),
        };
        let seconds = self.now.saturating_sub(since) as f64 / 1e9;
        let count = self.thing.number_of(counter).saturating_sub(before);
        if seconds > 0.0 {
            count as f64 / seconds
        } else {
            0.0
        }
    }

    /// Returns a quantile of the durations since the look before, or of all durations if there were
    /// none since. `None` if there were none at all.
    pub fn quantile(&self, name: &str, q: f64) -> Option<Duration> {
        let all = histogram(self.thing, name)?;
        let before = self.before.and_then(|(_, thing)| histogram(thing, name));
        let since = before.map_or(all, |before| all.since(&before));
        let some = [since, all].into_iter().find(|times| times.count() > 0)?;
        Some(some.quantile(q))
    }

    /// Returns how long ago `time` was; `None` if it has not come.
    pub fn ago(&self, time: &str) -> Option<Duration> {
        let since = self.thing.number_of(time);
        (since > 0).then(|| Duration::from_nanos(self.now.saturating_sub(since)))
    }
}

fn histogram(thing: &Thing, name: &str) -> Option<Histogram> {
    match thing.value(name)? {
        Value::Times(sum, buckets) => internal::histogram(*sum, buckets),
        _ => None,
    }
}

/// Returns one look as JSON: everything in the pages, by their names.
pub fn json(found: &Found, now: u64) -> Json {
    let process = |process: &Process| {
        let page = &process.page;
        json!({
            "pid": process.pid,
            "command": process.command,
            "page_age_s": seconds(now.saturating_sub(page.made)),
            "refused": page.refused,
            "things": page.things.iter().map(|thing| of_thing(thing, now)).collect::<Vec<_>>(),
        })
    };
    let unreadable =
        |(pid, hidden): &(u32, Hidden)| json!({ "pid": pid, "reason": hidden.to_string() });
    json!({
        "processes": found.processes.iter().map(process).collect::<Vec<_>>(),
        "unreadable": found.unreadable.iter().map(unreadable).collect::<Vec<_>>(),
        "denied": found.denied,
    })
}

fn of_thing(thing: &Thing, now: u64) -> Json {
    let value = |value: &Value| match value {
        Value::Bytes(u64::MAX) | Value::Moment(0) => Json::Null,
        Value::Counter(number) | Value::Gauge(number) | Value::Bytes(number) => json!(number),
        Value::Moment(at) => json!(seconds(now.saturating_sub(*at))),
        Value::Text(text) => json!(text),
        Value::Times(sum, buckets) => {
            internal::histogram(*sum, buckets).map_or(Json::Null, |times| {
                let micros = |q| times.quantile(q).as_nanos() as f64 / 1e3;
                json!({
                    "count": times.count(),
                    "sum_s": times.sum().as_secs_f64(),
                    "p50_us": micros(0.5),
                    "p99_us": micros(0.99),
                    "max_us": micros(1.0),
                })
            })
        }
    };
    let named = |(name, of): &(&str, Value)| {
        let name = match of {
            Value::Moment(_) => format!("{name}_s"),
            _ => (*name).to_owned(),
        };
        (name, value(of))
    };
    let values: Map<_, _> = thing.values.iter().map(named).collect();
    json!({
        "number": thing.number,
        "name": thing.name,
        "age_s": seconds(now.saturating_sub(thing.made)),
        "values": values,
    })
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// Formats a duration in about five characters.
pub fn short_time(time: Option<Duration>) -> String {
    let Some(time) = time else {
        return "-".to_owned();
    };
    let nanos = time.as_nanos() as f64;
    match time.as_nanos() {
        0..1_000 => format!("{nanos:.0}ns"),
        1_000..1_000_000 => three(nanos / 1e3, "us"),
        1_000_000..1_000_000_000 => three(nanos / 1e6, "ms"),
        1_000_000_000..600_000_000_000 => three(nanos / 1e9, "s"),
        _ => format!("{:.0}min", nanos / 60e9),
    }
}

/// Formats a size in about six characters. `u64::MAX` means that there is no limit.
pub fn short_bytes(bytes: u64) -> String {
    let size = bytes as f64;
    match bytes {
        u64::MAX => "-".to_owned(),
        0..1024 => format!("{bytes}"),
        1024..1_048_576 => three(size / 1024.0, "K"),
        1_048_576..1_073_741_824 => three(size / 1_048_576.0, "M"),
        1_073_741_824..1_099_511_627_776 => three(size / 1_073_741_824.0, "G"),
        _ => three(size / 1_099_511_627_776.0, "T"),
    }
}

/// Formats a number in about five characters.
pub fn short_number(number: f64) -> String {
    match number {
        0.0 => "0".to_owned(),
        n if n < 1e3 => three(n, ""),
        n if n < 1e6 => three(n / 1e3, "k"),
        n if n < 1e9 => three(n / 1e6, "M"),
        n => three(n / 1e9, "G"),
    }
}

/// Formats a number, with one decimal if it is small.
fn three(number: f64, unit: &str) -> String {
    if number < 9.95 {
        format!("{number:.1}{unit}")
    } else {
        format!("{number:.0}{unit}")
    }
}
