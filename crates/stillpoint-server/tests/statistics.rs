//! The program publishes its statistics for `stillpoint-top`, unless it is told not to.
#![cfg(target_os = "linux")]

use std::{
    fs,
    os::unix::net::UnixStream,
    path::PathBuf,
    process::{Child, Command},
    thread,
    time::{Duration, Instant},
};

/// The program, which ends with this.
struct Running {
    child: Child,
    folder: PathBuf,
}

impl Running {
    /// Returns when it serves.
    fn start(name: &str, file: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("stillcache-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let (config, socket) = (folder.join("config"), folder.join("socket"));
        fs::write(&config, file).expect("a file");
        let mut command = Command::new(env!("CARGO_BIN_EXE_stillcache"));
        let child = command.arg("--config").arg(&config).arg("-s").arg(&socket);
        let child = child.args(["-u", "root", "-t", "1"]).spawn();
        let running = Self {
            child: child.expect("it starts"),
            folder,
        };
        let begun = Instant::now();
        while UnixStream::connect(&socket).is_err() {
            assert!(
                begun.elapsed() < Duration::from_secs(100),
                "it does not serve"
            );
            thread::sleep(Duration::from_millis(10));
        }
        running
    }

    fn pages(&self) -> usize {
        let open = fs::read_dir(format!("/proc/{}/fd", self.child.id())).expect("it runs");
        let is_page = |entry: &fs::DirEntry| {
            let to = fs::read_link(entry.path());
            to.is_ok_and(|to| to.to_string_lossy().starts_with("/memfd:stillpoint-stats"))
        };
        open.flatten().filter(is_page).count()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn it_publishes_unless_it_is_told_not_to() {
    assert_eq!(Running::start("default", "").pages(), 1);
    assert_eq!(Running::start("on", "statistics = true").pages(), 1);
    assert_eq!(Running::start("off", "statistics = false").pages(), 0);
}
