//! `watch`: clients that are told what happens. A request in a tenant that no client watches costs two
//! relaxed loads.

use crate::{
    directory::{Directory, Space},
    lock::lock,
    protocol::{escape, number},
    store::{Evicted, add_work},
};
use std::{
    collections::BTreeMap,
    io::Write,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use stillpoint::{Rcu, read_lock};

/// What a client can watch: bits.
pub(crate) const FETCHERS: u32 = 1;
pub(crate) const MUTATIONS: u32 = 2;
pub(crate) const CONNECTIONS: u32 = 4;
pub(crate) const EVICTIONS: u32 = 8;

/// How much may wait for a watcher that does not read. More is skipped, and the watcher is told how many lines.
const MAX_WAITING: usize = 256 << 10;

/// The most clients of a tenant that watch, and the most admins: so the cost of an event has a limit.
const MAX_WATCHERS: usize = 20;

/// The spaces whose events a client may see, its own first; `None` for an admin, who sees all.
pub(crate) type Reach = Option<Vec<Arc<Space>>>;
const NOTHING: Reach = Some(Vec::new());

/// A client that watches.
pub(crate) struct Watcher {
    events: u32,
    waiting: Mutex<Waiting>,
    /// Whether the thread of the connection has been woken for the lines kept.
    woken: AtomicBool,
    wake: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct Waiting {
    lines: Vec<u8>,
    skipped: u64,
    /// How many events there were for it.
    events: u64,
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

    /// Returns whether there may be lines that it has not taken.
    pub(crate) fn is_woken(&self) -> bool {
        // needs no partner: it is set before the thread is woken by a write to a descriptor, which
        // that thread has read.
        self.woken.load(Ordering::Relaxed)
    }

    /// Drops the lines kept, and counts them as skipped.
    fn skip(&self) {
        let mut waiting = lock(&self.waiting);
        let lines = waiting.lines.iter().filter(|&&byte| byte == b'\n').count();
        waiting.skipped += lines as u64;
        waiting.lines.clear();
    }

    /// Adds a line for an event; `rest` is what is behind its number. Returns whether there was room
    /// for it.
    fn push(&self, time: Duration, rest: &[u8]) -> bool {
        let mut waiting = lock(&self.waiting);
        // Its own number: one of all events would say how many others see.
        waiting.events += 1;
        let (seconds, micros) = (time.as_secs(), time.subsec_micros());
        let head = format!("ts={seconds}.{micros:06} gid={} ", waiting.events);
        // One place is kept for the line that says how many were skipped.
        if waiting.lines.len() + head.len() + rest.len() > MAX_WAITING {
            waiting.skipped += 1;
            return false;
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
        true
    }
}

/// Clients that watch a tenant, or all.
#[derive(Debug, Default)]
pub(crate) struct List {
    /// What any of them watches.
    events: AtomicU32,
    watchers: Mutex<Vec<Listed>>,
}

/// A watcher in a list.
#[derive(Debug)]
struct Listed {
    watcher: Arc<Watcher>,
    /// Whether the list is that of its own tenant, or of admins. Others see the tenant by its prefix,
    /// and take none of its places.
    is_home: bool,
}

impl List {
    #[inline]
    fn want(&self, events: u32) -> bool {
        // needs no partner: a line more or less at the beginning does not matter.
        self.events.load(Ordering::Relaxed) & events != 0
    }

    /// Adds a watcher, unless it is at home here and `most` are.
    fn add(&self, watcher: &Arc<Watcher>, is_home: bool, most: usize) -> bool {
        let mut watchers = lock(&self.watchers);
        if is_home && watchers.iter().filter(|one| one.is_home).count() >= most {
            return false;
        }
        self.events.fetch_or(watcher.events, Ordering::Relaxed);
        let watcher = Arc::clone(watcher);
        watchers.push(Listed { watcher, is_home });
        true
    }

    /// Removes a watcher: no line is added to it from here on.
    fn remove(&self, watcher: &Arc<Watcher>) {
        let mut watchers = lock(&self.watchers);
        watchers.retain(|other| !Arc::ptr_eq(&other.watcher, watcher));
        let events = watchers.iter().fold(0, |all, one| all | one.watcher.events);
        self.events.store(events, Ordering::Relaxed);
    }
}

/// The watch of a client, which ends when it is dropped.
pub(crate) struct Watch {
    pub(crate) watcher: Arc<Watcher>,
    /// It is in the lists of these spaces, or of admins.
    reach: Reach,
    all: Arc<Watchers>,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.watcher.fmt(f)
    }
}

impl Watch {
    /// Shows it the events of other spaces from now on. If they are others, the lines kept may be
    /// about those that it may see no longer.
    pub(crate) fn see(&mut self, reach: Reach) {
        let pointers = |reach: &Reach| {
            let of = |spaces: &Vec<_>| spaces.iter().map(Arc::as_ptr).collect::<Vec<_>>();
            reach.as_ref().map(of)
        };
        if pointers(&reach) == pointers(&self.reach) {
            return;
        }
        self.leave();
        self.watcher.skip();
        self.enter(reach, usize::MAX);
    }

    fn lists(&self) -> impl Iterator<Item = &List> {
        let spaces = self.reach.iter().flatten().map(|space| &space.watched);
        let all = self.reach.is_none().then_some(&self.all.admins);
        all.into_iter().chain(spaces)
    }

    /// Puts it into the lists of what it sees, unless the first has `most`.
    fn enter(&mut self, reach: Reach, most: usize) -> bool {
        self.reach = reach;
        let mut lists = self.lists();
        let entered = lists
            .next()
            .is_none_or(|list| list.add(&self.watcher, true, most));
        if entered {
            for list in lists {
                list.add(&self.watcher, false, usize::MAX);
            }
            self.want_evictions(true);
        } else {
            drop(lists);
            self.reach = NOTHING;
        }
        entered
    }

    fn leave(&mut self) {
        self.lists().for_each(|list| list.remove(&self.watcher));
        self.want_evictions(false);
        self.reach = NOTHING;
    }

    fn want_evictions(&self, wanted: bool) {
        if self.watcher.events & EVICTIONS != 0 {
            self.all.evictions.want(&self.reach, wanted);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.leave();
        self.all.number.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Evictions that no watcher has been told of yet.
///
/// They are noted inside a read-side critical section, where nothing may wait or ask the system for
/// memory: so both sides only try the lock, and the room is there before.
#[derive(Debug, Default)]
pub(crate) struct Evictions {
    /// Whether a client watches those of any tenant.
    wanted: AtomicBool,
    /// The tenants that are watched, in order; `None`: all.
    whose: Rcu<Option<Vec<Arc<str>>>>,
    /// How many clients watch all, and each tenant.
    watching: Mutex<(usize, BTreeMap<Arc<str>, usize>)>,
    /// Whether `noted` has any.
    any: AtomicBool,
    noted: Mutex<Noted>,
    /// How many there was no room for.
    skipped: AtomicU64,
}

/// How much room there is for them: bytes, and lines.
const NOTED: usize = 64 << 10;
const NOTED_LINES: usize = 1 << 10;

/// Most bytes of a line beside its key.
const LINE: usize = 128;

/// Lines about evictions, without their beginnings.
#[derive(Debug, Default)]
struct Noted {
    /// The tenants' names and the lines.
    text: Vec<u8>,
    /// The tenant of each, and where its name and the line end in `text`.
    ends: Vec<(stillpoint_lru::Tenant, [usize; 2])>,
}

impl Noted {
    fn reserve(&mut self) {
        self.text.reserve(NOTED);
        self.ends.reserve(NOTED_LINES);
    }

    /// Adds one if there is room. Allocates nothing.
    fn add(&mut self, evicted: &Evicted<'_>) -> bool {
        let (text, name, key) = (&mut self.text, evicted.tenant.as_bytes(), evicted.key);
        // An escaped byte takes three.
        let most = name.len() + 3 * key.len() + LINE;
        if text.capacity() - text.len() < most || self.ends.len() == self.ends.capacity() {
            return false;
        }
        text.extend_from_slice(name);
        let name_end = text.len();
        push_key(text, key);
        let fetch = if evicted.fetched { "yes" } else { "no" };
        let ttl = match evicted.exptime {
            0 => -1,
            at => i64::from(at.saturating_sub(evicted.now)),
        };
        let since = evicted.now.saturating_sub(evicted.last_access);
        let len = evicted.len;
        // A `Vec` takes all.
        let _ = write!(
            text,
            " fetch={fetch} ttl={ttl} la={since} clsid=1 size={len}"
        );
        self.ends
            .push((evicted.memory.clone(), [name_end, text.len()]));
        true
    }
}

impl Evictions {
    /// Notes one, if that is wanted and there is room.
    pub(crate) fn note(&self, evicted: &Evicted<'_>) {
        // needs no partner: one more or less at the beginning does not matter.
        if !self.wanted() {
            return;
        }
        let section = read_lock();
        if let Some(tenants) = self.whose.load(&section)
            && tenants
                .binary_search_by(|name| (**name).cmp(evicted.tenant))
                .is_err()
        {
            return;
        }
        // needs no partner: what was noted is seen under its lock, at the next look if not at this.
        match self
            .noted
            .try_lock()
            .is_ok_and(|mut noted| noted.add(evicted))
        {
            true => self.any.store(true, Ordering::Relaxed),
            false => _ = self.skipped.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Returns what was noted since the last time, and how many were skipped; `None` if nothing was noted.
    #[inline]
    fn take(&self) -> Option<(Noted, u64)> {
        match self.any.load(Ordering::Relaxed) {
            true => self.take_noted(),
            false => None,
        }
    }

    #[cold]
    fn take_noted(&self) -> Option<(Noted, u64)> {
        let mut fresh = Noted::default();
        fresh.reserve();
        let mut noted = self.noted.try_lock().ok()?;
        self.any.store(false, Ordering::Relaxed);
        let taken = std::mem::replace(&mut *noted, fresh);
        Some((taken, self.skipped.swap(0, Ordering::Relaxed)))
    }

    /// Returns whether a client watches those of any tenant.
    pub(crate) fn wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Counts a client that watches what it may see from now on, for which there has to be room; or
    /// that does no longer.
    fn want(&self, reach: &Reach, wanted: bool) {
        let mut watching = lock(&self.watching);
        let (all, tenants) = &mut *watching;
        let change = |count: &mut usize| match wanted {
            true => *count += 1,
            false => *count -= 1,
        };
        match reach {
            None => change(all),
            Some(spaces) => {
                for space in spaces {
                    change(tenants.entry(Arc::clone(&space.name)).or_default());
                }
                tenants.retain(|_, count| *count > 0);
            }
        }
        if wanted && let Ok(mut noted) = self.noted.try_lock() {
            noted.reserve();
        }
        let is_any = *all > 0 || !tenants.is_empty();
        let whose = (*all == 0).then(|| tenants.keys().cloned().collect());
        self.whose.store(whose);
        self.wanted.store(is_any, Ordering::Relaxed);
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
    /// Admins, who see all.
    admins: List,
    /// How many clients watch.
    number: AtomicUsize,
}

impl Watchers {
    /// Returns whether a client watches one of `events` of `space`.
    #[inline]
    pub(crate) fn want(&self, space: &Space, events: u32) -> bool {
        space.watched.want(events) || self.admins.want(events)
    }

    /// Begins a watch; `None` if there are too many of the client's tenant. `wake` is called when
    /// something waits.
    pub(crate) fn add(
        self: &Arc<Self>,
        events: u32,
        reach: Reach,
        wake: Box<dyn Fn() + Send + Sync>,
    ) -> Option<Watch> {
        self.number.fetch_add(1, Ordering::Relaxed);
        let mut watch = Watch {
            watcher: Arc::new(Watcher {
                events,
                waiting: Mutex::default(),
                woken: AtomicBool::new(false),
                wake,
            }),
            reach: NOTHING,
            all: Arc::clone(self),
        };
        watch.enter(reach, MAX_WATCHERS).then_some(watch)
    }

    /// Returns how many clients watch.
    pub(crate) fn count(&self) -> usize {
        self.number.load(Ordering::Relaxed)
    }

    /// Tells of the evictions since the last time.
    pub(crate) fn tell_evictions(&self, directory: &Directory) {
        let Some((noted, skipped)) = self.evictions.take() else {
            return;
        };
        let mut start = 0;
        for (memory, [name_end, end]) in noted.ends {
            let (name, line) = (&noted.text[start..name_end], &noted.text[name_end..end]);
            start = end;
            let space = std::str::from_utf8(name).ok();
            let space = space.and_then(|name| directory.spaces.get(name));
            // Another tenant may have the name by now.
            let space = space.filter(|space| *space.tenant.memory() == memory);
            let write = |out: &mut Vec<u8>| out.extend_from_slice(line);
            self.tell(EVICTIONS, space, "eviction", write);
        }
        if skipped > 0 {
            self.dropped.fetch_add(skipped, Ordering::Relaxed);
            // Whose they were is not known: only those that may see all are told.
            for Listed { watcher, .. } in lock(&self.admins.watchers).iter() {
                if watcher.events & EVICTIONS != 0 {
                    lock(&watcher.waiting).skipped += skipped;
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
        let lists = [space.map(|space| &space.watched), Some(&self.admins)];
        let lists = lists.into_iter().flatten();
        let mut lists = lists.filter(|list| list.want(event)).peekable();
        if lists.peek().is_none() {
            return;
        }
        #[cfg(test)]
        tests::TOLD.set(tests::TOLD.get() + 1);
        let time = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let mut rest = Vec::new();
        rest.extend_from_slice(b"type=");
        rest.extend_from_slice(kind.as_bytes());
        rest.push(b' ');
        write(&mut rest);
        rest.push(b'\n');
        let (mut sent, mut skipped) = (0, 0);
        for list in lists {
            let watchers = lock(&list.watchers);
            let watchers = watchers.iter().map(|one| &one.watcher);
            for watcher in watchers.filter(|one| one.events & event != 0) {
                add_work(rest.len());
                match watcher.push(time, &rest) {
                    true => sent += 1,
                    false => skipped += 1,
                }
            }
        }
        if sent + skipped > 0 {
            self.written.fetch_add(1, Ordering::Relaxed);
            self.sent.fetch_add(sent, Ordering::Relaxed);
            self.skipped.fetch_add(skipped, Ordering::Relaxed);
        }
    }
}

/// Appends `key=`, escaped.
pub(crate) fn push_key(line: &mut Vec<u8>, key: &[u8]) {
    line.extend_from_slice(b"key=");
    escape::push(line, key);
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{fuzz, store::Tenant};
    use std::cell::Cell;

    thread_local! {
        /// How many events the calling thread has told.
        pub(crate) static TOLD: Cell<u64> = const { Cell::new(0) };
    }

    fn evicted<'a>(tenant: &'a Tenant, name: &'a str, key: &'a [u8]) -> Evicted<'a> {
        Evicted {
            tenant: name,
            memory: tenant.memory(),
            key,
            len: 5,
            fetched: true,
            exptime: 110,
            last_access: 90,
            now: 100,
        }
    }

    /// The lines that a watcher has been told, behind their numbers.
    fn lines(watch: &Watch) -> Vec<String> {
        let mut lines = Vec::new();
        watch.watcher.take(&mut lines);
        let lines = String::from_utf8(lines).unwrap();
        let rest = |line: &str| line.split_once(" gid=").unwrap().1.to_owned();
        lines.lines().map(rest).collect()
    }

    #[test]
    fn an_eviction_is_told_to_those_that_may_see_it() {
        let shared = fuzz::new_shared(|_| {});
        shared.store.create_tenant("other").unwrap();
        shared.change(|directory| directory.follow(&shared.store, 1));
        let directory = shared.directory();
        let watchers = &shared.watchers;
        let (default, tenant) = (
            &directory.spaces[""].tenant,
            &directory.spaces["other"].tenant,
        );
        let note = |name: &str, key: &[u8]| {
            let of = if name.is_empty() { default } else { tenant };
            watchers.evictions.note(&evicted(of, name, key));
        };
        // Not noted while no client watches.
        note("", b"early");
        let add = |events, reach| watchers.add(events, reach, Box::new(|| {})).unwrap();
        let own = |name: &str| Some(vec![Arc::clone(&directory.spaces[name])]);
        let (all, home, other) = (
            add(EVICTIONS, None),
            add(EVICTIONS, own("")),
            add(EVICTIONS, own("other")),
        );
        let mutations = add(MUTATIONS, None);
        note("", b"k 1");
        note("other", b"k2");
        note("gone", b"k3");
        watchers.tell_evictions(&directory);
        let line = |number: u32, key: &str| {
            format!("{number} type=eviction key={key} fetch=yes ttl=10 la=10 clsid=1 size=5")
        };
        let every = [line(1, "k%201"), line(2, "k2"), line(3, "k3")];
        assert_eq!(lines(&all), every);
        assert_eq!(lines(&home), [line(1, "k%201")]);
        assert_eq!(lines(&other), [line(1, "k2")]);
        assert!(lines(&mutations).is_empty());
        // Once.
        watchers.tell_evictions(&directory);
        assert!(lines(&all).is_empty());
        // What no client watches is not noted.
        drop(all);
        note("gone", b"k4");
        assert!(watchers.evictions.take().is_none());
        note("other", b"k5");
        watchers.tell_evictions(&directory);
        assert_eq!(lines(&other), [line(2, "k5")]);
        drop((home, other));
        assert_eq!(watchers.count(), 1);
        note("", b"late");
        assert!(watchers.evictions.take().is_none());
    }

    /// One that is created with the name of a deleted one is not told of the deleted one's items.
    #[test]
    fn an_eviction_is_not_told_to_another_tenant_of_the_name() {
        let shared = fuzz::new_shared(|_| {});
        crate::tests::create(&shared, &["a"]);
        let old = shared.directory().spaces["a"].tenant.clone();
        shared.store.delete_tenant("a").unwrap();
        crate::tests::create(&shared, &["a"]);
        let (directory, watchers) = (shared.directory(), &shared.watchers);
        let space = Arc::clone(&directory.spaces["a"]);
        let new = space.tenant.clone();
        let watch = watchers.add(EVICTIONS, Some(vec![space]), Box::new(|| {}));
        let watch = watch.unwrap();
        for (tenant, key) in [(&old, b"old"), (&new, b"new")] {
            watchers.evictions.note(&evicted(tenant, "a", key));
        }
        watchers.tell_evictions(&directory);
        let told = lines(&watch);
        assert!(told.len() == 1 && told[0].contains("key=new "), "{told:?}");
    }

    /// Nothing is asked of the system for them: there is room, or they are skipped, which only those that see all are told.
    #[test]
    fn what_there_is_no_room_for_is_skipped() {
        let shared = fuzz::new_shared(|_| {});
        let directory = shared.directory();
        let (watchers, evictions) = (&shared.watchers, &shared.watchers.evictions);
        let all = watchers.add(EVICTIONS, None, Box::new(|| {})).unwrap();
        let tenant = &directory.spaces[""].tenant;
        let room = || {
            let noted = evictions.noted.lock().unwrap();
            (noted.text.capacity(), noted.ends.capacity())
        };
        let (before, skipped) = (room(), || evictions.skipped.load(Ordering::Relaxed));
        let mut fit = 0;
        while skipped() < 7 {
            evictions.note(&evicted(tenant, "", &[b'k'; 200]));
            fit += u64::from(skipped() == 0);
        }
        assert_eq!(room(), before);
        watchers.tell_evictions(&directory);
        let mut lines = Vec::new();
        all.watcher.take(&mut lines);
        let told = lines.iter().filter(|&&byte| byte == b'\n').count();
        assert!(fit > 100 && told as u64 == fit, "{told} of {fit}");
        evictions.note(&evicted(tenant, "", b"k"));
        watchers.tell_evictions(&directory);
        lines.clear();
        all.watcher.take(&mut lines);
        assert!(lines.starts_with(b"[skipped=7]\r\n"), "{lines:?}");
        // While another thread has them.
        let held = evictions.noted.lock().unwrap();
        evictions.note(&evicted(tenant, "", b"k"));
        watchers.tell_evictions(&directory);
        drop(held);
        assert_eq!(skipped(), 1);
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        assert_eq!(count(&watchers.dropped), 7);
        assert_eq!(
            (count(&watchers.written), count(&watchers.skipped)),
            (fit + 1, 0)
        );
        assert_eq!(count(&watchers.sent), fit + 1);
    }

    /// Those of the default tenant see the tenants of prefixes too.
    #[test]
    fn each_tenant_has_places_for_its_own_watchers() {
        let shared = fuzz::new_shared(|_| {});
        shared.store.create_tenant("p").unwrap();
        shared.change(|directory| directory.follow(&shared.store, 1));
        let directory = shared.directory();
        let reach = |names: &[&str]| {
            let spaces = names
                .iter()
                .map(|&name| Arc::clone(&directory.spaces[name]));
            Some(spaces.collect())
        };
        for names in [&["", "p"][..], &["p"]] {
            let add = || {
                let watchers = &shared.watchers;
                watchers.add(MUTATIONS, reach(names), Box::new(|| {}))
            };
            let watches: Vec<_> = (0..MAX_WATCHERS).filter_map(|_| add()).collect();
            assert_eq!(watches.len(), MAX_WATCHERS, "{names:?}");
            assert!(add().is_none(), "{names:?}");
            // They watch to the end of the test.
            std::mem::forget(watches);
        }
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
            reads.watcher.take(&mut lines);
        }
        // Of what no client watches nothing is written.
        watchers.tell(FETCHERS, None, "x", |_| unreachable!());
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (sent, skipped) = (count(&watchers.sent), count(&watchers.skipped));
        assert_eq!((count(&watchers.written), sent + skipped), (1000, 2000));
        lines.clear();
        stuck.watcher.take(&mut lines);
        let kept = lines.iter().filter(|&&byte| byte == b'\n').count() as u64;
        assert_eq!(sent, 1000 + kept);
        assert!(kept < 1000);
        // It is told how many it has missed.
        watchers.tell(MUTATIONS, None, "x", |_| {});
        lines.clear();
        stuck.watcher.take(&mut lines);
        let told = format!("[skipped={}]\r\n", 1000 - kept);
        assert!(lines.starts_with(told.as_bytes()), "{told}");
    }
}
