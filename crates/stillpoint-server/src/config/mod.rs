//! Settings: flags as memcached's, and a TOML file for what memcached has not.
//!
//! | file | what it has |
//! |---|---|
//! | `mod` | the settings, and what makes them wrong |
//! | `flags` | the command line |
//! | `file` | the TOML file, and the file with passwords |

pub mod file;
pub mod flags;

pub use crate::store::{Limits, Search};
pub use crate::users::User;
use std::{collections::HashSet, net::SocketAddr, path::PathBuf, sync::Arc};

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// TCP.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

/// A socket that is listened on, and who comes in by it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// Where.
    pub address: Address,
    /// The permissions of a Unix socket.
    pub mode: u32,
    /// The tenant of its clients; empty for the default one.
    pub tenant: String,
    /// Whether its clients are admins, and need not authenticate.
    pub admin: bool,
    /// Whether its clients speak TLS.
    pub tls: bool,
}

/// Whether clients by TLS have to show a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientCertificates {
    /// None is asked for.
    #[default]
    None,
    /// One is asked for, and has to be good if there is one.
    Optional,
    /// One has to be shown.
    Required,
}

/// The files of TLS, and what is asked of clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// The server's certificate and those that lead from there to an authority, as PEM.
    pub chain: PathBuf,
    /// Its private key, as PEM; not readable for all.
    pub key: PathBuf,
    /// Authorities that vouch for clients, as PEM.
    pub authority: Option<PathBuf>,
    /// Whether clients have to show a certificate.
    pub clients: ClientCertificates,
    /// Whether TLS 1.3 is spoken only, and not 1.2.
    pub only_1_3: bool,
    /// How much of an answer is encrypted before the socket has taken what was before it, in bytes.
    pub buffer: usize,
    /// Whether the last 256 clients may come back without a full handshake.
    pub sessions: bool,
}

impl Default for Tls {
    fn default() -> Self {
        Self {
            chain: PathBuf::new(),
            key: PathBuf::new(),
            authority: None,
            clients: ClientCertificates::None,
            only_1_3: false,
            buffer: 16 << 10,
            sessions: false,
        }
    }
}

impl Tls {
    /// Its files.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.chain, &self.key].into_iter().chain(&self.authority)
    }
}

/// Which protocol is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Binding {
    /// The one that a connection's first byte is of.
    #[default]
    Auto,
    /// Text.
    Ascii,
    /// Binary.
    Binary,
}

impl Binding {
    /// As memcached's `stats settings` has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto-negotiate",
            Self::Ascii => "ascii",
            Self::Binary => "binary",
        }
    }
}

/// A tenant of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    /// Its name.
    pub name: String,
    /// Prefixes of keys in the default key space that are its.
    pub prefixes: Vec<String>,
    /// Its limits.
    pub limits: Limits,
}

/// All settings of a server.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The TCP port, 0 without one.
    pub port: u16,
    /// Where the server listens.
    pub listeners: Vec<Listener>,
    /// How many threads serve.
    pub threads: usize,
    /// Memory for all items, in bytes.
    pub limit: u64,
    /// Whether the command line or the file gives that.
    pub limit_given: bool,
    /// The longest value, in bytes.
    pub item_max: usize,
    /// Whether items are evicted.
    pub evict: bool,
    /// The most clients at a time.
    pub max_connections: usize,
    /// Whether anything is logged.
    pub log: bool,
    /// How much is logged.
    pub verbosity: u32,
    /// Seconds after which a silent client is dropped; 0: never.
    pub idle_timeout: u32,
    /// Seconds after which a client is dropped that does not take an answer, or finish a value.
    pub send_timeout: u32,
    /// How many connections may wait to be accepted.
    pub backlog: u32,
    /// Which protocol.
    pub binding: Binding,
    /// Whether `stats settings` says that items have CAS values. (They always have.) If not,
    /// `flush_all` is as exact as the clock: what is stored in its second goes with it.
    pub cas: bool,
    /// How expired items are searched for.
    pub search: Search,
    /// Whether `flush_all` is allowed.
    pub flush: bool,
    /// Whether admins may use `shutdown`.
    pub shutdown: bool,
    /// Whether `watch` is allowed.
    pub watch: bool,
    /// Whether keys may be listed.
    pub dump: bool,
    /// Number of requests of a connection that are executed before others have their turn; 0: no limit.
    pub requests_per_event: u32,
    /// Limit of the buffers of all connections, in bytes.
    pub buffer_max: usize,
    /// Limit of the buffers that all connections could take, in bytes, divided among the threads; 0: no
    /// limit.
    pub reserved_max: usize,
    /// Whether clients that need not authenticate are admins.
    pub admin_clients: bool,
    /// For tests: clients move the clock.
    pub debug: bool,
    /// The tenants of the file.
    pub tenants: Vec<Tenant>,
    /// Who may come in; `None` if no client has to authenticate.
    pub users: Option<Vec<User>>,
    /// The command line that they were made of, and are again on SIGHUP; without one there is nothing to read again.
    pub flags: Option<Arc<flags::Flags>>,
    /// TLS, if it is spoken anywhere.
    pub tls: Option<Tls>,
    /// Where OpenMetrics are asked for by HTTP, if anywhere.
    pub metrics: Option<SocketAddr>,
    /// Whether the file has tenants or users: then a password alone lets no user in.
    pub sections: bool,
    /// The file with passwords.
    pub auth_file: Option<PathBuf>,
    /// Whether the program publishes its statistics for `stillpoint-top`.
    pub statistics: bool,
    /// Where the process's number is written.
    pub pid_file: Option<PathBuf>,
    /// Whether the process goes to the background.
    pub daemon: bool,
    /// The user that it becomes, if it is root.
    pub user: Option<String>,
    /// Whether the process gives up, once it listens, what it needs no more: other programs,
    /// processes and connections.
    pub drop_privileges: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            port: 11211,
            listeners: Vec::new(),
            threads: std::thread::available_parallelism().map_or(4, usize::from),
            limit: 64 << 20,
            limit_given: false,
            item_max: 1 << 20,
            evict: true,
            max_connections: 1024,
            log: true,
            verbosity: 0,
            idle_timeout: 0,
            send_timeout: 30,
            backlog: 1024,
            binding: Binding::Auto,
            cas: true,
            search: Search::default(),
            flush: true,
            shutdown: false,
            watch: true,
            dump: true,
            requests_per_event: 0,
            buffer_max: 64 << 20,
            reserved_max: 0,
            admin_clients: false,
            debug: false,
            tenants: Vec::new(),
            users: None,
            flags: None,
            tls: None,
            metrics: None,
            sections: false,
            auth_file: None,
            statistics: true,
            pid_file: None,
            daemon: false,
            user: None,
            drop_privileges: false,
        }
    }
}

impl Settings {
    /// Whether clients have to say who they are.
    #[must_use]
    pub fn authenticates(&self) -> bool {
        self.users.is_some()
    }

    /// Descriptors that the server needs beside those of its clients.
    #[must_use]
    pub fn reserved_descriptors(&self) -> usize {
        self.threads * 3 + 64 + crate::places::OVER
    }

    /// Returns the names of settings in the file that differ from these, and that only a restart applies.
    /// `new` has them with [`Names::Known`](flags::Names::Known).
    pub(crate) fn later(&self, new: &Settings) -> Vec<&'static str> {
        // A name was not resolved again: any address may be one of its.
        let may_be = |one: &Listener, other: &Listener| {
            let address = match (&one.address, &other.address) {
                (Address::Tcp(one), Address::Tcp(other)) => {
                    let is_name = |address: &SocketAddr| address.ip().is_unspecified();
                    one == other || (one.port() == other.port() && (is_name(one) || is_name(other)))
                }
                (one, other) => one == other,
            };
            let rest = |listener: &Listener| (listener.mode, listener.admin, listener.tls);
            address && rest(one) == rest(other) && one.tenant == other.tenant
        };
        let covers = |all: &[Listener], of: &[Listener]| {
            all.iter()
                .all(|one| of.iter().any(|other| may_be(one, other)))
        };
        let listens =
            !covers(&new.listeners, &self.listeners) || !covers(&self.listeners, &new.listeners);
        let metrics = self.metrics.map(|address| address.port());
        [
            (listens, "[[listen]]"),
            (
                metrics != new.metrics.map(|address| address.port()),
                "metrics",
            ),
            (self.threads != new.threads, "threads"),
            (self.max_connections != new.max_connections, "conn-limit"),
            (self.item_max != new.item_max, "max-item-size"),
            (self.evict != new.evict, "evict"),
            (self.idle_timeout != new.idle_timeout, "idle-timeout"),
            (self.send_timeout != new.send_timeout, "send-timeout"),
            (self.buffer_max != new.buffer_max, "buffer-limit"),
            (self.shutdown != new.shutdown, "shutdown"),
            (self.statistics != new.statistics, "statistics"),
            (self.user != new.user, "user-name"),
        ]
        .into_iter()
        .filter(|(differs, _)| *differs)
        .map(|(_, name)| name)
        .collect()
    }

    /// Whether the whole is possible.
    ///
    /// # Errors
    ///
    /// A text that says what is not possible, and what to change.
    pub fn check(&self) -> Result<(), String> {
        if self.threads == 0 || self.threads > 512 {
            return Err(format!("-t {}: from 1 to 512 threads", self.threads));
        }
        if self.max_connections == 0 {
            return Err("-c 0: at least one connection".into());
        }
        if !(1024..=crate::store::ITEM_MAX).contains(&self.item_max) {
            return Err(format!("-I {}: from 1024 bytes to 1 GiB", self.item_max));
        }
        if self.item_max as u64 > self.limit / 2 {
            return Err(format!(
                "-I {}: a value may take half of the memory at most, which is {} bytes; raise -m",
                self.item_max, self.limit
            ));
        }
        if self.tls.is_none() && self.listeners.iter().any(|listener| listener.tls) {
            return Err("a listener with TLS needs a certificate: [tls] in the file, or -Z".into());
        }
        if self.listeners.is_empty() {
            return Err(
                "there is no place to listen: give -p, -l, -s or a [[listen]] in the file".into(),
            );
        }
        if self.authenticates() && self.binding == Binding::Binary {
            return Err(
                "-B binary: with -Y the text protocol is needed, in which clients authenticate"
                    .into(),
            );
        }
        for (index, tenant) in self.tenants.iter().enumerate() {
            if !is_tenant_name(&tenant.name) {
                return Err(format!(
                    "tenant {:?}: a name has 1 to 64 letters, digits, -, _ or .",
                    tenant.name
                ));
            }
            check_limits(&tenant.limits)
                .map_err(|error| format!("tenant {}: {error}", tenant.name))?;
            for other in &self.tenants[..index] {
                if other.name == tenant.name {
                    return Err(format!(
                        "tenant {}: there are two of that name",
                        tenant.name
                    ));
                }
                if let Some(prefix) = tenant
                    .prefixes
                    .iter()
                    .find(|prefix| other.prefixes.contains(prefix))
                {
                    return Err(format!(
                        "tenant {}: {} has the prefix {prefix:?} already",
                        tenant.name, other.name
                    ));
                }
            }
            if tenant.prefixes.iter().any(String::is_empty) {
                return Err(format!(
                    "tenant {}: an empty prefix would be every key's",
                    tenant.name
                ));
            }
        }
        // By its prefix its keys are seen whole, by a door of its own they would be seen again, and written without it.
        let shared = |name: &str| {
            self.tenants
                .iter()
                .any(|tenant| tenant.name == name && !tenant.prefixes.is_empty())
        };
        let mixed = |name: &str| {
            format!(
                "tenant {name}: has a prefix, so that its keys belong to the default key space, and a user or listener of its own; make two tenants of it"
            )
        };
        let known =
            |name: &str| name.is_empty() || self.tenants.iter().any(|tenant| tenant.name == name);
        for listener in &self.listeners {
            if !known(&listener.tenant) {
                return Err(format!(
                    "{}: there is no tenant {:?}",
                    listener.address, listener.tenant
                ));
            }
            if shared(&listener.tenant) {
                return Err(mixed(&listener.tenant));
            }
        }
        check_names(self.users.as_deref().unwrap_or_default())?;
        for user in self.users.iter().flatten() {
            if !known(&user.tenant) {
                return Err(format!(
                    "user {}: there is no tenant {:?}",
                    user.name, user.tenant
                ));
            }
            if shared(&user.tenant) {
                return Err(mixed(&user.tenant));
            }
        }
        Ok(())
    }
}

/// Whether each user has another name: a session looks for its own after each change.
pub(crate) fn check_names(users: &[User]) -> Result<(), String> {
    let mut names = HashSet::new();
    match users.iter().find(|user| !names.insert(&*user.name)) {
        Some(user) => Err(format!("user {}: there are two of that name", user.name)),
        None => Ok(()),
    }
}

/// Whether a tenant may have that name.
#[must_use]
pub fn is_tenant_name(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        // `stats tenant -` is about the default one.
        && name != "-"
}

/// Reads a number of bytes: digits, and `k`, `m` or `g` behind them; `none` is no limit.
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
    let wrong = || format!("{text:?} is no number of bytes: write 1048576, 1024k, 1m, 1g or none");
    let number = crate::protocol::number::parse_u64(digits.as_bytes()).ok_or_else(wrong)?;
    number.checked_mul(unit).ok_or_else(wrong)
}

/// Whether limits are in their order.
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
            listeners: vec![Listener {
                address: Address::Unix("/s".into()),
                mode: 0o700,
                tenant: String::new(),
                admin: false,
                tls: false,
            }],
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
        wrong(|s| s.listeners[0].tenant = "c".into(), "no tenant \"c\"");
        wrong(|s| s.tenants[1].name = "a".into(), "two of that name");
        wrong(|s| s.tenants[1].name = "a b".into(), "letters");
        wrong(|s| s.tenants[1].prefixes[0] = "a:".into(), "already");
        wrong(|s| s.tenants[1].prefixes[0].clear(), "empty prefix");
        wrong(|s| s.tenants[0].limits.max = 1, "");
        wrong(|s| s.listeners[0].tenant = "a".into(), "make two tenants");
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
            limits: Limits {
                min: 2,
                ..Limits::default()
            },
        }
    }
}
