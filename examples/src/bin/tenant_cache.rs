//! A service's cache with a tenant for each customer: a model to copy.
//!
//! Customers share one memory. No customer can take another's min; memory beyond the minima goes to
//! the customer whose requests it serves. A page that several threads miss at once is rendered
//! once. When memory is short, all customers shrink to their minima.
//!
//! `cargo example tenant_cache`

use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};
use stillpoint_cache::{Cache, InsertError};
use stillpoint_lru::Hierarchy;

/// Customer and number of a page. The customer is part of the key because all share one key space.
type Key = (u32, u64);
type Pages = Cache<Key, Box<[u8]>>;

const MIB: u64 = 1 << 20;
const ALL: u64 = 16 * MIB;

/// Renders a page of 4 KiB.
fn render((customer, page): Key) -> Box<[u8]> {
    RENDERED.fetch_add(1, Ordering::Relaxed);
    vec![(u64::from(customer) ^ page) as u8; 4096].into()
}

static RENDERED: AtomicU64 = AtomicU64::new(0);

struct Customer {
    number: u32,
    /// A view of the cache. Kept, because looking one up takes a lock.
    pages: Pages,
}

impl Customer {
    fn new(all: &Pages, number: u32, min: u64) -> Self {
        let pages = all.tenant(&format!("customer {number}"));
        pages.set_min(min);
        pages.set_max(12 * MIB);
        Self { number, pages }
    }

    fn page(&self, page: u64) -> Box<[u8]> {
        let key = (self.number, page);
        self.pages.get_with(&key, || render(key))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let all = Pages::builder().name("pages").max_bytes(ALL).build();
    let [small, busy, scans] =
        [(1, 2 * MIB), (2, 0), (3, 0)].map(|(number, min)| Customer::new(&all, number, min));

    // When memory is short, a `PressureWatch` of the hierarchy would shrink the cache. This program
    // does so itself, below.
    let hierarchy = Hierarchy::new();
    let _registered = hierarchy.register(Arc::new(all.shrinker()))?;

    // A page that all threads request at once is rendered once.
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_eq!(small.page(0).len(), 4096));
        }
    });
    assert_eq!(RENDERED.load(Ordering::Relaxed), 1);

    // The first customer has 400 pages, within its min. The second one requests its 1,000 again and
    // again, while the third one requests a hundred thousand, each once.
    (0..400).for_each(|page| drop(small.page(page)));
    thread::scope(|scope| {
        scope.spawn(|| (0..100_000).for_each(|page| drop(scans.page(page))));
        scope.spawn(|| (0..100_000).for_each(|page| drop(busy.page(page % 1000))));
    });
    let before = small.pages.statistics();
    (0..400).for_each(|page| drop(small.page(page)));
    let after = small.pages.statistics();
    assert_eq!(
        after.misses, before.misses,
        "within its min it loses nothing"
    );
    assert!(all.weighted_bytes() <= ALL);
    for customer in [&small, &busy, &scans] {
        let statistics = customer.pages.statistics();
        println!(
            "customer {}: {} KiB, {} hits, {} misses, {} evicted",
            customer.number,
            statistics.bytes >> 10,
            statistics.hits,
            statistics.misses,
            statistics.evicted,
        );
    }

    // A refused insert names the limit's tenant.
    let huge = vec![0; 13 << 20].into();
    match busy.pages.try_insert((2, 0), huge) {
        Err(error @ InsertError::TooLarge { .. }) => println!("refused: {error}"),
        other => panic!("{other:?}"),
    }

    // Frees all that can be spared, like a watch's pass.
    let charge = hierarchy.root().charge(ALL as usize)?;
    hierarchy.root().reclaim(ALL);
    drop(charge);
    println!("after the pressure: {} KiB", all.weighted_bytes() >> 10);
    assert_eq!(small.pages.entry_count(), 400, "minima are spared");
    assert!(all.weighted_bytes() <= 2 * MIB);

    // Deleting a customer removes its pages.
    assert!(small.pages.delete());
    assert_eq!(
        all.entry_count(),
        busy.pages.entry_count() + scans.pages.entry_count()
    );
    Ok(())
}
