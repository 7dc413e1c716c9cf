//! Items that are gone by their prefixes.

use super::*;
use crate::store::{Arithmetic, Cursor, Invalidate};

fn forget(tenant: &Tenant, prefixes: &[&[u8]]) {
    tenant.forget(prefixes.iter().copied());
}

fn keys(tenant: &Tenant) -> Vec<Vec<u8>> {
    let (mut keys, mut cursor) = (Vec::new(), Cursor::default());
    while tenant.keys(&mut cursor, 100, |item| keys.push(item.key().to_vec())) {}
    keys.sort();
    keys
}

#[test]
fn no_command_finds_what_was_forgotten() {
    let (_store, tenant, clock) = store_of(1 << 20, true);
    // Before anything was stored, too.
    forget(&tenant, &[b"s:"]);
    let expires = clock.now() + 50;
    let again = || {
        let cas = tenant
            .set(b"s:k", 0, expires, b"1", Mode::Set, ANY)
            .unwrap();
        set(&tenant, b"other", b"1").unwrap();
        forget(&tenant, &[b"s:"]);
        assert_eq!(value_of(&tenant, b"other").as_deref(), Some(&b"1"[..]));
        cas
    };
    let cas = again();
    assert_eq!(value_of(&tenant, b"s:k"), None);
    assert_eq!(tenant.peek(b"s:k", |_| ()), None);
    assert_eq!(keys(&tenant), [b"other"]);
    assert_eq!(tenant.touch(b"s:k", 0), Err(Outcome::NotFound));
    assert_eq!(tenant.touch(b"s:k", expires), Err(Outcome::NotFound));
    assert_eq!(tenant.delete(b"s:k", None), Err(Outcome::NotFound));
    let by_one = Arithmetic::increment(1);
    assert_eq!(tenant.arithmetic(b"s:k", by_one), Err(Outcome::NotFound));
    let what = Invalidate::default();
    assert_eq!(tenant.invalidate(b"s:k", what), Err(Outcome::NotFound));
    let long = pattern(1, 1, 40_000);
    for value in [&b"2"[..], &long] {
        let store = |mode, condition| tenant.set(b"s:k", 0, 0, value, mode, condition);
        let draft = |mode, condition| {
            let mut draft = tenant.prepare(b"s:k", 0, 0, value.len()).unwrap();
            draft.push(value).unwrap();
            draft.store(mode, condition)
        };
        let compare = Condition::of(Some(cas));
        for mode in [Mode::Replace, Mode::Append, Mode::Prepend] {
            assert_eq!(store(mode, ANY), Err(Outcome::NotStored), "{mode:?}");
            assert_eq!(draft(mode, ANY), Err(Outcome::NotStored), "{mode:?}");
        }
        assert_eq!(store(Mode::Set, compare), Err(Outcome::NotFound));
        assert_eq!(draft(Mode::Set, compare), Err(Outcome::NotFound));
        // What is stored since is found.
        assert!(store(Mode::Add, ANY).is_ok());
        assert_eq!(value_of(&tenant, b"s:k").as_deref(), Some(value));
        again();
        assert!(draft(Mode::Add, ANY).is_ok());
        assert_eq!(value_of(&tenant, b"s:k").as_deref(), Some(value));
        again();
    }
}

#[test]
fn a_prefix_covers_longer_ones_that_were_forgotten_before_and_none_after() {
    let (_store, tenant, _) = store_of(1 << 20, true);
    let all: [&[u8]; 3] = [b"s:1", b"s:x:1", b"t:1"];
    let there = || all.map(|key| value_of(&tenant, key).is_some());
    let fill = || {
        all.iter()
            .for_each(|key| _ = set(&tenant, key, b"v").unwrap())
    };
    fill();
    forget(&tenant, &[b"s:x:"]);
    assert_eq!(there(), [true, false, true]);
    forget(&tenant, &[b"s:"]);
    assert_eq!(there(), [false, false, true]);
    fill();
    assert_eq!(there(), [true; 3]);
    forget(&tenant, &[b"s:x:", b"t:"]);
    assert_eq!(there(), [true, false, false]);
}

/// Neither eviction nor compaction brings it back, and the background gives its memory back.
#[test]
fn what_was_forgotten_is_not_copied_and_its_memory_is_freed() {
    let (store, tenant, _) = store_of(4 << 20, true);
    let key = |number: u64| match number % 2 {
        0 => format!("s:{number}"),
        _ => format!("t:{number}"),
    };
    for number in 0..400 {
        let key = key(number);
        set(&tenant, key.as_bytes(), &pattern(number, 0, 1000)).unwrap();
        // Hot ones are worth a copy.
        (0..4).for_each(|_| _ = value_of(&tenant, key.as_bytes()));
    }
    let before = tenant.statistics();
    forget(&tenant, &[b"s:"]);
    rest(&store);
    let after = tenant.statistics();
    assert_eq!((before.items, after.items), (400, 200));
    assert!(after.segment_bytes < before.segment_bytes * 3 / 4);
    for number in 0..400 {
        let found = value_of(&tenant, key(number).as_bytes());
        assert_eq!(found.is_some(), number % 2 == 1, "{number}");
    }
    check_dead(&tenant);
}
