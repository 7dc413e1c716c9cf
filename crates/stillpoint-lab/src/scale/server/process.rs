//! A server in its own process, on its own processor.

use std::env;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use procfs::process::Process;
use tempfile::TempDir;

use super::client::{Connection, Dialect};
use crate::affinity;
use crate::peers::servers::Kind;
use crate::run::child::die_with_parent;

/// How long a server may take to listen.
const START: Duration = Duration::from_secs(20);

/// Between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// What a server is started with.
pub struct Settings {
    /// Its limit of memory, in MiB.
    pub mib: u64,
    /// Its threads.
    pub threads: u32,
    /// Further arguments of stillcache.
    pub ours: Vec<String>,
}

impl Settings {
    /// With that limit, as the work says.
    pub fn new(work: &super::Work, mib: u64) -> Self {
        Self {
            mib,
            threads: work.threads,
            ours: Vec::new(),
        }
    }
}

/// A server that runs; dropped, it is killed.
pub struct Server {
    child: Child,
    pub kind: Kind,
    folder: TempDir,
}

impl Server {
    /// Starts a server, waits until it listens, and moves the calling thread to another processor.
    /// To be called on the main thread, with which the server ends.
    pub fn start(kind: Kind, settings: &Settings) -> Result<Self> {
        let folder = TempDir::new().context("no folder for a socket")?;
        let socket = folder.path().join("socket");
        let mut command = command(kind, settings, socket)?;
        command.stdin(Stdio::null()).stdout(Stdio::null());
        die_with_parent(&mut command);
        let allowed = affinity::allowed()?;
        let first = *allowed.first().context("no processor is allowed")?;
        // What is started now inherits it.
        affinity::move_to(None, &[first])?;
        let child = command.spawn();
        affinity::move_to(None, &[*allowed.get(1).unwrap_or(&first)])?;
        let child = child.with_context(|| format!("cannot start {}", kind.name()))?;
        let mut server = Self {
            child,
            kind,
            folder,
        };
        let begun = Instant::now();
        while server.stream().is_err() {
            if let Some(status) = server.child.try_wait()? {
                bail!("{} ended at once: {status}", kind.name());
            }
            ensure!(
                begun.elapsed() < START,
                "{} does not listen after {START:?}",
                kind.name()
            );
            thread::sleep(LOOK);
        }
        Ok(server)
    }

    fn stream(&self) -> std::io::Result<UnixStream> {
        UnixStream::connect(self.folder.path().join("socket"))
    }

    /// A connection.
    pub fn connect(&self) -> Result<Connection> {
        let stream = self.stream().context("the server refuses a client")?;
        Ok(Connection::new(stream, Dialect::of(self.kind)))
    }

    /// So many connections.
    pub fn connect_many(&self, count: usize) -> Result<Vec<Connection>> {
        (0..count).map(|_| self.connect()).collect()
    }

    /// Its resident memory, in bytes.
    pub fn resident(&self) -> Result<u64> {
        let pages = Process::new(self.child.id().cast_signed())?
            .statm()?
            .resident;
        Ok(pages * procfs::page_size())
    }

    /// The processor time that it has used.
    pub fn processor_time(&self) -> Result<Duration> {
        let mut clock = 0;
        let pid = self.child.id().cast_signed();
        // SAFETY: the place is valid for the call.
        let error = unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) };
        ensure!(error == 0, "the system does not tell the server's time");
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: as above; the clock is that of a process that has not been waited for.
        let error = unsafe { libc::clock_gettime(clock, &raw mut time) };
        ensure!(error == 0, "the system does not tell the server's time");
        let seconds = Duration::from_secs(u64::try_from(time.tv_sec)?);
        Ok(seconds + Duration::from_nanos(u64::try_from(time.tv_nsec)?))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(kind: Kind, settings: &Settings, socket: PathBuf) -> Result<Command> {
    let Settings { mib, threads, ours } = settings;
    let name = kind.name();
    let program = match kind {
        Kind::Stillcache => Some(env::current_exe()?),
        _ => kind.program(),
    };
    let mut command = Command::new(program.with_context(|| format!("there is no {name} here"))?);
    let memcached = format!("-m {mib} -t {threads} -c 1024");
    let arguments = match kind {
        Kind::Stillcache => format!("stillcache {memcached} -o admin"),
        Kind::Memcached if rustix::process::getuid().is_root() => {
            format!("{memcached} -U 0 -u root")
        }
        Kind::Memcached => format!("{memcached} -U 0"),
        Kind::Redis => format!(
            "--port 0 --appendonly no --maxclients 1024 --maxmemory {mib}mb --maxmemory-policy allkeys-lru"
        ),
    };
    command.args(arguments.split(' '));
    match kind {
        Kind::Stillcache => command.args(ours).arg("-s"),
        Kind::Memcached => command.arg("-s"),
        Kind::Redis => command.args(["--save", "", "--unixsocket"]),
    };
    command.arg(socket);
    Ok(command)
}
