//! Byte values of a cache, which its service thread moves together while they are read, cloned,
//! replaced, evicted and removed, and the cache's limit rises and falls.
//!
//! All bytes of a value follow from its key and its first word. So a reader sees whether what it has
//! found is whole, is that key's, and stays so until the section's end; and a clone for as long as it
//! is kept. In the end the arena has no value.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use stillpoint::global;
use stillpoint_cache::{Bytes, Cache, lab::move_and_overwrite};

use super::cache::check_limit;
use super::subject::{self, Subject};
use crate::torture::session::{Session, ThreadCtx};
use crate::torture::tally::{Fault, add};

const KEYS: u64 = 8000;

/// The largest limit, in bytes, and the least.
const MOST: u64 = 6 << 20;
const LEAST: u64 = 1 << 20;

/// The bytes of a value, of which the first 16 are its key and its number.
const SIZES: std::ops::Range<usize> = 16..2000;

/// Clones that are kept.
const KEPT: usize = 256;

struct Test {
    cache: Cache<u64, Bytes>,
    kept: Mutex<Vec<(u64, Bytes)>>,
    /// What a writer does to the cache.
    change: fn(&Self, &mut ThreadCtx),
}

/// Nothing left out.
pub fn run(session: &Arc<Session>) {
    torture(session, Test::change);
}

/// Old places are written over before readers have left them.
pub fn busted(session: &Arc<Session>) {
    torture(session, Test::move_at_once);
}

fn torture(session: &Arc<Session>, change: fn(&Test, &mut ThreadCtx)) {
    let test = Test::new(change);
    subject::torture(session, global(), &test);
    test.end(session);
}

/// A byte of a value of that number.
fn byte_at(number: u64, place: usize) -> u8 {
    (number as u8).wrapping_mul(31).wrapping_add(place as u8)
}

impl Test {
    fn new(change: fn(&Self, &mut ThreadCtx)) -> Self {
        Self {
            cache: Cache::with_bytes(MOST),
            kept: Mutex::default(),
            change,
        }
    }

    fn put(&self, ctx: &mut ThreadCtx, key: u64) {
        let number = ctx.random.u64(0..u64::MAX);
        let mut value = [0; SIZES.end];
        let value = &mut value[..ctx.random.usize(SIZES)];
        value[..8].copy_from_slice(&key.to_ne_bytes());
        value[8..16].copy_from_slice(&number.to_ne_bytes());
        for (place, byte) in value.iter_mut().enumerate().skip(16) {
            *byte = byte_at(number, place);
        }
        add(&ctx.session.tally.published, 1);
        // What is refused is no entry.
        let _ = self.cache.insert_bytes(key, value);
    }

    /// What a program may do to it.
    fn change(&self, ctx: &mut ThreadCtx) {
        let key = ctx.random.u64(0..KEYS);
        match ctx.random.u32(0..100) {
            0..60 => self.put(ctx, key),
            60..80 => drop(self.cache.remove(&key)),
            80..85 => {
                if let Some(value) = self.cache.get(&key) {
                    self.keep(ctx.session, key, value);
                }
            }
            85..90 => {
                if let Some(value) = self.cache.take(&key) {
                    check(ctx.session, key, &value);
                }
            }
            90 => self.cache.set_max_bytes(ctx.random.u64(LEAST..=MOST)),
            91 if ctx.one_in(8) => self.scatter(ctx.random.u64(2..7)),
            _ => drop(self.cache.get(&key)),
        }
    }

    /// Removes entries here and there.
    fn scatter(&self, part: u64) {
        self.cache
            .invalidate_entries_if(|key, _| !key.is_multiple_of(part));
    }

    /// Keeps a clone, in place of another one, which is as it was.
    fn keep(&self, session: &Session, key: u64, value: Bytes) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let place = (key as usize) % KEPT;
        let old = if place < kept.len() {
            std::mem::replace(&mut kept[place], (key, value))
        } else {
            kept.push((key, value));
            return;
        };
        drop(kept);
        check(session, old.0, &old.1);
    }

    /// Fills, scatters, and moves, in a section that has found what is moved: so each round that moves something is
    /// found out, even if no reader gets a processor meanwhile.
    fn move_at_once(&self, ctx: &mut ThreadCtx) {
        (0..KEYS / 8).for_each(|key| self.put(ctx, key));
        self.scatter(3);
        // Nothing is moved before the places between are free.
        global().kvfree_barrier();
        let found = (0..KEYS / 8).map(|key| (key, self.cache.get_ref(&key)));
        let found: Vec<_> = found.collect();
        // Slices, which stay where they are.
        let slices = found
            .iter()
            .filter_map(|(key, value)| Some((*key, &***value.as_ref()?)));
        let slices: Vec<(u64, &[u8])> = slices.collect();
        // SAFETY: this flavour does not clone; readers compare bytes.
        unsafe { move_and_overwrite(&self.cache) };
        for (key, bytes) in slices {
            check(ctx.session, key, bytes);
        }
    }

    /// Something was moved, and all memory goes back.
    fn end(self, session: &Session) {
        let (arena, tally) = (self.cache.arena().clone(), &session.tally);
        let eventually = |is: &mut dyn FnMut() -> bool| {
            let begun = Instant::now();
            while !is() && !tally.is_faulty() {
                if begun.elapsed() > Duration::from_secs(20) {
                    return false;
                }
            }
            true
        };
        // A run may be too short for the service thread.
        let mut ctx = session.thread_ctx("writer", 0);
        let has_moved = eventually(&mut || {
            let moved = arena.statistics().moved > 0;
            if !moved {
                self.cache.set_max_bytes(MOST);
                (0..KEYS).for_each(|key| self.put(&mut ctx, key));
                self.scatter(3);
                std::thread::yield_now();
            }
            moved
        });
        if !has_moved {
            tally.fault(Fault::NoEnd, || "no value was moved".to_owned());
        }
        let Self { cache, kept, .. } = self;
        for (key, value) in kept.into_inner().unwrap_or_else(PoisonError::into_inner) {
            check(session, key, &value);
        }
        cache.invalidate_all();
        drop(cache);
        // The service thread may be about to free what it has moved.
        let is_empty = eventually(&mut || {
            global().kvfree_barrier();
            arena.statistics().values == 0
        });
        if !is_empty {
            tally.fault(Fault::Lost, || {
                format!("in the end: {:?}", arena.statistics())
            });
        }
    }
}

impl Subject for Test {
    fn look(&self, ctx: &mut ThreadCtx) {
        let key = ctx.random.u64(0..KEYS);
        if let Some(value) = self.cache.get_ref(&key) {
            check(ctx.session, key, &value);
            // A slice, which stays where it is.
            let bytes: &[u8] = &value;
            ctx.delay();
            check(ctx.session, key, bytes);
        }
        ctx.count();
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

/// A whole value of that key.
fn check(session: &Session, key: u64, value: &[u8]) {
    let word = |from: usize| {
        let word = value.get(from..from + 8)?.try_into().ok()?;
        Some(u64::from_ne_bytes(word))
    };
    let (found, number) = (word(0), word(8).unwrap_or_default());
    let rest = value.iter().enumerate().skip(16);
    let wrong = rest
        .map(|(place, &byte)| (place, byte))
        .find(|&(place, byte)| byte != byte_at(number, place));
    if found != Some(key) || wrong.is_some() {
        session.tally.fault(Fault::Content, || {
            format!("key {key} had that of {found:?}, with {wrong:?} (place, byte)")
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::torture::options::tests::plan_for;

    /// One round is enough, unless the service thread has moved all values before it: then it has none to move.
    #[test]
    fn the_broken_writer_is_found_out_without_a_reader() {
        let session = Session::new(plan_for("busted-cache-bytes"));
        let (test, mut ctx) = (
            Test::new(Test::move_at_once),
            session.thread_ctx("writer", 0),
        );
        let is_found_out = (0..100).any(|_| {
            test.move_at_once(&mut ctx);
            session.tally.count_of(Fault::Content) > 0
        });
        assert!(is_found_out);
    }
}
