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

/// Number of items whose memory stays.
const FEW: usize = 64;

/// A number that names an item while the wheel has it. Changes if the item is moved in memory.
pub type Key = u32;

#[derive(Debug)]
struct Item<T> {
    what: T,
    time: u64,
    /// The items before and behind it in its slot.
    prev: u32,
    next: u32,
    slot: u16,
}

/// Items in blocks, so that none is copied when there are more. The first block grows, as a vector
/// does: a few items need little memory.
#[derive(Debug)]
struct Items<T> {
    blocks: Vec<Vec<Item<T>>>,
    len: usize,
}

impl<T> Items<T> {
    fn push(&mut self, item: Item<T>) {
        let block = self.len / BLOCK;
        if block == self.blocks.len() {
            let room = if block == 0 { 0 } else { BLOCK };
            self.blocks.push(Vec::with_capacity(room));
        }
        self.blocks[block].push(item);
        self.len += 1;
    }

    /// Takes out the last item. Memory goes back, but for what is soon filled again.
    fn pop(&mut self) -> Option<Item<T>> {
        self.len = self.len.checked_sub(1)?;
        let item = self.blocks[self.len / BLOCK].pop();
        if self.blocks.len() > 1 + (self.len + BLOCK / 2) / BLOCK {
            self.blocks.pop();
        }
        if let [first] = &mut self.blocks[..]
            && first.capacity() > FEW
            && first.len() <= first.capacity() / 4
        {
            first.shrink_to(first.capacity() / 2);
        }
        item
    }

    fn at(&mut self, key: Key) -> &mut Item<T> {
        &mut self.blocks[key as usize / BLOCK][key as usize % BLOCK]
    }
}

/// The wheel.
#[derive(Debug)]
pub struct Wheel<T> {
    now: u64,
    occupied: [u64; LEVELS],
    /// The levels that have items, a bit each.
    levels: u16,
    /// Empty until there is an item.
    slots: Box<[u32]>,
    items: Items<T>,
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
            levels: 0,
            slots: Box::default(),
            items: Items {
                blocks: Vec::new(),
                len: 0,
            },
        }
    }

    /// Adds an item that is due at `time`, or at once if that is over.
    pub fn add(&mut self, what: T, time: u64) -> Key {
        if self.slots.is_empty() {
            self.slots = vec![NONE; SLOTS * LEVELS].into_boxed_slice();
        }
        let key = u32::try_from(self.items.len).ok();
        let key = key.filter(|&key| key != NONE);
        let key = key.expect("fewer than 2^32 - 1 timers");
        let (slot, next) = self.enter(key, time);
        let prev = NONE;
        self.items.push(Item {
            what,
            time,
            prev,
            next,
            slot,
        });
        key
    }

    /// Takes out an item before it is due. The last item gets its key, of which `moved` is told.
    pub fn remove(&mut self, key: Key, moved: impl FnOnce(T, Key)) {
        self.unlink(key);
        self.discard(key, moved);
    }

    /// Advances the time to `now`: takes out one item that is due by then, or moves one. `later` may put off
    /// one that is due, to a time after `now`; `moved` as in [`remove`](Self::remove).
    pub fn step(
        &mut self,
        now: u64,
        later: impl FnOnce(T) -> Option<u64>,
        moved: impl FnOnce(T, Key),
    ) -> Step<T> {
        let next = self.next_slot().filter(|&(_, start)| start <= now);
        let Some((slot, start)) = next else {
            self.now = self.now.max(now);
            return Step::None;
        };
        self.now = self.now.max(start);
        let key = self.slots[slot];
        self.unlink(key);
        let &mut Item { what, mut time, .. } = self.items.at(key);
        if time <= now {
            let Some(later) = later(what) else {
                self.discard(key, moved);
                return Step::Due(what);
            };
            time = later;
        }
        let (slot, next) = self.enter(key, time);
        let item = self.items.at(key);
        (item.time, item.prev, item.next, item.slot) = (time, NONE, next, slot);
        Step::Moved
    }

    /// Returns the time at which a step may find something, at the earliest.
    #[inline]
    pub fn next_due(&self) -> Option<u64> {
        if self.levels == 0 {
            return None;
        }
        self.next_slot().map(|(_, start)| start)
    }

    /// Returns the slot whose time begins next, and that time. Of several, that of the highest level:
    /// its items have to move down before one of them can be due.
    #[inline(never)]
    fn next_slot(&self) -> Option<(usize, u64)> {
        let (mut next, mut levels) = (None, self.levels);
        while levels != 0 {
            let level = levels.ilog2();
            levels ^= 1 << level;
            let shift = BITS * level;
            let first = self.occupied[level as usize].trailing_zeros();
            // The other digits of a level are those of the present. No slot before it is occupied.
            let turn = self.now >> shift & !(SLOTS as u64 - 1);
            let start = ((turn | u64::from(first)) << shift).max(self.now);
            if next.is_none_or(|(_, other)| start < other) {
                next = Some((level as usize * SLOTS + first as usize, start));
            }
        }
        next
    }

    /// Makes an item the first of the slot of `time`. Returns the slot, and the item that was the first.
    fn enter(&mut self, key: Key, time: u64) -> (u16, u32) {
        let time = time.max(self.now);
        let differing = (self.now ^ time) | (SLOTS as u64 - 1);
        let level = (63 - differing.leading_zeros()) / BITS;
        let slot = (time >> (BITS * level)) as usize % SLOTS;
        self.occupied[level as usize] |= 1 << slot;
        self.levels |= 1 << level;
        let index = level as usize * SLOTS + slot;
        let next = std::mem::replace(&mut self.slots[index], key);
        if next != NONE {
            self.items.at(next).prev = key;
        }
        (index as u16, next)
    }

    /// Takes an item out of its slot.
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
            let occupied = &mut self.occupied[slot / SLOTS];
            *occupied &= !(1 << (slot % SLOTS));
            if *occupied == 0 {
                self.levels &= !(1 << (slot / SLOTS));
            }
        }
    }

    /// Takes an item that is in no slot out of the memory. The last one moves to its place.
    fn discard(&mut self, key: Key, moved: impl FnOnce(T, Key)) {
        let Some(last) = self.items.pop() else { return };
        if key as usize == self.items.len {
            return;
        }
        let Item {
            what,
            prev,
            next,
            slot,
            ..
        } = last;
        *self.items.at(key) = last;
        if next != NONE {
            self.items.at(next).prev = key;
        }
        if prev != NONE {
            self.items.at(prev).next = key;
        } else {
            self.slots[usize::from(slot)] = key;
        }
        moved(what, key);
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

        /// Returns the number of items that there is memory for.
        fn room(&self) -> usize {
            self.wheel.items.blocks.iter().map(Vec::capacity).sum()
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
            assert_eq!(self.wheel.items.len, self.model.len());
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
        /// As items go in any order, memory does.
        #[test]
        #[cfg_attr(miri, ignore = "long, and without unsafe code")]
        fn memory_goes_with_items(seed in 0..u64::MAX, leave in 0..20_usize) {
            let (mut pair, mut random) = (Pair::new(), random(seed | 1));
            for number in 0..3 * BLOCK {
                pair.add(number, random() >> 8);
            }
            while pair.keys.len() > leave {
                let from = random() as usize % (3 * BLOCK);
                let number = pair.keys.range(from..).next().map(|(&number, _)| number);
                number.into_iter().for_each(|number| pair.remove(number));
                prop_assert!(pair.room() <= 4 * pair.wheel.items.len + 2 * BLOCK);
            }
            prop_assert!(pair.room() <= 2 * FEW, "{}", pair.room());
            pair.pass(u64::MAX - 1);
            prop_assert!(pair.room() <= FEW, "{}", pair.room());
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
        while wheel.items.len > 0 {
            match wheel.step(now, |_| None, |_, _| ()) {
                Step::Due(_) => {}
                Step::Moved => moves += 1,
                Step::None => now += tick,
            }
        }
        assert!(moves <= 4 * items, "{moves} moves of {items} items");
    }
}
