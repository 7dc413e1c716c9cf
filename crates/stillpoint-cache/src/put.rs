//! What changes a cache. Each change of the map follows the rule of [`crate::node`]: claim, then
//! take out.

use crate::{
    cache::Cache,
    cause::{Cause, InsertError},
    listener::Notes,
    node::{Id, LONGEST, Meta, NEVER, Node},
    state::{Claimed, Room},
    statistics::Event,
    tenant::Handle,
};
use std::{
    hash::{BuildHasher, Hash},
    sync::Arc,
    time::Duration,
};
use stillpoint::Guard;
use stillpoint_map::{
    Equivalent,
    internal::{Found, NewEntry},
};
use stillpoint_platform::clock::nanos;

/// An entry that is in the map, and the tenant of the one that it has replaced.
type Published<'g, K, V> = (Found<'g, K, Node<V>>, Option<Arc<Handle>>);

/// What an insert may replace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    Any,
    Expired,
}

/// What an entry is taken to weigh beside key and value.
const OVERHEAD: u64 = 64;

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Inserts an entry, in place of the one with its key. Evicts what it needs the room of.
    ///
    /// An entry that replaces another, which had not expired, belongs to the tenant of that one,
    /// whichever view inserts it, and is subject to that tenant's limits. (So Linux charges a page to
    /// the group that used it first.) A new one belongs to the tenant of the view.
    ///
    /// An entry that is refused ([`try_insert`](Self::try_insert) says why) is dropped, and
    /// counted; the one with its key is gone as well.
    pub fn insert(&self, key: K, value: V) {
        let _ = self.put(key, value, None, Over::Any);
    }

    /// As [`insert`](Self::insert), unless there is an entry with that key by now.
    pub(crate) fn insert_absent(&self, key: K, value: V) {
        let _ = self.put(key, value, None, Over::Expired);
    }

    /// As [`insert`](Self::insert), of an entry that expires after `ttl`.
    pub fn insert_with_ttl(&self, key: K, value: V, ttl: Duration) {
        let _ = self.put(key, value, Some(ttl), Over::Any);
    }

    /// As [`insert`](Self::insert).
    ///
    /// # Errors
    ///
    /// If there is no room for it below a limit, which the error names. An older entry with its key
    /// is gone then, too.
    pub fn try_insert(&self, key: K, value: V) -> Result<(), InsertError> {
        self.put(key, value, None, Over::Any)
    }

    fn put(&self, key: K, value: V, ttl: Option<Duration>, over: Over) -> Result<(), InsertError> {
        let inner = self.inner();
        let weight = match &inner.weigher {
            Some(weigh) => weigh(&key, &value).max(1),
            None => (size_of::<K>() + size_of::<V>()) as u64 + OVERHEAD,
        };
        let (expires, latest) = self.lifetime(&key, &value, ttl);
        let hash = self.hash(&key);
        let node = Node {
            meta: Meta::new(weight, hash as u32, expires, latest),
            value,
        };
        // Told after the section: declared before it.
        let mut notes = inner.notes();
        let guard = inner.store.read_lock();
        let new = inner.store.new_entry(hash, key, node, &guard);
        let (new, owner) = match self.publish(new, over, &guard, &mut notes) {
            Ok(published) => published,
            Err(unused) => {
                // Its destructors are user code: outside of the section.
                drop(guard);
                drop(unused);
                return Ok(());
            }
        };
        let owner = owner.as_ref().unwrap_or(self.handle());
        let done = self.link(new, owner, weight, expires, &guard, &mut notes);
        drop(guard);
        notes.tell();
        done.inspect_err(|_| self.counters().count(Event::Refused))
    }

    /// When an entry expires unless it is used, and when however much it is used.
    fn lifetime(&self, key: &K, value: &V, ttl: Option<Duration>) -> (u64, u64) {
        let (inner, expiry) = (self.inner(), &self.inner().expiry);
        let after = || expiry.after.as_ref().and_then(|after| after(key, value));
        let mut live = ttl.or_else(after).map(nanos).or(expiry.live);
        if expiry.idle.is_some() {
            live = live.map(|live| live.min(LONGEST));
        }
        if live.is_none() && expiry.idle.is_none() {
            return (NEVER, NEVER);
        }
        let now = inner.clock.now();
        let at = |span: Option<u64>| span.map_or(NEVER, |span| now.saturating_add(span));
        (at(live).min(at(expiry.idle)), at(live))
    }

    /// Puts an entry into the map, in place of the one with its key. Returns it, and the tenant that
    /// had that one. Gives it back if it may not replace it.
    fn publish<'g>(
        &'g self,
        mut new: NewEntry<K, Node<V>>,
        over: Over,
        guard: &'g Guard<'_>,
        notes: &mut Notes<'_, K, V>,
    ) -> Result<Published<'g, K, V>, NewEntry<K, Node<V>>> {
        let store = &self.inner().store;
        let mut owner = None;
        loop {
            let found = store.find(new.hash(), guard, |other| *other == new.key);
            match found {
                None => match store.insert(new, false, guard, |a, b| a == b) {
                    Ok(inserted) => return Ok((inserted.new, owner)),
                    Err(occupied) => new = occupied.new,
                },
                Some(old) => {
                    let cause = if self.inner().has_expired(old) {
                        Cause::Expired
                    } else {
                        Cause::Replaced
                    };
                    if over == Over::Expired && cause == Cause::Replaced {
                        return Err(new);
                    }
                    let claimed = self.claim(old, cause, guard);
                    let replaced = store.replace(old, new, guard);
                    if let Some(had) = claimed {
                        notes.add(old, cause);
                        owner = (cause == Cause::Replaced).then_some(had);
                    }
                    match replaced {
                        Ok(new) => return Ok((new, owner)),
                        Err(refused) => new = refused,
                    }
                }
            }
        }
    }

    /// Makes room for an entry that is in the map, and links it.
    fn link(
        &self,
        new: Found<'_, K, Node<V>>,
        owner: &Arc<Handle>,
        weight: u64,
        expires: u64,
        guard: &Guard<'_>,
        notes: &mut Notes<'_, K, V>,
    ) -> Result<(), InsertError> {
        let (inner, id) = (self.inner(), Id::of(new));
        let mut claimed = Claimed::default();
        loop {
            let (mut state, mut locked) = inner.lock(guard);
            let number = owner.number(state.generation);
            let made = state
                .make_room(&mut locked, number, weight, &mut claimed)
                .map_err(|no_room| state.refusal(no_room, weight));
            match &made {
                Ok(Room::Made) => {
                    state.link(&mut locked, id, number, expires);
                }
                Ok(Room::Again) => {}
                Err(_) => {
                    state.claim(&mut locked, id);
                }
            }
            let timers = state.has_timers();
            drop(state);
            self.take_out(&mut claimed, Cause::Evicted, guard, notes);
            match made {
                Ok(Room::Made) => {
                    if timers {
                        self.expire(guard, notes, 1);
                    }
                    return Ok(());
                }
                Ok(Room::Again) => {}
                Err(refused) => {
                    inner.store.remove(new, guard);
                    return Err(refused);
                }
            }
        }
    }

    /// Takes out what has expired: some batches.
    pub(crate) fn expire(&self, guard: &Guard<'_>, notes: &mut Notes<'_, K, V>, batches: u64) {
        let now = self.inner().clock.now();
        for _ in 0..batches {
            let mut claimed = Claimed::default();
            let (mut state, mut locked) = self.inner().lock(guard);
            let more = state.expire(&mut locked, now, &mut claimed);
            drop(state);
            self.take_out(&mut claimed, Cause::Expired, guard, notes);
            if !more {
                return;
            }
        }
    }

    /// Takes entries out of the map that this thread has claimed.
    fn take_out(
        &self,
        claimed: &mut Claimed,
        cause: Cause,
        guard: &Guard<'_>,
        notes: &mut Notes<'_, K, V>,
    ) {
        let all: [Option<Id>; crate::state::BATCH] = claimed.take();
        for id in all.iter().flatten() {
            // SAFETY: claimed in the section; of this cache.
            self.inner().store.remove(unsafe { id.found() }, guard);
        }
        // Clones run user code: all are out of the map by then.
        for &id in all.iter().flatten() {
            // SAFETY: as above.
            unsafe { notes.add_claimed(id, cause) };
        }
    }

    /// Claims an entry. Returns whose it is; `None` if it was claimed before. One that is claimed
    /// before it was linked is the calling view's.
    fn claim(
        &self,
        entry: Found<'_, K, Node<V>>,
        cause: Cause,
        guard: &Guard<'_>,
    ) -> Option<Arc<Handle>> {
        let (mut state, mut locked) = self.inner().lock(guard);
        let id = Id::of(entry);
        let owner = match state.owner(&mut locked, id) {
            Some(number) => Arc::clone(&state.tenant(number).handle),
            None => Arc::clone(self.handle()),
        };
        let events = state.claim(&mut locked, id)?;
        *match cause {
            Cause::Replaced => &mut events.replaced,
            Cause::Expired => &mut events.expired,
            Cause::Evicted => &mut events.evicted,
            Cause::Removed => &mut events.removed,
        } += 1;
        Some(owner)
    }

    /// Removes an entry, and returns a clone of its value.
    pub fn remove<Q>(&self, key: &Q) -> Option<V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
        V: Clone,
    {
        self.remove_with(key, V::clone)
    }

    /// Removes an entry. Returns whether there was one.
    pub fn invalidate<Q>(&self, key: &Q) -> bool
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.remove_with(key, |_| ()).is_some()
    }

    fn remove_with<Q, R>(&self, key: &Q, of: impl FnOnce(&V) -> R) -> Option<R>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let mut notes = self.inner().notes();
        let guard = self.inner().store.read_lock();
        loop {
            let found = self.find(key, &guard)?;
            let over = self.inner().has_expired(found);
            if self.take(found, over, &guard, &mut notes) {
                return (!over).then(|| of(&found.get().value.value));
            }
        }
    }

    /// Claims an entry and takes it out. Returns false if it was no longer in the map.
    fn take(
        &self,
        found: Found<'_, K, Node<V>>,
        over: bool,
        guard: &Guard<'_>,
        notes: &mut Notes<'_, K, V>,
    ) -> bool {
        let cause = if over { Cause::Expired } else { Cause::Removed };
        let claimed = self.claim(found, cause, guard);
        let removed = self.inner().store.remove(found, guard);
        if claimed.is_some() {
            notes.add(found, cause);
        }
        removed
    }

    /// Removes all entries of the tenant and all below it; of those that are inserted meanwhile,
    /// some. Does nothing if the tenant has been deleted.
    pub fn invalidate_all(&self) {
        // Handles, not numbers: a number may be another tenant's by the time of its turn.
        let handles = self.with_own(|state, number| {
            let all = state.below(number);
            all.map(|number| Arc::clone(&state.tenant(number).handle))
                .collect::<Vec<_>>()
        });
        for handle in handles.unwrap_or_default() {
            self.claim_all_of(&handle);
        }
    }

    /// Removes all entries of one tenant, as long as it is there.
    pub(crate) fn claim_all_of(&self, handle: &Arc<Handle>) {
        self.in_batches(
            |state, locked, claimed| {
                handle
                    .own_number(state.generation)
                    .is_some_and(|number| state.claim_all(locked, number, claimed))
            },
            Cause::Removed,
        );
    }

    /// Evicts until the tenant uses no more than that.
    pub(crate) fn shrink_to(&self, bytes: u64) {
        let handle = self.handle();
        self.in_batches(
            |state, locked, claimed| {
                handle
                    .own_number(state.generation)
                    .is_some_and(|number| state.shrink(locked, number, bytes, claimed))
            },
            Cause::Evicted,
        );
    }

    /// Evicts so many entries, if there are that many that no min protects. Returns how many.
    pub(crate) fn evict_some(&self, entries: usize) -> usize {
        let (handle, mut evicted) = (self.handle(), 0);
        self.in_batches(
            |state, locked, claimed| {
                let Some(number) = handle.own_number(state.generation) else {
                    return false;
                };
                while evicted < entries && !claimed.is_full() {
                    if !state.give_back(locked, number, claimed) {
                        return false;
                    }
                    evicted += 1;
                }
                evicted < entries
            },
            Cause::Evicted,
        );
        evicted
    }

    /// Claims batches while `claim` returns true, each in a section.
    fn in_batches(
        &self,
        mut claim: impl FnMut(&mut crate::state::State, &mut crate::node::Locked, &mut Claimed) -> bool,
        cause: Cause,
    ) {
        let mut again = true;
        while again {
            let mut notes = self.inner().notes();
            let guard = self.inner().store.read_lock();
            let mut claimed = Claimed::default();
            let (mut state, mut locked) = self.inner().lock(&guard);
            again = claim(&mut state, &mut locked, &mut claimed);
            drop(state);
            self.take_out(&mut claimed, cause, &guard, &mut notes);
        }
    }

    /// Removes the entries of the tenant and all below it for which `condition` returns true.
    /// Returns how many; 0 if the tenant has been deleted.
    ///
    /// `condition` runs inside sections, a few buckets at a time, and outside of locks.
    pub fn invalidate_entries_if(&self, mut condition: impl FnMut(&K, &V) -> bool) -> u64 {
        let (mut position, mut removed) = (Some(0), 0);
        while position.is_some() {
            let mut notes = self.inner().notes();
            let guard = self.inner().store.read_lock();
            let mut entries = self.inner().store.iter_from(position, &guard);
            for _ in 0..crate::iter::HOMES {
                for found in entries.next_home() {
                    let entry = found.get();
                    if self.has_itself(found, &guard)
                        && condition(&entry.key, &entry.value.value)
                        && self.take(found, self.inner().has_expired(found), &guard, &mut notes)
                    {
                        removed += 1;
                    }
                }
                position = entries.position();
            }
        }
        removed
    }

    /// Whether the tenant or one below it has the entry; where it has been deleted, the one above.
    pub(crate) fn has(&self, found: Found<'_, K, Node<V>>, guard: &Guard<'_>) -> bool {
        self.has_below(found, guard, |handle, of| Some(handle.number(of)))
    }

    /// As [`has`](Self::has), but a tenant that has been deleted has nothing.
    fn has_itself(&self, found: Found<'_, K, Node<V>>, guard: &Guard<'_>) -> bool {
        self.has_below(found, guard, Handle::own_number)
    }

    fn has_below(
        &self,
        found: Found<'_, K, Node<V>>,
        guard: &Guard<'_>,
        number: impl FnOnce(&Arc<Handle>, u64) -> Option<u32>,
    ) -> bool {
        let whole = self.handle().parent.is_none();
        whole || {
            let (state, mut locked) = self.inner().lock(guard);
            let of = locked.of(Id::of(found)).tenant;
            let above = number(self.handle(), state.generation);
            state.is_there(of) && above.is_some_and(|above| state.is_within(of, above))
        }
    }

    /// Takes out what has expired, without waiting for an insert to do so.
    pub fn run_pending(&self) {
        let mut notes = self.inner().notes();
        let guard = self.inner().store.read_lock();
        self.expire(&guard, &mut notes, u64::MAX);
    }
}
