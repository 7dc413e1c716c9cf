//! A hierarchical timing wheel (Varghese and Lauck, SOSP 1987): what is due, without a scan.
//! Single-threaded; knows no clock.
//!
//! Six bits of a time in nanoseconds choose a slot of each level. An item lies on the level of the
//! highest bits in which its time and the present one differ, and moves down as that comes nearer: at
//! most once for each level, and not below the level that the caller's steps of time are as long as.

const BITS: u32 = 6;
const SLOTS: usize = 1 << BITS;
/// With so many, each time has a slot.
const LEVELS: usize = u64::BITS.div_ceil(BITS) as usize;
const NONE: u32 = u32::MAX;

/// Number of items in a block of memory.
const BLOCK: usize = 1024;

/// Number of unused items that stay, beside a quarter of those in use.
const SPARE: usize = 64;

/// A number that names an item while the wheel has it. Changes if the item is moved in memory.
pub type Key = u32;

#[derive(Debug)]
struct Item<T> {
    /// `None` for an unused one.
    what: Option<T>,
    time: u64,
    /// The items before and behind it in its slot; of an unused one, among these.
    prev: u32,
    next: u32,
    slot: u16,
}

/// Items in blocks, so that none is copied when there are more. The first block grows, as a vector
/// does: a few items need little memory.
#[derive(Debug)]
struct Items<T>(Vec<Vec<Item<T>>>);

impl<T> Items<T> {
    fn len(&self) -> usize {
        let last = self.0.last().map_or(0, Vec::len);
        self.0.len().saturating_sub(1) * BLOCK + last
    }

    fn push(&mut self, item: Item<T>) {
        if self.0.last().is_none_or(|last| last.len() == BLOCK) {
            let room = if self.0.is_empty() { 0 } else { BLOCK };
            self.0.push(Vec::with_capacity(room));
        }
        if let Some(last) = self.0.last_mut() {
            last.push(item);
        }
    }

    fn pop(&mut self) -> Option<Item<T>> {
        let last = self.0.last_mut()?;
        let item = last.pop();
        if last.is_empty() {
            self.0.pop();
        } else if self.0.len() == 1 && self.0[0].len() <= self.0[0].capacity() / 4 {
            let half = self.0[0].capacity() / 2;
            self.0[0].shrink_to(half);
        }
        item
    }

    fn at(&mut self, key: Key) -> &mut Item<T> {
        &mut self.0[key as usize / BLOCK][key as usize % BLOCK]
    }
}

/// The wheel.
#[derive(Debug)]
pub struct Wheel<T> {
    now: u64,
    occupied: [u64; LEVELS],
    /// Empty until there is an item.
    slots: Box<[u32]>,
    items: Items<T>,
    /// The first unused item.
    unused: u32,
    /// Number of items in use.
    len: usize,
}

/// The result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<T> {
    /// Taken out an item that is due.
    Due(T),
    /// Moved one that is not due yet, or was put off: once for each level, at most.
    Moved,
    /// Nothing is due.
    None,
}

impl<T: Copy> Wheel<T> {
    /// Makes an empty wheel, at time 0.
    pub fn new() -> Self {
        Self {
            now: 0,
            occupied: [0; LEVELS],
            slots: Box::default(),
            items: Items(Vec::new()),
            unused: NONE,
            len: 0,
        }
    }

    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Adds an item that is due at `time`, or at once if that is over.
    pub fn add(&mut self, what: T, time: u64) -> Key {
        if self.slots.is_empty() {
            self.slots = vec![NONE; SLOTS * LEVELS].into_boxed_slice();
        }
        let item = Item {
            what: Some(what),
            time,
            prev: NONE,
            next: NONE,
            slot: 0,
        };
        let key = if self.unused == NONE {
            let key = u32::try_from(self.items.len()).ok();
            let key = key.filter(|&key| key != NONE);
            self.items.push(item);
            key.expect("fewer than 2^32 - 1 timers")
        } else {
            let key = self.unused;
            self.forget_unused(key);
            *self.items.at(key) = item;
            key
        };
        self.len += 1;
        self.put(key);
        key
    }

    /// Takes out an item before it is due. `moved` is told of others that have another key since.
    pub fn remove(&mut self, key: Key, moved: impl FnMut(T, Key)) {
        self.unlink(key);
        self.discard(key, moved);
    }

    /// Advances the time to `now`: takes out one item that is due by then, or moves one. `later` may put off
    /// one that is due, to a time after `now`; `moved` as in [`remove`](Self::remove).
    pub fn step(
        &mut self,
        now: u64,
        later: impl FnOnce(T) -> Option<u64>,
        moved: impl FnMut(T, Key),
    ) -> Step<T> {
        let next = self.next_slot().filter(|&(_, start)| start <= now);
        let Some((slot, start)) = next else {
            self.now = self.now.max(now);
            return Step::None;
        };
        self.now = self.now.max(start);
        let key = self.slots[slot];
        self.unlink(key);
        let item = self.items.at(key);
        if item.time <= now
            && let Some(what) = item.what
        {
            let Some(time) = later(what) else {
                self.discard(key, moved);
                return Step::Due(what);
            };
            item.time = time;
        }
        self.put(key);
        Step::Moved
    }

    /// Returns the time at which a step may find something, at the earliest.
    pub fn next_due(&self) -> Option<u64> {
        self.next_slot().map(|(_, start)| start)
    }

    /// Returns the slot whose time begins next, and that time. Of several, that of the highest level:
    /// its items have to move down before one of them can be due.
    fn next_slot(&self) -> Option<(usize, u64)> {
        let of_level = |level: usize| {
            let slots = self.occupied[level];
            let shift = BITS * level as u32;
            let first = slots.trailing_zeros();
            // The other digits of a level are those of the present. No slot before it is occupied.
            let turn = self.now >> shift & !(SLOTS as u64 - 1);
            let start = (turn | u64::from(first)) << shift;
            (slots != 0).then_some((level * SLOTS + first as usize, start.max(self.now)))
        };
        let all = (0..LEVELS).rev().filter_map(of_level);
        all.min_by_key(|&(_, start)| start)
    }

    fn put(&mut self, key: Key) {
        let time = self.items.at(key).time.max(self.now);
        let differing = (self.now ^ time) | (SLOTS as u64 - 1);
        let level = (63 - differing.leading_zeros()) / BITS;
        let slot = (time >> (BITS * level)) as usize % SLOTS;
        let index = level as usize * SLOTS + slot;
        let first = std::mem::replace(&mut self.slots[index], key);
        let item = self.items.at(key);
        (item.prev, item.next, item.slot) = (NONE, first, index as u16);
        if first != NONE {
            self.items.at(first).prev = key;
        }
        self.occupied[level as usize] |= 1 << slot;
    }

    fn unlink(&mut self, key: Key) {
        let &mut Item {
            prev, next, slot, ..
        } = self.items.at(key);
        let slot = usize::from(slot);
        if next != NONE {
            self.items.at(next).prev = prev;
        }
        if prev != NONE {
            self.items.at(prev).next = next;
            return;
        }
        self.slots[slot] = next;
        if next == NONE {
            self.occupied[slot / SLOTS] &= !(1 << (slot % SLOTS));
        }
    }

    /// Marks an item unused. Where many are, moves one at the end of the memory, or two, to where
    /// others were: so memory is given back as items go, a little each time.
    fn discard(&mut self, key: Key, mut moved: impl FnMut(T, Key)) {
        self.len -= 1;
        if self.len == 0 {
            (self.items, self.unused) = (Items(Vec::new()), NONE);
            return;
        }
        let first = std::mem::replace(&mut self.unused, key);
        let item = self.items.at(key);
        (item.what, item.prev, item.next) = (None, NONE, first);
        if first != NONE {
            self.items.at(first).prev = key;
        }
        for _ in 0..2 {
            if self.items.len() - self.len > self.len / 4 + SPARE {
                self.shorten(&mut moved);
            }
        }
    }

    /// Takes an unused item out of the list of these.
    fn forget_unused(&mut self, key: Key) {
        let &mut Item { prev, next, .. } = self.items.at(key);
        if next != NONE {
            self.items.at(next).prev = prev;
        }
        if prev != NONE {
            self.items.at(prev).next = next;
        } else {
            self.unused = next;
        }
    }

    /// Gives back the last place of the memory, of which some are unused.
    fn shorten(&mut self, moved: &mut impl FnMut(T, Key)) {
        let last = (self.items.len() - 1) as Key;
        if self.items.at(last).what.is_none() {
            self.forget_unused(last);
            self.items.pop();
            return;
        }
        let key = self.unused;
        self.forget_unused(key);
        let Some(item) = self.items.pop() else { return };
        let (prev, next, slot, what) = (item.prev, item.next, item.slot, item.what);
        *self.items.at(key) = item;
        if next != NONE {
            self.items.at(next).prev = key;
        }
        if prev != NONE {
            self.items.at(prev).next = key;
        } else {
            self.slots[usize::from(slot)] = key;
        }
        if let Some(what) = what {
            moved(what, key);
        }
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// A wheel and what it has, by time, and by key.
    struct Pair {
        wheel: Wheel<usize>,
        model: BTreeMap<(u64, usize), ()>,
        keys: BTreeMap<usize, (Key, u64)>,
    }

    impl Pair {
        fn new() -> Self {
            Self {
                wheel: Wheel::new(),
                model: BTreeMap::new(),
                keys: BTreeMap::new(),
            }
        }

        fn add(&mut self, number: usize, time: u64) {
            let key = self.wheel.add(number, time);
            self.keys.insert(number, (key, time));
            self.model.insert((time, number), ());
        }

        fn remove(&mut self, number: usize) {
            let (key, time) = self.keys.remove(&number).expect("it is there");
            let keys = &mut self.keys;
            self.wheel
                .remove(key, |number, key| note(keys, number, key));
            self.model.remove(&(time, number));
        }

        /// Checks that the wheel pops what the sorted map does.
        fn pass(&mut self, now: u64) {
            let mut popped = Vec::new();
            loop {
                let keys = &mut self.keys;
                let moved = |number, key| note(keys, number, key);
                match self.wheel.step(now, |_| None, moved) {
                    Step::Due(number) => {
                        let (_, time) = self.keys.remove(&number).expect("it is there");
                        popped.push((time, number));
                    }
                    Step::Moved => {}
                    Step::None => break,
                }
            }
            popped.sort_unstable();
            let later = self.model.split_off(&(now.saturating_add(1), 0));
            let due: Vec<_> = std::mem::replace(&mut self.model, later)
                .into_keys()
                .collect();
            assert_eq!(popped, due);
            let (len, places) = (self.wheel.len(), self.wheel.items.len());
            assert_eq!(len, self.model.len());
            assert!(
                places <= len + len / 4 + SPARE + 1,
                "{places} places for {len}"
            );
        }
    }

    fn note(keys: &mut BTreeMap<usize, (Key, u64)>, number: usize, key: Key) {
        // The one that is being taken out has none.
        keys.get_mut(&number).expect("it is there").0 = key;
    }

    fn compare(steps: impl IntoIterator<Item = (u64, u64, bool)>) {
        let (mut pair, mut now) = (Pair::new(), 0);
        for (number, (ahead, passes, remove)) in steps.into_iter().enumerate() {
            pair.add(number, now + ahead);
            if remove && let Some(&number) = pair.keys.keys().next() {
                pair.remove(number);
            }
            now += passes;
            pair.pass(now);
        }
        pair.pass(u64::MAX - 1);
    }

    proptest! {
        #[test]
        #[cfg_attr(miri, ignore = "long, and without unsafe code")]
        fn it_pops_what_is_due(steps in prop::collection::vec(
            (prop_oneof![0..70_u64, 0..300_000_u64, 0..u64::MAX >> 8],
             prop_oneof![0..3_u64, 0..5_000_u64, 0..u64::MAX >> 12], any::<bool>()),
            1..300,
        )) {
            compare(steps);
        }

    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(8))]
        /// As items go in any order, places do.
        #[test]
        #[cfg_attr(miri, ignore = "long, and without unsafe code")]
        fn places_go_with_items(seed in 0..u64::MAX, leave in 0..20_usize) {
            let (mut pair, mut random) = (Pair::new(), random(seed | 1));
            for number in 0..3 * BLOCK {
                pair.add(number, random() >> 8);
            }
            while pair.keys.len() > leave {
                let from = random() as usize % (3 * BLOCK);
                let number = pair.keys.range(from..).next().map(|(&number, _)| number);
                number.into_iter().for_each(|number| pair.remove(number));
                let (len, places) = (pair.wheel.len(), pair.wheel.items.len());
                prop_assert!(places <= len + len / 4 + SPARE + 1);
            }
            let room: usize = pair.wheel.items.0.iter().map(Vec::capacity).sum();
            prop_assert!(room <= 8 * SPARE, "{}", room);
            pair.pass(u64::MAX - 1);
            prop_assert_eq!(pair.wheel.items.0.len(), 0);
        }
    }

    fn random(mut random: u64) -> impl FnMut() -> u64 {
        move || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        }
    }

    /// An hour, with entries that last from none to some ten minutes.
    #[test]
    #[cfg_attr(miri, ignore = "long, and without unsafe code")]
    fn an_hour_passes() {
        let mut next = random(1);
        let step = 1_000_000_000;
        compare((0..3600).map(|_| {
            (
                next() % (600 * step),
                next() % (2 * step),
                next().is_multiple_of(4),
            )
        }));
    }

    /// An item moves once for each level at most, and seldom below that of the steps of time.
    #[test]
    fn long_steps_move_items_seldom() {
        let (mut wheel, mut next, mut moves) = (Wheel::new(), random(1), 0);
        let (items, tick) = (2000, 1 << 24);
        for number in 0..items {
            wheel.add(number, next() % (300 << 30));
        }
        let mut now = 0;
        while wheel.len() > 0 {
            match wheel.step(now, |_| None, |_, _| ()) {
                Step::Due(_) => {}
                Step::Moved => moves += 1,
                Step::None => now += tick,
            }
        }
        assert!(moves <= 4 * items, "{moves} moves of {items} items");
    }
}
