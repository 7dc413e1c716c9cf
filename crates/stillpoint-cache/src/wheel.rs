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
            self.items.push(item);
            u32::try_from(self.items.len() - 1).expect("fewer than 2^32 items")
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

    /// Takes out an item that is due at `now` or before; `None` once there is none.
    pub fn pop(&mut self, now: u64) -> Option<T> {
        loop {
            let Some((level, slot, start)) = self.next_slot() else {
                self.now = self.now.max(now);
                return None;
            };
            if start > now {
                self.now = self.now.max(now);
                return None;
            }
            self.now = self.now.max(start);
            let key = self.slots[level * SLOTS + slot];
            self.unlink(key);
            if self.items[key as usize].tick <= self.now {
                let what = self.items[key as usize].what;
                self.discard(key);
                return what;
            }
            self.put(key);
        }
    }

    /// The next occupied slot, and the tick at which its time begins. A lower level's comes before
    /// all of a higher one.
    fn next_slot(&self) -> Option<(usize, usize, u64)> {
        let level = self.occupied.iter().position(|&slots| slots != 0)?;
        let shift = BITS * level as u32;
        let at = (self.now >> shift) & (SLOTS as u64 - 1);
        let ahead = u64::from(
            self.occupied[level]
                .rotate_right(at as u32)
                .trailing_zeros(),
        );
        let slot = (at + ahead) % SLOTS as u64;
        let start = ((self.now >> shift) + ahead) << shift;
        Some((level, slot as usize, start.max(self.now)))
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
