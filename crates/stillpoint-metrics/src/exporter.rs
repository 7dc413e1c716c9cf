//! What is exported, and how it is read.

use crate::{
    family::{DOMAIN, DomainSample, Family, Group, MAP, Metric, Visitor},
    text::Longest,
};
use std::{
    convert::Infallible,
    error::Error,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use stillpoint::Domain;

#[cfg(all(feature = "lru", target_os = "linux"))]
use crate::family::{PRESSURE, PressureSample};
#[cfg(all(feature = "lru", target_os = "linux"))]
use std::sync::Weak;
#[cfg(all(feature = "lru", target_os = "linux"))]
use stillpoint_lru::Pressure;

#[cfg(feature = "lru")]
use crate::{
    family::{TENANT, TenantSample},
    tenants::Tenants,
};

/// The name that all tenants share that have no series of their own. No tenant can be added by it.
pub const OTHER: &str = "other";

/// How many tenants have series of their own, unless the program says otherwise.
#[cfg(feature = "lru")]
const MOST_TENANTS: usize = 100;

/// The name of the global domain.
const GLOBAL: &str = "global";

#[cfg(feature = "cache")]
type ReadCache = Box<dyn Fn() -> stillpoint_cache::Statistics + Send + Sync>;

type ReadMap = Box<dyn Fn() -> usize + Send + Sync>;

/// Exports statistics. A handle: clones are the same exporter.
///
/// What is added is kept alive until it is removed (a deleted tenant: until the next scrape).
#[derive(Clone)]
pub struct Exporter {
    sources: Arc<Mutex<Sources>>,
    longest_text: Arc<Longest>,
}

struct Sources {
    domains: Vec<(String, Domain)>,
    maps: Vec<(String, ReadMap)>,
    #[cfg(all(feature = "lru", target_os = "linux"))]
    pressures: Vec<(String, Weak<Pressure>)>,
    #[cfg(feature = "lru")]
    tenants: Tenants<stillpoint_lru::Tenant>,
    #[cfg(feature = "vmap")]
    arenas: Vec<(String, stillpoint_vmap::Arena)>,
    #[cfg(feature = "cache")]
    caches: Vec<(String, ReadCache)>,
}

/// Something of the same kind is exported under that name already. Choose another one, or remove
/// that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameTaken(String);

impl fmt::Display for NameTaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the name {:?} is taken: choose another one, or remove what has it",
            self.0
        )
    }
}

impl Error for NameTaken {}

impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exporter").finish_non_exhaustive()
    }
}

impl Default for Exporter {
    fn default() -> Self {
        Self::new()
    }
}

impl Exporter {
    /// Exports the global domain, as `global`, and whatever will be added. 100 tenants have series
    /// of their own.
    #[must_use]
    pub fn new() -> Self {
        let sources = Sources {
            domains: vec![(GLOBAL.to_owned(), stillpoint::global().clone())],
            maps: Vec::new(),
            #[cfg(all(feature = "lru", target_os = "linux"))]
            pressures: Vec::new(),
            #[cfg(feature = "lru")]
            tenants: Tenants::new(MOST_TENANTS),
            #[cfg(feature = "vmap")]
            arenas: Vec::new(),
            #[cfg(feature = "cache")]
            caches: Vec::new(),
        };
        Self {
            sources: Arc::new(Mutex::new(sources)),
            longest_text: Arc::default(),
        }
    }

    /// Like [`Exporter::new`]: so many tenants have series of their own. Each has eleven.
    #[cfg(feature = "lru")]
    #[must_use]
    pub fn with_tenants(most: usize) -> Self {
        let exporter = Self::new();
        exporter.lock().tenants = Tenants::new(most);
        exporter
    }

    /// Adds a domain. Its own name ([`Domain::name`]) is a good one. For sections across `await`:
    ///
    /// ```
    /// # use stillpoint::tasks_trace::TraceDomain;
    /// # use stillpoint_metrics::Exporter;
    /// let sessions = TraceDomain::new();
    /// let exporter = Exporter::new();
    /// exporter.add_domain("sessions", &sessions)?;
    /// # Ok::<(), stillpoint_metrics::NameTaken>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If another domain has the name.
    pub fn add_domain(&self, name: &str, domain: &Domain) -> Result<(), NameTaken> {
        add(&mut self.lock().domains, name, || domain.clone())
    }

    /// Exports the domain of that name no more. Returns whether there was one.
    pub fn remove_domain(&self, name: &str) -> bool {
        let removed = remove(&mut self.lock().domains, name);
        // Outside of the lock: the end of a domain waits for its service thread.
        removed.is_some()
    }

    /// Adds a map, by a function that says how many entries it has: the `len` of any of Stillpoint's
    /// maps and sets. It must not use the exporter. What the map has retired is in the figures of its
    /// domain.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use stillpoint_metrics::Exporter;
    /// # type HashMap<K, V> = std::collections::HashMap<K, V>;
    /// let routes = Arc::new(HashMap::<u64, String>::new());
    /// let exporter = Exporter::new();
    /// let theirs = Arc::clone(&routes);
    /// exporter.add_map("routes", move || theirs.len())?;
    /// # Ok::<(), stillpoint_metrics::NameTaken>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If another map has the name.
    pub fn add_map(
        &self,
        name: &str,
        entries: impl Fn() -> usize + Send + Sync + 'static,
    ) -> Result<(), NameTaken> {
        add(&mut self.lock().maps, name, || Box::new(entries))
    }

    /// Exports the map of that name no more. Returns whether there was one.
    pub fn remove_map(&self, name: &str) -> bool {
        let removed = remove(&mut self.lock().maps, name);
        // Outside of the lock: it may own the map, whose values may call us.
        removed.is_some()
    }

    /// Adds a watch of memory pressure, which is exported until its last owner drops it: the exporter
    /// is none.
    ///
    /// # Errors
    ///
    /// If another one has the name.
    #[cfg(all(feature = "lru", target_os = "linux"))]
    pub fn add_pressure(&self, name: &str, pressure: &Arc<Pressure>) -> Result<(), NameTaken> {
        let mut sources = self.lock();
        sources
            .pressures
            .retain(|(_, watch)| watch.strong_count() > 0);
        add(&mut sources.pressures, name, || Arc::downgrade(pressure))
    }

    /// Exports the watch of that name no more. Returns whether there was one.
    #[cfg(all(feature = "lru", target_os = "linux"))]
    pub fn remove_pressure(&self, name: &str) -> bool {
        remove(&mut self.lock().pressures, name).is_some()
    }

    /// Adds a tenant, if there are fewer than a hundred or so under its own name ([`OTHER`]), until
    /// it is deleted. Its figures have those of all tenants below it, so do not add both a tenant
    /// and its parent, or the sum of the others counts them twice.
    ///
    /// ```
    /// # use stillpoint_lru::Hierarchy;
    /// # use stillpoint_metrics::Exporter;
    /// let hierarchy = Hierarchy::new();
    /// let alice = hierarchy.root().create()?;
    /// let exporter = Exporter::new();
    /// exporter.add_tenant("alice", &alice)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If another tenant has the name, or it is [`OTHER`].
    #[cfg(feature = "lru")]
    pub fn add_tenant(&self, name: &str, tenant: &stillpoint_lru::Tenant) -> Result<(), NameTaken> {
        let mut sources = self.lock();
        if name == OTHER || sources.tenants.has(name) {
            return Err(NameTaken(name.to_owned()));
        }
        sources.tenants.add(name.to_owned(), tenant.clone());
        Ok(())
    }

    /// Exports the tenant of that name no more. Returns whether there was one.
    #[cfg(feature = "lru")]
    pub fn remove_tenant(&self, name: &str) -> bool {
        self.lock().tenants.remove(name)
    }

    /// Adds an arena.
    ///
    /// # Errors
    ///
    /// If another arena has the name.
    #[cfg(feature = "vmap")]
    pub fn add_arena(&self, name: &str, arena: &stillpoint_vmap::Arena) -> Result<(), NameTaken> {
        add(&mut self.lock().arenas, name, || arena.clone())
    }

    /// Exports the arena of that name no more. Returns whether there was one.
    #[cfg(feature = "vmap")]
    pub fn remove_arena(&self, name: &str) -> bool {
        let removed = remove(&mut self.lock().arenas, name);
        // Outside of the lock.
        removed.is_some()
    }

    /// Adds a cache, or a tenant of one.
    ///
    /// ```
    /// # use stillpoint_cache::Cache;
    /// # use stillpoint_metrics::Exporter;
    /// let sessions = Cache::<u64, String>::new(1 << 20);
    /// let exporter = Exporter::new();
    /// exporter.add_cache("sessions", &sessions)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If another cache has the name.
    #[cfg(feature = "cache")]
    pub fn add_cache<K, V, S>(
        &self,
        name: &str,
        cache: &stillpoint_cache::Cache<K, V, S>,
    ) -> Result<(), NameTaken>
    where
        K: std::hash::Hash + Eq + Send + Sync + 'static,
        V: Send + Sync + 'static,
        S: std::hash::BuildHasher + Send + Sync + 'static,
    {
        add(&mut self.lock().caches, name, || {
            let cache = cache.clone();
            Box::new(move || cache.statistics())
        })
    }

    /// Exports the cache of that name no more. Returns whether there was one.
    #[cfg(feature = "cache")]
    pub fn remove_cache(&self, name: &str) -> bool {
        let removed = remove(&mut self.lock().caches, name);
        // Outside of the lock: it may be the last handle, and then drops entries, which may call us.
        removed.is_some()
    }

    /// Returns all metrics that there are with the features that are on.
    ///
    /// ```
    /// for metric in stillpoint_metrics::Exporter::metrics() {
    ///     println!("{}: {}", metric.name, metric.help);
    /// }
    /// ```
    #[must_use]
    pub fn metrics() -> Vec<Metric> {
        let mut list = List(Vec::new());
        let Ok(()) = Samples::default().visit(&mut list);
        list.0
    }

    pub(crate) fn longest_text(&self) -> &Longest {
        &self.longest_text
    }

    fn lock(&self) -> MutexGuard<'_, Sources> {
        // Nothing that panics leaves it half changed.
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads everything.
    pub(crate) fn samples(&self) -> Samples {
        // Dropped after the lock: the last owner of a watch, which may be us by then, waits for its
        // thread, and that may call us.
        #[cfg(all(feature = "lru", target_os = "linux"))]
        let mut watches: Vec<(String, Arc<Pressure>)> = Vec::new();
        #[cfg_attr(not(feature = "lru"), expect(unused_mut))]
        let mut sources = self.lock();
        let mut samples = Samples::default();
        samples.domains.samples = read(&sources.domains, |domain| DomainSample {
            statistics: domain.statistics(),
            budget: domain.budget() as u64,
            stalled_for: stillpoint::internal::stalled_for(domain),
        });
        samples.maps.samples = read(&sources.maps, |entries| entries());
        #[cfg(all(feature = "lru", target_os = "linux"))]
        {
            sources
                .pressures
                .retain(|(_, watch)| watch.strong_count() > 0);
            let known = sources.pressures.iter();
            watches
                .extend(known.filter_map(|(name, watch)| Some((name.clone(), watch.upgrade()?))));
            samples.pressures.samples = read(&watches, |watch| PressureSample::from(&**watch));
        }
        #[cfg(feature = "lru")]
        {
            let (own, other) = sources.tenants.samples();
            samples.tenants.samples = own;
            let other = other.map(|sum| (OTHER.to_owned(), sum));
            samples.tenants.samples.extend(other);
        }
        #[cfg(feature = "vmap")]
        {
            samples.arenas.samples = read(&sources.arenas, stillpoint_vmap::Arena::statistics);
        }
        #[cfg(feature = "cache")]
        {
            samples.caches.samples = read(&sources.caches, |read| read());
        }
        samples
    }
}

fn add<T>(
    to: &mut Vec<(String, T)>,
    name: &str,
    make: impl FnOnce() -> T,
) -> Result<(), NameTaken> {
    if to.iter().any(|(other, _)| other == name) {
        return Err(NameTaken(name.to_owned()));
    }
    to.push((name.to_owned(), make()));
    Ok(())
}

fn remove<T>(from: &mut Vec<(String, T)>, name: &str) -> Option<T> {
    let at = from.iter().position(|(other, _)| other == name)?;
    Some(from.remove(at).1)
}

fn read<T, S>(from: &[(String, T)], read: impl Fn(&T) -> S) -> Vec<(String, S)> {
    let read = |(name, thing): &(String, T)| (name.clone(), read(thing));
    from.iter().map(read).collect()
}

/// Everything, at one moment.
pub(crate) struct Samples {
    domains: Group<DomainSample>,
    maps: Group<usize>,
    #[cfg(all(feature = "lru", target_os = "linux"))]
    pressures: Group<PressureSample>,
    #[cfg(feature = "lru")]
    tenants: Group<TenantSample>,
    #[cfg(feature = "vmap")]
    arenas: Group<stillpoint_vmap::ArenaStatistics>,
    #[cfg(feature = "cache")]
    caches: Group<stillpoint_cache::Statistics>,
}

const fn group<S>(label: &'static str, families: &'static [Family<S>]) -> Group<S> {
    Group {
        label,
        families,
        samples: Vec::new(),
    }
}

impl Default for Samples {
    fn default() -> Self {
        Self {
            domains: group("domain", DOMAIN),
            maps: group("map", MAP),
            #[cfg(all(feature = "lru", target_os = "linux"))]
            pressures: group("pressure", PRESSURE),
            #[cfg(feature = "lru")]
            tenants: group("tenant", TENANT),
            #[cfg(feature = "vmap")]
            arenas: group("arena", crate::family::ARENA),
            #[cfg(feature = "cache")]
            caches: group("cache", crate::family::CACHE),
        }
    }
}

impl Samples {
    /// Each kind of thing in turn.
    pub(crate) fn visit<V: Visitor>(&self, visitor: &mut V) -> Result<(), V::Error> {
        visitor.group(&self.domains)?;
        visitor.group(&self.maps)?;
        #[cfg(all(feature = "lru", target_os = "linux"))]
        visitor.group(&self.pressures)?;
        #[cfg(feature = "lru")]
        visitor.group(&self.tenants)?;
        #[cfg(feature = "vmap")]
        visitor.group(&self.arenas)?;
        #[cfg(feature = "cache")]
        visitor.group(&self.caches)?;
        Ok(())
    }
}

struct List(Vec<Metric>);

impl Visitor for List {
    type Error = Infallible;

    fn group<S>(&mut self, group: &Group<S>) -> Result<(), Infallible> {
        let metrics = group.families.iter();
        self.0
            .extend(metrics.map(|family| family.metric(group.label)));
        Ok(())
    }
}
