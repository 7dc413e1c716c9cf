//! The command line, as memcached's where the meaning is the same.

use super::{Address, Binding, ClientCertificates, Listener, Settings, Tls, file, parse_bytes};
use clap::{ArgAction, Args, Parser};
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

/// A cache server with tenants, which speaks memcached's protocol and gives memory back.
#[derive(Debug, Clone, Parser)]
#[command(name = "stillcache", version = PROGRAM, disable_version_flag = true)]
#[allow(missing_docs)]
pub struct Flags {
    /// TCP port; 0: none, -1: any that is free [default: 11211]
    #[arg(short, long, allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(-1..=65535))]
    pub port: Option<i32>,
    /// Addresses to listen on, with a port or without, divided by commas [default: 127.0.0.1]
    #[arg(short, long, value_delimiter = ',')]
    pub listen: Vec<String>,
    /// Unix socket to listen on, instead of TCP
    #[arg(short = 's', long = "unix-socket")]
    pub unix_socket: Option<PathBuf>,
    /// Permissions of the Unix socket, in octal
    #[arg(short = 'a', long = "unix-mask", default_value = "0700")]
    pub unix_mask: String,
    /// Unix socket whose clients are admins: tenants, limits, shutdown
    #[arg(long)]
    pub admin_socket: Option<PathBuf>,
    /// Memory for items, in MiB, or with k, m or g behind the number [default: 64]
    #[arg(short, long)]
    pub memory_limit: Option<String>,
    /// The longest value, in bytes or with k or m behind the number [default: 1m]
    #[arg(short = 'I', long)]
    pub max_item_size: Option<String>,
    /// Threads [default: one for each processor]
    #[arg(short, long)]
    pub threads: Option<usize>,
    /// The most clients at a time [default: 1024]
    #[arg(short, long)]
    pub conn_limit: Option<usize>,
    /// Connections that may wait to be accepted [default: 1024]
    #[arg(short, long)]
    pub backlog: Option<u32>,
    /// Answer with an error when memory is used up, instead of evicting
    #[arg(short = 'M', long)]
    pub disable_evictions: bool,
    /// Say that items have no CAS values (they have); flush_all then takes what is stored in the same second, too
    #[arg(short = 'C', long)]
    pub disable_cas: bool,
    /// Refuse flush_all
    #[arg(short = 'F', long)]
    pub disable_flush_all: bool,
    /// Refuse to list keys
    #[arg(short = 'X', long)]
    pub disable_dumping: bool,
    /// Refuse watch
    #[arg(short = 'W', long)]
    pub disable_watch: bool,
    /// Enable shutdown, for admins; clients that need not authenticate are admins then
    #[arg(short = 'A', long)]
    pub enable_shutdown: bool,
    /// Protocol: auto, ascii or binary
    #[arg(short = 'B', long, value_parser = ["auto", "ascii", "binary"])]
    pub protocol: Option<String>,
    /// Requests of one client that are executed before others have their turn
    #[arg(short = 'R', long)]
    pub max_reqs_per_event: Option<u32>,
    /// File of name:password lines; clients have to authenticate
    #[arg(short = 'Y', long)]
    pub auth_file: Option<PathBuf>,
    /// Speak TLS over TCP, but for addresses of -l that begin with notls: (-o ssl_chain_cert, ssl_key)
    #[arg(short = 'Z', long)]
    pub enable_ssl: bool,
    /// With -Y only: SASL is not spoken, clients log in by the text protocol
    #[arg(short = 'S', long)]
    pub enable_sasl: bool,
    /// Only 0: UDP is not spoken
    #[arg(short = 'U', long, allow_negative_numbers = true)]
    pub udp_port: Option<i32>,
    /// More log; twice: each request
    #[arg(short, long, action = ArgAction::Count)]
    pub verbose: u8,
    /// Go to the background
    #[arg(short, long)]
    pub daemon: bool,
    /// Become that user, if started as root
    #[arg(short, long)]
    pub user: Option<String>,
    /// Write the process's number to a file
    #[arg(short = 'P', long)]
    pub pidfile: Option<PathBuf>,
    /// Answer GET /metrics at that address with OpenMetrics; the port is 9150 if none is given
    #[arg(long, value_name = "ADDR")]
    pub metrics: Option<String>,
    /// TOML file with tenants, users, listeners and the rest
    #[arg(long)]
    pub config: Option<PathBuf>,
    /// Options: idle_timeout=SECONDS, send_timeout=SECONDS, read_buf_mem_limit=MIB, lru_crawler, no_lru_crawler (also no_modern),
    /// lru_crawler_sleep=MICROSECONDS, lru_crawler_tocrawl=ITEMS, drop_privileges (seccomp; no_drop_privileges: the default); for -Z ssl_chain_cert=FILE, ssl_key=FILE,
    /// ssl_ca_cert=FILE, ssl_verify_mode=0 to 2, ssl_min_version=2 or 3 (TLS 1.2, 1.3), ssl_session_cache, ssl_wbuf_size=KIB; memcached's for slabs and lists are ignored
    #[arg(short = 'o', long = "extended", value_delimiter = ',')]
    pub options: Vec<String>,
    /// Print the version
    #[arg(short = 'V', long, action = ArgAction::Version)]
    version: Option<bool>,
    #[command(flatten)]
    ignored: Ignored,
}

/// Flags of memcached that start as before, and change nothing here.
#[derive(Debug, Clone, Args)]
struct Ignored {
    #[arg(short = 'f', long, hide = true, value_name = "NUMBER")]
    slab_growth_factor: Option<String>,
    #[arg(short = 'n', long, hide = true, value_name = "BYTES")]
    slab_min_size: Option<String>,
    #[arg(short = 'k', long, hide = true)]
    lock_memory: bool,
    #[arg(short = 'L', long, hide = true)]
    enable_largepages: bool,
    #[arg(short = 'r', long, hide = true)]
    enable_coredumps: bool,
    #[arg(short = 'D', hide = true, value_name = "CHAR")]
    prefix_delimiter: Option<String>,
}

impl Ignored {
    /// Returns a line for each flag that was given.
    fn notes(&self) -> impl Iterator<Item = String> {
        [
            (
                self.slab_growth_factor.is_some(),
                "-f: there are no slab classes",
            ),
            (
                self.slab_min_size.is_some(),
                "-n: there are no slab classes",
            ),
            (
                self.lock_memory,
                "-k: memory is not locked; turn swap off for the service (MemorySwapMax=0)",
            ),
            (self.enable_largepages, "-L: there are no large pages"),
            (
                self.enable_coredumps,
                "-r: the limit of core files is the service manager's (LimitCORE=)",
            ),
            (
                self.prefix_delimiter.is_some(),
                "-D: statistics by prefix are those of tenants with a prefix",
            ),
        ]
        .into_iter()
        .filter(|(is_given, _)| *is_given)
        .map(|(_, why)| format!("{why}; ignored"))
    }
}

/// The program's own version, and the protocol that it speaks.
const PROGRAM: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (the protocol of memcached 1.6.18)"
);

/// The longest rest of the search for expired items, in microseconds.
pub(crate) const MAX_REST_US: u32 = 1_000_000;

/// Options of memcached that are about what does not exist here.
const IGNORED: &[&str] = &[
    "maxconns_fast",
    "no_maxconns_fast",
    "hashpower",
    "hash_algorithm",
    "tail_repair_time",
    "no_hashexpand",
    "relaxed_privileges",
    "inline_ascii_resp",
    "no_inline_ascii_resp",
    "temporary_ttl",
    "track_sizes",
    "worker_logbuf_size",
    "watcher_logbuf_size",
    "resp_obj_mem_limit",
];
const IGNORED_PREFIXES: &[&str] = &["slab_", "no_slab_", "lru_", "no_lru_", "hot_", "warm_"];

impl Flags {
    /// Returns the settings that the command line and the file make, and what else the operator should
    /// know. Asks for the addresses of names, which may take seconds.
    ///
    /// # Errors
    ///
    /// A text that says what is wrong, and what to do.
    pub fn settings(&self) -> Result<(Settings, Vec<String>), String> {
        self.over(Settings::default(), Names::Resolved)
    }

    /// Reads the files again, for SIGHUP. Returns the settings that a server takes over, notes for the
    /// operator, and the names of settings that take effect after a restart. `now` are the server's
    /// settings, and `limit` is its memory limit. Listening addresses and the longest value do not
    /// change: they are checked, but no name is resolved.
    pub(crate) fn again(
        &self,
        now: &Settings,
        limit: u64,
        sections: bool,
    ) -> Result<(Settings, Vec<String>, Vec<&'static str>), String> {
        let before = Settings {
            limit,
            sections,
            ..Settings::default()
        };
        let (mut settings, notes) = self.over(before, Names::Known)?;
        let later = now.later(&settings);
        settings.item_max = now.item_max;
        // Those of the files and those in use have to name known tenants.
        settings.listeners.extend_from_slice(&now.listeners);
        settings.check()?;
        Ok((settings, notes, later))
    }

    fn over(
        &self,
        mut settings: Settings,
        names: Names,
    ) -> Result<(Settings, Vec<String>), String> {
        let mut notes = Vec::new();
        if self.enable_ssl {
            settings.tls = Some(Tls::default());
        }
        if let Some(path) = &self.config {
            file::read_with(path, &mut settings, names)?;
        }
        set(&mut settings.threads, self.threads);
        set(&mut settings.max_connections, self.conn_limit);
        set(&mut settings.backlog, self.backlog);
        set(&mut settings.requests_per_event, self.max_reqs_per_event);
        if let Some(size) = &self.memory_limit {
            let is_number = size.bytes().all(|byte| byte.is_ascii_digit());
            let unit = if is_number { "m" } else { "" };
            settings.limit =
                parse_bytes(&format!("{size}{unit}")).map_err(|error| format!("-m {error}"))?;
            settings.limit_given = true;
        }
        if let Some(size) = &self.max_item_size {
            let bytes = parse_bytes(size).map_err(|error| format!("-I {error}"))?;
            settings.item_max = usize::try_from(bytes).unwrap_or(usize::MAX);
        }
        settings.evict &= !self.disable_evictions;
        settings.cas &= !self.disable_cas;
        settings.flush &= !self.disable_flush_all;
        settings.dump &= !self.disable_dumping;
        settings.watch &= !self.disable_watch;
        settings.shutdown |= self.enable_shutdown;
        settings.admin_clients |= self.enable_shutdown;
        settings.verbosity = settings.verbosity.max(self.verbose.into());
        settings.daemon = self.daemon;
        settings.pid_file.clone_from(&self.pidfile);
        if self.user.is_some() {
            settings.user.clone_from(&self.user);
        }
        if let Some(binding) = &self.protocol {
            settings.binding = match binding.as_str() {
                "ascii" => Binding::Ascii,
                "binary" => Binding::Binary,
                _ => Binding::Auto,
            };
        }
        if self.udp_port.is_some_and(|port| port != 0) {
            notes.push("-U: UDP is not spoken; clients of memcached have not used it by default since 1.5.6".into());
        }
        notes.extend(self.ignored.notes());
        for option in self.options.iter().filter(|option| !option.is_empty()) {
            self.option(option, &mut settings, &mut notes)?;
        }
        if let Some(address) = &self.metrics {
            settings.metrics = Some(file::one_address(address, names)?);
        }
        if let Some(path) = &self.auth_file {
            settings.auth_file = Some(path.clone());
        }
        notes.extend(file::read_users(&mut settings)?);
        match (self.enable_sasl, settings.authenticates()) {
            (true, false) => {
                return Err("-S: SASL is not spoken, and without passwords all clients would come in; give -Y FILE, and let clients log in by the text protocol".into());
            }
            (true, true) => notes.push(
                "-S: SASL is not spoken; clients log in by the text protocol, with -Y's passwords"
                    .into(),
            ),
            (false, _) => {}
        }
        if let Some(tls) = &settings.tls
            && tls.files().any(|file| file.as_os_str().is_empty())
        {
            return Err("-Z: give the files of a certificate and its key: -o ssl_chain_cert=FILE,ssl_key=FILE, or [tls] in the file".into());
        }
        settings.flags = Some(Arc::new(self.clone()));
        self.listeners(&mut settings, names)?;
        if names == Names::Resolved {
            settings.check()?;
            warn(&settings, &mut notes);
        }
        Ok((settings, notes))
    }

    fn option(
        &self,
        option: &str,
        settings: &mut Settings,
        notes: &mut Vec<String>,
    ) -> Result<(), String> {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        let seconds = || {
            value
                .parse()
                .map_err(|_| format!("-o {name}: {value:?} is no number of seconds"))
        };
        let count = |most: u32| {
            let number = value.parse().ok().filter(|number: &u32| *number <= most);
            number.ok_or_else(|| format!("-o {name}: {value:?} is no number from 0 to {most}"))
        };
        match name {
            "modern" | "lru_crawler" => settings.search.on = true,
            "no_modern" | "no_lru_crawler" => settings.search.on = false,
            "lru_crawler_sleep" => {
                settings.search.rest = Duration::from_micros(count(MAX_REST_US)?.into());
            }
            "lru_crawler_tocrawl" => settings.search.most = count(u32::MAX)?,
            "read_buf_mem_limit" => settings.reserved_max = (count(1 << 20)? as usize) << 20,
            "idle_timeout" => settings.idle_timeout = seconds()?,
            "send_timeout" => settings.send_timeout = seconds()?,
            _ if name.starts_with("ssl_") => ssl(name, value, settings)?,
            "drop_privileges" => settings.drop_privileges = true,
            "no_drop_privileges" => settings.drop_privileges = false,
            // For tests; not in the help.
            "admin" => settings.admin_clients = true,
            "debug" => settings.debug = true,
            _ if IGNORED.contains(&name)
                || IGNORED_PREFIXES
                    .iter()
                    .any(|prefix| name.starts_with(prefix)) =>
            {
                if self.verbose > 0 {
                    notes.push(format!("-o {name}: is about slabs, lists or buffers that do not exist here; ignored"));
                }
            }
            _ => return Err(format!("-o {name}: there is no such option; see --help")),
        }
        Ok(())
    }

    fn listeners(&self, settings: &mut Settings, names: Names) -> Result<(), String> {
        let mode = u32::from_str_radix(&self.unix_mask, 8)
            .ok()
            .filter(|mode| *mode <= 0o777);
        let mode =
            mode.ok_or_else(|| format!("-a {}: permissions are octal, as 0700", self.unix_mask))?;
        let listener = |address, admin, tls| Listener {
            address,
            mode,
            tenant: String::new(),
            admin,
            tls,
        };
        let from_file = !settings.listeners.is_empty();
        let tcp = self.port.is_some()
            || !self.listen.is_empty()
            || (self.unix_socket.is_none() && !from_file);
        let port = match self.port {
            None => 11211,
            Some(-1) => 0,
            Some(port) => u16::try_from(port).unwrap_or(0),
        };
        settings.port = if tcp && self.port != Some(0) { port } else { 0 };
        if tcp && self.port != Some(0) {
            let default = ["127.0.0.1".to_owned()];
            let hosts = if self.listen.is_empty() {
                &default[..]
            } else {
                &self.listen[..]
            };
            for host in hosts {
                let plain = host.strip_prefix("notls:");
                let tls = settings.tls.is_some() && plain.is_none();
                for address in resolve("-l", plain.unwrap_or(host), port, names)? {
                    settings
                        .listeners
                        .push(listener(Address::Tcp(address), false, tls));
                }
            }
        }
        for (path, admin) in [(&self.unix_socket, false), (&self.admin_socket, true)] {
            if let Some(path) = path {
                settings
                    .listeners
                    .push(listener(Address::Unix(path.clone()), admin, false));
            }
        }
        Ok(())
    }
}

/// An option for TLS. Without -Z it is for nothing, as with memcached.
fn ssl(name: &str, value: &str, settings: &mut Settings) -> Result<(), String> {
    let mut without = Tls::default();
    let tls = settings.tls.as_mut().unwrap_or(&mut without);
    match (name, value) {
        ("ssl_chain_cert", _) => tls.chain = value.into(),
        ("ssl_key", _) => tls.key = value.into(),
        ("ssl_ca_cert", _) => tls.authority = Some(value.into()),
        ("ssl_verify_mode", "0") => tls.clients = ClientCertificates::None,
        ("ssl_verify_mode", "1") => tls.clients = ClientCertificates::Optional,
        ("ssl_verify_mode", "2" | "3") => tls.clients = ClientCertificates::Required,
        ("ssl_min_version", "2" | "tlsv1.2") => tls.only_1_3 = false,
        ("ssl_min_version", "3" | "tlsv1.3") => tls.only_1_3 = true,
        ("ssl_min_version", "0" | "1") => {
            return Err(format!(
                "-o ssl_min_version={value}: TLS 1.0 and 1.1 are not spoken; 2 is TLS 1.2, 3 is TLS 1.3"
            ));
        }
        ("ssl_session_cache", "") => tls.sessions = true,
        ("ssl_wbuf_size", _) => {
            let kib = value.parse().ok().filter(|kib| (1..=1024).contains(kib));
            let kib: usize =
                kib.ok_or_else(|| format!("-o ssl_wbuf_size={value}: from 1 to 1024 KiB"))?;
            tls.buffer = kib << 10;
        }
        ("ssl_verify_mode" | "ssl_min_version", _) => {
            return Err(format!(
                "-o {name}={value}: there is no such value; see --help"
            ));
        }
        _ => return Err(format!("-o {name}: there is no such option; see --help")),
    }
    Ok(())
}

fn set<T: Copy>(setting: &mut T, flag: Option<T>) {
    if let Some(value) = flag {
        *setting = value;
    }
}

/// Whether names of addresses to listen on are resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Names {
    Resolved,
    /// The server listens already: an unspecified address stands for a name.
    Known,
}

/// Returns the addresses of `host`, with `port` if it has none. `what` is the setting that names it.
pub(super) fn resolve(
    what: &str,
    host: &str,
    port: u16,
    names: Names,
) -> Result<Vec<SocketAddr>, String> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    if let Ok(address) = host.parse() {
        return Ok(vec![address]);
    }
    let with_port = host.rsplit_once(':');
    if names == Names::Known {
        let port = with_port.map_or(Ok(port), |(_, port)| port.parse());
        let port = port.map_err(|_| format!("{what} {host}: a port is a number up to 65535"))?;
        return Ok(vec![SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port)]);
    }
    let found: Vec<_> = match with_port {
        Some(_) => host.to_socket_addrs(),
        None => (host, port).to_socket_addrs(),
    }
    .map_err(|error| format!("{what} {host}: {error}; give an address, or a name that resolves"))?
    .collect();
    if found.is_empty() {
        return Err(format!("{what} {host}: the name has no address"));
    }
    Ok(found)
}

fn warn(settings: &Settings, notes: &mut Vec<String>) {
    if let Some(address) = settings.metrics
        && !address.ip().is_loopback()
    {
        notes.push(format!(
            "answers with metrics on {address}: all who reach it read them, names of tenants among them"
        ));
    }
    let shown = settings
        .tls
        .as_ref()
        .is_some_and(|tls| tls.clients == ClientCertificates::Required);
    for listener in &settings.listeners {
        if let Address::Tcp(address) = listener.address
            && !address.ip().is_loopback()
            && !settings.authenticates()
            && !(listener.tls && shown)
        {
            notes.push(format!(
                "listens on {address} without authentication: all who reach it read and write; use -Y FILE, or -l 127.0.0.1"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Search;

    fn settings(line: &str) -> Result<(Settings, Vec<String>), String> {
        let words = std::iter::once("stillcache").chain(line.split_whitespace());
        Flags::try_parse_from(words)
            .map_err(|error| error.to_string())?
            .settings()
    }

    #[test]
    fn memcacheds_flags() {
        let (none, notes) = settings("").unwrap();
        assert_eq!(none.listeners[0].address.to_string(), "127.0.0.1:11211");
        assert_eq!(
            (none.limit, none.item_max, none.max_connections, notes.len()),
            (64 << 20, 1 << 20, 1024, 0)
        );
        let (all, _) = settings("-m 100 -I 512k -t 3 -c 7 -p 0 -s /tmp/s -M -C -F -X -W -vv -R 20 -b 9 -B ascii -P /p -d -u x -U 0 -o idle_timeout=3,slab_reassign,no_modern").unwrap();
        assert_eq!(
            (all.limit, all.item_max, all.threads, all.max_connections),
            (100 << 20, 512 << 10, 3, 7)
        );
        assert_eq!(all.listeners.len(), 1);
        assert_eq!(all.listeners[0].address, Address::Unix("/tmp/s".into()));
        assert!(!all.evict && !all.cas && !all.flush && !all.dump && !all.watch && all.daemon);
        assert_eq!(
            (
                all.verbosity,
                all.requests_per_event,
                all.backlog,
                all.idle_timeout
            ),
            (2, 20, 9, 3)
        );
        assert_eq!(
            (all.binding, all.user.as_deref()),
            (Binding::Ascii, Some("x"))
        );
        assert!(none.search.on && !all.search.on && none.reserved_max == 0);
        let options =
            "no_modern,lru_crawler,lru_crawler_sleep=7,lru_crawler_tocrawl=9,read_buf_mem_limit=3";
        let (some, _) = settings(&format!("-o {options}")).unwrap();
        let search = Search {
            on: true,
            rest: Duration::from_micros(7),
            most: 9,
        };
        assert_eq!((some.search, some.reserved_max), (search, 3 << 20));
        assert!(!settings("-o no_lru_crawler").unwrap().0.search.on);
        assert!(!none.drop_privileges);
        assert!(settings("-o drop_privileges").unwrap().0.drop_privileges);
        let line = "-o drop_privileges,no_drop_privileges";
        assert!(!settings(line).unwrap().0.drop_privileges);
        let (two, _) = settings("-l 127.0.0.1:5,[::1] -p 6").unwrap();
        let addresses: Vec<_> = two
            .listeners
            .iter()
            .map(|listener| listener.address.to_string())
            .collect();
        assert_eq!(addresses, ["127.0.0.1:5", "[::1]:6"]);
    }

    #[test]
    fn wrong_usage_is_refused() {
        for line in [
            "-p 65536",
            "-p -2",
            "-t 0",
            "-t -1",
            "-c 0",
            "-c -1",
            "-I 1000",
            "-I 256m",
            "-I x",
            "-B http",
            "-o bogus",
            "-l fooble.invalid",
            "-a 9",
            "-m -1",
            "-m 99999999999999999999",
            "-m 18446744073709551615",
            "-S",
            "-m 1x",
            "--metrics 1.2.3.4.5",
            "-o idle_timeout=x",
            "-o lru_crawler_sleep=1000001",
            "-o lru_crawler_tocrawl",
            "-o read_buf_mem_limit=-1",
            "extra",
            "-Z",
            "-Z -o ssl_chain_cert=c",
            "-Z -o ssl_chain_cert=c,ssl_key=k,ssl_verify_mode=9",
            "-Z -o ssl_chain_cert=c,ssl_key=k,ssl_ciphers=x",
            "-Z -o ssl_chain_cert=c,ssl_key=k,ssl_min_version=1",
            "-Z -o ssl_chain_cert=c,ssl_key=k,ssl_wbuf_size=2000",
            "-Z -o ssl_chain_cert=c,ssl_key=k,ssl_wbuf_size=0",
            "-Y /nonexistent",
            "--config /nonexistent",
        ] {
            assert!(settings(line).is_err(), "{line}");
        }
    }

    #[test]
    fn tls_is_for_tcp_where_it_is_not_declined() {
        let (all, _) = settings("-Z -l 127.0.0.1:5,notls:127.0.0.1:6 -o ssl_chain_cert=c,ssl_key=k,ssl_ca_cert=a,ssl_verify_mode=2,ssl_min_version=tlsv1.3 --admin-socket /s").unwrap();
        let tls: Vec<_> = all.listeners.iter().map(|listener| listener.tls).collect();
        assert_eq!(tls, [true, false, false]);
        assert_eq!(
            all.tls,
            Some(Tls {
                chain: "c".into(),
                key: "k".into(),
                authority: Some("a".into()),
                clients: ClientCertificates::Required,
                only_1_3: true,
                ..Tls::default()
            })
        );
        let (none, _) = settings("-o ssl_chain_cert=c,ssl_key=k").unwrap();
        assert!(none.tls.is_none() && !none.listeners[0].tls);
        // Where the certificate is named makes no difference.
        let files = "-o ssl_chain_cert=c,ssl_key=k";
        let section = "[tls]\nchain = \"c\"\nkey = \"k\"\n";
        let listen = "[[listen]]\naddress = \"127.0.0.1:7\"\n";
        for (flags, text) in [
            ("-l 127.0.0.1:5,notls:127.0.0.1:6", section.to_owned()),
            (&*format!("-Z {files}"), listen.to_owned()),
            ("", format!("{section}{listen}")),
            (
                "",
                format!("{listen}[[listen]]\naddress = \"127.0.0.1:8\"\ntls = false\n{section}"),
            ),
        ] {
            let path =
                std::env::temp_dir().join(format!("stillcache-{}-tls.toml", std::process::id()));
            std::fs::write(&path, &text).unwrap();
            let (all, _) = settings(&format!("{flags} --config {}", path.display())).unwrap();
            std::fs::remove_file(&path).unwrap();
            for listener in &all.listeners {
                let plain =
                    ["127.0.0.1:6", "127.0.0.1:8"].contains(&&*listener.address.to_string());
                assert_eq!(listener.tls, !plain, "{flags} {text} {}", listener.address);
            }
        }
    }

    #[test]
    fn a_public_address_without_authentication_warns() {
        assert!(settings("-l 0.0.0.0").unwrap().1[0].contains("without authentication"));
        let tls = |mode, listen| {
            let files = "ssl_chain_cert=c,ssl_key=k,ssl_ca_cert=a";
            let line = format!("-Z -l {listen} -o {files},ssl_verify_mode={mode}");
            settings(&line).unwrap().1.len()
        };
        assert_eq!(
            (
                tls(1, "0.0.0.0"),
                tls(2, "0.0.0.0"),
                tls(2, "notls:0.0.0.0")
            ),
            (1, 0, 1)
        );
        assert!(settings("-U 5").unwrap().1[0].contains("UDP"));
    }

    #[test]
    fn command_lines_of_memcached_start() {
        let (ignored, notes) = settings("-f 1.25 -n 48 -k -L -r -D : -m 64m").unwrap();
        assert_eq!(ignored.limit, 64 << 20);
        let flags: Vec<_> = notes.iter().map(|note| &note[..3]).collect();
        assert_eq!(flags, ["-f:", "-n:", "-k:", "-L:", "-r:", "-D:"]);
        assert!(notes.iter().all(|note| note.ends_with("; ignored")));
        let long = "--slab-growth-factor=2 --slab-min-size=9 --lock-memory --enable-largepages --enable-coredumps";
        assert_eq!(settings(long).unwrap().1.len(), 5);
        assert_eq!(settings("-m 1g").unwrap().0.limit, 1 << 30);
        // Without passwords, clients that should log in would all come in.
        assert!(settings("-S").unwrap_err().contains("-Y FILE"));
        let name = format!("stillcache-{}-sasl", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, "u:p\n").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&path, mode).unwrap();
        let (_, notes) = settings(&format!("-S -Y {}", path.display())).unwrap();
        assert!(notes.iter().any(|note| note.contains("SASL")));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn an_address_that_is_wrong_is_named_with_its_setting() {
        let error = settings("--metrics nowhere.invalid").unwrap_err();
        assert!(error.starts_with("metrics nowhere.invalid: "), "{error}");
        let error = settings("-l nowhere.invalid").unwrap_err();
        assert!(error.starts_with("-l nowhere.invalid: "), "{error}");
    }
}
