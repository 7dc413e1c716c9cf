//! The container that a process runs in: its control group (version 2), and those above it.
//!
//! A cache whose `max_bytes` was not set has half of what the container may use, and follows that
//! limit when it changes. The kernel does not tell of such a change, so the service thread looks
//! once a second. With the same look it reads `memory.events` of the group whose limit is least. If
//! that has met its limit since, and is full of what the kernel cannot take back easily, an eighth of
//! the cache goes, before the kernel's own means hurt more. (A group that reads files meets its limit
//! all the time, and only loses pages of files that are not used. Pressure that builds up below the
//! limits is [`Cache::shrinker`](crate::Cache::shrinker)'s.)
//!
//! The kernel does tell of changes of `memory.events`: where they can be [watched](crate::watcher::Watcher)
//! the thread looks at once, and ten times a second at most: at those of the group whose limit is
//! least, and of all below it, of which the kernel tells there, too. A limit of these that is lowered
//! below what is used is met by the next charges, and so seen before the second has passed.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};
use stillpoint_platform::clock::Nanos;

/// Nanoseconds from one look to the next while the group's events do not change.
const EVERY: Nanos = 1_000_000_000;

/// Directory of the control groups.
const ROOT: &str = "/sys/fs/cgroup";

const EVENTS: &str = "memory.events";

/// A group is full when all but this part of its limit is used by what is not easily taken back.
const SPARE: u64 = 16;

/// The process's control group. Used by one thread at a time, but for `follows`.
#[derive(Debug)]
pub struct Container {
    root: PathBuf,
    group: PathBuf,
    /// Whether the cache's limit is the container's. Not any more, once the program has set one.
    pub follows: AtomicBool,
    /// The limit at the last look, in bytes; `u64::MAX` for none.
    limit: AtomicU64,
    /// Level of the group with that limit: the number of groups below it, down to the process's own.
    level: AtomicUsize,
    /// Number of times that group had met its limits by then.
    met: AtomicU64,
    /// Size in bytes down to which the cache is being evicted; `u64::MAX` for none.
    pub goal: AtomicU64,
    pub every: Nanos,
}

/// A limit in bytes, `u64::MAX` for none, and the level of the group that has it.
#[derive(Debug, Clone, Copy)]
struct Limit {
    bytes: u64,
    level: usize,
}

/// The result of a look.
#[derive(Debug, PartialEq, Eq)]
pub struct Look {
    /// The cache's new limit in bytes, if that has changed.
    pub max: Option<u64>,
    /// Whether the group has met its limits since the last look, and is full.
    pub is_pressed: bool,
}

impl Container {
    /// Returns the container of this process; `None` without control groups of version 2.
    pub fn find() -> Option<Self> {
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
        Some(Self::at(ROOT.into(), Path::new(group).into()))
    }

    /// Returns the container of the control group `group` below `root`.
    pub fn at(root: PathBuf, group: PathBuf) -> Self {
        let this = Self {
            root,
            group,
            follows: AtomicBool::new(true),
            limit: AtomicU64::new(u64::MAX),
            level: AtomicUsize::new(0),
            met: AtomicU64::new(0),
            goal: AtomicU64::new(u64::MAX),
            every: EVERY,
        };
        this.look();
        this
    }

    /// Returns the path of a file of the group at `level`.
    fn file(&self, level: usize, name: &str) -> PathBuf {
        let group = self.group.ancestors().nth(level).unwrap_or(&self.group);
        self.root.join(group).join(name)
    }

    /// Returns the file that changes when the group with the least limit meets that, as of the last look.
    pub fn events(&self) -> PathBuf {
        self.file(self.level.load(Ordering::Relaxed), EVENTS)
    }

    /// Reads a file of the group at `level`. Returns an empty string if there is no such file.
    fn read(&self, level: usize, file: &str) -> io::Result<String> {
        match fs::read_to_string(self.file(level, file)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            other => other,
        }
    }

    /// Returns the least `memory.max` or `memory.high` of the group and those above it.
    fn limit(&self) -> io::Result<Limit> {
        let mut least = Limit {
            bytes: u64::MAX,
            level: 0,
        };
        for level in 0..self.group.ancestors().count() {
            for file in ["memory.max", "memory.high"] {
                // "max" is no number, and no limit.
                match self.read(level, file)?.trim().parse() {
                    Ok(bytes) if bytes < least.bytes => least = Limit { bytes, level },
                    _ => {}
                }
            }
        }
        Ok(least)
    }

    /// Returns whether the group of that limit, or one below it, has met a limit since the last look, and
    /// that group is full.
    fn is_pressed(&self, limit: Limit) -> io::Result<bool> {
        let events = self.read(limit.level, EVENTS)?;
        let met = sum_of(&events, &["high", "max", "oom"]);
        let is_same = self.level.load(Ordering::Relaxed) == limit.level;
        let is_more = met > self.met.load(Ordering::Relaxed);
        let is_pressed = is_same && is_more && self.is_full(limit)?;
        self.level.store(limit.level, Ordering::Relaxed);
        self.met.store(met, Ordering::Relaxed);
        Ok(is_pressed)
    }

    /// Returns whether what the kernel cannot take back easily is near the limit: all but pages of files that
    /// have not been used for long.
    fn is_full(&self, limit: Limit) -> io::Result<bool> {
        let used = self.read(limit.level, "memory.current")?;
        let used: u64 = used.trim().parse().unwrap_or(0);
        let unused = sum_of(&self.read(limit.level, "memory.stat")?, &["inactive_file"]);
        Ok(used.saturating_sub(unused) > limit.bytes - limit.bytes / SPARE)
    }

    /// Returns the limit for a cache, in bytes: half of what the container may use, or a quarter of the
    /// machine's memory where it has no limit.
    pub fn max(&self) -> u64 {
        max_for(self.limit.load(Ordering::Relaxed))
    }

    /// Looks what has changed; `None` once the cache has a limit of its own.
    pub fn look(&self) -> Option<Look> {
        if !self.follows.load(Ordering::Relaxed) {
            return None;
        }
        let mut look = Look {
            max: None,
            is_pressed: false,
        };
        // What cannot be read, as without file descriptors, has not changed.
        if let Ok(limit) = self.limit() {
            let before = self.limit.swap(limit.bytes, Ordering::Relaxed);
            look.max = (before != limit.bytes).then(|| max_for(limit.bytes));
            look.is_pressed = self.is_pressed(limit).unwrap_or(false);
        }
        Some(look)
    }
}

/// Returns the sum of the numbers behind `names` in a file with a name and a number in each line.
fn sum_of(text: &str, names: &[&str]) -> u64 {
    let numbers = text.lines().filter_map(|line| {
        let (name, number) = line.split_once(' ')?;
        names
            .contains(&name)
            .then(|| number.trim().parse::<u64>().ok())?
    });
    numbers.fold(0, u64::saturating_add)
}

/// Returns the limit for a cache in a container that may use `limit` bytes; `u64::MAX` for no limit.
pub fn max_for(limit: u64) -> u64 {
    match limit {
        u64::MAX => machine_memory().map_or(256 << 20, |bytes| bytes / 4),
        limit => limit / 2,
    }
}

fn machine_memory() -> Option<u64> {
    let info = fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find(|line| line.starts_with("MemTotal:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib << 10)
}

#[cfg(all(test, not(miri), not(stillpoint_loom)))]
mod tests {
    use super::*;
    use crate::{
        Builder, Cache,
        memory::Memory,
        shared::eventually,
        watcher::{Visited, Watcher},
        weigh::Unit,
    };
    use std::sync::Arc;
    use stillpoint_platform::{clock, watch::Watch};

    /// Files of control groups.
    struct Groups(PathBuf);

    impl Groups {
        fn new(name: &str) -> Self {
            let name = format!("stillpoint-container-{}-{name}", std::process::id());
            let groups = Self(std::env::temp_dir().join(name));
            fs::create_dir_all(groups.0.join("above/group")).unwrap();
            groups.write("above/memory.max", "8000");
            groups.write("above/group/memory.max", "max");
            groups
        }

        /// Changes a file at once, as the kernel does: no reader sees it empty. A watched file stays the same
        /// one.
        fn write(&self, file: &str, text: &str) {
            let file = self.0.join(file);
            if file.ends_with(EVENTS) {
                return fs::write(file, text).unwrap();
            }
            let whole = file.with_extension("whole");
            fs::write(&whole, text).unwrap();
            fs::rename(whole, file).unwrap();
        }

        /// Returns the builder of a cache of entries that follows `above/group`, and looks at it once an hour.
        fn follower(&self) -> Builder<u64, u64> {
            let mut container = Container::at(self.0.clone(), "above/group".into());
            container.every = 3_600_000_000_000;
            let mut builder = Cache::builder();
            builder.settings.scale.unit = Unit::Entries;
            builder.settings.container = Some(container);
            builder
        }

        /// Writes the files of a group that has met its limits `met` times and uses `used` bytes, `unused` of
        /// them for pages of files that are not used.
        fn use_memory(&self, group: &str, met: u32, used: u32, unused: u32) {
            self.write(&format!("{group}/memory.events"), &format!("max {met}\n"));
            self.write(&format!("{group}/memory.current"), &used.to_string());
            let stat = format!("anon 5\ninactive_file {unused}\n");
            self.write(&format!("{group}/memory.stat"), &stat);
        }
    }

    impl Drop for Groups {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn look(container: &Container) -> (Option<u64>, bool) {
        let look = container.look().unwrap();
        (look.max, look.is_pressed)
    }

    #[test]
    fn a_group_that_is_full_of_files_is_not_short_of_memory() {
        let groups = Groups::new("files");
        groups.use_memory("above", 7, 8000, 0);
        let container = Container::at(groups.0.clone(), "above/group".into());
        assert_eq!((container.max(), look(&container)), (4000, (None, false)));
        groups.use_memory("above", 8, 8000, 500);
        assert_eq!(look(&container), (None, false), "7500 of 8000 are not full");
        groups.use_memory("above", 9, 8000, 499);
        assert_eq!(look(&container), (None, true));
        assert_eq!(look(&container), (None, false), "nothing new");
        // Another group has the least limit, whose events are others.
        groups.write("above/group/memory.high", "4000");
        groups.use_memory("above/group", 100, 4000, 0);
        assert_eq!(look(&container), (Some(2000), false));
        groups.use_memory("above/group", 101, 4000, 0);
        groups.use_memory("above", 10, 8000, 0);
        assert_eq!(look(&container), (None, true));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn events_are_heard_before_the_next_look() {
        let groups = Groups::new("heard");
        groups.use_memory("above", 7, 8000, 0);
        let cache = groups.follower().build();
        groups.write("above/memory.max", "4000");
        (0..4000).for_each(|key| cache.insert(key, key));
        groups.write("above/memory.events", "max 8\n");
        eventually(|| cache.weighted_bytes() <= 2000);
        // The first look may have been after that; not so from here on.
        groups.write("above/memory.max", "2000");
        groups.use_memory("above", 9, 8000, 0);
        eventually(|| cache.weighted_bytes() <= 1000);
    }

    /// The service thread waits for files, and for what is asked of it.
    #[test]
    fn what_is_asked_for_is_done_while_files_are_watched() {
        let groups = Groups::new("asked");
        groups.use_memory("above", 7, 8000, 0);
        let (follower, other) = (groups.follower().build(), Cache::with_bytes(1 << 20));
        for number in 1..=2 {
            other.insert_with_ttl(number, 0, std::time::Duration::from_millis(20));
            eventually(|| other.statistics().expired == number);
        }
        drop::<Cache<u64, u64>>(follower);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn events_of_another_group_are_heard_once_that_has_the_least_limit() {
        let groups = Groups::new("another");
        groups.use_memory("above", 7, 0, 0);
        groups.use_memory("above/group", 100, 0, 0);
        let builder = groups.follower();
        let memory = Memory::of::<u64>();
        let cache = Cache::unvisited(builder.settings, builder.hasher, memory);
        let watch = Watch::new();
        // SAFETY: no other thread has it.
        let mut watcher = unsafe { Watcher::new(&watch) };
        let own: Arc<dyn Visited> = Arc::clone(&cache.inner) as _;
        let own = Arc::downgrade(&own);
        let mut next = || {
            let next = Arc::clone(&cache.inner).visit(&mut watcher);
            watcher.end_visit(&own, next.is_some());
            next.expect("it follows")
        };
        let soon = || clock::now() + 60_000_000_000;
        assert!(next() > soon());
        groups.write("above/group/memory.max", "1000");
        assert!(next() <= clock::now(), "to hear its events");
        assert!(next() > soon());
        groups.write("above/group/memory.events", "max 101");
        assert!(watch.wait(u64::MAX, true).unwrap());
        while watch.wait(0, true).unwrap() {}
        groups.write("above/memory.events", "max 8");
        assert!(!watch.wait(0, true).unwrap(), "no one follows that");
        // The last follower of a file ends the watch: it has a limit of its own.
        cache.set_max_bytes(500);
        assert!(watch.bell().is_some());
        assert_eq!(Arc::clone(&cache.inner).visit(&mut watcher), None);
        watcher.end_visit(&own, false);
        assert!(watch.bell().is_none());
    }

    #[test]
    fn what_cannot_be_read_has_not_changed() {
        let groups = Groups::new("unreadable");
        groups.use_memory("above", 7, 8000, 0);
        let container = Container::at(groups.0.clone(), "above/group".into());
        let unreadable = |file: &str, is: bool| {
            let file = groups.0.join(file);
            if is {
                fs::remove_file(&file).unwrap();
                fs::create_dir(&file).unwrap();
            } else {
                fs::remove_dir(&file).unwrap();
            }
        };
        groups.use_memory("above", 8, 8000, 0);
        for file in [
            "above/memory.max",
            "above/memory.events",
            "above/memory.stat",
        ] {
            let text = fs::read_to_string(groups.0.join(file)).unwrap();
            unreadable(file, true);
            assert_eq!(look(&container), (None, false), "{file}");
            unreadable(file, false);
            groups.write(file, &text);
        }
        assert_eq!(look(&container), (None, true), "the event was not lost");
        fs::remove_file(groups.0.join("above/memory.max")).unwrap();
        assert_eq!(look(&container).0, Some(max_for(u64::MAX)));
    }
}
