//! What must not compile, each beside what does.

/// A map is not covariant: a shared reference is enough to put an entry in.
///
/// ```
/// use stillpoint_map::{BTreeMap, HashMap, HashSet};
/// fn ordered<'a>(map: BTreeMap<&'static str, u32>) -> BTreeMap<&'static str, u32> { map }
/// fn of_keys<'a>(map: &'a HashMap<&'static str, u32>) -> &'a HashMap<&'static str, u32> { map }
/// fn of_values<'a>(map: &'a HashMap<u32, &'static str>) -> &'a HashMap<u32, &'static str> { map }
/// fn set<'a>(set: HashSet<&'static str>) -> HashSet<&'static str> { set }
/// use stillpoint_map::PinnedHashMap;
/// type Pinned = PinnedHashMap<&'static str, u32>;
/// fn pinned<'a>(map: &'a Pinned) -> &'a Pinned { map }
/// ```
/// ```compile_fail
/// use stillpoint_map::HashMap;
/// fn of_keys<'a>(map: &'a HashMap<&'static str, u32>) -> &'a HashMap<&'a str, u32> { map }
/// ```
/// ```compile_fail
/// use stillpoint_map::HashMap;
/// fn of_values<'a>(map: &'a HashMap<u32, &'static str>) -> &'a HashMap<u32, &'a str> { map }
/// ```
/// ```compile_fail
/// use stillpoint_map::HashSet;
/// fn set<'a>(set: HashSet<&'static str>) -> HashSet<&'a str> { set }
/// ```
/// ```compile_fail
/// use stillpoint_map::BTreeMap;
/// fn ordered<'a>(map: BTreeMap<&'static str, u32>) -> BTreeMap<&'a str, u32> { map }
/// ```
/// ```compile_fail
/// use stillpoint_map::PinnedHashMap;
/// fn pinned<'a>(map: &'a PinnedHashMap<&'static str, u32>) -> &'a PinnedHashMap<&'a str, u32> { map }
/// ```
mod variance {}

/// What was found does not outlive the guard, the pinned map, or the map.
///
/// ```
/// let map = stillpoint_map::HashMap::from([(1, 2)]);
/// let guard = stillpoint::read_lock();
/// let found = map.with_guard(&guard).get(&1);
/// assert_eq!(found, Some(&2));
/// drop(guard);
/// let copies = stillpoint_map::CopyMap::from([(1, 2)]);
/// let guard = stillpoint::read_lock();
/// assert_eq!(copies.with_guard(&guard).get(&1), Some(2));
/// let of_tasks = stillpoint_map::HashMap::<u32, u32>::new_in(stillpoint::tasks_trace::global());
/// assert_eq!(of_tasks.pin_owned().get(&1), None);
/// ```
/// ```compile_fail,E0502
/// let mut map = stillpoint_map::HashMap::from([(1, 2)]);
/// let guard = stillpoint::read_lock();
/// let found = map.with_guard(&guard).get(&1);
/// map.remove(&1);
/// assert_eq!(found, Some(&2));
/// ```
/// ```compile_fail,E0502
/// let mut map = stillpoint_map::HashMap::from([(1, 2)]);
/// let pinned = map.pin();
/// map.get_mut(&1);
/// assert_eq!(pinned.get(&1), Some(&2));
/// ```
/// ```compile_fail,E0499
/// let mut map = stillpoint_map::BTreeMap::from([(1, 2)]);
/// let mut entries = map.iter_mut();
/// map.get_mut(&1);
/// assert_eq!(entries.next(), Some((&1, &mut 2)));
/// ```
/// ```compile_fail,E0505
/// let map = stillpoint_map::HashMap::from([(1, 2)]);
/// let guard = stillpoint::read_lock();
/// let found = map.with_guard(&guard).get(&1);
/// drop(guard);
/// assert_eq!(found, Some(&2));
/// ```
/// ```compile_fail,E0505
/// let map = stillpoint_map::HashMap::from([(1, 2)]);
/// let pinned = map.pin();
/// let old = pinned.insert(1, 3);
/// drop(pinned);
/// assert_eq!(old, Some(&2));
/// ```
/// ```compile_fail,E0505
/// let map = stillpoint_map::HashMap::from([(1, 2)]);
/// let guard = stillpoint::read_lock();
/// let found = map.with_guard(&guard).remove(&1);
/// drop(map);
/// assert_eq!(found, Some(&2));
/// ```
/// ```compile_fail,E0505
/// let map = stillpoint_map::BTreeMap::from([(1, 2)]);
/// let pinned = map.pin();
/// let mut range = pinned.range(0..2);
/// drop(pinned);
/// assert_eq!(range.next(), Some((&1, &2)));
/// ```
/// ```compile_fail,E0502
/// let map = stillpoint_map::HashMap::from([(1, 2)]);
/// let (mut guard, mut other) = (stillpoint::read_lock(), stillpoint::read_lock());
/// let pinned = map.with_guard(&guard);
/// std::mem::swap(&mut guard, &mut other);
/// pinned.get(&1);
/// ```
/// ```compile_fail,E0505
/// let map = stillpoint_map::CopyMap::from([(1, 2)]);
/// let guard = stillpoint::read_lock();
/// let pinned = map.with_guard(&guard);
/// drop(map);
/// pinned.get(&1);
/// ```
/// ```compile_fail,E0505
/// let map = stillpoint_map::HashMap::new_in(stillpoint::tasks_trace::global());
/// let pinned = map.pin_owned();
/// let found = pinned.get(&1);
/// drop(pinned);
/// assert_eq!(found, Some(&2));
/// ```
/// ```compile_fail,E0502
/// let mut map = stillpoint_map::HashMap::from([(1, 2)]);
/// let guard = stillpoint::read_lock();
/// let pinned = map.with_guard(&guard);
/// map.extend([(2, 3)]);
/// pinned.get(&1);
/// ```
/// ```compile_fail,E0502
/// let domain = stillpoint::Domain::new();
/// let map = stillpoint_map::HashMap::new_in(&domain);
/// let mut reader = domain.qsbr_reader();
/// let found = map.with_guard(&reader).get(&1);
/// reader.quiescent_state();
/// assert_eq!(found, Some(&2));
/// ```
mod lifetimes {}

/// What is inserted may be dropped by another thread, later: it is `Send`, and borrows nothing.
///
/// ```
/// stillpoint_map::HashMap::new().pin().insert(1, std::sync::Arc::new(1));
/// ```
/// ```compile_fail,E0277
/// stillpoint_map::HashMap::new().pin().insert(1, std::rc::Rc::new(1));
/// ```
/// ```compile_fail,E0277
/// stillpoint_map::HashSet::new().pin().insert(std::rc::Rc::new(1));
/// ```
/// ```compile_fail,E0277
/// stillpoint_map::BTreeMap::new().pin().insert(1, std::rc::Rc::new(1));
/// ```
/// ```compile_fail,E0597
/// let map = stillpoint_map::HashMap::new();
/// let local = 1;
/// map.pin().insert(1, &local);
/// ```
mod bounds {}

/// A map of values that cannot be shared is not shared.
///
/// ```
/// let map = stillpoint_map::HashMap::from([(1, std::cell::Cell::new(1))]);
/// std::thread::scope(|scope| { scope.spawn(move || map.len()); });
/// ```
/// ```compile_fail,E0277
/// let map = stillpoint_map::HashMap::from([(1, std::cell::Cell::new(1))]);
/// std::thread::scope(|scope| { scope.spawn(|| map.len()); });
/// ```
/// ```compile_fail,E0277
/// let map = stillpoint_map::BTreeMap::from([(1, std::cell::Cell::new(1))]);
/// std::thread::scope(|scope| { scope.spawn(|| map.len()); });
/// ```
/// ```compile_fail,E0277
/// let map = stillpoint_map::HashMap::from([(1, 1)]);
/// let pinned = map.pin();
/// std::thread::scope(|scope| { scope.spawn(|| pinned.len()); });
/// ```
mod threads {}
