//! The policy of one tenant: which entry goes next. Single-threaded, and without knowledge of keys,
//! values, limits or locks; `model.rs` is the same policy told a second time, on plain vectors.
//!
//! S3-FIFO (Yang and others, SOSP 2023): a *small* queue of newcomers, a *main* queue, and ghosts of
//! those that were evicted. A hit sets a frequency of two bits and moves nothing;
//! what has been used is moved, or goes round once more, when its turn comes.
//!
//! Two things are added. A ghost that comes back goes to the main queue only if it has been asked for
//! clearly more often than the entry there that would have to go for it, as a [`sketch`] has counted
//! (TinyLFU). Without that, a loop that is a little longer than the cache replaces all of the main
//! queue by entries that are not used before they are replaced themselves. In return ghosts last
//! twice as long, and the small queue is smaller: what is evicted from it too early comes back.
//!
//! And the small queue's share adapts to the ghosts that come back ([`Policy::adapt`]). A young ghost of the small
//! queue would have been a hit in a longer small queue: its share grows by one entry. A ghost of the main queue
//! would have been a hit in a longer main queue: the small queue's share shrinks by [`LOSS`] entries.
//! Where keys are used again soon, and then no more, the small queue takes most of the memory after about
//! as many such misses as there are entries. In a loop that is longer than the cache, the main queue's
//! ghosts come back a round later, and the debt that they leave keeps the small queue from growing again.
//!
//! That a ghost of the main queue comes back also says that more memory would have helped:
//! [`Policy::insert`] returns it. That a search passes entries which were used says that less memory would
//! have hurt: [`Policy::take_passed`]. Tenants are compared by both.

mod ghost;
#[cfg(all(test, not(stillpoint_loom)))]
mod model;
mod queue;
mod sketch;

pub use queue::{Links, Queue};

use ghost::{Ghost, Ghosts};
use sketch::Sketch;
use std::fmt::Debug;

/// The largest frequency of an entry: hits beyond it write nothing.
pub const MOST: u8 = 3;

/// Upper bound on the entries of a queue that one search for a victim moves, or looks at before it finds
/// nothing. Readers mark entries without a lock, as fast as a search clears them: without a bound it might
/// not end, and other threads wait for it.
pub const TURNS: usize = 64;

/// Number of entries by which a ghost of the main queue makes the small queue shorter. Chosen by replays:
/// with 8 two loops in turn lose more to growth that is taken back, with 24 a working set that moves is learnt
/// later.
const LOSS: i64 = 16;

/// Largest debt of the small queue's share, as a multiple of the number of entries. While there is a debt, each
/// ghost of the small queue that comes back only pays one entry of it. Chosen by a replay of two loops in turn.
const DEBT: i64 = 2;

/// See [`Policy::is_close_one_due`].
const CLOSE: u8 = 16;

/// Tables with room for so many times the entries that there are become smaller.
const SPARE: usize = 8;

/// Tables with room for so few entries stay.
const FEW: usize = 4096;

/// Tables that become smaller have room for this part more than there is: what is copied under the
/// lock is not copied back at the next insert, and again at the next shrink.
const ROOM: usize = 16;

/// Number of ghosts, or words of counts, that one part of a trim moves to a smaller table: some tenths of a
/// millisecond under the lock.
pub const PART: usize = 1 << 14;

/// The result of a part of a trim.
#[derive(Debug)]
#[must_use]
pub enum Trimmed {
    /// Some, and there may be more to do. With a table that is used no longer.
    Part(Option<Freed>),
    /// Nothing is too large.
    Done,
}

/// A table that is used no longer: to be dropped once the lock has been released.
#[derive(Debug)]
pub enum Freed {
    Ghosts(ghost::Table),
    Counts(Box<[u64]>),
}

impl Freed {
    /// Returns the number of its ghosts or words.
    pub fn len(&self) -> usize {
        match self {
            Self::Ghosts(table) => table.len(),
            Self::Counts(words) => words.len(),
        }
    }

    /// Returns whether it is small enough to do much more under the same hold of the lock.
    pub fn is_small(&self) -> bool {
        self.len() <= PART / 16
    }
}

/// The data of entries that a policy uses.
pub trait Nodes {
    type Id: Copy + Eq + Debug;

    /// Returns the neighbours of an entry in its queue; anything for one that no queue has.
    fn links(&self, id: Self::Id) -> Links<Self::Id>;
    fn set_prev(&mut self, id: Self::Id, prev: Option<Self::Id>);
    fn set_next(&mut self, id: Self::Id, next: Option<Self::Id>);
    fn set_links(&mut self, id: Self::Id, links: Links<Self::Id>) {
        self.set_prev(id, links.prev);
        self.set_next(id, links.next);
    }
    /// Returns the queue that has an entry. Only the policy changes it.
    fn place(&mut self, id: Self::Id) -> &mut Place;
    fn weight(&self, id: Self::Id) -> u64;
    fn fingerprint(&self, id: Self::Id) -> u32;
    /// Returns whether the policy was in an odd [round](Policy::rounds) when the entry was added.
    fn round(&self, id: Self::Id) -> bool;
    fn frequency(&self, id: Self::Id) -> u8;
    fn set_frequency(&mut self, id: Self::Id, frequency: u8);
    /// Prefetches an entry that will soon be evicted.
    fn fetch(&self, _: Self::Id) {}
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// No queue has it.
    None,
    Small,
    Main,
}

/// The place and frequency that an entry leaves to the one that replaces it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    place: Place,
    frequency: u8,
}

impl Standing {
    /// Returns the standing of an entry in a queue. Its replacement counts as a use.
    pub fn of<I>(nodes: &mut impl Nodes<Id = I>, id: I) -> Self
    where
        I: Copy + Eq + Debug,
    {
        let frequency = nodes.frequency(id);
        Self {
            place: *nodes.place(id),
            frequency: (frequency + 1).min(MOST),
        }
    }
}

/// The queues of one tenant.
#[derive(Debug)]
pub struct Policy<I> {
    small: Queue<I>,
    main: Queue<I>,
    ghosts: Ghosts,
    sketch: Sketch,
    ghost_hits: u64,
    /// Evictions that no insert has followed: how much it has shrunk.
    shrunk: usize,
    /// The queue that the last evicted entry was in; `None` before the first eviction.
    evicted_from: Place,
    /// Number of used entries of the main queue that searches have passed.
    passed: u64,
    /// Ghosts that were asked for little more often than what had their place, as they wrap.
    close: u8,
    /// Number of entries that the small queue may have, where that is more than its least share; below 0, a
    /// debt. See [`Policy::adapt`].
    credit: i64,
    /// See [`Policy::rounds`].
    rounds: u64,
}

impl<I: Copy + Eq + Debug> Policy<I> {
    pub fn new() -> Self {
        Self {
            small: Queue::new(),
            main: Queue::new(),
            ghosts: Ghosts::default(),
            sketch: Sketch::default(),
            ghost_hits: 0,
            shrunk: 0,
            evicted_from: Place::None,
            passed: 0,
            close: 0,
            credit: 0,
            rounds: 0,
        }
    }

    /// Returns how often all entries have been invalidated. Entries of the round before are *outdated*:
    /// they are the oldest of their queues, as no search moves them, and go before the others of their
    /// queue. A round begins only after the last outdated entry has gone, so there are never more than two
    /// rounds, and one bit in each entry says which is its own.
    pub fn rounds(&self) -> u64 {
        self.rounds
    }

    /// Begins a round, which makes all entries outdated. There is no outdated one.
    pub fn begin_round(&mut self) {
        self.rounds += 1;
    }

    /// Returns whether the present round is odd.
    pub fn round(&self) -> bool {
        self.rounds % 2 == 1
    }

    /// Returns an outdated entry; `None` once there is none.
    pub fn outdated(&self, nodes: &impl Nodes<Id = I>) -> Option<I> {
        let oldest = [self.small.oldest(), self.main.oldest()];
        oldest
            .into_iter()
            .flatten()
            .find(|&id| self.is_outdated(nodes, id))
    }

    fn is_outdated(&self, nodes: &impl Nodes<Id = I>, id: I) -> bool {
        nodes.round(id) != self.round()
    }

    /// Returns the weight of all entries.
    pub fn weight(&self) -> u64 {
        self.small.weight() + self.main.weight()
    }

    /// Returns the number of entries.
    pub fn entries(&self) -> usize {
        self.small.entries() + self.main.entries()
    }

    /// Returns how many entries were inserted again soon after their eviction.
    pub fn ghost_hits(&self) -> u64 {
        self.ghost_hits
    }

    /// Adds the hits of a policy that ends.
    pub fn add_ghost_hits(&mut self, hits: u64) {
        self.ghost_hits += hits;
    }

    /// Returns how many used entries of the main queue searches have passed since the last call: hits that
    /// memory has earned where it would be taken.
    pub fn take_passed(&mut self) -> u64 {
        std::mem::take(&mut self.passed)
    }

    /// Prefetches the counters and ghosts of an entry that is about to be inserted. The caller has other work until
    /// they are used.
    pub fn fetch(&self, nodes: &impl Nodes<Id = I>, id: I) {
        let fingerprint = nodes.fingerprint(id);
        self.sketch.fetch(fingerprint);
        self.ghosts.fetch(fingerprint);
    }

    /// Prefetches the ghosts of the entry that will most likely be evicted next. Returns that entry.
    pub fn fetch_next(&self, nodes: &impl Nodes<Id = I>) -> Option<I> {
        let next = self.likely_next()?;
        self.ghosts.fetch(nodes.fingerprint(next));
        Some(next)
    }

    /// Returns the entry that most likely is evicted next: the oldest of the queue that the last one was in.
    fn likely_next(&self) -> Option<I> {
        let queue = match self.evicted_from {
            Place::Main => &self.main,
            Place::None | Place::Small => &self.small,
        };
        queue.oldest().or_else(|| self.any())
    }

    /// Adds an entry that is in no queue. Returns whether it would be there still, with more room:
    /// whether it comes back from the main queue, or has earned a place there.
    pub fn insert(&mut self, nodes: &mut impl Nodes<Id = I>, id: I) -> bool {
        let fingerprint = nodes.fingerprint(id);
        self.shrunk = self.shrunk.saturating_sub(1);
        self.sketch.add(fingerprint, 1, self.entries());
        let Some(ghost) = self.ghosts.take(fingerprint, self.ghosts_wanted()) else {
            self.push(nodes, id, Place::Small);
            return false;
        };
        self.ghost_hits += 1;
        self.adapt(ghost);
        let earned = self.earns_a_place(nodes, fingerprint);
        self.push(nodes, id, if earned { Place::Main } else { Place::Small });
        earned || ghost.from == Place::Main
    }

    /// Changes the small queue's share when a ghost comes back. A ghost of the small queue counts if a small queue
    /// of three fifths of all entries would still have its entry. A ghost of the main queue counts if its age is
    /// below the number of entries.
    fn adapt(&mut self, ghost: Ghost) {
        let entries = self.entries();
        let change = match ghost.from {
            Place::Small if (self.small.entries() + ghost.age) * 5 < entries * 3 => 1,
            Place::Main if ghost.age < entries => -LOSS,
            _ => return,
        };
        let entries = entries as i64;
        self.credit = (self.credit + change).clamp(-DEBT * entries, entries * 9 / 10);
    }

    /// Returns whether a key that comes back has been asked for clearly more often (by a quarter) than the oldest
    /// entry of the main queue, near which the next victim is. If the small queue is far too large, returns true:
    /// the next victim is one of its entries. (It is always a little too large, as room is made before an entry
    /// is added.)
    fn earns_a_place(&mut self, nodes: &impl Nodes<Id = I>, fingerprint: u32) -> bool {
        if self.small.weight() / 2 > self.small_wanted() {
            return true;
        }
        let Some(other) = self.main.oldest() else {
            return true;
        };
        let [own, other] = [fingerprint, nodes.fingerprint(other)].map(|key| self.sketch.get(key));
        own * 4 > other * 5 || own > other && self.is_close_one_due()
    }

    /// Returns whether a ghost takes a place though it is asked for little more often than what has it: of
    /// those one in sixteen. Otherwise an entry which the sketch takes for a key that is used much keeps its
    /// place for ever.
    fn is_close_one_due(&mut self) -> bool {
        self.close = (self.close + 1) % CLOSE;
        self.close == 0
    }

    /// Replaces `old`, which is queued, with `new`, which is not. That counts as a use, and not as the return
    /// of a ghost.
    pub fn replace(&mut self, nodes: &mut impl Nodes<Id = I>, old: I, new: I) {
        let standing = Standing::of(nodes, old);
        nodes.set_frequency(new, standing.frequency);
        *nodes.place(new) = std::mem::replace(nodes.place(old), Place::None);
        match standing.place {
            Place::None => {}
            Place::Small => self.small.replace(nodes, old, new),
            Place::Main => self.main.replace(nodes, old, new),
        }
    }

    /// Adds an entry that is in no queue as the newest of the queue that one with its key was in.
    pub fn restore(&mut self, nodes: &mut impl Nodes<Id = I>, id: I, standing: Standing) {
        nodes.set_frequency(id, standing.frequency);
        self.push(nodes, id, standing.place);
    }

    /// Takes an entry out of its queue. Returns false if it was in none.
    pub fn remove(&mut self, nodes: &mut impl Nodes<Id = I>, id: I) -> bool {
        match std::mem::replace(nodes.place(id), Place::None) {
            Place::None => return false,
            Place::Small => self.small.remove(nodes, id),
            Place::Main => self.main.remove(nodes, id),
        }
        true
    }

    /// Returns the next entry to evict, which stays in its queue. `None` if there is none. Moves
    /// [`TURNS`] entries of each queue at most.
    pub fn candidate(&mut self, nodes: &mut impl Nodes<Id = I>) -> Option<I> {
        let mut turns = 0;
        while self.small.weight() > self.small_wanted() || self.main.entries() == 0 {
            let id = self.small.oldest()?;
            let frequency = nodes.frequency(id);
            if frequency < 2 || self.is_outdated(nodes, id) {
                return Some(id);
            }
            if turns == TURNS {
                break;
            }
            turns += 1;
            self.small.remove(nodes, id);
            self.count(nodes, id, frequency);
            nodes.set_frequency(id, 0);
            self.push(nodes, id, Place::Main);
        }
        self.next_of_main(nodes)
    }

    /// Returns the next entry of the main queue to evict: the oldest that was not used since its last turn. If
    /// the [`TURNS`] oldest were all used, it is the one of these that was used least.
    fn next_of_main(&mut self, nodes: &mut impl Nodes<Id = I>) -> Option<I> {
        let mut least: Option<(u8, I)> = None;
        for _ in 0..TURNS {
            let id = self.main.oldest()?;
            let frequency = nodes.frequency(id);
            if frequency == 0 || self.is_outdated(nodes, id) {
                return Some(id);
            }
            if least.is_none_or(|(other, _)| frequency < other) {
                least = Some((frequency, id));
            }
            self.main.remove(nodes, id);
            self.count(nodes, id, 1);
            self.passed += 1;
            nodes.set_frequency(id, frequency - 1);
            self.push(nodes, id, Place::Main);
        }
        least.map(|(_, id)| id)
    }

    /// Returns an entry of at most `most`, of the `looks` oldest of each queue; if there is none, the least
    /// weight of these. Moves and counts nothing: it is for a search that may take nothing.
    pub fn fitting(&self, nodes: &impl Nodes<Id = I>, most: u64, looks: usize) -> Result<I, u64> {
        let oldest = |queue: &Queue<I>| {
            std::iter::successors(queue.oldest(), |&id| nodes.links(id).prev).take(looks)
        };
        let mut least = u64::MAX;
        for id in oldest(&self.small).chain(oldest(&self.main)) {
            let weight = nodes.weight(id);
            if weight <= most {
                return Ok(id);
            }
            least = least.min(weight);
        }
        Err(least)
    }

    /// Moves the [`TURNS`] oldest of each longer queue behind the others, as they are, so that
    /// [`fitting`](Self::fitting) looks at others next. Outdated ones stay the oldest.
    pub fn rotate(&mut self, nodes: &mut impl Nodes<Id = I>) {
        let is_odd = self.round();
        for queue in [&mut self.small, &mut self.main] {
            if queue.entries() <= TURNS {
                continue;
            }
            for _ in 0..TURNS {
                match queue.oldest() {
                    Some(id) if nodes.round(id) == is_odd => {
                        queue.remove(nodes, id);
                        queue.push(nodes, id);
                    }
                    _ => break,
                }
            }
        }
    }

    /// Evicts an entry, which leaves a ghost.
    #[inline]
    pub fn evict(&mut self, nodes: &mut impl Nodes<Id = I>, id: I) {
        let place = *nodes.place(id);
        if !self.remove(nodes, id) {
            return;
        }
        self.evicted_from = place;
        // Prefetch the entry after the next victim. The next victim was usually prefetched by the previous eviction,
        // so `fetch_next` can read its fingerprint.
        if let Some(next) = self.likely_next()
            && let Some(after) = nodes.links(next).prev
        {
            nodes.fetch(after);
        }
        self.shrunk += 1;
        let frequency = nodes.frequency(id);
        if frequency > 0 {
            self.count(nodes, id, frequency);
        }
        let wanted = self.ghosts_wanted();
        self.ghosts.add(nodes.fingerprint(id), place, wanted);
    }

    /// Returns the number of entries that it has counters for.
    pub fn room(&self) -> usize {
        self.sketch.room()
    }

    /// Returns whether its tables are made for many more entries than there are, or are becoming smaller.
    pub fn is_oversized(&self) -> bool {
        let room = self.room();
        room > FEW && room / SPARE > self.entries() || self.is_shrinking()
    }

    fn is_shrinking(&self) -> bool {
        self.ghosts.is_shrinking() || self.sketch.is_shrinking()
    }

    /// Makes the tables of ghosts and counts smaller, where many entries have gone: a part of that.
    /// Ghosts of all that it has shrunk by stay: if it is to grow again, they say so.
    pub fn trim(&mut self) -> Trimmed {
        let shrunk = self.shrunk + self.shrunk / 4;
        let ghosts = self.ghosts.shrink(self.ghosts_wanted().max(shrunk));
        if let Trimmed::Part(_) = ghosts {
            return ghosts;
        }
        match self.sketch.shrink(self.entries()) {
            Trimmed::Done => ghosts,
            counts => counts,
        }
    }

    /// Counts uses of an entry.
    #[inline(never)]
    fn count(&mut self, nodes: &impl Nodes<Id = I>, id: I, uses: u8) {
        self.sketch.add(nodes.fingerprint(id), uses, self.entries());
    }

    /// Returns the weight that the small queue may have: a fiftieth of all (where that is less than 32
    /// entries, up to a tenth), or that of as many entries as it has credit for.
    fn small_wanted(&self) -> u64 {
        let (weight, entries) = (self.weight(), self.entries().max(1) as u64);
        let of = |some: u64| match weight.checked_mul(some) {
            Some(product) => product / entries,
            None => (u128::from(weight) * u128::from(some) / u128::from(entries)) as u64,
        };
        let least = match entries {
            ..1600 => of(32).min(weight / 10).max(weight / 50),
            _ => weight / 50,
        };
        match u64::try_from(self.credit) {
            // Fewer entries than when it was earned may be left.
            Ok(credit) if credit > entries / 50 => least.max(of(credit.min(entries * 9 / 10))),
            _ => least,
        }
    }

    /// Returns the number of evictions for which ghosts last.
    fn ghosts_wanted(&self) -> usize {
        2 * self.entries().max(1)
    }

    /// Returns any entry; `None` if there is none.
    pub fn any(&self) -> Option<I> {
        self.small.oldest().or(self.main.oldest())
    }

    fn push(&mut self, nodes: &mut impl Nodes<Id = I>, id: I, place: Place) {
        *nodes.place(id) = place;
        match place {
            Place::Small => self.small.push(nodes, id),
            Place::Main => self.main.push(nodes, id),
            Place::None => unreachable!("not a queue"),
        }
    }
}
