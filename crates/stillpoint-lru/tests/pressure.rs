//! Memory pressure, in all forms of the protocol, with real files of each kind.
#![cfg(all(target_os = "linux", not(miri)))]

mod setup;

use setup::{
    Cache,
    common::{self, eventually, expected_panic, returns},
};
use std::{
    ffi::{CString, OsStr},
    fs::{self, OpenOptions},
    io::{ErrorKind, Read, Write},
    os::{
        fd::AsRawFd,
        unix::{
            ffi::OsStrExt,
            fs::OpenOptionsExt,
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use stillpoint_lru::{
    Hierarchy, Pressure, PressureError, PressureWatch, Registration, Scope, Shrink,
};

/// A cache with a thousand objects of a kilobyte, a folder for files, and the watch.
struct World {
    cache: Arc<Cache>,
    hierarchy: Hierarchy,
    folder: PathBuf,
    passes: Arc<AtomicUsize>,
}

impl World {
    fn new(name: &str) -> Self {
        let hierarchy = Hierarchy::new();
        let (cache, registration) = Cache::new(&hierarchy, 8);
        // Stays registered.
        std::mem::forget(registration);
        let folder =
            std::env::temp_dir().join(format!("stillpoint-pressure-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let world = Self {
            cache,
            hierarchy,
            folder,
            passes: Arc::default(),
        };
        world.fill();
        world
    }

    fn fill(&self) {
        while self.hierarchy.root().usage() < 1_000_000 {
            self.cache.insert(self.hierarchy.root(), 1_000).unwrap();
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn start(&self, watch: PressureWatch) -> Result<Pressure, PressureError> {
        let passes = Arc::clone(&self.passes);
        let after = move |_: &_| {
            passes.fetch_add(1, Ordering::SeqCst);
        };
        watch
            .target(500_000)
            .after_pass(after)
            .start(&self.hierarchy)
    }

    /// Waits for a pass, which must have reached its target.
    fn wait_for_pass(&self, pressure: &Pressure, events: u64) {
        eventually(|| pressure.events() >= events);
        assert!(self.passes.load(Ordering::SeqCst) >= events as usize);
        assert!(self.hierarchy.root().usage() <= 500_000);
        assert!(pressure.objects() > 0);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn with_fifo(name: &str) -> (World, PathBuf) {
    let world = World::new(name);
    let path = world.path("fifo");
    let name = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: a text that ends in 0.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    (world, path)
}

fn with_socket(name: &str) -> (World, PathBuf, UnixListener) {
    let world = World::new(name);
    let path = world.path("socket");
    let listener = UnixListener::bind(&path).unwrap();
    (world, path, listener)
}

#[test]
fn fifo() {
    let (world, path) = with_fifo("fifo");
    let pressure = world.start(PressureWatch::new(&path)).unwrap();
    assert!(pressure.is_watching());
    for round in 1..4 {
        // A writer that comes and goes.
        fs::write(&path, [b'x'; 10_000]).unwrap();
        world.wait_for_pass(&pressure, round);
        world.fill();
    }
    assert!(pressure.is_watching());
    let shown = format!("{pressure:?}");
    assert!(
        shown.starts_with("Pressure { watching: true, events: "),
        "{shown}"
    );
    assert!(shown.ends_with("panics: 0 }"), "no internals: {shown}");
    returns(move || drop(pressure));
    let before = world.cache.lru.count();
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap()
        .write_all(b"x")
        .unwrap();
    assert_eq!(world.cache.lru.count(), before, "nothing watches any more");
}

#[test]
fn socket_that_closes_and_reopens() {
    let (world, path, listener) = with_socket("socket");
    let write = "c29tZSAyMDAwMDAgMjAwMDAwMAA=";
    let watch = PressureWatch::from_variables(Some(path.as_os_str()), Some(OsStr::new(write)))
        .unwrap()
        .unwrap();
    let pressure = world.start(watch).unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    let mut payload = [0; 20];
    peer.read_exact(&mut payload).unwrap();
    assert_eq!(&payload, b"some 200000 2000000\0");
    peer.write_all(b"now").unwrap();
    world.wait_for_pass(&pressure, 1);
    // The peer goes, and then the listener and the file.
    drop(peer);
    let (peer, _) = listener.accept().unwrap();
    drop((peer, listener));
    fs::remove_file(&path).unwrap();
    eventually(|| !pressure.is_watching());
    world.fill();
    let listener = UnixListener::bind(&path).unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    eventually(|| pressure.is_watching());
    let before = pressure.events();
    peer.write_all(b"again").unwrap();
    world.wait_for_pass(&pressure, before + 1);
    returns(move || drop(pressure));
}

#[test]
fn psi_file() {
    let world = World::new("psi");
    if !Path::new("/proc/pressure/memory").exists() {
        println!("no /proc/pressure/memory here: left out");
        return;
    }
    // There may be no pressure, but the kernel checks what is written.
    match world.start(PressureWatch::system()) {
        Ok(pressure) => {
            assert!(pressure.is_watching());
            returns(move || drop(pressure));
        }
        Err(PressureError::Refused { source, .. }) => {
            println!("the kernel refuses a watch here: {source}")
        }
        Err(error) => panic!("{error}"),
    }
    let error = world
        .start(PressureWatch::new("/proc/pressure/memory").payload(*b"nonsense\0"))
        .unwrap_err();
    assert!(matches!(error, PressureError::Refused { .. }), "{error}");
}

#[test]
fn unwatchable_files() {
    let world = World::new("off");
    for file in [None, Some(""), Some("/dev/null")] {
        let watch = PressureWatch::from_variables(file.map(OsStr::new), None);
        assert!(watch.unwrap().is_none(), "{file:?}");
    }
    let pressure = world.start(PressureWatch::new("/dev/null")).unwrap();
    assert!(!pressure.is_watching());
    drop(pressure);

    let refused = |watch: PressureWatch, says: &str| {
        let error = world.start(watch).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    };
    refused(PressureWatch::new(world.path("nothing")), "is it there");
    refused(PressureWatch::new("/dev/zero"), "neither a pressure file");
    refused(PressureWatch::new(&world.folder), "neither a pressure file");
    fs::write(world.path("plain"), "").unwrap();
    let plain = PressureWatch::new(world.path("plain"));
    refused(plain, "neither a pressure file");
    drop(UnixListener::bind(world.path("deaf")).unwrap());
    refused(PressureWatch::new(world.path("deaf")), "cannot watch");
    let error = PressureWatch::from_variables(Some(OsStr::new("/tmp/x")), Some(OsStr::new("?")))
        .unwrap_err();
    assert!(matches!(error, PressureError::Payload) && error.to_string().contains("base64"));
}

#[test]
fn dropped_watch_and_panicking_callback() {
    let (world, path) = with_fifo("rude");
    let kept: Arc<Mutex<Option<Pressure>>> = Arc::default();
    let (own, calls) = (Arc::clone(&kept), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&calls);
    let after = move |_: &_| {
        if counted.fetch_add(1, Ordering::SeqCst) == 0 {
            expected_panic();
        }
        drop(own.lock().unwrap().take());
    };
    *kept.lock().unwrap() = Some(
        PressureWatch::new(&path)
            .after_pass(after)
            .start(&world.hierarchy)
            .unwrap(),
    );
    let mut writer = OpenOptions::new().write(true).open(&path).unwrap();
    writer.write_all(b"x").unwrap();
    eventually(|| {
        kept.lock()
            .unwrap()
            .as_ref()
            .is_some_and(|watch| watch.events() == 1)
    });
    assert_eq!(
        kept.lock()
            .unwrap()
            .as_ref()
            .map(|watch| (watch.panics(), watch.is_watching())),
        Some((1, true))
    );
    writer.write_all(b"x").unwrap();
    eventually(|| kept.lock().unwrap().is_none());
}

#[test]
fn peer_that_writes_and_closes() {
    let (world, path, listener) = with_socket("goes");
    let watch = PressureWatch::new(&path).start(&world.hierarchy).unwrap();
    for number in 1..=3 {
        let (mut peer, _) = listener.accept().unwrap();
        peer.write_all(b"x").unwrap();
        drop(peer);
        eventually(|| watch.events() >= number);
    }
}

#[test]
fn watch_ends_while_a_child_of_fork_lives() {
    let (world, path, listener) = with_socket("forks");
    let watch = PressureWatch::new(&path).start(&world.hierarchy).unwrap();
    let _peer = listener.accept().unwrap();
    // SAFETY: the child does nothing but sleep until it is killed.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        while !watch.is_watching() {
            // SAFETY: as above.
            unsafe { libc::pause() };
        }
        // SAFETY: ends the process, which would watch where only its parent may.
        unsafe { libc::_exit(1) };
    }
    returns(move || drop(watch));
    let mut status = 0;
    // SAFETY: our own child.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, &raw mut status, 0);
    }
    assert!(
        libc::WIFSIGNALED(status),
        "the child was told that it watches"
    );
}

/// Returns the number of bytes in a FIFO.
fn queued(file: &fs::File) -> i32 {
    let mut bytes = 0;
    assert_eq!(
        // SAFETY: a place for the number.
        unsafe { libc::ioctl(file.as_raw_fd(), libc::FIONREAD, &raw mut bytes) },
        0
    );
    bytes
}

const PAYLOAD: &[u8] = b"some 200000 2000000\0";

/// Only the watch reads the FIFO, and would read its own payload.
#[test]
fn fifo_without_reader_gets_no_payload() {
    let (world, path) = with_fifo("echo");
    let pressure = world
        .start(PressureWatch::new(&path).payload(PAYLOAD))
        .unwrap();
    let mut writer = OpenOptions::new().write(true).open(&path).unwrap();
    eventually(|| queued(&writer) == 0);
    for passes in 1..=3 {
        writer.write_all(b"x").unwrap();
        eventually(|| queued(&writer) == 0 && pressure.events() >= passes);
    }
    returns(move || drop(pressure));
    assert_eq!(world.passes.load(Ordering::SeqCst), 3, "one for each byte");
}

#[test]
fn fifo_payload_is_left_to_the_reader() {
    let (world, path) = with_fifo("other");
    let mut other = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(&path)
        .unwrap();
    let pressure = world
        .start(PressureWatch::new(&path).payload(PAYLOAD))
        .unwrap();
    // In one piece: a reader that has no processor for a tenth of a second after a piece loses the rest.
    let mut bytes = [0; PAYLOAD.len()];
    eventually(|| other.read_exact(&mut bytes).is_ok());
    assert_eq!(bytes, PAYLOAD);
    other.write_all(b"x").unwrap();
    world.wait_for_pass(&pressure, 1);
    returns(move || drop(pressure));
    assert_eq!(world.passes.load(Ordering::SeqCst), 1);
}

/// Fills the listener's backlog by starting watches until one is refused, and returns them.
fn fill_backlog(path: &Path) -> Vec<Pressure> {
    let path = path.to_owned();
    returns(move || {
        let (hierarchy, mut waiting) = (Hierarchy::new(), Vec::new());
        loop {
            match PressureWatch::new(&path).start(&hierarchy) {
                Ok(watch) => waiting.push(watch),
                Err(PressureError::Refused { source, .. })
                    if source.kind() == ErrorKind::WouldBlock =>
                {
                    return waiting;
                }
                Err(error) => panic!("{error}"),
            }
        }
    })
}

#[test]
fn full_backlog_does_not_block() {
    let (world, path, listener) = with_socket("backlog");
    // SAFETY: our own socket.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 1) }, 0);
    let watches = [(); 2].map(|()| world.start(PressureWatch::new(&path)).unwrap());
    let peers = watches.each_ref().map(|_| listener.accept().unwrap().0);
    let waiting = fill_backlog(&path);
    let error = world
        .start(PressureWatch::new(&path))
        .unwrap_err()
        .to_string();
    assert!(error.contains("start again"), "{error}");
    // Their peers go, and the watches connect again.
    drop(peers);
    eventually(|| watches.iter().all(|watch| !watch.is_watching()));
    // Time for some attempts; their number does not matter.
    thread::sleep(Duration::from_millis(1_500));
    let [first, second] = watches;
    returns(move || drop(first));
    assert!(!second.is_watching());
    // The backlog has room again, and the watch takes it.
    let mut accepted: Vec<UnixStream> = waiting
        .iter()
        .map(|_| listener.accept().unwrap().0)
        .collect();
    drop(waiting);
    accepted.push(listener.accept().unwrap().0);
    eventually(|| second.is_watching());
    accepted.last_mut().unwrap().write_all(b"x").unwrap();
    world.wait_for_pass(&second, 1);
    returns(move || drop(second));
}

#[test]
fn passes_are_rate_limited() {
    let (world, path, listener) = with_socket("flood");
    let began = Instant::now();
    let pressure = world.start(PressureWatch::new(&path)).unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _over = common::Over(&over);
        scope.spawn(|| {
            peer.set_write_timeout(Some(Duration::from_millis(10)))
                .unwrap();
            while !over.load(Ordering::SeqCst) {
                let _ = peer.write(b"x");
            }
        });
        // A watch that has no processor for a tenth of a second puts no pass off.
        eventually(|| pressure.events() >= 4 && pressure.coalesced() >= 3);
    });
    returns(move || drop(pressure));
    // The first pass came at once; the bound grows with the time.
    let (passes, most) = (
        world.passes.load(Ordering::SeqCst),
        began.elapsed().as_millis() / 100 + 1,
    );
    assert!(passes as u128 <= most, "{passes} of at most {most}");
}

/// A shrinker that ends its registration in its first call, and panics there and in its destructor,
/// which the pass runs.
struct Leaving(Mutex<Option<Registration>>);

impl Shrink for Leaving {
    fn count(&self, _scope: &Scope<'_>) -> usize {
        self.0.lock().unwrap().take();
        expected_panic();
    }

    fn scan(&self, _scope: &Scope<'_>, _objects: usize) -> Option<usize> {
        None
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        expected_panic();
    }
}

#[test]
fn watch_survives_panicking_shrinkers() {
    let (world, path) = with_fifo("shrinkers");
    let pressure = world.start(PressureWatch::new(&path)).unwrap();
    for round in 1..4 {
        let leaving = Arc::new(Leaving(Mutex::new(None)));
        let registration = world.hierarchy.register(Arc::clone(&leaving)).unwrap();
        *leaving.0.lock().unwrap() = Some(registration);
        let weak = Arc::downgrade(&leaving);
        drop(leaving);
        fs::write(&path, b"x").unwrap();
        world.wait_for_pass(&pressure, round);
        eventually(|| weak.strong_count() == 0);
        world.fill();
    }
    assert_eq!((pressure.panics(), pressure.is_watching()), (0, true));
    returns(move || drop(pressure));
}
