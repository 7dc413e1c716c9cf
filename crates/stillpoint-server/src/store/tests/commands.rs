//! What commands do beside what [`model`](super::model) compares.

use super::*;
use crate::store::{Invalidate, KEY_MAX, Refused};
use std::{convert::Infallible, ptr};

fn compare(cas: u64) -> Condition {
    Condition::of(Some(cas))
}

#[test]
fn a_stale_value_is_stored_where_that_is_allowed() {
    let (_store, tenant, clock) = store_of(1 << 20, true);
    let expires = clock.now() + 50;
    let old = tenant.set(b"k", 0, expires, b"1", Mode::Set, ANY).unwrap();
    let new = tenant.set(b"k", 0, expires, b"2", Mode::Set, ANY).unwrap();
    let or_stale = Condition {
        or_stale: true,
        ..compare(old)
    };
    let stored = tenant.set(b"k", 0, 0, b"3", Mode::Set, or_stale).unwrap();
    assert!(stored > new);
    let seen = tenant.get(b"k", |item| {
        (item.value()[0], item.is_stale(), item.exptime())
    });
    assert_eq!(seen, Some((b'3', true, expires)));
    // One wins.
    assert_eq!(
        tenant.get(b"k", |item| (item.win(), item.win())),
        Some((true, false))
    );
    assert_eq!(tenant.get(b"k", |item| item.has_win()), Some(true));
    // A plain store ends it.
    set(&tenant, b"k", b"4").unwrap();
    assert_eq!(
        tenant.get(b"k", |item| item.is_stale() || item.has_win()),
        Some(false)
    );
    let ahead = Condition {
        or_stale: true,
        ..compare(u64::MAX)
    };
    assert_eq!(
        tenant.set(b"k", 0, 0, b"5", Mode::Set, ahead),
        Err(Outcome::Exists)
    );
}

#[test]
fn invalidated_items_are_stale_and_have_another_cas_value() {
    let (_store, tenant, clock) = store_of(1 << 20, true);
    let find = |key: &[u8]| {
        tenant.get(key, |item| {
            assert_eq!((item.value(), item.flags()), (&b"value"[..], 9));
            (item.is_stale(), item.has_win(), item.cas())
        })
    };
    let soon = clock.now() + 5;
    // Where it lies; written anew for the expiry.
    for (key, exptime, in_place) in [
        (b"a", None, true),
        (b"b", Some(soon), true),
        (b"c", Some(soon), false),
    ] {
        let expires = if in_place { soon } else { 0 };
        let set = tenant.set(key, 9, expires, b"value", Mode::Set, ANY);
        let cas = set.unwrap();
        let place = || tenant.peek(key, |item| item.value().as_ptr()).unwrap();
        let before = place();
        let what = |compare| Invalidate {
            exptime,
            condition: Condition::of(compare),
        };
        let wrong = tenant.invalidate(key, what(Some(cas ^ 1)));
        assert_eq!(
            (wrong, find(key)),
            (Err(Outcome::Exists), Some((false, false, cas)))
        );
        let after = tenant.invalidate(key, what(Some(cas))).unwrap();
        assert_ne!(after, cas);
        assert_eq!(find(key), Some((true, false, after)));
        assert_eq!(place() == before, in_place, "{key:?}");
        // It is won again after each time, and changes made for it before fail.
        assert_eq!(tenant.get(key, |item| item.win()), Some(true));
        let again = tenant.invalidate(key, what(None)).unwrap();
        assert_eq!(find(key), Some((true, false, again)));
        assert_eq!(tenant.delete(key, Some(after)), Err(Outcome::Exists));
        let old = Condition::of(Some(after));
        assert_eq!(set_if(&tenant, key, old), Err(Outcome::Exists));
        let expired = exptime.is_some() || expires > 0;
        assert_eq!(
            tenant.peek(key, |item| item.exptime() == soon),
            Some(expired)
        );
    }
    clock.advance(5);
    let late = tenant.invalidate(b"a", Invalidate::default());
    assert_eq!(late, Err(Outcome::NotFound));
}

fn set_if(tenant: &Tenant, key: &[u8], condition: Condition) -> Result<u64, Outcome> {
    tenant.set(key, 0, 0, b"new", Mode::Set, condition)
}

#[test]
fn items_expire_in_their_second_and_touch_moves_that() {
    let (store, tenant, clock) = store_of(1 << 20, true);
    let now = clock.now();
    for (key, exptime) in [(b"a", now + 10), (b"b", 0)] {
        tenant.set(key, 0, exptime, b"v", Mode::Set, ANY).unwrap();
    }
    tenant.touch(b"b", now + 12).unwrap();
    tenant.touch(b"b", now + 11).unwrap();
    assert_eq!(tenant.get(b"b", |item| item.ttl(now)), Some(Some(11)));
    clock.advance(10);
    assert_eq!(
        (value_of(&tenant, b"a"), value_of(&tenant, b"b").is_some()),
        (None, true)
    );
    assert_eq!(tenant.touch(b"a", 0), Err(Outcome::NotFound));
    tenant.set(b"a", 0, 0, b"w", Mode::Add, ANY).unwrap();
    clock.advance(1);
    assert_eq!(value_of(&tenant, b"b"), None);
    assert_eq!(tenant.peek(b"b", |_| ()), None);
    assert_eq!(
        tenant.statistics().items,
        2,
        "nothing has looked for it yet"
    );
    store.maintain();
    let after = tenant.statistics();
    assert_eq!(
        (after.items, after.expired, after.expired_unfetched),
        (1, 1, 0)
    );
    // Of `a` once, of `b` twice: what is not there has not expired.
    assert_eq!(value_of(&tenant, b"b"), None);
    assert_eq!(tenant.statistics().get_expired, 3);
    assert_eq!(tenant.statistics().flushed, 0);
    tenant.flush_all(0);
    let after = tenant.statistics();
    assert_eq!((after.items, after.flushed, after.expired), (0, 1, 1));
}

#[test]
fn accesses_are_told_as_they_were_before() {
    let (_store, tenant, clock) = store_of(1 << 20, true);
    set(&tenant, b"k", b"v").unwrap();
    let stored = clock.now();
    clock.advance(7);
    assert!(tenant.peek(b"k", |item| item.was_fetched()) == Some(false));
    let seen = || tenant.get(b"k", |item| (item.was_fetched(), item.last_access()));
    assert_eq!(seen(), Some((false, stored)));
    clock.advance(1);
    assert_eq!(seen(), Some((true, stored + 7)));
}

#[test]
fn what_is_too_long_is_refused() {
    let (store, tenant, _) = store_of(1 << 30, true);
    for len in [0, KEY_MAX + 1] {
        let key = vec![b'k'; len];
        assert_eq!(
            set(&tenant, &key, b""),
            Err(Outcome::Refused(Refused::Key { len }))
        );
        assert_eq!(value_of(&tenant, &key), None);
    }
    let key = [b'k'; KEY_MAX];
    let max = store.config().item_max;
    set(&tenant, &key, &vec![1; max]).unwrap();
    assert_eq!(value_of(&tenant, &key).unwrap().len(), max);
    let refused = Outcome::Refused(Refused::TooLarge { len: max + 1, max });
    assert_eq!(set(&tenant, &key, &vec![1; max + 1]), Err(refused.clone()));
    let append = tenant.set(&key, 0, 0, b"1", Mode::Append, ANY);
    assert_eq!(append, Err(refused));
    assert_eq!(value_of(&tenant, &key).unwrap().len(), max);
}

#[test]
fn large_drafts_stay_where_they_were_read_and_flushed_ones_are_copied() {
    let (_store, tenant, _) = store_of(8 << 20, true);
    for flush in [false, true] {
        let bytes = pattern(1, 2, if cfg!(miri) { 33_000 } else { 100_000 });
        let mut draft = tenant.prepare(b"large", 5, 0, bytes.len()).unwrap();
        // The first by way of a buffer, the rest directly.
        let (first, rest) = bytes.split_at(10_000);
        draft.push(first).unwrap();
        let mut place = ptr::null();
        let copy = |to: &mut [u8]| {
            place = to.as_ptr().wrapping_sub(first.len());
            to.copy_from_slice(rest);
            Ok::<_, Infallible>(rest.len())
        };
        assert_eq!(draft.read(copy), Some((Ok(rest.len()), Ok(()))));
        if flush {
            tenant.flush_all(0);
        }
        draft.store(Mode::Add, ANY).unwrap();
        let same = tenant.get(b"large", |item| {
            assert_eq!((item.value(), item.flags()), (&bytes[..], 5));
            item.value().as_ptr() == place
        });
        assert_eq!(same, Some(!flush));
    }
    // One that is dropped leaves nothing.
    drop(tenant.prepare(b"none", 0, 0, 200_000).unwrap());
    assert_eq!(value_of(&tenant, b"none"), None);
}
