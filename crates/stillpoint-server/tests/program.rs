//! The program: its log, signals, descriptors.

mod common;

use common::{Client, make_fifo, new_path, until, write_private};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::{
        fd::OwnedFd,
        unix::net::{UnixListener, UnixStream},
    },
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// `stillcache`, which ends when it is dropped.
struct Program {
    child: Child,
    /// Where it listens beside its port.
    path: PathBuf,
    log: Arc<Mutex<String>>,
}

impl Program {
    /// Starts it on a free port, with those arguments.
    fn start(arguments: &[&str]) -> Self {
        let program = Self::start_by(Command::new(env!("CARGO_BIN_EXE_stillcache")), arguments);
        until(|| program.says("threads\n"));
        program
    }

    /// The same by `command`, whether it comes to listen or not.
    fn start_by(mut command: Command, arguments: &[&str]) -> Self {
        let path = new_path("program");
        let mut child = command
            .args(["-p", "-1", "-v", "-t", "2", "-s"])
            .arg(&path)
            .args(arguments)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let (lines, written) = (
            BufReader::new(child.stderr.take().unwrap()),
            Arc::clone(&log),
        );
        std::thread::spawn(move || {
            for line in lines.lines() {
                let line = line.unwrap() + "\n";
                written.lock().unwrap().push_str(&line);
            }
        });
        Self { child, path, log }
    }

    fn client(&self) -> Client {
        Client::connect(&self.path)
    }

    /// Connects by TCP, and asks for something.
    fn ask_by_tcp(&self) -> TcpStream {
        let mut stream = TcpStream::connect(self.address()).unwrap();
        let most = Duration::from_secs(60);
        stream.set_read_timeout(Some(most)).unwrap();
        stream.write_all(b"mn\r\n").unwrap();
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"MN\r\n");
        stream
    }

    fn says(&self, text: &str) -> bool {
        self.count(text) > 0
    }

    /// How often the log has that.
    fn count(&self, text: &str) -> usize {
        self.log.lock().unwrap().matches(text).count()
    }

    /// Where it listens.
    fn address(&self) -> SocketAddr {
        let log = self.log.lock().unwrap();
        let (_, rest) = log.split_once("listens on tcp:").expect("it listens");
        let end = rest.find([',', '\n']).unwrap();
        rest[..end].parse().unwrap()
    }

    fn signal(&self, signal: Signal) {
        let id = Pid::from_child(&self.child);
        kill_process(id, signal).unwrap();
    }

    /// What its descriptors are.
    fn descriptors(&self) -> Vec<PathBuf> {
        let open = fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap();
        let links = open.flatten().map(|entry| fs::read_link(entry.path()));
        links.flatten().collect()
    }

    /// What it has of the machine's memory, in bytes.
    fn resident(&self) -> u64 {
        let pages = fs::read_to_string(format!("/proc/{}/statm", self.child.id())).unwrap();
        let pages: u64 = pages.split(' ').nth(1).unwrap().parse().unwrap();
        pages * rustix::param::page_size() as u64
    }

    /// Ends it as a service manager does.
    fn end(mut self) {
        self.signal(Signal::TERM);
        assert!(self.child.wait().unwrap().success());
        until(|| self.says("stops on signal 15\n"));
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(feature = "tls")]
mod tls {
    use super::*;
    use common::tls::{Authority, ask, connect};

    fn start(authority: &Authority) -> Program {
        let files = format!(
            "ssl_chain_cert={},ssl_key={}",
            authority.files.chain.display(),
            authority.files.key.display()
        );
        Program::start(&["-Z", "-o", &files])
    }

    #[test]
    fn a_signal_has_the_certificate_read_again() {
        let authority = Authority::new();
        let program = start(&authority);
        let address = program.address();
        let config = authority.client(false);
        let new = || {
            let mut client = connect(address, config.clone());
            ask(&mut client, b"mn\r\n", b"MN\r\n");
            let shown = client.conn.peer_certificates().unwrap()[0].clone();
            (client, shown)
        };
        let (mut early, old) = new();
        let before = program.descriptors().len();
        authority.renew();
        assert_eq!(new().1, old);
        program.signal(Signal::HUP);
        until(|| program.says("stillcache: reloaded: the certificate is read again\n"));
        let (_, renewed) = new();
        assert_ne!(renewed, old);
        program.signal(Signal::HUP);
        until(|| program.says("stillcache: reloaded: nothing has changed\n"));
        // A key of another certificate.
        write_private(&authority.files.key, &authority.issue("localhost").1);
        program.signal(Signal::HUP);
        until(|| program.says("not reloaded: TLS: "));
        assert!(program.says("the key is not that of"));
        assert_eq!(new().1, renewed);
        // Each reading closes its files.
        authority.renew();
        for count in 3..20 {
            program.signal(Signal::HUP);
            until(|| program.count("stillcache: reloaded") == count);
        }
        assert_ne!(new().1, renewed);
        ask(&mut early, b"mn\r\n", b"MN\r\n");
        until(|| program.descriptors().len() == before);
        program.end();
    }

    #[test]
    fn those_that_fail_leave_nothing_but_a_line() {
        let authority = Authority::new();
        let stranger = Authority::new();
        let program = start(&authority);
        let address = program.address();
        let before = program.descriptors().len();
        for _ in 0..50 {
            // It speaks no TLS.
            let mut plain = TcpStream::connect(address).unwrap();
            plain
                .set_read_timeout(Some(Duration::from_secs(60)))
                .unwrap();
            plain.write_all(b"get k\r\n").unwrap();
            let _ = plain.read_to_end(&mut Vec::new());
            // It does not trust this server.
            let mut other = connect(address, stranger.client(false));
            assert!(other.write_all(b"mn\r\n").is_err());
        }
        until(|| program.count("closed: error: TLS: ") == 100);
        assert!(program.says("TLS: received fatal alert"));
        until(|| program.descriptors().len() == before);
        program.end();
    }
}

/// A file for the process's number that cannot be written does not keep it from starting.
#[test]
fn it_serves_and_ends() {
    let program = Program::start(&["-P", "/nonexistent/stillcache.pid"]);
    until(|| program.says("-P /nonexistent/stillcache.pid: "));
    let before = program.descriptors().len();
    let client = program.ask_by_tcp();
    until(|| program.says("new client tcp:"));
    drop(client);
    until(|| program.says("closed: normal\n"));
    until(|| program.descriptors().len() == before);
    program.end();
}

/// Detects a server that does not start where memory pressure cannot be watched, as under a unit whose
/// control group is read-only.
#[test]
fn without_a_file_of_memory_pressure_it_goes_on() {
    let fifo = new_path("pressure");
    make_fifo(&fifo);
    // Returns the line about it, and what the metrics say of the watch.
    let with = |named: &str, payload: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stillcache"));
        command.env("MEMORY_PRESSURE_WATCH", named);
        command.env("MEMORY_PRESSURE_WRITE", payload);
        let mut arguments = vec!["--memory-pressure", "auto"];
        if cfg!(feature = "metrics") {
            arguments.extend(["--metrics", "127.0.0.1:0"]);
        }
        let program = Program::start_by(command, &arguments);
        until(|| program.says("threads\n"));
        let log = program.log.lock().unwrap().clone();
        let watching = log.split_once("metrics at http://").map(|(_, rest)| {
            let address = rest.split('/').next().unwrap();
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
            let mut page = String::new();
            stream.read_to_string(&mut page).unwrap();
            let start = "stillpoint_pressure_watching{";
            let line = page.lines().find(|line| line.starts_with(start));
            line.map(|line| line.rsplit(' ').next().unwrap().to_owned())
        });
        program.end();
        let line = log.lines().find(|line| line.contains("memory-pressure: "));
        (line.expect("a line").to_owned(), watching)
    };
    let exports =
        |watching: Option<&str>| cfg!(feature = "metrics").then(|| watching.map(str::to_owned));
    let watches = format!("stillcache: memory-pressure: watches {}", fifo.display());
    assert_eq!(
        with(fifo.to_str().unwrap(), ""),
        (watches, exports(Some("1")))
    );
    // It was asked for, so an alert may fire.
    let (refused, watching) = with("/nonexistent/file", "");
    assert_eq!(watching, exports(Some("0")));
    let without = "stillcache: memory-pressure: goes on without it: ";
    let why = refused.strip_prefix(without).expect(&refused);
    assert!(why.starts_with("cannot watch /nonexistent/file: "), "{why}");
    // What the operator should look at.
    assert!(why.ends_with("may this process write to it?"), "{why}");
    let (wrong, watching) = with(fifo.to_str().unwrap(), "?");
    assert!(wrong.starts_with(without), "{wrong}");
    assert_eq!(watching, exports(Some("0")));
    let (nothing, watching) = with("/dev/null", "");
    assert_eq!(watching, exports(None));
    assert!(nothing.ends_with("so nothing is watched"), "{nothing}");
    // The control group's file, if there is one.
    let (own, _) = with("", "");
    let tried = own.contains("pressure: watches /") || own.starts_with(without);
    assert!(tried, "{own}");
}

/// Statistics, warnings and SIGHUP report the inherited sockets. Configured places are neither resolved nor
/// required.
#[test]
fn sockets_of_the_service_manager_replace_all_places_to_listen() {
    let (path, config) = (new_path("manager"), new_path("manager.toml"));
    let listen = "[[listen]]\naddress = \"nosuch.invalid\"\ntenant = \"nosuch\"\n";
    fs::write(&config, listen).unwrap();
    let tcp = TcpListener::bind("0.0.0.0:0").unwrap();
    let address = tcp.local_addr().unwrap();
    let mut command = Command::new("sh");
    let run = "LISTEN_FDS=2 LISTEN_PID=$$ exec \"$0\" \"$@\" 3<&0 4<&1 0</dev/null 1>&2";
    command.args(["-c", run, env!("CARGO_BIN_EXE_stillcache")]);
    command.stdin(OwnedFd::from(tcp));
    command.stdout(OwnedFd::from(UnixListener::bind(&path).unwrap()));
    let mut program = Program::start_by(command, &["--config", config.to_str().unwrap()]);
    let ignored = std::mem::replace(&mut program.path, path.clone());
    until(|| program.says("threads\n"));
    assert!(!ignored.exists());
    let warning = format!(
        "listens on {address} without authentication: all who reach it read and write; use -Y FILE, or ListenStream=127.0.0.1:PORT in the socket's unit\n"
    );
    assert!(program.says(&warning));
    let note = "listens only on sockets passed by the service manager; -p, -l, -b, -s, -a, --admin-socket and [[listen]] are ignored\n";
    assert!(program.says(note));
    program.ask_by_tcp();
    let mut client = program.client();
    let port = address.port().to_string();
    assert_eq!(client.stat("settings", "tcpport"), port);
    let shown = client.stat("settings", "domain_socket");
    assert_eq!(shown, path.to_str().unwrap());
    // The file's places do not count, so SIGHUP asks for no restart.
    fs::write(&config, "").unwrap();
    program.signal(Signal::HUP);
    until(|| program.says("stillcache: reloaded: nothing has changed\n"));
    program.ask_by_tcp();
    assert!(!program.says("restart"));
    program.end();
    fs::remove_file(&path).unwrap();
}

#[test]
fn an_inherited_descriptor_that_does_not_listen_is_named() {
    for (redirect, why) in [
        ("3</dev/null", "Socket operation on non-socket"),
        ("3<&-", "Bad file descriptor"),
        ("3<&0", "no stream socket that listens"),
    ] {
        let run = format!("LISTEN_FDS=1 LISTEN_PID=$$ exec \"$0\" {redirect}");
        let mut command = Command::new("sh");
        command.stdin(OwnedFd::from(UdpSocket::bind("127.0.0.1:0").unwrap()));
        command.args(["-c", &run, env!("CARGO_BIN_EXE_stillcache")]);
        let output = command.output().unwrap();
        let says = String::from_utf8(output.stderr).unwrap();
        let start = format!("stillcache: LISTEN_FDS: descriptor 3: {why}");
        assert!(says.starts_with(&start), "{says}");
        assert_eq!(output.status.code(), Some(1));
    }
}

/// Whoever has its standard error does not read it.
#[test]
fn a_log_that_is_not_read_keeps_no_client() {
    let path = new_path("unread");
    let child = Command::new(env!("CARGO_BIN_EXE_stillcache"))
        .args(["-s", path.to_str().unwrap(), "-vv", "-t", "1"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut program = Program {
        child,
        path,
        log: Arc::default(),
    };
    until(|| UnixStream::connect(&program.path).is_ok());
    let mut client = program.client();
    // A line of log each, of which a pipe takes some thousand.
    for _ in 0..400 {
        client.ask(b"mn\r\n".repeat(100), b"MN\r\n".repeat(100));
    }
    program.signal(Signal::TERM);
    assert!(program.child.wait().unwrap().success());
}

/// Tells threads to stop when it is dropped: a test that panics waits for them, too.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What the limit gives back, the system gets, also while clients read and write.
#[test]
fn a_lower_limit_gives_memory_back() {
    const MIB: u64 = 1 << 20;
    let program = Program::start(&["-m", "192", "-o", "admin"]);
    let value = "x".repeat(10_000);
    let set = |client: &mut Client, key: u32| {
        client.set(format!("key{key}"), &value);
    };
    let mut client = program.client();
    let empty = program.resident();
    for key in 0..24_000 {
        set(&mut client, key);
    }
    let full = program.resident();
    assert!(full - empty > 160 * MIB, "{empty} {full}");
    // A client goes on, with keys that are there and others.
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = program.client();
            for key in 0.. {
                set(&mut client, key % 40_000);
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let _stop = StopAtEnd(&stop);
        client.ask("cache_memlimit 96\r\n", "OK\r\n");
        let least = (full - empty) * 55 / 100;
        until(|| program.resident() - empty <= least);
    });
    // To the end, so that no segment is being evicted when the counts start again.
    let goal = 96 * MIB / 64 * 63;
    until(|| client.number("segment_bytes") as u64 <= goal);
    // More fits again at once.
    client.ask("cache_memlimit 192\r\n", "OK\r\n");
    client.ask("stats reset\r\n", "RESET\r\n");
    for key in 100_000..105_000 {
        set(&mut client, key);
    }
    assert_eq!(client.stat("", "evictions"), "0");
    program.end();
}

/// Reading the files again may take long: here, one is a pipe without a writer.
#[test]
fn clients_come_in_while_files_are_read_again() {
    let passwords = new_path("pipe.passwords");
    write_private(&passwords, "u:p\n");
    let program = Program::start(&["-Y", passwords.to_str().unwrap()]);
    fs::remove_file(&passwords).unwrap();
    make_fifo(&passwords);
    program.signal(Signal::HUP);
    for _ in 0..3 {
        let mut client = program.client();
        client.ask("mn\r\n", "CLIENT_ERROR unauthenticated\r\n");
        program.signal(Signal::HUP);
    }
    // Once it is written, they are read.
    fs::write(&passwords, "u:p\n").unwrap();
    until(|| program.says("stillcache: reloaded"));
    program.end();
}

/// A user without a `[[user]]` section would have the default tenant's keys.
#[test]
fn users_who_are_removed_or_have_another_password_leave() {
    let (config, passwords) = (new_path("users.toml"), new_path("users.passwords"));
    let give = |text: &str| write_private(&passwords, text);
    let auth = format!("auth-file = {passwords:?}\n");
    let file = format!(
        "{auth}[[tenant]]\nname = \"guests\"\n[[tenant]]\nname = \"sessions\"\nprefix = [\"session:\"]\n"
    );
    let (main, guest) = (
        "[[user]]\nname = \"main\"\n",
        "[[user]]\nname = \"guest\"\ntenant = \"guests\"\n",
    );
    give("main:main's\nguest:guest's\n");
    fs::write(&config, format!("{file}{main}{guest}")).unwrap();
    let program = Program::start(&["--config", config.to_str().unwrap()]);
    let mut reloads = 0;
    let mut reload = |text: &str| {
        fs::write(&config, text).unwrap();
        program.signal(Signal::HUP);
        reloads += 1;
        until(|| program.count("stillcache: reloaded") == reloads);
    };
    let try_login = |token: &str| {
        let mut client = program.client();
        client.send(format!("set auth 0 0 {}\r\n{token}\r\n", token.len()));
        let answer = client.line();
        (client, answer)
    };
    let login = |token: &str| {
        let (client, answer) = try_login(token);
        assert_eq!(answer, "STORED", "{token}");
        client
    };
    let is_refused = |token: &str| try_login(token).1 == "CLIENT_ERROR authentication failure";
    let mut first = login("main main's");
    first.set("session:1", "secret");
    let mut second = login("guest guest's");
    second.ask("get session:1\r\n", "END\r\n");
    // Its connection ends, though it asks for nothing.
    reload(&format!("{file}{main}"));
    second.ends();
    assert!(is_refused("guest guest's"));
    assert!(program.says("user guest has a password but no [[user]] section"));
    first.ask("mn\r\n", "MN\r\n");
    // The password of another user is of no concern to it, its own is.
    give("main:main's\nguest:new\n");
    reload(&format!("{file}{main}{guest}"));
    first.ask("mn\r\n", "MN\r\n");
    let mut second = login("guest new");
    give("main:new\nguest:new\n");
    reload(&format!("{file}{main}{guest}"));
    first.ends();
    second.ask("mn\r\n", "MN\r\n");
    // Without a section of theirs, or any at all, there is no user, and not two of the default tenant.
    for rest in [&file, &auth] {
        reload(&format!("{file}{main}{guest}"));
        let mut third = login("guest new");
        reload(rest);
        assert!(is_refused("guest new") && is_refused("main new"));
        third.ends();
    }
    program.end();
}

/// Refuses calls with EPERM in the child that `command` starts, as a service manager does.
fn refuse(command: &mut Command, calls: Vec<libc::c_long>) {
    use std::os::unix::process::CommandExt;
    let one = |code: u32, jt, jf, k| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    // The number of a call is the first word of what a filter sees.
    let mut program = vec![one(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0)];
    for call in calls {
        program.push(one(libc::BPF_JMP | libc::BPF_JEQ, 0, 1, call as u32));
        let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
        program.push(one(libc::BPF_RET, 0, 0, refused));
    }
    program.push(one(libc::BPF_RET, 0, 0, libc::SECCOMP_RET_ALLOW));
    let put = move || {
        let filter = libc::sock_fprog {
            len: program.len() as u16,
            filter: program.as_mut_ptr(),
        };
        let (yes, none): (libc::c_ulong, libc::c_ulong) = (1, 0);
        let mode = libc::SECCOMP_MODE_FILTER as libc::c_ulong;
        // SAFETY: the kernel copies the program, which is as long as said and outlives the calls.
        let put = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, yes, none, none, none) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const filter, none, none) == 0
        };
        match put {
            true => Ok(()),
            false => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: it makes two system calls, and allocates nothing.
    unsafe { command.pre_exec(put) };
}

/// The unit's filter allows what `-o drop_privileges` needs: systemd 252 has it in no group of calls.
#[test]
fn privileges_are_dropped_under_the_units_filter() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/stillcache");
    let Ok(unit) = fs::read_to_string(format!("{folder}/stillcache.service")) else {
        // The package on crates.io has no unit.
        return;
    };
    let filters = unit
        .lines()
        .filter_map(|line| line.strip_prefix("SystemCallFilter="));
    let allowed: Vec<_> = filters
        .filter(|filter| !filter.starts_with('~'))
        .flat_map(str::split_whitespace)
        .collect();
    // What the program calls of what @system-service lacks.
    let lacking = [
        ("membarrier", libc::SYS_membarrier),
        ("seccomp", libc::SYS_seccomp),
    ];
    let refused = lacking.iter().filter(|(name, _)| !allowed.contains(name));
    let refused: Vec<_> = refused.map(|(_, number)| *number).collect();
    let start = |refused| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stillcache"));
        refuse(&mut command, refused);
        Program::start_by(command, &["-o", "drop_privileges"])
    };
    let program = start(refused);
    until(|| program.says("threads\n"));
    program.end();
    // Without it, the program says what to do.
    let mut program = start(vec![libc::SYS_seccomp]);
    assert!(!program.child.wait().unwrap().success());
    until(|| program.says("allow `seccomp`"));
}

/// With that option it serves, reloads and ends, and each of its threads has the filter.
#[test]
fn without_privileges_it_serves() {
    let path = new_path("dropped.toml");
    fs::write(&path, "[[tenant]]\nname = \"first\"\n").unwrap();
    let arguments = ["-o", "admin", "--config", path.to_str().unwrap()];
    let filters = |program: &Program| {
        let threads = fs::read_dir(format!("/proc/{}/task", program.child.id())).unwrap();
        // One that has ended has no such file.
        let status = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("status")).ok();
        let number = |status: String| -> u32 {
            let rest = status.split_once("\nSeccomp_filters:\t");
            let (_, rest) = rest.expect("Seccomp_filters");
            rest.lines().next().unwrap().parse().unwrap()
        };
        let numbers = threads.flatten().filter_map(status).map(number);
        numbers.collect::<BTreeSet<_>>()
    };
    // What this process has been started with, if anything.
    let other = Program::start(&arguments);
    let before = filters(&other);
    assert!(!before.is_empty());
    other.end();
    let program = Program::start(&[&arguments[..], &["-o", "drop_privileges"]].concat());
    assert_eq!(
        filters(&program),
        before.iter().map(|number| number + 1).collect()
    );
    program.ask_by_tcp();
    let mut client = program.client();
    client.set("k", "v");
    client.ask("get k\r\n", "VALUE k 0 1\r\nv\r\nEND\r\n");
    // What needs files, threads and a new tenant goes on.
    fs::write(&path, "[[tenant]]\nname = \"second\"\n").unwrap();
    program.signal(Signal::HUP);
    until(|| program.count("stillcache: reloaded") == 1);
    let tenants = client.lines("tenant list");
    assert!(tenants[2].starts_with("TENANT second "), "{tenants:?}");
    program.ask_by_tcp();
    program.end();
}

/// For `stillpoint-top`.
#[test]
fn it_publishes_statistics_unless_it_is_told_not_to() {
    let path = new_path("statistics.toml");
    for (text, pages) in [("", 1), ("statistics = true", 1), ("statistics = false", 0)] {
        fs::write(&path, text).unwrap();
        let program = Program::start(&["--config", path.to_str().unwrap()]);
        let is_page = |to: &&PathBuf| to.to_string_lossy().starts_with("/memfd:stillpoint-stats");
        let descriptors = program.descriptors();
        assert_eq!(descriptors.iter().filter(is_page).count(), pages, "{text}");
        program.end();
    }
}
