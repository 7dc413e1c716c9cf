//! The tenants that a server serves: which one a client's keys belong to, and what was counted for it.

use crate::{
    lock::lock,
    protocol::escape,
    store::{Prefixes, Store, Tenant, TenantStatistics},
    users::Users,
    watch,
};
use crossbeam_utils::CachePadded;
use std::{
    collections::BTreeMap,
    ops::Index,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
};

macro_rules! counters {
    ($($name:ident $stat:literal,)*) => {
        /// What a thread counts, for each tenant.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Count { $($name),* }

        impl Count {
            /// All counts, with their names in `stats`.
            pub(crate) const ALL: &[(Self, &str)] = &[$((Self::$name, $stat)),*];
        }
    };
}

counters! {
    Get "cmd_get", Set "cmd_set", Flush "cmd_flush", Touch "cmd_touch", Meta "cmd_meta",
    GetHit "get_hits", GetMiss "get_misses", DeleteMiss "delete_misses", DeleteHit "delete_hits",
    IncrMiss "incr_misses", IncrHit "incr_hits", DecrMiss "decr_misses", DecrHit "decr_hits",
    CasMiss "cas_misses", CasHit "cas_hits", CasBadValue "cas_badval",
    TouchHit "touch_hits", TouchMiss "touch_misses",
    TooLarge "store_too_large", NoMemory "store_no_memory",
}

const COUNTS: usize = Count::ALL.len();

/// The counts of one thread for one tenant. Only that thread writes them.
#[derive(Debug, Default)]
pub(crate) struct Counts([AtomicU64; COUNTS]);

impl Counts {
    #[inline]
    pub(crate) fn add(&self, count: Count, by: u64) {
        let counter = &self.0[count as usize];
        counter.store(counter.load(Ordering::Relaxed) + by, Ordering::Relaxed);
    }
}

/// A tenant, and what was counted for it.
#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) tenant: Tenant,
    pub(crate) name: Arc<str>,
    pub(crate) details: Details,
    /// The second of a flush that takes what is stored in it, without CAS values; 0: none.
    pub(crate) flush_second: AtomicU32,
    /// Number of clients that are at home in it.
    pub(crate) clients: Arc<AtomicUsize>,
    /// Clients that watch it.
    pub(crate) watched: watch::List,
    /// One for each thread.
    counts: Box<[CachePadded<Counts>]>,
    /// The counts when the statistics were reset.
    baseline: Mutex<[u64; COUNTS]>,
    /// The store's figures then.
    store_baseline: Mutex<TenantStatistics>,
}

impl Space {
    pub(crate) fn new(tenant: Tenant, threads: usize) -> Self {
        Self {
            name: tenant.name(),
            tenant,
            details: Details::default(),
            flush_second: AtomicU32::new(0),
            clients: Arc::default(),
            watched: watch::List::default(),
            counts: (0..threads).map(|_| CachePadded::default()).collect(),
            baseline: Mutex::new([0; COUNTS]),
            store_baseline: Mutex::default(),
        }
    }

    #[inline]
    pub(crate) fn counts(&self, thread: usize) -> &Counts {
        &self.counts[thread]
    }

    /// Returns the count since the start.
    pub(crate) fn absolute(&self, count: Count) -> u64 {
        let of = |counts: &CachePadded<Counts>| counts.0[count as usize].load(Ordering::Relaxed);
        self.counts.iter().map(of).sum()
    }

    /// Returns the count since the last reset.
    pub(crate) fn count(&self, count: Count) -> u64 {
        let baseline = lock(&self.baseline);
        self.absolute(count)
            .saturating_sub(baseline[count as usize])
    }

    pub(crate) fn reset(&self) {
        let mut baseline = lock(&self.baseline);
        for &(count, _) in Count::ALL {
            baseline[count as usize] = self.absolute(count);
        }
        drop(baseline);
        self.details.reset();
        let figures = self.tenant.statistics();
        *lock(&self.store_baseline) = figures;
    }

    /// Returns the store's figures of it at the last reset.
    pub(crate) fn store_baseline(&self) -> TenantStatistics {
        *lock(&self.store_baseline)
    }
}

/// What was done by prefixes of keys, up to a colon: `stats detail`.
#[derive(Debug, Default)]
pub(crate) struct Details {
    on: AtomicBool,
    /// Gets, hits, sets, deletes.
    prefixes: Mutex<BTreeMap<Box<[u8]>, [u64; 4]>>,
}

/// What keys without a colon are counted under.
const NO_PREFIX: &[u8] = b"<null>";
/// Prefixes beyond these are not counted.
const MAX_PREFIXES: usize = 1000;

impl Details {
    pub(crate) fn switch(&self, on: bool) {
        self.on.store(on, Ordering::Relaxed);
    }

    pub(crate) fn get(&self, key: &[u8], hit: bool) {
        self.note(key, [1, hit.into(), 0, 0]);
    }

    pub(crate) fn set(&self, key: &[u8]) {
        self.note(key, [0, 0, 1, 0]);
    }

    pub(crate) fn delete(&self, key: &[u8]) {
        self.note(key, [0, 0, 0, 1]);
    }

    #[inline]
    fn note(&self, key: &[u8], what: [u64; 4]) {
        // needs no partner: a request more or less at the beginning does not matter.
        if self.on.load(Ordering::Relaxed) {
            self.note_slow(key, what);
        }
    }

    #[cold]
    fn note_slow(&self, key: &[u8], what: [u64; 4]) {
        let colon = key.iter().position(|&byte| byte == b':');
        let prefix = colon.map_or(NO_PREFIX, |colon| &key[..colon]);
        let mut prefixes = lock(&self.prefixes);
        if let Some(counts) = prefixes.get_mut(prefix) {
            counts
                .iter_mut()
                .zip(what)
                .for_each(|(count, by)| *count += by);
        } else if prefixes.len() < MAX_PREFIXES {
            prefixes.insert(prefix.into(), what);
        }
    }

    fn reset(&self) {
        lock(&self.prefixes).clear();
    }

    /// Appends a line for each prefix.
    pub(crate) fn dump(&self, out: &mut Vec<u8>) {
        for (prefix, [gets, hits, sets, deletes]) in &*lock(&self.prefixes) {
            out.extend_from_slice(b"PREFIX ");
            // (Without a colon: the word of memcached, which is no key.)
            match &**prefix {
                NO_PREFIX => out.extend_from_slice(NO_PREFIX),
                prefix => escape::push_word(out, prefix),
            }
            out.extend_from_slice(
                format!(" get {gets} hit {hits} set {sets} del {deletes}\r\n").as_bytes(),
            );
        }
    }
}

/// A piece that has more is divided.
const PIECE: usize = 128;

/// Spaces in the order of their names. A change of a directory makes a new one, which has all but one piece
/// of the old one's: so creating one of ten thousand tenants costs the same few microseconds as one of ten.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spaces {
    /// In order, and none of them empty.
    pieces: Vec<Arc<Vec<Arc<Space>>>>,
}

impl Spaces {
    /// Returns the piece that has the name, or would have it.
    fn piece(&self, name: &str) -> usize {
        let behind = self.pieces.partition_point(|piece| *piece[0].name <= *name);
        behind.saturating_sub(1)
    }

    fn find(&self, piece: usize, name: &str) -> Result<usize, usize> {
        self.pieces[piece].binary_search_by(|space| (*space.name).cmp(name))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Arc<Space>> {
        let piece = self.piece(name);
        let at = (piece < self.pieces.len()).then(|| self.find(piece, name))?;
        Some(&self.pieces[piece][at.ok()?])
    }

    /// Adds a space, instead of the one of that name.
    pub(crate) fn insert(&mut self, space: Arc<Space>) {
        if self.pieces.is_empty() {
            self.pieces.push(Arc::new(vec![space]));
            return;
        }
        let number = self.piece(&space.name);
        let at = self.find(number, &space.name);
        let piece = Arc::make_mut(&mut self.pieces[number]);
        match at {
            Ok(at) => piece[at] = space,
            Err(at) => piece.insert(at, space),
        }
        if piece.len() > PIECE {
            let behind = piece.split_off(PIECE / 2);
            self.pieces.insert(number + 1, Arc::new(behind));
        }
    }

    pub(crate) fn remove(&mut self, name: &str) {
        let number = self.piece(name);
        if number >= self.pieces.len() {
            return;
        }
        if let Ok(at) = self.find(number, name) {
            let piece = Arc::make_mut(&mut self.pieces[number]);
            piece.remove(at);
            if piece.is_empty() {
                self.pieces.remove(number);
            }
        }
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Arc<Space>> {
        self.pieces.iter().flat_map(|piece| piece.iter())
    }

    pub(crate) fn len(&self) -> usize {
        self.pieces.iter().map(|piece| piece.len()).sum()
    }
}

impl Index<&str> for Spaces {
    type Output = Arc<Space>;

    fn index(&self, name: &str) -> &Arc<Space> {
        self.get(name).expect("a tenant of that name")
    }
}

/// All tenants and users at one moment. A change makes a new one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Directory {
    /// A number that is higher after each change.
    pub(crate) version: u64,
    pub(crate) spaces: Spaces,
    /// The spaces of prefixes of keys in the default key space.
    prefixes: Arc<Prefixes<Arc<Space>>>,
    /// The same spaces, each once, in the order of their names.
    by_prefix: Arc<[Arc<Space>]>,
    pub(crate) users: Users,
    /// Number of tenants that have users or listeners.
    pub(crate) homes: usize,
}

impl Directory {
    /// Returns the space of `key` for a client at home in `home`.
    #[inline]
    pub(crate) fn route<'a>(&'a self, home: &'a Arc<Space>, key: &[u8]) -> &'a Arc<Space> {
        if self.prefixes.is_empty() || !home.name.is_empty() {
            return home;
        }
        self.prefixes.longest(key).unwrap_or(home)
    }

    /// Returns the spaces that a client at home in `home` works on: its own, and those of prefixes if it is the
    /// default one.
    pub(crate) fn reach<'a>(
        &'a self,
        home: &'a Arc<Space>,
    ) -> impl Iterator<Item = &'a Arc<Space>> {
        let others: &[_] = match home.name.is_empty() {
            true => &self.by_prefix,
            false => &[],
        };
        std::iter::once(home).chain(others)
    }

    /// Returns whether a client at home in `home` works on `space`.
    pub(crate) fn reaches(&self, home: &Arc<Space>, space: &Arc<Space>) -> bool {
        let by_prefix = || {
            let name = |other: &Arc<Space>| (*other.name).cmp(&*space.name);
            let found = self.by_prefix.binary_search_by(name);
            found.is_ok_and(|at| Arc::ptr_eq(&self.by_prefix[at], space))
        };
        Arc::ptr_eq(home, space) || (home.name.is_empty() && by_prefix())
    }

    /// Gives prefixes to spaces. Where a prefix comes to another space, what both have under it is
    /// forgotten: it would be found again when the prefix comes back, whatever was stored or deleted
    /// meanwhile.
    pub(crate) fn set_prefixes(&mut self, prefixes: Vec<(Vec<u8>, Arc<Space>)>) {
        let prefixes = prefixes.into_iter();
        let prefixes = prefixes.map(|(prefix, space)| (prefix.into(), space));
        let after: Arc<Prefixes<_>> = Arc::new(prefixes.collect());
        let before = std::mem::replace(&mut self.prefixes, Arc::clone(&after));
        let mut spaces: Vec<_> = after.iter().map(|(_, space)| Arc::clone(space)).collect();
        spaces.sort_by(|one, other| one.name.cmp(&other.name));
        spaces.dedup_by(|one, other| Arc::ptr_eq(one, other));
        self.by_prefix = spaces.into();
        let home = self.spaces.get("");
        let mut changed = Vec::new();
        for (prefix, _) in before.iter().chain(after.iter()) {
            let (old, new) = (
                before.longest(prefix).or(home),
                after.longest(prefix).or(home),
            );
            if old.map(Arc::as_ptr) != new.map(Arc::as_ptr) {
                changed.extend(old.into_iter().chain(new).map(|space| (space, prefix)));
            }
        }
        changed.sort_by_key(|(space, prefix)| (Arc::as_ptr(space), *prefix));
        changed.dedup_by(|(one, prefix), (other, same)| Arc::ptr_eq(one, other) && prefix == same);
        for of_space in changed.chunk_by(|(one, _), (other, _)| Arc::ptr_eq(one, other)) {
            let prefixes = of_space.iter().map(|(_, prefix)| *prefix);
            of_space[0].0.tenant.forget(prefixes);
        }
    }

    /// Adds the spaces of the tenants that `store` has and this directory has not, and removes those of deleted ones.
    pub(crate) fn follow(&mut self, store: &Store, threads: usize) {
        let own: Vec<_> = self
            .spaces
            .values()
            .map(|space| Arc::clone(&space.name))
            .collect();
        for name in own.into_iter().chain(store.names()) {
            self.follow_tenant(store, &name, threads);
        }
    }

    /// Does the same for the tenant of that name. One that was created anew has a new space.
    pub(crate) fn follow_tenant(&mut self, store: &Store, name: &str, threads: usize) {
        let (now, tenant) = (self.spaces.get(name), store.tenant(name).ok());
        if now.map(|space| &space.tenant) == tenant.as_ref() {
            return;
        }
        if now.is_some() {
            self.spaces.remove(name);
            if self.by_prefix.iter().any(|space| *space.name == *name) {
                let prefixes = self.prefixes.iter();
                let others = prefixes.filter(|(_, space)| *space.name != *name);
                let owned = others.map(|(prefix, space)| (prefix.to_vec(), Arc::clone(space)));
                self.set_prefixes(owned.collect());
            }
        }
        if let Some(tenant) = tenant {
            self.spaces.insert(Arc::new(Space::new(tenant, threads)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Config;

    fn directory() -> (Store, Directory) {
        let store = Store::new(Config::default()).unwrap();
        for name in ["a", "ab"] {
            store.create_tenant(name).unwrap();
        }
        let mut directory = Directory::default();
        directory.follow(&store, 2);
        let prefixes = ["a", "ab"].map(|name| {
            (
                format!("{name}:").into_bytes(),
                Arc::clone(&directory.spaces[name]),
            )
        });
        let longer = (b"a:b:".to_vec(), Arc::clone(&directory.spaces["ab"]));
        directory.set_prefixes(prefixes.into_iter().chain([longer]).collect());
        (store, directory)
    }

    #[test]
    fn the_longest_prefix_decides_in_the_default_space_alone() {
        let (_store, directory) = directory();
        let home = &directory.spaces[""];
        for (key, name) in [
            ("a:1", "a"),
            ("ab:1", "ab"),
            ("a:b:1", "ab"),
            ("a", ""),
            ("b:1", ""),
        ] {
            assert_eq!(&*directory.route(home, key.as_bytes()).name, name, "{key}");
        }
        let other = &directory.spaces["a"];
        assert_eq!(&*directory.route(other, b"ab:1").name, "a");
        assert_eq!(directory.reach(home).count(), 3);
        assert_eq!(directory.reach(other).count(), 1);
    }

    /// Each once, in some comparisons for each: a tenant with a thousand prefixes is common.
    #[test]
    fn the_spaces_of_many_prefixes_are_reached_once_each() {
        let store = Store::new(Config::default()).unwrap();
        let names: Vec<_> = (0..200).map(|number| format!("t{number}")).collect();
        for name in &names {
            store.create_tenant(name).unwrap();
        }
        let mut directory = Directory::default();
        directory.follow(&store, 1);
        let spaces = names
            .iter()
            .map(|name| Arc::clone(&directory.spaces[&**name]));
        let of = |space: Arc<Space>| {
            let prefixes = [":", ";", "-"].map(|end| format!("{}{end}", space.name));
            prefixes.map(|prefix| (prefix.into_bytes(), Arc::clone(&space)))
        };
        directory.set_prefixes(spaces.flat_map(of).collect());
        let home = &directory.spaces[""];
        let reached: Vec<_> = directory.reach(home).collect();
        assert_eq!(reached.len(), 201);
        assert!(Arc::ptr_eq(reached[0], home));
        assert!(reached.iter().all(|space| directory.reaches(home, space)));
        let other = &directory.spaces["t7"];
        assert!(directory.reaches(other, other) && !directory.reaches(other, home));
        assert_eq!(&*directory.route(home, b"t7;1").name, "t7");
    }

    #[test]
    fn deleted_tenants_leave() {
        let (store, mut directory) = directory();
        store.delete_tenant("ab").unwrap();
        store.create_tenant("c").unwrap();
        directory.follow(&store, 2);
        assert_eq!(
            directory
                .spaces
                .values()
                .map(|space| &*space.name)
                .collect::<Vec<_>>(),
            ["", "a", "c"]
        );
        assert_eq!(directory.prefixes.iter().count(), 1);
    }

    /// Between two looks at the store it was deleted, by one admin, and created by another: the space
    /// of the one that is gone would refuse all that is stored.
    #[test]
    fn a_tenant_that_was_made_anew_has_a_new_space() {
        for all in [false, true] {
            let (store, mut directory) = directory();
            store.delete_tenant("ab").unwrap();
            store.create_tenant("ab").unwrap();
            match all {
                true => directory.follow(&store, 2),
                false => directory.follow_tenant(&store, "ab", 2),
            }
            assert!(!directory.spaces["ab"].tenant.is_deleted());
            assert_eq!(directory.spaces.len(), 3);
            // Its prefixes went with the one that had them.
            assert_eq!(directory.prefixes.iter().count(), 1);
        }
    }

    #[test]
    fn counts_of_all_threads_add_up_and_are_reset() {
        let (_store, directory) = directory();
        let space = &directory.spaces["a"];
        space.counts(0).add(Count::Get, 2);
        space.counts(1).add(Count::Get, 3);
        assert_eq!((space.count(Count::Get), space.count(Count::Set)), (5, 0));
        space.reset();
        assert_eq!(space.count(Count::Get), 0);
        space.counts(1).add(Count::Get, 1);
        assert_eq!(space.count(Count::Get), 1);
    }

    /// As a map of std, whatever the order; and a copy stays as it was.
    #[test]
    fn pieces_are_a_map_in_order_and_share_what_does_not_change() {
        let store = Store::new(Config::default()).unwrap();
        let tenant = store.tenant("").unwrap();
        let new = |name: u64| {
            let mut space = Space::new(tenant.clone(), 1);
            space.name = name.to_string().into();
            Arc::new(space)
        };
        let (mut spaces, mut model) = (Spaces::default(), BTreeMap::new());
        let check = |spaces: &Spaces, model: &BTreeMap<Arc<str>, Arc<Space>>| {
            let all = spaces.values().map(Arc::as_ptr);
            assert!(all.eq(model.values().map(Arc::as_ptr)));
            assert_eq!(spaces.len(), model.len());
            assert!(spaces.pieces.iter().all(|piece| !piece.is_empty()));
        };
        assert!(spaces.get("").is_none());
        spaces.remove("");
        let mut number = 1u64;
        for round in 0..4000u64 {
            number = number.wrapping_mul(6_364_136_223_846_793_005) | 1;
            let name = (number >> 40) % 1000;
            let before = (spaces.clone(), model.clone());
            if number >> 63 == 0 || round < 1000 {
                let space = new(name);
                model.insert(Arc::clone(&space.name), Arc::clone(&space));
                spaces.insert(space);
            } else {
                let name = name.to_string();
                model.remove(name.as_str());
                spaces.remove(&name);
            }
            if round % 50 == 0 {
                check(&before.0, &before.1);
                check(&spaces, &model);
                for name in 0..1000u64 {
                    let name = name.to_string();
                    let (space, expected) = (spaces.get(&name), model.get(name.as_str()));
                    assert_eq!(space.map(Arc::as_ptr), expected.map(Arc::as_ptr));
                }
            }
        }
        assert!(spaces.pieces.len() > 4 && spaces.pieces.len() <= spaces.len());
        // One that is added costs one piece.
        let before = spaces.clone();
        spaces.insert(new(5000));
        let shared = |piece: &Arc<_>| before.pieces.iter().any(|other| Arc::ptr_eq(other, piece));
        let own = spaces.pieces.iter().filter(|piece| !shared(piece)).count();
        assert!((1..=2).contains(&own), "{own}");
        for name in model.keys() {
            spaces.remove(name);
        }
        spaces.remove("5000");
        assert!(spaces.pieces.is_empty());
    }
}
