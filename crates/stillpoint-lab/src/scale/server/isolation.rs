//! A tenant beside a neighbour that floods. The tenant has [`MIB`] MiB of items, all of which it
//! reads again and again; the server has four times as much, of which [`MINIMUM`] MiB are the
//! tenant's at least. The neighbour stores [`FLOOD`] times the server's limit. `hits_lost` is how
//! many of the tenant's requests missed, `hit_ratio` that of the same requests. Peers have no
//! tenants: both use one key space.

use anyhow::Result;

use super::client::Connection;
use super::process::{Server, Settings};
use super::{Work, keys, load};
use crate::peers::servers::Kind;
use crate::run::Sample;

/// MiB of the tenant's items.
const MIB: u64 = 16;

/// What it has at least, in MiB.
const MINIMUM: u64 = 24;

/// The server's limit, in MiB.
const LIMIT: u64 = 64;

/// How often the neighbour stores as much as the limit.
const FLOOD: u64 = 6;

/// The bytes of a value.
const VALUE: usize = 500;

/// Number of the neighbour's requests for each one of the tenant's.
const EACH: usize = 50;
const FLOODED: usize = 250;

/// The neighbour's keys.
const NEIGHBOUR: u64 = 1 << 32;

/// Measures it.
pub fn measure(work: &Work, kind: Kind) -> Result<Sample> {
    let folder = tempfile::TempDir::new()?;
    let mut settings = Settings::new(work, LIMIT);
    if kind == Kind::Stillcache {
        let file = folder.path().join("stillcache.toml");
        let text =
            format!("[[tenant]]\nname = \"t\"\nprefix = [\"key:00000\"]\nmin = \"{MINIMUM}m\"\n");
        std::fs::write(&file, text)?;
        settings.ours = vec!["--config".into(), file.display().to_string()];
    }
    let server = Server::start(kind, &settings)?;
    let mut tenant = server.connect()?;
    let mut neighbour = server.connect()?;
    let items = (MIB << 20) / (VALUE + keys::LEN) as u64;
    load::fill(&mut tenant, 0..items, VALUE, VALUE)?;
    let flood = work.divided((LIMIT << 20) * FLOOD / VALUE as u64);
    let value = keys::bytes(VALUE);
    let (mut asked, mut found, mut next) = (0, 0, 0);
    for first in (0..flood).step_by(FLOODED) {
        for number in first..first + FLOODED as u64 {
            let key = keys::key(NEIGHBOUR + number);
            neighbour.set(&key, &value);
        }
        neighbour.ask(FLOODED)?;
        found += read(&mut tenant, &mut next, items)?;
        asked += EACH;
    }
    Ok(Sample::of([
        ("hits_lost", (asked - found) as f64),
        ("hit_ratio", found as f64 / asked as f64),
    ]))
}

/// Asks for the next of the tenant's items. Returns how many are there.
fn read(tenant: &mut Connection, next: &mut u64, items: u64) -> Result<usize> {
    for _ in 0..EACH {
        let key = keys::key(*next);
        *next = (*next + 1) % items;
        tenant.get(&key);
    }
    tenant.ask(EACH)
}
