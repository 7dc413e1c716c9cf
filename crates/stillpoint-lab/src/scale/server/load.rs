//! What a request costs. [`CLIENTS`] connections, each of which sends a write of requests and waits
//! for all answers, as fast as they come: `ops_per_s`, and the server's processor time for each
//! operation. Then, where a write is one request, an open loop for the latencies.
//!
//! There are [`ITEMS`] items, each as likely to be asked for, with values of 1 to 1,024 bytes.
//! `get-1` asks for one key; `get-pipelined` sends [`MANY`] such commands in a write; `set` stores one.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::Work;
use super::client::Connection;
use super::keys::{self, LONGEST};
use super::open::{self, Schedule};
use super::process::{Server, Settings};
use crate::peers::servers::Kind;
use crate::run::Sample;

/// Connections.
const CLIENTS: usize = 16;

/// Items.
const ITEMS: u64 = 100_000;

/// Commands in a write of the scenario with many.
const MANY: usize = 50;

/// How long requests are sent before time counts, and while it does.
const WARM: Duration = Duration::from_millis(200);
const COUNTED: Duration = Duration::from_millis(1500);

/// How long the open loop takes.
const OPEN: Duration = Duration::from_millis(1000);

/// What is sent.
#[derive(Clone, Copy)]
pub struct Plan {
    /// Commands in a write.
    commands: usize,
    /// Whether they store.
    stores: bool,
}

pub const GET: Plan = Plan {
    commands: 1,
    stores: false,
};

pub const PIPELINED: Plan = Plan {
    commands: MANY,
    stores: false,
};

pub const SET: Plan = Plan {
    commands: 1,
    stores: true,
};

/// Makes requests.
pub struct Requests {
    random: fastrand::Rng,
    items: u64,
    plan: Plan,
    value: Vec<u8>,
}

impl Requests {
    fn new(plan: Plan, items: u64) -> Self {
        Self {
            random: fastrand::Rng::with_seed(1),
            items,
            plan,
            value: keys::bytes(LONGEST),
        }
    }

    /// Appends a command. Returns how many values should come.
    fn push(&mut self, to: &mut Connection) -> usize {
        let key = keys::key(self.random.u64(..self.items));
        if self.plan.stores {
            let length = self.random.usize(1..=LONGEST);
            to.set(&key, &self.value[..length]);
        } else {
            to.get(&key);
        }
        usize::from(!self.plan.stores)
    }
}

/// Stores items of these numbers, with values of `least` to `most` bytes. Returns the bytes of the
/// values.
pub fn fill(
    connection: &mut Connection,
    numbers: std::ops::Range<u64>,
    least: usize,
    most: usize,
) -> Result<u64> {
    let value = keys::bytes(most);
    let (mut waiting, mut bytes) = (0, 0);
    for number in numbers {
        let length = keys::length(number, least, most);
        connection.set(&keys::key(number), &value[..length]);
        bytes += length as u64;
        waiting += 1;
        if waiting == MANY || connection.output.len() > 64 << 10 {
            connection.ask(std::mem::take(&mut waiting))?;
        }
    }
    connection.ask(waiting)?;
    Ok(bytes)
}

/// Measures a scenario.
pub fn measure(work: &Work, kind: Kind, plan: Plan) -> Result<Sample> {
    let server = Server::start(kind, &Settings::new(work, 256))?;
    let items = work.divided(ITEMS);
    let mut connections = server.connect_many(CLIENTS)?;
    fill(&mut connections[0], 0..items, 1, LONGEST)?;
    let mut requests = Requests::new(plan, items);
    let short = |time: Duration| time / work.divide;
    closed(&mut connections, &mut requests, short(WARM))?;
    let (before, begun) = (server.processor_time()?, Instant::now());
    let done = closed(&mut connections, &mut requests, short(COUNTED))?;
    let (took, used) = (begun.elapsed(), server.processor_time()? - before);
    let mut figures = vec![
        ("cpu_us_per_op", used.as_secs_f64() * 1e6 / done as f64),
        ("ops_per_s", done as f64 / took.as_secs_f64()),
    ];
    if plan.commands == 1 {
        let mut schedule = Schedule::new(open::RATE, short(OPEN));
        let push = |connection: &mut Connection| _ = requests.push(connection);
        let found = open::run(&mut connections, &mut schedule, push, |_| Ok(()))?;
        figures.extend(found.figures());
    }
    Ok(Sample::of(figures))
}

/// Has each connection send a write and wait for the answers, for that long. Returns the number of
/// commands.
fn closed(connections: &mut [Connection], requests: &mut Requests, time: Duration) -> Result<u64> {
    let begun = Instant::now();
    let mut done = 0;
    let plan = requests.plan;
    while begun.elapsed() < time {
        let mut wanted = 0;
        for connection in &mut *connections {
            for _ in 0..plan.commands {
                wanted += requests.push(connection);
            }
            connection.send()?;
        }
        let mut found = 0;
        for connection in &mut *connections {
            found += connection.wait(plan.commands, |_, _| {})?;
        }
        ensure!(found == wanted, "{} of {wanted} values", found);
        done += (connections.len() * plan.commands) as u64;
    }
    Ok(done)
}
