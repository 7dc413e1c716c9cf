//! Files and sockets of a test program, in a folder that goes with its process.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{
        LazyLock,
        atomic::{AtomicU32, Ordering},
    },
};

static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    extern "C" fn remove() {
        let _ = fs::remove_dir_all(&*FOLDER);
    }
    let name = format!("stillcache-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    // One of a process that was killed.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).unwrap();
    // SAFETY: the function unwinds nowhere, and uses what stays until the process has ended.
    unsafe { libc::atexit(remove) };
    folder
});

/// A path that no other test has.
pub fn new_path(name: &str) -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    FOLDER.join(format!("{number}-{name}"))
}

/// Writes a file that its owner alone may read.
pub fn write_private(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// Makes a pipe, which waits for a writer when it is read.
pub fn make_fifo(path: &Path) {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
}
