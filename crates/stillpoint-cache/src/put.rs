//! What puts entries in. Each change follows the rule of [`crate::node`]: what is retired has been
//! claimed.

use crate::{
    cache::{Cache, Pinned, Presence, Settings},
    listener::Notes,
    node::{Id, LONGEST, Locked, Meta, NEVER, Node, Stage, TICK},
    policy::Nodes,
    removal::{Cause, InsertError},
    state::{Claimed, Entrant, Inheritance, Load, Refusal, State, Ticket},
    statistics::Event,
};
use std::{
    hash::{BuildHasher, Hash},
    panic::{self, AssertUnwindSafe},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use stillpoint_map::internal::{Found, NewEntry, PinnedStore, Sound, prefetch};
use stillpoint_platform::{clock::nanos, sync::MutexGuard};

#[cfg(test)]
mod tests;

/// A new entry until the map has it. Declared before the section, so that it is dropped after that, even if user code
/// panics: its destructors are user code.
type Made<K, V> = Option<NewEntry<K, V>>;

/// An entry that is in the map.
struct Published<'g, K, V> {
    new: Found<'g, K, Node<V>>,
    /// The entry that it has replaced there, and why. That one is still in its queue, and has to be retired.
    old: Option<Replaced<'g, K, V>>,
    /// The lock of the queues, if it was taken before.
    held: Option<Held<'g>>,
}

type Replaced<'g, K, V> = (Found<'g, K, Node<V>>, Cause);

/// The lock of the queues, while it is held.
type Held<'a> = (MutexGuard<'a, State>, Locked);

fn unpublished<K, V>(made: &Made<K, V>) -> &NewEntry<K, V> {
    made.as_ref().expect("no map has it")
}

/// Puts the entry that is `made` into a map.
///
/// # Errors
///
/// The entry that its key has there.
///
/// # Panics
///
/// If `Eq` does. The entry stays where it is.
#[inline(always)]
pub fn add<'g, K, V>(
    store: &'g PinnedStore<K, V, Sound>,
    made: &mut Made<K, V>,
) -> Result<Found<'g, K, V>, Found<'g, K, V>>
where
    K: Eq + Send + 'static,
    V: Send + 'static,
{
    let mut panicked = None;
    let is_same = |other: &K, key: &K| {
        let is_same = panic::catch_unwind(AssertUnwindSafe(|| other == key));
        is_same.unwrap_or_else(|payload| {
            panicked = Some(payload);
            true
        })
    };
    let new = made.take().expect("no map has it");
    store
        .insert(new, false, is_same)
        .map(|inserted| inserted.new)
        .map_err(|occupied| {
            *made = Some(occupied.new);
            if let Some(payload) = panicked {
                panic::resume_unwind(payload);
            }
            occupied.old
        })
}

/// Puts the entry that is `made` where `old` is in the map. Returns `None`, and leaves it, if that is not there
/// any more.
///
/// # Panics
///
/// If the hashes differ.
fn swap<'g, K, V>(
    store: &'g Pinned<K, V>,
    old: Found<'g, K, Node<V>>,
    made: &mut Made<K, Node<V>>,
) -> Option<Found<'g, K, Node<V>>>
where
    K: Send + 'static,
    V: Send + 'static,
{
    let swapped = store.swap(old, made.take()?);
    swapped.map_err(|new| *made = Some(new)).ok()
}

/// Ignores the value that an insert replaces. A function, because each closure would be compiled with its own
/// copy of [`Cache::put`].
pub fn unseen<V>(_: Option<&V>) {}

/// Returns what an entry owns beside its block, in bytes: the domain counts it so while it is
/// unreclaimed.
pub fn owned<K, V>(entry: Found<'_, K, Node<V>>) -> usize {
    entry.get().value.meta.owned()
}

/// The origin of an entry.
#[derive(Debug, Clone, Copy)]
pub enum Origin<'a> {
    /// The program inserts it: it replaces any other.
    Insert,
    /// The program inserts it if there is none: it replaces an expired or hidden entry only.
    IfAbsent,
    /// A load brings it: it replaces an expired or hidden entry only. An invalidation makes the load outdated
    /// under the lock, and then its entry is not kept. So the entry stays hidden until its inserter has the
    /// lock, knows that the load is not outdated, and links it. It does not inherit the place of what it replaces.
    ///
    /// Or a compute brings it. If the entry that the compute has seen is still there, the new one replaces it,
    /// and goes on as [`Insert`](Self::Insert). Otherwise the compute is a load.
    Load(&'a Arc<Load>, Option<Id>),
}

impl Origin<'_> {
    /// Returns whether its load is outdated; for certain only where the lock of the queues is held.
    #[inline]
    fn is_outdated(self) -> bool {
        matches!(self, Self::Load(load, _) if load.is_outdated.load(Ordering::Relaxed))
    }

    /// Makes room for a new entry, for which `reserved` bytes are charged already, and links it: see
    /// [`State::admit`]. If its load is outdated, claims it. Returns also why the entry is not kept, if so.
    #[inline(always)]
    fn admit(
        self,
        state: &mut State,
        locked: &mut Locked,
        (id, entrant, reserved): (Id, Entrant, u64),
        claimed: &mut Claimed,
    ) -> (Result<Option<Ticket>, Refusal>, Option<Cause>) {
        let is_outdated = self.is_outdated() && state.claim(locked, id, Some(Cause::Removed));
        let admitted = state.admit(locked, id, entrant, reserved, claimed);
        if matches!(self, Self::Load(..)) && locked.of(id).stage == Stage::Linked {
            // SAFETY: the caller's section keeps it.
            unsafe { id.meta() }.appear(entrant.expires);
        }
        let gone = match admitted {
            Err(_) => Some(Cause::Refused),
            Ok(_) => is_outdated.then_some(Cause::Removed),
        };
        (admitted, gone)
    }
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Inserts an entry, in place of the one with its key. Evicts what it needs the room of.
    ///
    /// An entry that replaces another belongs to that one's tenant, whichever view inserts it, and is
    /// subject to that tenant's limits. (So Linux charges a page to the group that used it first.) A new
    /// one, and one that replaces an entry that has expired or that an invalidation under way is about to
    /// remove, belongs to the tenant of the view. Where views of several tenants insert one key at the
    /// same instant, the entry that stays may be of any of them: one may replace another's before that is
    /// its tenant's. It is charged once, to its tenant.
    ///
    /// An entry that is refused ([`try_insert`](Self::try_insert) says why) is dropped and
    /// counted, and the listener is told of it ([`Cause::Refused`]). The one with its key is gone as well,
    /// as it is not what the program wants to be found: [`Cause::Removed`].
    pub fn insert(&self, key: K, value: V) {
        let _ = self.put(key, value, None, Origin::Insert, unseen);
    }

    /// As [`insert`](Self::insert), and returns a clone of the value that was replaced: readers may have the
    /// value itself. If the clone panics, nothing is inserted.
    ///
    /// ```
    /// use stillpoint_cache::Cache;
    ///
    /// let cache: Cache<u64, u64> = Cache::with_entries(100);
    /// assert_eq!((cache.replace(1, 2), cache.replace(1, 3)), (None, Some(2)));
    /// ```
    pub fn replace(&self, key: K, value: V) -> Option<V>
    where
        V: Clone,
    {
        // If another insert replaces the value first, its clone is dropped outside of the section, too.
        let (mut old, mut older) = (None, Vec::new());
        let _ = self.put(key, value, None, Origin::Insert, |value| {
            older.extend(std::mem::replace(&mut old, value.cloned()));
        });
        old
    }

    /// As [`insert`](Self::insert), unless the key has an entry, which then stays. Returns whether the entry was
    /// inserted: false also if it was refused. It does not wait for a load of the key that is under way. The
    /// loaded value is not kept then, unless the inserted entry is evicted or expires before the load ends.
    ///
    /// ```
    /// use stillpoint_cache::Cache;
    ///
    /// let cache: Cache<u64, u64> = Cache::with_entries(100);
    /// assert!(cache.insert_if_absent(1, 2) && !cache.insert_if_absent(1, 3));
    /// assert_eq!(cache.get(&1), Some(2));
    /// ```
    pub fn insert_if_absent(&self, key: K, value: V) -> bool {
        self.put(key, value, None, Origin::IfAbsent, unseen) == Ok(true)
    }

    /// As [`insert`](Self::insert), of an entry that expires after `ttl`.
    pub fn insert_with_ttl(&self, key: K, value: V, ttl: Duration) {
        let _ = self.put(key, value, Some(ttl), Origin::Insert, unseen);
    }

    /// As [`insert`](Self::insert).
    ///
    /// # Errors
    ///
    /// If there is no room for it below a limit, which the error names. An older entry with its key may be
    /// gone then, too.
    pub fn try_insert(&self, key: K, value: V) -> Result<(), InsertError> {
        let put = self.put(key, value, None, Origin::Insert, unseen);
        put.map(|_| ())
    }

    /// Puts an entry in. Calls `see` with the value that it is about to replace, and again if another insert has
    /// replaced that first. Returns whether the entry was put in.
    ///
    /// # Errors
    ///
    /// If there is no room for it.
    pub(crate) fn put(
        &self,
        key: K,
        value: V,
        ttl: Option<Duration>,
        mut origin: Origin<'_>,
        see: impl FnMut(Option<&V>),
    ) -> Result<bool, InsertError> {
        let inner = &self.inner;
        // User code, before the section.
        let (expires, latest) = self.lifetime(&key, &value, ttl);
        let weighed = inner.settings.scale.weigh(&key, &value, expires != NEVER);
        let is_pinned = inner.settings.is_pinned.as_ref();
        let pinned = is_pinned.is_some_and(|is| is(&key, &value));
        let hash = self.hash(&key);
        let mut linked = {
            let mut made: Made<K, Node<V>> = None;
            // Told after the section: declared before it.
            let mut notes = inner.notes();
            let store = &inner.section();
            // The bucket arrives while the entry is made.
            store.fetch(hash);
            let meta = Meta::new(weighed, hash, expires, latest, pinned);
            let new = made.insert(store.new_entry(hash, key, Node { value, meta }));
            // Most inserts replace, and a look costs less than to find the place taken.
            let there = store.find(hash, |other| *other == new.key);
            let Some(published) = self.publish(&mut made, there, origin, store, see) else {
                return Ok(false);
            };
            if published.held.is_some() {
                // A compute has replaced the entry that it has seen: look-ups find the new one, and no
                // invalidation before this matters.
                origin = Origin::Insert;
            }
            self.link(published, origin, expires, store, &mut notes)
        };
        // The rest of the room is made in batches with a section each.
        while let Ok(Some(ticket)) = linked {
            linked = self.link_in_more_room(ticket, origin);
        }
        linked.map(|_| true).map_err(|refused| {
            self.handle.counters.add(Event::Refused, 1);
            *refused
        })
    }

    /// Returns the time at which an entry expires unless it is used, and the time at which it expires in any
    /// case.
    fn lifetime(&self, key: &K, value: &V, ttl: Option<Duration>) -> (u64, u64) {
        let Settings { clock, expiry, .. } = &self.inner.settings;
        let after = || expiry.after.as_ref().and_then(|after| after(key, value));
        let mut live = ttl.or_else(after).map(nanos).or(expiry.live);
        if expiry.idle.is_some() {
            live = live.map(|live| live.min(LONGEST));
        }
        if live.is_none() && expiry.idle.is_none() {
            return (NEVER, NEVER);
        }
        let now = clock.now();
        // 0 is for hidden entries.
        let at = |span: Option<u64>| span.map_or(NEVER, |span| now.saturating_add(span).max(1));
        (at(live).min(at(expiry.idle)), at(live))
    }

    /// Puts the entry that is `made` into the map, in place of the one with its key: the one that was seen `there`,
    /// if that is there still. Returns `None`, and leaves the entry where it is, if it may not replace that.
    fn publish<'g>(
        &'g self,
        made: &mut Made<K, Node<V>>,
        mut there: Option<Found<'g, K, Node<V>>>,
        origin: Origin<'_>,
        store: &'g Pinned<K, V>,
        mut see: impl FnMut(Option<&V>),
    ) -> Option<Published<'g, K, V>> {
        if let Origin::Load(load, seen) = origin {
            if let Some(id) = seen {
                let (mut state, mut locked) = self.inner.lock(store);
                if state.unwatch(&mut locked, id, load) {
                    // SAFETY: of this cache. It had not been claimed under the lock just now, so it was not
                    // retired before this section began.
                    let old: Found<'g, K, Node<V>> = unsafe { id.found() };
                    // Otherwise the key's `Hash` does not agree with itself.
                    if old.hash() == unpublished(made).hash() {
                        let presence = self.inner.presence(&old.get().value.meta);
                        unpublished(made).value.meta.set_replaced(Some(id));
                        // Under the lock, as the new entry is found at once: an invalidation that comes after
                        // this takes that one. If it fails, another insert has replaced the old one, and waits
                        // for the lock.
                        let new = swap(store, old, made)?;
                        let old = Some((old, presence.cause(Cause::Replaced)));
                        let held = Some((state, locked));
                        return Some(Published { new, old, held });
                    }
                }
            }
            if origin.is_outdated() {
                return None;
            }
            unpublished(made).value.meta.hide();
        }
        let published = |new, old| Published {
            new,
            old,
            held: None,
        };
        loop {
            let old = if let Some(old) = there.take() {
                old
            } else {
                see(None);
                unpublished(made).value.meta.set_replaced(None);
                match add(store, made) {
                    Ok(new) => return Some(published(new, None)),
                    Err(old) => old,
                }
            };
            let presence = self.inner.presence(&old.get().value.meta);
            let is_found = presence == Presence::Found;
            let (stays, cause) = match origin {
                Origin::Insert => (false, Cause::Replaced),
                Origin::IfAbsent => (is_found, Cause::Replaced),
                // An outdated one must not replace a later load's. The cause is not Replaced: a load inherits no
                // place.
                Origin::Load(..) => (is_found || origin.is_outdated(), Cause::Removed),
            };
            if stays {
                return None;
            }
            see(is_found.then(|| &old.get().value.value));
            unpublished(made).value.meta.set_replaced(Some(Id::of(old)));
            // The hashes are the same, or this one would not have been found.
            if let Some(new) = swap(store, old, made) {
                return Some(published(new, Some((old, presence.cause(cause)))));
            }
        }
    }

    /// Links an entry that is in the map: in place of the one that it has replaced, which it retires,
    /// or where it makes room. Returns a ticket if that was not all the room.
    fn link(
        &self,
        Published { new, old, held }: Published<'_, K, V>,
        origin: Origin<'_>,
        expires: u64,
        store: &Pinned<K, V>,
        notes: &mut Notes<'_, K, V>,
    ) -> Result<Option<Ticket>, Refusal> {
        let (mut state, mut locked) = held.unwrap_or_else(|| {
            if let Some((old, _)) = old {
                // SAFETY: it was found in the section.
                unsafe { Id::of(old).fetch_neighbours() };
            }
            self.inner.lock(store)
        });
        let inherited = match old {
            Some((old, cause)) => {
                let both = [Id::of(old), Id::of(new)];
                state.replace(&mut locked, both, cause, expires)
            }
            None => Inheritance::default(),
        };
        if !inherited.is_linked {
            let entrant = Entrant {
                number: inherited.tenant.unwrap_or_else(|| self.handle.number()),
                expires,
                standing: inherited.standing,
            };
            let (entry, replaced) = ((new, entrant, 0), (old, inherited.counted));
            return self.link_in_room(entry, replaced, origin, (state, locked), store, notes);
        }
        let due = state.next_due();
        self.inner.unlock(state, expires);
        self.retire_replaced(old);
        if let Some((old, cause)) = old {
            notes.add(old, cause);
        }
        self.expire_if_due(due, store, notes);
        Ok(None)
    }

    /// Evicts up to a batch for `new`, which has `reserved` bytes already, and links it once there is room. Retires
    /// the entry that it replaced; `counted` is the tenant that counted that removal.
    #[inline(never)]
    fn link_in_room(
        &self,
        (new, entrant, reserved): (Found<'_, K, Node<V>>, Entrant, u64),
        (mut old, counted): (Option<Replaced<'_, K, V>>, Option<u32>),
        origin: Origin<'_>,
        (mut state, mut locked): Held<'_>,
        store: &Pinned<K, V>,
        notes: &mut Notes<'_, K, V>,
    ) -> Result<Option<Ticket>, Refusal> {
        let mut claimed = Claimed::default();
        // Prefetch the new key's counters and ghosts, which are used once there is room.
        state
            .tenant(entrant.number)
            .policy
            .fetch(&locked, Id::of(new));
        let at = (Id::of(new), entrant, reserved);
        let (admitted, gone) = origin.admit(&mut state, &mut locked, at, &mut claimed);
        if admitted.is_err()
            && let Some((_, cause @ Cause::Replaced)) = &mut old
        {
            *cause = Cause::Removed;
            if let Some(number) = counted {
                state.recount_replaced(number);
            }
        }
        // This insert evicted, so the next one probably will: prefetch its victim.
        if !claimed.is_empty()
            && let Some(next) = state.tenant(entrant.number).policy.fetch_next(&locked)
        {
            // SAFETY: `next` is queued in this cache, so it is not retired while the lock is held.
            let entry: Found<'_, K, Node<V>> = unsafe { next.found() };
            prefetch(entry.pointer().as_ptr());
            // The high half of the hash, by which it is found in the map.
            store.fetch(u64::from(locked.fingerprint(next)) << 32);
        }
        let due = state.next_due();
        self.inner.unlock(state, entrant.expires);
        self.retire_replaced(old);
        if gone.is_some() {
            // Before user code runs: what is refused is not to be found.
            store.remove_owning(new, owned(new));
        }
        self.take_out(&claimed, Cause::Evicted, store, notes);
        // Only if it was claimed for this one.
        let old = old.filter(|_| counted.is_some());
        for (entry, cause) in old.into_iter().chain(gone.map(|cause| (new, cause))) {
            notes.add(entry, cause);
        }
        self.expire_if_due(due, store, notes);
        admitted
    }

    /// Makes another batch of room, in a section. Returns the next ticket; `None` if the entry is linked, or was
    /// taken out meanwhile.
    #[cold]
    fn link_in_more_room(
        &self,
        ticket: Ticket,
        origin: Origin<'_>,
    ) -> Result<Option<Ticket>, Refusal> {
        let mut notes = self.inner.notes();
        let store = &self.inner.section();
        let (mut state, locked) = self.inner.lock(store);
        let Some((id, entrant, reserved)) = state.resume(ticket) else {
            return Ok(None);
        };
        // SAFETY: of this cache. It has not been claimed, as the lock says, so it was not retired before this
        // section began.
        let entry = (unsafe { id.found() }, entrant, reserved);
        self.link_in_room(
            entry,
            (None, None),
            origin,
            (state, locked),
            store,
            &mut notes,
        )
    }

    /// Retires what an entry has replaced, which no queue has from now on. Once the lock has been released.
    #[inline(always)]
    fn retire_replaced(&self, old: Option<Replaced<'_, K, V>>) {
        if let Some((old, _)) = old {
            // SAFETY: this thread has taken it out, and no queue has it from now on.
            unsafe { self.inner.store.retire_swapped(old, owned(old)) };
        }
    }

    /// Takes out what has expired if the wheel has work at `due`, and that is over.
    #[inline(always)]
    fn expire_if_due(&self, due: Option<u64>, store: &Pinned<K, V>, notes: &mut Notes<'_, K, V>) {
        let Some(due) = due else { return };
        // In whole ticks: at each time anew, all timers would move through the lowest levels of the wheel.
        let now = self.inner.settings.clock.now() >> TICK << TICK;
        if due <= now {
            self.batch(Cause::Expired, store, notes, |state, locked, claimed| {
                state.expire(locked, now, claimed)
            });
        }
    }

    /// Takes a batch out of the map that `claim` claims, in a section. Returns what `claim` does: whether there
    /// may be more.
    #[inline(never)]
    pub(crate) fn batch(
        &self,
        cause: Cause,
        store: &Pinned<K, V>,
        notes: &mut Notes<'_, K, V>,
        claim: impl FnOnce(&mut State, &mut Locked, &mut Claimed) -> bool,
    ) -> bool {
        let mut claimed = Claimed::default();
        let (mut state, mut locked) = self.inner.lock(store);
        let more = claim(&mut state, &mut locked, &mut claimed);
        self.inner.unlock(state, NEVER);
        self.take_out(&claimed, cause, store, notes);
        more
    }

    /// Takes entries out of the map that this thread has claimed in the section.
    #[inline(always)]
    pub(crate) fn take_out(
        &self,
        claimed: &Claimed,
        cause: Cause,
        store: &Pinned<K, V>,
        notes: &mut Notes<'_, K, V>,
    ) {
        // SAFETY: claimed in the section; of this cache.
        let entries = || unsafe { claimed.iter().map(|id| id.found()) };
        for entry in entries() {
            store.remove_owning(entry, owned(entry));
        }
        // Clones run user code: all are out of the map by then.
        if notes.are_wanted() {
            entries().for_each(|entry| notes.add(entry, cause));
        }
    }

    /// Claims an entry, and releases the lock. Returns whether look-ups found it until then, and whether it was
    /// not claimed before.
    pub(crate) fn claim(
        &self,
        entry: Found<'_, K, Node<V>>,
        (mut state, mut locked): Held<'_>,
    ) -> (Presence, bool) {
        // Under the lock: until then what a load brings may appear.
        let presence = self.inner.presence(&entry.get().value.meta);
        let cause = presence.cause(Cause::Removed);
        let claimed = state.claim(&mut locked, Id::of(entry), Some(cause));
        self.inner.unlock(state, NEVER);
        (presence, claimed)
    }
}
