//! Settings: flags as memcached's, and a TOML file for what memcached has not.
//!
//! | file | what it has |
//! |---|---|
//! | `mod` | the settings, and what makes them wrong |
//! | `table` | what an entry of a table of settings says, and how values are written |
//! | `flags` | the command line |
//! | `file` | the TOML file, and the file with passwords |

pub mod file;
pub mod flags;
pub(crate) mod table;

pub use crate::store::Limits;
pub use crate::users::User;
use rustix::{
    fd::{AsRawFd, OwnedFd, RawFd},
    net::{SocketAddrUnix, SocketType, sockopt},
};
use std::{
    collections::HashSet,
    ffi::OsString,
    io,
    net::SocketAddr,
    os::unix::ffi::OsStringExt,
    path::PathBuf,
    sync::{Arc, LazyLock},
    thread,
    time::Duration,
};
pub(crate) use table::section;
use table::{Choice, Section, Setting};

/// Whether clients by TLS have to show a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientCertificates {
    /// None is asked for.
    None,
    /// One is asked for, and has to be good if there is one.
    Optional,
    /// One has to be shown.
    Required,
}

impl Choice for ClientCertificates {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("none", Self::None),
        ("optional", Self::Optional),
        ("required", Self::Required),
        ("0", Self::None),
        ("1", Self::Optional),
        ("2", Self::Required),
        ("3", Self::Required),
    ];
}

/// The oldest version of TLS that is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsVersion {
    /// TLS 1.2.
    V12,
    /// TLS 1.3.
    V13,
}

impl Choice for TlsVersion {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("1.2", Self::V12),
        ("1.3", Self::V13),
        ("tlsv1.2", Self::V12),
        ("tlsv1.3", Self::V13),
        ("2", Self::V12),
        ("3", Self::V13),
    ];
}

section! {
    /// The files of TLS, and what is asked of clients.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Tls {
        /// Server's certificate and its chain of intermediate certificates, as PEM
        chain: PathBuf = PathBuf::new(), "chain", "-o ssl_chain_cert FILE", live;
        /// Private key of the certificate, as PEM; must not be readable by everybody
        key: PathBuf = PathBuf::new(), "key", "-o ssl_key FILE", live;
        /// Authorities whose client certificates are accepted, as PEM
        authority: Option<PathBuf> = None, "authority", "-o ssl_ca_cert FILE", live;
        /// Whether clients must present a certificate
        clients: ClientCertificates = ClientCertificates::None, "client-certificates", "-o ssl_verify_mode MODE", live;
        /// Oldest accepted version of TLS
        min_version: TlsVersion = TlsVersion::V12, "min-version", "-o ssl_min_version VERSION", live;
        /// Whether the last 256 sessions can be resumed without a full handshake
        sessions: bool = false, "sessions", "-o ssl_session_cache", live;
        /// Bytes of a reply that may be encrypted ahead of what the socket has taken
        buffer: usize = 16 << 10, "", "-o ssl_wbuf_size KIB";
    }
}

impl Tls {
    /// Returns its files.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.chain, &self.key].into_iter().chain(&self.authority)
    }

    /// Returns whether TLS 1.3 is spoken only, and not 1.2.
    #[must_use]
    pub fn only_1_3(&self) -> bool {
        self.min_version == TlsVersion::V13
    }
}

/// Which protocol is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binding {
    /// The one that a connection's first byte is of.
    Auto,
    /// Text.
    Ascii,
    /// Binary.
    Binary,
}

impl Binding {
    /// Returns its name in memcached's `stats settings`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto-negotiate",
            Self::Ascii => "ascii",
            Self::Binary => "binary",
        }
    }
}

impl Choice for Binding {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("auto", Self::Auto),
        ("ascii", Self::Ascii),
        ("binary", Self::Binary),
    ];
}

section! {
    /// A tenant of the file.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Tenant {
        /// Its name
        name: String = String::new(), "name", "", live;
        /// Prefixes of the keys in the default key space that belong to it
        prefixes: Vec<String> = Vec::new(), "prefix", "", live;
        /// Memory that other tenants never take
        min: u64 = 0, "min", "", live;
        /// Memory that other tenants take only if nothing else is left
        low: u64 = 0, "low", "", live;
        /// Memory above which its items are evicted in the background
        high: u64 = u64::MAX, "high", "", live;
        /// Most memory that it may have
        max: u64 = u64::MAX, "max", "", live;
    }
}

impl Tenant {
    /// Returns its limits.
    #[must_use]
    pub fn limits(&self) -> Limits {
        Limits {
            min: self.min,
            low: self.low,
            high: self.high,
            max: self.max,
        }
    }
}

/// The permissions of a Unix socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mode(pub u32);

section! {
    /// A place to listen, and the rights of the clients that connect to it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Listener {
        /// Address, with or without a port
        address: Option<String> = None, "address", "";
        /// Unix socket, instead of an address
        path: Option<PathBuf> = None, "path", "";
        /// Permissions of the Unix socket
        mode: Mode = Mode(0o700), "mode", "";
        /// Tenant of its clients, the default tenant if not given; a client that logs in gets its user's tenant
        tenant: String = String::new(), "tenant", "";
        /// Whether its clients are admins, who need not log in
        admin: bool = false, "admin", "";
        /// Whether its clients must log in if there are users; false requires a tenant
        login: bool = true, "login", "";
        /// Whether its clients speak TLS; by default true for addresses if there is a `[tls]`
        tls: Option<bool> = None, "tls", "";
        /// The setting that has it, for messages.
        from: &'static str = "[[listen]]";
        /// The port of an address without one.
        port: u16 = 11211;
        /// The addresses that `address` stands for, once it has been looked up.
        found: Vec<SocketAddr> = Vec::new();
    }
}

/// The variable that announces inherited sockets: their [`Listener::from`].
pub(crate) const INHERITED: &str = "LISTEN_FDS";

/// Returns `error` with the number of the inherited descriptor.
pub(crate) fn wrong_descriptor(number: RawFd, error: io::Error) -> io::Error {
    let text = format!("{INHERITED}: descriptor {number}: {error}");
    io::Error::new(error.kind(), text)
}

impl Listener {
    /// Returns a listener for clients of the default tenant, who have to log in if there are users. The socket
    /// is for this process's user alone.
    #[must_use]
    pub fn unix(path: PathBuf) -> Self {
        Self {
            path: Some(path),
            ..Self::default()
        }
    }

    /// Returns a listener for the same clients on an address.
    #[must_use]
    pub fn tcp(address: SocketAddr) -> Self {
        Self {
            address: Some(address.to_string()),
            found: vec![address],
            ..Self::default()
        }
    }

    /// Returns the listeners for inherited sockets.
    pub(crate) fn inherited(sockets: &[OwnedFd]) -> io::Result<Vec<Self>> {
        let listener = |socket: &OwnedFd| {
            let is_stream = sockopt::socket_type(socket)? == SocketType::STREAM;
            if !is_stream || !sockopt::socket_acceptconn(socket)? {
                let why = "no stream socket that listens";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
            }
            let address = rustix::net::getsockname(socket)?;
            let Ok(unix) = SocketAddrUnix::try_from(address.clone()) else {
                return Ok(Self::tcp(address.try_into()?));
            };
            let path = match unix.path_bytes() {
                Some(path) => path.to_vec(),
                // An abstract socket is shown as `@NAME`.
                None => [b"@", unix.abstract_name().unwrap_or_default()].concat(),
            };
            Ok(Self::unix(OsString::from_vec(path).into()))
        };
        let named = |socket: &OwnedFd| match listener(socket) {
            Ok(listener) => Ok(Self {
                from: INHERITED,
                ..listener
            }),
            Err(error) => Err(wrong_descriptor(socket.as_raw_fd(), error)),
        };
        sockets.iter().map(named).collect()
    }

    /// Returns whether its clients speak TLS, where the server has these settings for it.
    #[must_use]
    pub fn speaks_tls(&self, tls: Option<&Tls>) -> bool {
        self.tls.unwrap_or(self.address.is_some() && tls.is_some())
    }
}

section! {
    /// All settings of a server.
    #[derive(Debug, Clone)]
    pub struct Settings {
        /// TCP port, 11211 by default; 0: none, -1: any that is free
        port: Option<String> = None, "", "-p --port PORT";
        /// Addresses to listen on, with or without a port, separated by commas; 127.0.0.1 by default. With -Z, addresses that begin with notls: do not use TLS
        addresses: Vec<String> = Vec::new(), "", "-l --listen ADDRESSES";
        /// Unix socket to listen on, instead of TCP
        unix_socket: Option<PathBuf> = None, "", "-s --unix-socket FILE";
        /// Permissions of the socket of -s, in octal
        unix_mask: Mode = Mode(0o700), "", "-a --unix-mask OCTAL";
        /// Unix socket whose clients are admins: tenants, limits, shutdown
        admin_socket: Option<PathBuf> = None, "", "--admin-socket FILE";
        /// TOML file with settings, tenants, users and listeners; flags take precedence
        config: Option<PathBuf> = None, "", "--config FILE";
        /// Memory for items and their indexes
        limit: u64 = 64 << 20, "memory-limit", "-m --memory-limit MIB", live;
        /// Longest value in bytes, at most half of the memory
        item_max: usize = 1 << 20, "max-item-size", "-I --max-item-size BYTES";
        /// Threads that serve clients
        threads: usize = default_threads(), "threads", "-t --threads NUMBER";
        /// Most clients at a time
        max_connections: usize = 1024, "conn-limit", "-c --conn-limit NUMBER";
        /// Most connections that wait to be accepted
        backlog: u32 = 1024, "", "-b --backlog NUMBER";
        /// Whether items are evicted when memory is used up; if not, stores fail
        evict: bool = true, "evict", "-M --disable-evictions";
        /// Whether `stats settings` reports CAS values (items always have them); if not, flush_all also removes what is stored in the same second
        cas: bool = true, "", "-C --disable-cas";
        /// Whether flush_all is allowed
        flush: bool = true, "", "-F --disable-flush-all";
        /// Whether keys may be listed
        dump: bool = true, "", "-X --disable-dumping";
        /// Whether watch is allowed
        watch: bool = true, "", "-W --disable-watch";
        /// Whether admins may use shutdown; with the flag, and without users, all clients are admins
        shutdown: bool = false, "shutdown", "-A --enable-shutdown";
        /// Protocol of clients; auto: chosen by the first byte of a connection
        binding: Binding = Binding::Auto, "", "-B --protocol PROTOCOL";
        /// Most requests of one client in a turn; 0: 1,024, the most; fewer if they cost much
        requests_per_event: u32 = 0, "", "-R --max-reqs-per-event NUMBER";
        /// File of name:password lines; clients must log in
        auth_file: Option<PathBuf> = None, "auth-file", "-Y --auth-file FILE", live;
        /// Address that serves OpenMetrics at /metrics; port 9150 if none is given
        metrics_name: Option<String> = None, "metrics", "--metrics ADDRESS";
        /// Pressure file, FIFO or socket. When it reports a shortage of memory, a quarter of the items is evicted. /dev/null: none; auto: what the service manager names, or else the control group's file; without it if that cannot be watched
        memory_pressure: Option<String> = None, "memory-pressure", "--memory-pressure FILE";
        /// Whether `stillpoint-top` shows the process
        statistics: bool = true, "statistics", "";
        /// Seconds after which an idle client is dropped; 0: never
        idle_timeout: u32 = 0, "idle-timeout", "-o idle_timeout SECONDS";
        /// Seconds that a client has to take a reply, finish a value or log in before it is dropped; 0: no limit, but 30 for a login or handshake
        send_timeout: u32 = 30, "send-timeout", "-o send_timeout SECONDS";
        /// Bytes of all connections' buffers above which clients are dropped; 0: no limit
        buffer_max: usize = 64 << 20, "buffer-limit", "";
        /// Limit on buffers, divided among the threads and counted as memcached does: a fixed size for each unfinished request and pending reply; 0: no limit
        reserved_max: usize = 0, "", "-o read_buf_mem_limit MIB";
        /// Whether a search removes expired items each second; if not, they stay until overwritten, evicted or compacted
        lru_crawler: bool = true, "", "-o lru_crawler";
        /// Microseconds that the search sleeps after each segment, at most a second
        lru_crawler_sleep: Duration = Duration::ZERO, "", "-o lru_crawler_sleep MICROSECONDS";
        /// Most items of each tenant that one search visits; 0: all
        lru_crawler_tocrawl: u32 = 0, "", "-o lru_crawler_tocrawl ITEMS";
        /// Whether a seccomp filter blocks the system calls that a listening server no longer needs
        drop_privileges: bool = false, "", "-o drop_privileges";
        /// Whether the process goes to the background
        daemon: bool = false, "", "-d --daemon";
        /// User that the process becomes if root starts it
        user: Option<String> = None, "user-name", "-u --user NAME";
        /// File to write the process ID to
        pid_file: Option<PathBuf> = None, "", "-P --pidfile FILE";
        /// More log; if given twice, each request
        verbosity: u32 = 0, "", "-v --verbose";
        /// Whether TCP uses TLS (needs -o ssl_chain_cert, ssl_key)
        enable_ssl: bool = false, "", "-Z --enable-ssl";
        /// Accepted with -Y only: there is no SASL; clients log in by the text protocol
        enable_sasl: bool = false, "", "-S --enable-sasl";
        /// No effect: there is no UDP
        udp_port: String = "0".into(), "", "-U --udp-port PORT";
        /// Options, separated by commas
        options: Vec<String> = Vec::new(), "", "-o --extended OPTIONS";
        /// Where the server listens.
        listeners: Vec<Listener> = Vec::new();
        /// Where OpenMetrics are asked for by HTTP, if anywhere: the address of `metrics_name`.
        metrics: Option<SocketAddr> = None;
        /// Whether the command line or the file gives the memory limit.
        limit_given: bool = false;
        /// Whether anything is logged.
        log: bool = true;
        /// Whether all clients are admins, if none has to authenticate.
        admin_clients: bool = false;
        /// For tests: clients move the clock.
        debug: bool = false;
        /// The tenants of the file.
        tenants: Vec<Tenant> = Vec::new();
        /// Who may come in; `None` if no client has to authenticate.
        users: Option<Vec<User>> = None;
        /// Whether the file has tenants or users: then a password alone lets no user in.
        sections: bool = false;
        /// TLS, if it is spoken anywhere.
        tls: Option<Tls> = None;
        /// The command line that they were made of, and are again on SIGHUP; without one there is nothing to read again.
        flags: Option<Arc<flags::Flags>> = None;
    }
}

/// Returns the default of `threads`. It stays, or a server whose processors have become fewer would say on
/// SIGHUP that the setting was changed.
fn default_threads() -> usize {
    static AT_FIRST: LazyLock<usize> =
        LazyLock::new(|| thread::available_parallelism().map_or(4, usize::from));
    *AT_FIRST
}

/// The longest rest of the search for expired items, in microseconds.
pub(crate) const MAX_REST_US: u32 = 1_000_000;

impl Settings {
    /// Returns whether clients have to say who they are.
    #[must_use]
    pub fn authenticates(&self) -> bool {
        self.users.is_some()
    }

    /// Returns the number of descriptors that the server needs beside those of its clients.
    #[must_use]
    pub fn reserved_descriptors(&self) -> usize {
        self.threads * 3 + 64 + crate::places::OVER
    }

    /// Returns the names of settings in the file that differ from these, and that only a restart applies.
    pub(crate) fn later(&self, new: &Self) -> Vec<&'static str> {
        let written = |of: &Self| -> Vec<_> {
            let mut all = of.listeners.clone();
            all.iter_mut().for_each(|one| one.found.clear());
            all
        };
        let (here, there) = (written(self), written(new));
        let covers = |all: &[_], of: &[_]| of.iter().all(|one| all.contains(one));
        let listens = !covers(&here, &there) || !covers(&there, &here);
        let (mut now, mut new) = (self.clone(), new.clone());
        let mut differs = |setting: &&Setting<Self>| {
            let show = |of| (setting.value)(of).show();
            !setting.key.is_empty() && !setting.live && show(&mut now) != show(&mut new)
        };
        let names = Self::SETTINGS.iter().filter(&mut differs);
        let names = names.map(|setting| setting.key);
        listens
            .then_some("[[listen]]")
            .into_iter()
            .chain(names)
            .collect()
    }

    /// Checks whether the whole is possible.
    ///
    /// # Errors
    ///
    /// A text that says what is not possible, and what to change.
    pub fn check(&self) -> Result<(), String> {
        macro_rules! ensure {
            ($is:expr, $($message:tt)*) => {
                if !$is {
                    return Err(format!($($message)*));
                }
            };
        }
        let (threads, clients) = (self.threads, self.max_connections);
        let (item_max, limit) = (self.item_max, self.limit);
        let rest = self.lru_crawler_sleep.as_micros();
        ensure! { (1..=512).contains(&threads), "-t {threads}: from 1 to 512 threads" }
        ensure! { (1..=1 << 24).contains(&clients), "-c {clients}: from 1 connection to 2^24" }
        ensure! { rest <= MAX_REST_US.into(), "-o lru_crawler_sleep={rest}: at most {MAX_REST_US}" }
        ensure! { (1024..=crate::store::ITEM_MAX).contains(&item_max), "-I {item_max}: from 1024 bytes to 1 GiB" }
        ensure! { item_max as u64 <= limit / 2, "-I {item_max}: a value may take half of the memory at most, which is {limit} bytes; raise -m" }
        if let Some(tls) = &self.tls {
            let (buffer, given) = (
                tls.buffer >> 10,
                tls.files().all(|file| !file.as_os_str().is_empty()),
            );
            ensure! { given, "-Z: give the files of a certificate and its key: -o ssl_chain_cert=FILE,ssl_key=FILE, or chain and key of [tls] in the file" }
            ensure! { (1..=1024).contains(&buffer), "-o ssl_wbuf_size={buffer}: from 1 to 1024 KiB" }
        }
        for listener in &self.listeners {
            listener.name()?;
        }
        let tls = self.listeners.iter().any(|one| one.tls == Some(true));
        ensure! { self.tls.is_some() || !tls, "a listener with TLS needs a certificate: [tls] in the file, or -Z" }
        ensure! { !self.listeners.is_empty(), "there is no place to listen: give -p, -l, -s or a [[listen]] in the file" }
        let binary = self.binding == Binding::Binary;
        ensure! { !self.authenticates() || !binary, "-B binary: with -Y the text protocol is needed, in which clients authenticate" }
        for (index, tenant) in self.tenants.iter().enumerate() {
            let (name, prefixes) = (&tenant.name, &tenant.prefixes);
            ensure! { is_tenant_name(name), "tenant {name:?}: {TENANT_NAME}" }
            check_limits(&tenant.limits()).map_err(|error| format!("tenant {name}: {error}"))?;
            ensure! { !prefixes.iter().any(String::is_empty), "tenant {name}: an empty prefix would be every key's" }
            for other in &self.tenants[..index] {
                let common = prefixes
                    .iter()
                    .find(|prefix| other.prefixes.contains(prefix));
                ensure! { other.name != *name, "tenant {name}: there are two of that name" }
                ensure! { common.is_none(), "tenant {name}: {} has the prefix {:?} already", other.name, common.unwrap_or(name) }
            }
        }
        let users = self.users.as_deref().unwrap_or_default();
        check_names(users)?;
        let users = users
            .iter()
            .map(|one| (format!("user {}", one.name), &one.tenant, true));
        let listeners = self.listeners.iter();
        let listeners = listeners.map(|one| (one.place(), &one.tenant, one.login));
        for (what, name, login) in listeners.chain(users) {
            ensure! { login || !name.is_empty(), "{what}: login = false lets in all who reach it, as clients of a tenant: give tenant" }
            let tenant = self.tenants.iter().find(|tenant| tenant.name == *name);
            ensure! { name.is_empty() || tenant.is_some(), "{what}: there is no tenant {name:?}" }
            // By its prefix its keys are seen whole, by a door of its own they would be seen again, and written without it.
            let shared = tenant.is_some_and(|tenant| !tenant.prefixes.is_empty());
            ensure! { !shared, "tenant {name}: has a prefix, so that its keys belong to the default key space, and a user or listener of its own; make two tenants of it" }
        }
        Ok(())
    }
}

/// Checks that each user has another name: a session looks for its own after each change.
pub(crate) fn check_names(users: &[User]) -> Result<(), String> {
    if users.iter().any(|user| user.name.is_empty()) {
        return Err("[[user]]: give it a name".into());
    }
    let mut names = HashSet::new();
    match users.iter().find(|user| !names.insert(&*user.name)) {
        Some(user) => Err(format!("user {}: there are two of that name", user.name)),
        None => Ok(()),
    }
}

/// What [`is_tenant_name`] asks for.
const TENANT_NAME: &str = "a name has 1 to 64 letters, digits, -, _ or .";

/// Returns whether a tenant may have that name.
#[must_use]
pub fn is_tenant_name(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        // `stats tenant -` is about the default one.
        && name != "-"
}

/// Reads a number: digits, and `k`, `m` or `g` behind them; `none` is no limit.
///
/// # Errors
///
/// How it should be written.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    if text == "none" {
        return Ok(u64::MAX);
    }
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1 << 20),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 1u64 << 30),
        _ => (text, 1),
    };
    let wrong = || format!("{text:?} is not a size: write 1048576, 1024k, 1m, 1g or none");
    let number = crate::protocol::number::parse_u64(digits.as_bytes()).ok_or_else(wrong)?;
    number.checked_mul(unit).ok_or_else(wrong)
}

/// Checks that limits are in their order.
///
/// # Errors
///
/// Which are not.
pub fn check_limits(limits: &Limits) -> Result<(), String> {
    let Limits {
        min,
        low,
        high,
        max,
    } = *limits;
    if high > max && high != u64::MAX {
        return Err(format!("high={high} is more than max={max}"));
    }
    if min > max || low > max {
        return Err(format!("min={min} or low={low} is more than max={max}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds a section's table of the manual.
    fn add<T: Section>(text: &mut String, title: &str) {
        *text += &format!("{title}\n\n| setting | value (default) | |\n|---|---|---|\n");
        for setting in T::SETTINGS {
            let star = if setting.live { "*" } else { "" };
            let names = [(setting.key, star), (setting.flag.0, "")]
                .iter()
                .filter(|name| !name.0.is_empty())
                .map(|(name, star)| format!("`{name}`{star}"))
                .collect::<Vec<_>>();
            let default = match setting.default() {
                default if default.is_empty() => default,
                default => format!(" ({default})"),
            };
            *text += &format!(
                "| {} | {}{default} | {} |\n",
                names.join(", "),
                setting.kind(),
                setting.meaning
            );
        }
        text.push('\n');
    }

    #[test]
    fn the_manual_has_all_settings() {
        let mut text = String::new();
        add::<Settings>(
            &mut text,
            "At the top of the file, and on the command line:",
        );
        add::<Tls>(&mut text, "In `[tls]`:");
        add::<Listener>(&mut text, "In each `[[listen]]`:");
        add::<Tenant>(&mut text, "In each `[[tenant]]`:");
        add::<User>(&mut text, "In each `[[user]]`:");
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/stillcache.md");
        let manual = std::fs::read_to_string(path).unwrap();
        let (_, rest) = manual.split_once("<!-- settings -->\n\n").unwrap();
        let (there, _) = rest.split_once("<!-- end of settings -->").unwrap();
        assert!(
            there == text,
            "write between the marks in {path}:\n\n{text}"
        );
    }

    /// As if the container's processors had become fewer.
    #[test]
    fn the_default_number_of_threads_stays() {
        let before = Settings::default();
        let after = std::thread::spawn(|| {
            // SAFETY: an all-zero set is empty, and the calls only read and write it.
            unsafe {
                let mut one: libc::cpu_set_t = std::mem::zeroed();
                libc::CPU_SET(libc::sched_getcpu().cast_unsigned() as usize, &mut one);
                libc::sched_setaffinity(0, size_of_val(&one), &raw const one);
            }
            Settings::default()
        });
        let after = after.join().unwrap();
        assert_eq!(before.later(&after), Vec::<&str>::new());
    }

    #[test]
    fn bytes() {
        for (text, bytes) in [
            ("0", 0),
            ("1024", 1024),
            ("512k", 512 << 10),
            ("2M", 2 << 20),
            ("3g", 3 << 30),
            ("none", u64::MAX),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for bad in ["", "k", "-1", "1.5m", "1t", "20000000000g", "none m", "é"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let good = Settings {
            listeners: vec![Listener::unix("/s".into())],
            tenants: vec![tenant("a", &["a:"]), tenant("b", &["b:"])],
            ..Settings::default()
        };
        assert_eq!(good.check(), Ok(()));
        let wrong = |change: fn(&mut Settings), says: &str| {
            let mut settings = good.clone();
            change(&mut settings);
            let error = settings.check().unwrap_err();
            assert!(error.contains(says), "{error}");
        };
        wrong(|s| s.threads = 0, "-t 0");
        wrong(|s| s.max_connections = 0, "-c 0");
        wrong(|s| s.item_max = 1000, "-I 1000");
        wrong(|s| s.item_max = 40 << 20, "raise -m");
        wrong(|s| s.listeners.clear(), "no place to listen");
        for (address, path, says) in [
            (None, None, "either address or path"),
            (Some("a"), Some("/s"), "either address or path"),
            (Some(""), None, "the address is empty"),
            (None, Some(""), "the path is empty"),
        ] {
            let mut settings = good.clone();
            settings.listeners[0].address = address.map(str::to_owned);
            settings.listeners[0].path = path.map(PathBuf::from);
            let error = settings.check().unwrap_err();
            assert!(error.contains(says), "{error}");
        }
        wrong(|s| s.listeners[0].tenant = "c".into(), "no tenant \"c\"");
        wrong(|s| s.tenants[1].name = "a".into(), "two of that name");
        wrong(|s| s.tenants[1].name = "a b".into(), "letters");
        wrong(|s| s.tenants[1].prefixes[0] = "a:".into(), "already");
        wrong(|s| s.tenants[1].prefixes[0].clear(), "empty prefix");
        wrong(|s| s.tenants[0].max = 1, "tenant a: min=2");
        wrong(|s| s.listeners[0].tenant = "a".into(), "make two tenants");
        wrong(|s| s.listeners[0].login = false, "give tenant");
        wrong(
            |s| {
                s.users = Some(vec![User {
                    name: "u".into(),
                    password: b"p".to_vec(),
                    tenant: "b".into(),
                    admin: false,
                }]);
            },
            "make two tenants",
        );
        wrong(
            |s| {
                let user = |admin| User {
                    name: "u".into(),
                    password: b"p".to_vec(),
                    tenant: String::new(),
                    admin,
                };
                s.users = Some(vec![user(false), user(true)]);
            },
            "user u: there are two of that name",
        );
        wrong(
            |s| {
                s.users = Some(Vec::new());
                s.binding = Binding::Binary;
            },
            "-B binary",
        );
    }

    fn tenant(name: &str, prefixes: &[&str]) -> Tenant {
        Tenant {
            name: name.into(),
            prefixes: prefixes.iter().map(|&prefix| prefix.into()).collect(),
            min: 2,
            ..Tenant::default()
        }
    }
}
