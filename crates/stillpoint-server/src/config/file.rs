//! The TOML file, and the file with passwords.

use super::{
    Listener, Settings, TENANT_NAME, Tenant, check_names, is_tenant_name,
    table::{Section, Setting},
};
use crate::users::User;
use std::{
    collections::{HashMap, HashSet},
    fmt::Display,
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    slice,
};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// The kind of a switch, as [`table::Value::kind`](super::table::Value::kind) says.
const SWITCH: &str = "true, false";

/// The file, for the lines of what is wrong.
struct Text<'a>(&'a str);

impl Text<'_> {
    /// Returns a message about what lies at `at`.
    fn wrong<T>(&self, at: &Spanned<T>, what: impl Display) -> String {
        let before = self.0.get(..at.span().start).unwrap_or_default();
        format!("line {}: {what}", before.split('\n').count())
    }

    /// Reads the value of a key into a section.
    fn set<T: Section>(
        &self,
        section: &mut T,
        key: &str,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<(), String> {
        let has_key = |setting: &&Setting<T>| !setting.key.is_empty();
        let mut settings = T::SETTINGS.iter().filter(has_key);
        let keys: Vec<_> = settings.clone().map(|setting| setting.key).collect();
        let wrong = |what: String| self.wrong(value, format_args!("{key}: {what}"));
        let unknown = || {
            wrong(format!(
                "there is no such key; the keys are {}",
                list(&keys)
            ))
        };
        let setting = settings.find(|setting| setting.key == key);
        let setting = setting.ok_or_else(unknown)?;
        let (field, kind) = ((setting.value)(section), setting.kind());
        let values = match value.get_ref() {
            DeValue::Array(values) if field.clear() => values,
            _ => slice::from_ref(value),
        };
        for value in values {
            let wrong = |what: String| self.wrong(value, format_args!("{key}: {what}"));
            let text = match (value.get_ref(), &*kind) {
                (DeValue::Integer(number), "number" | "size") => {
                    let decimal = i128::from_str_radix(number.as_str(), number.radix());
                    decimal.map_or_else(|_| number.to_string(), |decimal| decimal.to_string())
                }
                (DeValue::Boolean(switch), SWITCH) => switch.to_string(),
                (DeValue::String(text), kind) if !["number", SWITCH].contains(&kind) => {
                    text.to_string()
                }
                (other, "list") => return Err(wrong(format!("is {}, not text", other.type_str()))),
                (other, kind) => return Err(wrong(format!("is {}, not {kind}", other.type_str()))),
            };
            field.read(&text).map_err(wrong)?;
        }
        Ok(())
    }

    /// Reads a section; `name` is its name in brackets.
    fn section<T: Section>(&self, name: &str, value: &Spanned<DeValue<'_>>) -> Result<T, String> {
        let table = value.get_ref().as_table();
        let table = table.ok_or_else(|| self.wrong(value, format_args!("write {name}")))?;
        let mut section = T::default();
        for (key, value) in table {
            self.set(&mut section, key.get_ref(), value)?;
        }
        Ok(section)
    }

    /// Reads all sections of that name.
    fn sections<T: Section>(
        &self,
        name: &str,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<Vec<T>, String> {
        let all = value.get_ref().as_array();
        let all = all.ok_or_else(|| self.wrong(value, format_args!("write {name}")))?;
        all.iter().map(|one| self.section(name, one)).collect()
    }

    /// Checks the names that the sections of `value` have, `what` in brackets.
    fn named<'a>(
        &self,
        what: &str,
        value: &Spanned<DeValue<'_>>,
        names: impl Iterator<Item = &'a str>,
        is_name: fn(&str) -> bool,
    ) -> Result<(), String> {
        let sections = value.get_ref().as_array().into_iter().flatten();
        for (section, name) in sections.zip(names) {
            if name.is_empty() {
                return Err(self.wrong(section, format_args!("{what}: give it a name")));
            }
            if !is_name(name) {
                let wrong = format!("{what}: name = {name:?}: {TENANT_NAME}");
                return Err(self.wrong(section, wrong));
            }
        }
        Ok(())
    }
}

/// Joins words as a sentence does.
fn list(words: &[&str]) -> String {
    match words {
        [all @ .., last] if !all.is_empty() => format!("{} and {last}", all.join(", ")),
        words => words.concat(),
    }
}

/// Reads the TOML file into `settings`.
///
/// # Errors
///
/// A text that says what is wrong, and where.
pub fn read(path: &Path, settings: &mut Settings) -> Result<(), String> {
    let say = |error: String| format!("{}: {error}", path.display());
    let text = fs::read_to_string(path).map_err(|error| say(error.to_string()))?;
    parse(&text, settings).map_err(say)
}

fn parse(text: &str, settings: &mut Settings) -> Result<(), String> {
    let root = DeTable::parse(text).map_err(|error| error.to_string())?;
    let text = Text(text);
    for (key, value) in root.get_ref() {
        match &**key.get_ref() {
            "tls" => settings.tls = Some(text.section("[tls]", value)?),
            "listen" => settings
                .listeners
                .extend(text.sections::<Listener>("[[listen]]", value)?),
            "tenant" => {
                let tenants = text.sections::<Tenant>("[[tenant]]", value)?;
                let names = tenants.iter().map(|tenant| &*tenant.name);
                text.named("[[tenant]]", value, names, is_tenant_name)?;
                settings.tenants.extend(tenants);
            }
            // Their passwords come from the other file.
            "user" => {
                let users = text.sections::<User>("[[user]]", value)?;
                let names = users.iter().map(|user| &*user.name);
                text.named("[[user]]", value, names, |_| true)?;
                settings.users = Some(users);
            }
            key if is_section(value.get_ref()) => {
                return Err(text.wrong(
                    value,
                    format_args!(
                        "{key}: there is no such section; the sections are [tls], [[listen]], [[tenant]] and [[user]]"
                    ),
                ));
            }
            key => {
                text.set(settings, key, value)?;
                settings.limit_given |= key == "memory-limit";
            }
        }
    }
    // Here, as two could not have a password each.
    check_names(settings.users.as_deref().unwrap_or_default())
}

/// Returns whether a value has a name in brackets: it is a table, or several.
fn is_section(value: &DeValue<'_>) -> bool {
    let first = value.as_array().and_then(|all| all.first());
    first.map_or(value, Spanned::get_ref).is_table()
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
            ..User::default()
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
    use crate::tests::file;

    const FILE: &str = r#"
        memory-limit = "128m"
        max-item-size = 2097152
        threads = 2
        idle-timeout = 60
        [[listen]]
        path = "/run/a.sock"
        mode = "0770"
        tenant = "a"
        login = false
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
        parse(FILE, &mut settings).unwrap();
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
            (unix.place(), unix.mode.0, &*unix.tenant, unix.admin),
            ("/run/a.sock".into(), 0o770, "a", false)
        );
        assert_eq!((tcp.place(), tcp.admin), ("127.0.0.1:12".into(), true));
        assert!(!unix.login && tcp.login);
        let tenant = &settings.tenants[0];
        assert_eq!(
            (
                settings.tenants[1].prefixes.len(),
                tenant.min,
                tenant.high,
                tenant.max
            ),
            (2, 16 << 20, u64::MAX, 64 << 20)
        );
        assert_eq!(settings.check(), Ok(()));
    }

    #[test]
    fn numbers_may_be_written_as_toml_allows() {
        let mut settings = Settings::default();
        let text = "memory-limit = 0x40000000\nmax-item-size = 0o4_000\nthreads = 0b11\n\
            conn-limit = 1_000\nbuffer-limit = \"2m\"\n";
        parse(text, &mut settings).unwrap();
        assert_eq!((settings.limit, settings.item_max), (1 << 30, 2048));
        assert_eq!((settings.threads, settings.max_connections), (3, 1000));
        assert_eq!(settings.buffer_max, 2 << 20);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, says) in [
            ("threads = 1\nbogus = 1", "line 2: bogus"),
            ("threads = \"two\"", "threads"),
            ("memory-limit = \"1x\"", "memory-limit"),
            ("memory-limit = -1", "memory-limit"),
            ("threads = 1.5", "line 1: threads: is float, not number"),
            ("threads = \"2\"", "threads: is string, not number"),
            ("conn-limit = \"1k\"", "conn-limit: is string, not number"),
            (
                "idle-timeout = \"9\"",
                "idle-timeout: is string, not number",
            ),
            ("evict = \"false\"", "evict: is string, not true, false"),
            ("evict = 0", "evict: is integer, not true, false"),
            (
                "\n[[listen]]\naddress = 11211",
                "line 3: address: is integer, not text",
            ),
            ("[[listen]]\npath = true", "path: is boolean, not file"),
            ("[[listen]]\nmode = 0o770", "mode: is integer, not octal"),
            ("[[tenant]]\nname = 1", "name: is integer, not text"),
            (
                "[[tenant]]\nprefix = [\n\"a\",\n5]",
                "line 4: prefix: is integer, not text",
            ),
            ("[[tenant]]\nprefix = {}", "prefix: is table, not text"),
            (
                "\"\" = 5",
                "line 1: : there is no such key; the keys are memory-limit, ",
            ),
            (
                "[tls]\n\"\" = 5",
                "there is no such key; the keys are chain, ",
            ),
            ("[tenant]\nname = \"a\"", "write [[tenant]]"),
            (
                "threads = 1\n[[tenants]]\nname = \"a\"",
                "line 2: tenants: there is no such section; the sections are [tls], [[listen]], [[tenant]] and [[user]]",
            ),
            ("[listener]", "line 1: listener: there is no such section; "),
            ("threads = [1]", "line 1: threads: is array, not number"),
            (
                "[[user]]\nname = \"u\"\n[[user]]\nadmin = true",
                "line 3: [[user]]: give it a name",
            ),
            (
                "threads = 1\n[[tenant]]\nmin = \"1m\"",
                "line 2: [[tenant]]: give it a name",
            ),
            (
                "[[tenant]]\nname = \"a\"\n\n[[tenant]]\nname = \"a b\"",
                "line 4: [[tenant]]: name = \"a b\": a name has 1 to 64 letters, digits, -, _ or .",
            ),
            ("[[listen]]\npath = \"/s\"\nmode = \"9\"", "octal"),
            (
                "[[tenant]]\nnom = \"a\"",
                "line 2: nom: there is no such key; the keys are name, prefix, min, low, high and max",
            ),
            ("[[tenant]]\nname = \"a\"\nmin = \"much\"", "line 3: min"),
            (
                "[[user]]\nname = \"u\"\n[[user]]\nname = \"u\"",
                "user u: there are two of that name",
            ),
            ("= =", "line 1"),
        ] {
            let error = parse(text, &mut Settings::default()).unwrap_err();
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
        let file = file("auth", "ann:x\n");
        let read = |mode| {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            let mut settings = Settings {
                auth_file: Some(file.clone()),
                ..Settings::default()
            };
            read_users(&mut settings).map(|_| settings.users.unwrap().len())
        };
        for open in [0o604, 0o640, 0o660] {
            assert!(read(open).unwrap_err().contains("chmod 0600"));
        }
        assert_eq!(read(0o600), Ok(1));
    }
}
