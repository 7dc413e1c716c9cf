//! The TOML file, and the file with passwords.

use super::{
    Address, ClientCertificates, Listener, Settings, Tenant, Tls, check_names,
    flags::{Names, resolve},
    parse_bytes,
};
use crate::{store::Limits, users::User};
use serde::Deserialize;
use std::{
    collections::{HashMap, HashSet},
    fs,
    net::SocketAddr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// Where exporters of memcached listen.
const METRICS_PORT: u16 = 9150;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    memory_limit: Option<Bytes>,
    max_item_size: Option<Bytes>,
    threads: Option<usize>,
    conn_limit: Option<usize>,
    evict: Option<bool>,
    idle_timeout: Option<u32>,
    send_timeout: Option<u32>,
    buffer_limit: Option<Bytes>,
    shutdown: Option<bool>,
    statistics: Option<bool>,
    auth_file: Option<PathBuf>,
    metrics: Option<String>,
    user_name: Option<String>,
    tls: Option<FileTls>,
    #[serde(default)]
    listen: Vec<FileListener>,
    #[serde(default)]
    tenant: Vec<FileTenant>,
    #[serde(default)]
    user: Vec<FileUser>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct FileTls {
    chain: PathBuf,
    key: PathBuf,
    authority: Option<PathBuf>,
    #[serde(default)]
    client_certificates: FileClients,
    #[serde(default)]
    min_version: FileVersion,
    #[serde(default)]
    sessions: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum FileClients {
    #[default]
    None,
    Optional,
    Required,
}

#[derive(Debug, Default, Deserialize)]
enum FileVersion {
    #[default]
    #[serde(rename = "1.2")]
    V12,
    #[serde(rename = "1.3")]
    V13,
}

impl From<FileTls> for Tls {
    fn from(file: FileTls) -> Self {
        Self {
            chain: file.chain,
            key: file.key,
            authority: file.authority,
            clients: match file.client_certificates {
                FileClients::None => ClientCertificates::None,
                FileClients::Optional => ClientCertificates::Optional,
                FileClients::Required => ClientCertificates::Required,
            },
            only_1_3: matches!(file.min_version, FileVersion::V13),
            sessions: file.sessions,
            ..Self::default()
        }
    }
}

/// A number of bytes, or one with a unit.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Bytes {
    Number(u64),
    Text(String),
}

impl Bytes {
    fn get(&self) -> Result<u64, String> {
        match self {
            Self::Number(bytes) => Ok(*bytes),
            Self::Text(text) => parse_bytes(text),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileListener {
    address: Option<String>,
    path: Option<PathBuf>,
    mode: Option<String>,
    #[serde(default)]
    tenant: String,
    #[serde(default)]
    admin: bool,
    /// Whether TLS is spoken; by default over TCP where there is `[tls]`.
    tls: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileTenant {
    name: String,
    #[serde(default)]
    prefix: Vec<String>,
    min: Option<Bytes>,
    low: Option<Bytes>,
    high: Option<Bytes>,
    max: Option<Bytes>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileUser {
    name: String,
    #[serde(default)]
    tenant: String,
    #[serde(default)]
    admin: bool,
}

/// Reads the TOML file into `settings`.
///
/// # Errors
///
/// A text that says what is wrong, and where.
pub fn read(path: &Path, settings: &mut Settings) -> Result<(), String> {
    read_with(path, settings, Names::Resolved)
}

pub(super) fn read_with(path: &Path, settings: &mut Settings, names: Names) -> Result<(), String> {
    let say = |error: String| format!("{}: {error}", path.display());
    let text = fs::read_to_string(path).map_err(|error| say(error.to_string()))?;
    parse(&text, settings, names).map_err(say)
}

fn parse(text: &str, settings: &mut Settings, names: Names) -> Result<(), String> {
    let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
    let bytes = |name: &str, value: &Option<Bytes>, setting: &mut u64| match value {
        Some(value) => value
            .get()
            .map(|value| *setting = value)
            .map_err(|error| format!("{name}: {error}")),
        None => Ok(()),
    };
    bytes("memory-limit", &file.memory_limit, &mut settings.limit)?;
    settings.limit_given |= file.memory_limit.is_some();
    let (mut item_max, mut buffer_max) = (settings.item_max as u64, settings.buffer_max as u64);
    bytes("max-item-size", &file.max_item_size, &mut item_max)?;
    bytes("buffer-limit", &file.buffer_limit, &mut buffer_max)?;
    settings.item_max = usize::try_from(item_max).unwrap_or(usize::MAX);
    settings.buffer_max = usize::try_from(buffer_max).unwrap_or(usize::MAX);
    settings.threads = file.threads.unwrap_or(settings.threads);
    settings.max_connections = file.conn_limit.unwrap_or(settings.max_connections);
    settings.evict = file.evict.unwrap_or(settings.evict);
    settings.idle_timeout = file.idle_timeout.unwrap_or(settings.idle_timeout);
    settings.send_timeout = file.send_timeout.unwrap_or(settings.send_timeout);
    settings.shutdown = file.shutdown.unwrap_or(settings.shutdown);
    settings.statistics = file.statistics.unwrap_or(settings.statistics);
    settings.auth_file = file.auth_file.or(settings.auth_file.take());
    settings.user = file.user_name.or(settings.user.take());
    settings.tls = file.tls.map(Tls::from).or(settings.tls.take());
    if let Some(address) = &file.metrics {
        settings.metrics = Some(one_address(address, names)?);
    }
    let tls = settings.tls.is_some();
    for listener in file.listen {
        settings.listeners.extend(listeners(listener, tls, names)?);
    }
    for tenant in file.tenant {
        let mut limits = Limits::default();
        for (name, value, limit) in [
            ("min", &tenant.min, &mut limits.min),
            ("low", &tenant.low, &mut limits.low),
            ("high", &tenant.high, &mut limits.high),
            ("max", &tenant.max, &mut limits.max),
        ] {
            bytes(name, value, limit)
                .map_err(|error| format!("tenant {}: {error}", tenant.name))?;
        }
        settings.tenants.push(Tenant {
            name: tenant.name,
            prefixes: tenant.prefix,
            limits,
        });
    }
    // Passwords come from the other file.
    let users = file.user.into_iter().map(|user| User {
        name: user.name,
        password: Vec::new(),
        tenant: user.tenant,
        admin: user.admin,
    });
    let users: Vec<_> = users.collect();
    // Here, as two could not have a password each.
    check_names(&users)?;
    if !users.is_empty() {
        settings.users = Some(users);
    }
    Ok(())
}

/// Returns the address to ask for metrics at.
pub(super) fn one_address(address: &str, names: Names) -> Result<SocketAddr, String> {
    match resolve("metrics", address, METRICS_PORT, names)?[..] {
        [address] => Ok(address),
        _ => Err(format!(
            "metrics: {address} has several addresses; give one"
        )),
    }
}

fn listeners(listener: FileListener, tls: bool, names: Names) -> Result<Vec<Listener>, String> {
    let addresses = match (&listener.address, &listener.path) {
        (Some(address), None) => resolve("[[listen]]", address, 11211, names)?
            .into_iter()
            .map(Address::Tcp)
            .collect(),
        (None, Some(path)) => vec![Address::Unix(path.clone())],
        _ => return Err("[[listen]]: give either address or path".into()),
    };
    let mode = listener.mode.as_deref().unwrap_or("0700");
    let mode = u32::from_str_radix(mode, 8)
        .ok()
        .filter(|mode| *mode <= 0o777);
    let mode = mode.ok_or("[[listen]]: mode is octal, as \"0700\"")?;
    let listener = |address: Address| Listener {
        tls: listener
            .tls
            .unwrap_or(tls && matches!(address, Address::Tcp(_))),
        address,
        mode,
        tenant: listener.tenant.clone(),
        admin: listener.admin,
    };
    Ok(addresses.into_iter().map(listener).collect())
}

/// Reads names and passwords, and joins them with the users of the TOML file. Where that has tenants
/// or users, or has had them ([`Settings::sections`]), a user needs both a `[[user]]` section and a password: one who has lost either logs in
/// nowhere. Returns a line for each of these.
///
/// # Errors
///
/// A text that says what is wrong: above all, that others may read the file.
pub fn read_users(settings: &mut Settings) -> Result<Vec<String>, String> {
    let Some(path) = &settings.auth_file else {
        return match settings.users {
            Some(_) => {
                Err("[[user]] without an auth-file: their passwords are in that file".into())
            }
            None => Ok(Vec::new()),
        };
    };
    let say = |error: String| format!("{}: {error}", path.display());
    let mode = fs::metadata(path)
        .map_err(|error| say(error.to_string()))?
        .permissions()
        .mode();
    if mode & 0o077 != 0 {
        return Err(say(format!(
            "has permissions {:04o}, so that others may read the passwords; chmod 0600",
            mode & 0o777
        )));
    }
    let text = fs::read(path).map_err(|error| say(error.to_string()))?;
    let passwords = passwords(&text).map_err(say)?;
    let sections = settings.users.take();
    settings.sections |= sections.is_some() || !settings.tenants.is_empty();
    let (users, notes) = match settings.sections {
        true => join(passwords, sections.unwrap_or_default()),
        false => (passwords, Vec::new()),
    };
    settings.users = Some(users);
    Ok(notes)
}

/// Returns the users of a password file, each of the default tenant.
fn passwords(text: &[u8]) -> Result<Vec<User>, String> {
    let (mut seen, mut users) = (HashSet::new(), Vec::new());
    for (number, line) in text.split(|&byte| byte == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            continue;
        }
        let colon = line.iter().position(|&byte| byte == b':');
        let wrong = || format!("line {}: write name:password", number + 1);
        let colon = colon
            .filter(|&at| at > 0 && at + 1 < line.len())
            .ok_or_else(wrong)?;
        let name = std::str::from_utf8(&line[..colon]).map_err(|_| wrong())?;
        if !seen.insert(name) {
            return Err(format!(
                "line {}: {name} has a password already",
                number + 1
            ));
        }
        users.push(User {
            name: name.into(),
            password: line[colon + 1..].to_vec(),
            tenant: String::new(),
            admin: false,
        });
    }
    if users.is_empty() {
        return Err("there is no user, so that no client could come in".into());
    }
    Ok(users)
}

/// Returns the users of `sections` that have a password, and a line for each name that has only one
/// of the two.
fn join(passwords: Vec<User>, sections: Vec<User>) -> (Vec<User>, Vec<String>) {
    let mut notes = Vec::new();
    let mut passwords: HashMap<String, Vec<u8>> = passwords
        .into_iter()
        .map(|user| (user.name, user.password))
        .collect();
    let mut users = sections;
    users.retain_mut(|user| match passwords.remove(&user.name) {
        Some(password) => {
            user.password = password;
            true
        }
        None => {
            let name = &user.name;
            notes.push(format!(
                "user {name} has no password, so cannot log in; add a line {name}:PASSWORD to the auth-file"
            ));
            false
        }
    });
    let mut without: Vec<_> = passwords.into_keys().collect();
    without.sort();
    notes.extend(without.into_iter().map(|name| {
        format!("user {name} has a password but no [[user]] section, so cannot log in; add one")
    }));
    (users, notes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        memory-limit = "128m"
        max-item-size = 2097152
        threads = 2
        idle-timeout = 60
        [[listen]]
        path = "/run/a.sock"
        mode = "0770"
        tenant = "a"
        [[listen]]
        address = "127.0.0.1:12"
        admin = true
        [[tenant]]
        name = "a"
        min = "16m"
        max = "64m"
        [[tenant]]
        name = "b"
        prefix = ["b:", "bb:"]
    "#;

    #[test]
    fn a_file() {
        let mut settings = Settings::default();
        parse(FILE, &mut settings, Names::Resolved).unwrap();
        assert_eq!(
            (
                settings.limit,
                settings.item_max,
                settings.threads,
                settings.idle_timeout
            ),
            (128 << 20, 2 << 20, 2, 60)
        );
        let [unix, tcp] = &settings.listeners[..] else {
            panic!()
        };
        assert_eq!(
            (&unix.address, unix.mode, &*unix.tenant, unix.admin),
            (&Address::Unix("/run/a.sock".into()), 0o770, "a", false)
        );
        assert_eq!(
            (tcp.address.to_string().as_str(), tcp.admin),
            ("127.0.0.1:12", true)
        );
        let tenant = &settings.tenants[0];
        assert_eq!(
            (
                settings.tenants[1].prefixes.len(),
                tenant.limits.min,
                tenant.limits.high,
                tenant.limits.max
            ),
            (2, 16 << 20, u64::MAX, 64 << 20)
        );
        assert_eq!(settings.check(), Ok(()));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, says) in [
            ("bogus = 1", "bogus"),
            ("threads = \"two\"", "threads"),
            ("memory-limit = \"1x\"", "memory-limit"),
            ("memory-limit = -1", "memory-limit"),
            ("[[listen]]\ntenant = \"a\"", "either address or path"),
            ("[[listen]]\npath = \"/s\"\nmode = \"9\"", "octal"),
            ("[[tenant]]\nprefix = []", "name"),
            ("[[tenant]]\nname = \"a\"\nmin = \"much\"", "tenant a: min"),
            (
                "[[user]]\nname = \"u\"\n[[user]]\nname = \"u\"",
                "user u: there are two of that name",
            ),
            ("= =", "line 1"),
        ] {
            let error = parse(text, &mut Settings::default(), Names::Resolved).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn passwords_are_read() {
        let users = passwords(b"ann:s:e cret\r\n\nroot:x\n").unwrap();
        let ann = &users[0];
        assert_eq!((users.len(), &*ann.name), (2, "ann"));
        assert!(ann.password == b"s:e cret" && ann.tenant.is_empty() && !ann.admin);
        for (text, says) in [
            ("ann", "line 1"),
            (":x", "line 1"),
            ("ann:", "line 1"),
            ("ann:a\nann:b", "already"),
            ("", "no user"),
        ] {
            let error = passwords(text.as_bytes()).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    /// A password alone would be one for the default tenant.
    #[test]
    fn where_there_are_sections_a_user_needs_one() {
        let section = |name: &str| User {
            name: name.into(),
            password: Vec::new(),
            tenant: "a".into(),
            admin: true,
        };
        let passwords = passwords(b"root:x\nann:y\n").unwrap();
        let (users, notes) = join(passwords, vec![section("root"), section("bob")]);
        assert_eq!(users.len(), 1);
        let root = &users[0];
        assert!(root.name == "root" && root.password == b"x" && root.tenant == "a" && root.admin);
        assert!(notes[0].contains("bob has no password"), "{notes:?}");
        assert!(notes[1].contains("ann has a password but no"), "{notes:?}");
    }

    #[test]
    fn others_must_not_read_passwords() {
        let path = std::env::temp_dir().join(format!("stillcache-auth-{}", std::process::id()));
        fs::write(&path, "ann:x\n").unwrap();
        let read = |mode| {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let mut settings = Settings {
                auth_file: Some(path.clone()),
                ..Settings::default()
            };
            read_users(&mut settings).map(|_| settings.users.unwrap().len())
        };
        for open in [0o604, 0o640, 0o660] {
            assert!(read(open).unwrap_err().contains("chmod 0600"));
        }
        assert_eq!(read(0o600), Ok(1));
        fs::remove_file(path).unwrap();
    }
}
