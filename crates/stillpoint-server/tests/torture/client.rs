//! A client: keys of its own, about which it knows everything, and some that all clients of its tenant change.

use super::{
    command::{Command, Mode},
    connection::Connection,
    key::{Entry, Key},
    world::{Random, TENANTS, World},
};
use std::{
    collections::HashSet,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

/// So many that what a client's keys would take is more than all may: most of the time the server evicts.
const KEYS: u64 = 400;
const SHARED: u64 = 4;
/// Commands that are sent at once, at most.
const BATCH: u64 = 24;

pub struct Client {
    world: Arc<World>,
    random: Random,
    tenant: usize,
    number: usize,
    keys: Vec<Key>,
    /// How often each client has stored a value under a shared key of the tenant: begun.
    stored: Arc<[AtomicU64; CLIENTS.len()]>,
    hits: u64,
}

/// The tenants of all clients. Of two tenants, clients have keys of the same names.
const CLIENTS: [usize; 10] = [0, 1, 1, 1, 2, 2, 2, 3, 4, 4];

/// All clients.
pub fn all(world: &Arc<World>, random: &mut Random) -> Vec<Client> {
    let stored: Vec<_> = TENANTS.iter().map(|_| Arc::default()).collect();
    let client = |number: usize| {
        let tenant = CLIENTS[number];
        let before = CLIENTS[..number].iter().filter(|&&other| other == tenant);
        let mut client = Client {
            world: Arc::clone(world),
            random: random.fork(),
            tenant,
            number,
            keys: Vec::new(),
            stored: Arc::clone(&stored[tenant]),
            hits: 0,
        };
        let same = before.count();
        client.keys = (0..KEYS)
            .map(|key| Key::new(client.name(&format!("{same}-{key}"), 0), 0))
            .collect();
        client
    };
    (0..CLIENTS.len()).map(client).collect()
}

/// Bytes that tell what they are.
fn stamped(head: &str, len: usize) -> Vec<u8> {
    let mut bytes = head.as_bytes().to_vec();
    let mut random =
        Random::new(head.len() as u64 ^ len as u64 ^ u64::from(bytes[bytes.len() - 1]));
    while bytes.len() < len {
        bytes.extend_from_slice(&random.next().to_le_bytes());
    }
    bytes.truncate(len.max(head.len()));
    bytes
}

impl Client {
    /// The name of a key; of the prefixed tenant it begins with its prefix.
    fn name(&self, key: &str, generation: u32) -> String {
        let prefix = if TENANTS[self.tenant] == "prefixed" {
            "p:"
        } else {
            ""
        };
        format!("{prefix}k{key}-{generation}")
    }

    /// Goes on until the run ends. Returns how many items it has found.
    pub fn run(&mut self) -> u64 {
        let mut connection = None;
        while !self.world.is_stopping() {
            let Some(open) = &mut connection else {
                // Perhaps it does not accept for a while, or its tenant is gone.
                connection = Connection::open(&self.world.sockets[self.tenant]).ok();
                if connection.is_none() {
                    thread::sleep(Duration::from_millis(5));
                }
                continue;
            };
            let done = match self.random.below(20) {
                0 => self.shared(open),
                1 if self.random.one_in(60) => self.flush(open),
                _ => self.batch(open),
            };
            if done.is_err() {
                connection = None;
                thread::sleep(Duration::from_millis(self.random.below(3)));
            }
        }
        self.hits
    }

    fn value(&mut self, key: usize) -> Vec<u8> {
        let key = &mut self.keys[key];
        key.version += 1;
        let head = format!(
            "{}|{}|{}|{}|",
            TENANTS[self.tenant], self.number, key.name, key.version
        );
        let len = match self.random.below(40) {
            0 => 200_000 + self.random.below(200_000),
            1..=3 => 4000 + self.random.below(40_000),
            4..=15 => self.random.below(4000),
            _ => self.random.below(100),
        };
        stamped(&head, len as usize)
    }

    fn command(&mut self, key: usize, is_first: bool) -> Command {
        let random = &mut self.random;
        let flags = [0, 7, 70_000][random.below(3) as usize];
        let expires = match random.below(12) {
            0 => -1,
            1..=3 => 1 + random.below(4) as i32,
            _ => 0,
        };
        let later = (expires.max(0) * 20) as u32;
        let kind = random.below(100);
        let [noreply, cas, get, down, stale] = [5, 2, 2, 4, 3].map(|times| random.one_in(times));
        let is_long = |entry: &Entry| entry.value.len() > 300_000;
        let entry = self.keys[key].entry.as_ref();
        let mode = match kind {
            0..=21 => Mode::Set,
            22..=25 => Mode::Add,
            26..=29 => Mode::Replace,
            // So that a value stays below the most.
            30..=33 if !entry.is_some_and(is_long) => Mode::Append,
            34..=35 if !entry.is_some_and(is_long) => Mode::Prepend,
            36..=43 => {
                let (fresh, past) = (entry.and_then(|entry| entry.cas), self.keys[key].old_cas);
                let of = if stale {
                    past
                } else {
                    fresh.filter(|_| is_first)
                };
                let Some(cas) = of else {
                    return Command::Get { cas: true };
                };
                let value = self.value(key);
                return Command::Compare { value, cas, stale };
            }
            44..=49 => return Command::Delete { noreply },
            50..=55 => {
                let (value, noreply) = (random.below(1 << 40).to_string().into_bytes(), false);
                return Command::Store {
                    mode: Mode::Set,
                    value,
                    flags,
                    expires,
                    noreply,
                };
            }
            56..=63 => {
                let delta = random.below(1 << 40);
                return Command::Number { delta, down };
            }
            64..=69 => {
                return Command::Touch {
                    expires: later,
                    get,
                };
            }
            _ => return Command::Get { cas },
        };
        let value = match mode {
            Mode::Append | Mode::Prepend => {
                let len = random.below(60) as usize;
                vec![b'+'; 1 + len]
            }
            _ => self.value(key),
        };
        // Of the others, silence does not say what has become of them.
        let noreply = noreply && mode == Mode::Set;
        Command::Store {
            mode,
            value,
            flags,
            expires,
            noreply,
        }
    }

    /// Some commands at once; sometimes the client ends in the middle of them.
    fn batch(&mut self, connection: &mut Connection) -> io::Result<()> {
        let many = match self.random.below(3) {
            0 => 1,
            _ => 1 + self.random.below(BATCH),
        };
        let (mut bytes, mut sent, mut used) = (Vec::new(), Vec::new(), HashSet::new());
        for _ in 0..many {
            let key = self.random.below(KEYS) as usize;
            let command = self.command(key, used.insert(key));
            let meta = self.random.one_in(2).then(|| self.random.below(1 << 30));
            bytes.extend(command.bytes(&self.keys[key].name, meta));
            sent.push((key, meta, command));
        }
        // What is not answered is done when this is.
        bytes.extend(b"mn\r\n");
        let before = self.world.before(self.tenant);
        let is_killed = self.random.one_in(40);
        if is_killed {
            bytes.truncate(self.random.below(bytes.len() as u64) as usize);
        }
        let talk = || {
            connection.send(&bytes)?;
            if is_killed {
                // What it has answered is not read.
                return Err(io::ErrorKind::Interrupted.into());
            }
            let mut silent = Vec::new();
            for (key, meta, command) in sent {
                if command.is_silent(meta.is_some()) {
                    silent.push(key);
                }
                let key = &mut self.keys[key];
                let found =
                    command.settle(meta, key, self.tenant, before, &self.world, connection)?;
                self.world.commands.fetch_add(1, Ordering::Relaxed);
                self.hits += u64::from(found);
            }
            let line = connection.line()?;
            assert_eq!(line, "MN", "behind the answers to {used:?}");
            // Until now, they may not have been executed.
            for key in silent {
                if let Some(entry) = &mut self.keys[key].entry {
                    entry.since = self.world.moment(self.tenant);
                }
            }
            Ok(())
        };
        let done = talk();
        if done.is_err() {
            // The server may execute these at any time from now on.
            used.into_iter().for_each(|key| self.forget(key));
        }
        done
    }

    /// Goes on with another key instead.
    fn forget(&mut self, key: usize) {
        let generation = self.keys[key].generation + 1;
        let same = CLIENTS[..self.number]
            .iter()
            .filter(|&&other| other == self.tenant)
            .count();
        self.keys[key] = Key::new(self.name(&format!("{same}-{key}"), generation), generation);
    }

    fn flush(&mut self, connection: &mut Connection) -> io::Result<()> {
        let mut done = Ok(());
        // The default tenant's flush leaves the prefixed one alone, which no client can flush.
        if TENANTS[self.tenant] == "prefixed" {
            return done;
        }
        self.world.wipe(self.tenant, || {
            match connection.ask("flush_all") {
                Ok(line) => assert_eq!(line, "OK"),
                Err(error) => done = Err(error),
            }
            done.is_ok()
        });
        done
    }

    /// Keys that all clients of the tenant change: whole values of that key, of a version that its writer has begun; and each CAS value is taken once.
    fn shared(&mut self, connection: &mut Connection) -> io::Result<()> {
        let number = self.random.below(SHARED);
        let name = self.name(&format!("shared{number}"), 0);
        connection.send(format!("gets {name}\r\n").as_bytes())?;
        let line = connection.line()?;
        let mut known = None;
        if let Some(rest) = line.strip_prefix("VALUE ") {
            let words: Vec<&str> = rest.split(' ').collect();
            assert_eq!(words[0], name, "the item of another key");
            let value = connection.value(words[2].parse().unwrap())?;
            assert_eq!(connection.line()?, "END");
            let text = String::from_utf8_lossy(&value).into_owned();
            let parts: Vec<&str> = text.split('|').take(4).collect();
            assert_eq!(parts[..2], [TENANTS[self.tenant], &name], "{line}");
            let (writer, version): (usize, u64) =
                (parts[2].parse().unwrap(), parts[3].parse().unwrap());
            let head = parts.join("|") + "|";
            assert!(
                value == stamped(&head, value.len()),
                "{name} is torn: {head}"
            );
            let begun = self.stored[writer].load(Ordering::SeqCst);
            assert!(version <= begun, "version {version} of {begun} of {name}");
            known = words[3].parse::<u64>().ok();
            self.hits += 1;
        } else {
            assert!(line == "END" || line.starts_with("SERVER_ERROR"), "{line}");
        }
        let version = self.stored[self.number].fetch_add(1, Ordering::SeqCst) + 1;
        let head = format!("{}|{name}|{}|{version}|", TENANTS[self.tenant], self.number);
        let value = stamped(&head, self.random.below(6000) as usize);
        let len = value.len();
        let line = match known {
            Some(cas) => format!("cas {name} 0 0 {len} {cas}\r\n"),
            None => format!("set {name} 0 0 {len}\r\n"),
        };
        connection.send(&[line.as_bytes(), &value, b"\r\n"].concat())?;
        let answer = connection.line()?;
        self.world.commands.fetch_add(2, Ordering::Relaxed);
        if let Some(cas) = known
            && answer == "STORED"
        {
            let is_new = self
                .world
                .spent
                .lock()
                .unwrap()
                .insert((self.tenant, number, cas));
            assert!(is_new, "{name}: two changes of CAS value {cas}");
        }
        Ok(())
    }
}
