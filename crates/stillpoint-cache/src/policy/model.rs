//! The policy told a second time, on plain vectors, and compared with the real one step by step:
//! both evict the same entries. Ghosts and counts are shared with it, and have models of their own.
//!
//! Detects a replacement that loses its position or frequency, and a ghost that is let in by
//! another measure.

use super::{
    Links, MOST, Nodes, Place, Policy, Standing, TURNS,
    ghost::{Ghost, Ghosts},
    sketch::Sketch,
};
use proptest::prelude::*;
use std::collections::HashMap;

/// Returns a hash that differs from key to key.
fn spread(key: u32) -> u32 {
    key.wrapping_mul(0x9e37_79b9)
}

/// Entries by number, in an arena.
#[derive(Default)]
struct Arena {
    nodes: Vec<Node>,
    /// Whether readers mark entries as fast as they are cleared.
    hammered: bool,
    cleared: usize,
}

struct Node {
    links: Links<usize>,
    place: Place,
    weight: u64,
    key: u32,
    frequency: u8,
    round: bool,
}

const UNLINKED: Links<usize> = Links {
    prev: None,
    next: None,
};

impl Arena {
    /// Adds an entry that is in no queue. Returns its number.
    fn add(&mut self, key: u32, weight: u64, frequency: u8) -> usize {
        self.nodes.push(Node {
            links: UNLINKED,
            place: Place::None,
            weight,
            key,
            frequency,
            round: false,
        });
        self.nodes.len() - 1
    }
}

impl Nodes for Arena {
    type Id = usize;

    fn links(&self, id: usize) -> Links<usize> {
        self.nodes[id].links
    }

    fn set_prev(&mut self, id: usize, prev: Option<usize>) {
        self.nodes[id].links.prev = prev;
    }

    fn set_next(&mut self, id: usize, next: Option<usize>) {
        self.nodes[id].links.next = next;
    }

    fn place(&mut self, id: usize) -> &mut Place {
        &mut self.nodes[id].place
    }

    fn weight(&self, id: usize) -> u64 {
        self.nodes[id].weight
    }

    fn fingerprint(&self, id: usize) -> u32 {
        spread(self.nodes[id].key)
    }

    fn round(&self, id: usize) -> bool {
        self.nodes[id].round
    }

    fn frequency(&self, id: usize) -> u8 {
        if self.hammered {
            MOST
        } else {
            self.nodes[id].frequency
        }
    }

    fn set_frequency(&mut self, id: usize, frequency: u8) {
        self.nodes[id].frequency = frequency;
        self.cleared += 1;
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Entry {
    key: u32,
    weight: u64,
    frequency: u8,
}

/// Queues as vectors, the oldest first.
#[derive(Default)]
struct Model {
    small: Vec<Entry>,
    main: Vec<Entry>,
    ghosts: Ghosts,
    sketch: Sketch,
    /// Number of keys that were counted more often than the first of the main queue, but not by a quarter.
    close: u32,
    /// Number of entries that the small queue may have; below 0, a debt.
    credit: i64,
}

impl Model {
    fn all(&self) -> impl Iterator<Item = &Entry> {
        self.small.iter().chain(&self.main)
    }

    fn weight(&self) -> u64 {
        self.all().map(|entry| entry.weight).sum()
    }

    fn entries(&self) -> usize {
        self.small.len() + self.main.len()
    }

    fn hit(&mut self, key: u32) -> bool {
        let found = self.small.iter_mut().chain(&mut self.main);
        let Some(entry) = found.into_iter().find(|entry| entry.key == key) else {
            return false;
        };
        entry.frequency = (entry.frequency + 1).min(MOST);
        true
    }

    fn reweigh(&mut self, key: u32, weight: u64) {
        let mut all = self.small.iter_mut().chain(&mut self.main);
        all.find(|entry| entry.key == key).unwrap().weight = weight;
    }

    /// Takes out an entry, and says whether it was in the main queue.
    fn take(&mut self, key: u32) -> (Entry, bool) {
        let is_it = |entry: &Entry| entry.key == key;
        match self.small.iter().position(is_it) {
            Some(at) => (self.small.remove(at), false),
            None => {
                let at = self.main.iter().position(is_it).unwrap();
                (self.main.remove(at), true)
            }
        }
    }

    fn restore(&mut self, (mut entry, is_main): (Entry, bool), weight: u64) {
        entry.weight = weight;
        if is_main {
            self.main.push(entry);
        } else {
            self.small.push(entry);
        }
    }

    fn remove(&mut self, key: u32) {
        self.small.retain(|entry| entry.key != key);
        self.main.retain(|entry| entry.key != key);
    }

    /// Returns the position of the next victim in the main queue, after its turns.
    fn turn_main(&mut self) -> Option<usize> {
        let mut turned = Vec::new();
        for _ in 0..TURNS {
            let entry = self.main.first_mut()?;
            if entry.frequency == 0 {
                return Some(0);
            }
            turned.push((entry.frequency, entry.key));
            entry.frequency -= 1;
            let entry = self.main.remove(0);
            let entries = self.entries();
            self.sketch.add(spread(entry.key), 1, entries);
            self.main.push(entry);
        }
        // The first of those that were used least.
        let least = turned.iter().min_by_key(|turned| turned.0)?;
        self.main.iter().position(|entry| entry.key == least.1)
    }

    /// Returns whether newcomers weigh more than `times` times what they should.
    fn has_newcomers_to_spare(&self, times: u64) -> bool {
        let small: u64 = self.small.iter().map(|entry| entry.weight).sum();
        let weight = self.weight();
        let wanted = match self.entries() as u64 {
            0 => 0,
            entries => {
                let least = (weight / 50).max((weight * 32 / entries).min(weight / 10));
                let credit = self.credit.clamp(0, entries as i64 * 9 / 10) as u64;
                match credit > entries / 50 {
                    true => least.max(weight * credit / entries),
                    false => least,
                }
            }
        };
        small / times > wanted
    }

    fn evict(&mut self) -> Option<u32> {
        for turn in 0.. {
            let spared =
                turn == TURNS && self.small.first().is_some_and(|entry| entry.frequency > 1);
            if (!self.has_newcomers_to_spare(1) || spared) && !self.main.is_empty() {
                let at = self.turn_main()?;
                let entry = self.main.remove(at);
                let entries = self.entries();
                if entry.frequency > 0 {
                    self.sketch.add(spread(entry.key), entry.frequency, entries);
                }
                // One that has outlived its time gives way to it, and might be young again once
                // there are more entries.
                self.ghosts
                    .add(spread(entry.key), Place::Main, 2 * entries.max(1));
                return Some(entry.key);
            }
            if self.small.is_empty() {
                return None;
            }
            let mut entry = self.small.remove(0);
            let entries = self.entries();
            if entry.frequency > 0 {
                self.sketch.add(spread(entry.key), entry.frequency, entries);
            }
            if entry.frequency < 2 {
                self.ghosts
                    .add(spread(entry.key), Place::Small, 2 * entries.max(1));
                return Some(entry.key);
            }
            entry.frequency = 0;
            self.main.push(entry);
        }
        unreachable!("it returns")
    }

    fn insert(&mut self, key: u32, weight: u64) {
        let entries = self.entries();
        self.sketch.add(spread(key), 1, entries);
        let returned = self.ghosts.take(spread(key), 2 * entries.max(1));
        if let Some(ghost) = returned {
            self.adapt(ghost, entries);
        }
        let entry = Entry {
            key,
            weight,
            frequency: 0,
        };
        if returned.is_some() && self.is_let_in(key) {
            self.main.push(entry);
        } else {
            self.small.push(entry);
        }
    }

    fn adapt(&mut self, ghost: Ghost, entries: usize) {
        let all = entries as f64;
        let changed = match ghost.from {
            Place::Main => (ghost.age < entries).then_some(self.credit - 16),
            _ => ((self.small.len() + ghost.age) as f64 / all < 0.6).then_some(self.credit + 1),
        };
        if let Some(credit) = changed {
            self.credit = credit.max(-2 * entries as i64).min(entries as i64 * 9 / 10);
        }
    }

    fn is_let_in(&mut self, key: u32) -> bool {
        if self.has_newcomers_to_spare(2) {
            return true;
        }
        let Some(first) = self.main.first() else {
            return true;
        };
        let times = |key: u32| self.sketch.get(spread(key)) as f64;
        let (own, other) = (times(key), times(first.key));
        if own <= other || own > 1.25 * other {
            return own > other;
        }
        self.close += 1;
        self.close.is_multiple_of(16)
    }
}

/// A use of a key.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Step {
    /// Asked for, and inserted if it is not there.
    Ask,
    Remove,
    /// Inserted, whether it is there or not.
    Insert,
}

fn compare(capacity: u64, requests: impl IntoIterator<Item = (u32, u64, Step)>) {
    let (mut policy, mut arena, mut model) = (Policy::new(), Arena::default(), Model::default());
    let mut there: HashMap<u32, usize> = HashMap::new();
    for (key, weight, step) in requests {
        let weight = weight.min(capacity);
        if step == Step::Remove {
            model.remove(key);
            if let Some(id) = there.remove(&key) {
                assert!(policy.remove(&mut arena, id));
                assert!(!policy.remove(&mut arena, id));
            }
            continue;
        }
        let new = arena.add(key, weight, 0);
        // To be replaced is a use, too.
        assert_eq!(model.hit(key), there.contains_key(&key));
        let mut standing = None;
        if let Some(&id) = there.get(&key) {
            if step == Step::Ask {
                arena.nodes[id].frequency = (arena.nodes[id].frequency + 1).min(MOST);
                continue;
            }
            there.insert(key, new);
            if weight <= arena.nodes[id].weight {
                policy.replace(&mut arena, id, new);
                assert_eq!(*arena.place(id), Place::None);
                model.reweigh(key, weight);
                assert_eq!(policy.weight(), model.weight());
                continue;
            }
            standing = Some((Standing::of(&mut arena, id), model.take(key)));
            assert!(policy.remove(&mut arena, id));
        }
        while policy.weight() + weight > capacity {
            let id = policy.candidate(&mut arena).expect("there is an entry");
            policy.evict(&mut arena, id);
            assert_eq!(*arena.place(id), Place::None);
            let evicted = arena.nodes[id].key;
            assert_eq!(there.remove(&evicted), Some(id));
            assert_eq!(model.evict(), Some(evicted));
        }
        if let Some((standing, of_model)) = standing {
            policy.restore(&mut arena, new, standing);
            model.restore(of_model, weight);
        } else {
            policy.insert(&mut arena, new);
            model.insert(key, weight);
        }
        there.insert(key, new);
        assert_eq!(
            (policy.weight(), policy.entries()),
            (model.weight(), model.entries())
        );
    }
    while let Some(id) = policy.any() {
        policy.remove(&mut arena, id);
    }
    assert_eq!((policy.weight(), policy.entries()), (0, 0));
    assert!(policy.candidate(&mut arena).is_none());
}

proptest! {
    #[test]
    #[cfg_attr(miri, ignore = "long, and without unsafe code")]
    fn it_evicts_what_the_model_does(
        capacity in 1..200_u64,
        requests in prop::collection::vec((0..120_u32, 1..6_u64, 0..20_u8), 1..2000),
    ) {
        let requests = requests.into_iter();
        compare(capacity, requests.map(|(key, weight, step)| {
            let step = match step {
                0 => Step::Remove,
                1..5 => Step::Insert,
                _ => Step::Ask,
            };
            // Half of all requests are for a few keys.
            (if key < 60 { key % 8 } else { key }, weight, step)
        }));
    }

    #[test]
    #[cfg_attr(miri, ignore = "long, and without unsafe code")]
    fn a_ghost_lasts_as_long_as_it_should(evicted in prop::collection::vec(0..64_u32, 1..300)) {
        // With so much more room than is needed, none is forgotten.
        let mut ghosts = Ghosts::default();
        let mut model: Vec<u32> = Vec::new();
        for key in evicted {
            if let Some(at) = model.iter().rposition(|&other| other == key) {
                let age = model.len() - 1 - at;
                let expected = (age < 16).then_some(Ghost { from: Place::Small, age });
                prop_assert_eq!(ghosts.take(spread(key), 16), expected);
                prop_assert_eq!(ghosts.take(spread(key), 16), None);
                model[at] = u32::MAX;
            }
            ghosts.add(spread(key), Place::Small, 1024);
            model.push(key);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "long, and without unsafe code")]
    fn ghosts_of_the_main_queue_take_no_room_from_others(
        steps in prop::collection::vec((0..64_u32, 0..3_u8), 1..400),
    ) {
        const ROOM: usize = 16;
        let (mut with, mut without) = (Ghosts::default(), Ghosts::default());
        for (key, step) in steps {
            // As a key comes back before it is evicted again.
            let found = without.take(spread(key), ROOM);
            let other = with.take(spread(key), ROOM);
            prop_assert_eq!(found, other.filter(|ghost| ghost.from == Place::Small));
            if step < 2 {
                with.add(spread(key), Place::Small, ROOM);
                without.add(spread(key), Place::Small, ROOM);
            } else {
                with.add(spread(key), Place::Main, ROOM);
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "long, and without unsafe code")]
fn a_search_for_a_victim_ends_however_fast_entries_are_used() {
    let (mut policy, mut arena) = (Policy::new(), Arena::default());
    let entries = 1000;
    for key in 0..entries {
        let id = arena.add(key, 1, 0);
        policy.insert(&mut arena, id);
    }
    arena.hammered = true;
    for left in (0..entries as usize).rev() {
        let cleared = arena.cleared;
        let victim = policy.candidate(&mut arena).unwrap();
        policy.evict(&mut arena, victim);
        assert!(arena.cleared - cleared <= 128);
        assert_eq!(policy.entries(), left);
    }
    assert!(policy.candidate(&mut arena).is_none());
}

#[test]
#[cfg_attr(miri, ignore = "long, and without unsafe code")]
fn of_those_that_were_all_used_the_one_goes_that_was_used_least() {
    let (mut policy, mut arena) = (Policy::new(), Arena::default());
    for key in 0..200 {
        let id = arena.add(key, 1, MOST);
        policy.insert(&mut arena, id);
    }
    // All but a few of the small queue go to the main one.
    while policy.main.entries() < 180 {
        assert!(policy.candidate(&mut arena).is_some());
        let all = arena.nodes.iter_mut();
        all.for_each(|node| node.frequency = MOST);
    }
    let oldest = policy.main.oldest().unwrap();
    let third = (1..200)
        .map(|step| (oldest + step) % 200)
        .filter(|&id| arena.nodes[id].place == Place::Main)
        .nth(2);
    arena.nodes[third.unwrap()].frequency = 1;
    assert_eq!(policy.next_of_main(&mut arena), third);
}

#[test]
#[cfg_attr(miri, ignore = "long, and without unsafe code")]
fn it_counts_at_least_what_there_was_and_forgets_it() {
    let mut sketch = Sketch::default();
    assert_eq!(sketch.get(1), 0);
    for count in 1..=15 {
        sketch.add(7, 1, 1000);
        assert!(sketch.get(7) >= count);
    }
    sketch.add(7, 3, 5000);
    assert_eq!(sketch.get(7), 15, "also in a larger table, and at most 15");
    (0..5000 * 5 * 5).for_each(|key| sketch.add(key % 4999 + 100, 1, 5000));
    assert!(sketch.get(7) <= 7, "{}", sketch.get(7));
}

#[test]
fn one_in_sixteen_close_ones_is_let_in() {
    let mut policy = Policy::<usize>::new();
    let is_due = (1..=40).filter(|_| policy.is_close_one_due());
    assert_eq!(is_due.collect::<Vec<_>>(), [16, 32]);
}

/// A cache of `capacity` entries of weight 1.
struct Simulated {
    policy: Policy<usize>,
    arena: Arena,
    there: HashMap<u32, usize>,
    capacity: usize,
    evictions: usize,
}

impl Simulated {
    fn new(capacity: usize) -> Self {
        Self {
            policy: Policy::new(),
            arena: Arena::default(),
            there: HashMap::new(),
            capacity,
            evictions: 0,
        }
    }

    /// Asks for a key, and adds it if it is not there. Returns whether it was.
    fn ask(&mut self, key: u32) -> bool {
        if let Some(&id) = self.there.get(&key) {
            let frequency = &mut self.arena.nodes[id].frequency;
            *frequency = (*frequency + 1).min(MOST);
            return true;
        }
        let policy = &mut self.policy;
        while policy.entries() >= self.capacity {
            let id = policy.candidate(&mut self.arena).unwrap();
            policy.evict(&mut self.arena, id);
            self.there.remove(&self.arena.nodes[id].key);
            self.evictions += 1;
        }
        let id = self.arena.add(key, 1, 0);
        policy.insert(&mut self.arena, id);
        self.there.insert(key, id);
        false
    }
}

#[test]
#[cfg_attr(miri, ignore = "long, and without unsafe code")]
fn a_loop_and_a_scan_leave_what_is_used() {
    let mut cache = Simulated::new(100);
    let (mut hits, mut asked) = (0, 0);
    for round in 0..20_000_u32 {
        // 50 keys that are used all the time, a loop over 300, and a scan.
        for (key, hot) in [
            (round % 50, true),
            (1000 + round % 300, false),
            (10_000 + round, false),
        ] {
            let counts = hot && round > 10_000;
            asked += u32::from(counts);
            hits += u32::from(cache.ask(key) && counts);
        }
    }
    assert!(hits * 100 >= asked * 99, "{hits} of {asked}");
}

/// Returns a cache whose main queue is full of entries that are used no more.
fn stale(capacity: usize) -> Simulated {
    let mut cache = Simulated::new(capacity);
    let keys = 0..capacity as u32;
    (0..4).for_each(|_| keys.clone().for_each(|key| _ = cache.ask(key)));
    (1_000_000..1_000_000 + 4 * capacity as u32).for_each(|key| _ = cache.ask(key));
    assert!(cache.policy.small.entries() < capacity / 10);
    cache.evictions = 0;
    cache
}

/// Each key is used once more when four tenths of the capacity have come after it.
#[test]
#[cfg_attr(miri, ignore = "long, and without unsafe code")]
fn the_small_queue_grows_to_where_keys_are_used_again() {
    let mut cache = stale(1000);
    let (mut key, mut found) = (10_000, 0);
    while found < 400 {
        cache.ask(key);
        found = if cache.ask(key - 400) { found + 1 } else { 0 };
        key += 1;
        assert!(cache.evictions < 3500, "{found}");
    }
    for key in key..key + 5000 {
        cache.ask(key);
        assert!(cache.ask(key - 400), "{key}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "long, and without unsafe code")]
fn the_small_queue_gives_way_to_a_loop() {
    let mut cache = stale(1000);
    for key in 10_000..14_000 {
        cache.ask(key);
        cache.ask(key - 400);
    }
    assert!(cache.policy.small.entries() >= 400);
    let mut round = || (0..1100).filter(|&key| cache.ask(key)).count();
    let hits: Vec<_> = (0..30).map(|_| round()).collect();
    assert!(hits[8..].iter().all(|&hits| hits > 800), "{hits:?}");
}
