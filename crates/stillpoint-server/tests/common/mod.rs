//! A server in this process, and a client that speaks bytes.
#![allow(dead_code, reason = "each test program uses a part of it")]

mod files;
#[cfg(feature = "tls")]
pub mod tls;

#[allow(unused_imports, reason = "each test program uses a part of it")]
pub use files::{make_fifo, new_path, write_private};
use std::{
    fmt::Display,
    io::{ErrorKind, Read, Write},
    net::SocketAddr,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    thread::JoinHandle,
    time::Duration,
};
use stillpoint_server::{
    config::{Listener, Settings},
    server::{Handle, Server},
};

/// Asks a client line by line: `client: "command" => "answer";`, without the ends of the lines.
#[allow(unused_macros, reason = "each test program uses a part of it")]
macro_rules! asks {
    ($client:ident: $($command:literal => $answer:literal;)*) => {
        $($client.ask(concat!($command, "\r\n"), concat!($answer, "\r\n"));)*
    };
}

/// A server on a Unix socket, which stops when it is dropped.
pub struct Running {
    pub path: PathBuf,
    pub admin: PathBuf,
    pub handle: Handle,
    /// Where it answers with metrics.
    pub metrics: Option<SocketAddr>,
    thread: Option<JoinHandle<()>>,
}

pub fn listener(path: PathBuf, tenant: &str, admin: bool) -> Listener {
    Listener {
        tenant: tenant.into(),
        admin,
        ..Listener::unix(path)
    }
}

/// Starts a server with `settings`, two sockets added: one for clients, one for admins.
pub fn start(settings: Settings) -> Running {
    start_listening(settings).0
}

/// The same, with the TCP addresses that it listens on.
pub fn start_listening(mut settings: Settings) -> (Running, Vec<SocketAddr>) {
    let (path, admin) = (new_path("clients"), new_path("admin"));
    settings.listeners.push(listener(path.clone(), "", false));
    settings.listeners.push(listener(admin.clone(), "", true));
    settings.threads = 2;
    settings.log = false;
    let server = Server::start(settings).expect("the server starts");
    let handle = server.handle();
    let (addresses, metrics) = (server.addresses(), server.metrics_address());
    let thread = std::thread::spawn(move || server.run(None));
    let running = Running {
        path,
        admin,
        handle,
        metrics,
        thread: Some(thread),
    };
    (running, addresses)
}

impl Running {
    pub fn client(&self) -> Client {
        Client::connect(&self.path)
    }

    pub fn admin(&self) -> Client {
        Client::connect(&self.admin)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.handle.stop();
        let ended = self.thread.take().unwrap().join();
        if !std::thread::panicking() {
            ended.expect("the server ends");
            assert!(!self.path.exists(), "its socket is removed");
        }
    }
}

pub struct Client(pub UnixStream);

impl Client {
    pub fn connect(path: &Path) -> Self {
        let stream = UnixStream::connect(path).expect("the server listens");
        // Far longer than anything takes: a test that waits for what does not come ends.
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        Self(stream)
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).expect("the server reads");
    }

    /// Reads as many bytes as `expected` has, and compares.
    #[track_caller]
    pub fn expect(&mut self, expected: impl AsRef<[u8]>) {
        let expected = expected.as_ref();
        let mut got = vec![0; expected.len()];
        let mut have = 0;
        while have < got.len() {
            match self.0.read(&mut got[have..]) {
                // A process that is stopped and continued.
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Ok(0) | Err(_) => break,
                Ok(bytes) => have += bytes,
            }
            if got[..have] != expected[..have] {
                break;
            }
        }
        let (got, expected) = (
            String::from_utf8_lossy(&got[..have]),
            String::from_utf8_lossy(expected),
        );
        assert!(
            got == expected,
            "got {:?}, expected {:?}",
            clip(&got),
            clip(&expected)
        );
    }

    /// Sends a command and compares the answer.
    #[track_caller]
    pub fn ask(&mut self, command: impl AsRef<[u8]>, expected: impl AsRef<[u8]>) {
        self.send(command);
        self.expect(expected);
    }

    /// The same, of a line without its end, and an answer without its.
    #[track_caller]
    pub fn say(&mut self, line: impl Display, answer: impl Display) {
        self.ask(format!("{line}\r\n"), format!("{answer}\r\n"));
    }

    /// Stores a value.
    #[track_caller]
    pub fn set(&mut self, key: impl Display, value: &str) {
        let len = value.len();
        self.ask(format!("set {key} 0 0 {len}\r\n{value}\r\n"), "STORED\r\n");
    }

    /// The value of a statistic that is a number.
    pub fn number(&mut self, name: &str) -> usize {
        self.stat("", name).parse().unwrap()
    }

    /// Sends a command and reads its answer up to a line `END`, or an error.
    pub fn lines(&mut self, command: &str) -> Vec<String> {
        self.send(format!("{command}\r\n"));
        let mut lines = Vec::new();
        loop {
            let line = self.line();
            if line == "END" {
                return lines;
            }
            let first = line.split(' ').next().unwrap_or_default();
            let ends = first.ends_with("ERROR");
            lines.push(line);
            if ends {
                return lines;
            }
        }
    }

    pub fn line(&mut self) -> String {
        let (mut line, mut byte) = (Vec::new(), [0]);
        loop {
            self.0.read_exact(&mut byte).expect("a line comes");
            if byte[0] == b'\n' {
                let line = String::from_utf8_lossy(&line);
                return line.trim_end_matches('\r').into();
            }
            line.push(byte[0]);
        }
    }

    /// The value of a statistic.
    pub fn stat(&mut self, group: &str, name: &str) -> String {
        let lines = self.lines(&format!("stats {group}"));
        let head = format!("STAT {name} ");
        let found = lines.iter().find_map(|line| line.strip_prefix(&head));
        found
            .unwrap_or_else(|| panic!("no {name} in {lines:?}"))
            .into()
    }

    /// The server closes the connection, perhaps after more bytes.
    #[track_caller]
    pub fn ends(&mut self) {
        let mut rest = Vec::new();
        match self.0.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) => assert_eq!(
                error.kind(),
                ErrorKind::ConnectionReset,
                "the connection stays open"
            ),
        }
    }
}

fn clip(text: &str) -> &str {
    let end = (0..=text.len().min(200))
        .rev()
        .find(|&at| text.is_char_boundary(at));
    &text[..end.unwrap_or(0)]
}

/// Waits until `done`, which comes sooner or later.
pub fn until(mut done: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("it does not come");
}
