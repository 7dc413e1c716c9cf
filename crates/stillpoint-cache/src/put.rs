//! What puts entries in. Each change follows the rule of [`crate::node`]: what is retired has been
//! claimed.

use crate::{
    cache::Cache,
    cause::{Cause, InsertError},
    listener::Notes,
    load::Load,
    node::{Id, LONGEST, Locked, Meta, NEVER, Node, Stage, TICK},
    policy::Standing,
    state::{Claimed, Entrant, Heir, State, Ticket},
    statistics::Event,
    tenant::Handle,
};
use std::{
    hash::{BuildHasher, Hash},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use stillpoint::Guard;
use stillpoint_map::internal::{Found, NewEntry};
use stillpoint_platform::{clock::nanos, sync::MutexGuard};

/// An entry that is in the map.
struct Published<'g, K, V> {
    new: Found<'g, K, Node<V>>,
    /// What it has replaced there, and why: still in its queue, and to be retired.
    old: Option<(Found<'g, K, Node<V>>, Cause)>,
}

/// An insert that has not made all its room yet.
struct Pending {
    ticket: Ticket,
    /// Whose the entry is to be.
    owner: Arc<Handle>,
    standing: Option<Standing>,
}

/// Returns what an entry owns beside its block, in bytes: the domain counts it so while it is
/// unreclaimed.
fn owned<K, V>(entry: Found<'_, K, Node<V>>) -> usize {
    entry.get().value.meta.owned()
}

/// Where an entry comes from.
#[derive(Debug, Clone, Copy)]
enum Origin<'a> {
    /// From the program: it replaces any other.
    Insert,
    /// From a load, which replaces an expired or hidden entry only. An invalidation makes the load outdated
    /// under the lock, and then its entry is not kept. So the entry stays hidden until its inserter has
    /// the lock, links it, and knows that the load is not outdated.
    Load(&'a Load),
}

impl Origin<'_> {
    /// Under the lock of the queues.
    fn is_outdated(self) -> bool {
        matches!(self, Self::Load(load) if load.is_outdated.load(Ordering::Relaxed))
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
    pub(crate) fn insert_loaded(&self, key: K, value: V, load: &Load) {
        let _ = self.put(key, value, None, Origin::Load(load));
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
        let (expires, latest) = self.lifetime(&key, &value, ttl);
        let weighed = inner.scale.weigh(&key, &value, expires != NEVER);
        let pinned = inner.is_pinned.as_ref().is_some_and(|is| is(&key, &value));
        let hash = self.hash(&key);
        // Told after the section: declared before it.
        let mut notes = inner.notes();
        let guard = inner.store.read_lock();
        // Most inserts replace, and a look costs less than to find the place taken.
        let there = inner.store.find(hash, &guard, |other| *other == key);
        let node = Node {
            meta: Meta::new(weighed, hash, expires, latest, pinned),
            value,
        };
        if matches!(origin, Origin::Load(_)) {
            node.meta.hide();
        }
        let new = inner.store.new_entry(hash, key, node, &guard);
        let published = match self.publish(new, there, origin, &guard) {
            Ok(published) => published,
            Err(_not_replacing) => {
                // The destructors of what is not put in are user code: outside of the section.
                drop(guard);
                notes.tell();
                return Ok(());
            }
        };
        let linked = self.link(published, origin, expires, &guard, &mut notes);
        drop(guard);
        notes.tell();
        let done = match linked {
            Ok(Some(pending)) => self.link_in_batches(pending, origin, expires),
            Ok(None) => Ok(()),
            Err(refused) => Err(refused),
        };
        done.inspect_err(|_| self.handle().count(Event::Refused, 1))
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
        guard: &'g Guard<'_>,
    ) -> Result<Published<'g, K, V>, NewEntry<K, Node<V>>> {
        let store = &self.inner().store;
        loop {
            let (old, refused) = if let Some(old) = there.take() {
                (old, new)
            } else {
                new.value.meta.set_replaced(None);
                match store.insert(new, false, guard, |a, b| a == b) {
                    Ok(inserted) => {
                        let (new, old) = (inserted.new, None);
                        return Ok(Published { new, old });
                    }
                    Err(occupied) => (occupied.old, occupied.new),
                }
            };
            // Looked at first: what is shown meanwhile has not expired.
            let was_hidden = old.get().value.meta.is_hidden();
            let over = self.inner().has_expired(old);
            if matches!(origin, Origin::Load(_)) && !over {
                return Err(refused);
            }
            let cause = if over && !was_hidden {
                Cause::Expired
            } else {
                Cause::Replaced
            };
            refused.value.meta.set_replaced(Some(Id::of(old)));
            match store.swap(old, refused, guard) {
                Ok(new) => {
                    let old = Some((old, cause));
                    return Ok(Published { new, old });
                }
                Err(refused) => new = refused,
            }
        }
    }

    /// Links an entry that is in the map: in place of the one that it has replaced, which it retires,
    /// or where it makes room. `None` if it is linked.
    fn link(
        &self,
        published: Published<'_, K, V>,
        origin: Origin<'_>,
        expires: u64,
        guard: &Guard<'_>,
        notes: &mut Notes<'_, K, V>,
    ) -> Result<Option<Pending>, InsertError> {
        let Published { new, old } = published;
        if let Some((old, _)) = old {
            // SAFETY: it was found in the section.
            unsafe { Id::of(old).fetch_neighbours() };
        }
        let (mut state, mut locked) = self.inner().lock(guard);
        let heir = match old {
            Some((old, cause)) => {
                state.replace(&mut locked, [Id::of(old), Id::of(new)], cause, expires)
            }
            None => Heir::default(),
        };
        if !heir.is_linked {
            let at = (heir, expires);
            return self.link_in_room(published, origin, (state, locked), at, guard, notes);
        }
        let (has_timers, visit) = self.outlook(&state, expires);
        drop(state);
        self.retire_replaced(old, visit);
        self.note_replaced(old, heir, notes);
        if has_timers {
            self.expire(guard, notes);
        }
        Ok(None)
    }

    /// Makes room for an entry that is in the map, and links it: or a batch of that. `held` is the lock of
    /// the queues.
    #[inline(never)]
    fn link_in_room(
        &self,
        Published { new, old }: Published<'_, K, V>,
        origin: Origin<'_>,
        (mut state, mut locked): (MutexGuard<'_, State>, Locked),
        (heir, expires): (Heir, u64),
        guard: &Guard<'_>,
        notes: &mut Notes<'_, K, V>,
    ) -> Result<Option<Pending>, InsertError> {
        let entrant = Entrant {
            number: heir.tenant.unwrap_or_else(|| self.handle().number()),
            expires,
            standing: heir.standing,
        };
        let mut claimed = Claimed::default();
        let id = Id::of(new);
        let is_outdated = drop_if_outdated(&mut state, &mut locked, id, origin);
        let admitted = state.admit(&mut locked, id, entrant, 0, &mut claimed);
        show_if_linked(&mut locked, id, origin, expires);
        let mut old = old;
        if admitted.is_err()
            && let Some((_, cause @ Cause::Replaced)) = &mut old
        {
            *cause = Cause::Removed;
            state.recount_replaced(heir);
        }
        let pending = admitted.map(|ticket| {
            ticket.map(|ticket| Pending {
                ticket,
                // A handle: the number may be another tenant's by the next hold.
                owner: Arc::clone(&state.tenant(entrant.number).handle),
                standing: heir.standing,
            })
        });
        let (has_timers, visit) = self.outlook(&state, expires);
        drop(state);
        self.retire_replaced(old, visit);
        if pending.is_err() || is_outdated {
            // Before user code runs: what is refused is not to be found.
            self.remove_from_map(new, guard);
        }
        self.take_out(&mut claimed, Cause::Evicted, guard, notes);
        self.note_replaced(old, heir, notes);
        if is_outdated {
            notes.add(new, Cause::Removed);
        }
        if pending.is_err() {
            notes.add(new, Cause::Refused);
        }
        if has_timers && matches!(pending, Ok(None)) {
            self.expire(guard, notes);
        }
        pending
    }

    /// Makes the rest of the room for an entry, in batches with a section each.
    #[cold]
    fn link_in_batches(
        &self,
        mut pending: Pending,
        origin: Origin<'_>,
        expires: u64,
    ) -> Result<(), InsertError> {
        while let Some(ticket) = self.link_in_more_room(&pending, origin, expires)? {
            pending.ticket = ticket;
        }
        Ok(())
    }

    /// Makes a batch of room. Returns the next ticket; `None` if the entry is linked, or was taken out
    /// meanwhile.
    fn link_in_more_room(
        &self,
        pending: &Pending,
        origin: Origin<'_>,
        expires: u64,
    ) -> Result<Option<Ticket>, InsertError> {
        let mut notes = self.inner().notes();
        let guard = self.inner().store.read_lock();
        let (mut state, mut locked) = self.inner().lock(&guard);
        let Some((id, reserved)) = state.resume(pending.ticket) else {
            return Ok(None);
        };
        let entrant = Entrant {
            number: pending.owner.number(),
            expires,
            standing: pending.standing,
        };
        let mut claimed = Claimed::default();
        let is_outdated = drop_if_outdated(&mut state, &mut locked, id, origin);
        let admitted = state.admit(&mut locked, id, entrant, reserved, &mut claimed);
        show_if_linked(&mut locked, id, origin, expires);
        let (has_timers, visit) = self.outlook(&state, expires);
        drop(state);
        self.inner().ask_for_visit(visit);
        let gone = match &admitted {
            Err(_) => Some(Cause::Refused),
            Ok(_) => is_outdated.then_some(Cause::Removed),
        };
        if gone.is_some() {
            // SAFETY: of this cache. It had not been claimed under the lock just now, so it was not
            // retired before this section began.
            self.remove_from_map(unsafe { id.found() }, &guard);
        }
        self.take_out(&mut claimed, Cause::Evicted, &guard, &mut notes);
        if let Some(cause) = gone {
            // SAFETY: as above.
            unsafe { notes.add_claimed(id, cause) };
        }
        if has_timers && admitted == Ok(None) {
            self.expire(&guard, &mut notes);
        }
        admitted
    }

    /// Whether there are timers, and when the service thread is to come, if it is.
    #[inline]
    fn outlook(&self, state: &State, expires: u64) -> (bool, Option<u64>) {
        (state.has_timers(), self.inner().next_visit(state, expires))
    }

    /// Retires what an entry has replaced, which no queue has from now on, and asks for the service
    /// thread. Once the lock has been released.
    #[inline]
    fn retire_replaced(&self, old: Option<(Found<'_, K, Node<V>>, Cause)>, visit: Option<u64>) {
        let inner = self.inner();
        if let Some((old, _)) = old {
            // SAFETY: this thread has taken it out, and no queue has it from now on.
            unsafe { inner.store.retire_swapped(old, owned(old)) };
        }
        inner.ask_for_visit(visit);
    }

    /// Notes what an entry has replaced, if it was claimed for that.
    #[inline]
    fn note_replaced(
        &self,
        old: Option<(Found<'_, K, Node<V>>, Cause)>,
        heir: Heir,
        notes: &mut Notes<'_, K, V>,
    ) {
        // Its clone is user code, too.
        if let Some((old, cause)) = old.filter(|_| heir.counted.is_some()) {
            notes.add(old, cause);
        }
    }

    /// Takes out what has expired: a batch.
    fn expire(&self, guard: &Guard<'_>, notes: &mut Notes<'_, K, V>) {
        // In whole ticks: at each time anew, all timers would move through the lowest levels of the wheel.
        let now = self.inner().clock.now() >> TICK << TICK;
        let mut claimed = Claimed::default();
        let (mut state, mut locked) = self.inner().lock(guard);
        state.expire(&mut locked, now, &mut claimed);
        let visit = self.inner().next_visit(&state, NEVER);
        drop(state);
        self.take_out(&mut claimed, Cause::Expired, guard, notes);
        self.inner().ask_for_visit(visit);
    }

    /// Takes an entry out of the map that has been claimed. Returns false if it was not there.
    pub(crate) fn remove_from_map(&self, entry: Found<'_, K, Node<V>>, guard: &Guard<'_>) -> bool {
        let store = &self.inner().store;
        store.remove_owning(entry, owned(entry), guard)
    }

    /// Takes entries out of the map that this thread has claimed.
    pub(crate) fn take_out(
        &self,
        claimed: &mut Claimed,
        cause: Cause,
        guard: &Guard<'_>,
        notes: &mut Notes<'_, K, V>,
    ) {
        for id in claimed.iter() {
            // SAFETY: claimed in the section; of this cache.
            self.remove_from_map(unsafe { id.found() }, guard);
        }
        // Clones run user code: all are out of the map by then.
        for id in claimed.iter() {
            // SAFETY: as above.
            unsafe { notes.add_claimed(id, cause) };
        }
        claimed.clear();
    }

    /// Claims an entry. Returns false if it was claimed before.
    pub(crate) fn claim(
        &self,
        entry: Found<'_, K, Node<V>>,
        cause: Cause,
        guard: &Guard<'_>,
    ) -> bool {
        let (mut state, mut locked) = self.inner().lock(guard);
        let claimed = state.claim(&mut locked, Id::of(entry), Some(cause));
        let visit = self.inner().next_visit(&state, NEVER);
        drop(state);
        self.inner().ask_for_visit(visit);
        claimed
    }
}

/// Claims a new entry whose load is outdated. Returns whether it has.
fn drop_if_outdated(state: &mut State, locked: &mut Locked, id: Id, origin: Origin<'_>) -> bool {
    origin.is_outdated() && state.claim(locked, id, Some(Cause::Removed))
}

/// Lets look-ups find an entry of a load that was linked just now.
fn show_if_linked(locked: &mut Locked, id: Id, origin: Origin<'_>, expires: u64) {
    if matches!(origin, Origin::Load(_)) && locked.of(id).stage == Stage::Linked {
        // SAFETY: it is in a queue, and the lock is held.
        unsafe { id.meta() }.appear(expires);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        node::Weight,
        state::{BATCH, ROOT},
    };

    #[test]
    fn an_entry_that_is_removed_before_it_is_linked_evicts_nothing() {
        let cache: Cache<u64, u64> = Cache::builder().max_entries(3).build();
        (0..3).for_each(|key| cache.insert(key, key));
        let guard = cache.inner().store.read_lock();
        let weight = 2;
        let Ok(published) = publish(&cache, 9, weight, &guard) else {
            panic!("nothing is in its place");
        };
        assert!(cache.invalidate(&9));
        let linked = cache.link(
            published,
            Origin::Insert,
            NEVER,
            &guard,
            &mut cache.inner().notes(),
        );
        assert!(matches!(linked, Ok(None)));
        assert_eq!((cache.entry_count(), cache.weighted_bytes()), (3, 3));
    }

    /// The tenant's number is in no use by the time that the insert takes the lock.
    #[test]
    fn an_entry_is_replaced_whose_tenant_is_deleted_meanwhile() {
        for is_evicted in [false, true] {
            let cache: Cache<u64, u64> = Cache::builder().max_entries(3).build();
            let tenant = cache.tenant("tenant");
            tenant.insert(9, 1);
            let guard = cache.inner().store.read_lock();
            let Ok(published) = publish(&cache, 9, 1, &guard) else {
                panic!("it replaces any");
            };
            if is_evicted {
                assert_eq!(tenant.evict_some(1), 1);
            }
            assert!(tenant.delete());
            let mut notes = cache.inner().notes();
            let linked = cache.link(published, Origin::Insert, NEVER, &guard, &mut notes);
            assert!(matches!(linked, Ok(None)));
            assert_eq!((cache.get(&9), cache.entry_count()), (Some(1), 1));
            let all = cache.statistics();
            let gone = (all.evicted, all.removed, all.replaced);
            assert_eq!(gone, (u64::from(is_evicted), u64::from(!is_evicted), 0));
        }
    }

    /// An invalidation between the two steps of the insert of a load.
    #[test]
    fn what_was_loaded_is_not_found_before_it_is_linked_or_if_it_is_outdated() {
        for is_outdated in [false, true] {
            for expires in [NEVER, NEVER - 1] {
                let cache: Cache<u64, u64> = Cache::with_entries(3);
                let load = Load::of(Arc::clone(cache.handle()));
                let guard = cache.inner().store.read_lock();
                let meta = Meta::new(Weight::of(1), cache.hash(&9), expires, expires, false);
                meta.hide();
                let node = Node { value: 9, meta };
                let new = cache
                    .inner()
                    .store
                    .new_entry(cache.hash(&9), 9, node, &guard);
                let origin = Origin::Load(&load);
                let Ok(published) = cache.publish(new, None, origin, &guard) else {
                    panic!("nothing is in its place");
                };
                assert_eq!((cache.get(&9), cache.iter().count()), (None, 0));
                load.is_outdated.store(is_outdated, Ordering::Relaxed);
                let mut notes = cache.inner().notes();
                let linked = cache.link(published, origin, expires, &guard, &mut notes);
                assert!(matches!(linked, Ok(None)));
                let expected = (!is_outdated).then_some(9);
                assert_eq!((cache.get(&9), cache.peek(&9)), (expected, expected));
                let all = cache.statistics();
                assert_eq!((all.inserts, all.removed), (1, u64::from(is_outdated)));
                assert_eq!(all.entries, u64::from(!is_outdated));
            }
        }
    }

    /// The thread that has claimed it for an eviction has not taken it out yet.
    #[test]
    fn what_was_claimed_before_an_invalidation_is_not_found_after_it() {
        let cache: Cache<u64, u64> = Cache::builder().max_entries(3).build();
        cache.insert(9, 9);
        let guard = cache.inner().store.read_lock();
        let mut claimed = Claimed::default();
        let (mut state, mut locked) = cache.inner().lock(&guard);
        assert!(state.give_back(&mut locked, ROOT, &mut claimed));
        drop(state);
        let found = cache.find(&9, &guard).expect("it is in the map");
        cache.invalidate_all();
        assert_eq!((cache.get(&9), cache.peek(&9)), (None, None));
        assert_eq!(cache.iter().count(), 0);
        // A look-up that had begun before notes its use.
        found.get().value.meta.note_use(0);
        assert_eq!(cache.get(&9), None);
        let mut notes = cache.inner().notes();
        cache.take_out(&mut claimed, Cause::Evicted, &guard, &mut notes);
        assert!(cache.find(&9, &guard).is_none());
    }

    /// An insert in place of what a load has not linked yet, and a removal of all meanwhile.
    #[test]
    fn what_a_load_has_not_shown_has_not_expired_and_is_not_removed() {
        let cache: Cache<u64, u64> = Cache::builder().max_entries(3).build();
        let load = Load::of(Arc::clone(cache.handle()));
        let guard = cache.inner().store.read_lock();
        let meta = Meta::new(Weight::of(1), cache.hash(&9), NEVER, NEVER, false);
        meta.hide();
        let node = Node { value: 9, meta };
        let store = &cache.inner().store;
        let new = store.new_entry(cache.hash(&9), 9, node, &guard);
        let Ok(published) = cache.publish(new, None, Origin::Load(&load), &guard) else {
            panic!("nothing is in its place");
        };
        assert_eq!(cache.invalidate_entries_if(|_, _| true), 0);
        cache.insert(9, 10);
        let mut notes = cache.inner().notes();
        let linked = cache.link(published, Origin::Load(&load), NEVER, &guard, &mut notes);
        assert!(matches!(linked, Ok(None)));
        let all = cache.statistics();
        assert_eq!((all.replaced, all.expired, all.removed), (1, 0, 0));
        assert_eq!(cache.get(&9), Some(10));
    }

    /// What all may have, in tests of large entries.
    const MAX: u64 = 1000;

    fn weighed() -> Cache<u64, u64> {
        let cache = Cache::builder().max_weight(MAX, |_, &weight| weight);
        let cache = cache.build();
        (0..MAX).for_each(|key| cache.insert(key, 1));
        cache
    }

    /// The first batch of an insert of an entry that needs more, by that view.
    fn begin(view: &Cache<u64, u64>, key: u64, weight: u64) -> Pending {
        let guard = view.inner().store.read_lock();
        let Ok(published) = publish(view, key, weight, &guard) else {
            panic!("nothing is in its place");
        };
        let linked = view.link(
            published,
            Origin::Insert,
            NEVER,
            &guard,
            &mut view.inner().notes(),
        );
        linked
            .expect("it fits")
            .expect("more than a batch is needed")
    }

    /// Another batch. Returns whether there is more to do.
    fn go_on(view: &Cache<u64, u64>, pending: &mut Pending) -> bool {
        let next = view
            .link_in_more_room(pending, Origin::Insert, NEVER)
            .expect("it fits");
        next.map(|next| pending.ticket = next).is_some()
    }

    #[test]
    fn walks_of_a_tenant_meet_an_entry_that_is_being_replaced() {
        let cache = weighed();
        let tenant = cache.tenant("tenant");
        (5000..5003).for_each(|key| tenant.insert(key, 1));
        assert!(tenant.pin(&5000));
        let guard = cache.inner().store.read_lock();
        let there = || {
            let mut all: Vec<_> = tenant.iter().collect();
            all.sort_unstable();
            all
        };
        // One after the other, before the first one has the lock.
        let Ok(first) = publish(&cache, 5001, 2, &guard) else {
            panic!("it replaces any");
        };
        assert_eq!(there(), [(5000, 1), (5001, 2), (5002, 1)]);
        let Ok(second) = publish(&tenant, 5001, 3, &guard) else {
            panic!("it replaces any");
        };
        assert_eq!(there(), [(5000, 1), (5001, 3), (5002, 1)]);
        let seen = cache.find(&5001, &guard).expect("it is there");
        assert_eq!(tenant.invalidate_entries_if(|key, _| *key == 5001), 1);
        assert!(!cache.contains_key(&5001) && tenant.has(seen, &guard));
        for published in [first, second] {
            let linked = cache.link(
                published,
                Origin::Insert,
                NEVER,
                &guard,
                &mut cache.inner().notes(),
            );
            assert!(matches!(linked, Ok(None)));
        }
        // While it waits for room.
        let Ok(large) = publish(&cache, 5002, 500, &guard) else {
            panic!("it replaces any");
        };
        let linked = cache.link(
            large,
            Origin::Insert,
            NEVER,
            &guard,
            &mut cache.inner().notes(),
        );
        assert!(matches!(linked, Ok(Some(_))));
        assert_eq!(there(), [(5000, 1), (5002, 500)]);
        assert_eq!(tenant.invalidate_entries_if(|_, _| true), 2);
        assert_eq!(there(), []);
        check(&cache);
    }

    /// What has happened is what is there.
    fn check(cache: &Cache<u64, u64>) {
        let all = cache.statistics();
        let sum: u64 = cache.iter().map(|(_, weight)| weight).sum();
        assert_eq!((all.bytes, all.entries), (sum, cache.iter().count() as u64));
        let gone = all.evicted + all.replaced + all.removed;
        assert_eq!(all.inserts - gone, all.entries, "{all:?}");
        assert!(all.bytes <= MAX);
    }

    /// Between two batches they take more than a batch frees.
    #[test]
    fn what_is_freed_for_a_large_entry_is_not_taken_by_small_ones() {
        let (cache, weight) = (weighed(), 500);
        let mut pending = begin(&cache, 9999, weight);
        let (mut batches, mut key) = (2, 10_000);
        while go_on(&cache, &mut pending) {
            (key..key + 100).for_each(|key| cache.insert(key, 1));
            assert_eq!(cache.weighted_bytes(), MAX);
            (batches, key) = (batches + 1, key + 100);
            assert!(batches < MAX, "it is starved");
        }
        assert_eq!(batches, weight.div_ceil(BATCH as u64));
        assert_eq!(cache.get(&9999), Some(weight));
        check(&cache);
    }

    /// Neither fits beside what is reserved for the other one.
    #[test]
    fn two_large_entries_that_do_not_fit_together_are_both_inserted() {
        let (cache, weight) = (weighed(), 700);
        let mut pending = [1 << 20, 1 << 21].map(|key| (begin(&cache, key, weight), true));
        let mut batches = 0;
        while pending.iter().any(|&(_, more)| more) {
            for (pending, more) in &mut pending {
                *more = *more && go_on(&cache, pending);
            }
            batches += 1;
            assert!(batches < MAX, "they take the room from each other");
        }
        // The one that has ended first has made room for the other one.
        assert_eq!(
            [1 << 20, 1 << 21]
                .iter()
                .filter(|key| cache.contains_key(*key))
                .count(),
            1
        );
        check(&cache);
    }

    #[test]
    fn what_is_reserved_goes_with_the_entry_and_with_its_tenant() {
        let cache = weighed();
        let mut pending = begin(&cache, 9999, 500);
        assert!(cache.invalidate(&9999) && !cache.contains_key(&9999));
        assert!(!go_on(&cache, &mut pending));
        check(&cache);
        // Replaced by one that fits at once.
        let mut pending = begin(&cache, 9999, 500);
        cache.insert(9999, 1);
        assert!(!go_on(&cache, &mut pending));
        assert_eq!(cache.get(&9999), Some(1));
        check(&cache);
        // The tenant above has it.
        let cache = weighed();
        let tenant = cache.tenant("tenant");
        let mut pending = begin(&tenant, 9999, 500);
        assert_eq!(tenant.weighted_bytes(), BATCH as u64);
        assert!(tenant.delete());
        assert_eq!(cache.tenant("tenant").weighted_bytes(), 0);
        while go_on(&tenant, &mut pending) {}
        assert_eq!(cache.get(&9999), Some(500));
        check(&cache);
    }

    /// The thread that has lowered it evicts the rest.
    #[test]
    fn an_insert_beside_a_limit_that_is_lowered_evicts_a_batch_at_most() {
        let cache = weighed();
        let max = |max| cache.with_state(|state| state.set_limits(ROOT, |limits| limits.max = max));
        max(100);
        cache.insert(5000, 10);
        let all = cache.statistics();
        assert_eq!((all.evicted, cache.get(&5000)), (BATCH as u64, Some(10)));
        cache.insert(5001, 90);
        let after = cache.statistics();
        assert!(
            after.bytes < all.bytes && cache.contains_key(&5001),
            "{after:?}"
        );
        assert!(after.evicted - all.evicted <= 4 * BATCH as u64);
        (6000..6100).for_each(|key| cache.insert(key, 1));
        assert_eq!(cache.weighted_bytes(), 100);
        max(MAX);
        check(&cache);
    }

    fn publish<'g>(
        cache: &'g Cache<u64, u64>,
        key: u64,
        weight: u64,
        guard: &'g Guard<'_>,
    ) -> Result<Published<'g, u64, u64>, NewEntry<u64, Node<u64>>> {
        let meta = Meta::new(Weight::of(weight), cache.hash(&key), NEVER, NEVER, false);
        let node = Node {
            value: weight,
            meta,
        };
        let store = &cache.inner().store;
        let new = store.new_entry(cache.hash(&key), key, node, guard);
        cache.publish(new, None, Origin::Insert, guard)
    }

    /// It was seen before the section of the insert had an entry to put there.
    #[test]
    fn what_has_gone_since_it_was_seen_is_not_replaced() {
        for comes_again in [false, true] {
            let cache: Cache<u64, u64> = Cache::builder().max_entries(3).build();
            cache.insert(9, 0);
            let guard = cache.inner().store.read_lock();
            let seen = cache.find(&9, &guard);
            assert!(seen.is_some() && cache.invalidate(&9));
            if comes_again {
                cache.insert(9, 1);
            }
            let meta = Meta::new(Weight::of(1), 9, NEVER, NEVER, false);
            let node = Node { value: 2, meta };
            let new = cache
                .inner()
                .store
                .new_entry(cache.hash(&9), 9, node, &guard);
            let Ok(published) = cache.publish(new, seen, Origin::Insert, &guard) else {
                panic!("it replaces any");
            };
            let replaced = published.old.map(|(old, _)| old.get().value.value);
            assert_eq!(replaced, comes_again.then_some(1));
            let mut notes = cache.inner().notes();
            let linked = cache.link(published, Origin::Insert, NEVER, &guard, &mut notes);
            assert!(matches!(linked, Ok(None)));
            assert_eq!((cache.get(&9), cache.entry_count()), (Some(2), 1));
        }
    }

    /// What a thread does to one key, in its order.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Step {
        Publish(usize),
        Link(usize),
        Invalidate,
    }

    /// All orders of the steps of so many inserts, and of a removal.
    fn orders(inserts: usize, removes: bool) -> Vec<Vec<Step>> {
        fn go(done: &[Step], inserts: usize, removes: bool, all: &mut Vec<Vec<Step>>) {
            let mut next = Vec::new();
            for number in 0..inserts {
                if !done.contains(&Step::Publish(number)) {
                    next.push(Step::Publish(number));
                } else if !done.contains(&Step::Link(number)) {
                    next.push(Step::Link(number));
                }
            }
            if removes && !done.contains(&Step::Invalidate) {
                next.push(Step::Invalidate);
            }
            if next.is_empty() {
                all.push(done.to_vec());
            }
            for step in next {
                go(&[done, &[step]].concat(), inserts, removes, all);
            }
        }
        let mut all = Vec::new();
        go(&[], inserts, removes, &mut all);
        all
    }

    /// Views of three tenants insert one key at once, and one removes it: whatever the order of what
    /// they do to the map and under the lock, what is there is charged once, to whose it is.
    #[test]
    fn tenants_that_insert_one_key_at_once_are_charged_for_what_is_there() {
        let orders = if cfg!(miri) {
            orders(2, false)
        } else {
            let mut all = orders(3, false);
            all.extend(orders(3, true));
            assert_eq!(all.len(), 90 + 630);
            all
        };
        let weights = [[3, 2, 1], [2, 2, 2], [1, 2, 3]];
        let some = if cfg!(miri) { 1 } else { weights.len() };
        for order in &orders {
            for &weights in &weights[..some] {
                for is_there in [false, true] {
                    accounts_are_exact_after(order, weights, is_there);
                }
            }
        }
    }

    fn accounts_are_exact_after(order: &[Step], weights: [u64; 3], is_there: bool) {
        let cache: Cache<u64, u64> = Cache::builder().max_weight(9, |_, &v| v).build();
        let views = ["a", "b", "c"].map(|name| cache.tenant(name));
        if is_there {
            views[2].insert(9, 2);
        }
        let guard = cache.inner().store.read_lock();
        let mut published = [None, None, None];
        let mut last = is_there.then_some(2);
        for &step in order {
            match step {
                Step::Publish(number) => {
                    let weight = weights[number];
                    let Ok(new) = publish(&views[number], 9, weight, &guard) else {
                        panic!("it replaces any");
                    };
                    (published[number], last) = (Some(new), Some(weight));
                }
                Step::Link(number) => {
                    let new = published[number].take().expect("it was published");
                    let (view, mut notes) = (&views[number], cache.inner().notes());
                    let linked = view.link(new, Origin::Insert, NEVER, &guard, &mut notes);
                    assert!(matches!(linked, Ok(None)));
                }
                Step::Invalidate => {
                    cache.invalidate(&9);
                    last = None;
                }
            }
        }
        let said = format!("{order:?} with {weights:?}, {is_there}");
        assert_eq!(cache.get(&9), last, "{said}");
        let mut owner = None;
        if let Some(found) = cache.find(&9, &guard) {
            let (_state, mut locked) = cache.inner().lock(&guard);
            let guarded = locked.of(Id::of(found));
            assert_eq!(guarded.stage, Stage::Linked, "{said}");
            owner = Some(guarded.tenant);
        }
        let all = cache.statistics();
        assert_eq!(all.bytes, last.unwrap_or(0), "{said}");
        let gone = all.replaced + all.removed;
        assert_eq!(
            (all.evicted, all.inserts - gone),
            (0, all.entries),
            "{said}"
        );
        assert_eq!(all.entries, u64::from(last.is_some()), "{said}");
        for view in &views {
            let number = view.with_own(|_, number| number);
            let own = view.statistics();
            let is_owner = owner.is_some() && number == owner;
            assert_eq!(own.bytes > 0, is_owner, "{said}: {own:?}");
            assert_eq!(own.entries, u64::from(is_owner), "{said}: {own:?}");
            let gone = own.replaced + own.removed;
            assert_eq!(own.inserts - gone, own.entries, "{said}: {own:?}");
        }
    }
}
