//! What puts entries in. Each change follows the rule of [`crate::node`]: what is retired has been
//! claimed.

use crate::{
    cache::Cache,
    cause::{Cause, InsertError},
    listener::Notes,
    node::{Id, LONGEST, Locked, Meta, NEVER, Node, Stage},
    state::{Claimed, Heir, Room, State},
    statistics::Event,
};
use std::{
    hash::{BuildHasher, Hash},
    sync::Arc,
    time::Duration,
};
use stillpoint::Guard;
use stillpoint_map::internal::{Entry, Found, NewEntry};
use stillpoint_platform::{clock::nanos, sync::MutexGuard};

/// An entry that is in the map.
struct Published<'g, K, V> {
    new: Found<'g, K, Node<V>>,
    /// What it has replaced there, and why: still in its queue, and to be retired.
    old: Option<(Found<'g, K, Node<V>>, Cause)>,
}

/// What an entry owns beside its block, by its weight: the domain counts it so while it is unreclaimed.
fn owned<K, V>(entry: Found<'_, K, Node<V>>) -> usize {
    let weight = usize::try_from(entry.get().value.meta.weight).unwrap_or(usize::MAX);
    weight.saturating_sub(size_of::<Entry<K, Node<V>>>())
}

/// What an insert may replace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    Any,
    Expired,
}

/// What an entry is taken to weigh beside key and value: 64 bytes of its own, and about the mean of what
/// the map, ghosts and counts have for it, whose tables are powers of two.
pub const OVERHEAD: u64 = 112;

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
    /// the group that used it first.) A new one belongs to the tenant of the view. Where views of
    /// several tenants insert one key at the same instant, the entry that stays may be of any of them:
    /// one may replace another's before that is its tenant's. It is charged once, to whose it is.
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
    /// If there is no room for it below a limit, which the error names. An older entry with its key may be
    /// gone then, too.
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
        let pinned = inner.is_pinned.as_ref().is_some_and(|is| is(&key, &value));
        let hash = self.hash(&key);
        // Told after the section: declared before it.
        let mut notes = inner.notes();
        let guard = inner.store.read_lock();
        // Most inserts replace, and a look costs less than to find the place taken.
        let there = inner.store.find(hash, &guard, |other| *other == key);
        let node = Node {
            meta: Meta::new(weight, hash, expires, latest, pinned),
            value,
        };
        let new = inner.store.new_entry(hash, key, node, &guard);
        let published = match self.publish(new, there, over, &guard) {
            Ok(published) => published,
            Err(_not_replacing) => {
                // The destructors of what is not put in are user code: outside of the section.
                drop(guard);
                notes.tell();
                return Ok(());
            }
        };
        let done = self.link(published, weight, expires, &guard, &mut notes);
        drop(guard);
        notes.tell();
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
        let at = |span: Option<u64>| span.map_or(NEVER, |span| now.saturating_add(span));
        (at(live).min(at(expiry.idle)), at(live))
    }

    /// Puts an entry into the map, in place of the one with its key: the one that was seen `there`, if
    /// that is there still. Gives it back if it may not replace that.
    fn publish<'g>(
        &'g self,
        mut new: NewEntry<K, Node<V>>,
        mut there: Option<Found<'g, K, Node<V>>>,
        over: Over,
        guard: &'g Guard<'_>,
    ) -> Result<Published<'g, K, V>, NewEntry<K, Node<V>>> {
        let store = &self.inner().store;
        loop {
            let (old, refused) = if let Some(old) = there.take() {
                (old, new)
            } else {
                match store.insert(new, false, guard, |a, b| a == b) {
                    Ok(inserted) => {
                        let (new, old) = (inserted.new, None);
                        return Ok(Published { new, old });
                    }
                    Err(occupied) => (occupied.old, occupied.new),
                }
            };
            let cause = if self.inner().has_expired(old) {
                Cause::Expired
            } else {
                Cause::Replaced
            };
            if over == Over::Expired && cause == Cause::Replaced {
                return Err(refused);
            }
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
    /// or where it makes room.
    fn link(
        &self,
        published: Published<'_, K, V>,
        weight: u64,
        expires: u64,
        guard: &Guard<'_>,
        notes: &mut Notes<'_, K, V>,
    ) -> Result<(), InsertError> {
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
            let at = [weight, expires];
            return self.link_in_room(published, (state, locked), heir, at, guard, notes);
        }
        let (has_timers, visit) = self.outlook(&state, expires);
        drop(state);
        self.retire_replaced(old, visit);
        self.note_replaced(old, heir, notes);
        if has_timers {
            self.expire(guard, notes);
        }
        Ok(())
    }

    /// Makes room for an entry that is in the map, and links it. `held` is the lock of the queues.
    #[inline(never)]
    fn link_in_room(
        &self,
        published: Published<'_, K, V>,
        held: (MutexGuard<'_, State>, Locked),
        heir: Heir,
        [weight, expires]: [u64; 2],
        guard: &Guard<'_>,
        notes: &mut Notes<'_, K, V>,
    ) -> Result<(), InsertError> {
        let Published { new, mut old } = published;
        let (inner, id) = (self.inner(), Id::of(new));
        let (mut held, mut claimed, mut owner) = (Some(held), Claimed::default(), None);
        loop {
            let is_first = held.is_some();
            let (mut state, mut locked) = held.take().unwrap_or_else(|| inner.lock(guard));
            let handle = owner.as_ref().unwrap_or(self.handle());
            let own = || handle.number();
            // A number is of one hold of the lock.
            let number = heir.tenant.filter(|_| is_first).unwrap_or_else(own);
            let wanted = match locked.of(id).stage {
                Stage::New => Some(weight),
                // Taken out meanwhile.
                Stage::Claimed => None,
                Stage::Linked => unreachable!("an insert links its entry once"),
            };
            let made = wanted.map_or(Ok(Room::Made), |wanted| {
                state.make_room(&mut locked, number, wanted, &mut claimed)
            });
            let mut refused = None;
            match made {
                Ok(Room::Made) => state.link(&mut locked, id, number, expires, heir.standing),
                // A handle: the number may be another tenant's by then.
                Ok(Room::Again) => owner = Some(Arc::clone(&state.tenant(number).handle)),
                Err(no_room) => {
                    refused = Some(state.refusal(no_room, weight));
                    state.claim(&mut locked, id, None);
                }
            }
            let old = old.take();
            let (has_timers, visit) = self.outlook(&state, expires);
            drop(state);
            self.retire_replaced(old, visit);
            if refused.is_some() {
                // Before user code runs: what is refused is not to be found.
                self.remove_from_map(new, guard);
            }
            self.take_out(&mut claimed, Cause::Evicted, guard, notes);
            self.note_replaced(old, heir, notes);
            if let Some(refused) = refused {
                return Err(refused);
            }
            if made == Ok(Room::Made) {
                if has_timers {
                    self.expire(guard, notes);
                }
                return Ok(());
            }
        }
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
        if let Some((old, cause)) = old.filter(|_| heir.has_claimed) {
            notes.add(old, cause);
        }
    }

    /// Takes out what has expired: a batch.
    fn expire(&self, guard: &Guard<'_>, notes: &mut Notes<'_, K, V>) {
        let now = self.inner().clock.now();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_is_removed_before_it_is_linked_evicts_nothing() {
        let cache: Cache<u64, u64> = Cache::builder().max_bytes(3).weigher(|_, _| 1).build();
        (0..3).for_each(|key| cache.insert(key, key));
        let guard = cache.inner().store.read_lock();
        let weight = 2;
        let Ok(published) = publish(&cache, 9, weight, &guard) else {
            panic!("nothing is in its place");
        };
        assert!(cache.invalidate(&9));
        let mut notes = cache.inner().notes();
        let linked = cache.link(published, weight, NEVER, &guard, &mut notes);
        assert!(linked.is_ok());
        assert_eq!((cache.entry_count(), cache.weighted_bytes()), (3, 3));
    }

    fn publish<'g>(
        cache: &'g Cache<u64, u64>,
        key: u64,
        weight: u64,
        guard: &'g Guard<'_>,
    ) -> Result<Published<'g, u64, u64>, NewEntry<u64, Node<u64>>> {
        let meta = Meta::new(weight, cache.hash(&key), NEVER, NEVER, false);
        let node = Node {
            value: weight,
            meta,
        };
        let store = &cache.inner().store;
        let new = store.new_entry(cache.hash(&key), key, node, guard);
        cache.publish(new, None, Over::Any, guard)
    }

    /// It was seen before the section of the insert had an entry to put there.
    #[test]
    fn what_has_gone_since_it_was_seen_is_not_replaced() {
        for comes_again in [false, true] {
            let cache: Cache<u64, u64> = Cache::builder().max_bytes(3).weigher(|_, _| 1).build();
            cache.insert(9, 0);
            let guard = cache.inner().store.read_lock();
            let seen = cache.find(&9, &guard);
            assert!(seen.is_some() && cache.invalidate(&9));
            if comes_again {
                cache.insert(9, 1);
            }
            let meta = Meta::new(1, 9, NEVER, NEVER, false);
            let node = Node { value: 2, meta };
            let new = cache
                .inner()
                .store
                .new_entry(cache.hash(&9), 9, node, &guard);
            let Ok(published) = cache.publish(new, seen, Over::Any, &guard) else {
                panic!("it replaces any");
            };
            let replaced = published.old.map(|(old, _)| old.get().value.value);
            assert_eq!(replaced, comes_again.then_some(1));
            let mut notes = cache.inner().notes();
            let linked = cache.link(published, 1, NEVER, &guard, &mut notes);
            assert!(linked.is_ok());
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
        let cache: Cache<u64, u64> = Cache::builder().max_bytes(9).weigher(|_, &v| v).build();
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
                    let linked = view.link(new, weights[number], NEVER, &guard, &mut notes);
                    assert!(linked.is_ok());
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
