//! What clients cost that are silent: [`CLIENTS`] of them, each of which has asked for something
//! once. `bytes_per_client` is what the server's resident memory grows by for each.

use anyhow::Result;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::process::{Server, Settings};
use super::{Work, keys};
use crate::peers::servers::Kind;
use crate::run::Sample;

/// Number of clients, if the system gives enough descriptors.
const CLIENTS: u64 = 10_000;

/// Descriptors for other things.
const OTHERS: u64 = 100;

/// Measures it.
pub fn measure(work: &Work, kind: Kind) -> Result<Sample> {
    let clients = work
        .divided(CLIENTS)
        .min(descriptors(CLIENTS + 2 * OTHERS) - OTHERS);
    let mut settings = Settings::new(work, 64);
    settings.clients = clients as usize + 16;
    let server = Server::start(kind, &settings)?;
    let ask = || {
        let mut connection = server.connect()?;
        let key = keys::key(0);
        connection.get(&key);
        connection.ask(1)?;
        anyhow::Ok(connection)
    };
    let _first = ask()?;
    let before = server.resident()?;
    let connections = (0..clients).map(|_| ask()).collect::<Result<Vec<_>>>()?;
    let grown = server.resident()?.saturating_sub(before);
    drop(connections);
    Ok(Sample::of([(
        "bytes_per_client",
        grown as f64 / clients as f64,
    )]))
}

/// Raises the limit of descriptors, which the server inherits, if that may be. Returns what it is.
fn descriptors(wanted: u64) -> u64 {
    let now = getrlimit(Resource::Nofile);
    let maximum = now.maximum.unwrap_or(u64::MAX);
    let raised = Rlimit {
        current: Some(wanted.min(maximum)),
        maximum: now.maximum,
    };
    let current = now.current.unwrap_or(u64::MAX);
    if current < wanted && setrlimit(Resource::Nofile, raised).is_ok() {
        return wanted.min(maximum);
    }
    current.max(2 * OTHERS)
}
