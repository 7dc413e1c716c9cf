//! What happens to a server beside its clients' commands.

use super::{
    connection::Connection,
    program::Program,
    world::{GONE, Random, TENANTS, World},
};
use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    sync::Arc,
    thread,
    time::Duration,
};

/// Descriptors that the server has when it has enough.
const ENOUGH: u64 = 1000;

pub struct Chaos<'a> {
    world: Arc<World>,
    program: &'a Program,
    random: Random,
    /// Clients that take or send nothing.
    stuck: Vec<UnixStream>,
}

impl<'a> Chaos<'a> {
    pub fn new(world: Arc<World>, program: &'a Program, random: Random) -> Self {
        Self {
            world,
            program,
            random,
            stuck: Vec::new(),
        }
    }

    /// Goes on until the run ends.
    pub fn run(&mut self) {
        let mut admin = Connection::open(&self.world.admin).unwrap();
        while !self.world.is_stopping() {
            match self.random.below(12) {
                0 => {
                    let limit = 8 + self.random.below(16);
                    self.ask(&mut admin, &format!("cache_memlimit {limit}"), "OK");
                }
                1 => {
                    let tenant = TENANTS[1 + self.random.below(2) as usize];
                    let max = 1 + self.random.below(16);
                    self.ask(
                        &mut admin,
                        &format!("tenant set {tenant} min=0 max={max}m"),
                        "OK",
                    );
                }
                2 => self.replace(&mut admin),
                3 | 4 => {
                    let seconds = self.random.below(40);
                    let ask = || self.ask(&mut admin, &format!("debugtime {seconds}"), "OK");
                    self.world.jump(seconds, ask);
                }
                5 => self.program.reload(self.random.one_in(2)),
                6 => self.storm(),
                7 | 8 => self.stick(),
                9 => self.garbage(),
                // They stay for long enough to be given up.
                10 if self.random.one_in(8) => self.stuck.clear(),
                _ => self.look(&mut admin),
            }
            thread::sleep(Duration::from_millis(self.random.below(30)));
        }
        self.stuck.clear();
        self.program.limit_descriptors(ENOUGH);
    }

    fn ask(&self, admin: &mut Connection, line: &str, expected: &str) {
        let answer = admin.ask(line).unwrap();
        assert_eq!(answer, expected, "{line}");
    }

    /// Deletes a tenant that has clients, and creates it again.
    fn replace(&mut self, admin: &mut Connection) {
        let name = TENANTS[GONE];
        self.world.wipe(GONE, || {
            // SIGHUP may have created it meanwhile, as the file has it.
            let answer = admin.ask(&format!("tenant delete {name}")).unwrap();
            answer == "OK"
        });
        thread::sleep(Duration::from_millis(self.random.below(20)));
        let answer = admin.ask(&format!("tenant create {name} max=3m")).unwrap();
        assert!(
            answer == "OK" || answer.contains("there is a tenant of that name"),
            "{answer}"
        );
    }

    /// More clients than there are descriptors.
    fn storm(&mut self) {
        self.program.limit_descriptors(50 + self.random.below(20));
        let clients: Vec<_> = (0..40)
            .filter_map(|_| UnixStream::connect(&self.world.sockets[0]).ok())
            .collect();
        thread::sleep(Duration::from_millis(self.random.below(150)));
        drop(clients);
        self.program.limit_descriptors(ENOUGH);
    }

    /// One more client that does not read what it has asked for, or not send what it has announced.
    fn stick(&mut self) {
        let tenant = self.random.below(3) as usize;
        let Ok(mut client) = UnixStream::connect(&self.world.sockets[tenant]) else {
            return;
        };
        client.set_nonblocking(true).unwrap();
        let value = "x".repeat(90_000);
        let request = match self.random.below(3) {
            0 => format!(
                "set stuck 0 0 90000\r\n{value}\r\n{}",
                "get stuck\r\n".repeat(500)
            ),
            1 => "set half 0 0 20000\r\nhalf".to_owned(),
            _ => format!("set half 0 0 400000\r\n{value}"),
        };
        // As much as the server takes.
        let _ = client.write(request.as_bytes());
        if self.stuck.len() < 30 {
            self.stuck.push(client);
        }
    }

    /// A client that speaks no protocol.
    fn garbage(&mut self) {
        let Ok(mut client) = UnixStream::connect(&self.world.sockets[0]) else {
            return;
        };
        client.set_nonblocking(true).unwrap();
        let len = 1 + self.random.below(30_000);
        let mut bytes: Vec<u8> = (0..len).map(|_| self.random.next() as u8).collect();
        // Neither `flush_all` nor a key that another client has is among them.
        if self.random.one_in(2) {
            bytes[0] = b'g';
        }
        let _ = client.write(&bytes);
        let _ = client.read(&mut [0; 100]);
    }

    /// What an operator asks for.
    fn look(&mut self, admin: &mut Connection) {
        let group =
            ["", " items", " settings", " conns", " tenant a"][self.random.below(5) as usize];
        figures(admin, &format!("stats{group}"));
    }
}

/// The lines of an answer that ends with one.
fn figures(admin: &mut Connection, command: &str) -> Vec<String> {
    let mut line = admin.ask(command).unwrap();
    let mut lines = Vec::new();
    while line != "END" {
        assert!(!line.contains("ERROR"), "{command}: {line}");
        lines.push(line);
        line = admin.line().unwrap();
    }
    lines
}

/// When all clients have gone, nothing is left of them, and what is listed is what is counted.
/// Returns how many items were evicted, and how many stores refused: without those of the small tenant,
/// and of that one.
pub fn check_rest(world: &World) -> ((u64, u64), (u64, u64)) {
    let mut admin = Connection::open(&world.admin).unwrap();
    let mut stats = Vec::new();
    for _ in 0..6000 {
        stats = figures(&mut admin, "stats");
        let is = |line: &str| stats.iter().any(|other| other == line);
        if is("STAT curr_connections 1") && is("STAT pinned_bytes 0") && is("STAT read_buf_bytes 0")
        {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    let value = |name: &str| value(&stats, name);
    for (name, expected) in [
        ("curr_connections", "1"),
        ("pinned_bytes", "0"),
        ("read_buf_bytes", "0"),
    ] {
        assert_eq!(value(name), expected, "{name}");
    }
    let counts = |stats: &[String]| {
        ["evictions", "store_no_memory"].map(|name| self::value(stats, name).parse().unwrap())
    };
    // Its clients are told of itself alone.
    let mut churn = Connection::open(&world.churn).unwrap();
    let [evicted, refused]: [u64; 2] = counts(&stats);
    let [churn_evicted, churn_refused] = counts(&figures(&mut churn, "stats"));
    println!(
        "torture: {evicted} evictions, {churn_evicted} of the small tenant, {refused} stores refused, {churn_refused} by that, {} slow clients, {} without a buffer, accepting has paused {} times",
        value("slow_kicks"),
        value("read_buf_oom"),
        value("listen_disabled_num")
    );
    // It serves as ever.
    for tenant in 0..4 {
        let mut client = Connection::open(&world.sockets[tenant]).unwrap();
        // (Without eviction it may be full.)
        assert_eq!(client.ask("flush_all").unwrap(), "OK");
        client.send(b"set last 0 0 4\r\nlast\r\n").unwrap();
        assert_eq!(client.line().unwrap(), "STORED");
        client.send(b"get last\r\n").unwrap();
        assert_eq!(client.line().unwrap(), "VALUE last 0 4");
    }
    let others = (evicted - churn_evicted, refused - churn_refused);
    (others, (churn_evicted, churn_refused))
}

/// A figure of `stats`.
fn value(stats: &[String], name: &str) -> String {
    let head = format!("STAT {name} ");
    let found = stats.iter().find_map(|line| line.strip_prefix(&head));
    let found = found.unwrap_or_else(|| panic!("no {name} in {stats:?}"));
    found.to_owned()
}
