//! The program around a server: its descriptors, its user, the files that say that it runs.

use crate::{
    config::{Listener, Settings, flags::Flags, wrong_descriptor},
    log::{self, note},
    privileges::drop_privileges,
    server::{Server, Signals},
};
use rustix::fd::OwnedFd;
use std::{
    io,
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering},
};

/// Runs the program. Returns its exit status: 2 if the flags or the file are wrong, 1 if it cannot run.
#[must_use]
pub fn main(mut flags: Flags) -> ExitCode {
    let failed = |error: io::Error| (1, error.to_string());
    let mut run = || {
        let sockets = inherited().map_err(failed)?;
        flags.inherited = Listener::inherited(&sockets).map_err(failed)?;
        let (settings, notes) = flags.settings().map_err(|error| (2, error))?;
        run(settings, &notes, sockets).map_err(failed)
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err((status, error)) => {
            eprintln!("stillcache: {error}");
            ExitCode::from(status)
        }
    }
}

fn run(settings: Settings, notes: &[String], inherited: Vec<OwnedFd>) -> io::Result<()> {
    raise_descriptors(settings.max_connections + settings.reserved_descriptors());
    if settings.daemon {
        // It stays in its folder, from which the paths that were given lead.
        // SAFETY: no other thread has been started.
        if unsafe { libc::daemon(1, libc::c_int::from(settings.verbosity > 0)) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    become_user(&settings, notes)?;
    readable(&settings)?;
    publish(&settings);
    let signals = Signals::block()?;
    let (pid_file, limit) = (settings.pid_file.clone(), settings.limit);
    let drops = settings.drop_privileges;
    let server = Server::start_with(settings, inherited)?;
    let (log, version) = (&server.shared.log, env!("CARGO_PKG_VERSION"));
    if let Some(path) = &pid_file
        && let Err(error) = std::fs::write(path, format!("{}\n", std::process::id()))
    {
        let path = path.display();
        note!(log, "-P {path}: {error}; goes on without that file");
    }
    if drops {
        // All that listens is open, and all threads have started, which the filter is put over.
        drop_privileges().map_err(|error| {
            let hint = match error.kind() {
                io::ErrorKind::PermissionDenied => {
                    "; if the service manager filters system calls, allow `seccomp`"
                }
                _ => "",
            };
            io::Error::new(error.kind(), format!("-o drop_privileges: {error}{hint}"))
        })?;
    }
    note!(
        log,
        "version {version}, {} MiB for items, {} threads",
        limit >> 20,
        server.shared.settings.threads
    );
    server.run(Some(signals));
    if let Some(path) = &pid_file {
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

/// Logs a line before any thread has started.
fn say(settings: &Settings, line: std::fmt::Arguments<'_>) {
    if settings.log {
        log::say(line);
    }
}

/// Publishes the statistics, as the process and the user that it stays.
fn publish(settings: &Settings) {
    if settings.statistics
        && let Err(error) = stillpoint::publish_statistics()
    {
        say(
            settings,
            format_args!("no statistics are published for `stillpoint-top`: {error}"),
        );
    }
}

fn become_user(settings: &Settings, notes: &[String]) -> io::Result<()> {
    for note in notes {
        say(settings, format_args!("{note}"));
    }
    if !rustix::process::getuid().is_root() {
        return Ok(());
    }
    let Some(name) = &settings.user else {
        say(
            settings,
            format_args!("runs as root; use -u USER to give up root's rights"),
        );
        return Ok(());
    };
    if name == "root" {
        return Ok(());
    }
    let failed = |what: &str| {
        Err(io::Error::other(format!(
            "-u {name}: {what}: {}",
            io::Error::last_os_error()
        )))
    };
    let c_name = std::ffi::CString::new(name.as_str())?;
    // SAFETY: the name ends in a zero byte; the result is read before another call could change it, and no other thread has been started.
    unsafe {
        let entry = libc::getpwnam(c_name.as_ptr());
        if entry.is_null() {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!("-u {name}: there is no such user"),
            ));
        }
        let (uid, gid) = ((*entry).pw_uid, (*entry).pw_gid);
        if libc::initgroups(c_name.as_ptr(), gid) != 0 || libc::setgid(gid) != 0 {
            return failed("cannot change the group");
        }
        if libc::setuid(uid) != 0 {
            return failed("cannot change the user");
        }
    }
    Ok(())
}

/// Checks that the user that the process has become can read the files that SIGHUP reads again.
fn readable(settings: &Settings) -> io::Result<()> {
    let tls = settings.tls.iter().flat_map(|tls| tls.files());
    for path in settings.config.iter().chain(&settings.auth_file).chain(tls) {
        // (Not opened: that may wait, if it is a pipe.)
        let access = rustix::fs::access(path, rustix::fs::Access::READ_OK);
        access.map_err(|error| {
            let user = settings.user.as_deref().unwrap_or("this user");
            let path = path.display();
            io::Error::new(
                io::Error::from(error).kind(),
                format!("{path}: {error}, for {user}, who would have to read it on SIGHUP; change its owner, or -u"),
            )
        })?;
    }
    Ok(())
}

/// Raises the limit of descriptors as far as it may be.
fn raise_descriptors(needed: usize) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    let needed = needed as u64;
    if now.current.is_none_or(|current| current >= needed) {
        return;
    }
    let maximum = now.maximum.unwrap_or(u64::MAX);
    let wanted = |current: u64, maximum| Rlimit {
        current: Some(current),
        maximum,
    };
    // Root may raise the hard limit too.
    if setrlimit(Resource::Nofile, wanted(needed, Some(maximum.max(needed)))).is_err() {
        // What is missing shows when connections are refused, which is logged.
        let _ = setrlimit(Resource::Nofile, wanted(needed.min(maximum), now.maximum));
    }
}

/// Returns the sockets that the service manager has opened for this process.
fn inherited() -> io::Result<Vec<OwnedFd>> {
    use std::os::fd::FromRawFd;
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .and_then(|value| value.parse::<u32>().ok())
    };
    // The first call takes ownership of the descriptors.
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if number("LISTEN_PID") != Some(std::process::id()) || TAKEN.swap(true, Ordering::Relaxed) {
        return Ok(Vec::new());
    }
    let count = number("LISTEN_FDS").unwrap_or(0);
    let mut sockets = Vec::new();
    for raw in (3..).take(count as usize) {
        // SAFETY: the call touches no memory; it fails if the descriptor is not open.
        if unsafe { libc::fcntl(raw, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
            return Err(wrong_descriptor(raw, io::Error::last_os_error()));
        }
        // SAFETY: it is open, and the manager has handed it to this process, in which no other owner takes it.
        sockets.push(unsafe { OwnedFd::from_raw_fd(raw) });
    }
    Ok(sockets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_could_not_be_read_again_is_named_at_the_start() {
        let settings = Settings {
            auth_file: Some("/nonexistent/passwords".into()),
            user: Some("cache".into()),
            ..Settings::default()
        };
        let error = readable(&settings).unwrap_err().to_string();
        assert!(error.contains("/nonexistent/passwords") && error.contains("for cache"));
        assert!(readable(&Settings::default()).is_ok());
    }
}
