//! A small tenant that is filled all the time: what it evicts is used again within milliseconds, while other clients read it. So a segment that is freed before
//! its readers have left shows in what they are answered: with debug assertions, what is freed reads as nothing that was stored.
//! It goes on half of the time: the other clients come to a quarter of their commands beside it.

use super::{
    connection::Connection,
    world::{Random, World},
};
use std::{io, ops::AddAssign, thread, time::Duration};

/// Their values are more than the tenant may have.
const KEYS: u64 = 100;
/// Bytes of a value, at most.
const LONGEST: u64 = 4000;
/// Commands that are sent at once.
const BATCH: u64 = 40;

/// What a thread does.
#[derive(Debug, Clone, Copy)]
pub enum Role {
    Write,
    Read,
}

/// All clients of that tenant.
pub const ROLES: [Role; 6] = [
    Role::Write,
    Role::Read,
    Role::Read,
    Role::Write,
    Role::Read,
    Role::Read,
];

/// What its clients have done: commands that were answered, and items that they found.
#[derive(Debug, Default, Clone, Copy)]
pub struct Counts {
    pub stores: u64,
    pub reads: u64,
    pub hits: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.stores += other.stores;
        self.reads += other.reads;
        self.hits += other.hits;
    }
}

/// Whether readers found what writers stored, as often as to say something.
pub fn check(counts: Counts) {
    let Counts {
        stores,
        reads,
        hits,
    } = counts;
    assert!(
        hits * 20 > reads && hits > 0,
        "{hits} hits of {reads} reads beside {stores} stores of the small tenant: that checks nothing"
    );
}

/// What the value of each key begins with, whatever its length: made once, as to make and compare such
/// bytes takes longer than to serve them.
fn values() -> Vec<Vec<u8>> {
    let value = |key: u64| {
        let mut random = Random::new(key);
        let words = (0..LONGEST / 8).flat_map(|_| random.next().to_le_bytes());
        words.collect()
    };
    (0..KEYS).map(value).collect()
}

/// Goes on until the run ends. Returns what it has done.
pub fn run(role: Role, world: &World, mut random: Random) -> Counts {
    let (mut connection, mut counts, values) = (None, Counts::default(), values());
    while !world.is_stopping() {
        if !world.churns() {
            thread::sleep(Duration::from_millis(5));
            continue;
        }
        let Some(open) = &mut connection else {
            connection = Connection::open(&world.churn).ok();
            thread::sleep(Duration::from_millis(5));
            continue;
        };
        let done = match role {
            Role::Write => write(open, &values, &mut random).map(|()| counts.stores += BATCH),
            Role::Read => read(open, &values, &mut random).map(|found| {
                counts.reads += BATCH;
                counts.hits += found;
            }),
        };
        if done.is_err() {
            connection = None;
        }
    }
    counts
}

fn write(connection: &mut Connection, values: &[Vec<u8>], random: &mut Random) -> io::Result<()> {
    let mut bytes = Vec::new();
    for _ in 0..BATCH {
        let key = random.below(KEYS);
        let value = &values[key as usize][..random.below(LONGEST) as usize];
        let line = format!("ms {key} {} q\r\n", value.len());
        bytes.extend([line.as_bytes(), value, b"\r\n"].concat());
    }
    bytes.extend(b"mn\r\n");
    connection.send(&bytes)?;
    loop {
        let line = connection.line()?;
        if line == "MN" {
            return Ok(());
        }
        assert!(line.starts_with("SERVER_ERROR"), "{line}");
    }
}

fn read(connection: &mut Connection, values: &[Vec<u8>], random: &mut Random) -> io::Result<u64> {
    let keys: Vec<_> = (0..BATCH).map(|_| random.below(KEYS)).collect();
    let lines: String = keys.iter().map(|key| format!("get {key}\r\n")).collect();
    connection.send(lines.as_bytes())?;
    let mut hits = 0;
    for key in keys {
        let line = connection.line()?;
        if line == "END" || line.starts_with("SERVER_ERROR") {
            continue;
        }
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(words[..2], ["VALUE", &*key.to_string()], "{line}");
        let value = connection.value(words[3].parse().unwrap())?;
        let is_its_own = values[key as usize].starts_with(&value);
        assert!(is_its_own, "the item of {key} is another one: {line}");
        assert_eq!(connection.line()?, "END");
        hits += 1;
    }
    Ok(hits)
}
