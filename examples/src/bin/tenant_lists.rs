//! A cache of several tenants that gives memory back when it is short: a model to copy.
//!
//! Values are charged to their tenant and are on its LRU list. A tenant over its limit loses its
//! own least recently used values, and no other tenant's. When the service manager reports that
//! memory is short (`$MEMORY_PRESSURE_WATCH`), all tenants lose some, until the cache is down to
//! half a limit.
//!
//! `cargo example tenant_lists` creates the pressure itself if there is none.

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    demo::main()
}

#[cfg(target_os = "linux")]
mod demo {
    use std::{
        collections::HashMap,
        error::Error,
        fs::{self, OpenOptions},
        io::Write,
        sync::{
            Arc, Mutex, MutexGuard,
            atomic::{AtomicBool, Ordering},
        },
        thread,
        time::{Duration, Instant},
    };
    use stillpoint_lru::{
        Charge, ChargeError, Entry, Hierarchy, Isolate, ListLru, PressureWatch, Registration,
        Scope, Shrink, Tenant,
    };

    type Key = (u32, u64);

    /// A value in the cache, with its charge: dropping the last reference gives the bytes back.
    pub struct Value {
        key: Key,
        bytes: Box<[u8]>,
        used: AtomicBool,
        _charge: Charge,
    }

    type Shard = HashMap<Key, Arc<Entry<Value>>>;

    /// The state that look-ups and shrinkers share. The map finds values; the lists decide which go
    /// first.
    struct Inner {
        shards: Vec<Mutex<Shard>>,
        lru: ListLru<Value>,
    }

    pub struct Cache {
        inner: Arc<Inner>,
        _registration: Registration,
    }

    impl Inner {
        fn shard(&self, key: &Key) -> MutexGuard<'_, Shard> {
            let number = (key.1 as usize ^ key.0 as usize) % self.shards.len();
            self.shards[number]
                .lock()
                .expect("no panics under the lock")
        }
    }

    impl Cache {
        pub fn new(hierarchy: &Hierarchy) -> Result<Self, Box<dyn Error>> {
            let shards = (0..64).map(|_| Mutex::default()).collect();
            let inner = Arc::new(Inner {
                shards,
                lru: ListLru::for_tenants(hierarchy),
            });
            let registration = hierarchy.register(Arc::clone(&inner))?;
            registration.covers(&inner.lru);
            Ok(Self {
                inner,
                _registration: registration,
            })
        }

        /// Returns the value, and marks it as used. Does not touch the list: a later walk moves the
        /// value.
        pub fn get(&self, key: &Key) -> Option<Arc<Entry<Value>>> {
            let found = self.inner.shard(key).get(key).cloned()?;
            found.used.store(true, Ordering::Relaxed);
            Some(found)
        }

        /// Charges the value before creating it, outside of locks, because the charge may have to
        /// reclaim.
        pub fn insert(&self, tenant: &Tenant, key: Key, bytes: usize) -> Result<(), ChargeError> {
            let charge = tenant.charge(bytes)?;
            let bytes = vec![key.1 as u8; bytes].into_boxed_slice();
            let value = Arc::new(Entry::new(Value {
                key,
                bytes,
                used: AtomicBool::new(false),
                _charge: charge,
            }));
            let old = {
                let mut shard = self.inner.shard(&key);
                let old = shard.insert(key, Arc::clone(&value));
                // Under the lock, so that every value in the map is on a list. Otherwise another
                // thread could replace the value before it is on one, and it would then stay there,
                // unknown to the map.
                self.inner.lru.add(tenant, value);
                if let Some(old) = &old {
                    self.inner.lru.del(old);
                }
                old
            };
            drop(old); // gives its charge back, outside of the lock
            Ok(())
        }
    }

    impl Shrink for Inner {
        fn count(&self, scope: &Scope<'_>) -> usize {
            self.lru.count_one(scope.tenant, scope.node)
        }

        fn scan(&self, scope: &Scope<'_>, objects: usize) -> Option<usize> {
            Some(
                self.lru
                    .walk_one(scope.tenant, scope.node, objects, |value| {
                        if value.used.swap(false, Ordering::Relaxed) {
                            return Isolate::Rotate;
                        }
                        let mut shard = self.shard(&value.key);
                        // Unless it has been replaced meanwhile: then the place is the new one's.
                        let found = shard.get(&value.key);
                        if found.is_some_and(|found| Arc::ptr_eq(found, value)) {
                            shard.remove(&value.key);
                        }
                        Isolate::Removed
                    }),
            )
        }
    }

    pub fn main() -> Result<(), Box<dyn Error>> {
        const LIMIT: u64 = 64 << 20;
        let hierarchy = Hierarchy::new();
        let cache = Cache::new(&hierarchy)?;
        let tenants: Vec<Tenant> = (0..4)
            .map(|_| hierarchy.root().create())
            .collect::<Result<_, _>>()?;
        for tenant in &tenants {
            tenant.set_max(LIMIT);
        }
        tenants[0].set_min(8 << 20);

        // The environment may name a file to watch. Otherwise this is a FIFO, to which the example
        // itself writes.
        let fifo = std::env::temp_dir().join(format!("tenant-cache-{}", std::process::id()));
        let watch = PressureWatch::from_env()?.unwrap_or_else(|| {
            let path = std::ffi::CString::new(fifo.to_string_lossy().as_bytes())
                .expect("no zero in a path");
            // SAFETY: a string that ends in a null byte.
            unsafe { libc::mkfifo(path.as_ptr(), 0o600) };
            PressureWatch::new(&fifo)
        });
        let trim = |_: &_| {
            // The allocator keeps freed memory until it is told to return it.
            #[cfg(target_env = "gnu")]
            // SAFETY: any thread may call it at any time.
            unsafe {
                libc::malloc_trim(0);
            }
        };
        let pressure = watch.target(LIMIT / 2).after_pass(trim).start(&hierarchy)?;

        // Tenant 0 uses little; the others use more than their limit.
        (0..700).try_for_each(|number| cache.insert(&tenants[0], (0, number), 10_000))?;
        thread::scope(|scope| {
            for (name, tenant) in (1_u32..).zip(&tenants[1..]) {
                let cache = &cache;
                scope.spawn(move || {
                    for number in 0..30_000 {
                        cache
                            .insert(tenant, (name, number), 4_000 + 16 * (number as usize % 64))
                            .expect("older values make room");
                        cache
                            .get(&(name, number / 2))
                            .inspect(|value| assert_eq!(value.bytes[0], (number / 2) as u8));
                    }
                });
            }
        });
        for (name, tenant) in tenants.iter().enumerate() {
            let statistics = tenant.statistics();
            println!(
                "tenant {name}: {} MiB, {} values evicted",
                statistics.usage >> 20,
                statistics.objects_reclaimed
            );
            assert!(tenant.usage() <= LIMIT);
        }
        let reclaimed = tenants[0].statistics().objects_reclaimed;
        assert_eq!(reclaimed, 0, "others' floods do not touch it");

        if let Ok(mut fifo) = OpenOptions::new().write(true).open(&fifo) {
            let begun = Instant::now();
            fifo.write_all(b"x")?;
            while pressure.events() == 0 {
                assert!(
                    begun.elapsed() < Duration::from_secs(60),
                    "a pass must come"
                );
                thread::sleep(Duration::from_micros(100));
            }
            let (evicted, charged) = (pressure.objects(), hierarchy.root().usage());
            println!(
                "pressure: {evicted} values evicted, charged {} MiB",
                charged >> 20
            );
            assert!(charged <= LIMIT / 2);
            let reclaimed = tenants[0].statistics().objects_reclaimed;
            assert_eq!(reclaimed, 0, "it is below its min");
        }
        let _ = fs::remove_file(&fifo);
        Ok(())
    }
}
