//! What puts entries in. Each change follows the rule of [`crate::node`]: what is retired has been
//! claimed.

use crate::{
    cache::{Cache, Pinned, Presence, Section},
    flight::Load,
    listener::Notes,
    node::{Id, LONGEST, Locked, Meta, NEVER, Node, Stage, TICK},
    removal::{Cause, InsertError},
    state::{Claimed, Entrant, Inheritance, State, Ticket},
    statistics::Event,
};
use std::{
    hash::{BuildHasher, Hash},
    sync::atomic::Ordering,
    time::Duration,
};
use stillpoint_map::internal::{Found, NewEntry};
use stillpoint_platform::{clock::nanos, sync::MutexGuard};

#[cfg(test)]
mod tests;

/// An entry that is in the map.
struct Published<'g, K, V> {
    new: Found<'g, K, Node<V>>,
    /// The entry that it has replaced there, and why. That one is still in its queue, and has to be retired.
    old: Option<Replaced<'g, K, V>>,
}

type Replaced<'g, K, V> = (Found<'g, K, Node<V>>, Cause);

/// Returns what an entry owns beside its block, in bytes: the domain counts it so while it is
/// unreclaimed.
pub fn owned<K, V>(entry: Found<'_, K, Node<V>>) -> usize {
    entry.get().value.meta.owned()
}

/// The origin of an entry.
#[derive(Debug, Clone, Copy)]
enum Origin<'a> {
    /// The program inserts it: it replaces any other.
    Insert,
    /// A load brings it: it replaces an expired or hidden entry only. An invalidation makes the load outdated
    /// under the lock, and then its entry is not kept. So the entry stays hidden until its inserter has the
    /// lock, knows that the load is not outdated, and links it. It never inherits another one's place.
    Load(&'a Load),
}

impl Origin<'_> {
    /// Returns whether its load is outdated; for certain only where the lock of the queues is held.
    fn is_outdated(self) -> bool {
        matches!(self, Self::Load(load) if load.is_outdated.load(Ordering::Relaxed))
    }

    /// Makes room for a new entry, `reserved` of which it has, and links it: see [`State::admit`]. Claims it if
    /// its load is outdated. Returns also the cause if the entry is not kept.
    #[inline(always)]
    fn admit(
        self,
        state: &mut State,
        locked: &mut Locked,
        (id, entrant, reserved): (Id, Entrant, u64),
        claimed: &mut Claimed,
    ) -> (Result<Option<Ticket>, InsertError>, Option<Cause>) {
        let is_outdated = self.is_outdated() && state.claim(locked, id, Some(Cause::Removed));
        let admitted = state.admit(locked, id, entrant, reserved, claimed);
        if matches!(self, Self::Load(_)) && locked.of(id).stage == Stage::Linked {
            // SAFETY: it is in a queue, and the lock is held.
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
        let _ = self.put(key, value, None, Origin::Insert);
    }

    /// As [`insert`](Self::insert), of what was loaded, unless there is an entry with that key by now.
    pub(crate) fn insert_loaded(&self, key: K, value: V, ttl: Option<Duration>, load: &Load) {
        let _ = self.put(key, value, ttl, Origin::Load(load));
    }

    /// As [`insert`](Self::insert), of an entry that expires after `ttl`.
    pub fn insert_with_ttl(&self, key: K, value: V, ttl: Duration) {
        let _ = self.put(key, value, Some(ttl), Origin::Insert);
    }

    /// As [`insert`](Self::insert).
    ///
    /// # Errors
    ///
    /// If there is no room for it below a limit, which the error names. An older entry with its key may be
    /// gone then, too.
    pub fn try_insert(&self, key: K, value: V) -> Result<(), InsertError> {
        self.put(key, value, None, Origin::Insert)
    }

    fn put(
        &self,
        key: K,
        value: V,
        ttl: Option<Duration>,
        origin: Origin<'_>,
    ) -> Result<(), InsertError> {
        let inner = self.inner();
        // User code, before the section.
        let (expires, latest) = self.lifetime(&key, &value, ttl);
        let weighed = inner.scale.weigh(&key, &value, expires != NEVER);
        let pinned = inner.is_pinned.as_ref().is_some_and(|is| is(&key, &value));
        let hash = self.hash(&key);
        let mut linked = {
            // Told after the section: declared before it.
            let mut notes = inner.notes();
            let section = Section::begin();
            let store = section.entries(inner);
            // Most inserts replace, and a look costs less than to find the place taken.
            let there = store.find(hash, |other| *other == key);
            let meta = Meta::new(weighed, hash, expires, latest, pinned);
            let new = store.new_entry(hash, key, Node { value, meta });
            if matches!(origin, Origin::Load(_)) {
                new.value.meta.hide();
            }
            match self.publish(new, there, origin, store) {
                Ok(published) => self.link(published, origin, expires, store, &mut notes),
                Err(not_replacing) => {
                    // Its destructors are user code: outside of the section.
                    drop(section);
                    drop(not_replacing);
                    return Ok(());
                }
            }
        };
        // The rest of the room is made in batches with a section each.
        while let Ok(Some(ticket)) = linked {
            linked = self.link_in_more_room(ticket, origin);
        }
        if linked.is_err() {
            self.handle().counters.add(Event::Refused, 1);
        }
        linked.map(drop)
    }

    /// Returns the time at which an entry expires unless it is used, and the time at which it expires in any
    /// case.
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
        // 0 is for hidden entries.
        let at = |span: Option<u64>| span.map_or(NEVER, |span| now.saturating_add(span).max(1));
        (at(live).min(at(expiry.idle)), at(live))
    }

    /// Puts an entry into the map, in place of the one with its key: the one that was seen `there`, if
    /// that is there still. Gives it back if it may not replace that.
    fn publish<'g>(
        &'g self,
        mut new: NewEntry<K, Node<V>>,
        mut there: Option<Found<'g, K, Node<V>>>,
        origin: Origin<'_>,
        store: &'g Pinned<K, V>,
    ) -> Result<Published<'g, K, V>, NewEntry<K, Node<V>>> {
        loop {
            let (old, refused) = if let Some(old) = there.take() {
                (old, new)
            } else {
                new.value.meta.set_replaced(None);
                match store.insert(new, false, |a, b| a == b) {
                    Ok(inserted) => {
                        let (new, old) = (inserted.new, None);
                        return Ok(Published { new, old });
                    }
                    Err(occupied) => (occupied.old, occupied.new),
                }
            };
            let presence = self.inner().presence(&old.get().value.meta);
            let is_load = matches!(origin, Origin::Load(_));
            // An outdated one is not to take the place of a later load's.
            if is_load && (presence == Presence::Found || origin.is_outdated()) {
                return Err(refused);
            }
            // Not replaced: nothing is inherited where a load has brought both.
            let cause = presence.cause(match origin {
                Origin::Insert => Cause::Replaced,
                Origin::Load(_) => Cause::Removed,
            });
            refused.value.meta.set_replaced(Some(Id::of(old)));
            match store.swap(old, refused) {
                Ok(new) => {
                    let old = Some((old, cause));
                    return Ok(Published { new, old });
                }
                Err(refused) => new = refused,
            }
        }
    }

    /// Links an entry that is in the map: in place of the one that it has replaced, which it retires,
    /// or where it makes room. Returns a ticket if that was not all the room.
    fn link(
        &self,
        Published { new, old }: Published<'_, K, V>,
        origin: Origin<'_>,
        expires: u64,
        store: &Pinned<K, V>,
        notes: &mut Notes<'_, K, V>,
    ) -> Result<Option<Ticket>, InsertError> {
        if let Some((old, _)) = old {
            // SAFETY: it was found in the section.
            unsafe { Id::of(old).fetch_neighbours() };
        }
        let (mut state, mut locked) = self.inner().lock(store);
        let inherited = match old {
            Some((old, cause)) => {
                let both = [Id::of(old), Id::of(new)];
                state.replace(&mut locked, both, cause, expires)
            }
            None => Inheritance::default(),
        };
        if !inherited.is_linked {
            let entrant = Entrant {
                number: inherited.tenant.unwrap_or_else(|| self.handle().number()),
                expires,
                standing: inherited.standing,
            };
            let entry = (new, entrant, 0);
            let replaced = (old, inherited);
            return self.link_in_room(entry, replaced, origin, (state, locked), store, notes);
        }
        let due = state.next_due();
        self.inner().unlock(state, expires);
        self.retire_replaced(old);
        if let Some((old, cause)) = old {
            notes.add(old, cause);
        }
        self.expire_if_due(due, store, notes);
        Ok(None)
    }

    /// Makes a batch of room for an entry that is in the map, `reserved` of which it has, and links it if that is
    /// all. Retires what it has replaced. `held` is the lock of the queues.
    #[inline(never)]
    fn link_in_room(
        &self,
        (new, entrant, reserved): (Found<'_, K, Node<V>>, Entrant, u64),
        (mut old, inherited): (Option<Replaced<'_, K, V>>, Inheritance),
        origin: Origin<'_>,
        (mut state, mut locked): (MutexGuard<'_, State>, Locked),
        store: &Pinned<K, V>,
        notes: &mut Notes<'_, K, V>,
    ) -> Result<Option<Ticket>, InsertError> {
        let mut claimed = Claimed::default();
        let at = (Id::of(new), entrant, reserved);
        let (admitted, gone) = origin.admit(&mut state, &mut locked, at, &mut claimed);
        if admitted.is_err()
            && let Some((_, cause @ Cause::Replaced)) = &mut old
        {
            *cause = Cause::Removed;
            state.recount_replaced(inherited);
        }
        let due = state.next_due();
        self.inner().unlock(state, entrant.expires);
        self.retire_replaced(old);
        if gone.is_some() {
            // Before user code runs: what is refused is not to be found.
            store.remove_owning(new, owned(new));
        }
        self.take_out(&claimed, Cause::Evicted, store, notes);
        // Only if it was claimed for this one.
        let old = old.filter(|_| inherited.counted.is_some());
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
    ) -> Result<Option<Ticket>, InsertError> {
        let mut notes = self.inner().notes();
        let section = Section::begin();
        let store = section.entries(self.inner());
        let (mut state, locked) = self.inner().lock(store);
        let Some((id, entrant, reserved)) = state.resume(ticket) else {
            return Ok(None);
        };
        // SAFETY: of this cache. It has not been claimed, as the lock says, so it was not retired before this
        // section began.
        let entry = (unsafe { id.found() }, entrant, reserved);
        let replaced = (None, Inheritance::default());
        self.link_in_room(entry, replaced, origin, (state, locked), store, &mut notes)
    }

    /// Retires what an entry has replaced, which no queue has from now on. Once the lock has been released.
    #[inline(always)]
    fn retire_replaced(&self, old: Option<Replaced<'_, K, V>>) {
        if let Some((old, _)) = old {
            // SAFETY: this thread has taken it out, and no queue has it from now on.
            unsafe { self.inner().store.retire_swapped(old, owned(old)) };
        }
    }

    /// Takes out what has expired if the wheel has work at `due`, and that is over.
    #[inline(always)]
    fn expire_if_due(&self, due: Option<u64>, store: &Pinned<K, V>, notes: &mut Notes<'_, K, V>) {
        let Some(due) = due else { return };
        // In whole ticks: at each time anew, all timers would move through the lowest levels of the wheel.
        let now = self.inner().clock.now() >> TICK << TICK;
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
        let (mut state, mut locked) = self.inner().lock(store);
        let more = claim(&mut state, &mut locked, &mut claimed);
        self.inner().unlock(state, NEVER);
        self.take_out(&claimed, cause, store, notes);
        more
    }

    /// Takes entries out of the map that this thread has claimed in the section.
    #[inline]
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

    /// Claims an entry. Returns whether look-ups found it until then, and whether it was not claimed before.
    pub(crate) fn claim(
        &self,
        entry: Found<'_, K, Node<V>>,
        store: &Pinned<K, V>,
    ) -> (Presence, bool) {
        let (mut state, mut locked) = self.inner().lock(store);
        // Under the lock: until then what a load brings may appear.
        let presence = self.inner().presence(&entry.get().value.meta);
        let cause = presence.cause(Cause::Removed);
        let claimed = state.claim(&mut locked, Id::of(entry), Some(cause));
        self.inner().unlock(state, NEVER);
        (presence, claimed)
    }
}
