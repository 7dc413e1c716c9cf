//! Memory pressure, in all forms of the protocol, with real files of each kind.
#![cfg(all(target_os = "linux", not(miri)))]

mod common;

use common::{eventually, returns};
use std::{
    ffi::{CString, OsStr},
    fs::{self, OpenOptions},
    io::{Read, Write},
    os::unix::{ffi::OsStrExt, net::UnixListener},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};
use stillpoint::list_lru::{Charge, Entry, Hierarchy, Isolate, ListLru, Pressure, PressureError, PressureWatch, Scope, Shrink};

struct Cache(ListLru<Charge>);

impl Shrink for Cache {
    fn count(&self, scope: &Scope<'_>) -> usize {
        self.0.count_one(scope.tenant, scope.node)
    }

    fn scan(&self, scope: &Scope<'_>, objects: usize) -> Option<usize> {
        Some(self.0.walk_one(scope.tenant, scope.node, objects, |_| Isolate::Removed))
    }

    fn batch(&self) -> usize {
        8
    }
}

/// A cache with a thousand objects of a kilobyte, a folder for files, and who watches.
struct World {
    cache: Arc<Cache>,
    hierarchy: Hierarchy,
    folder: PathBuf,
    passes: Arc<AtomicUsize>,
}

impl World {
    fn new(name: &str) -> Self {
        let hierarchy = Hierarchy::new();
        let cache = Arc::new(Cache(ListLru::for_tenants(&hierarchy)));
        // For ever: these are tests.
        let registration = hierarchy.register(Arc::clone(&cache)).unwrap();
        registration.covers(&cache.0);
        std::mem::forget(registration);
        let folder = std::env::temp_dir().join(format!("stillpoint-pressure-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let world = Self { cache, hierarchy, folder, passes: Arc::default() };
        world.fill();
        world
    }

    fn fill(&self) {
        while self.hierarchy.root().usage() < 1_000_000 {
            let charge = self.hierarchy.root().charge(1_000).unwrap();
            assert!(self.cache.0.add(None, Arc::new(Entry::new(charge))));
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
        watch.target(500_000).after_pass(after).start(&self.hierarchy)
    }

    /// Waits for a pass, which must have reached its target.
    fn relieved(&self, pressure: &Pressure, events: u64) {
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

fn make_fifo(path: &Path) {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: a text that ends in 0.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
}

#[test]
fn a_fifo() {
    let world = World::new("fifo");
    let path = world.path("fifo");
    make_fifo(&path);
    let pressure = world.start(PressureWatch::new(&path)).unwrap();
    assert!(pressure.is_watching());
    for round in 1..4 {
        // A writer that comes and goes.
        OpenOptions::new().write(true).open(&path).unwrap().write_all(&[b'x'; 10_000]).unwrap();
        world.relieved(&pressure, round);
        world.fill();
    }
    assert!(pressure.is_watching());
    returns(move || drop(pressure));
    let before = world.cache.0.count();
    OpenOptions::new().read(true).write(true).open(&path).unwrap().write_all(b"x").unwrap();
    assert_eq!(world.cache.0.count(), before, "nobody watches any more");
}

#[test]
fn a_socket_that_closes_and_comes_back() {
    let world = World::new("socket");
    let path = world.path("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let write = "c29tZSAyMDAwMDAgMjAwMDAwMAA=";
    let watch = PressureWatch::from_variables(Some(path.as_os_str()), Some(OsStr::new(write))).unwrap().unwrap();
    let pressure = world.start(watch).unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    let mut payload = [0; 20];
    peer.read_exact(&mut payload).unwrap();
    assert_eq!(&payload, b"some 200000 2000000\0");
    peer.write_all(b"now").unwrap();
    world.relieved(&pressure, 1);
    // The peer goes, and then everything does.
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
    world.relieved(&pressure, before + 1);
    returns(move || drop(pressure));
}

#[test]
fn the_kernels_file() {
    let world = World::new("psi");
    if !Path::new("/proc/pressure/memory").exists() {
        println!("no /proc/pressure/memory here: left out");
        return;
    }
    // There may be no pressure; the kernel's answers to what is written are real.
    match world.start(PressureWatch::system()) {
        Ok(pressure) => {
            assert!(pressure.is_watching());
            returns(move || drop(pressure));
        }
        Err(PressureError::Refused { source, .. }) => println!("the kernel refuses a watch here: {source}"),
        Err(error) => panic!("{error}"),
    }
    let error = world.start(PressureWatch::new("/proc/pressure/memory").payload(*b"nonsense\0")).unwrap_err();
    assert!(matches!(error, PressureError::Refused { .. }), "{error}");
}

#[test]
fn what_is_not_watched() {
    let world = World::new("off");
    assert!(PressureWatch::from_variables(None, None).unwrap().is_none());
    assert!(PressureWatch::from_variables(Some(OsStr::new("")), None).unwrap().is_none());
    assert!(PressureWatch::from_variables(Some(OsStr::new("/dev/null")), None).unwrap().is_none());
    let pressure = world.start(PressureWatch::new("/dev/null")).unwrap();
    assert!(!pressure.is_watching());
    drop(pressure);

    let refused = |watch: PressureWatch, says: &str| {
        let error = world.start(watch).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    };
    refused(PressureWatch::new(world.path("nothing")), "is it there");
    refused(PressureWatch::new("/dev/zero"), "no pressure file");
    refused(PressureWatch::new(&world.folder), "no pressure file");
    fs::write(world.path("plain"), "").unwrap();
    refused(PressureWatch::new(world.path("plain")), "no pressure file");
    drop(UnixListener::bind(world.path("deaf")).unwrap());
    refused(PressureWatch::new(world.path("deaf")), "cannot watch");
    let error = PressureWatch::from_variables(Some(OsStr::new("/tmp/x")), Some(OsStr::new("?"))).unwrap_err();
    assert!(matches!(error, PressureError::Payload) && error.to_string().contains("base64"));
}

#[test]
fn a_watch_that_is_dropped_after_a_pass_and_one_that_panics() {
    let world = World::new("rude");
    let path = world.path("fifo");
    make_fifo(&path);
    let kept: Arc<Mutex<Option<Pressure>>> = Arc::default();
    let (own, calls) = (Arc::clone(&kept), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&calls);
    let after = move |_: &_| {
        if counted.fetch_add(1, Ordering::SeqCst) == 0 {
            panic!("expected");
        }
        drop(own.lock().unwrap().take());
    };
    *kept.lock().unwrap() = Some(PressureWatch::new(&path).after_pass(after).start(&world.hierarchy).unwrap());
    let mut writer = OpenOptions::new().write(true).open(&path).unwrap();
    writer.write_all(b"x").unwrap();
    eventually(|| calls.load(Ordering::SeqCst) == 1);
    writer.write_all(b"x").unwrap();
    eventually(|| kept.lock().unwrap().is_none());
}

#[test]
fn by_hand() {
    let world = World::new("hand");
    let relieved = world.hierarchy.relieve();
    assert!(relieved.objects > 0 && relieved.bytes >= 250_000, "{relieved:?}");
    assert!(world.hierarchy.root().usage() >= 700_000, "a quarter, not everything");
    world.hierarchy.relieve_to(0);
    assert_eq!((world.hierarchy.root().usage(), world.cache.0.count()), (0, 0));
}

#[test]
fn a_peer_that_tells_and_goes_is_heard() {
    let world = World::new("goes");
    let path = world.folder.join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let watch = PressureWatch::new(&path).start(&world.hierarchy).unwrap();
    for number in 1..=3 {
        let (mut peer, _) = listener.accept().unwrap();
        peer.write_all(b"x").unwrap();
        drop(peer);
        eventually(|| watch.events() >= number);
    }
}

#[test]
fn a_watch_ends_though_a_child_of_a_fork_lives() {
    let world = World::new("forks");
    let path = world.folder.join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let watch = PressureWatch::new(&path).start(&world.hierarchy).unwrap();
    let _peer = listener.accept().unwrap();
    // SAFETY: the child does nothing but sleep until it is killed.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        loop {
            // SAFETY: as above.
            unsafe { libc::pause() };
        }
    }
    returns(move || drop(watch));
    // SAFETY: our own child.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
}
