//! The cache: writers insert, load, invalidate and change limits, through tenants that come and go;
//! entries expire; a listener uses the cache. Readers find entries and hold them.
//!
//! What a look-up finds is what was inserted for that key, and alive until the section's end (see
//! [`elements`](super::elements)). Some entries are pinned: each look-up finds them, whatever happens
//! around them. And the cache never has more than the largest limit that was ever set.

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use stillpoint::global;
use stillpoint_cache::{Cache, Entry, Op};

use super::elements::{Elements, Life};
use super::subject::{self, Subject};
use crate::torture::session::{Session, ThreadCtx};
use crate::torture::tally::Fault;

/// Keys that are pinned: they are replaced, and not removed.
const PINNED: u64 = 32;

/// All keys.
const KEYS: u64 = 2000;

/// The largest limit, in entries of weight 1 to 4, and the least.
const MOST: u64 = 1500;
const LEAST: u64 = 300;

const TENANTS: [&str; 3] = ["a", "b", "c"];

/// A value, or a copy of one: that is not an element's life, and dropped without a trace.
struct Value {
    key: u64,
    number: u64,
    _life: Option<Life>,
}

impl Clone for Value {
    fn clone(&self) -> Self {
        Self {
            key: self.key,
            number: self.number,
            _life: None,
        }
    }
}

struct Test {
    cache: Cache<u64, Value>,
    elements: Arc<Elements>,
    /// Whether pinned keys stay.
    pins: bool,
    /// What a writer does to the cache.
    change: fn(&Self, &mut ThreadCtx),
}

/// Nothing left out.
pub fn run(session: &Arc<Session>) {
    torture(session, Test::with_listener(session));
}

/// Entries that are invalidated are dropped at once.
pub fn busted(session: &Arc<Session>) {
    torture(session, Test::that_drops_at_once());
}

fn torture(session: &Arc<Session>, test: Test) {
    (0..PINNED).for_each(|key| test.put(session, &test.cache, key, None));
    subject::torture(session, global(), &test);
    test.end(session);
}

impl Test {
    fn with_listener(session: &Arc<Session>) -> Self {
        thread_local!(static INSIDE: Cell<bool> = const { Cell::new(false) });
        let own = Arc::<Mutex<Option<Cache<u64, Value>>>>::default();
        let (slot, listening) = (Arc::clone(&own), Arc::clone(session));
        let cache = Cache::builder()
            .max_weight(MOST, |key: &u64, _: &Value| key % 4 + 1)
            .is_pinned(|&key, _| key < PINNED)
            .eviction_listener(move |&key, value: &Value, _| {
                check(&listening, key, value);
                // One level deep, and not once the run is over: the cache is to go.
                if listening.is_over() || INSIDE.replace(true) {
                    return;
                }
                let cache = slot.lock().unwrap_or_else(PoisonError::into_inner).clone();
                if let Some(cache) = cache {
                    drop(cache.get(&(key + 1)));
                    cache.remove(&(KEYS + key % 16));
                }
                INSIDE.set(false);
            })
            .build();
        *own.lock().unwrap_or_else(PoisonError::into_inner) = Some(cache.clone());
        let elements = Elements::new();
        Self {
            cache,
            elements,
            pins: true,
            change: Test::change,
        }
    }

    /// Without a listener, which would clone what was dropped.
    fn that_drops_at_once() -> Self {
        Self {
            cache: Cache::builder().max_entries(MOST).build(),
            elements: Elements::new(),
            pins: false,
            change: Self::drop_at_once,
        }
    }

    fn put(&self, session: &Session, view: &Cache<u64, Value>, key: u64, ttl: Option<Duration>) {
        let Some(value) = self.value(session, key) else {
            return;
        };
        match ttl {
            Some(ttl) => view.insert_with_ttl(key, value, ttl),
            None => view.insert(key, value),
        }
    }

    fn value(&self, session: &Session, key: u64) -> Option<Value> {
        let life = self.elements.live(session)?;
        Some(Value {
            key,
            number: life.number(),
            _life: Some(life),
        })
    }

    /// What a program may do to a cache.
    fn change(&self, ctx: &mut ThreadCtx) {
        let session = ctx.session;
        let view = self
            .cache
            .tenant(TENANTS[ctx.random.usize(0..TENANTS.len())]);
        let key = ctx.random.u64(PINNED..KEYS);
        match ctx.random.u32(0..100) {
            0..45 => self.put(session, &view, key, None),
            45..60 => {
                let ttl = Duration::from_micros(ctx.random.u64(0..20_000));
                self.put(session, &view, key, Some(ttl));
            }
            60..70 => self.put(session, &self.cache, key % PINNED, None),
            70..75 => {
                let load = || self.value(session, key).ok_or(());
                if let Ok(value) = view.try_get_with(&key, load) {
                    check(session, key, &value);
                }
            }
            75..80 => {
                let compute = |entry: Option<Entry<u64, Value>>| {
                    if let Some(entry) = entry {
                        check(session, key, entry.value());
                    }
                    match key % 4 {
                        0 => Op::Remove,
                        _ => self.value(session, key).map_or(Op::Nop, Op::Put),
                    }
                };
                let result = view.entry(&key).and_compute_with(compute);
                if let Some(entry) = result.into_entry() {
                    check(session, key, entry.value());
                }
            }
            80..86 => drop(self.cache.remove(&key)),
            86..92 => {
                if let Some(value) = self.cache.take(&key) {
                    check(session, key, &value);
                }
            }
            // Entries beside the others' keys, so that not all that could be evicted is pinned.
            92 => {
                if self.cache.pin(&key) {
                    ctx.spin(100);
                    self.cache.unpin(&key);
                }
            }
            93 => view.set_max(ctx.random.u64(LEAST / 2..MOST)),
            94 => view.set_high(ctx.random.u64(LEAST / 4..MOST)),
            95 => view.set_min(ctx.random.u64(0..LEAST / 8)),
            96 => self.cache.set_max_bytes(ctx.random.u64(LEAST..=MOST)),
            97 if ctx.one_in(4) => view.invalidate_all(),
            98 if ctx.one_in(4) => drop(view.delete()),
            99 if ctx.one_in(8) => {
                let part = ctx.random.u64(2..7);
                let doomed = |&key: &u64, _: &Value| key >= PINNED && key % part == 0;
                self.cache.invalidate_entries_if(doomed);
            }
            _ => self.cache.run_pending(),
        }
    }

    /// Replaces, and drops at once, in a section that has found the value: so each round is found out,
    /// also if no reader gets a processor meanwhile.
    fn drop_at_once(&self, ctx: &mut ThreadCtx) {
        let key = ctx.random.u64(0..PINNED);
        self.put(ctx.session, &self.cache, key, None);
        ctx.spin(1000);
        self.look_at(ctx, key, |_| {
            // SAFETY: values are two numbers and a life, which readers of this flavour do not look at;
            // they compare the numbers.
            unsafe { stillpoint_cache::lab::drop_at_once(&self.cache, &key) };
        });
    }

    /// Looks at an entry before and after `pause`, in one section.
    fn look_at(&self, ctx: &mut ThreadCtx, key: u64, pause: impl FnOnce(&mut ThreadCtx)) {
        let found = self.cache.get_ref(&key);
        let before = found.as_ref().map(|value| (value.key, value.number));
        pause(ctx);
        let alive = before.is_none_or(|(_, number)| self.elements.is_alive(number));
        drop(found);
        ctx.count();
        let tally = &ctx.session.tally;
        if self.pins && key < PINNED && before.is_none() {
            tally.fault(Fault::Lost, || format!("key {key} was not found"));
        }
        if !alive {
            tally.fault(Fault::TooShort, || {
                format!("the value of key {key} was freed")
            });
        } else if before.is_some_and(|(found, _)| found != key) {
            tally.fault(Fault::Content, || format!("key {key} had {before:?}"));
        }
    }

    /// All values have been dropped in the end, once.
    fn end(self, session: &Session) {
        let Self {
            cache, elements, ..
        } = self;
        cache.invalidate_all();
        let statistics = cache.statistics();
        if (
            statistics.entries,
            statistics.bytes,
            statistics.pinned_bytes,
        ) != (0, 0, 0)
        {
            session
                .tally
                .fault(Fault::Count, || format!("in the end: {statistics:?}"));
        }
        drop(cache);
        // The service thread may be about to drop what it has taken out.
        let begun = Instant::now();
        let made = || session.tally.published.load(Ordering::Relaxed);
        while elements.ended() != made() && begun.elapsed() < Duration::from_secs(10) {
            global().kvfree_barrier();
        }
        elements.check_end(session);
    }
}

impl Subject for Test {
    fn look(&self, ctx: &mut ThreadCtx) {
        let pinned = ctx.one_in(2);
        let key = ctx
            .random
            .u64(if pinned { 0..PINNED } else { PINNED..KEYS });
        self.look_at(ctx, key, |ctx| ctx.delay());
    }

    /// Makes changes, between which the limit holds.
    fn write(&self, ctx: &mut ThreadCtx, _writer: usize) {
        (0..32).for_each(|_| (self.change)(self, ctx));
        check_limit(ctx.session, self.cache.weighted_bytes(), MOST);
    }

    fn walk(&self, ctx: &mut ThreadCtx) {
        self.cache
            .for_each(|&key, value| check(ctx.session, key, value));
    }
}

/// A cache never has more than the largest limit that was ever set.
pub fn check_limit(session: &Session, bytes: u64, most: u64) {
    if bytes > most {
        session
            .tally
            .fault(Fault::Count, || format!("{bytes} bytes, of {most} at most"));
    }
}

/// What was found is what was inserted for that key.
fn check(session: &Session, key: u64, value: &Value) {
    if value.key != key {
        let found = value.key;
        session
            .tally
            .fault(Fault::Content, || format!("key {key} had that of {found}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::torture::options::tests::plan_for;

    #[test]
    fn one_round_of_the_broken_writer_is_found_out_without_a_reader() {
        let session = Session::new(plan_for("busted-cache"));
        Test::that_drops_at_once().drop_at_once(&mut session.thread_ctx("writer", 0));
        assert_eq!(session.tally.count_of(Fault::TooShort), 1);
    }
}
