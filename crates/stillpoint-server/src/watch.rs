//! `watch`: clients that are told what happens. Costs one relaxed load where no client watches.

use crate::{
    protocol::{escape, number},
    space::Space,
};
use std::{
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// What a client can watch: bits.
pub(crate) const FETCHERS: u32 = 1;
pub(crate) const MUTATIONS: u32 = 2;
pub(crate) const CONNECTIONS: u32 = 4;

/// How much may wait for a watcher that does not read. More is skipped, and the watcher is told how many lines.
const MAX_WAITING: usize = 256 << 10;

/// The most clients that watch: so the cost of an event, and the lines kept for them, have a limit. Admins have a few places more.
const MAX_WATCHERS: usize = 20;
const MAX_WITH_ADMINS: usize = 24;

/// The spaces whose events a client may see; `None` for an admin, who sees all.
pub(crate) type Reach = Option<Vec<Arc<Space>>>;

/// A client that watches.
pub(crate) struct Watcher {
    events: u32,
    waiting: Mutex<Waiting>,
    /// Whether the thread of the connection has been woken for the lines kept.
    woken: AtomicBool,
    wake: Box<dyn Fn() + Send + Sync>,
}

struct Waiting {
    reach: Reach,
    lines: Vec<u8>,
    skipped: u64,
    /// How many events there were for it.
    events: u64,
}

impl Waiting {
    fn may_see(&self, space: Option<&Arc<Space>>) -> bool {
        match (&self.reach, space) {
            (None, _) => true,
            (Some(own), Some(space)) => own.iter().any(|own| Arc::ptr_eq(own, space)),
            (Some(_), None) => false,
        }
    }
}

impl std::fmt::Debug for Watcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Watcher({:#x})", self.events)
    }
}

impl Watcher {
    /// Moves the lines kept to the end of `out`.
    pub(crate) fn take(&self, out: &mut Vec<u8>) {
        // Before the lock: a line that comes later wakes again.
        self.woken.store(false, Ordering::Relaxed);
        let mut waiting = lock(&self.waiting);
        if out.is_empty() {
            std::mem::swap(out, &mut waiting.lines);
        } else {
            out.append(&mut waiting.lines);
        }
    }

    /// Has it see other spaces from now on: the lines kept may be about those that it may see no longer.
    pub(crate) fn see(&self, reach: Reach) {
        let mut waiting = lock(&self.waiting);
        let lines = waiting.lines.iter().filter(|&&byte| byte == b'\n').count();
        waiting.skipped += lines as u64;
        waiting.lines.clear();
        waiting.reach = reach;
    }

    /// Adds a line for an event of `space`, if the client may see that; `rest` says what is behind the number of the event.
    fn push<'a>(
        &self,
        time: Duration,
        space: Option<&Arc<Space>>,
        rest: impl FnOnce() -> &'a [u8],
    ) {
        let mut waiting = lock(&self.waiting);
        if !waiting.may_see(space) {
            return;
        }
        // Its own number: one of all events would say how many others see.
        waiting.events += 1;
        let (seconds, micros) = (time.as_secs(), time.subsec_micros());
        let head = format!("ts={seconds}.{micros:06} gid={} ", waiting.events);
        let rest = rest();
        // One place is kept for the line that says how many were skipped.
        if waiting.lines.len() + head.len() + rest.len() > MAX_WAITING {
            waiting.skipped += 1;
            return;
        }
        if waiting.skipped > 0 {
            waiting.lines.extend_from_slice(b"[skipped=");
            let skipped = waiting.skipped;
            number::push_u64(&mut waiting.lines, skipped);
            waiting.lines.extend_from_slice(b"]\r\n");
            waiting.skipped = 0;
        }
        waiting.lines.extend_from_slice(head.as_bytes());
        waiting.lines.extend_from_slice(rest);
        drop(waiting);
        if !self.woken.swap(true, Ordering::Relaxed) {
            (self.wake)();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All watchers.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    /// What any of them watches.
    events: AtomicU32,
    list: Mutex<Vec<Weak<Watcher>>>,
}

impl Watchers {
    /// Whether a client watches one of `events`.
    #[inline]
    pub(crate) fn want(&self, events: u32) -> bool {
        // needs no partner: a line more or less at the beginning does not matter.
        self.events.load(Ordering::Relaxed) & events != 0
    }

    /// Adds a watcher, which stays while the result lives; `None` if there are too many. `wake` is called when something waits.
    pub(crate) fn add(
        &self,
        events: u32,
        reach: Reach,
        wake: Box<dyn Fn() + Send + Sync>,
    ) -> Option<Arc<Watcher>> {
        let most = if reach.is_none() {
            MAX_WITH_ADMINS
        } else {
            MAX_WATCHERS
        };
        let mut list = lock(&self.list);
        self.update(&mut list);
        if list.len() >= most {
            return None;
        }
        let watcher = Arc::new(Watcher {
            events,
            waiting: Mutex::new(Waiting {
                reach,
                lines: Vec::new(),
                skipped: 0,
                events: 0,
            }),
            woken: AtomicBool::new(false),
            wake,
        });
        list.push(Arc::downgrade(&watcher));
        self.update(&mut list);
        Some(watcher)
    }

    /// Forgets watchers that have gone. Returns how many there are.
    pub(crate) fn count(&self) -> usize {
        let mut list = lock(&self.list);
        self.update(&mut list);
        list.len()
    }

    fn update(&self, list: &mut Vec<Weak<Watcher>>) {
        list.retain(|watcher| watcher.strong_count() > 0);
        let all = list
            .iter()
            .filter_map(Weak::upgrade)
            .fold(0, |all, watcher| all | watcher.events);
        self.events.store(all, Ordering::Relaxed);
    }

    /// Tells all that may see events of `space` (admins alone if it is `None`) what `write` appends.
    pub(crate) fn tell(
        &self,
        event: u32,
        space: Option<&Arc<Space>>,
        kind: &str,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let time = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let mut write = Some(write);
        let mut rest = Vec::new();
        let mut list = lock(&self.list);
        let mut gone = false;
        for watcher in list.iter() {
            let Some(watcher) = watcher.upgrade() else {
                gone = true;
                continue;
            };
            if watcher.events & event == 0 {
                continue;
            }
            // Written for the first that may see it.
            watcher.push(time, space, || {
                if let Some(write) = write.take() {
                    rest.extend_from_slice(b"type=");
                    rest.extend_from_slice(kind.as_bytes());
                    rest.push(b' ');
                    write(&mut rest);
                    rest.push(b'\n');
                }
                &rest
            });
        }
        if gone {
            self.update(&mut list);
        }
    }
}

/// Appends `key=`, escaped.
pub(crate) fn push_key(line: &mut Vec<u8>, key: &[u8]) {
    line.extend_from_slice(b"key=");
    escape::push(line, key);
}
