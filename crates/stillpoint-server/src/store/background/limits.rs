//! Limits that fall: the eviction between the limit that was asked for and the one in force.
//!
//! A limit does not fall at once. The limit in force follows the usage down, so that stores meanwhile
//! find room, or evict for it as at any limit. Items are evicted in rounds, each of a part of the excess.
//! Between rounds the indexes shrink with their items, and readers leave what was freed. Memory that an
//! index gives back once readers have left counts as freed, so that no item is evicted for it.
//!
//! The background thread keeps a pace: it rests after each segment, so that the threads that serve have
//! the processor when they need it. A fall takes at most 0.4 s if the thread can keep that pace.

use super::signal::Turn;
use crate::store::{common::Common, limit::Limit, state::TenantState};
use std::{
    cell::Cell,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use stillpoint_lru::Tenant;

/// A round evicts the excess divided by this. If indexes are at most three quarters of the usage, the
/// evicted items and what the indexes give back for them are together at most the excess.
const ROUND_PART: u64 = 4;

/// Least number of bytes that a round evicts, if as much is above the limit.
const LEAST_ROUND: u64 = 64 << 10;

/// Rate of eviction in bytes a second. It is higher if the fall would take longer than [`MOST`].
const RATE: u64 = 256 << 20;

/// Longest time of a fall, if the thread can keep up.
const MOST: Duration = Duration::from_millis(400);

/// Shortest rest: a shorter one is not worth a timer.
const LEAST_REST: Duration = Duration::from_micros(50);

/// Longest rest, after which the pace is computed again.
const MOST_REST: Duration = Duration::from_millis(10);

/// A limit that falls, and the tenants under it.
#[derive(Debug)]
pub struct Falling<'a> {
    pub limit: &'a Limit,
    pub tenants: &'a [Arc<TenantState>],
}

/// The result of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Round {
    Done,
    GoesOn,
    /// Nothing more can be evicted before readers leave.
    Waits,
    /// All that is left is pinned.
    Stuck,
}

/// How far limits have fallen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lowered {
    /// They hold as they were asked for, or all that is left is pinned.
    AsFarAsPossible,
    /// Readers hold up what is left.
    Waits,
    /// The thread's turn has ended before.
    InPart,
}

/// The pace of the background thread.
pub struct Pace<'a> {
    turn: Turn<'a>,
    root: &'a Tenant,
    begun: Instant,
    /// Time that the fall should take.
    time: Duration,
    /// Usage of the store at the start, in bytes.
    usage: u64,
    /// Bytes to evict, at least 1.
    bytes: u64,
}

impl<'a> Pace<'a> {
    /// Begins the pace for `falling`.
    pub fn begin(common: &'a Common, falling: &[Falling<'_>], turn: Turn<'a>) -> Self {
        let over = falling.iter().map(|one| one.limit.over(&common.config));
        let (root, bytes) = (common.hierarchy.root(), over.max().unwrap_or(0));
        Self {
            turn,
            root,
            begun: Instant::now(),
            time: Duration::from_secs_f64(bytes as f64 / RATE as f64).min(MOST),
            usage: root.usage(),
            bytes: bytes.max(1),
        }
    }

    fn is_late(&self) -> bool {
        self.begun.elapsed() > self.time
    }

    /// Rests if the thread is ahead of its pace. Returns false if its turn is over.
    fn rest(&self) -> bool {
        let done = self.usage.saturating_sub(self.root.usage());
        let part = done.min(self.bytes) as f64 / self.bytes as f64;
        let ahead = self.time.mul_f64(part).saturating_sub(self.begun.elapsed());
        let rest = match ahead < LEAST_REST {
            true => Duration::ZERO,
            false => ahead.min(MOST_REST),
        };
        if rest.is_zero() {
            thread::yield_now();
        }
        self.turn.rest(rest)
    }
}

impl Falling<'_> {
    /// Lowers the limit in force to the usage. With a pace, leaves some room for the stores of other
    /// threads, unless this thread is late: they would fill it.
    fn follow(&self, common: &Common, pace: Option<&Pace<'_>>) {
        let room = pace.is_some_and(|pace| !pace.is_late());
        self.limit.follow(room, &common.config);
    }

    /// Evicts a part of the excess.
    fn evict(&self, common: &Common, pace: Option<&Pace<'_>>) -> Round {
        if !self.limit.is_falling() {
            return Round::Done;
        }
        let rest = || pace.is_none_or(Pace::rest);
        let mut excess = 0;
        for tenant in self.tenants {
            let space = tenant.present();
            space.shrink_table(true, || _ = rest());
            excess += space.table.excess();
        }
        let over = self.limit.over(&common.config);
        let wanted = over.saturating_sub(excess);
        if over == 0 {
            // At once: the usage may have fallen for a moment only.
            self.follow(common, pace);
            return match self.limit.is_falling() {
                true => Round::GoesOn,
                false => Round::Done,
            };
        }
        if wanted == 0 {
            return Round::Waits;
        }
        let part = (wanted / ROUND_PART).max(LEAST_ROUND).min(wanted);
        let (evicted, has_turn) = (Cell::new(common.lists.evicted()), Cell::new(true));
        let goes_on = || {
            let now = common.lists.evicted();
            if evicted.replace(now) != now {
                // At once, so that other threads do not fill the room.
                self.follow(common, pace);
                // Otherwise a thread that serves would do it.
                common.pool.release();
                has_turn.set(rest());
            }
            // It may have been raised meanwhile.
            has_turn.get() && self.limit.is_falling()
        };
        let before = self.limit.in_force();
        let reclaimed = self.limit.memcg.reclaim_while(part, goes_on);
        // `goes_on` is not asked after the segment that reaches the goal.
        self.follow(common, pace);
        // The number of bytes by which the usage has fallen says little: other threads store.
        // Without objects: other threads have given back what this one was about to evict, or the turn was over
        // before it could.
        match reclaimed.objects {
            0 if has_turn.get() && self.limit.in_force() >= before => Round::Stuck,
            _ => Round::GoesOn,
        }
    }

    /// Frees what readers have left.
    fn settle(&self, common: &Common, pace: Option<&Pace<'_>>) {
        for tenant in self.tenants {
            tenant.present().table.settle(true);
        }
        self.follow(common, pace);
    }
}

/// Evicts until the limits hold as they were asked for, or nothing more can be evicted. With `pace`, the
/// calling thread rests in between, and ends with its turn.
pub fn lower(common: &Common, falling: &[Falling<'_>], pace: Option<&Pace<'_>>) -> Lowered {
    let over = || -> u64 {
        let over = falling.iter().map(|one| one.limit.over(&common.config));
        over.sum()
    };
    loop {
        let before = over();
        let rounds: Vec<_> = falling.iter().map(|one| one.evict(common, pace)).collect();
        common.pool.wait_until_left();
        falling.iter().for_each(|one| one.settle(common, pace));
        common.pool.release();
        common.pool.drain_much();
        let has_turn = pace.is_none_or(Pace::rest);
        let goes_on = rounds.contains(&Round::GoesOn) || over() < before;
        let falls = falling.iter().any(|one| one.limit.is_falling());
        if falls && goes_on && has_turn {
            continue;
        }
        return match (falls && goes_on, rounds.contains(&Round::Waits)) {
            (true, _) => Lowered::InPart,
            (false, true) => Lowered::Waits,
            (false, false) => Lowered::AsFarAsPossible,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Clock, Condition, Config, Limits, ManualClock, Mode, Store};

    const LIMIT: u64 = if cfg!(miri) { 128 << 10 } else { 4 << 20 };

    /// Returns the tenant of a full store, which has no background thread.
    fn full() -> (Store, Arc<TenantState>) {
        let config = Config {
            limit: LIMIT,
            clock: Clock::Manual(ManualClock::new()),
            ..Config::default()
        };
        let store = Store::new(config).unwrap();
        let tenant = store.tenant("").unwrap();
        for number in 0..LIMIT / 64 {
            let key = number.to_le_bytes();
            let set = tenant.set(&key, 0, 0, b"v", Mode::Set, Condition::default());
            set.unwrap();
        }
        (store, Arc::clone(&tenant.state))
    }

    /// Asks for a limit of half the usage, without the eviction.
    fn ask(common: &Common) -> Falling<'_> {
        assert!(common.ask_limit(common.hierarchy.root().usage() / 2, false));
        Falling {
            limit: &common.limit,
            tenants: &[],
        }
    }

    #[test]
    fn a_limit_in_force_follows_the_last_segment_of_a_round() {
        let (_store, tenant) = full();
        let common = tenant.common();
        let falling = ask(common);
        assert_eq!(falling.evict(common, None), Round::GoesOn);
        assert!(falling.limit.is_falling());
        assert_eq!(falling.limit.in_force(), falling.limit.memcg.usage());
    }

    #[test]
    fn a_round_ends_a_fall_whose_usage_is_low_already() {
        let (_store, tenant) = full();
        let common = tenant.common();
        let falling = ask(common);
        falling.limit.memcg.reclaim(u64::MAX);
        assert!(falling.limit.is_falling());
        assert_eq!(falling.evict(common, None), Round::Done);
        assert!(!falling.limit.is_falling());
    }

    #[test]
    fn a_round_goes_on_where_others_have_made_the_limit_fall() {
        let (_store, tenant) = full();
        let common = tenant.common();
        let falling = ask(common);
        falling.limit.memcg.reclaim(u64::MAX);
        let bytes = falling.limit.max() * 5 / 4;
        let _held = falling.limit.memcg.charge(bytes as usize).unwrap();
        assert_eq!(falling.evict(common, None), Round::GoesOn);
        assert_eq!(falling.evict(common, None), Round::Stuck);
    }

    /// Usage that falls after the limit in force has followed it: here, by the index that the limit of a
    /// tenant gives back.
    #[test]
    fn a_fall_ends_with_the_limit_that_was_asked_for() {
        let (store, tenant) = full();
        let handle = store.tenant("").unwrap();
        for number in 0..LIMIT / 64 {
            // An error: it has been evicted.
            let _ = handle.delete(&number.to_le_bytes(), None);
        }
        let (common, limit) = (tenant.common(), &tenant.owner.limit);
        let of_store = ask(common);
        assert!(limit.ask(Limits::max(0), &common.config, false));
        let of_tenant = Falling {
            limit,
            tenants: std::slice::from_ref(&tenant),
        };
        let falling = [of_store, of_tenant];
        // Until readers of other tests have left.
        while falling[0].limit.over(&common.config) > 0 {
            lower(common, &falling, None);
        }
        assert!(!falling[0].limit.is_falling());
    }
}
