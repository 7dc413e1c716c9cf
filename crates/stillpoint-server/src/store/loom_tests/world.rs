//! An index, segments, and the items in them. What stands on lists, charges and memory of the system
//! is done here as `key_space.rs`, `evict.rs` and `pool.rs` do it.

use crate::store::{
    access::{Access, CasWord},
    class::{Class, SEGMENT_HEADER},
    index::{Index, Locked},
    pool::Pool,
    rcu::{Cookie, Guard, Watch, global, read_lock},
    stage::Stage,
    word::Word,
};
// std's where order is not what a model is about: locks of lists, counts.
use std::{
    cell::Cell,
    ops::Deref,
    ptr::{self, NonNull},
    sync::{
        Mutex,
        atomic::{AtomicI64, AtomicUsize},
    },
};
use stillpoint_platform::sync::{Arc, AtomicU32, AtomicU64, Ordering, UnsafeCell};

/// What an item takes.
pub const SIZE: usize = 20;

/// A segment. It stays, so that loom sees who comes to memory that is free.
pub struct Segment {
    pub stage: Stage,
    memory: Watch,
    /// That of the references to it.
    counted: Cell<*const Counted>,
}

/// What lists, limbo and pins refer to. Dropped, the memory is free.
pub struct Counted(NonNull<Segment>);

/// As the store's.
pub type SegmentRef = Arc<Counted>;

impl Deref for Counted {
    type Target = Segment;

    fn deref(&self) -> &Segment {
        // SAFETY: the world keeps it.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        // A model that has failed already is told once.
        if !std::thread::panicking() {
            self.memory.note_free();
        }
    }
}

/// An item. Its memory stays; its segment's is watched for it.
pub struct Item {
    pub hash: u64,
    segment: usize,
    /// Written before it is published, and never again.
    value: UnsafeCell<u32>,
    pub access: Access,
    pub cas: CasWord,
    pub exptime: AtomicU32,
    /// The pointer in the segment's header.
    header: NonNull<Segment>,
}

/// A hash with that bucket's number in its low bits.
pub fn hash(low: u64, tag: u64) -> u64 {
    low | tag << 48
}

/// A segment that no item of the index is in, and when its readers have left.
pub type Retired = Option<(Cookie, SegmentRef)>;

#[expect(clippy::vec_box, reason = "others have their addresses")]
pub struct World {
    pub index: Index,
    items: Vec<Box<Item>>,
    /// What lists have of segments.
    lists: Vec<Mutex<Option<SegmentRef>>>,
    /// What readers have not left.
    limbo: Mutex<Vec<SegmentRef>>,
    // Behind what refers to them.
    _segments: Vec<Box<Segment>>,
    /// The count of dead bytes.
    pub dead: AtomicI64,
    /// How often a segment was taken away.
    pub taken: AtomicUsize,
}

// SAFETY: loom checks each access to an item's value; the header is written before threads start;
// the rest is atomics and locks.
unsafe impl Send for World {}
// SAFETY: the same.
unsafe impl Sync for World {}

impl World {
    /// With so many segments, and items of these hashes in the segments of these numbers, which are
    /// written to those but not published. What has value 0 is to be a copy.
    pub fn new(segments: usize, items: &[(u64, usize, u32)]) -> Self {
        let new = || Segment {
            stage: Stage::new(),
            memory: Watch::default(),
            counted: Cell::new(ptr::null()),
        };
        let segments: Vec<_> = (0..segments).map(|_| Box::new(new())).collect();
        let lists = segments.iter().map(|segment| {
            let counted = Arc::new(Counted(NonNull::from(&**segment)));
            segment.counted.set(Arc::as_ptr(&counted));
            Mutex::new(Some(counted))
        });
        let lists = lists.collect();
        let mut ends = vec![SEGMENT_HEADER; segments.len()];
        let items = items.iter().map(|&(hash, segment, value)| {
            if value != 0 {
                ends[segment] += SIZE;
                segments[segment].stage.add(SIZE, ends[segment]);
            }
            let item = Box::new(Item {
                hash,
                segment,
                value: UnsafeCell::new(value),
                access: Access::new(0),
                cas: CasWord::new(0),
                exptime: AtomicU32::new(0),
                header: NonNull::from(&*segments[segment]),
            });
            ptr::from_ref(&*item).expose_provenance();
            item
        });
        Self {
            index: Index::new(std::sync::Arc::new(Pool::new(1 << 20).unwrap())),
            items: items.collect(),
            lists,
            _segments: segments,
            limbo: Mutex::default(),
            dead: AtomicI64::new(0),
            taken: AtomicUsize::new(0),
        }
    }

    pub fn word(&self, item: usize) -> Word {
        let item = &*self.items[item];
        Word::new(ptr::from_ref(item).addr(), Class::OWN, item.hash)
    }

    pub fn item(&self, item: usize) -> &Item {
        &self.items[item]
    }

    /// The item of a word. In a section in which it was found, or with the bucket's lock: loom fails
    /// if its segment is free, or it was not made known.
    pub fn at(&self, word: Word) -> &Item {
        // SAFETY: a word of an item of this world.
        let item = unsafe { &*ptr::with_exposed_provenance::<Item>(word.address()) };
        // SAFETY: the world keeps it; whether it is free is watched.
        unsafe { item.header.as_ref() }.memory.note_read();
        item
    }

    /// Writes an item's value, before it is published.
    pub fn write(&self, item: usize, value: u32) {
        // SAFETY: no other thread has it, or loom fails.
        self.items[item].value.with_mut(|at| unsafe { *at = value });
    }

    pub fn value(item: &Item) -> u32 {
        // SAFETY: no thread writes it any more, or loom fails.
        item.value.with(|at| unsafe { *at })
    }

    /// The lists' reference to a segment.
    pub fn segment(&self, number: usize) -> SegmentRef {
        Arc::clone(
            self.lists[number]
                .lock()
                .unwrap()
                .as_ref()
                .expect("on its list"),
        )
    }

    pub fn note_dead(&self, bytes: i64) {
        self.dead.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Publishes the item of that number, where none of its hash is.
    pub fn insert(&self, item: usize) {
        let section = read_lock();
        let mut bucket = self.index.lock(self.items[item].hash, &section);
        bucket.insert(self.word(item)).unwrap();
    }

    /// Seals a segment, which has items.
    pub fn seal(&self, segment: usize) {
        let empty = self
            .segment(segment)
            .stage
            .seal(|dead| self.note_dead(dead));
        assert!(!empty);
    }

    /// The item that is found by a hash.
    pub fn find(&self, hash: u64, section: &Guard<'_>) -> Option<Word> {
        let is_it = |word| (self.at(word).hash == hash).then_some(word);
        self.index.find(hash, section, is_it)
    }

    /// The value of the item of that hash.
    pub fn get(&self, hash: u64) -> Option<u32> {
        let section = read_lock();
        let word = self.find(hash, &section)?;
        Some(Self::value(self.at(word)))
    }

    /// The slot and the word of a hash, in its bucket.
    pub fn find_locked<'a>(&self, bucket: &Locked<'a>, hash: u64) -> Option<(&'a AtomicU64, Word)> {
        bucket.find(hash, |word| self.at(word).hash == hash)
    }

    /// As `KeySpace::put` with an item that replaces another: `Err` if it was discarded, as what is there
    /// is not `expected` any more, or its segment is leaving.
    pub fn put(&self, item: usize, expected: Option<Word>) -> Result<Retired, Retired> {
        self.put_in(item, expected, &read_lock())
    }

    /// The same, in the caller's section.
    pub fn put_in(
        &self,
        item: usize,
        expected: Option<Word>,
        section: &Guard<'_>,
    ) -> Result<Retired, Retired> {
        let hash = self.items[item].hash;
        let mut bucket = self.index.lock(hash, section);
        let old = self.find_locked(&bucket, hash);
        let is_expected = expected.is_none() || old.map(|(_, word)| word) == expected;
        let new = self.word(item);
        if !is_expected || !self.of(new).stage.is_usable() {
            drop(bucket);
            return Err(self.bury(new, section));
        }
        if let Some((slot, old)) = old {
            bucket.put(slot, new);
            drop(bucket);
            return Ok(self.bury(old, section));
        }
        bucket.insert(new).unwrap();
        Ok(None)
    }

    /// As `KeySpace::remove`.
    pub fn remove(&self, hash: u64) -> Retired {
        let section = read_lock();
        let mut bucket = self.index.lock(hash, &section);
        let (slot, found) = self.find_locked(&bucket, hash)?;
        bucket.clear(slot);
        bucket.trim();
        drop(bucket);
        self.bury(found, &section)
    }

    /// As `Segment::keep`.
    pub fn keep(&self, word: Word) -> SegmentRef {
        let header = self.of(word).counted.get();
        // SAFETY: of an `Arc`, of which the list or limbo has a count in the caller's section, or
        // loom fails.
        unsafe {
            Arc::increment_strong_count(header);
            Arc::from_raw(header)
        }
    }

    fn of(&self, word: Word) -> &Segment {
        // SAFETY: as in `at`, which watches it.
        unsafe { self.at(word).header.as_ref() }
    }

    fn bury(&self, word: Word, _section: &Guard<'_>) -> Retired {
        let last = self
            .of(word)
            .stage
            .remove(SIZE, |dead| self.note_dead(dead));
        last.then(|| self.take_away(self.at(word).segment))
    }

    /// As `Lists::take_away`, into limbo.
    pub fn take_away(&self, segment: usize) -> (Cookie, SegmentRef) {
        self.taken.fetch_add(1, Ordering::Relaxed);
        let segment = self.lists[segment]
            .lock()
            .unwrap()
            .take()
            .expect("on its list");
        (global().get_state(), segment)
    }

    /// As `Pool::release`: frees it if readers have left. Else it stays to the end.
    pub fn release(&self, retired: Retired) {
        if let Some((cookie, segment)) = retired
            && !global().poll(cookie)
        {
            self.limbo.lock().unwrap().push(segment);
        }
    }

    /// Takes items out of a sealed segment: the first becomes the second, if there is one, which is a
    /// copy with less heat; as `Lists::evacuate`.
    pub fn evacuate(&self, segment: usize, items: &[(usize, Option<usize>)]) -> Retired {
        let from = self.segment(segment);
        if !from.stage.leave(|dead| self.note_dead(dead)) {
            return None;
        }
        assert!(from.stage.end() > SEGMENT_HEADER, "its items are known");
        for &(item, copy) in items {
            self.take_out(&from, item, copy);
        }
        Some(self.take_away(segment))
    }

    /// The same for one item, without memory for a copy of the next.
    pub fn evacuate_partly(&self, segment: &SegmentRef, item: usize, number: usize) -> Retired {
        let note = |dead| self.note_dead(dead);
        if !segment.stage.leave(note) {
            return None;
        }
        self.take_out(segment, item, None);
        segment.stage.stay(note).then(|| self.take_away(number))
    }

    fn take_out(&self, from: &Segment, item: usize, copy: Option<usize>) {
        let section = read_lock();
        let (old, word) = (&self.items[item], self.word(item));
        // As `item_at` does.
        let value = Self::value(old);
        let mut bucket = self.index.lock(old.hash, &section);
        let Some((slot, _)) = bucket.find(old.hash, |found| found == word) else {
            return;
        };
        match copy {
            Some(copy) => {
                self.write(copy, value);
                self.copy_words(old, copy);
                bucket.put(slot, self.word(copy));
            }
            None => {
                bucket.clear(slot);
                bucket.trim();
            }
        }
        drop(bucket);
        let last = from.stage.remove(SIZE, |dead| self.note_dead(dead));
        assert!(!last, "it is leaving already");
    }

    fn copy_words(&self, old: &Item, copy: usize) {
        let to = &self.items[copy];
        let bits = Access::cooler_bits(old.access.bits(), 1);
        to.access.set_bits(bits);
        let exptime = old.exptime.load(Ordering::Relaxed);
        to.exptime.store(exptime, Ordering::Relaxed);
    }
}
