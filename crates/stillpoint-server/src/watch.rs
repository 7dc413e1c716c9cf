//! `watch`: clients that are told what happens. Costs one relaxed load where no client watches.

use crate::{
    protocol::{escape, number},
    space::{Directory, Space},
    store::Evicted,
};
use std::{
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// What a client can watch: bits.
pub(crate) const FETCHERS: u32 = 1;
pub(crate) const MUTATIONS: u32 = 2;
pub(crate) const CONNECTIONS: u32 = 4;
pub(crate) const EVICTIONS: u32 = 8;

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
    ) -> Pushed {
        let mut waiting = lock(&self.waiting);
        if !waiting.may_see(space) {
            return Pushed::Unseen;
        }
        // Its own number: one of all events would say how many others see.
        waiting.events += 1;
        let (seconds, micros) = (time.as_secs(), time.subsec_micros());
        let head = format!("ts={seconds}.{micros:06} gid={} ", waiting.events);
        let rest = rest();
        // One place is kept for the line that says how many were skipped.
        if waiting.lines.len() + head.len() + rest.len() > MAX_WAITING {
            waiting.skipped += 1;
            return Pushed::Skipped;
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
        Pushed::Kept
    }
}

/// What came of a line for a watcher.
enum Pushed {
    /// It may not see it.
    Unseen,
    /// There was no room for it.
    Skipped,
    /// It waits to be sent.
    Kept,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Evictions that no watcher has been told of yet.
///
/// They are noted inside a read-side critical section, where nothing may wait or ask the system for
/// memory: so both sides only try the lock, and the room is there before.
#[derive(Debug, Default)]
pub(crate) struct Evictions {
    /// Whether a client watches them.
    wanted: AtomicBool,
    /// Whether `noted` has any.
    any: AtomicBool,
    noted: Mutex<Vec<u8>>,
    /// How many there was no room for.
    skipped: AtomicU64,
}

/// How much room there is for them.
const NOTED: usize = 64 << 10;

/// What is noted of an eviction, before its tenant's name and its key: their lengths, whether it was
/// fetched, its expiry, its last use, the length of its value.
const NOTE: usize = 2 + 1 + 4 + 4 + 8;

impl Evictions {
    /// Notes one, if that is wanted and there is room.
    pub(crate) fn note(&self, evicted: &Evicted<'_>) {
        // needs no partner: one more or less at the beginning does not matter.
        if !self.wanted.load(Ordering::Relaxed) {
            return;
        }
        let Ok(mut noted) = self.noted.try_lock() else {
            self.skipped.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let (name, key) = (evicted.tenant.as_bytes(), evicted.key);
        let lengths = (u8::try_from(name.len()), u8::try_from(key.len()));
        let room = noted.capacity() - noted.len();
        let (Ok(name_len), Ok(key_len), true) =
            (lengths.0, lengths.1, room >= NOTE + name.len() + key.len())
        else {
            self.skipped.fetch_add(1, Ordering::Relaxed);
            return;
        };
        noted.extend_from_slice(&[name_len, key_len, evicted.fetched.into()]);
        noted.extend_from_slice(&evicted.exptime.to_ne_bytes());
        noted.extend_from_slice(&evicted.last_access.to_ne_bytes());
        noted.extend_from_slice(&(evicted.len as u64).to_ne_bytes());
        noted.extend_from_slice(name);
        noted.extend_from_slice(key);
        drop(noted);
        // needs no partner: what was noted is seen under its lock, at the next look if not at this.
        self.any.store(true, Ordering::Relaxed);
    }

    /// What was noted since the last time, and how many were skipped.
    fn take(&self) -> (Vec<u8>, u64) {
        if !self.any.load(Ordering::Relaxed) {
            return (Vec::new(), 0);
        }
        let fresh = Vec::with_capacity(NOTED);
        let Ok(mut noted) = self.noted.try_lock() else {
            return (Vec::new(), 0);
        };
        self.any.store(false, Ordering::Relaxed);
        let taken = std::mem::replace(&mut *noted, fresh);
        (taken, self.skipped.swap(0, Ordering::Relaxed))
    }

    /// Makes room, if they are wanted from now on.
    fn want(&self, wanted: bool) {
        if wanted && let Ok(mut noted) = self.noted.try_lock() {
            noted.reserve(NOTED);
        }
        self.wanted.store(wanted, Ordering::Relaxed);
    }
}

/// All watchers.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    /// What is to be told of evictions.
    pub(crate) evictions: Arc<Evictions>,
    /// Lines that were kept for watchers, and that there was no room for.
    pub(crate) sent: AtomicU64,
    pub(crate) skipped: AtomicU64,
    /// Events that were told.
    pub(crate) written: AtomicU64,
    /// Evictions that were not noted.
    pub(crate) dropped: AtomicU64,
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
        if all & EVICTIONS != self.events.swap(all, Ordering::Relaxed) & EVICTIONS {
            self.evictions.want(all & EVICTIONS != 0);
        }
    }

    /// Tells of the evictions since the last time.
    pub(crate) fn tell_evictions(&self, directory: &Directory, now: u32) {
        let (noted, skipped) = self.evictions.take();
        let mut rest = &noted[..];
        while let Some((note, behind)) = rest.split_first_chunk::<NOTE>() {
            let [name_len, key_len, fetched, numbers @ ..] = note;
            let number = |at: usize| {
                numbers[at..]
                    .first_chunk()
                    .map_or(0, |n| u32::from_ne_bytes(*n))
            };
            let (exptime, last) = (number(0), number(4));
            let len = numbers[8..]
                .first_chunk()
                .map_or(0, |n| u64::from_ne_bytes(*n));
            let (name, behind) = behind.split_at(usize::from(*name_len));
            let (key, behind) = behind.split_at(usize::from(*key_len));
            rest = behind;
            let space = std::str::from_utf8(name).ok();
            let space = space.and_then(|name| directory.spaces.get(name));
            self.tell(EVICTIONS, space, "eviction", |line| {
                push_key(line, key);
                let fetch = if *fetched != 0 { "yes" } else { "no" };
                let ttl = match exptime {
                    0 => -1,
                    at => i64::from(at.saturating_sub(now)),
                };
                let since = now.saturating_sub(last);
                let rest = format!(" fetch={fetch} ttl={ttl} la={since} clsid=1 size={len}");
                line.extend_from_slice(rest.as_bytes());
            });
        }
        if skipped > 0 {
            self.dropped.fetch_add(skipped, Ordering::Relaxed);
            // Whose they were is not known: only those that may see all are told.
            let list = lock(&self.list);
            for watcher in list.iter().filter_map(Weak::upgrade) {
                let mut waiting = lock(&watcher.waiting);
                if watcher.events & EVICTIONS != 0 && waiting.reach.is_none() {
                    waiting.skipped += skipped;
                }
            }
        }
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
        let (mut gone, mut sent, mut skipped) = (false, 0, 0);
        for watcher in list.iter() {
            let Some(watcher) = watcher.upgrade() else {
                gone = true;
                continue;
            };
            if watcher.events & event == 0 {
                continue;
            }
            // Written for the first that may see it.
            let pushed = watcher.push(time, space, || {
                if let Some(write) = write.take() {
                    rest.extend_from_slice(b"type=");
                    rest.extend_from_slice(kind.as_bytes());
                    rest.push(b' ');
                    write(&mut rest);
                    rest.push(b'\n');
                }
                &rest
            });
            match pushed {
                Pushed::Unseen => {}
                Pushed::Skipped => skipped += 1,
                Pushed::Kept => sent += 1,
            }
        }
        if sent + skipped > 0 {
            self.written.fetch_add(1, Ordering::Relaxed);
            self.sent.fetch_add(sent, Ordering::Relaxed);
            self.skipped.fetch_add(skipped, Ordering::Relaxed);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz;

    fn evicted<'a>(tenant: &'a str, key: &'a [u8]) -> Evicted<'a> {
        Evicted {
            tenant,
            key,
            len: 5,
            fetched: true,
            exptime: 110,
            last_access: 90,
        }
    }

    #[test]
    fn an_eviction_is_told_to_those_that_may_see_it() {
        let shared = fuzz::new_shared(|_| {});
        shared.store.create_tenant("other").unwrap();
        shared.change(|directory| directory.follow(&shared.store, 1));
        let directory = shared.directory();
        let watchers = &shared.watchers;
        // Not noted while no client watches.
        watchers.evictions.note(&evicted("", b"early"));
        let add = |events, reach| watchers.add(events, reach, Box::new(|| {})).unwrap();
        let own = |name: &str| Some(vec![Arc::clone(&directory.spaces[name])]);
        let (all, home, other) = (
            add(EVICTIONS, None),
            add(EVICTIONS, own("")),
            add(EVICTIONS, own("other")),
        );
        let mutations = add(MUTATIONS, None);
        watchers.evictions.note(&evicted("", b"k 1"));
        watchers.evictions.note(&evicted("other", b"k2"));
        watchers.evictions.note(&evicted("gone", b"k3"));
        watchers.tell_evictions(&directory, 100);
        let lines = |watcher: &Watcher| {
            let mut lines = Vec::new();
            watcher.take(&mut lines);
            let lines = String::from_utf8(lines).unwrap();
            let rest = |line: &str| line.split_once(" gid=").unwrap().1.to_owned();
            lines.lines().map(rest).collect::<Vec<_>>()
        };
        let line = |number: u32, key: &str| {
            format!("{number} type=eviction key={key} fetch=yes ttl=10 la=10 clsid=1 size=5")
        };
        let every = [line(1, "k%201"), line(2, "k2"), line(3, "k3")];
        assert_eq!(lines(&all), every);
        assert_eq!(lines(&home), [line(1, "k%201")]);
        assert_eq!(lines(&other), [line(1, "k2")]);
        assert!(lines(&mutations).is_empty());
        // Once.
        watchers.tell_evictions(&directory, 100);
        assert!(lines(&all).is_empty());
        // Without watchers nothing is noted.
        drop((all, home, other));
        assert_eq!(watchers.count(), 1);
        watchers.evictions.note(&evicted("", b"late"));
        assert!(watchers.evictions.take().0.is_empty());
    }

    /// Nothing is asked of the system for them: there is room, or they are skipped, which only those that see all are told.
    #[test]
    fn what_there_is_no_room_for_is_skipped() {
        let shared = fuzz::new_shared(|_| {});
        let directory = shared.directory();
        let (watchers, evictions) = (&shared.watchers, &shared.watchers.evictions);
        let all = watchers.add(EVICTIONS, None, Box::new(|| {})).unwrap();
        let room = evictions.noted.lock().unwrap().capacity();
        let fit = room / (NOTE + 100);
        for _ in 0..fit + 7 {
            evictions.note(&evicted("", &[b'k'; 100]));
        }
        assert_eq!(evictions.noted.lock().unwrap().capacity(), room);
        watchers.tell_evictions(&directory, 100);
        let mut lines = Vec::new();
        all.take(&mut lines);
        assert_eq!(lines.iter().filter(|&&byte| byte == b'\n').count(), fit);
        evictions.note(&evicted("", b"k"));
        watchers.tell_evictions(&directory, 100);
        lines.clear();
        all.take(&mut lines);
        assert!(lines.starts_with(b"[skipped=7]\r\n"), "{lines:?}");
        // While another thread has them.
        let held = evictions.noted.lock().unwrap();
        evictions.note(&evicted("", b"k"));
        watchers.tell_evictions(&directory, 100);
        drop(held);
        assert_eq!(evictions.skipped.load(Ordering::Relaxed), 1);
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        assert_eq!(count(&watchers.dropped), 7);
        assert_eq!(
            (count(&watchers.written), count(&watchers.skipped)),
            (fit as u64 + 1, 0)
        );
        assert_eq!(count(&watchers.sent), fit as u64 + 1);
    }

    #[test]
    fn lines_that_a_watcher_does_not_read_are_counted() {
        let shared = fuzz::new_shared(|_| {});
        let watchers = &shared.watchers;
        let add = || watchers.add(MUTATIONS, None, Box::new(|| {})).unwrap();
        let (reads, stuck) = (add(), add());
        let long = [b'x'; 1000];
        let mut lines = Vec::new();
        for _ in 0..1000 {
            watchers.tell(MUTATIONS, None, "x", |line| line.extend_from_slice(&long));
            lines.clear();
            reads.take(&mut lines);
        }
        // Of what no client watches nothing is written.
        watchers.tell(FETCHERS, None, "x", |_| unreachable!());
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (sent, skipped) = (count(&watchers.sent), count(&watchers.skipped));
        assert_eq!((count(&watchers.written), sent + skipped), (1000, 2000));
        lines.clear();
        stuck.take(&mut lines);
        let kept = lines.iter().filter(|&&byte| byte == b'\n').count() as u64;
        assert_eq!(sent, 1000 + kept);
        assert!(kept < 1000);
    }
}
