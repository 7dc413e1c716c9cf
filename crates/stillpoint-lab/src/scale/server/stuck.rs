//! Clients that do not read: [`CLIENTS`] of them ask [`REQUESTS`] times each for values of
//! [`VALUE`] bytes, and take nothing, while another one stores and reads. `held_mib` is the most
//! that the server's resident memory grows by; `dropped_ms` the time until it has closed the last
//! of them, absent where it does not. stillcache has a `send_timeout` of two seconds, memcached an
//! `idle_timeout` of as much.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::process::{Server, Settings};
use super::{Work, keys, load};
use crate::peers::servers::Kind;
use crate::run::Sample;

const CLIENTS: usize = 16;
const REQUESTS: usize = 10_000;

/// The bytes of a value, and how many there are.
const VALUE: usize = 200_000;
const ITEMS: u64 = 64;

/// How long they are looked at.
const TIME: Duration = Duration::from_secs(6);

/// Measures it.
pub fn measure(work: &Work, kind: Kind) -> Result<Sample> {
    let mut settings = Settings::new(work, 256);
    settings.ours = vec!["-o".into(), "send_timeout=2".into()];
    let server = Server::start(kind, &settings)?;
    let mut other = server.connect()?;
    load::fill(&mut other, 0..ITEMS, VALUE, VALUE)?;
    let small = 1 << 20..(1 << 20) + 1000;
    load::fill(&mut other, small.clone(), 100, 100)?;
    let before = server.resident()?;
    let mut stuck = server.connect_many(CLIENTS)?;
    let requests = work.divided(REQUESTS as u64) as usize;
    for client in &mut stuck {
        client.do_not_block()?;
        for number in 0..requests {
            let key = keys::key(number as u64 % ITEMS);
            client.get(&key);
        }
    }
    let (begun, mut most, mut dropped) = (Instant::now(), 0, None);
    while begun.elapsed() < TIME && dropped.is_none() {
        // A server that has closed the connection takes nothing more.
        stuck.retain_mut(|client| {
            client.send_some().is_ok() && !client.is_hung_up().unwrap_or(true)
        });
        if stuck.is_empty() {
            dropped = Some(begun.elapsed());
        }
        load::fill(&mut other, small.clone(), 100, 100)?;
        most = most.max(server.resident()?.saturating_sub(before));
    }
    let mut figures = vec![("held_mib", most as f64 / f64::from(1 << 20))];
    figures.extend(dropped.map(|time| ("dropped_ms", time.as_secs_f64() * 1e3)));
    Ok(Sample::of(figures))
}
