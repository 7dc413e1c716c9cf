//! The order in which segments are evicted: two `list_lru`s of sealed segments for each tenant, as
//! the queues of S3-FIFO.
//!
//! New items lie in fresh segments. When the oldest of these is evicted, the items that were read
//! meanwhile are copied to a kept segment, and the others are evicted: so items that are used once pass
//! through a quarter of the memory. Of a kept segment, the items that were read are copied again, with
//! less heat.
//!
//! A third list has the open segments. They are evicted if nothing else can be: a tenant may have all
//! its memory in them.

use super::{
    class::Class,
    pool::Pool,
    segment::{Segment, SegmentRef, Why},
    work,
};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use stillpoint_lru::{Hierarchy, Isolate, ListLru, Node, Scope, Shrink, Tenant};

/// Fresh segments are evicted first while they are more than this part of all.
const FRESH_PART: usize = 4;

/// Number of segments that are searched for one that can be evicted, beside those that are pinned.
const LOOK: usize = 16;

/// Number of segments that are searched for one that is mostly dead.
const LOOK_DEAD: usize = 32;

/// The lists of a store.
#[derive(Debug)]
pub struct Lists {
    fresh: ListLru<Segment>,
    kept: ListLru<Segment>,
    open: ListLru<Segment>,
    evict: bool,
    pool: Arc<Pool>,
    /// Number of segments that were evicted. Relaxed, needs no partner: it only shows that some were.
    evicted: AtomicU64,
}

impl Lists {
    /// `None` without memory.
    pub fn new(hierarchy: &Hierarchy, evict: bool, pool: Arc<Pool>) -> Option<Self> {
        Some(Self {
            fresh: ListLru::try_new(Some(hierarchy))?,
            kept: ListLru::try_new(Some(hierarchy))?,
            open: ListLru::try_new(Some(hierarchy))?,
            evict,
            pool,
            evicted: AtomicU64::new(0),
        })
    }

    fn of(&self, segment: &Segment) -> &ListLru<Segment> {
        if segment.kept {
            &self.kept
        } else {
            &self.fresh
        }
    }

    fn both(&self) -> [&ListLru<Segment>; 2] {
        [&self.fresh, &self.kept]
    }

    /// Notes that a segment is about to be open to all threads.
    pub fn add_open(&self, tenant: &Tenant, segment: &SegmentRef) {
        self.open.add(tenant, Arc::clone(segment));
    }

    /// Notes that the segment is no longer open.
    pub fn remove_open(&self, segment: &SegmentRef) {
        drop(self.open.del(segment));
    }

    /// Puts a sealed segment behind the others.
    pub fn add(&self, tenant: &Tenant, segment: &SegmentRef) {
        self.remove_open(segment);
        self.of(segment).add(tenant, Arc::clone(segment));
    }

    /// Frees a segment that is leaving, none of whose items is in the index any more.
    pub fn take_away(&self, segment: &SegmentRef) {
        drop(self.of(segment).del(segment));
        drop(segment.take_charge());
        let retired = Arc::clone(segment);
        self.pool.retire(retired, segment.bytes() as u64);
    }

    /// Frees a leaving segment of a key space that was flushed. Its index is freed, or has only readers
    /// for which limbo waits.
    pub fn free_flushed(&self, segment: &SegmentRef) {
        // Before: misses are not looked up there any more.
        if let Some(home) = segment.home() {
            home.note_leaving();
        }
        self.take_away(segment);
    }

    /// Takes all items out of a sealed segment, and frees it. Returns false if another thread does, or
    /// without memory for copies.
    pub fn evacuate(&self, segment: &SegmentRef, why: Why) -> bool {
        if !segment.leave() {
            return false;
        }
        let Some(home) = segment.home().filter(|home| !home.is_flushed()) else {
            self.free_flushed(segment);
            return true;
        };
        let done = Arc::clone(&home).take_out(segment, why);
        work::add(segment.bytes());
        if done || segment.stage.stay(|dead| home.note_dead(dead)) {
            self.take_away(segment);
        }
        done
    }

    /// Returns the number of segments that were evicted so far, by any thread.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    fn count_at(&self, tenant: &Tenant, node: Node) -> [usize; 2] {
        self.both().map(|list| list.count_one(tenant, node))
    }

    /// Returns the number of sealed segments of a tenant.
    pub fn count(&self, tenant: &Tenant) -> usize {
        let counts = |node| self.count_at(tenant, node).into_iter().sum::<usize>();
        Node::all().map(counts).sum()
    }

    /// Calls `each` with all sealed segments of a tenant, oldest first, until it returns false.
    pub fn for_each(&self, tenant: &Tenant, mut each: impl FnMut(&SegmentRef) -> bool) {
        let mut goes_on = true;
        for list in self.both() {
            for node in Node::all() {
                list.walk_one(tenant, node, usize::MAX, |segment| {
                    goes_on = goes_on && each(segment);
                    if goes_on {
                        Isolate::Skip
                    } else {
                        Isolate::Stop
                    }
                });
            }
        }
    }

    /// Compacts one segment of a tenant that is mostly dead. Returns whether there was one.
    pub fn compact_one(&self, tenant: &Tenant) -> bool {
        Node::all()
            .any(|node| self.evict_dead(self.both(), tenant, node) || self.evict_open(tenant, node))
    }

    /// Evicts one segment of a tenant. Returns whether it has.
    fn evict_one(&self, tenant: &Tenant, node: Node) -> bool {
        let [fresh, kept] = self.count_at(tenant, node);
        let mut order = self.both();
        if fresh * FRESH_PART <= fresh + kept {
            order.reverse();
        }
        self.evict_dead(order, tenant, node)
            || (self.evict && self.evict_oldest(order, tenant, node))
            || self.evict_open(tenant, node)
    }

    /// Compacts one of the oldest segments that is mostly dead, if there is one: dead items should go
    /// before live ones.
    fn evict_dead(&self, order: [&ListLru<Segment>; 2], tenant: &Tenant, node: Node) -> bool {
        let mut done = false;
        for list in order {
            // Without eviction, only compaction makes room.
            let look = if self.evict { LOOK_DEAD } else { usize::MAX };
            list.walk_one(tenant, node, look, |segment| {
                if segment.is_sparse() && self.evacuate(segment, Why::Compact) {
                    done = true;
                    return Isolate::Stop;
                }
                Isolate::Skip
            });
            if done {
                break;
            }
        }
        done
    }

    fn evict_oldest(&self, order: [&ListLru<Segment>; 2], tenant: &Tenant, node: Node) -> bool {
        let mut done = false;
        let mut coolest: Option<(u32, SegmentRef)> = None;
        for list in order {
            let mut left = LOOK;
            list.walk_one(tenant, node, usize::MAX, |segment| {
                // Behind the others, so that the next search does not come to it again.
                if segment.is_pinned() {
                    return Isolate::Rotate;
                }
                if left == 0 {
                    return Isolate::Stop;
                }
                left -= 1;
                if let Some(heat) = cool_whole(segment) {
                    if coolest.as_ref().is_none_or(|(least, _)| heat < *least) {
                        coolest = Some((heat, Arc::clone(segment)));
                    }
                    return Isolate::Rotate;
                }
                if self.evacuate(segment, Why::Evict) {
                    done = true;
                    return Isolate::Stop;
                }
                Isolate::Skip
            });
            if done {
                return true;
            }
        }
        // All that were looked at were used enough to stay: one of them is evicted all the same.
        coolest.is_some_and(|(_, segment)| self.evacuate(&segment, Why::Clear))
    }

    /// Seals and evicts the segment that has been open for longest. Without eviction, seals and compacts
    /// one that is mostly empty or dead. Called if nothing else could be evicted.
    fn evict_open(&self, tenant: &Tenant, node: Node) -> bool {
        let why = if self.evict { Why::Clear } else { Why::Compact };
        let mut done = false;
        self.open.walk_one(tenant, node, usize::MAX, |segment| {
            // Compacting the segment that copies go to would only move them.
            let suits = match self.evict {
                true => !segment.is_pinned(),
                false => segment.is_sparse() && (!segment.kept || segment.is_flushed()),
            };
            if suits && segment.home().is_some_and(|home| home.seal_one(segment)) {
                self.evacuate(segment, why);
                done = true;
                return Isolate::Stop;
            }
            Isolate::Skip
        });
        done
    }
}

/// If it has a single item that was used enough to stay where it is, cools that and returns its heat.
fn cool_whole(segment: &SegmentRef) -> Option<u32> {
    if segment.class() != Class::OWN || !segment.stage.is_sealed() {
        return None;
    }
    segment.home()?.cool_whole(segment)
}

/// The shrinker of a store's segments.
#[derive(Debug)]
pub struct Evictor(pub Arc<Lists>);

impl Shrink for Evictor {
    fn count(&self, scope: &Scope<'_>) -> usize {
        let sealed: usize = self.0.count_at(scope.tenant, scope.node).into_iter().sum();
        sealed + self.0.open.count_one(scope.tenant, scope.node)
    }

    fn scan(&self, scope: &Scope<'_>, objects: usize) -> Option<usize> {
        let evict = || {
            let done = self.0.evict_one(scope.tenant, scope.node);
            self.0.evicted.fetch_add(done.into(), Ordering::Relaxed);
            done
        };
        match (0..objects).take_while(|_| evict()).count() {
            0 => None,
            evicted => Some(evicted),
        }
    }

    fn batch(&self) -> usize {
        1
    }
}
