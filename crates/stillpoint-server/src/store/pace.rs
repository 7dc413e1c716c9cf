//! The pace of the background thread while a limit falls: it rests after each segment, so that the
//! threads that serve have the processor when they need it, and is done in less than half a second.

use super::shared::{Owner, Shared};
use std::{
    cell::{Cell, RefCell},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use stillpoint_lru::Tenant;

/// Rate of eviction in bytes a second. It is higher if the fall would take longer than [`MOST`].
const RATE: u64 = 256 << 20;

/// Longest time of a fall, if the thread can keep up.
const MOST: Duration = Duration::from_millis(400);

/// Shortest rest: a shorter one is not worth a timer.
const LEAST_REST: Duration = Duration::from_micros(50);

/// Longest rest: a longer one is taken in parts.
const MOST_REST: Duration = Duration::from_millis(10);

thread_local! {
    static PACE: RefCell<Option<Pace>> = const { RefCell::new(None) };
    static FALLING: RefCell<Option<Falling>> = const { RefCell::new(None) };
    /// How many segments the thread has evicted.
    static GONE: Cell<u64> = const { Cell::new(0) };
}

#[derive(Debug)]
struct Pace {
    begun: Instant,
    time: Duration,
    root: Tenant,
    usage: u64,
    bytes: u64,
}

/// The limit that the calling thread evicts for.
#[derive(Debug, Clone)]
pub enum Falling {
    Store(Arc<Shared>),
    Tenant(Arc<Owner>),
}

impl Falling {
    fn is_falling(&self) -> bool {
        match self {
            Self::Store(shared) => shared.ceiling.is_falling(),
            Self::Tenant(owner) => owner.ceiling.is_falling(),
        }
    }

    /// Lowers the limit in force to the usage.
    pub fn follow(&self) {
        // If the thread is late, other threads find no room to fill.
        let room = PACE.with_borrow(|pace| pace.as_ref().is_some_and(|pace| !pace.is_late()));
        match self {
            Self::Store(shared) => shared.follow_limit(room),
            Self::Tenant(owner) => owner.follow_limits(room),
        }
    }
}

/// The calling thread keeps its pace until this is dropped.
#[derive(Debug)]
pub struct Paced(());

impl Paced {
    /// Starts the pace for `bytes` that `root` has to give up.
    pub fn begin(root: &Tenant, bytes: u64) -> Self {
        let pace = Pace {
            begun: Instant::now(),
            time: Duration::from_secs_f64(bytes as f64 / RATE as f64).min(MOST),
            root: root.clone(),
            usage: root.usage(),
            bytes: bytes.max(1),
        };
        PACE.replace(Some(pace));
        Self(())
    }
}

impl Drop for Paced {
    fn drop(&mut self) {
        PACE.take();
    }
}

/// Calls `evict`, which evicts for that limit. Returns how many segments have gone.
pub fn evict_for(falling: Falling, evict: impl FnOnce()) -> u64 {
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            FALLING.take();
        }
    }
    FALLING.replace(Some(falling));
    let _end = End;
    evicted_by(evict)
}

/// Returns the number of segments that the calling thread evicts in `evict`. The usage does not tell
/// whether any was: other threads store meanwhile.
pub fn evicted_by(evict: impl FnOnce()) -> u64 {
    let before = GONE.get();
    evict();
    GONE.get() - before
}

/// Notes that a segment was evicted. If the thread evicts for a limit that falls, lowers the one in
/// force at once, so that other threads do not fill the room. Returns whether it does.
pub fn note_gone() -> bool {
    GONE.set(GONE.get() + 1);
    let falling = FALLING.with_borrow(Clone::clone);
    falling.inspect(Falling::follow).is_some()
}

/// Returns whether the calling thread evicts for a limit that no longer falls: enough was evicted, or it
/// was raised meanwhile.
pub fn is_over() -> bool {
    FALLING.with_borrow(|falling| {
        let falling = falling.as_ref();
        falling.is_some_and(|falling| !falling.is_falling())
    })
}

impl Pace {
    fn is_late(&self) -> bool {
        self.begun.elapsed() > self.time
    }

    /// Returns how far the thread is ahead of its pace.
    fn ahead(&self) -> Duration {
        let done = self.usage.saturating_sub(self.root.usage());
        let part = done.min(self.bytes) as f64 / self.bytes as f64;
        self.time.mul_f64(part).saturating_sub(self.begun.elapsed())
    }
}

/// Rests, if the calling thread keeps a pace.
pub fn rest() {
    let Some(ahead) = PACE.with_borrow(|pace| pace.as_ref().map(Pace::ahead)) else {
        return;
    };
    if ahead >= LEAST_REST {
        thread::sleep(ahead.min(MOST_REST));
    } else {
        thread::yield_now();
    }
}
