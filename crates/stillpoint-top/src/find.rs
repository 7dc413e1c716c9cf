//! Finds processes that publish their statistics, and opens their pages.
//!
//! A process chooses the names of its descriptors, so a name proves nothing. A file is first opened
//! without access to it (`O_PATH`), so that no pipe or device is touched. Only a memory file that
//! can neither shrink nor grow is then opened for reading, by that descriptor, and without waiting
//! for a lease that the process may hold. What is read of one process, and of all together, is
//! bounded.

use std::{
    fmt,
    fs::{self, File},
    io,
    os::fd::{AsRawFd, OwnedFd},
};

use rustix::{
    fs::{CWD, Mode, OFlags, SealFlags, fcntl_get_seals, fstatfs, openat},
    io::Errno,
};
use stillpoint_platform::stats::{
    layout::{BYTES, MOST_SLOTS, NAME},
    read::{self, Page, clean},
};

/// The magic number of tmpfs.
const TMPFS: i64 = 0x0102_1994;

/// Upper bound on the files of a process that are named like pages: its page, and inherited ones.
const MOST_FILES: usize = 16;

/// Upper bound on the domains kept of all processes together: 32 full pages.
const MOST_DOMAINS: usize = 32 * MOST_SLOTS;

/// Why a process is not shown.
#[derive(Debug)]
pub enum Hidden {
    /// The process does not exist, or no longer.
    Gone,
    /// The system does not allow access to it.
    Denied,
    /// It publishes nothing.
    NoPage,
    /// It has a page that cannot be read.
    Unreadable(read::Error),
    /// It has a descriptor with a page's name that is not a page.
    Impostor(&'static str),
    /// It has too many descriptors of that name.
    TooMany,
    /// The pages before it have used up `MOST_DOMAINS`.
    TooLarge,
    /// Something else has failed.
    Failed(io::Error),
}

impl fmt::Display for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => f.write_str("there is no such process"),
            Self::Denied => f.write_str(
                "it may not be looked at: it is another user's, or not dumpable; try as root",
            ),
            Self::NoPage => f.write_str(
                "it publishes no statistics: start it with STILLPOINT_STATS=on, or have it call publish_statistics()",
            ),
            Self::Unreadable(error) => write!(f, "its statistics page: {error}"),
            Self::Impostor(why) => {
                write!(f, "it has a file that is called like a statistics page, but {why}")
            }
            Self::TooMany => write!(
                f,
                "none of its first {MOST_FILES} files that are called like statistics pages is its own"
            ),
            Self::TooLarge => {
                f.write_str("not read, as the pages of other processes take too much memory; ask for it alone")
            }
            Self::Failed(error) => write!(f, "it cannot be looked at: {error}"),
        }
    }
}

impl From<io::Error> for Hidden {
    fn from(error: io::Error) -> Self {
        match Errno::from_io_error(&error) {
            Some(Errno::ACCESS | Errno::PERM) => Self::Denied,
            Some(Errno::NOENT | Errno::SRCH) => Self::Gone,
            // Only a lease of the process makes a memory file wait.
            Some(Errno::AGAIN) => Self::Impostor("it holds a lease on it"),
            _ => Self::Failed(error),
        }
    }
}

/// A process that publishes its statistics.
#[derive(Debug, Clone)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Its name in the kernel.
    pub command: String,
    /// What it publishes.
    pub page: Page,
}

/// All processes that were found.
#[derive(Debug, Default)]
pub struct Found {
    /// Processes that publish, in the order of their ids.
    pub processes: Vec<Process>,
    /// Processes whose page cannot be read.
    pub unreadable: Vec<(u32, Hidden)>,
    /// Number of processes to which access is denied.
    pub denied: usize,
}

/// Finds all processes that publish.
///
/// # Errors
///
/// Fails if `/proc` cannot be read.
pub fn all() -> io::Result<Found> {
    let mut found = Found::default();
    let mut pids: Vec<u32> = fs::read_dir("/proc")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    pids.sort_unstable();
    let mut domains = 0;
    for pid in pids {
        match one(pid) {
            Ok(process) if domains + process.page.things.len() <= MOST_DOMAINS => {
                domains += process.page.things.len();
                found.processes.push(process);
            }
            Ok(_) => found.unreadable.push((pid, Hidden::TooLarge)),
            Err(Hidden::Gone | Hidden::NoPage) => {}
            Err(Hidden::Denied) => found.denied += 1,
            Err(hidden) => found.unreadable.push((pid, hidden)),
        }
    }
    Ok(found)
}

/// Opens the page of the process `pid`.
///
/// # Errors
///
/// Fails if the process is not shown; the error says why.
pub fn one(pid: u32) -> Result<Process, Hidden> {
    let folder = format!("/proc/{pid}/fd");
    let (mut worst, mut files) = (Hidden::NoPage, 0);
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let target = match fs::read_link(&path).map_err(Hidden::from) {
            Ok(target) => target,
            // A process of the same user with more capabilities lists its descriptors, and no more.
            Err(Hidden::Denied) => return Err(Hidden::Denied),
            // It has been closed meanwhile.
            Err(_) => continue,
        };
        let is_called_so = target
            .to_str()
            .and_then(|target| target.strip_prefix("/memfd:")?.strip_prefix(NAME))
            .is_some_and(|rest| rest.is_empty() || rest == " (deleted)");
        if !is_called_so {
            continue;
        }
        files += 1;
        if files > MOST_FILES {
            return Err(Hidden::TooMany);
        }
        let page = openat(CWD, &path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .map_err(|errno| Hidden::from(io::Error::from(errno)))
            .and_then(checked)
            .and_then(|file| read::read(&file).map_err(Hidden::Unreadable));
        match page {
            // What a process has inherited is not its own.
            Ok(page) if is_its_own(pid, &page) => {
                return Ok(Process {
                    pid,
                    command: command(pid),
                    page,
                });
            }
            Ok(_) => {}
            Err(hidden) => worst = hidden,
        }
    }
    Err(worst)
}

/// Opens the file behind `path` for reading, if the kernel's data on it are those of a page.
fn checked(path: OwnedFd) -> Result<File, Hidden> {
    let in_memory = fstatfs(&path).is_ok_and(|system| system.f_type == TMPFS);
    if !in_memory {
        return Err(Hidden::Impostor("it is not a file in memory"));
    }
    let file = File::from(path);
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.len() != BYTES as u64 {
        return Err(Hidden::Impostor("it has another length"));
    }
    let again = format!("/proc/self/fd/{}", file.as_raw_fd());
    let access = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(CWD, again, access, Mode::empty()).map_err(io::Error::from)?);
    let needed = SealFlags::SHRINK | SealFlags::GROW;
    if !fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(needed)) {
        return Err(Hidden::Impostor("it is not sealed"));
    }
    Ok(file)
}

/// Returns whether the process has made the page. In a container it has another id.
fn is_its_own(pid: u32, page: &Page) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let inner = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:")?.split_whitespace().next_back())
        .and_then(|number| number.parse().ok());
    page.pid == inner.unwrap_or(u64::from(pid))
}

fn command(pid: u32) -> String {
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    clean(String::from_utf8_lossy(&name).trim_end())
}
