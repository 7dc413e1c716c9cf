//! Caches of byte values, whose values lie in an [arena](crate::arena). Moves those together that lie here and
//! there.
//!
//! The service thread goes through the map, some buckets in each section, as an iteration does. A
//! value that lies in a run which is to leave is copied to another one, and the entry's word is
//! changed; the old place is freed after a grace period, as readers may be in it. Values of which
//! there are clones are moved for the cache, and stay where they are for those.

use crate::{
    arena::{Arena, Bytes, NoMemory},
    cache::Cache,
    memory::NONE,
    removal::InsertError,
    statistics::Event,
};
use std::{
    any::Any,
    hash::{BuildHasher, Hash},
    ptr::NonNull,
    sync::atomic::Ordering,
};
use stillpoint_platform::clock::{self, Nanos};

/// Number of sections in a visit, for which other caches wait.
const STEPS: usize = 256;

/// Upper bound on the values that are moved in a section.
const BATCH: usize = 128;

/// Caches of byte values.
impl<K, S> Cache<K, Bytes, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Returns the arena of the cache, which all of its views share.
    #[must_use]
    pub fn arena(&self) -> &Arena {
        let arena = self.inner.memory.arena.as_ref();
        arena.expect("a cache of bytes has one")
    }

    /// Copies bytes into the cache's arena, to be inserted: for loaders.
    ///
    /// # Errors
    ///
    /// If the system has no memory for them.
    ///
    /// ```
    /// use stillpoint_cache::{Bytes, Cache};
    ///
    /// let pages: Cache<u64, Bytes> = Cache::with_bytes(1 << 20);
    /// let page = pages.try_get_with(&1, || pages.bytes(b"one"));
    /// assert_eq!(&*page?, b"one");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn bytes(&self, bytes: &[u8]) -> Result<Bytes, NoMemory> {
        self.arena().bytes(bytes)
    }

    /// As [`try_insert`](Self::try_insert), of bytes that are copied into the cache's arena.
    ///
    /// # Errors
    ///
    /// As for [`try_insert`](Self::try_insert). Without memory for the bytes, the key keeps its older
    /// entry.
    ///
    /// ```
    /// use stillpoint_cache::{Bytes, Cache};
    ///
    /// let pages: Cache<u64, Bytes> = Cache::with_bytes(64 << 20);
    /// for number in 0..40_000_u64 {
    ///     pages.insert_bytes(number, &[7; 1000])?;
    /// }
    /// assert_eq!(pages.get_ref(&39_999).map(|page| page.len()), Some(1000));
    /// pages.set_max_bytes(16 << 20); // what is evicted leaves the process
    /// # Ok::<(), stillpoint_cache::InsertError>(())
    /// ```
    pub fn insert_bytes(&self, key: K, bytes: &[u8]) -> Result<(), InsertError> {
        match self.bytes(bytes) {
            Ok(value) => self.try_insert(key, value),
            Err(NoMemory { bytes, .. }) => {
                self.handle.counters.add(Event::Refused, 1);
                let weight = bytes as u64;
                Err(InsertError::NoMemory { weight })
            }
        }
    }
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Moves some values, if that is worth it. Returns when to go on.
    pub(crate) fn compact(&self) -> Option<Nanos> {
        let memory = &self.inner.memory;
        let arena = memory.arena.as_ref().filter(|arena| !arena.is_lost())?;
        let compaction = &memory.compaction;
        let mut position = match compaction.position.load(Ordering::Relaxed) {
            NONE => match compaction.begin(arena, clock::now()) {
                Ok(()) => 0,
                Err(next) => return next,
            },
            position => position,
        };
        let mut next = Some(position);
        for _ in 0..STEPS {
            next = self.move_some(position, arena, |_| ());
            match next {
                Some(then) => position = then,
                None => break,
            }
        }
        let now = clock::now();
        let position = next.unwrap_or(NONE);
        compaction.position.store(position, Ordering::Relaxed);
        if position != NONE {
            return Some(now);
        }
        // What has been freed meanwhile may be worth another one.
        let then = now + compaction.pause.load(Ordering::Relaxed);
        compaction.not_before.store(then, Ordering::Relaxed);
        Some(then)
    }

    /// Moves what is to be moved in some buckets; `see` is shown the old places. Returns where to go
    /// on; `None` at the end.
    fn move_some(&self, position: u64, arena: &Arena, see: impl Fn(&[Bytes])) -> Option<u64> {
        let (mut next, mut batch, mut weight) = (Some(position), Vec::new(), 0);
        let section = self.inner.section();
        let store = &*section;
        let mut entries = store.iter_from(next);
        'homes: for _ in 0..crate::iter::HOMES {
            for found in entries.next_home() {
                let value: &dyn Any = &found.get().value.value;
                let Some(value) = value.downcast_ref::<Bytes>() else {
                    continue;
                };
                if batch.len() == BATCH {
                    // Many have gone to one bucket: the rest is for the next time.
                    continue;
                }
                // SAFETY: the value is an entry's, which is only read in sections of the store, by
                // references and guards that end with these; the batch waits for them below.
                match unsafe { value.leave(arena) } {
                    Ok(None) => continue,
                    Ok(Some(old)) => {
                        weight += old.footprint();
                        batch.push(old);
                    }
                    Err(_) => {
                        next = None;
                        break 'homes;
                    }
                }
            }
            next = entries.position();
            if next.is_none() {
                break;
            }
        }
        see(&batch);
        drop(section);
        if !batch.is_empty() {
            arena.note_moved(batch.len());
            let batch = NonNull::from(Box::leak(Box::new(batch)));
            // SAFETY: from a box; readers that begin from now on find the new places.
            unsafe { stillpoint::global().retire_weighed(batch, weight) };
        }
        next
    }
}

/// Moves all that lies where it is not to stay, and writes over the old places before readers have
/// left them: broken on purpose, to see that torture detects it.
///
/// # Safety
///
/// No thread has clones of the cache's values, or uses of these more than their bytes, which it
/// takes for whatever they are.
pub unsafe fn move_and_overwrite<K, S>(cache: &Cache<K, Bytes, S>)
where
    K: Hash + Eq + Send + Sync + 'static,
    S: BuildHasher,
{
    let (arena, mut position) = (cache.arena(), Some(0));
    arena.begin_moving();
    while let Some(from) = position {
        // SAFETY: the caller's promise.
        let overwrite = |old: &[Bytes]| old.iter().for_each(|old| unsafe { old.overwrite() });
        position = cache.move_some(from, arena, overwrite);
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use crate::memory::Memory;

    type Pages = Cache<u64, Bytes>;

    /// Returns a cache that the service thread does not know.
    fn unvisited() -> Pages {
        let memory = Memory::of::<Bytes>();
        let builder = Pages::builder();
        Cache::unvisited(builder.settings, builder.hasher, memory)
    }

    /// Returns a value that fits into a slot. Slots are small in Miri.
    fn content(key: u64) -> Vec<u8> {
        let words = if cfg!(miri) { 6 } else { 100 };
        key.to_le_bytes().repeat(4 + key as usize % words)
    }

    /// A section keeps the old places, and slices that were found there before a move.
    #[test]
    fn slices_outlast_moves_in_their_section() {
        let (pages, keys) = (unvisited(), if cfg!(miri) { 200 } else { 8000 });
        for key in 0..keys {
            let value = pages.bytes(&content(key)).expect("memory");
            pages.insert(key, value);
        }
        pages.invalidate_entries_if(|key, _| key % 4 > 0);
        stillpoint::global().kvfree_barrier();
        let arena = pages.arena();
        let before = arena.statistics();
        assert_eq!((before.values, before.moved), (keys / 4, 0));
        {
            let found = (0..keys).step_by(4).map(|key| (key, pages.get_ref(&key)));
            let held: Vec<_> = found.collect();
            let slices: Vec<(u64, &[u8])> = held
                .iter()
                .map(|(key, page)| (*key, &***page.as_ref().expect("an entry")))
                .collect();
            let begun = arena.is_scattered();
            assert!(begun && pages.compact().is_some());
            // Some batches, so that pages of what is retired are full.
            while pages
                .inner
                .memory
                .compaction
                .position
                .load(Ordering::Relaxed)
                != NONE
            {
                pages.compact();
            }
            let now = arena.statistics();
            assert!(now.moved >= keys / 16, "{now:?}");
            assert_eq!(now.values, before.values + now.moved, "the old places");
            for (key, slice) in slices {
                assert!(*slice == content(key), "of {key}");
            }
        }
        stillpoint::global().kvfree_barrier();
        let after = arena.statistics();
        assert_eq!(after.values, before.values);
        assert!(
            after.held_bytes < before.held_bytes,
            "{before:?}, {after:?}"
        );
    }
}
