//! The service thread of all caches of a process: it does what is due in a cache that no thread may
//! ever call again. What has expired goes, tenants come back below their high limits, and tables become
//! smaller that are made for more entries than there are.
//!
//! A cache says when it is to be visited next, in the lock of its queues, and says so again only for
//! an earlier time: with entries that all last equally long, it does so once. The thread has weak
//! references, so a cache goes with its last user (or, if it is being visited at that instant, with
//! the end of the visit, on this thread). It starts when the first visit is asked for, and ends
//! when it has had nothing to do for a while.
//!
//! Where files are [watched](Watcher) it waits for these as well, by other means than otherwise: what
//! asks for visits rings the bell of these then. What the thread does with files, and that ring, are
//! system calls: none is under the lock.

use crate::watcher::{Visited, Watcher};
use std::{
    collections::BTreeMap,
    ptr,
    sync::{
        Weak,
        atomic::{AtomicPtr, Ordering},
    },
};
use stillpoint_platform::{
    clock::{self, Nanos},
    event::EventCount,
    fork::{AtForkHandle, ForkReset, process},
    sync::{Mutex, MutexGuard, lock},
    thread, user_code,
    watch::{Bell, Watch},
};

/// Nanoseconds from one visit of a cache to the next, unless it asks for an earlier one.
pub const GAP: Nanos = 100_000_000;

/// Nanoseconds for which the thread stays idle before it ends.
const LINGER: Nanos = 10_000_000_000;

/// The visits that are due or scheduled, one for each cache.
#[derive(Default)]
struct Visits {
    /// Visits, keyed by their time and the address of the cache. The first is due next. A weak reference keeps the
    /// allocation, so that no other cache gets its address.
    all: BTreeMap<(Nanos, usize), Weak<dyn Visited>>,
    times: BTreeMap<usize, Nanos>,
    /// Number of visits above which those of dropped caches are removed.
    most: usize,
}

/// The number of visits that may be of what was dropped.
const FEW: usize = 64;

struct Tasks {
    visits: Visits,
    is_running: bool,
    /// Earliest time of the next try to start the thread, after a failed one.
    starts: Nanos,
    /// The bell that wakes the thread while it waits for files. None in a child of a fork.
    bell: Option<Bell>,
}

struct Service {
    /// First, because fields are dropped in order.
    place: AtForkHandle,
    tasks: Mutex<Tasks>,
    wake: EventCount,
    /// The watch that the thread waits on while it follows files. Only the thread uses it.
    watch: Watch,
}

/// The one of the process, which is never freed; null until it is used.
static SERVICE: AtomicPtr<Service> = AtomicPtr::new(ptr::null_mut());

fn service() -> &'static Service {
    // Acquire, pairs with `make`: it is complete.
    let service = SERVICE.load(Ordering::Acquire);
    if !service.is_null() {
        // SAFETY: leaked below.
        return unsafe { &*service };
    }
    make()
}

#[cold]
fn make() -> &'static Service {
    let made = Box::into_raw(Box::new(Service::new()));
    // Before any thread finds it: so no child of a fork has it without being reset.
    // SAFETY: once; complete, and it stays where it is. Where it does not, its place is dropped first.
    unsafe { (*made).place.occupy(&*made) };
    // Release, pairs with `service`: it is complete. Acquire: so is the faster thread's.
    let set = SERVICE.compare_exchange(ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire);
    match set {
        // SAFETY: leaked: it stays, and is complete.
        Ok(_) => unsafe { &*made },
        Err(faster) => {
            // SAFETY: from a box just now, and no other thread knows it.
            drop(unsafe { Box::from_raw(made) });
            // SAFETY: leaked by the faster thread.
            unsafe { &*faster }
        }
    }
}

impl Visits {
    /// Notes a visit, no later than `at`.
    fn add(&mut self, at: Nanos, what: &Weak<dyn Visited>) {
        let address = what.as_ptr().addr();
        match self.times.get(&address) {
            Some(&before) if before <= at => return,
            Some(&before) => drop(self.all.remove(&(before, address))),
            None if self.all.len() >= self.most => {
                // Those that were dropped long before their time.
                self.all.retain(|_, what| what.strong_count() > 0);
                self.times = self.all.keys().map(|&(at, what)| (what, at)).collect();
                self.most = 2 * self.all.len().max(FEW);
            }
            None => {}
        }
        self.times.insert(address, at);
        self.all.insert((at, address), Weak::clone(what));
    }

    /// Takes out what is due; else returns when something is, `NEVER` if nothing is noted.
    fn take(&mut self, now: Nanos) -> Result<Weak<dyn Visited>, Nanos> {
        let first = self.all.first_entry().ok_or(Nanos::MAX)?;
        let &(at, what) = first.key();
        if at > now {
            return Err(at);
        }
        self.times.remove(&what);
        Ok(first.remove())
    }

    /// Makes all due.
    fn hasten(&mut self, now: Nanos) {
        for ((_, what), task) in self.all.split_off(&(now, 0)) {
            self.times.insert(what, now);
            self.all.insert((now, what), task);
        }
    }
}

impl Tasks {
    fn new() -> Self {
        Self {
            visits: Visits::default(),
            is_running: false,
            starts: 0,
            bell: None,
        }
    }
}

/// Schedules a visit of `what` no later than `at`. Returns false if the service thread could not be
/// started; the next try is [`GAP`] later.
pub fn ask(what: &Weak<dyn Visited>, at: Nanos) -> bool {
    let service = service();
    let mut tasks = lock(&service.tasks);
    tasks.visits.add(at, what);
    if !tasks.is_running && clock::now() >= tasks.starts {
        tasks.is_running = thread::spawn("stillpoint/cache", || service.run()).is_ok();
        tasks.starts = clock::now() + GAP;
    }
    let is_running = tasks.is_running;
    service.wake_up(tasks);
    is_running
}

impl Service {
    fn new() -> Self {
        Self {
            place: AtForkHandle::reserve(),
            tasks: Mutex::new(Tasks::new()),
            wake: EventCount::new(),
            watch: Watch::new(),
        }
    }

    /// Wakes the service thread.
    fn wake_up(&self, tasks: MutexGuard<'_, Tasks>) {
        let bell = tasks.bell;
        drop(tasks);
        if let Some(bell) = bell {
            // SAFETY: of the thread of this process: a child of a fork forgets it.
            unsafe { bell.ring() };
        }
        self.wake.signal();
    }

    /// Waits for changes of files.
    fn listen(&self, watcher: &mut Watcher<'_>, until: Nanos, heard: &mut Option<Nanos>) {
        // A group that is full changes its file all the time, and what has been done needs time.
        let deaf = heard.map_or(0, |heard| heard + GAP);
        let hears = clock::now() >= deaf;
        let until = if hears { until } else { until.min(deaf) };
        let Ok(changed) = watcher.wait(until, hears) else {
            watcher.close();
            return;
        };
        if changed {
            let now = clock::now();
            *heard = Some(now);
            // Also of caches that have nothing to do with it: they find that nothing is due.
            lock(&self.tasks).visits.hasten(now);
        }
    }

    fn run(&self) {
        let (mut idle_since, mut heard) = (clock::now(), None);
        // SAFETY: this is the thread of the process, and where it is that no longer, as user code has
        // forked, the other one's are another process's.
        let mut watcher = unsafe { Watcher::new(&self.watch) };
        loop {
            let waiter = self.wake.prepare();
            // Whose visits may have been forgotten by what has asked for others.
            watcher.end_dropped();
            let now = clock::now();
            let mut tasks = lock(&self.tasks);
            tasks.bell = watcher.bell();
            let hears_files = tasks.bell.is_some();
            match tasks.visits.take(now) {
                Ok(what) => {
                    drop(tasks);
                    waiter.leave();
                    if !self.visit(&what, &mut watcher) {
                        return;
                    }
                    idle_since = clock::now();
                }
                Err(Nanos::MAX) if now >= idle_since + LINGER => {
                    tasks.is_running = hears_files;
                    drop(tasks);
                    waiter.leave();
                    if !hears_files {
                        return;
                    }
                    // While there is no other thread of these tasks. Then what was asked meanwhile.
                    watcher.close();
                }
                Err(next) => {
                    drop(tasks);
                    let until = if next == Nanos::MAX {
                        idle_since + LINGER
                    } else {
                        next
                    };
                    if hears_files {
                        waiter.leave();
                        self.listen(&mut watcher, until, &mut heard);
                    } else {
                        waiter.sleep(Some(until));
                    }
                }
            }
        }
    }

    /// Returns false if this is no longer the thread of its process: user code has forked.
    fn visit(&self, what: &Weak<dyn Visited>, watcher: &mut Watcher<'_>) -> bool {
        let before = process();
        // User code runs in it, which is contained call by call; whatever else panics must not end
        // the thread.
        let visited = user_code::contained(|| what.upgrade().and_then(|it| it.visit(watcher)));
        let next = visited.unwrap_or_else(|| Some(clock::now() + GAP));
        if let Some(next) = next {
            lock(&self.tasks).visits.add(next, what);
        }
        watcher.end_visit(what, next.is_some());
        let mut tasks = lock(&self.tasks);
        // The child has forgotten this thread, and may have started another one.
        let is_other = process() != before && tasks.is_running;
        tasks.is_running = true;
        if is_other {
            self.wake_up(tasks);
        }
        !is_other
    }
}

impl ForkReset for Service {
    unsafe fn reset_in_child(&self) {
        // SAFETY: the caller's promise; no user code runs under this lock.
        unsafe { self.tasks.reinit(Tasks::new()) };
        self.wake.reset_in_child();
        // The parent's descriptors: what is read of them here would be lost there.
        // SAFETY: the child has one thread, which is here.
        unsafe { self.watch.reset_in_child() };
    }
}

#[cfg(all(test, not(miri), not(stillpoint_loom)))]
mod tests {
    use super::*;
    use crate::shared::eventually;
    #[cfg(target_os = "linux")]
    use std::path::Path;
    use std::sync::{Arc, atomic::AtomicUsize};

    /// A visited object with nothing to do.
    struct Idle;

    impl Visited for Idle {
        fn visit(self: Arc<Self>, _: &mut Watcher<'_>) -> Option<Nanos> {
            None
        }
    }

    #[test]
    fn visits_come_in_order_once_each() {
        let count = 4096_u64;
        let all: Vec<Arc<dyn Visited>> = (0..count).map(|_| Arc::new(Idle) as _).collect();
        let weak: Vec<_> = all.iter().map(Arc::downgrade).collect();
        let mut visits = Visits::default();
        for round in 0..3 {
            for (number, what) in (0..).zip(&weak) {
                // The earliest time counts.
                visits.add(1000 * ((number * 7 + round) % count) + 10, what);
            }
        }
        let (mut now, mut taken) = (0, 0);
        loop {
            match visits.take(now) {
                Ok(_) => taken += 1,
                Err(Nanos::MAX) => break,
                Err(next) => {
                    assert!(next > now);
                    now = next;
                }
            }
        }
        assert_eq!((taken, visits.times.len()), (count, 0));
        // All at once, and what was dropped is forgotten.
        weak.iter()
            .for_each(|what| visits.add(Nanos::MAX - 1, what));
        visits.hasten(5);
        weak.iter().for_each(|what| visits.add(6, what));
        assert!(weak.iter().all(|_| visits.take(5).is_ok()));
        assert!(matches!(visits.take(5), Err(Nanos::MAX)));
        drop(all);
        weak.iter().for_each(|what| visits.add(7, what));
        for _ in 0..10 * FEW {
            let dropped: Arc<dyn Visited> = Arc::new(Idle);
            visits.add(8, &Arc::downgrade(&dropped));
        }
        assert!(visits.all.len() <= 2 * FEW && visits.times.len() == visits.all.len());
    }

    #[derive(Default)]
    struct Panics(AtomicUsize);

    impl Visited for Panics {
        fn visit(self: Arc<Self>, _: &mut Watcher<'_>) -> Option<Nanos> {
            match self.0.fetch_add(1, Ordering::Relaxed) {
                // Without a message.
                0 => std::panic::resume_unwind(Box::new("in a visit")),
                _ => None,
            }
        }
    }

    #[test]
    fn a_visit_that_panics_is_made_again() {
        let panics = Arc::<Panics>::default();
        let what: Weak<dyn Visited> = Arc::downgrade(&(Arc::clone(&panics) as Arc<dyn Visited>));
        assert!(ask(&what, 0));
        eventually(|| panics.0.load(Ordering::Relaxed) >= 2);
    }

    /// What it reads of the parent's descriptors, the parent would not hear.
    #[cfg(target_os = "linux")]
    #[test]
    fn the_child_of_a_fork_has_no_watch() {
        let service = Service::new();
        service.watch.add(Path::new("/proc/self/stat")).unwrap();
        lock(&service.tasks).bell = service.watch.bell();
        assert!(lock(&service.tasks).bell.is_some());
        // What the handler does in a child.
        // SAFETY: no other thread has it.
        unsafe { service.reset_in_child() };
        assert!(service.watch.bell().is_none() && lock(&service.tasks).bell.is_none());
    }

    /// Follows a file, or nothing, and is visited once an hour.
    #[cfg(target_os = "linux")]
    struct Follows(Option<&'static Path>);

    #[cfg(target_os = "linux")]
    const HOUR: Nanos = 3_600_000_000_000;

    #[cfg(target_os = "linux")]
    impl Visited for Follows {
        fn visit(self: Arc<Self>, watcher: &mut Watcher<'_>) -> Option<Nanos> {
            self.0.iter().for_each(|file| watcher.hear(file));
            Some(clock::now() + HOUR)
        }
    }

    /// To ask for a visit may forget those of what was dropped, of which the thread would wait for one.
    #[cfg(target_os = "linux")]
    #[test]
    fn what_was_dropped_follows_nothing_though_its_visit_is_forgotten() {
        let service: &'static Service = Box::leak(Box::new(Service::new()));
        let thread = std::thread::spawn(|| service.run());
        let ask = |follows: &Arc<Follows>, at| {
            let what: Weak<dyn Visited> = Arc::downgrade(&(Arc::clone(follows) as _));
            let mut tasks = lock(&service.tasks);
            tasks.visits.add(at, &what);
            service.wake_up(tasks);
        };
        let follower = Arc::new(Follows(Some(Path::new("/proc/self/stat"))));
        ask(&follower, 0);
        eventually(|| service.watch.bell().is_some() && lock(&service.tasks).visits.all.len() == 1);
        drop(follower);
        let mut others = Vec::new();
        let is_dropped = |what: &Weak<dyn Visited>| what.strong_count() == 0;
        while lock(&service.tasks).visits.all.values().any(is_dropped) {
            let other = Arc::new(Follows(None));
            ask(&other, clock::now() + HOUR);
            others.push(other);
        }
        eventually(|| service.watch.bell().is_none());
        lock(&service.tasks).visits = Visits::default();
        drop(thread);
    }
}
