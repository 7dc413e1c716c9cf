//! A routing table that is looked up without a lock while another thread replaces it. Prints look-ups,
//! updates and unreclaimed memory twice a second.
//!
//! `cargo example routes`, for three seconds; `cargo example routes 60` for a minute.

use std::{
    collections::BTreeMap,
    env,
    process::ExitCode,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};
use stillpoint::{Rcu, Weigh, read_lock};

type Routes = BTreeMap<u32, &'static str>;

/// Weighed, so that the memory budget counts the nodes of old tables.
static ROUTES: Rcu<Routes> = Rcu::from_static(const { &Routes::new() }).weighing(Weigh::heap_bytes);
static DONE: AtomicBool = AtomicBool::new(false);
static LOOKUPS: AtomicU64 = AtomicU64::new(0);
static UPDATES: AtomicU64 = AtomicU64::new(0);

const READERS: usize = 2;

/// Returns the port for an address. Takes no lock, and writes nothing that another thread sees.
fn look_up(address: u32) -> Option<&'static str> {
    let guard = read_lock();
    let routes = ROUTES.load(&guard);
    routes.range(..=address).next_back().map(|(_, &port)| port)
}

fn read() {
    const BATCH: u64 = 1_000;
    while !DONE.load(Ordering::Relaxed) {
        for _ in 0..BATCH {
            assert!(look_up(0x0a00_0001).is_some(), "there is always a route");
        }
        LOOKUPS.fetch_add(BATCH, Ordering::Relaxed);
    }
}

/// Read, copy, update: look-ups go on meanwhile, and the old table is freed once the last one has
/// left it.
fn update(number: u32) {
    let network = number % (1 << 24);
    ROUTES.modify(|routes| {
        routes.insert(network << 8, ["eth1", "eth2"][number as usize % 2]);
        if routes.len() > 64 {
            routes.retain(|&start, _| start == 0 || start > network.saturating_sub(32) << 8);
        }
    });
    UPDATES.fetch_add(1, Ordering::Relaxed);
}

fn report(start: Instant) {
    let seconds = start.elapsed().as_secs_f64();
    let per_second = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64 / seconds;
    let statistics = stillpoint::global().statistics();
    println!(
        "{seconds:5.1} s  {:8.2} M look-ups/s  {:8.0} updates/s  {:9} tables freed  {:4.1} MiB of a budget of {} wait",
        per_second(&LOOKUPS) / 1e6,
        per_second(&UPDATES),
        statistics.objects_freed,
        statistics.bytes_pending as f64 / f64::from(1 << 20),
        stillpoint::global().budget() >> 20,
    );
}

fn main() -> ExitCode {
    let seconds = match env::args().nth(1).map(|text| text.parse::<u64>()) {
        None => 3,
        Some(Ok(seconds)) if seconds > 0 => seconds,
        Some(_) => {
            eprintln!("routes: say how many seconds, as in `cargo example routes 10`");
            return ExitCode::from(2);
        }
    };
    ROUTES.store(Routes::from([(0, "eth0")]));
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(read);
        }
        let goes_on = |_: &u32| !DONE.load(Ordering::Relaxed);
        scope.spawn(move || (0..).take_while(goes_on).for_each(update));
        for _ in 0..2 * seconds {
            thread::sleep(Duration::from_millis(500));
            report(start);
        }
        DONE.store(true, Ordering::Relaxed);
    });
    stillpoint::kvfree_barrier();
    let statistics = stillpoint::global().statistics();
    let updates = UPDATES.load(Ordering::Relaxed);
    println!(
        "{updates} updates, as many tables freed, in {} grace periods; no reader ever waited",
        statistics.grace_periods
    );
    let counts = (statistics.objects_pending, statistics.objects_freed);
    assert_eq!(counts, (0, updates));
    ExitCode::SUCCESS
}
