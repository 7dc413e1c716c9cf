//! What a request costs. [`CLIENTS`] connections, each of which sends a write of requests and waits
//! for all answers, as fast as they come: `ops_per_s`, and the server's processor time for each
//! operation. Then, where a write is one request, an open loop for the latencies.
//!
//! There are [`ITEMS`] items, each as likely to be asked for, with values of 1 to 1,024 bytes.
//! `get-1` asks for one key; `get-pipelined` sends [`MANY`] such commands in a write; `get-keys`
//! asks for as many keys by one command; `set` stores one; `mixed` is nine `get` and one `set`.

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

/// Keys or commands in a write of the scenarios with many.
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
    /// Keys of a command.
    keys: usize,
    /// Number of commands of which one stores; 0: none.
    set_every: u64,
}

impl Plan {
    /// That of a scenario.
    pub fn of(scenario: &str) -> Option<Self> {
        let plan = |commands, keys, set_every| Self {
            commands,
            keys,
            set_every,
        };
        Some(match scenario {
            "get-1" => plan(1, 1, 0),
            "get-pipelined" => plan(MANY, 1, 0),
            "get-keys" => plan(1, MANY, 0),
            "set" => plan(1, 1, 1),
            "mixed" => plan(1, 1, 10),
            _ => return None,
        })
    }
}

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
        let every = self.plan.set_every;
        if every != 0 && self.random.u64(..every) == 0 {
            let number = self.random.u64(..self.items);
            let length = self.random.usize(1..=LONGEST);
            to.set(&keys::key(number), &self.value[..length]);
            return 0;
        }
        let mut all = [[0; keys::LEN]; MANY];
        let all = &mut all[..self.plan.keys];
        for key in all.iter_mut() {
            *key = keys::key(self.random.u64(..self.items));
        }
        let slices = all.iter().map(|key| &key[..]);
        to.dialect.get(&mut to.output, slices);
        self.plan.keys
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
    if plan.commands * plan.keys == 1 {
        let mut schedule = Schedule::new(open::RATE, short(OPEN));
        let push = |connection: &mut Connection| _ = requests.push(connection);
        let found = open::run(&mut connections, &mut schedule, push, |_| Ok(()))?;
        figures.extend(found.figures());
    }
    Ok(Sample::of(figures))
}

/// Has each connection send a write and wait for the answers, for that long. Returns the number of
/// keys and stores.
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
            found += connection.wait(plan.commands)?.values;
        }
        ensure!(found == wanted, "{} of {wanted} values", found);
        done += (connections.len() * plan.commands * plan.keys) as u64;
    }
    Ok(done)
}
