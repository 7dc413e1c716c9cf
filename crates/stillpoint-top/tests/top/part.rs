//! The parts that processes play which are looked at.

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::{
    env,
    fs::File,
    io::{self, BufRead, BufReader, Read, Write},
    mem,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::{fs::FileExt, process::CommandExt},
    },
    process::{Child, ChildStdout, Command, Stdio},
    thread,
    time::Duration,
};
use stillpoint::Domain;
use stillpoint_platform::stats::layout::{self, BYTES, WORD, head, slot};

const VARIABLE: &str = "STILLPOINT_TEST_PART";
const READY: &str = "it plays";

/// A process that plays a part until this is dropped.
pub struct Part {
    child: Child,
    /// Open until it has ended, so that it can print.
    output: BufReader<ChildStdout>,
}

impl Part {
    /// Returns when it may be looked at.
    pub fn start(part: &str) -> Self {
        Self::try_start(part).expect("it plays")
    }

    /// The same; `None` if it cannot play this part here.
    pub fn try_start(part: &str) -> Option<Self> {
        let mut command = Command::new(env::current_exe().expect("the test program"));
        command
            .args(["a_process_that_is_looked_at", "--exact", "--nocapture"])
            .env(VARIABLE, part)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let mut output = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut lines = output.by_ref().lines();
        let plays = lines.any(|line| line.expect("it is text").ends_with(READY));
        let part = Self { child, output };
        plays.then_some(part)
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = io::copy(&mut self.output, &mut io::sink());
        let _ = self.child.wait();
    }
}

/// Plays the part that this process was started for, if any, until its standard input ends.
pub fn play() {
    let Ok(part) = env::var(VARIABLE) else { return };
    let _kept = match &*part {
        "silent" => Vec::new(),
        "stuck" => return stuck(),
        "capable" => return capable(),
        "short" => vec![file(&[], 4096, true)],
        "unsealed" => vec![file(&[], BYTES, false)],
        "zeros" => vec![file(&[], BYTES, true)],
        "version" => vec![changed(|bytes| put(bytes, head::VERSION, 7))],
        "inherited" => vec![changed(|bytes| put(bytes, head::PID, 1))],
        "many" => {
            let page = changed(|bytes| put(bytes, head::PID, 1));
            let more = (0..20).map(|_| page.try_clone().expect("there are descriptors"));
            more.collect()
        }
        "escapes" => vec![changed(|bytes| {
            let name = (layout::slot_at(0) + slot::NAME) * WORD;
            bytes[name..][..8].copy_from_slice(b"\x1b[2J\x07\x9b\0\0");
        })],
        "leased" => {
            let page = changed(|_| ());
            // The kernel grants it to a descriptor that only reads.
            let reads = File::open(format!("/proc/self/fd/{}", page.as_raw_fd()));
            let reads = reads.expect("it is ours");
            // SAFETY: the signal of a lease's end is ignored.
            unsafe { libc::signal(libc::SIGIO, libc::SIG_IGN) };
            // Another test may be looking at it.
            // SAFETY: our own file.
            while unsafe { libc::fcntl(reads.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) } != 0 {
                assert_eq!(io::Error::last_os_error().kind(), io::ErrorKind::WouldBlock);
                thread::sleep(Duration::from_millis(1));
            }
            vec![page, reads.into()]
        }
        other => panic!("there is no part '{other}'"),
    };
    wait();
}

/// Says that it may be looked at, and waits for the end.
fn wait() {
    println!("{READY}");
    io::stdout().flush().expect("the test reads it");
    let _ = io::stdin().read(&mut [0]);
}

fn stuck() {
    stillpoint::publish_statistics().expect("the system has memory files");
    let routes = Domain::builder().name("routes").budget(1 << 20).build();
    drop(routes.read_lock());
    let reader = routes.clone();
    thread::spawn(move || drop(reader.read_lock()))
        .join()
        .expect("it does not panic");
    // One in 128 is timed.
    for _ in 0..1000 {
        let cookie = routes.start_poll();
        routes.cond_synchronize(cookie);
    }
    let stuck = Domain::builder().name("stuck").build();
    stuck.set_stall_timeout(Duration::from_millis(10));
    let (tell, told) = std::sync::mpsc::channel();
    stuck.on_stall(move |_| tell.send(()).unwrap_or(()));
    let (theirs, (entered, has_entered)) = (stuck.clone(), std::sync::mpsc::channel());
    let sleeper = thread::Builder::new().name("sleeper".to_owned());
    let sleeper = sleeper.spawn(move || {
        mem::forget(theirs.read_lock());
        entered.send(()).expect("it waits");
        loop {
            thread::park();
        }
    });
    mem::forget(sleeper.expect("there are threads"));
    has_entered.recv().expect("a reader never waits");
    stuck.call(|| ());
    told.recv().expect("a stall is reported");
    wait();
    std::process::exit(0);
}

/// Of another user, with a capability that other processes of that user lack.
fn capable() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let mut command = Command::new("setpriv");
    let capable = ["--inh-caps=+chown", "--ambient-caps=+chown"];
    let program = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    command.args(program).args(capable);
    // The same process: its number is known.
    let error = command
        .args(["sh", "-c", &format!("echo {READY}; exec cat > /dev/null")])
        .exec();
    panic!("there is no setpriv: {error}");
}

/// A page of this process with changes, in its own file.
fn changed(change: impl FnOnce(&mut Vec<u8>)) -> OwnedFd {
    stillpoint::publish_statistics().expect("the system has memory files");
    let is_page = |entry: &std::fs::DirEntry| {
        let to = std::fs::read_link(entry.path());
        to.is_ok_and(|to| to.to_string_lossy().starts_with("/memfd:stillpoint-stats"))
    };
    let mut bytes = vec![0; 1 << 20];
    let mut number = None;
    for entry in std::fs::read_dir("/proc/self/fd")
        .expect("there is /proc")
        .flatten()
    {
        if is_page(&entry) && number.is_none() {
            let page = File::open(entry.path()).expect("it is ours");
            page.read_exact_at(&mut bytes, 0).expect("it is there");
            number = entry.file_name().to_string_lossy().parse::<i32>().ok();
        }
    }
    let page = number.expect("it is published");
    change(&mut bytes);
    // SAFETY: a program may close it; nothing here uses it.
    unsafe { libc::close(page) };
    file(&bytes, BYTES, true)
}

fn put(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at * WORD..][..WORD].copy_from_slice(&value.to_ne_bytes());
}

/// A memory file that is called like a page.
fn file(bytes: &[u8], len: usize, is_sealed: bool) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create(layout::NAME, flags).expect("the system has memory files");
    ftruncate(&file, len as u64).expect("it may grow");
    let file = File::from(file);
    file.write_all_at(bytes, 0).expect("there is memory");
    if is_sealed {
        let seals = SealFlags::SHRINK | SealFlags::GROW;
        fcntl_add_seals(&file, seals).expect("it may be sealed");
    }
    file.into()
}
