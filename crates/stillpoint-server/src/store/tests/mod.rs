//! What the store promises, one subject a file.

mod commands;
mod fall;
mod flushes;
mod forgotten;
mod limits;
mod model;
mod search;
mod small;
mod table;
mod tenants;
mod threads;

use super::{Clock, Condition, Config, ManualClock, Mode, Outcome, Store, Tenant};
use std::{
    sync::{Arc, Barrier, mpsc},
    thread,
};
use stillpoint::{read_lock, synchronize};

const ANY: Condition = Condition {
    compare: None,
    or_stale: false,
};

/// A store of that size, its default tenant, and the clock that it expires by. It has no background
/// thread.
fn store_of(limit: u64, evict: bool) -> (Store, Tenant, ManualClock) {
    let clock = ManualClock::new();
    let config = Config {
        limit,
        evict,
        clock: Clock::Manual(clock.clone()),
        ..Config::default()
    };
    let store = Store::new(config).expect("there is memory");
    let tenant = store.tenant("").expect("the default one");
    (store, tenant, clock)
}

/// A store with a background thread, and its default tenant.
fn live(limit: u64) -> (Store, Tenant) {
    let config = Config {
        limit,
        ..Config::default()
    };
    let store = Store::new(config).unwrap();
    let tenant = store.tenant("").unwrap();
    (store, tenant)
}

fn set(tenant: &Tenant, key: &[u8], value: &[u8]) -> Result<u64, Outcome> {
    tenant.set(key, 0, 0, value, Mode::Set, ANY)
}

fn value_of(tenant: &Tenant, key: &[u8]) -> Option<Vec<u8>> {
    tenant.get(key, |item| item.value().to_vec())
}

/// Some seconds of the background, after each of which readers have left, those of other tests too.
fn rest(store: &Store) {
    for _ in 0..6 {
        store.maintain();
        synchronize();
    }
    store.maintain();
}

/// Runs `inside` while another thread is in a section.
fn beside_a_reader<R>(inside: impl FnOnce() -> R) -> R {
    let entered = Barrier::new(2);
    thread::scope(|scope| {
        // Dropped also by a panic: the reader leaves.
        let (_leave, left) = mpsc::channel::<()>();
        scope.spawn(|| {
            let _section = read_lock();
            entered.wait();
            let _ = left.into_iter().next();
        });
        entered.wait();
        inside()
    })
}

/// Dead bytes of a tenant's key space: as it has counted them, and looked at segment by segment.
#[track_caller]
fn check_dead(tenant: &Tenant) {
    let space = Arc::clone(tenant.state.space.load(&read_lock()));
    let owner = &tenant.state.owner;
    let mut dead = space.counted_dead();
    owner.common.lists.for_each(&owner.limit.memcg, |segment| {
        if segment.is_of(&space) {
            dead += segment.stage.counted_dead();
        }
        true
    });
    assert_eq!(space.counts().dead as i64, dead);
}

/// Bytes that tell which key they are of, and are all different for another version.
fn pattern(key: u64, version: u64, len: usize) -> Vec<u8> {
    let seed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ version;
    let mut bytes: Vec<u8> = seed.to_le_bytes().into_iter().cycle().take(len).collect();
    if let Some(last) = bytes.last_mut() {
        *last = last.wrapping_add(len as u8);
    }
    bytes
}
