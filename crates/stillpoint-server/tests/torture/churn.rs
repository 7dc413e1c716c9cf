//! A small tenant that is filled all the time: what it evicts is used again within milliseconds, while other clients read it. So a segment that is freed before
//! its readers have left shows in what they are answered: with debug assertions, what is freed reads as nothing that was stored.

use super::{
    client::stamped,
    connection::Connection,
    world::{Random, World},
};
use std::{io, sync::atomic::Ordering, thread, time::Duration};

/// Their values are more than the tenant may have.
const KEYS: u64 = 100;
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

/// Goes on until the run ends. Returns how many items it has found.
pub fn run(role: Role, world: &World, mut random: Random) -> u64 {
    let (mut connection, mut hits) = (None, 0);
    while !world.is_stopping() {
        let Some(open) = &mut connection else {
            connection = Connection::open(&world.churn).ok();
            thread::sleep(Duration::from_millis(5));
            continue;
        };
        let done = match role {
            Role::Write => write(open, &mut random),
            Role::Read => read(open, &mut random).map(|found| hits += found),
        };
        world.commands.fetch_add(BATCH, Ordering::Relaxed);
        if done.is_err() {
            connection = None;
        }
    }
    hits
}

fn write(connection: &mut Connection, random: &mut Random) -> io::Result<()> {
    let mut bytes = Vec::new();
    for _ in 0..BATCH {
        let key = random.below(KEYS);
        let value = stamped(&format!("churn|{key}|"), random.below(4000) as usize);
        let line = format!("ms {key} {} q\r\n", value.len());
        bytes.extend([line.as_bytes(), &value, b"\r\n"].concat());
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

fn read(connection: &mut Connection, random: &mut Random) -> io::Result<u64> {
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
        let whole = stamped(&format!("churn|{key}|"), value.len());
        assert!(value == whole, "the item of {key} is another one: {line}");
        assert_eq!(connection.line()?, "END");
        hits += 1;
    }
    Ok(hits)
}
