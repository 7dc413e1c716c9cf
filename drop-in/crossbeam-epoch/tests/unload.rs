//! A library that contains the package is closed: its threads may run on for a while. `cargo test
//! --test unload -- --ignored` in this folder.
#![cfg(all(target_os = "linux", not(miri)))]

mod common;

use std::{
    ffi::CString,
    fs,
    os::unix::ffi::OsStrExt,
    path::Path,
    process::Command,
    sync::atomic::{AtomicUsize, Ordering},
};

const LIBRARY: &str = r#"
use std::sync::atomic::{AtomicUsize, Ordering};

/// Defers a function that increments the caller's word.
#[unsafe(no_mangle)]
pub extern "C" fn defer_one(count: &'static AtomicUsize) {
    crossbeam_epoch::pin().defer(move || count.fetch_add(1, Ordering::Release));
}
"#;

#[test]
#[ignore = "compiles a library"]
fn a_library_that_is_closed_stays_mapped() {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = here.join("../../target/unload");
    fs::create_dir_all(folder.join("src")).unwrap();
    fs::write(folder.join("src/lib.rs"), LIBRARY).unwrap();
    let manifest = format!(
        "[package]\nname = \"unload\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n[lib]\ncrate-type = [\"cdylib\"]\n\
         [dependencies]\ncrossbeam-epoch = {{ path = {here:?} }}\n"
    );
    fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    let built = Command::new("cargo")
        .args(["build", "--quiet", "--target-dir"])
        .arg(folder.join("target"))
        .current_dir(&folder)
        .status();
    assert!(built.unwrap().success());
    let library = folder.join("target/debug/libunload.so");
    let name = CString::new(library.as_os_str().as_bytes()).unwrap();
    let threads = || fs::read_dir("/proc/self/task").unwrap().count();
    let before = threads();
    // On a separate thread: thread-local objects keep the library mapped while their thread runs.
    let use_it = move || {
        // SAFETY: the library was built above, and its function has this type.
        unsafe {
            let library = libc::dlopen(name.as_ptr(), libc::RTLD_NOW);
            assert!(!library.is_null());
            let symbol = libc::dlsym(library, c"defer_one".as_ptr());
            assert!(!symbol.is_null());
            let defer_one: extern "C" fn(&'static AtomicUsize) = std::mem::transmute(symbol);
            defer_one(&COUNT);
            library.expose_provenance()
        }
    };
    let library = std::thread::spawn(use_it).join().unwrap();
    common::wait_until(|| COUNT.load(Ordering::Acquire) == 1);
    // The library's own thread has nothing to do, and ends.
    common::wait_until(|| threads() == before);
    // SAFETY: opened above, and closed once.
    let closed = unsafe { libc::dlclose(std::ptr::with_exposed_provenance_mut(library)) };
    assert_eq!(closed, 0);
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    assert!(maps.contains("libunload"), "what a thread may be in stays");
}
