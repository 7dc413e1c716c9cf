//! What the lock of the queues guards: tenants with their policies and limits, and the wheel.
//!
//! One lock for all of a cache: so usage is exact, an entry as large as the whole cache can be let
//! in, and no shard has a budget of its own. It is never held while user code runs; what is long
//! under it, [`crate::Cache`] says.

use crate::{
    node::{Id, Locked, NEVER, NO_TIMER, Stage},
    policy::{Nodes, Policy, Queue, Standing},
    removal::Cause,
    tenant::Handle,
    wheel::{Step, Wheel},
};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU64,
    sync::{Arc, atomic::Ordering},
};

mod account;
mod delete;
mod evict;
mod limits;
mod tree;
mod trim;
mod watched;

pub use crate::tenant::ROOT;
pub use evict::{Entrant, Refusal, Ticket};
pub use limits::{For, Limits};
pub use watched::Load;

/// Upper bound on the entries that are claimed under one hold of the lock.
pub const BATCH: usize = 32;

/// Number of steps of the wheel under one hold of the lock: more for each claimed entry than the levels that
/// it moves down before it is due, so that inserts keep up.
const STEPS: usize = 4 * BATCH;

/// Entries that a thread has claimed in a section, to be taken out of the map: a list through the links that
/// their queue has used.
#[derive(Debug, Default)]
pub struct Claimed {
    /// The first and the last.
    ends: Option<(Id, Id)>,
    len: usize,
}

impl Claimed {
    pub fn is_full(&self) -> bool {
        self.len == BATCH
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn push(&mut self, locked: &mut Locked, id: Id) {
        locked.set_next(id, None);
        let first = self.ends.map_or(id, |(first, last)| {
            locked.set_next(last, Some(id));
            first
        });
        self.ends = Some((first, id));
        self.len += 1;
    }

    /// Returns the entries in the order in which they were claimed.
    ///
    /// # Safety
    ///
    /// The calling thread has claimed them, in the section that it is in.
    pub unsafe fn iter(&self) -> impl Iterator<Item = Id> + use<'_> {
        // SAFETY: the caller's promise.
        let after = |id: &Id| unsafe { id.claimed_after() };
        std::iter::successors(self.ends.map(|(first, _)| first), after)
    }
}

/// Counts of the changes to one tenant's entries.
#[derive(Debug, Clone, Copy, Default)]
pub struct Events {
    pub inserts: u64,
    pub evicted: u64,
    pub expired: u64,
    pub replaced: u64,
    pub removed: u64,
}

/// The inheritance of a new entry from the one that it has replaced in the map.
#[derive(Debug, Clone, Copy, Default)]
pub struct Inheritance {
    /// Number of the tenant that it gets; `None` if the old one had none, or one that is being deleted.
    pub tenant: Option<u32>,
    /// Number of the tenant that has counted the claim of the old one, if it was claimed for this one.
    pub counted: Option<u32>,
    /// Whether it has the old one's place already.
    pub is_linked: bool,
    /// Place and frequency of the old one.
    pub standing: Option<Standing>,
}

/// One tenant.
#[derive(Debug)]
pub struct Tenant {
    pub handle: Arc<Handle>,
    /// Handles of deleted tenants that it has succeeded, whose views are its own by now.
    departed: delete::Departed,
    /// Its place in the tree.
    place: tree::Place,
    pub policy: Policy<Id>,
    /// The entries that are not to be evicted, which the policy does not know.
    pinned: Queue<Id>,
    /// Weight of the pinned entries of it and of all below it.
    pub pinned_bytes: u64,
    pub limits: Limits,
    /// Sums of the children's min and low.
    claims: limits::Claims,
    /// Sums of what the children use of their min and low.
    claims_used: limits::Claims,
    /// Weight of the entries of it and of all below it, and of room reserved there.
    pub usage: u64,
    pub events: Events,
    worth: limits::Worth,
    /// The tenant that was chosen to give way below its limit, which may be itself.
    victim: limits::Victim,
    /// Number of the tenant with which the next comparison below its limit begins.
    cursor: u32,
    /// Number of the last search for a victim that has passed it over.
    passed: u64,
    /// Whether `high` has it.
    is_queued: bool,
    /// Whether `oversized` has it.
    is_to_be_trimmed: bool,
    /// Usage above which the service thread tries again to bring it below its high limit: a little more than
    /// at the last try, which has found nothing to take.
    stuck_at: u64,
    /// Least weight of its oldest entries, when a search looked last and found none that it may take, if none of
    /// its entries has come or gone since; otherwise 1.
    next_weight: u64,
}

/// All that the lock guards.
#[derive(Debug)]
pub struct State {
    /// The tenants by number. The last one is in use, so the memory of deleted ones goes back.
    tenants: Vec<Option<Box<Tenant>>>,
    /// The numbers that are not in use, below the last one.
    free: BTreeSet<u32>,
    names: BTreeMap<(u32, Arc<str>), u32>,
    wheel: Wheel<Id>,
    /// The tenants to be brought back below their high limits.
    high: Vec<u32>,
    /// The tenants whose tables are to be made smaller by the service thread.
    oversized: Vec<u32>,
    /// Inserts so far, but for those that have taken another entry's place: the clock of what is
    /// decayed.
    inserts: u64,
    /// Number of entries of all tenants.
    entries: u64,
    /// Number of searches for a victim so far.
    searches: u64,
    /// The inserts that have not made all their room yet.
    waiting: Vec<evict::Waiting>,
    /// The computes under way, by the entries that they have seen.
    watched: BTreeMap<Id, Arc<Load>>,
    next_ticket: NonZeroU64,
    /// Room for a path from the root, kept from one use to the next.
    path_to: RefCell<Vec<u32>>,
    /// The same for a search, meanwhile.
    own_path: Vec<u32>,
    /// Number of looks at a tenant.
    #[cfg(test)]
    looks: std::cell::Cell<u64>,
}

impl State {
    pub fn new(root: Arc<Handle>, max: u64) -> Self {
        let mut root = Tenant::new(root);
        root.limits.max = max;
        Self {
            tenants: vec![Some(Box::new(root))],
            free: BTreeSet::new(),
            names: BTreeMap::new(),
            wheel: Wheel::new(),
            high: Vec::new(),
            oversized: Vec::new(),
            inserts: 0,
            entries: 0,
            searches: 0,
            waiting: Vec::new(),
            watched: BTreeMap::new(),
            next_ticket: NonZeroU64::MIN,
            path_to: RefCell::default(),
            own_path: Vec::new(),
            #[cfg(test)]
            looks: Default::default(),
        }
    }

    #[inline(always)]
    pub fn tenant(&self, number: u32) -> &Tenant {
        #[cfg(test)]
        self.looks.set(self.looks.get() + 1);
        self.tenants[number as usize]
            .as_deref()
            .expect("a number in use")
    }

    #[inline(always)]
    pub fn tenant_mut(&mut self, number: u32) -> &mut Tenant {
        self.tenants[number as usize]
            .as_deref_mut()
            .expect("a number in use")
    }

    /// Returns the child of that name; a new one, if there was none.
    pub fn child(&mut self, parent: &Arc<Handle>, name: &str) -> Arc<Handle> {
        let name: Arc<str> = name.into();
        let parent = parent.live();
        let above = parent.number();
        let key = (above, Arc::clone(&name));
        if let Some(&number) = self.names.get(&key) {
            return Arc::clone(&self.tenant(number).handle);
        }
        if self.tenants.len() == 1 {
            // Nothing was compared so far: what the root has earned in all its time is not to count
            // as if that were now.
            self.tenant_mut(ROOT).policy.take_passed();
        }
        let number = self.free.pop_first().unwrap_or_else(|| {
            self.tenants.push(None);
            u32::try_from(self.tenants.len() - 1).expect("fewer than 2^32 tenants")
        });
        let handle = Handle::new(number, name, Some(Arc::clone(parent)));
        let tenant = Tenant::new(Arc::clone(&handle));
        self.tenants[number as usize] = Some(Box::new(tenant));
        self.hang(number, above);
        self.names.insert(key, number);
        handle
    }

    /// Takes a tenant out that has left the tree, and gives back what it was kept in.
    fn take(&mut self, number: u32) -> Box<Tenant> {
        let tenant = self.tenants[number as usize].take();
        self.free.insert(number);
        while let Some(None) = self.tenants.last() {
            self.tenants.pop();
            self.free.remove(&(self.tenants.len() as u32));
        }
        if self.tenants.len() < self.tenants.capacity() / 4 {
            self.tenants.shrink_to(2 * self.tenants.len());
        }
        tenant.expect("it is there")
    }

    fn set_timer(&mut self, locked: &mut Locked, id: Id, expires: u64) {
        if expires != NEVER {
            locked.of(id).timer = self.wheel.add(id, expires);
        }
    }

    /// Takes an entry's timer, if it has one, out of the wheel.
    fn remove_timer(&mut self, locked: &mut Locked, id: Id) {
        let timer = std::mem::replace(&mut locked.of(id).timer, NO_TIMER);
        if timer != NO_TIMER {
            self.wheel
                .remove(timer, |id, key| locked.of(id).timer = key);
        }
    }

    /// Links a new entry that there is room for, unless it was claimed meanwhile.
    #[inline(always)]
    fn link(&mut self, locked: &mut Locked, id: Id, entrant: Entrant) {
        let Entrant {
            number,
            expires,
            standing,
        } = entrant;
        let guarded = locked.of(id);
        match guarded.stage {
            Stage::New => {}
            Stage::Linked => unreachable!("an insert links its entry once"),
            Stage::Claimed => {
                // Taken out before it was any tenant's, and counted so as the root's.
                self.tenant_mut(ROOT).events.inserts += 1;
                return;
            }
        }
        self.set_timer(locked, id, expires);
        self.inserts += 1;
        self.entries += 1;
        let (inserts, half_life) = (self.inserts, self.half_life());
        let weight = locked.weight(id);
        let guarded = locked.of(id);
        let pinned = guarded.pinned;
        let tenant = self.tenant_mut(number);
        guarded.link(number, tenant.policy.round());
        tenant.events.inserts += 1;
        if pinned {
            tenant.pinned.push(locked, id);
        } else if let Some(standing) = standing {
            tenant.policy.restore(locked, id, standing);
        } else if tenant.policy.insert(locked, id) {
            tenant.worth.earn(1, inserts, half_life);
        }
        self.charge(number, weight, pinned);
        if let Some(load) = self.watched.get(&id) {
            load.set_seen_in(&self.tenant(number).handle);
        }
    }

    /// Returns whose an entry is that a section keeps. One that is not linked yet is of the tenant that it
    /// waits for room in, or that has the one that it has replaced in the map; `None` if it is of none.
    pub fn owner(&self, locked: &mut Locked, mut id: Id) -> Option<u32> {
        loop {
            let guarded = locked.of(id);
            if guarded.stage != Stage::New {
                return Some(guarded.tenant);
            }
            let waiting = self.waiting_in(id);
            if waiting.is_some() {
                return waiting;
            }
            // Not retired: its inserter, which does so, has not had the lock since.
            id = locked.links(id).prev?;
        }
    }

    /// Returns whether an entry is to stay: it was not claimed, and no invalidation or deletion under way is about
    /// to do that.
    fn is_current(&self, locked: &mut Locked, id: Id) -> bool {
        let guarded = locked.of(id);
        let number = guarded.tenant;
        match guarded.stage {
            Stage::New => true,
            Stage::Linked => {
                let tenant = self.tenant(number);
                !tenant.handle.deleted.load(Ordering::Relaxed) && !tenant.is_outdated(locked, id)
            }
            Stage::Claimed => false,
        }
    }

    /// Returns the number of inserts in which the worth of memory is halved.
    fn half_life(&self) -> u64 {
        self.entries.max(1000)
    }

    /// Claims an entry, and counts why, if that counts. Returns false if it was claimed before.
    #[inline(never)]
    pub fn claim(&mut self, locked: &mut Locked, id: Id, cause: Option<Cause>) -> bool {
        let owner = self.owner(locked, id);
        let guarded = locked.of(id);
        match guarded.stage {
            Stage::Claimed => return false,
            Stage::Linked => self.claim_linked(locked, id, cause),
            Stage::New => {
                guarded.stage = Stage::Claimed;
                // For walks that have found it.
                guarded.tenant = owner.unwrap_or(ROOT);
                self.forget_waiting(id);
                self.tenant_mut(ROOT).events.count(cause);
                locked.hide(id);
                self.forget_watched(id, cause);
            }
        }
        true
    }

    /// Claims an entry that is in a queue. One that is evicted leaves a ghost.
    #[inline(always)]
    fn claim_linked(&mut self, locked: &mut Locked, id: Id, cause: Option<Cause>) {
        self.remove_timer(locked, id);
        let weight = locked.weight(id);
        let guarded = locked.of(id);
        guarded.stage = Stage::Claimed;
        let (number, pinned) = (guarded.tenant, guarded.pinned);
        self.entries -= 1;
        let tenant = self.tenant_mut(number);
        match cause {
            _ if pinned => tenant.pinned.remove(locked, id),
            Some(Cause::Evicted) => tenant.policy.evict(locked, id),
            _ => _ = tenant.policy.remove(locked, id),
        }
        tenant.events.count(cause);
        if tenant.is_to_be_queued_for_trim() {
            self.queue_trim(number);
        }
        self.uncharge(number, weight, pinned);
        locked.hide(id);
        self.forget_watched(id, cause);
    }

    /// Puts a new entry into the place in the queue of the one that it has replaced in the map, and claims
    /// that one. If the new one weighs more, or the tenant is being deleted, only returns what to
    /// [link](Self::link) it with once there is room.
    pub fn replace(
        &mut self,
        locked: &mut Locked,
        [old, new]: [Id; 2],
        cause: Cause,
        expires: u64,
    ) -> Inheritance {
        let guarded = locked.of(old);
        let (stage, number, pinned) = (guarded.stage, guarded.tenant, guarded.pinned);
        // The old one is retired after this hold.
        locked.set_prev(new, None);
        if stage == Stage::Claimed {
            // Its tenant may have been deleted since.
            return Inheritance::default();
        }
        // Whatever the cause: its compute is not to replace what the program has inserted.
        self.forget_watched(old, Some(Cause::Replaced));
        let mut inherited = Inheritance {
            counted: Some(number),
            ..Inheritance::default()
        };
        // Nothing comes to a tenant whose deletion has begun, or in place of an outdated entry.
        let tenant = self.tenant(number);
        let inherits = stage == Stage::Linked
            && cause == Cause::Replaced
            && !tenant.handle.deleted.load(Ordering::Relaxed)
            && !tenant.is_outdated(locked, old);
        if !inherits {
            self.claim(locked, old, Some(cause));
            return inherited;
        }
        inherited.tenant = Some(number);
        let weights = [locked.weight(old), locked.weight(new)];
        let guarded = locked.of(new);
        let is_alike = guarded.stage == Stage::New && guarded.pinned == pinned;
        if !is_alike || weights[1] > weights[0] {
            inherited.standing = (is_alike && !pinned).then(|| Standing::of(locked, old));
            self.claim(locked, old, Some(cause));
            return inherited;
        }
        inherited.is_linked = true;
        guarded.link(number, tenant.policy.round());
        locked.of(old).stage = Stage::Claimed;
        self.remove_timer(locked, old);
        self.set_timer(locked, new, expires);
        let tenant = self.tenant_mut(number);
        tenant.events.inserts += 1;
        tenant.events.count(Some(cause));
        if pinned {
            tenant.pinned.replace(locked, old, new);
        } else {
            tenant.policy.replace(locked, old, new);
        }
        if weights[1] < weights[0] {
            self.uncharge(number, weights[0] - weights[1], pinned);
        }
        inherited
    }

    /// Counts for the tenant `number` that an entry was removed, and not replaced: what was to replace it is refused.
    pub fn recount_replaced(&mut self, number: u32) {
        let events = &mut self.tenant_mut(number).events;
        events.replaced -= 1;
        events.removed += 1;
    }

    /// Claims entries that have expired: a batch, in a bounded number of steps. Returns whether there
    /// may be more.
    pub fn expire(&mut self, locked: &mut Locked, now: u64, claimed: &mut Claimed) -> bool {
        for _ in 0..STEPS {
            if claimed.is_full() {
                break;
            }
            // If it was used meanwhile.
            let later = |id: Id| {
                // SAFETY: in a queue, and the lock is held.
                let expires = unsafe { id.meta() }.expires.load(Ordering::Relaxed);
                (expires > now).then_some(expires)
            };
            let moved = |id, key| locked.of(id).timer = key;
            let id = match self.wheel.step(now, later, moved) {
                Step::None => return false,
                Step::Moved => continue,
                Step::Due(id) => id,
            };
            locked.of(id).timer = NO_TIMER;
            self.claim(locked, id, Some(Cause::Expired));
            claimed.push(locked, id);
        }
        true
    }

    /// Returns the time at which the wheel has work; `None` if it is empty.
    #[inline]
    pub fn next_due(&self) -> Option<u64> {
        self.wheel.next_due()
    }
}

impl Tenant {
    /// Returns any of its entries.
    fn any(&self) -> Option<Id> {
        self.policy.any().or(self.pinned.oldest())
    }

    /// Returns an outdated entry: see [`Policy::rounds`].
    fn outdated(&self, locked: &Locked) -> Option<Id> {
        let pinned = self.pinned.oldest();
        let pinned = pinned.filter(|&id| self.is_outdated(locked, id));
        self.policy.outdated(locked).or(pinned)
    }

    fn is_outdated(&self, locked: &Locked, id: Id) -> bool {
        locked.round(id) != self.policy.round()
    }

    /// Returns the number of its entries.
    pub fn entries(&self) -> usize {
        self.policy.entries() + self.pinned.entries()
    }

    fn new(handle: Arc<Handle>) -> Self {
        Self {
            handle,
            departed: Default::default(),
            place: tree::Place::default(),
            policy: Policy::new(),
            pinned: Queue::new(),
            pinned_bytes: 0,
            is_queued: false,
            is_to_be_trimmed: false,
            stuck_at: 0,
            limits: Limits::default(),
            claims: Default::default(),
            claims_used: Default::default(),
            usage: 0,
            events: Events::default(),
            worth: Default::default(),
            victim: Default::default(),
            cursor: ROOT,
            passed: 0,
            next_weight: 1,
        }
    }
}

impl Events {
    /// Counts an entry that has left because of `cause`, if that counts.
    #[inline]
    fn count(&mut self, cause: Option<Cause>) {
        *match cause {
            Some(Cause::Replaced) => &mut self.replaced,
            Some(Cause::Expired) => &mut self.expired,
            Some(Cause::Evicted) => &mut self.evicted,
            Some(Cause::Removed) => &mut self.removed,
            // A refusal is its view's to count.
            Some(Cause::Refused) | None => return,
        } += 1;
    }

    pub fn add(&mut self, other: Self) {
        self.inserts += other.inserts;
        self.evicted += other.evicted;
        self.expired += other.expired;
        self.replaced += other.replaced;
        self.removed += other.removed;
    }
}
