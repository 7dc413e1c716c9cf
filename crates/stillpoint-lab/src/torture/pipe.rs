//! Elements that are recycled, and the checks that a section makes on them.
//!
//! The elements are type-stable: atomics in an array that stays, so that to find a dead one is a
//! finding and never undefined behaviour. A **lane** has one current element, which its one writer
//! replaces. An element that has been replaced goes down the **pipe**: its count is raised when it
//! is replaced, and again after each grace period that it is made to wait for; then it is dead, and
//! may become current again. A section that holds one sees 0, or 1 if it was replaced meanwhile;
//! more than that is the end of a grace period that did not wait for the section.
//!
//! Beside the pipe, what a section checks:
//!
//! * **Order.** A writer that waits stores its grace period's number in `began` before, and in
//!   `ended` after it. A section that reads `began` first and `ended` last may not find the second
//!   to be the greater: that grace period began and ended inside it. (The shape is the kernel's
//!   RCU+sync+read, and the difference of two looks at `ended` is rcutorture's "batch".)
//! * **Life.** The element is marked as alive before it is published and as dead at the end of the
//!   pipe; a section that finds a dead one has missed the store of its publisher, or the wait of
//!   its remover.
//! * **Versions** of a lane only grow, in the eyes of each reader.
//! * **Cookies** that were taken inside the section do not come true before its end.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use stillpoint::Cookie;
use stillpoint::lab::{Domain, Policy};

use super::session::{Session, ThreadCtx};
use super::tally::{Fault, add};

/// Grace periods that a replaced element waits for before it is dead.
pub const LENGTH: u32 = 10;

#[derive(Debug, Default)]
struct Element {
    pipe: AtomicU32,
    alive: AtomicBool,
    version: AtomicU64,
    /// True while it is on its way down the pipe. A thread that takes it off a second time sees it.
    removed: AtomicBool,
}

/// One writer's elements.
#[derive(Debug)]
pub struct Lane {
    current: CachePadded<AtomicUsize>,
    /// The grace period that its writer waits for, and the last one that it has seen the end of.
    began: CachePadded<AtomicU64>,
    ended: CachePadded<AtomicU64>,
    elements: Box<[CachePadded<Element>]>,
    free: Mutex<Vec<usize>>,
    versions: AtomicU64,
}

impl Lane {
    fn new(elements: usize) -> Self {
        let lane = Self {
            current: CachePadded::default(),
            began: CachePadded::default(),
            ended: CachePadded::default(),
            elements: (0..elements).map(|_| CachePadded::default()).collect(),
            free: Mutex::new((1..elements).rev().collect()),
            versions: AtomicU64::new(0),
        };
        lane.elements[0].alive.store(true, Ordering::Relaxed);
        lane
    }

    /// Makes a free element current, and returns the one that was. `None` if none is free.
    pub fn replace(&self, session: &Session) -> Option<usize> {
        let Some(new) = self.free.lock().pop() else {
            add(&session.tally.exhausted, 1);
            return None;
        };
        let element = &self.elements[new];
        element.pipe.store(0, Ordering::Relaxed);
        element.version.store(
            self.versions.fetch_add(1, Ordering::Relaxed) + 1,
            Ordering::Relaxed,
        );
        element.alive.store(true, Ordering::Relaxed);
        let old = self.current.swap(new, Ordering::AcqRel);
        let element = &self.elements[old];
        element.removed.store(true, Ordering::Relaxed);
        element.pipe.fetch_add(1, Ordering::Relaxed);
        add(&session.tally.published, 1);
        Some(old)
    }

    /// A grace period has ended since the element was replaced, or last aged. Whether it is dead
    /// and free now.
    pub fn age(&self, element: usize, session: &Session) -> bool {
        let dead = self.elements[element].pipe.fetch_add(1, Ordering::Relaxed) + 1 >= LENGTH;
        if dead {
            self.kill(element, session);
        }
        dead
    }

    /// The element's end: a deferred free has come, after one grace period.
    pub fn free_now(&self, element: usize, session: &Session) {
        self.elements[element]
            .pipe
            .fetch_add(LENGTH, Ordering::Relaxed);
        self.kill(element, session);
    }

    fn kill(&self, element: usize, session: &Session) {
        let at = &self.elements[element];
        at.alive.store(false, Ordering::Relaxed);
        if !at.removed.swap(false, Ordering::Relaxed) {
            return session.tally.fault(Fault::Twice, || {
                format!("element {element} was freed twice")
            });
        }
        add(&session.tally.recycled, 1);
        self.free.lock().push(element);
    }

    /// Marks the beginning of the writer's next grace period.
    pub fn begin_grace_period(&self) {
        self.began
            .store(self.began.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Marks its end.
    pub fn end_grace_period(&self) {
        self.ended
            .store(self.began.load(Ordering::Relaxed), Ordering::Release);
    }
}

/// All lanes of a run.
#[derive(Debug)]
pub struct Pipe {
    /// They.
    pub lanes: Vec<Lane>,
}

/// What a section holds: made after its beginning, looked at again before its end.
#[derive(Debug, Clone, Copy)]
pub struct Visit {
    lane: usize,
    element: usize,
    version: u64,
    began: u64,
    ended: u64,
    cookie: Option<Cookie>,
}

impl Pipe {
    /// Creates `lanes` lanes of `elements` elements.
    pub fn new(lanes: usize, elements: usize) -> Self {
        Self {
            lanes: (0..lanes).map(|_| Lane::new(elements)).collect(),
        }
    }

    /// Finds an element. Inside a section.
    #[inline]
    pub fn begin<P: Policy>(&self, domain: &Domain<P>, ctx: &mut ThreadCtx) -> Visit {
        let lane = if self.lanes.len() == 1 {
            0
        } else {
            ctx.random.usize(0..self.lanes.len())
        };
        let visit = self.find(lane);
        let cookie = match ctx.random.u32(0..64) {
            0 => Some(domain.get_state()),
            1 if ctx.one_in(16) => Some(domain.start_poll()),
            _ => None,
        };
        ctx.seen.resize(self.lanes.len(), 0);
        if visit.version < ctx.seen[lane] {
            let (version, seen) = (visit.version, ctx.seen[lane]);
            ctx.session.tally.fault(Fault::Version, || {
                format!("version {version} was found after version {seen}")
            });
        }
        ctx.seen[lane] = visit.version;
        Visit { cookie, ..visit }
    }

    /// The bare finding. Async-signal-safe.
    #[inline]
    pub fn find(&self, lane: usize) -> Visit {
        let at = &self.lanes[lane];
        let element = at.current.load(Ordering::Acquire);
        let version = at.elements[element].version.load(Ordering::Relaxed);
        let (began, ended) = (
            at.began.load(Ordering::Acquire),
            at.ended.load(Ordering::Acquire),
        );
        Visit {
            lane,
            element,
            version,
            began,
            ended,
            cookie: None,
        }
    }

    /// Looks again. Inside the same section, at its end.
    #[inline]
    pub fn end<P: Policy>(&self, visit: Visit, domain: &Domain<P>, ctx: &mut ThreadCtx) {
        let look = self.look(&visit);
        if let Some(fault) = look.fault {
            ctx.session.tally.fault(fault, || {
                let Look { pipe, batch, .. } = look;
                format!("at a section's end its element, {visit:?}, was {pipe} down the pipe, {batch} grace periods later")
            });
        }
        if let Some(cookie) = visit.cookie
            && domain.poll(cookie)
        {
            ctx.session.tally.fault(Fault::Cookie, || {
                format!("{cookie:?} came true inside the section that it was taken in")
            });
        }
        ctx.count();
    }

    /// The bare look. Async-signal-safe.
    #[inline]
    pub fn look(&self, visit: &Visit) -> Look {
        let (lane, element) = (
            &self.lanes[visit.lane],
            &self.lanes[visit.lane].elements[visit.element],
        );
        let pipe = element.pipe.load(Ordering::Acquire);
        let alive = element.alive.load(Ordering::Relaxed);
        let version = element.version.load(Ordering::Relaxed);
        let ended = lane.ended.load(Ordering::Acquire);
        let fault = if pipe > 1 || version != visit.version {
            Some(Fault::TooShort)
        } else if !alive || ended > visit.began {
            Some(Fault::Ordering)
        } else {
            None
        };
        Look {
            pipe: pipe as usize,
            batch: (ended - visit.ended) as usize,
            fault,
        }
    }
}

/// What the second look at an element showed.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// How far down the pipe it was.
    pub pipe: usize,
    /// Grace periods of its writer that had ended since the first look.
    pub batch: usize,
    /// What is wrong with it.
    pub fault: Option<Fault>,
}
