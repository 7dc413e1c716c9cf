//! A hierarchical timing wheel (Varghese and Lauck, SOSP 1987): what is due, in order of ticks,
//! without a scan. Single-threaded; knows no clock.
//!
//! Six bits of the tick choose a slot of each level. An item lies on the level of the highest bits
//! in which its tick and the present one differ, and moves down as time comes nearer: at most once
//! for each level.

const BITS: u32 = 6;
const SLOTS: usize = 1 << BITS;
const LEVELS: usize = 7;
/// The furthest that an item lies ahead. One that is due later is looked at then.
const FURTHEST: u64 = (1 << (BITS * LEVELS as u32)) - 1;
const NONE: u32 = u32::MAX;

/// A number that names an item while the wheel has it.
pub type Key = u32;

#[derive(Debug)]
struct Item<T> {
    /// `None` for an unused one.
    what: Option<T>,
    tick: u64,
    prev: u32,
    /// For an unused one, the next of these.
    next: u32,
    slot: u16,
}

/// The wheel.
#[derive(Debug)]
pub struct Wheel<T> {
    now: u64,
    occupied: [u64; LEVELS],
    slots: Box<[u32]>,
    items: Vec<Item<T>>,
    unused: u32,
    len: usize,
}

/// What a step has done.
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
    /// An empty one, at tick 0.
    pub fn new() -> Self {
        Self {
            now: 0,
            occupied: [0; LEVELS],
            slots: vec![NONE; SLOTS * LEVELS].into_boxed_slice(),
            items: Vec::new(),
            unused: NONE,
            len: 0,
        }
    }

    /// How many items there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Adds an item that is due at `tick`, or at the next one if that is over.
    pub fn add(&mut self, what: T, tick: u64) -> Key {
        let item = Item {
            what: Some(what),
            tick,
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
            self.unused = self.items[key as usize].next;
            self.items[key as usize] = item;
            key
        };
        self.len += 1;
        self.put(key);
        key
    }

    /// Takes out an item before it is due.
    pub fn remove(&mut self, key: Key) {
        self.unlink(key);
        self.discard(key);
    }

    /// Lets time pass until `now`: takes out one item that is due by then, or moves one. `later` may
    /// put off one that is due, to another tick.
    pub fn step(&mut self, now: u64, later: impl FnOnce(T) -> Option<u64>) -> Step<T> {
        let next = self.next_slot().filter(|&(_, _, start)| start <= now);
        let Some((level, slot, start)) = next else {
            self.now = self.now.max(now);
            return Step::None;
        };
        self.now = self.now.max(start);
        let key = self.slots[level * SLOTS + slot];
        self.unlink(key);
        let item = &mut self.items[key as usize];
        if item.tick <= self.now
            && let Some(what) = item.what
        {
            let Some(tick) = later(what) else {
                self.discard(key);
                return Step::Due(what);
            };
            item.tick = tick;
        }
        self.put(key);
        Step::Moved
    }

    /// The tick at which a step may find something, at the earliest.
    pub fn next_due(&self) -> Option<u64> {
        self.next_slot().map(|(_, _, start)| start)
    }

    /// The slot whose time begins next, and that tick. Of several, that of the highest level: its
    /// items have to move down before one of them can be due.
    fn next_slot(&self) -> Option<(usize, usize, u64)> {
        let of_level = |level: usize| {
            let slots = self.occupied[level];
            let shift = BITS * level as u32;
            let at = self.now >> shift;
            let turned = slots.rotate_right((at % SLOTS as u64) as u32);
            let slot = at + u64::from(turned.trailing_zeros());
            let start = (slot << shift).max(self.now);
            (slots != 0).then_some((level, slot as usize % SLOTS, start))
        };
        let all = (0..LEVELS).rev().filter_map(of_level);
        all.min_by_key(|&(_, _, start)| start)
    }

    fn put(&mut self, key: Key) {
        let tick = self.items[key as usize]
            .tick
            .clamp(self.now, self.now.saturating_add(FURTHEST >> 1));
        let differing = (self.now ^ tick) | (SLOTS as u64 - 1);
        let level = ((63 - differing.leading_zeros()) / BITS).min(LEVELS as u32 - 1);
        let slot = (tick >> (BITS * level)) as usize % SLOTS;
        let index = level as usize * SLOTS + slot;
        let first = std::mem::replace(&mut self.slots[index], key);
        let item = &mut self.items[key as usize];
        (item.prev, item.next, item.slot) = (NONE, first, index as u16);
        if first != NONE {
            self.items[first as usize].prev = key;
        }
        self.occupied[level as usize] |= 1 << slot;
    }

    fn unlink(&mut self, key: Key) {
        let Item {
            prev, next, slot, ..
        } = self.items[key as usize];
        let slot = usize::from(slot);
        if next != NONE {
            self.items[next as usize].prev = prev;
        }
        if prev != NONE {
            self.items[prev as usize].next = next;
            return;
        }
        self.slots[slot] = next;
        if next == NONE {
            self.occupied[slot / SLOTS] &= !(1 << (slot % SLOTS));
        }
    }

    fn discard(&mut self, key: Key) {
        let item = &mut self.items[key as usize];
        item.what = None;
        item.next = std::mem::replace(&mut self.unused, key);
        self.len -= 1;
        if self.len == 0 {
            // Gives the memory back.
            (self.items, self.unused) = (Vec::new(), NONE);
        }
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// What the wheel has, by tick; it pops what a sorted map does.
    fn compare(steps: impl IntoIterator<Item = (u64, u64, bool)>) {
        let mut wheel = Wheel::new();
        let (mut model, mut keys) = (BTreeMap::new(), BTreeMap::new());
        let mut now = 0;
        for (number, (ahead, passes, remove)) in steps.into_iter().enumerate() {
            keys.insert(number, (wheel.add(number, now + ahead), now + ahead));
            model.insert((now + ahead, number), ());
            if remove && let Some((number, (key, tick))) = keys.pop_first() {
                wheel.remove(key);
                model.remove(&(tick, number));
            }
            now += passes;
            let mut popped = Vec::new();
            loop {
                let number = match wheel.step(now, |_| None) {
                    Step::Due(number) => number,
                    Step::Moved => continue,
                    Step::None => break,
                };
                let (_, tick) = keys.remove(&number).expect("it is there");
                popped.push((tick, number));
            }
            assert!(popped.is_sorted_by_key(|&(tick, _)| tick));
            popped.sort_unstable();
            let later = model.split_off(&(now + 1, 0));
            let due: Vec<_> = std::mem::replace(&mut model, later).into_keys().collect();
            assert_eq!(popped, due);
            assert_eq!(wheel.len(), model.len());
        }
    }

    proptest! {
        #[test]
        #[cfg_attr(miri, ignore = "long, and without unsafe code")]
        fn it_pops_what_is_due(steps in prop::collection::vec(
            (prop_oneof![0..70_u64, 0..300_000_u64, 0..u64::MAX >> 20],
             prop_oneof![0..3_u64, 0..5_000_u64, 0..u64::MAX >> 24], any::<bool>()),
            1..300,
        )) {
            compare(steps);
        }
    }

    /// A day in ticks of 16.8 ms, with entries that last from none to some ten minutes.
    #[test]
    #[cfg_attr(miri, ignore = "long, and without unsafe code")]
    fn a_day_passes() {
        let mut random = 1_u64;
        let mut next = move || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        let ticks = (24 * 3600 * 1_000_000_000_u64) >> 24;
        compare((0..ticks / 64).map(|_| (next() % 40_000, next() % 128, next() % 4 == 0)));
    }
}
