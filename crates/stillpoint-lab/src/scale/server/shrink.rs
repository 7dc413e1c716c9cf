//! The limit of a full server halves under load: an open loop of nine `get` and one `set`, over as
//! many items as fit twice. `p999_us` is the latency while that happens, `p999_ratio` divides it by
//! that of the same load before. `rss_ms` is the time until the resident memory is down by
//! [`PART`]; absent where that has not happened by the end. `rss_ratio` is what is resident a second
//! after the limit fell, divided by what was before.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::client::Connection;
use super::open::{self, Schedule};
use super::process::{Server, Settings};
use super::{Work, keys, load};
use crate::peers::servers::Kind;
use crate::run::Sample;

/// The limit before, in MiB.
const MIB: u64 = 256;

/// The bytes of a value.
const SHORTEST: usize = 64;
const LONGEST: usize = 2_000;

/// Items that fit into the limit twice.
const ITEMS: u64 = 2 * (MIB << 20) / ((SHORTEST + LONGEST) as u64 / 2);

const CLIENTS: usize = 16;

/// How long the load takes, before and after.
const TIME: Duration = Duration::from_millis(2500);

/// What is to come back of the resident memory.
const PART: f64 = 0.45;

/// Between two looks at the resident memory.
const LOOK: Duration = Duration::from_millis(5);

/// Measures it.
pub fn measure(work: &Work, kind: Kind) -> Result<Sample> {
    let mib = work.divided(MIB).max(16);
    let server = Server::start(kind, &Settings::new(work, mib))?;
    let mut connections = server.connect_many(CLIENTS)?;
    let items = ITEMS * mib / MIB;
    load::fill(&mut connections[0], 0..items, SHORTEST, LONGEST)?;
    let mut random = fastrand::Rng::with_seed(1);
    let value = keys::bytes(LONGEST);
    let mut push = |connection: &mut Connection| {
        let number = random.u64(..items);
        let key = keys::key(number);
        match random.u8(..10) {
            0 => connection.set(&key, &value[..keys::length(number, SHORTEST, LONGEST)]),
            _ => connection.get(&key),
        }
    };
    let time = TIME / work.divide.min(10);
    let mut schedule = Schedule::new(open::RATE, time);
    let usual = open::run(&mut connections, &mut schedule, &mut push, |_| Ok(()))?;

    let mut admin = server.connect()?;
    let before = server.resident()?;
    let wanted = before - (before as f64 * PART) as u64;
    halve(&mut admin, mib / 2)?;
    let (mut down, mut after_a_second, mut looked) = (None, None, Instant::now());
    let mut schedule = Schedule::new(open::RATE, time);
    let halving = open::run(&mut connections, &mut schedule, &mut push, |since| {
        if looked.elapsed() < LOOK {
            return Ok(());
        }
        looked = Instant::now();
        let now = server.resident()?;
        if now <= wanted && down.is_none() {
            down = Some(since);
        }
        if since >= Duration::from_secs(1) && after_a_second.is_none() {
            after_a_second = Some(now);
        }
        Ok(())
    })?;
    let after = match after_a_second {
        Some(bytes) => bytes,
        None => server.resident()?,
    };
    let p999 = halving.quantile_us(0.999);
    let mut figures = vec![
        ("p999_us", p999),
        ("p999_ratio", p999 / usual.quantile_us(0.999)),
        ("rss_ratio", after as f64 / before as f64),
    ];
    figures.extend(down.map(|down| ("rss_ms", down.as_secs_f64() * 1e3)));
    Ok(Sample::of(figures))
}

/// Has the limit set, and does not wait for the answer.
fn halve(admin: &mut Connection, mib: u64) -> Result<()> {
    let line = match admin.dialect {
        super::client::Dialect::Memcached => format!("cache_memlimit {mib}\r\n"),
        super::client::Dialect::Redis => format!("CONFIG SET maxmemory {mib}mb\r\n"),
    };
    admin.output.extend_from_slice(line.as_bytes());
    admin.send()
}
