//! The `Hash` of a key forks while a table of a `CopyMap` grows. In the child other threads take the
//! same buckets again, so the thread that has forked leaves them alone.
//!
//! Detects a bucket that is moved on without a look whose process it is.
#![cfg(all(target_os = "linux", not(miri)))]

#[path = "../../stillpoint/tests/common/mod.rs"]
mod common;

use common::{
    apart, eventually,
    forking::{Bare, end_after, fork_here},
};
use std::{
    cell::Cell,
    hash::{BuildHasher, Hasher},
    ops::Range,
    sync::atomic::{AtomicBool, Ordering},
};
use stillpoint_map::CopyMap;

thread_local! {
    /// What the next hash of `FIRST` does in this thread.
    static HOOK: Cell<Option<fn()>> = const { Cell::new(None) };
    /// The other thread of the child.
    static OTHER: Cell<Option<Bare>> = const { Cell::new(None) };
}

/// The key whose bucket this is about: the first in it.
const FIRST: u64 = 0;
/// Some are in the same bucket, of which there are two, and are put in later: while it is moved, and
/// then.
const MEANWHILE: Range<u64> = 1000..1002;
const LATER: Range<u64> = 2000..2008;

/// A key is its own hash.
#[derive(Default)]
struct Own(u64);

impl Hasher for Own {
    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are numbers");
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }

    fn finish(&self) -> u64 {
        if self.0 == FIRST
            && let Some(hook) = HOOK.take()
        {
            hook();
        }
        self.0
    }
}

struct Owns;

impl BuildHasher for Owns {
    type Hasher = Own;

    fn build_hasher(&self) -> Own {
        Own::default()
    }
}

static MAP: CopyMap<u64, u64, Owns> = CopyMap::with_hasher(Owns);
static HAS_FORKED: AtomicBool = AtomicBool::new(false);
static IS_HASHING: AtomicBool = AtomicBool::new(false);
static MAY_GO_ON: AtomicBool = AtomicBool::new(false);

fn put(key: u64) {
    MAP.pin().insert(key, key);
}

/// In the child another thread is in the middle of the same bucket when this returns.
fn forks() {
    HAS_FORKED.store(true, Ordering::Relaxed);
    if let Some(child) = fork_here() {
        child.well();
        return;
    }
    let other = Bare::spawn(|| {
        HOOK.set(Some(|| {
            IS_HASHING.store(true, Ordering::Release);
            eventually(|| MAY_GO_ON.load(Ordering::Acquire));
        }));
        put(u64::MAX);
    });
    OTHER.set(Some(other));
    eventually(|| IS_HASHING.load(Ordering::Acquire));
}

/// Puts keys into a map until it grows, and `hook` is called.
fn goes_on_after(hook: fn()) {
    put(FIRST);
    HOOK.set(Some(hook));
    let mut keys = vec![FIRST];
    for key in 1..100 {
        put(key);
        keys.push(key);
        if HAS_FORKED.load(Ordering::Relaxed) {
            break;
        }
    }
    assert!(HAS_FORKED.load(Ordering::Relaxed));
    let has_all = || keys.iter().all(|key| MAP.pin().get(key) == Some(*key));
    let Some(other) = OTHER.take() else {
        assert!(has_all());
        return;
    };
    end_after(|| {
        LATER.for_each(put);
        MAY_GO_ON.store(true, Ordering::Release);
        other.join();
        assert!(has_all());
        for key in LATER {
            assert_eq!(MAP.pin().get(&key), Some(key));
        }
    });
}

#[test]
fn child_goes_on_with_a_bucket_whose_hash_forks() {
    apart!();
    goes_on_after(forks);
}

/// It has changed meanwhile, and is looked at for the second time.
#[test]
fn child_goes_on_with_a_changed_bucket_whose_hash_forks() {
    apart!();
    goes_on_after(|| {
        MEANWHILE.for_each(put);
        HOOK.set(Some(forks));
    });
}
