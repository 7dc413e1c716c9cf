//! Random commands, compared with a map of std. Memory is small, so that segments are evicted,
//! compacted and used again all the time: by the commands, and by the background reclaimer. So with
//! eviction an item that the model has may be gone at any time; it may never be another one.

use super::*;
use crate::store::{Arithmetic, Cursor, Invalidate, Refused};
use proptest::prelude::*;
use std::collections::HashMap;

const KEYS: u64 = if cfg!(miri) { 12 } else { 60 };
/// Lengths of values of which most have a segment of their own.
const LARGE: std::ops::Range<usize> = 30_000..if cfg!(miri) { 34_000 } else { 70_000 };
const COMMANDS: usize = if cfg!(miri) { 60 } else { 400 };

#[derive(Debug, Clone)]
enum Command {
    Set(u64, usize, u32, Mode),
    Draft(u64, usize, Mode),
    /// Whether it expects the CAS value that the item has.
    Compare(u64, usize, bool),
    /// Whether it expects the CAS value that the item has; `None` if it expects none.
    Delete(u64, Option<bool>),
    Get(u64),
    Touch(u64, u32),
    /// Whether it is subtracted.
    Add(u64, u64, bool),
    Invalidate(u64),
    Advance(u32),
    Flush(u32),
    Maintain,
    Shrink,
    Walk,
}

fn length() -> impl Strategy<Value = usize> {
    prop_oneof![6 => 0..100usize, 4 => 100..2000usize, 1 => LARGE]
}

fn mode() -> impl Strategy<Value = Mode> {
    use Mode::*;
    prop::sample::select(vec![Set, Set, Set, Add, Replace, Append, Prepend])
}

fn command() -> impl Strategy<Value = Command> {
    use Command::*;
    let key = || 0..KEYS;
    let expiry = || prop_oneof![Just(0), 1..20u32];
    prop_oneof![
        10 => (key(), length(), expiry(), mode()).prop_map(|(k, l, e, m)| Set(k, l, e, m)),
        2 => (key(), length(), mode()).prop_map(|(k, l, m)| Draft(k, l, m)),
        2 => (key(), length(), any::<bool>()).prop_map(|(k, l, c)| Compare(k, l, c)),
        2 => (key(), any::<Option<bool>>()).prop_map(|(k, c)| Delete(k, c)),
        8 => key().prop_map(Get),
        2 => (key(), expiry()).prop_map(|(k, e)| Touch(k, e)),
        2 => (key(), 0..1000u64, any::<bool>()).prop_map(|(k, n, d)| Add(k, n, d)),
        1 => key().prop_map(Invalidate),
        1 => (1..5u32).prop_map(Advance),
        1 => prop_oneof![9 => Just(5u32), 1 => Just(0u32)].prop_map(Flush),
        2 => Just(Maintain),
        1 => Just(Shrink),
        1 => Just(Walk),
    ]
}

#[derive(Debug, Clone, PartialEq)]
struct Entry {
    value: Vec<u8>,
    flags: u32,
    exptime: u32,
    cas: u64,
    stale: bool,
}

impl Entry {
    fn new(value: Vec<u8>, flags: u32, exptime: u32) -> Self {
        Self {
            value,
            flags,
            exptime,
            cas: 0,
            stale: false,
        }
    }
}

struct Model {
    store: Store,
    tenant: Tenant,
    clock: ManualClock,
    evict: bool,
    items: HashMap<u64, Entry>,
    flush_at: u32,
    version: u64,
}

fn name(key: u64) -> Vec<u8> {
    // Some are long, so that headers and keys end anywhere.
    format!("key-{key}{}", "x".repeat(key as usize % 7 * 30)).into_bytes()
}

fn expiry(now: u32, seconds: u32) -> u32 {
    if seconds == 0 { 0 } else { now + seconds }
}

impl Model {
    fn new(evict: bool) -> Self {
        let limit = if evict { 160 << 10 } else { 8 << 20 };
        let (store, _, clock) = store_of(limit, evict);
        Self {
            tenant: store.tenant("").unwrap(),
            store,
            clock,
            evict,
            items: HashMap::new(),
            flush_at: 0,
            version: 0,
        }
    }

    /// Brings the model to what the clock says; and the item, if it has been evicted.
    fn sync(&mut self, key: u64) -> Option<Entry> {
        let now = self.clock.now();
        if self.flush_at != 0 && self.flush_at <= now {
            self.items.clear();
            self.flush_at = 0;
        }
        self.items
            .retain(|_, entry| entry.exptime == 0 || entry.exptime > now);
        let found = self.tenant.peek(&name(key), |item| Entry {
            value: item.value().to_vec(),
            flags: item.flags(),
            exptime: item.exptime(),
            cas: item.cas(),
            stale: item.is_stale(),
        });
        if found.is_none() && self.evict {
            self.items.remove(&key);
        }
        // Not `assert_eq`, which would print megabytes.
        assert!(found.as_ref() == self.items.get(&key), "of key {key}");
        found
    }

    fn stored(&mut self, key: u64, result: Result<u64, Outcome>, entry: Entry) {
        match result {
            Ok(cas) => {
                self.items.insert(key, Entry { cas, ..entry });
            }
            Err(Outcome::Refused(Refused::Limit { .. })) => {}
            Err(other) => panic!("{other}"),
        }
    }

    fn set(&mut self, key: u64, len: usize, exptime: u32, mode: Mode, draft: bool) {
        let old = self.sync(key);
        self.version += 1;
        let (new, flags) = (pattern(key, self.version, len), self.version as u32);
        let result = if draft {
            self.tenant
                .prepare(&name(key), flags, exptime, len)
                .map_err(Outcome::from)
                .and_then(|mut draft| {
                    draft.push(&new)?;
                    draft.store(mode, ANY)
                })
        } else {
            self.tenant.set(&name(key), flags, exptime, &new, mode, ANY)
        };
        // To make room for it, the item itself may have been evicted.
        let is_there = old.is_some() && !(self.evict && result == Err(Outcome::NotStored));
        match (mode, old) {
            // A draft has asked for its memory by then.
            (Mode::Add, Some(_)) if !self.evict || result.is_err() => assert!(matches!(
                result,
                Err(Outcome::NotStored | Outcome::Refused(Refused::Limit { .. }))
            )),
            (Mode::Replace | Mode::Append | Mode::Prepend, None) => {
                assert!(matches!(
                    result,
                    Err(Outcome::NotStored | Outcome::Refused(_))
                ));
            }
            (Mode::Replace | Mode::Append | Mode::Prepend, Some(_)) if !is_there => {
                self.items.remove(&key);
            }
            (Mode::Append, Some(old)) => {
                let value = [&old.value[..], &new].concat();
                self.stored(key, result, Entry::new(value, old.flags, old.exptime));
            }
            (Mode::Prepend, Some(old)) => {
                let value = [&new, &old.value[..]].concat();
                self.stored(key, result, Entry::new(value, old.flags, old.exptime));
            }
            _ => self.stored(key, result, Entry::new(new, flags, exptime)),
        }
    }

    fn run(&mut self, command: Command) {
        let now = self.clock.now();
        match command {
            Command::Set(key, len, seconds, mode) => {
                self.set(key, len, expiry(now, seconds), mode, false);
            }
            Command::Draft(key, len, mode) => self.set(key, len, 0, mode, true),
            Command::Compare(key, len, right) => {
                let old = self.sync(key);
                let value = pattern(key, self.version + 1, len);
                self.version += 1;
                let compare = old.as_ref().map_or(1, |old| old.cas) + u64::from(!right);
                let condition = Condition::of(Some(compare));
                let result = self
                    .tenant
                    .set(&name(key), 0, 0, &value, Mode::Set, condition);
                match (&old, &result) {
                    (None, _) | (_, Err(Outcome::NotFound)) if old.is_none() || self.evict => {
                        assert!(result.is_err());
                        self.items.remove(&key);
                    }
                    (Some(_), _) if !right => assert_eq!(result, Err(Outcome::Exists)),
                    _ => self.stored(key, result, Entry::new(value, 0, 0)),
                }
            }
            Command::Delete(key, right) => {
                let old = self.sync(key).map(|old| old.cas);
                let compare = right.map(|right| old.unwrap_or(1) + u64::from(!right));
                let expected = match (old, right) {
                    (None, _) => Err(Outcome::NotFound),
                    (_, Some(false)) => Err(Outcome::Exists),
                    _ => Ok(()),
                };
                let deleted = self.tenant.delete(&name(key), compare);
                let is_gone = self.evict && deleted == Err(Outcome::NotFound);
                assert!(deleted == expected || is_gone, "of key {key}: {deleted:?}");
                if deleted != Err(Outcome::Exists) {
                    self.items.remove(&key);
                }
            }
            Command::Get(key) => {
                let entry = self.sync(key);
                let found = value_of(&self.tenant, &name(key));
                assert!(found == entry.map(|entry| entry.value) || self.evict && found.is_none());
            }
            Command::Touch(key, seconds) => {
                let Some(mut entry) = self.sync(key) else {
                    assert_eq!(self.tenant.touch(&name(key), 0), Err(Outcome::NotFound));
                    return;
                };
                entry.exptime = expiry(now, seconds);
                match self.tenant.touch(&name(key), entry.exptime) {
                    Ok(()) => drop(self.items.insert(key, entry)),
                    Err(Outcome::NotFound) if self.evict => drop(self.items.remove(&key)),
                    Err(Outcome::Refused(Refused::Limit { .. })) => {}
                    Err(other) => panic!("{other}"),
                }
            }
            Command::Add(key, delta, decrement) => {
                let entry = self.sync(key);
                let what = Arithmetic {
                    initial: Some((delta, 0)),
                    decrement,
                    ..Arithmetic::increment(delta)
                };
                let result = self.tenant.arithmetic(&name(key), what);
                let Ok(number) = result else { return };
                let text = number.value.to_string().into_bytes();
                let mut new = match entry {
                    Some(entry) if !number.created => {
                        assert!(entry.value.len() <= 32 && text.len() <= entry.value.len().max(20));
                        let before = std::str::from_utf8(&entry.value).ok();
                        if let Some(before) = before.and_then(|text| text.trim_end().parse().ok()) {
                            let after = match decrement {
                                true => u64::saturating_sub(before, delta),
                                false => u64::wrapping_add(before, delta),
                            };
                            assert_eq!(number.value, after);
                        }
                        let value = format!("{:<1$}", number.value, entry.value.len()).into_bytes();
                        Entry { value, ..entry }
                    }
                    _ => Entry::new(text, 0, 0),
                };
                new.cas = number.cas;
                self.items.insert(key, new);
            }
            Command::Invalidate(key) => {
                let entry = self.sync(key);
                let Ok(cas) = self.tenant.invalidate(&name(key), Invalidate::default()) else {
                    return;
                };
                let mut entry = entry.expect("it was found");
                (entry.cas, entry.stale) = (cas, true);
                self.items.insert(key, entry);
            }
            Command::Advance(seconds) => self.clock.advance(seconds),
            Command::Flush(delay) => {
                self.sync(0);
                self.tenant.flush_all(delay);
                self.flush_at = if delay == 0 { 0 } else { now + delay };
                if delay == 0 {
                    self.items.clear();
                }
            }
            Command::Maintain => self.store.maintain(),
            Command::Shrink if self.evict => drop(self.store.shrink(40 << 10)),
            Command::Shrink => {}
            Command::Walk => self.walk(),
        }
    }

    fn walk(&mut self) {
        let (mut cursor, mut found) = (Cursor::default(), Vec::new());
        while self
            .tenant
            .keys(&mut cursor, 3, |item| found.push(item.key().to_vec()))
        {}
        let all = found.len();
        found.sort();
        found.dedup();
        assert_eq!(found.len(), all, "a key came twice");
        let there = (0..KEYS).filter(|&key| self.sync(key).is_some()).count();
        assert!(there == all || self.evict && there < all);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_found_is_what_was_stored_last(commands in prop::collection::vec(command(), 1..COMMANDS)) {
        let mut model = Model::new(true);
        commands.into_iter().for_each(|command| model.run(command));
        check_dead(&model.tenant);
    }

    #[test]
    fn without_eviction_nothing_is_lost(commands in prop::collection::vec(command(), 1..COMMANDS)) {
        let mut model = Model::new(false);
        commands.into_iter().for_each(|command| model.run(command));
        let counted = model.tenant.statistics();
        check_dead(&model.tenant);
        model.walk();
        prop_assert_eq!(counted.evicted, 0);
    }
}
