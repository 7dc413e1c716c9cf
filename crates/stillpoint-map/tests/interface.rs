//! What the types promise, and the methods that std and papaya have as well.

use std::{
    cell::Cell,
    collections::{BTreeMap as StdMap, HashSet as StdSet},
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
    panic::{RefUnwindSafe, UnwindSafe, catch_unwind},
    sync::Arc,
};
use stillpoint::tasks_trace::TraceDomain;
use stillpoint_map::{
    BTreeIterMut, BTreeMap, BTreeOccupiedEntry, Compute, CopyIterMut, CopyMap, Cursor, HashMap,
    HashSet, IntoIter, Iter, IterMut, Keys, MapGuard, Operation, OwnedMapGuard, PinnedCopyMap,
    PinnedHashMap, PinnedHashSet,
};

/// Whether a type has a trait, as a constant: the inherent one is only there where it has.
macro_rules! implements {
    ($type:ty: $trait:path) => {{
        #[allow(dead_code)]
        trait Otherwise {
            const IS: bool = false;
        }
        impl<T: ?Sized> Otherwise for T {}
        struct Probe<T: ?Sized>(std::marker::PhantomData<T>);
        #[allow(dead_code)]
        impl<T: ?Sized + $trait> Probe<T> {
            const IS: bool = true;
        }
        <Probe<$type>>::IS
    }};
}

type NotSync = Cell<u32>;
type NotSend = *mut u32;

const _: () = {
    assert!(implements!(HashMap<u32, String>: Send));
    assert!(implements!(HashMap<u32, String>: Sync));
    assert!(implements!(HashSet<String>: Send));
    assert!(implements!(HashSet<String>: Sync));
    // Sent with what it holds; shared only if that may be shared and sent.
    assert!(implements!(HashMap<u32, NotSync>: Send));
    assert!(!implements!(HashMap<u32, NotSync>: Sync));
    assert!(!implements!(HashMap<NotSync, u32>: Sync));
    assert!(!implements!(HashMap<u32, NotSend>: Send));
    assert!(!implements!(HashMap<NotSend, u32>: Send));
    assert!(!implements!(HashMap<u32, std::sync::MutexGuard<'static, u32>>: Sync));
    assert!(!implements!(HashMap<u32, u32, *mut u32>: Send));
    assert!(!implements!(HashSet<NotSync>: Sync));
    // In a section: as its guard.
    assert!(!implements!(MapGuard<'static, PinnedHashMap<u32, u32, DefaultState>>: Send));
    assert!(!implements!(MapGuard<'static, PinnedHashMap<u32, u32, DefaultState>>: Sync));
    assert!(implements!(OwnedMapGuard<'static, PinnedHashMap<u32, u32, DefaultState>>: Send));
    assert!(implements!(OwnedMapGuard<'static, PinnedHashMap<u32, u32, DefaultState>>: Sync));
    assert!(implements!(OwnedMapGuard<'static, PinnedHashSet<u32, DefaultState>>: Send));
    assert!(implements!(OwnedMapGuard<'static, PinnedCopyMap<u32, u32, DefaultState>>: Send));
    assert!(!implements!(OwnedMapGuard<'static, PinnedHashMap<u32, NotSync, DefaultState>>: Send));
    // References to entries, and entries.
    assert!(implements!(Iter<'static, u32, String>: Send));
    assert!(!implements!(Iter<'static, u32, NotSync>: Send));
    assert!(!implements!(Keys<Iter<'static, u32, NotSync>>: Send));
    assert!(implements!(IntoIter<u32, NotSync>: Send));
    assert!(!implements!(IntoIter<u32, NotSend>: Send));
    // Unique references to values, and no guard.
    assert!(implements!(IterMut<'static, u32, NotSync>: Send));
    assert!(!implements!(IterMut<'static, u32, NotSync>: Sync));
    assert!(!implements!(IterMut<'static, u32, NotSend>: Send));
    assert!(!implements!(IterMut<'static, NotSend, u32>: Send));
    assert!(implements!(BTreeIterMut<'static, u32, NotSync>: Send));
    assert!(!implements!(BTreeIterMut<'static, u32, NotSync>: Sync));
    assert!(!implements!(BTreeIterMut<'static, u32, NotSend>: Send));
    assert!(implements!(CopyIterMut<'static, u32, u32, DefaultState>: Send));
    assert!(!implements!(CopyIterMut<'static, u32, NotSync, DefaultState>: Sync));
    assert!(!implements!(CopyIterMut<'static, u32, NotSend, DefaultState>: Send));
    assert!(implements!(BTreeOccupiedEntry<'static, u32, NotSync>: Send));
    assert!(!implements!(BTreeOccupiedEntry<'static, u32, NotSync>: Sync));
    assert!(!implements!(BTreeOccupiedEntry<'static, u32, NotSend>: Send));
    assert!(implements!(HashMap<u32, String>: UnwindSafe));
    assert!(implements!(HashMap<u32, String>: RefUnwindSafe));
    assert!(!implements!(HashMap<u32, NotSync>: RefUnwindSafe));
    assert!(implements!(HashSet<String>: RefUnwindSafe));
    assert!(size_of::<HashMap<String, String>>() <= 64);
};

type DefaultState = stillpoint_map::DefaultHashBuilder;

/// Methods that have no use for a bound have none: this compiles.
#[allow(dead_code)]
fn without_bounds<K, V, S: Default>() -> usize {
    let mut map = HashMap::<K, V, S>::default();
    let pinned = map.pin();
    pinned.reserve(1);
    pinned.shrink_to_fit();
    let count = pinned.iter().count() + pinned.keys().count() + pinned.values().count();
    drop(pinned);
    map.scan(&mut Cursor::start(), 1, |_, _| ());
    std::mem::take(&mut map).into_keys().count() + map.into_values().count() + count
}

/// A key is made only for an entry.
#[test]
fn values_are_updated_and_computed_by_borrowed_keys() {
    thread_local!(static CLONES: Cell<u32> = const { Cell::new(0) });
    #[derive(PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    struct Key(&'static str);
    impl Clone for Key {
        fn clone(&self) -> Self {
            CLONES.set(CLONES.get() + 1);
            Self(self.0)
        }
    }
    macro_rules! check {
        ($map:expr) => {{
            let map = $map;
            let map = map.pin();
            let (there, missing) = (Key("there"), Key("missing"));
            map.insert(Key("there"), 1);
            CLONES.set(0);
            assert_eq!(map.update(&missing, |_| unreachable!()), None);
            assert_eq!(
                map.compute(&missing, |_| Operation::Abort(7)),
                Compute::Aborted(7)
            );
            assert_eq!(CLONES.get(), 0);
            assert_eq!(map.update(&there, |value| value + 1), Some(&2));
            assert_eq!(CLONES.get(), 1);
            let add = |entry: Option<(&Key, &u32)>| {
                Operation::<u32, ()>::Insert(entry.map_or(10, |(_, value)| value + 1))
            };
            assert_eq!(map.compute(&missing, add), Compute::Inserted(&missing, &10));
            assert_eq!(*map.update_or_insert(Key("new"), |_| unreachable!(), 5), 5);
            assert_eq!(*map.update_or_insert(Key("new"), |value| value + 1, 0), 6);
            let updated = Compute::Updated {
                old: (&there, &2),
                new: (&there, &3),
            };
            assert_eq!(map.compute(&there, add), updated);
            assert_eq!(CLONES.get(), 3);
            let removed = map.compute(&there, |_| Operation::<u32, ()>::Remove);
            assert_eq!(removed, Compute::Removed(&there, &3));
            assert_eq!(CLONES.get(), 3);
        }};
    }
    check!(HashMap::new());
    check!(BTreeMap::new());
    let map = HashMap::from([("a".to_owned(), 1)]);
    assert_eq!(map.pin().update("a", |value| value + 1), Some(&2));
    let ordered = BTreeMap::from([("a".to_owned(), 1)]);
    assert_eq!(ordered.pin().update("a", |value| value + 1), Some(&2));
    let letters = HashMap::from([("a", 1)]);
    assert_eq!(letters.pin().update("a", |value| value + 1), Some(&2));
}

/// The clone is a map, and no second section.
#[test]
fn pinned_maps_are_cloned() {
    let map = HashMap::from([(1, "one")]);
    let clone: HashMap<i32, &str> = map.pin().clone();
    assert_eq!(clone, map);
    let ordered = BTreeMap::from([(1, "one")]);
    let clone: BTreeMap<i32, &str> = ordered.pin().clone();
    assert_eq!(clone, ordered);
    let copies = CopyMap::from([(1, 10)]);
    let clone: CopyMap<i32, i32> = copies.pin().clone();
    assert_eq!(clone, copies);
    let set = HashSet::from([1]);
    let clone: HashSet<i32> = set.pin().clone();
    assert_eq!(clone, set);
}

/// As std's maps: the same message, too.
#[test]
fn pinned_maps_are_indexed() {
    let map = HashMap::from([("a".to_owned(), 1)]);
    let ordered = BTreeMap::from([("a".to_owned(), 1)]);
    let found: &i32 = &map.pin()["a"];
    assert_eq!((*found, ordered.pin()["a"]), (1, 1));
    for lacks in [
        catch_unwind(|| map.pin()["b"]),
        catch_unwind(|| ordered.pin()["b"]),
        catch_unwind(|| StdMap::from([("a", 1)])["b"]),
    ] {
        let message = lacks.expect_err("it has no such key");
        let message: Option<&String> = message.downcast_ref();
        assert_eq!(message.map(String::as_str), Some("no entry found for key"));
    }
}

#[test]
fn a_scan_of_nothing_ends() {
    let map: HashMap<u32, u32> = HashMap::new();
    let mut cursor = Cursor::start();
    assert!(!map.scan(&mut cursor, 1, |_, _| unreachable!()));
    assert!(!map.scan(&mut cursor, 1, |_, _| unreachable!()));
}

/// Another thread inserts the key between the look-up and the insertion; here `make` itself does.
#[test]
fn what_was_made_in_vain_is_kept_or_dropped() {
    let map = HashMap::new();
    let made = Arc::new(());
    let current =
        |map: &HashMap<u32, Arc<()>>, key| Arc::strong_count(map.pin().get(&key).unwrap());

    let not_inserted = map
        .pin()
        .try_insert_with(1, || {
            map.pin().insert(1, Arc::new(()));
            Arc::clone(&made)
        })
        .is_err();
    assert!(not_inserted);
    assert_eq!((Arc::strong_count(&made), current(&map, 1)), (1, 1));

    // Inserted by another, removed again, and then what was made the first time goes in.
    let mut updates = 0;
    map.pin().update_or_insert_with(
        2,
        |_| {
            updates += 1;
            map.pin().remove(&2);
            Arc::new(())
        },
        || {
            map.pin().insert(2, Arc::new(()));
            Arc::clone(&made)
        },
    );
    assert_eq!(updates, 1);
    assert!(Arc::ptr_eq(map.pin().get(&2).unwrap(), &made));
    assert_eq!(Arc::strong_count(&made), 2);
}

#[test]
fn a_set_has_what_sets_have() {
    let set: HashSet<String> = ["a", "b", "c"].map(String::from).into();
    let pinned = set.pin();
    assert!(pinned.contains("a") && !pinned.contains("d"));
    assert_eq!(pinned.get("b").map(String::as_str), Some("b"));
    assert!(!pinned.insert("a".to_owned()) && pinned.insert("d".to_owned()));
    assert_eq!(
        pinned.replace("d".to_owned()).map(String::as_str),
        Some("d")
    );
    assert_eq!(pinned.replace("e".to_owned()), None);
    assert_eq!(pinned.take("e").map(String::as_str), Some("e"));
    assert!(pinned.remove("d") && !pinned.remove("d"));
    assert_eq!(pinned.len(), 3);
    let visited: StdSet<&str> = (&pinned).into_iter().map(String::as_str).collect();
    assert_eq!(visited, ["a", "b", "c"].into());
    let mut scanned = 0;
    let mut cursor = Cursor::default();
    while set.scan(&mut cursor, 1, |_| scanned += 1) {}
    assert_eq!(scanned, 3);
    pinned.retain(|value| value != "a");
    let clone = set.clone();
    assert_eq!(clone, set);
    pinned.reserve(100);
    assert!(pinned.capacity() >= 2 && pinned.try_reserve(usize::MAX).is_err());
    pinned.shrink_to_fit();
    pinned.clear();
    assert!(set.is_empty() && clone != set);
    assert_eq!(format!("{:?}", HashSet::from([1])), "{1}");
    assert_eq!(clone.into_iter().len(), 2);
}

#[test]
fn a_map_has_what_maps_have() {
    let mut map = HashMap::from([(1, "one"), (2, "two")]);
    map.extend([(3, "three")]);
    (&map).extend([(&4, &"four")]);
    assert_eq!(map.clone(), map);
    assert_ne!(map, HashMap::from([(1, "one")]));
    assert_ne!(
        map,
        HashMap::from([(1, "1"), (2, "two"), (3, "three"), (4, "four")])
    );
    assert_eq!(format!("{:?}", HashMap::from([(1, 2)]).pin()), "{1: 2}");
    let pinned = map.pin();
    assert_eq!(
        pinned.try_insert(1, "1").unwrap_err().to_string(),
        "the key is in the map already"
    );
    assert_eq!(*pinned.get_or_insert(1, "1"), "one");
    assert_eq!(pinned.get_key_value(&2), Some((&2, &"two")));
    assert_eq!(pinned.remove_entry(&2), Some((&2, &"two")));
    let mut keys: Vec<_> = (&pinned).into_iter().map(|(key, _)| *key).collect();
    keys.sort_unstable();
    assert_eq!(keys, [1, 3, 4]);
    drop(pinned);
    assert_eq!(map.clone().into_values().len(), 3);
    let mut entries = map.into_iter();
    entries.next();
    assert_eq!(entries.size_hint(), (2, Some(2)));
    assert_eq!(entries.count(), 2);
}

#[test]
fn clones_stay_in_their_domain() {
    let domain = TraceDomain::new();
    let map = HashMap::with_hasher_in(BuildHasherDefault::<DefaultHasher>::default(), &domain);
    map.with_guard(&domain.read_lock()).insert(1, 1);
    let clone = map.clone();
    assert_eq!(clone.pin_owned().get(&1), Some(&1));
    assert_eq!(format!("{:?}", clone.domain()), format!("{:?}", *domain));
    assert_eq!(clone, map);
}

/// A hasher that cannot be cloned into another one, and keys that have no hash, are enough to clone.
#[test]
fn clones_ask_for_what_std_asks_for() {
    #[derive(Clone)]
    struct Holds<K, V, S> {
        map: HashMap<K, V, S>,
        set: HashSet<K, S>,
    }
    let held = Holds::<String, u32, BuildHasherDefault<DefaultHasher>> {
        map: (0..500).map(|key| (key.to_string(), key)).collect(),
        set: (0..500).map(|key| key.to_string()).collect(),
    };
    let clone = held.clone();
    assert!(clone.map == held.map && clone.set == held.set);
    clone.map.pin().remove("7");
    assert_eq!((clone.map.len(), held.map.len()), (499, 500));

    #[derive(Clone)]
    struct NoHash;
    let empty: HashMap<NoHash, NoHash, ()> = HashMap::with_hasher(());
    assert!(empty.clone().is_empty());
}

/// Entries that come and go meanwhile are in a clone once, or not at all.
#[test]
fn clones_of_a_map_that_changes_have_each_key_once() {
    let (many, rounds) = if cfg!(miri) { (40, 2) } else { (3000, 50) };
    let map: HashMap<u32, u32> = (0..many).map(|key| (key, key)).collect();
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for key in (0..many).filter(|key| key % 2 == 1).cycle() {
                map.pin().remove(&key);
                map.pin().insert(key, key);
                if over.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
            }
        });
        for _ in 0..rounds {
            let clone = map.clone();
            let mut keys: Vec<_> = clone.pin().keys().copied().collect();
            keys.sort_unstable();
            assert!(
                keys.windows(2).all(|two| two[0] < two[1]),
                "a key is there twice"
            );
            assert!(
                (0..many)
                    .step_by(2)
                    .all(|key| clone.pin().contains_key(&key))
            );
            assert_eq!(clone.len(), keys.len());
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn owning_iterators_show_what_is_left() {
    let hashed = || HashMap::from([(1, 'a')]).into_iter();
    assert_eq!(format!("{:?}", hashed()), "[(1, 'a')]");
    let mut taken = hashed();
    taken.next();
    assert_eq!(format!("{taken:?}"), "[]");
    assert_eq!(
        format!("{:?}", HashMap::from([(1, 'a')]).into_keys()),
        "[1]"
    );
    assert_eq!(
        format!("{:?}", HashMap::from([(1, 'a')]).into_values()),
        "['a']"
    );
    assert_eq!(format!("{:?}", HashSet::from(["a"]).into_iter()), "[\"a\"]");
    let ordered = || BTreeMap::from([(1, "a".to_owned()), (2, "b".to_owned())]);
    let mut entries = ordered().into_iter();
    assert_eq!(format!("{entries:?}"), "[(1, \"a\"), (2, \"b\")]");
    entries.next();
    assert_eq!(format!("{entries:?}"), "[(2, \"b\")]");
    assert_eq!(format!("{:?}", ordered().into_keys()), "[1, 2]");
    assert_eq!(format!("{:?}", ordered().into_values()), "[\"a\", \"b\"]");
    let copied = CopyMap::from([(1, 2)]);
    assert_eq!(format!("{:?}", copied.clone().into_iter()), "[(1, 2)]");
    assert_eq!(format!("{:?}", copied.clone().into_keys()), "[1]");
    assert_eq!(format!("{:?}", copied.into_values()), "[2]");
}

#[test]
fn sets_are_compared_as_those_of_std() {
    fn sorted<'a>(values: impl Iterator<Item = &'a u32>) -> Vec<u32> {
        let mut values: Vec<_> = values.copied().collect();
        values.sort_unstable();
        values
    }
    // All pairs of subsets of four values.
    let of = |bits: u32| (0..4).filter(move |value| bits & 1 << value != 0);
    for (a, b) in (0..16).flat_map(|a| (0..16).map(move |b| (a, b))) {
        let (ours, others) = (HashSet::from_iter(of(a)), HashSet::from_iter(of(b)));
        let (ours, others): (&HashSet<u32>, &HashSet<u32>) = (&ours, &others);
        let (here, there) = (ours.pin(), others.pin());
        let (theirs, std) = (StdSet::from_iter(of(a)), StdSet::from_iter(of(b)));
        let (theirs, std): (&StdSet<u32>, &StdSet<u32>) = (&theirs, &std);
        assert_eq!(sorted(here.union(&there)), sorted(theirs.union(std)));
        assert_eq!(
            sorted(here.intersection(&there)),
            sorted(theirs.intersection(std))
        );
        assert_eq!(
            sorted(here.difference(&there)),
            sorted(theirs.difference(std))
        );
        let apart = sorted(theirs.symmetric_difference(std));
        assert_eq!(sorted(here.symmetric_difference(&there)), apart);
        assert_eq!(here.is_subset(&there), theirs.is_subset(std));
        assert_eq!(here.is_superset(&there), theirs.is_superset(std));
        assert_eq!(here.is_disjoint(&there), theirs.is_disjoint(std));
        assert_eq!(here == there, theirs == std);
        assert_eq!(*here == *there, theirs == std);
    }
}

#[test]
fn ordered_maps_are_compared_as_those_of_std() {
    let hash = BuildHasherDefault::<DefaultHasher>::default();
    let of = |bits: u32| {
        let values = (0..3).map(move |key| (key, bits >> (2 * key) & 3));
        values.filter(|(_, value)| *value != 0)
    };
    for (a, b) in (0..64).flat_map(|a| (0..64).map(move |b| (a, b))) {
        let (here, there) = (BTreeMap::from_iter(of(a)), BTreeMap::from_iter(of(b)));
        let (ours, others) = (StdMap::from_iter(of(a)), StdMap::from_iter(of(b)));
        assert_eq!(here.cmp(&there), ours.cmp(&others));
        assert_eq!(here.partial_cmp(&there), ours.partial_cmp(&others));
        assert_eq!(here.pin() == there.pin(), ours == others);
        assert_eq!(
            hash.hash_one(&here) == hash.hash_one(&there),
            ours == others
        );
    }
}

#[test]
fn sets_are_extended_by_references() {
    let mut set = HashSet::from([1, 2]);
    set.extend(&[2, 3]);
    (&set).extend([&4]);
    assert_eq!(set, HashSet::from([1, 2, 3, 4]));
}
