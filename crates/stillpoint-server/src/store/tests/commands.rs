//! Each command, with its outcomes.

use super::*;
use crate::store::{Arithmetic, Cursor, Invalidate, KEY_MAX, Refused};
use std::{convert::Infallible, ptr};

fn compare(cas: u64) -> Condition {
    Condition::of(Some(cas))
}

#[test]
fn modes_ask_for_an_item_or_for_none() {
    let (_store, tenant, _) = store_of(1 << 20, true);
    let store = |key: &[u8], value: &[u8], mode| tenant.set(key, 3, 0, value, mode, ANY);
    for mode in [Mode::Replace, Mode::Append, Mode::Prepend] {
        assert_eq!(store(b"k", b"v", mode), Err(Outcome::NotStored));
    }
    store(b"k", b"b", Mode::Add).unwrap();
    assert_eq!(store(b"k", b"x", Mode::Add), Err(Outcome::NotStored));
    store(b"k", b"c", Mode::Append).unwrap();
    store(b"k", b"a", Mode::Prepend).unwrap();
    assert_eq!(value_of(&tenant, b"k").unwrap(), b"abc");
    assert_eq!(tenant.get(b"k", |item| item.flags()), Some(3));
    store(b"k", b"", Mode::Replace).unwrap();
    assert_eq!(value_of(&tenant, b"k").unwrap(), b"");
    assert_eq!(tenant.delete(b"k", None), Ok(()));
    assert_eq!(tenant.delete(b"k", None), Err(Outcome::NotFound));
    assert_eq!(tenant.statistics().items, 0);
}

#[test]
fn cas_values_decide_and_are_told() {
    let (_store, tenant, _) = store_of(1 << 20, true);
    let first = set(&tenant, b"k", b"1").unwrap();
    assert_eq!(tenant.get(b"k", |item| item.cas()), Some(first));
    let swap = |condition| tenant.set(b"k", 0, 0, b"2", Mode::Set, condition);
    assert_eq!(swap(compare(first + 9)), Err(Outcome::Exists));
    let second = swap(compare(first)).unwrap();
    assert!(second > first);
    assert_eq!(tenant.delete(b"k", Some(first)), Err(Outcome::Exists));
    assert_eq!(tenant.delete(b"k", Some(second)), Ok(()));
    assert_eq!(swap(compare(second)), Err(Outcome::NotFound));
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
fn numbers_wrap_stop_and_keep_their_length() {
    let (_store, tenant, _) = store_of(1 << 20, true);
    let run = |what| tenant.arithmetic(b"n", what).map(|number| number.value);
    assert_eq!(run(Arithmetic::increment(1)), Err(Outcome::NotFound));
    let initial = Arithmetic {
        initial: Some((10, 0)),
        ..Arithmetic::increment(1)
    };
    assert_eq!(run(initial), Ok(10));
    assert_eq!(run(initial), Ok(11));
    assert_eq!(run(Arithmetic::decrement(2)), Ok(9));
    assert_eq!(value_of(&tenant, b"n").unwrap(), b"9 ");
    assert_eq!(run(Arithmetic::decrement(20)), Ok(0));
    set(&tenant, b"n", b"18446744073709551615").unwrap();
    assert_eq!(run(Arithmetic::increment(3)), Ok(2));
    set(&tenant, b"n", b"two").unwrap();
    assert_eq!(run(Arithmetic::increment(1)), Err(Outcome::NotANumber));
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
fn a_walk_finds_each_item_once_while_the_table_grows() {
    let many = if cfg!(miri) { 60 } else { 5000 };
    let (_store, tenant, _) = store_of(16 << 20, true);
    let put = |number: u32| drop(set(&tenant, &number.to_le_bytes(), b"v"));
    (0..many).for_each(put);
    let (mut cursor, mut seen) = (Cursor::default(), vec![0; many as usize]);
    let mut next = many;
    while tenant.keys(&mut cursor, 10, |item| {
        let number = u32::from_le_bytes(item.key().try_into().unwrap());
        if let Some(seen) = seen.get_mut(number as usize) {
            *seen += 1;
        }
    }) {
        (0..20).for_each(|more| put(next + more));
        next += 20;
    }
    assert!(seen.iter().all(|&times| times == 1));
    assert_eq!(tenant.statistics().items, u64::from(next));
    assert!((0..next).all(|number| value_of(&tenant, &number.to_le_bytes()).is_some()));
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
