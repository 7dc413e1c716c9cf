//! The ordered map beside std's, for random programs and what libFuzzer finds.

use std::{collections::BTreeMap as Std, fmt::Debug, ops::Bound};
use stillpoint::Domain;
use stillpoint_map::{BTreeMap, PinnedBTreeMap};

/// Keys of a step that inserts or removes many.
const MANY: u16 = if cfg!(miri) { 30 } else { 300 };

/// A step: what is done, and two keys.
pub type Step = (u8, u16, u16);

/// Does the steps with keys of each kind.
pub fn run_all(program: &[Step]) {
    run::<u16>(program);
    run::<String>(program);
    run::<Opaque>(program);
}

/// A key whose order the map knows nothing of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Opaque(Box<u16>);

trait Key: Ord + Clone + Debug + Send + 'static {
    fn of(number: u16) -> Self;
}

impl Key for u16 {
    fn of(number: u16) -> Self {
        number
    }
}

impl Key for Opaque {
    fn of(number: u16) -> Self {
        Self(Box::new(number))
    }
}

impl Key for String {
    /// The first eight bytes are those of many.
    fn of(number: u16) -> Self {
        format!("{:08}{number:05}", number / 100)
    }
}

fn assert_same<K: Key>(map: &PinnedBTreeMap<K, Box<u64>>, model: &Std<K, Box<u64>>) {
    assert!(map.iter().eq(model), "{map:?} {model:?}");
    assert!(map.iter().rev().eq(model.iter().rev()));
    assert_eq!(map.len(), model.len());
    assert_eq!(map.first_key_value(), model.first_key_value());
    assert_eq!(map.last_key_value(), model.last_key_value());
}

fn run<K: Key>(program: &[Step]) {
    let domain = Domain::new();
    let map: BTreeMap<K, Box<u64>> = BTreeMap::new_in(&domain);
    let mut model = Std::new();
    for (number, &(step, key, other)) in program.iter().enumerate() {
        let map = map.pin();
        let value = || Box::new(number as u64);
        let (low, high) = (key.min(other), key.max(other));
        match step % 12 {
            0..=2 => {
                let old = map.insert(K::of(key), value());
                assert_eq!(old.cloned(), model.insert(K::of(key), value()));
            }
            3 => assert_eq!(map.remove(&K::of(key)).cloned(), model.remove(&K::of(key))),
            4 => {
                for key in low..high.min(low + MANY) {
                    let old = map.insert(K::of(key), value());
                    assert_eq!(old.cloned(), model.insert(K::of(key), value()));
                }
            }
            5 => {
                for key in (low..high.min(low + MANY)).rev() {
                    assert_eq!(map.remove(&K::of(key)).cloned(), model.remove(&K::of(key)));
                }
            }
            6 => {
                let (low, high) = (K::of(low), K::of(high));
                let range = (Bound::Excluded(&low), Bound::Included(&high));
                if low < high {
                    assert!(map.range::<K, _>(range).eq(model.range::<K, _>(range)));
                    let mut ours = map.range(&low..&high);
                    let mut stds = model.range(&low..&high);
                    for step in 0.. {
                        let (one, other) = if step % 3 == 0 {
                            (ours.next_back(), stds.next_back())
                        } else {
                            (ours.next(), stds.next())
                        };
                        assert_eq!(one, other);
                        if one.is_none() {
                            break;
                        }
                    }
                }
            }
            7 => {
                let key = K::of(key);
                assert_eq!(
                    map.lower_bound(Bound::Excluded(&key)),
                    model
                        .range((Bound::Excluded(&key), Bound::Unbounded))
                        .next()
                );
                assert_eq!(
                    map.upper_bound(Bound::Included(&key)),
                    model.range(..=&key).next_back()
                );
            }
            8 => {
                let popped = map
                    .pop_first()
                    .map(|(key, value)| (key.clone(), value.clone()));
                assert_eq!(popped, model.pop_first());
                let popped = map
                    .pop_last()
                    .map(|(key, value)| (key.clone(), value.clone()));
                assert_eq!(popped, model.pop_last());
            }
            9 => {
                map.update_or_insert_with(K::of(key), |old| Box::new(**old + 1), || Box::new(7));
                model
                    .entry(K::of(key))
                    .and_modify(|old| **old += 1)
                    .or_insert(Box::new(7));
            }
            10 if step > 200 => {
                map.retain(|_, value| !(**value).is_multiple_of(3));
                model.retain(|_, value| !(**value).is_multiple_of(3));
            }
            _ => assert_eq!(map.get(&K::of(key)), model.get(&K::of(key))),
        }
        if number % 16 == 0 {
            assert_same(&map, &model);
        }
    }
    assert_same(&map.pin(), &model);
    assert_eq!(map.clone(), map);
    if model.len() % 2 == 0 {
        map.pin().clear();
        assert!(map.pin().iter().next().is_none());
    } else {
        assert!(map.into_iter().eq(model));
    }
}
