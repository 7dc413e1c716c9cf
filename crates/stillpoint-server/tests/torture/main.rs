//! The whole program tortured: random commands of many clients against what each of them knows of its keys, while clients are killed in the middle of a command,
//! descriptors and buffers run out, the clock jumps, limits change, tenants come and go, and files are read again.
//!
//! | variable | |
//! |---|---|
//! | `STILLCACHE_TORTURE_SECONDS` | how long; 4 |
//! | `STILLCACHE_TORTURE_SEED` | what is random follows from it, but for the order in which threads run |
//! | `STILLCACHE_TORTURE_EVICT` | `yes` or `no`: whether the server evicts, or refuses (`-M`); by the seed, three times of four |
//! | `STILLCACHE_TORTURE_RSS` | a file for the memory that the program has each second. It fails if that at its lowest is 5 % more in the last quarter than in the second |
//!
//! `scripts/soak --server` runs it for hours.
//!
//! Detects values not replaced, CAS values not compared, another key's value, deletes or flushes
//! without effect, items that do not expire, segments freed before readers have left, and memory
//! that grows.

mod chaos;
mod churn;
mod client;
mod command;
mod connection;
mod key;
mod program;
mod world;

use program::Program;
use std::{
    fs,
    sync::{Arc, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};
use world::{Random, World};

fn variable(name: &str) -> Option<String> {
    std::env::var(format!("STILLCACHE_TORTURE_{name}")).ok()
}

fn number(name: &str, default: u64) -> u64 {
    let Some(text) = variable(name) else {
        return default;
    };
    text.parse()
        .unwrap_or_else(|_| panic!("STILLCACHE_TORTURE_{name}: '{text}' is no number"))
}

/// What no more than one in twenty is below.
fn floor(samples: &[u64]) -> u64 {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    sorted[sorted.len() / 20]
}

/// Whether a program's memory at its lowest is the same in its last quarter as in its second. What is
/// lost raises that; how much there is above it varies with the limits that clients set, and with what
/// else the machine does.
fn check_memory(samples: &[u64]) {
    let quarter = samples.len() / 4;
    assert!(quarter >= 5, "too short to say anything of memory");
    let (second, last) = (
        floor(&samples[quarter..2 * quarter]),
        floor(&samples[3 * quarter..]),
    );
    println!("torture: {second} bytes at the lowest in the second quarter, {last} in the last");
    assert!(
        last * 100 <= second * 105,
        "memory grows: {second} bytes at the lowest in the second quarter, {last} in the last"
    );
}

#[test]
fn memory_that_grows_is_seen() {
    let flat: Vec<u64> = (0..40)
        .map(|second| 1000 + second % 7 * (second / 10))
        .collect();
    check_memory(&flat);
    let grows: Vec<u64> = (0..40).map(|second| 1000 + 4 * second).collect();
    assert!(std::panic::catch_unwind(|| check_memory(&grows)).is_err());
}

/// Checks that a program that evicts did so most of the time where there was no room, and that one that does not refused.
fn check_evictions(evicts: bool, commands: u64, (evicted, refused): (u64, u64)) {
    let (wanted, other) = if evicts {
        (evicted, refused)
    } else {
        (refused, evicted)
    };
    assert!(
        wanted * 1000 > commands && wanted > other * 10,
        "{evicted} evictions and {refused} stores refused by {commands} commands: that does not check eviction"
    );
}

#[test]
fn a_run_that_hardly_evicts_is_seen() {
    check_evictions(true, 10_000, (101, 10));
    check_evictions(false, 10_000, (0, 11));
    for (evicts, counts) in [(true, (10, 0)), (true, (1000, 100)), (false, (1000, 100))] {
        let check = || check_evictions(evicts, 10_000, counts);
        assert!(std::panic::catch_unwind(check).is_err());
    }
}

/// By this number of commands the keys are stored that later commands hit, and the store has been full
/// for half of them.
const ENOUGH: u64 = 40_000;

/// Says how to repeat a run when it fails.
struct Repeat(u64, u64, Option<String>);

impl Drop for Repeat {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!(
                "torture: FAILURE: to repeat it: STILLCACHE_TORTURE_SEED={} STILLCACHE_TORTURE_SECONDS={} {}cargo test -p stillpoint-server --locked --test torture",
                self.0,
                self.1,
                self.2.as_ref().map_or(String::new(), |evicts| format!(
                    "STILLCACHE_TORTURE_EVICT={evicts} "
                ))
            );
        }
    }
}

#[test]
fn clients_find_what_they_stored_or_nothing() {
    let seconds = number("SECONDS", 4);
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    let seed = number("SEED", now.subsec_nanos().into());
    println!("torture: seed {seed}, {seconds} s");
    let _repeat = Repeat(seed, seconds, variable("EVICT"));
    let mut random = Random::new(seed);
    let evicts = variable("EVICT").map(|text| match &*text {
        "yes" => true,
        "no" => false,
        _ => panic!("STILLCACHE_TORTURE_EVICT: '{text}' is neither yes nor no"),
    });
    let program = Program::start(&mut random, evicts);
    let world = Arc::new(World::new(&program));
    let mut samples = Vec::new();
    let (hits, churned) = thread::scope(|scope| {
        let _stop = world.stop_at_end();
        let clients: Vec<_> = client::all(&world, &mut random)
            .into_iter()
            .map(|mut client| scope.spawn(move || client.run()))
            .collect();
        let churn = churn::ROLES.map(|role| {
            let (world, random) = (&world, random.fork());
            scope.spawn(move || churn::run(role, world, random))
        });
        let mut chaos = chaos::Chaos::new(Arc::clone(&world), &program, random.fork());
        let chaos = scope.spawn(move || chaos.run());
        // Longer on a busy machine, so that there is something to check.
        let start = Instant::now();
        let is_over = || {
            let most = if world.commands.load(Ordering::Relaxed) < ENOUGH {
                20
            } else {
                1
            };
            start.elapsed() >= Duration::from_secs(most * seconds)
        };
        while !is_over() && !world.is_stopping() {
            thread::sleep(Duration::from_millis(1000.min(seconds * 250)));
            samples.push(program.resident());
        }
        world.stop();
        chaos.join().unwrap();
        let mut churned = churn::Counts::default();
        for client in churn {
            churned += client.join().unwrap();
        }
        let hits = clients.into_iter().map(|client| client.join().unwrap());
        (hits.sum::<u64>(), churned)
    });
    if let Some(path) = variable("RSS") {
        let lines: Vec<_> = samples.iter().map(u64::to_string).collect();
        fs::write(path, lines.join("\n") + "\n").unwrap();
        check_memory(&samples);
    }
    let commands = world.commands.load(Ordering::Relaxed);
    println!("torture: {commands} commands, {hits} hits; {churned:?}");
    assert!(
        hits * 20 > commands,
        "{hits} hits of {commands} commands: that checks nothing"
    );
    churn::check(churned);
    // Each by itself: the small tenant is always full.
    let (rest, of_churn) = chaos::check_rest(&world);
    check_evictions(program.evicts, commands, rest);
    check_evictions(program.evicts, churned.stores, of_churn);
    program.end();
}
