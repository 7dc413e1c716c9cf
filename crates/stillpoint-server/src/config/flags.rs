//! The command line, as memcached's where the meaning is the same.

use super::{
    ClientCertificates, INHERITED, Listener, Settings, Tls, file,
    table::{Flag, Section, Setting},
};
use clap::{Arg, ArgAction, ArgMatches, Command};
use std::{
    ffi::OsString,
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    sync::Arc,
};

/// Where exporters of memcached listen.
const METRICS_PORT: u16 = 9150;

/// The command line.
#[derive(Debug, Clone)]
pub struct Flags {
    line: ArgMatches,
    /// Sockets from the service manager. If there are any, they replace all configured places.
    pub(crate) inherited: Vec<Listener>,
}

/// The program's own version, and the protocol that it speaks.
const PROGRAM: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (the protocol of memcached 1.6.18)"
);

/// Flags of memcached that start as before, and change nothing here.
const IGNORED_FLAGS: &[&str] = &[
    "-f --slab-growth-factor NUMBER: there are no slab classes",
    "-n --slab-min-size BYTES: there are no slab classes",
    "-k --lock-memory: memory is not locked; turn swap off for the service (MemorySwapMax=0)",
    "-L --enable-largepages: there are no large pages",
    "-r --enable-coredumps: the limit of core files is the service manager's (LimitCORE=)",
    "-D CHAR: statistics by prefix are those of tenants with a prefix",
];

fn ignored_flags() -> impl Iterator<Item = (Flag, &'static str)> {
    let flags = IGNORED_FLAGS
        .iter()
        .filter_map(|line| line.split_once(": "));
    flags.map(|(flag, why)| (Flag(flag), why))
}

/// Options of memcached that are about what does not exist here; those with `*` begin so.
const IGNORED: &str = "maxconns_fast no_maxconns_fast hashpower hash_algorithm tail_repair_time no_hashexpand relaxed_privileges inline_ascii_resp \
    no_inline_ascii_resp temporary_ttl track_sizes worker_logbuf_size watcher_logbuf_size resp_obj_mem_limit slab_* no_slab_* lru_* no_lru_* hot_* warm_*";

fn is_ignored(name: &str) -> bool {
    IGNORED
        .split(' ')
        .any(|ignored| match ignored.strip_suffix('*') {
            Some(begin) => name.starts_with(begin),
            None => name == ignored,
        })
}

/// Returns the settings that have a flag.
fn flags() -> impl Iterator<Item = &'static Setting<Settings>> {
    let has =
        |setting: &&Setting<_>| setting.flag.letter().is_some() || setting.flag.long().is_some();
    Settings::SETTINGS.iter().filter(has)
}

/// Returns the parser of the command line: the flags of all settings, and those that are ignored, of
/// which the help says nothing.
pub(super) fn command() -> Command {
    let arg = |flag: Flag| {
        let action = match (flag.value(), flag.letter()) {
            (Some(_), _) => ArgAction::Set,
            (None, Some('v')) => ArgAction::Count,
            (None, _) => ArgAction::SetTrue,
        };
        let arg = Arg::new(flag.0).action(action).value_name(flag.value());
        arg.long(flag.long()).short(flag.letter())
    };
    let settings = flags().map(|setting| match setting.is_list() {
        true => arg(setting.flag)
            .action(ArgAction::Append)
            .value_delimiter(',')
            .help(help(setting)),
        false => arg(setting.flag).help(help(setting)),
    });
    let ignored = ignored_flags().map(|(flag, _)| arg(flag).hide(true));
    let version = Arg::new("version").short('V').long("version");
    let version = version.action(ArgAction::Version).help("Print the version");
    Command::new("stillcache")
        .about(
            "A cache server with tenants, which speaks memcached's protocol and gives memory back",
        )
        .version(PROGRAM)
        .disable_version_flag(true)
        .allow_negative_numbers(true)
        // As with memcached, the last one counts: some scripts add flags behind those of a package.
        .args_override_self(true)
        .args(settings)
        .args(ignored)
        .arg(version)
        .after_help(options())
}

fn help<T: Section>(setting: &Setting<T>) -> String {
    match &*setting.default() {
        "" | "false" => setting.meaning.into(),
        default => format!("{} [default: {default}]", setting.meaning),
    }
}

/// Returns what `--help` says of the options of `-o`.
fn options() -> String {
    fn lines<T: Section>(all: &mut String) {
        for setting in T::SETTINGS {
            if let Some(name) = setting.flag.option() {
                let value = setting.flag.value().map(|value| format!("={value}"));
                let value = value.unwrap_or_default();
                all.push_str(&format!("\n  {name}{value}\n          {}", help(setting)));
            }
        }
    }
    let mut all = String::from(
        "Options of -o (no_ before its name turns a switch off; those of memcached for slabs and lists are ignored):",
    );
    lines::<Settings>(&mut all);
    lines::<Tls>(&mut all);
    all
}

impl Flags {
    /// Returns the settings that the command line and the file make, and what else the operator should
    /// know. Asks for the addresses of names, which may take seconds.
    ///
    /// # Errors
    ///
    /// A text that says what is wrong, and what to do.
    pub fn settings(&self) -> Result<(Settings, Vec<String>), String> {
        let (mut settings, mut notes) = self.over(Settings::default())?;
        for listener in &mut settings.listeners {
            listener.look_up()?;
        }
        if let Some(name) = &settings.metrics_name {
            let found = look_up("metrics", split("metrics", name, METRICS_PORT)?)?;
            let [address] = found[..] else {
                return Err(format!("metrics: {name} has several addresses; give one"));
            };
            settings.metrics = Some(address);
        }
        settings.check()?;
        warn(&settings, &mut notes);
        Ok((settings, notes))
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
        let (mut settings, notes) = self.over(before)?;
        let later = now.later(&settings);
        settings.item_max = now.item_max;
        // Those in use have to name known tenants, too.
        settings.listeners.extend_from_slice(&now.listeners);
        settings.check()?;
        Ok((settings, notes, later))
    }

    /// Parses the command line, which begins with the program's name.
    ///
    /// # Errors
    ///
    /// Wrong usage; also for `--help` and `--version`, whose text the error prints.
    pub fn parse_from<T: Into<OsString> + Clone>(
        line: impl IntoIterator<Item = T>,
    ) -> Result<Self, clap::Error> {
        let line = command().try_get_matches_from(line)?;
        let inherited = Vec::new();
        Ok(Self { line, inherited })
    }

    /// Returns the values that are given for `flag`; an empty one for each time that it is given alone.
    fn values(&self, flag: Flag) -> Vec<String> {
        let alone = |count| vec![String::new(); count];
        match (flag.value(), flag.letter()) {
            (Some(_), _) => {
                let values = self.line.get_many(flag.0);
                values.map_or(Vec::new(), |values| values.cloned().collect())
            }
            (None, Some('v')) => alone(self.line.get_count(flag.0).into()),
            (None, _) => alone(self.line.get_flag(flag.0).into()),
        }
    }

    /// Sets what the flags say.
    fn apply(&self, settings: &mut Settings) -> Result<(), String> {
        for setting in flags() {
            let values = self.values(setting.flag);
            if !values.is_empty() {
                setting.set(settings, &values)?;
                settings.limit_given |= setting.key == "memory-limit";
                settings.admin_clients |= setting.key == "shutdown";
            }
        }
        Ok(())
    }

    /// Reads the command line and the file over `settings`. No name is resolved.
    fn over(&self, mut settings: Settings) -> Result<(Settings, Vec<String>), String> {
        let mut flags = Settings::default();
        self.apply(&mut flags)?;
        if flags.enable_ssl {
            settings.tls = Some(Tls::default());
        }
        if let Some(path) = &flags.config {
            file::read(path, &mut settings)?;
        }
        self.apply(&mut settings)?;
        let mut notes = Vec::new();
        if settings.udp_port != "0" {
            notes.push("-U: UDP is not spoken; clients of memcached have not used it by default since 1.5.6".into());
        }
        let ignored = ignored_flags().filter(|(flag, _)| !self.values(*flag).is_empty());
        notes.extend(ignored.map(|(flag, why)| format!("{}: {why}; ignored", flag.name())));
        for option in flags.options.iter().filter(|option| !option.is_empty()) {
            set_option(option, &mut settings, &mut notes)?;
        }
        notes.extend(file::read_users(&mut settings)?);
        match (settings.enable_sasl, settings.authenticates()) {
            (true, false) => {
                return Err("-S: SASL is not spoken, and without passwords all clients would come in; give -Y FILE, and let clients log in by the text protocol".into());
            }
            (true, true) => notes.push(
                "-S: SASL is not spoken; clients log in by the text protocol, with -Y's passwords"
                    .into(),
            ),
            (false, _) => {}
        }
        settings.flags = Some(Arc::new(self.clone()));
        if self.inherited.is_empty() {
            listen(&mut settings)?;
        } else {
            let flags = [&settings.unix_socket, &settings.admin_socket];
            let others = settings.port.as_deref().is_some_and(|port| port != "0")
                || !settings.addresses.is_empty()
                || !settings.listeners.is_empty()
                || flags.iter().any(|path| path.is_some());
            if others {
                notes.push("listens only on sockets passed by the service manager; -p, -l, -b, -s, -a, --admin-socket and [[listen]] are ignored".into());
            }
            settings.listeners.clone_from(&self.inherited);
        }
        if let Some(name) = &settings.metrics_name {
            split("metrics", name, METRICS_PORT)?;
        }
        Ok((settings, notes))
    }
}

/// Applies an option of `-o`.
fn set_option(
    option: &str,
    settings: &mut Settings,
    notes: &mut Vec<String>,
) -> Result<(), String> {
    /// Sets an option of a section, if it has that.
    fn set<T: Section>(section: &mut T, name: &str, value: &str) -> Option<Result<(), String>> {
        let bare = name.strip_prefix("no_");
        let name = bare.unwrap_or(name);
        let mut settings = T::SETTINGS.iter();
        let setting = settings.find(|setting| setting.flag.option() == Some(name))?;
        match (setting.flag.value(), bare) {
            (Some(_), Some(_)) => None,
            (Some(_), None) => Some(setting.read(section, value)),
            (None, off) => Some(setting.read(section, off.map_or("true", |_| "false"))),
        }
    }
    let (name, value) = option.split_once('=').unwrap_or((option, ""));
    // Without -Z those for TLS are for nothing, as with memcached.
    let mut without = Tls::default();
    let found = match name {
        "modern" => set(settings, "lru_crawler", ""),
        "no_modern" => set(settings, "no_lru_crawler", ""),
        // For tests; not in the help.
        "admin" => {
            settings.admin_clients = true;
            Some(Ok(()))
        }
        "debug" => {
            settings.debug = true;
            Some(Ok(()))
        }
        _ => set(settings, name, value).or_else(|| {
            let tls = settings.tls.as_mut().unwrap_or(&mut without);
            set(tls, name, value)
        }),
    };
    match found {
        Some(done) => done?,
        None if is_ignored(name) => {
            if settings.verbosity > 0 {
                notes.push(format!(
                    "-o {name}: is about slabs, lists or buffers that do not exist here; ignored"
                ));
            }
        }
        None => return Err(format!("-o {name}: there is no such option; see --help")),
    }
    Ok(())
}

/// Adds the places to listen of the command line to those of the file.
fn listen(settings: &mut Settings) -> Result<(), String> {
    let all = &mut settings.listeners;
    let port = match settings.port.as_deref() {
        None => Ok(11211),
        Some("-1") => Ok(0),
        Some(port) => port.parse(),
    };
    let port: u16 =
        port.map_err(|_| "-p: a port is a number up to 65535; -1 is any that is free")?;
    let local = ["127.0.0.1".to_owned()];
    let hosts = match &settings.addresses[..] {
        [] => &local[..],
        given => given,
    };
    let tcp = settings.port.is_some()
        || !settings.addresses.is_empty()
        || (settings.unix_socket.is_none() && all.is_empty());
    if tcp && settings.port.as_deref() != Some("0") {
        all.extend(hosts.iter().map(|host| {
            let plain = host.strip_prefix("notls:");
            Listener {
                address: Some(plain.unwrap_or(host).into()),
                tls: plain.map(|_| false),
                port,
                from: "-l",
                ..Listener::default()
            }
        }));
    }
    let mode = Listener::default().mode;
    for (from, path, mode, admin) in [
        ("-s", &settings.unix_socket, settings.unix_mask, false),
        ("--admin-socket", &settings.admin_socket, mode, true),
    ] {
        if path.is_some() {
            all.push(Listener {
                path: path.clone(),
                mode,
                admin,
                from,
                ..Listener::default()
            });
        }
    }
    Ok(())
}

impl Listener {
    /// Returns the address or path, for messages.
    pub(crate) fn place(&self) -> String {
        let path = self.path.as_ref().map(|path| path.display().to_string());
        self.address.clone().or(path).unwrap_or_default()
    }

    /// Returns the name and port that its address stands for; `None` for a path.
    pub(super) fn name(&self) -> Result<Option<(&str, u16)>, String> {
        let wrong = |what| Err(format!("{}: {what}", self.from));
        match (&self.address, &self.path) {
            (Some(address), None) if address.is_empty() => wrong("the address is empty"),
            (None, Some(path)) if path.as_os_str().is_empty() => wrong("the path is empty"),
            (Some(address), None) => split(self.from, address, self.port).map(Some),
            (None, Some(_)) => Ok(None),
            _ => wrong("give either address or path"),
        }
    }

    /// Looks the addresses of a name up, if that has not been done.
    pub(crate) fn look_up(&mut self) -> Result<(), String> {
        if self.found.is_empty()
            && let Some(name) = self.name()?
        {
            self.found = look_up(self.from, name)?;
        }
        Ok(())
    }
}

/// Returns the name or address in `text`, and its port: `port` if it has none. `what` is the setting.
fn split<'a>(what: &str, text: &'a str, port: u16) -> Result<(&'a str, u16), String> {
    let bare = |text: &'a str| text.trim_start_matches('[').trim_end_matches(']');
    match text.rsplit_once(':') {
        Some((name, port)) if bare(text).parse::<IpAddr>().is_err() => {
            let wrong = |_| format!("{what} {text}: a port is a number up to 65535");
            Ok((bare(name), port.parse().map_err(wrong)?))
        }
        _ => Ok((bare(text), port)),
    }
}

/// Returns the addresses of a name, for which it may ask a name server.
fn look_up(what: &str, name: (&str, u16)) -> Result<Vec<SocketAddr>, String> {
    let found: Vec<_> = name
        .to_socket_addrs()
        .map_err(|error| {
            format!(
                "{what} {}: {error}; give an address, or a name that resolves",
                name.0
            )
        })?
        .collect();
    match found.is_empty() {
        true => Err(format!("{what} {}: the name has no address", name.0)),
        false => Ok(found),
    }
}

fn warn(settings: &Settings, notes: &mut Vec<String>) {
    let mut places = settings.listeners.iter();
    let admins = places.any(|one| one.from == "--admin-socket");
    if admins && settings.unix_mask != Settings::default().unix_mask {
        notes.push("-a: the admins' socket has mode 0700; for another give [[listen]] with path, mode and admin".into());
    }
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
        let asks = settings.authenticates() && listener.login && !listener.admin;
        if asks || (shown && listener.speaks_tls(settings.tls.as_ref())) {
            continue;
        }
        let public = listener.found.iter();
        for address in public.filter(|address| !address.ip().is_loopback()) {
            let remedy = match settings.authenticates() {
                false if listener.from == INHERITED => {
                    "use -Y FILE, or ListenStream=127.0.0.1:PORT in the socket's unit"
                }
                false => "use -Y FILE, or -l 127.0.0.1",
                true => "a [[listen]] with admin, or with login = false, asks for no login",
            };
            notes.push(format!(
                "listens on {address} without authentication: all who reach it read and write; {remedy}"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::{Binding, TlsVersion},
        tests::file,
    };
    use std::time::Duration;

    fn settings(line: &str) -> Result<(Settings, Vec<String>), String> {
        let words = std::iter::once("stillcache").chain(line.split_whitespace());
        Flags::parse_from(words)
            .map_err(|error| error.to_string())?
            .settings()
    }

    #[test]
    fn memcacheds_flags() {
        let (none, notes) = settings("").unwrap();
        assert_eq!(none.listeners[0].found[0].to_string(), "127.0.0.1:11211");
        assert_eq!(
            (none.limit, none.item_max, none.max_connections, notes.len()),
            (64 << 20, 1 << 20, 1024, 0)
        );
        let (all, _) = settings("-m 100 -I 512k -t 3 -c 7 -p 0 -s /tmp/s -M -C -F -X -W -vv -R 20 -b 9 -B ascii -P /p -d -u x -U 0 -o idle_timeout=3,slab_reassign,no_modern").unwrap();
        assert_eq!(
            (all.limit, all.item_max, all.threads, all.max_connections),
            (100 << 20, 512 << 10, 3, 7)
        );
        let unix = Listener {
            from: "-s",
            ..Listener::unix("/tmp/s".into())
        };
        assert_eq!(all.listeners, [unix]);
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
        assert!(none.lru_crawler && !all.lru_crawler && none.reserved_max == 0);
        let options =
            "no_modern,lru_crawler,lru_crawler_sleep=7,lru_crawler_tocrawl=9,read_buf_mem_limit=3";
        let (some, _) = settings(&format!("-o {options}")).unwrap();
        let sleep = Duration::from_micros(7);
        assert!(some.lru_crawler && some.lru_crawler_sleep == sleep);
        assert_eq!((some.lru_crawler_tocrawl, some.reserved_max), (9, 3 << 20));
        assert!(!settings("-o no_lru_crawler").unwrap().0.lru_crawler);
        assert!(!none.drop_privileges);
        assert!(settings("-o drop_privileges").unwrap().0.drop_privileges);
        let line = "-o drop_privileges,no_drop_privileges";
        assert!(!settings(line).unwrap().0.drop_privileges);
        let (two, _) = settings("-l 127.0.0.1:5,[::1] -p 6").unwrap();
        let addresses: Vec<_> = two
            .listeners
            .iter()
            .map(|listener| listener.found[0].to_string())
            .collect();
        assert_eq!(addresses, ["127.0.0.1:5", "[::1]:6"]);
    }

    #[test]
    fn the_last_of_a_flag_counts_and_lists_collect() {
        let (all, _) =
            settings("-m 64 -m 128 -M -M -v -v -k -k -f 1 -f 2 --threads 2 -t 3").unwrap();
        assert_eq!((all.limit, all.threads, all.evict), (128 << 20, 3, false));
        assert_eq!(all.verbosity, 2);
        let lists = "-l 127.0.0.1:5 -l 127.0.0.1:6 -o idle_timeout=3 -o idle_timeout=4,no_modern";
        let (all, _) = settings(lists).unwrap();
        let ports = all.listeners.iter().map(|one| one.found[0].to_string());
        let ports: Vec<_> = ports.collect();
        assert_eq!(ports, ["127.0.0.1:5", "127.0.0.1:6"]);
        assert!(all.idle_timeout == 4 && !all.lru_crawler);
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
            "-c 1k",
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
            // Not two minutes.
            "-o idle_timeout=2m",
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
        let tls: Vec<_> = all
            .listeners
            .iter()
            .map(|listener| listener.speaks_tls(all.tls.as_ref()))
            .collect();
        assert_eq!(tls, [true, false, false]);
        assert_eq!(
            all.tls,
            Some(Tls {
                chain: "c".into(),
                key: "k".into(),
                authority: Some("a".into()),
                clients: ClientCertificates::Required,
                min_version: TlsVersion::V13,
                ..Tls::default()
            })
        );
        let (none, _) = settings("-o ssl_chain_cert=c,ssl_key=k").unwrap();
        assert!(none.tls.is_none() && !none.listeners[0].speaks_tls(None));
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
            let file = file("tls.toml", &text);
            let (all, _) = settings(&format!("{flags} --config {}", file.display())).unwrap();
            for listener in &all.listeners {
                let plain = ["127.0.0.1:6", "127.0.0.1:8"].contains(&&*listener.place());
                let tls = listener.speaks_tls(all.tls.as_ref());
                assert_eq!(tls, !plain, "{flags} {text} {}", listener.place());
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
        // A listener of admins, or with `login = false`, asks for no login.
        let (mut all, _) = settings("-l 0.0.0.0").unwrap();
        all.users = Some(Vec::new());
        for (login, admin, lines) in [(true, false, 0), (false, false, 1), (true, true, 1)] {
            let listener = &mut all.listeners[0];
            listener.tenant = "shop".into();
            (listener.login, listener.admin) = (login, admin);
            let mut notes = Vec::new();
            warn(&all, &mut notes);
            assert_eq!(notes.len(), lines, "{login} {admin}");
        }
    }

    /// Inherited sockets replace every configured place; names are not resolved.
    #[test]
    fn beside_the_service_managers_sockets_no_place_counts() {
        use std::os::{linux::net::SocketAddrExt, unix::net};
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let name = format!("stillcache-{}", std::process::id());
        let places = [tcp.local_addr().unwrap().to_string(), format!("@{name}")];
        let address = net::SocketAddr::from_abstract_name(name).unwrap();
        let unix = net::UnixListener::bind_addr(&address).unwrap();
        let sockets = [tcp.into(), unix.into()];
        for (line, ignored) in [
            ("", 0),
            ("-p 0", 0),
            ("-p 1", 1),
            ("-l nosuch.invalid", 1),
            ("-s /s", 1),
            ("-a 0777 --admin-socket /s", 1),
        ] {
            let words = std::iter::once("stillcache").chain(line.split_whitespace());
            let mut flags = Flags::parse_from(words).unwrap();
            flags.inherited = Listener::inherited(&sockets).unwrap();
            let (all, notes) = flags.settings().unwrap();
            assert_eq!(notes.len(), ignored, "{line}: {notes:?}");
            let shown = all.listeners.iter().map(Listener::place);
            assert_eq!(shown.collect::<Vec<_>>(), places, "{line}");
        }
    }

    /// Detects an address that the server adds by itself, and reports as a setting without a name.
    #[test]
    fn a_listen_section_that_comes_or_goes_is_for_a_restart() {
        let listen = "[[listen]]\naddress = \"127.0.0.1:7\"\n";
        for (before, after) in [("", listen), (listen, "")] {
            let file = file("listen.toml", before);
            let (now, _) = settings(&format!("--config {}", file.display())).unwrap();
            std::fs::write(&file, after).unwrap();
            let flags = now.flags.clone().unwrap();
            let (.., later) = flags.again(&now, now.limit, false).unwrap();
            assert_eq!(later, ["[[listen]]"], "{before:?} to {after:?}");
        }
    }

    #[test]
    fn the_mask_of_the_clients_socket_does_not_open_the_admins() {
        let (all, notes) = settings("-s /s -a 0777 --admin-socket /admin").unwrap();
        assert!(
            matches!(&notes[..], [note] if note.contains("the admins' socket has mode 0700")),
            "{notes:?}"
        );
        for line in ["-s /s -a 0777", "--admin-socket /admin"] {
            assert!(settings(line).unwrap().1.is_empty(), "{line}");
        }
        let sockets = all.listeners.iter().map(|one| (one.admin, one.mode.0));
        assert_eq!(sockets.collect::<Vec<_>>(), [(false, 0o777), (true, 0o700)]);
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
        let file = file("sasl", "u:p\n");
        let (_, notes) = settings(&format!("-S -Y {}", file.display())).unwrap();
        assert!(notes.iter().any(|note| note.contains("SASL")));
    }

    #[test]
    fn an_address_that_is_wrong_is_named_with_its_setting() {
        let error = settings("--metrics nowhere.invalid").unwrap_err();
        assert!(error.starts_with("metrics nowhere.invalid: "), "{error}");
        let error = settings("-l nowhere.invalid").unwrap_err();
        assert!(error.starts_with("-l nowhere.invalid: "), "{error}");
        for (flag, says) in [
            ("-l=", "-l: the address is empty"),
            ("--listen=notls:", "-l: the address is empty"),
            ("--unix-socket=", "-s: the path is empty"),
            ("--admin-socket=", "--admin-socket: the path is empty"),
        ] {
            assert_eq!(settings(flag).unwrap_err(), says, "{flag}");
        }
    }
}
