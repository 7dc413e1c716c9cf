//! [`Exporter`]: what is exported, by name, and how it is read.

use crate::{
    family::{CACHE, DOMAIN, DomainSample, MAP, Metric, TENANT, TenantSample},
    tenants::Tenants,
};
use prometheus_client::{collector::Collector, encoding::DescriptorEncoder};
use std::{
    error::Error,
    fmt,
    hash::{BuildHasher, Hash},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use stillpoint::Domain;
use stillpoint_cache::Cache;

#[cfg(target_os = "linux")]
use crate::family::{PRESSURE, PressureSample};
#[cfg(target_os = "linux")]
use std::sync::Weak;
#[cfg(target_os = "linux")]
use stillpoint_lru::Pressure;

/// The name that all tenants without separate series share. No tenant can be added by it.
pub const OTHER: &str = "other";

/// Number of tenants with separate series, by default.
const MOST_TENANTS: usize = 100;

/// The name of the global domain.
const GLOBAL: &str = "global";

/// A cache or a tenant of one, with its types erased.
trait ReadCache: Send + Sync {
    fn is_deleted(&self) -> bool;
    fn statistics(&self) -> stillpoint_cache::Statistics;
}

impl<K, V, S> ReadCache for Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    fn is_deleted(&self) -> bool {
        self.is_deleted()
    }

    fn statistics(&self) -> stillpoint_cache::Statistics {
        self.statistics()
    }
}

type ReadMap = Arc<dyn Fn() -> usize + Send + Sync>;

/// Exports statistics. This is a handle: clones are the same exporter.
///
/// The exporter keeps what is added alive until it is removed (a deleted tenant until the next
/// scrape).
#[derive(Clone)]
pub struct Exporter {
    sources: Arc<Mutex<Sources>>,
}

struct Sources {
    domains: Vec<(String, Domain)>,
    maps: Vec<(String, ReadMap)>,
    #[cfg(target_os = "linux")]
    pressures: Vec<(String, Weak<Pressure>)>,
    tenants: Tenants<stillpoint_lru::Tenant>,
    caches: Vec<(String, Arc<dyn ReadCache>)>,
}

/// The error if something of the same kind is exported under that name already. Choose another name,
/// or remove what has it.
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
    /// Creates an exporter that has the global domain, as `global`, and separate series for up to 100
    /// tenants.
    #[must_use]
    pub fn new() -> Self {
        let sources = Sources {
            domains: vec![(GLOBAL.to_owned(), stillpoint::global().clone())],
            maps: Vec::new(),
            #[cfg(target_os = "linux")]
            pressures: Vec::new(),
            tenants: Tenants::new(MOST_TENANTS),
            caches: Vec::new(),
        };
        Self {
            sources: Arc::new(Mutex::new(sources)),
        }
    }

    /// Like [`Exporter::new`], with separate series for up to `most` tenants, eleven for each.
    #[must_use]
    pub fn with_tenants(most: usize) -> Self {
        let exporter = Self::new();
        exporter.lock().tenants = Tenants::new(most);
        exporter
    }

    /// Adds a domain, for example under its name ([`Domain::name`]). A domain for sections across
    /// `await` is one, too:
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
        self.add(name, domain.clone(), |sources| &mut sources.domains)
    }

    /// Removes the domain of that name. Returns whether there was one.
    pub fn remove_domain(&self, name: &str) -> bool {
        let removed = remove(&mut self.lock().domains, name);
        // Dropped outside of the lock: the end of a domain waits for its service thread.
        removed.is_some()
    }

    /// Adds a map, by a function that returns its number of entries: the `len` of any of Stillpoint's
    /// maps and sets. The figures of the map's domain count what the map has retired.
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
        let entries: ReadMap = Arc::new(entries);
        self.add(name, entries, |sources| &mut sources.maps)
    }

    /// Removes the map of that name. Returns whether there was one. A scrape that has begun may still
    /// call its function.
    pub fn remove_map(&self, name: &str) -> bool {
        let removed = remove(&mut self.lock().maps, name);
        // Dropped outside of the lock: the function may own the map, whose values may call us.
        removed.is_some()
    }

    /// Adds a watch of memory pressure. The exporter does not keep it: it is exported until its last
    /// owner drops it.
    ///
    /// # Errors
    ///
    /// If another watch has the name.
    #[cfg(target_os = "linux")]
    pub fn add_pressure(&self, name: &str, pressure: &Arc<Pressure>) -> Result<(), NameTaken> {
        self.add(name, Arc::downgrade(pressure), |sources| {
            let known = &mut sources.pressures;
            known.retain(|(_, watch)| watch.strong_count() > 0);
            known
        })
    }

    /// Removes the watch of that name. Returns whether there was one.
    #[cfg(target_os = "linux")]
    pub fn remove_pressure(&self, name: &str) -> bool {
        remove(&mut self.lock().pressures, name).is_some()
    }

    /// Adds a tenant, until it is deleted: with separate series if there is room
    /// ([`Exporter::with_tenants`]), otherwise to the sum of the others ([`OTHER`]). Its figures
    /// include those of its descendants, so do not add both a tenant and its parent, or the sum counts
    /// them twice.
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
    /// If another tenant has the name, or the name is [`OTHER`].
    pub fn add_tenant(&self, name: &str, tenant: &stillpoint_lru::Tenant) -> Result<(), NameTaken> {
        let mut sources = self.lock();
        if name == OTHER || sources.tenants.has(name) {
            return Err(NameTaken(name.to_owned()));
        }
        sources.tenants.add(name.to_owned(), tenant.clone());
        Ok(())
    }

    /// Removes the tenant of that name. Returns whether there was one.
    pub fn remove_tenant(&self, name: &str) -> bool {
        self.lock().tenants.remove(name)
    }

    /// Adds a cache, or a tenant of one until it is deleted.
    ///
    /// ```
    /// # use stillpoint_cache::Cache;
    /// # use stillpoint_metrics::Exporter;
    /// let sessions = Cache::<u64, String>::with_bytes(1 << 20);
    /// let exporter = Exporter::new();
    /// exporter.add_cache("sessions", &sessions)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If another cache has the name.
    pub fn add_cache<K, V, S>(&self, name: &str, cache: &Cache<K, V, S>) -> Result<(), NameTaken>
    where
        K: Hash + Eq + Send + Sync + 'static,
        V: Send + Sync + 'static,
        S: BuildHasher + Send + Sync + 'static,
    {
        drop(self.take_deleted());
        let cache: Arc<dyn ReadCache> = Arc::new(cache.clone());
        self.add(name, cache, |sources| &mut sources.caches)
    }

    /// Removes the cache of that name. Returns whether there was one.
    pub fn remove_cache(&self, name: &str) -> bool {
        let removed = remove(&mut self.lock().caches, name);
        // Dropped outside of the lock: the last handle of a cache drops entries, which may call us.
        removed.is_some()
    }

    /// Returns all metrics.
    ///
    /// ```
    /// for metric in stillpoint_metrics::Exporter::metrics() {
    ///     println!("{}: {}", metric.name, metric.help);
    /// }
    /// ```
    #[must_use]
    pub fn metrics() -> Vec<Metric> {
        let mut all: Vec<_> = DOMAIN.metrics().chain(MAP.metrics()).collect();
        #[cfg(target_os = "linux")]
        all.extend(PRESSURE.metrics());
        all.extend(TENANT.metrics().chain(CACHE.metrics()));
        all
    }

    fn lock(&self) -> MutexGuard<'_, Sources> {
        // No panic leaves the sources half changed.
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds `thing` under `name`. If the name is taken, `thing` is dropped after the lock is released,
    /// because its destructor may call the exporter.
    fn add<T>(
        &self,
        name: &str,
        thing: T,
        list: impl FnOnce(&mut Sources) -> &mut Vec<(String, T)>,
    ) -> Result<(), NameTaken> {
        let mut sources = self.lock();
        let list = list(&mut sources);
        if list.iter().any(|(other, _)| other == name) {
            return Err(NameTaken(name.to_owned()));
        }
        list.push((name.to_owned(), thing));
        Ok(())
    }

    /// Removes deleted tenants of caches, and returns them, to be dropped without the lock.
    fn take_deleted(&self) -> Vec<(String, Arc<dyn ReadCache>)> {
        let caches = &mut self.lock().caches;
        caches
            .extract_if(.., |(_, cache)| cache.is_deleted())
            .collect()
    }

    /// Reads everything.
    fn samples(&self) -> Samples {
        drop(self.take_deleted());
        // Dropped after the lock: we may be the last owner of a watch by then, and its drop waits for
        // its thread, which may call us.
        #[cfg(target_os = "linux")]
        let mut watches: Vec<(String, Arc<Pressure>)> = Vec::new();
        let mut sources = self.lock();
        #[cfg(target_os = "linux")]
        {
            sources
                .pressures
                .retain(|(_, watch)| watch.strong_count() > 0);
            let known = sources.pressures.iter();
            watches
                .extend(known.filter_map(|(name, watch)| Some((name.clone(), watch.upgrade()?))));
        }
        let (mut tenants, other) = sources.tenants.samples();
        tenants.extend(other.map(|sum| (OTHER.to_owned(), sum)));
        let domains = read(&sources.domains, |domain| DomainSample {
            statistics: domain.statistics(),
            budget: domain.budget() as u64,
            stalled_for: stillpoint::internal::stalled_for(domain),
        });
        // Called and dropped after the lock: they may call us.
        let (maps, caches) = (sources.maps.clone(), sources.caches.clone());
        drop(sources);
        Samples {
            domains,
            maps: read(&maps, |entries| entries()),
            #[cfg(target_os = "linux")]
            pressures: read(&watches, |watch| PressureSample::from(&**watch)),
            tenants,
            caches: caches.iter().filter_map(own_statistics).collect(),
        }
    }
}

impl Collector for Exporter {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let samples = self.samples();
        DOMAIN.encode(&mut encoder, &samples.domains)?;
        MAP.encode(&mut encoder, &samples.maps)?;
        #[cfg(target_os = "linux")]
        PRESSURE.encode(&mut encoder, &samples.pressures)?;
        TENANT.encode(&mut encoder, &samples.tenants)?;
        CACHE.encode(&mut encoder, &samples.caches)
    }
}

/// The samples of each kind of thing, with names.
struct Samples {
    domains: Vec<(String, DomainSample)>,
    maps: Vec<(String, usize)>,
    #[cfg(target_os = "linux")]
    pressures: Vec<(String, PressureSample)>,
    tenants: Vec<(String, TenantSample)>,
    caches: Vec<(String, stillpoint_cache::Statistics)>,
}

/// Returns a cache's statistics; `None` for a tenant deleted meanwhile, because they may be its parent's.
fn own_statistics(
    (name, cache): &(String, Arc<dyn ReadCache>),
) -> Option<(String, stillpoint_cache::Statistics)> {
    let statistics = cache.statistics();
    (!cache.is_deleted()).then(|| (name.clone(), statistics))
}

fn remove<T>(from: &mut Vec<(String, T)>, name: &str) -> Option<T> {
    let at = from.iter().position(|(other, _)| other == name)?;
    Some(from.remove(at).1)
}

fn read<T, S>(from: &[(String, T)], read: impl Fn(&T) -> S) -> Vec<(String, S)> {
    let read = |(name, thing): &(String, T)| (name.clone(), read(thing));
    from.iter().map(read).collect()
}
