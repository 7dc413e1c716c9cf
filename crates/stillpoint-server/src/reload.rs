//! SIGHUP: a thread reads the files again. It may wait for a disk or a pipe; clients are accepted
//! meanwhile.

use crate::{
    config::{Settings, Tenant},
    lock::lock,
    log::note,
    server::{StopOnPanic, apply},
    shared::{Shared, ShownCertificate},
    users::User,
};
use std::{
    collections::HashSet,
    io, mem,
    sync::{
        Arc, Mutex, Weak,
        mpsc::{self, Receiver, SyncSender},
    },
    thread::{self, JoinHandle},
};

/// The thread that reads the files again.
pub(crate) struct Reloads {
    /// Dropped to end the thread.
    ask: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
    stage: Arc<Mutex<Stage>>,
}

/// The state of the thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It waits for a signal, or applies the files.
    Ready,
    /// It reads files, however long that takes. It keeps no reference to the server meanwhile.
    Reading,
    /// It ends.
    Ended,
}

impl Reloads {
    pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<Self> {
        let (ask, asked) = mpsc::sync_channel(1);
        let stage = Arc::new(Mutex::new(Stage::Ready));
        let settings = shared.settings.clone();
        let (weak, ours) = (Arc::downgrade(shared), Arc::clone(&stage));
        let thread = thread::Builder::new()
            .name("stillcache/reload".into())
            .spawn(move || {
                let _guard = StopOnPanic(Weak::clone(&weak));
                run(settings, &weak, &asked, &ours);
            })?;
        Ok(Self {
            ask: Some(ask),
            thread: Some(thread),
            stage,
        })
    }

    /// Asks for the files to be read again, once for all signals that come until that begins.
    pub(crate) fn ask(&self) {
        if let Some(ask) = &self.ask {
            let _ = ask.try_send(());
        }
    }
}

impl Drop for Reloads {
    /// Waits for the thread's end, unless it reads: then it ends after that, and changes nothing.
    fn drop(&mut self) {
        drop(self.ask.take());
        let before = mem::replace(&mut *lock(&self.stage), Stage::Ended);
        if let Some(thread) = self.thread.take()
            && before != Stage::Reading
        {
            // If it has panicked, that has been logged.
            let _ = thread.join();
        }
    }
}

/// Reads the files for each signal, until the server ends.
fn run(settings: Settings, shared: &Weak<Shared>, asked: &Receiver<()>, stage: &Mutex<Stage>) {
    let enter = |next| {
        let mut stage = lock(stage);
        let goes_on = *stage != Stage::Ended;
        if goes_on {
            *stage = next;
        }
        goes_on
    };
    let mut last = Last::of(&settings);
    while asked.recv().is_ok() {
        let Some(limit) = shared.upgrade().map(|shared| shared.store.limit()) else {
            return;
        };
        if !enter(Stage::Reading) {
            return;
        }
        let files = Files::read(&settings, limit, last.sections);
        if !enter(Stage::Ready) {
            return;
        }
        let Some(shared) = shared.upgrade() else {
            return;
        };
        match files.and_then(|files| files.apply(&shared, &mut last)) {
            Ok(lines) => {
                for line in lines {
                    note!(shared.log, "{line}");
                }
            }
            Err(error) => note!(shared.log, "not reloaded: {error}"),
        }
    }
}

/// The limits that the files gave last. Others have been set by an admin since.
struct Last {
    limit: u64,
    limit_given: bool,
    tenants: Vec<Tenant>,
    /// Whether the files have had tenants or users: if they have them no longer, users who had a tenant
    /// do not get the default one.
    sections: bool,
}

impl Last {
    fn of(settings: &Settings) -> Self {
        Self {
            limit: settings.limit,
            limit_given: settings.limit_given,
            tenants: settings.tenants.clone(),
            sections: settings.sections,
        }
    }
}

/// The contents of the files: tenants, users and limits.
struct Files {
    settings: Settings,
    notes: Vec<String>,
    certificate: Option<ShownCertificate>,
    /// Settings that take effect after a restart.
    later: Vec<&'static str>,
}

impl Files {
    /// Reads the files for a server that was started with the settings `now` and has the memory limit
    /// `limit`. `sections` is [`Last::sections`].
    fn read(now: &Settings, limit: u64, sections: bool) -> Result<Self, String> {
        let Some(flags) = &now.flags else {
            return Err("there is no command line to read again".into());
        };
        let (settings, notes, later) = flags.again(now, limit, sections)?;
        if now.authenticates() != settings.authenticates() {
            return Err("authentication cannot be switched on or off without a restart".into());
        }
        if now.tls.is_some() != settings.tls.is_some() {
            return Err("TLS cannot be switched on or off without a restart".into());
        }
        let certificate = settings
            .tls
            .as_ref()
            .map(ShownCertificate::load)
            .transpose()?;
        Ok(Self {
            settings,
            notes,
            certificate,
            later,
        })
    }

    /// Applies the files to the server. Returns lines for the log. On an error, nothing is changed.
    fn apply(self, shared: &Shared, last: &mut Last) -> Result<Vec<String>, String> {
        let settings = self.settings;
        let mut changes = Changes::default();
        changes.compare_limits(shared, &settings, last);
        let users = settings.users.as_deref().unwrap_or_default();
        changes.compare_users(shared, users);
        let next = Last::of(&settings);
        apply(shared, &settings.tenants, settings.users)?;
        // From here on nothing fails.
        *last = next;
        if let Some(certificate) = self.certificate
            && shared.show_certificate(certificate)
        {
            changes.made.push("the certificate is read again".into());
        }
        // A limit that is given nowhere stays as an admin has set it.
        if settings.limit_given && settings.limit != shared.store.limit() {
            shared.store.request_limit(settings.limit);
        }
        let mut lines = self.notes;
        lines.push(match changes.made.is_empty() {
            true => "reloaded: nothing has changed".into(),
            false => format!("reloaded: {}", changes.made.join(", ")),
        });
        if !changes.undone.is_empty() {
            let undone = changes.undone.join(", ");
            lines.push(format!("an admin's settings that no longer hold: {undone}"));
        }
        if !self.later.is_empty() {
            let later = self.later.join(", ");
            lines.push(format!("takes effect after a restart: {later}"));
        }
        Ok(lines)
    }
}

/// The changes that the files make, for the log.
#[derive(Default)]
struct Changes {
    made: Vec<String>,
    undone: Vec<String>,
}

impl Changes {
    /// Compares limits and prefixes of the files with those in force.
    fn compare_limits(&mut self, shared: &Shared, new: &Settings, last: &Last) {
        let now = shared.store.limit();
        if new.limit_given && new.limit != now {
            self.made.push(format!("memory limit {} bytes", new.limit));
            if now != last.limit {
                self.undone.push(format!("memory limit {now} bytes"));
            }
        }
        if last.limit_given && !new.limit_given {
            self.made
                .push("memory-limit is no longer in the file, and stays".into());
        }
        for tenant in &new.tenants {
            let name = &tenant.name;
            let before = last.tenants.iter().find(|before| before.name == *name);
            if before.is_some_and(|before| before.prefixes != tenant.prefixes) {
                self.made.push(format!("prefixes of tenant {name}"));
            }
            let Ok(there) = shared.store.tenant(name) else {
                self.made.push(format!("tenant {name} created"));
                continue;
            };
            let now = there.limits();
            if now != tenant.limits() {
                self.made.push(format!("limits of tenant {name}"));
                if before.is_none_or(|before| before.limits() != now) {
                    self.undone.push(format!("limits of tenant {name}"));
                }
            }
        }
        for gone in &last.tenants {
            let name = &gone.name;
            if !new.tenants.iter().any(|tenant| tenant.name == *name) {
                self.made
                    .push(format!("tenant {name} is no longer in the file, and stays"));
            }
        }
    }

    fn compare_users(&mut self, shared: &Shared, new: &[User]) {
        let directory = shared.directory();
        let before = directory.users.all();
        let find = |name: &str| {
            let found = before.binary_search_by(|user| (*user.name).cmp(name));
            found.ok().map(|at| &before[at])
        };
        let new_names: HashSet<_> = new.iter().map(|user| &*user.name).collect();
        let (mut added, mut changed) = (Vec::new(), Vec::new());
        for user in new {
            match find(&user.name) {
                None => added.push(&*user.name),
                Some(before) if **before != *user => changed.push(&*user.name),
                Some(_) => {}
            }
        }
        let names = before.iter().map(|user| &*user.name);
        let removed: Vec<_> = names.filter(|name| !new_names.contains(name)).collect();
        for (what, names) in [("added", added), ("changed", changed), ("removed", removed)] {
            match &names[..] {
                [] => {}
                [name] => self.made.push(format!("user {name} {what}")),
                [name, others @ ..] => {
                    let more = others.len();
                    self.made
                        .push(format!("user {name} and {more} more {what}"));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::flags::Flags,
        server::Server,
        tests::{file, make_fifo},
    };
    use std::fs;

    /// The settings of a command line, without a log.
    fn settings(line: &str) -> Settings {
        let words = "stillcache -t 1".split(' ').chain(line.split_whitespace());
        let flags = Flags::parse_from(words).unwrap();
        let (settings, _) = flags.settings().unwrap();
        Settings {
            log: false,
            ..settings
        }
    }

    /// A server whose files are read again at once.
    struct Reloaded {
        server: Server,
        last: Last,
    }

    impl Reloaded {
        fn start(line: &str) -> Self {
            let server = Server::start(settings(line)).unwrap();
            let last = Last::of(&server.shared.settings);
            Self { server, last }
        }

        /// Reads the files again. Returns the lines of the log, without those about users.
        fn again(&mut self) -> Result<Vec<String>, String> {
            let shared = &self.server.shared;
            let files = Files::read(&shared.settings, shared.store.limit(), self.last.sections)?;
            let mut lines = files.apply(shared, &mut self.last)?;
            lines.retain(|line| !line.starts_with("user"));
            Ok(lines)
        }

        fn limit(&self) -> u64 {
            self.server.shared.store.limit()
        }

        fn users(&self) -> usize {
            self.server.shared.directory().users.all().len()
        }
    }

    #[test]
    fn what_is_read_again_means_what_it_meant_at_the_start() {
        let text = "memory-limit = \"32m\"\nauth-file = \"/nonexistent\"\n";
        let toml = file("reload.toml", text);
        let passwords = file("reload.passwords", "u:p\n");
        let (file, users) = (toml.display(), passwords.display());
        let line = format!("-p -1 -Y {users} --config {file}");
        let mut server = Reloaded::start(&format!("-m 16 {line}"));
        fs::write(&passwords, "u:p\nv:q\n").unwrap();
        server.again().unwrap();
        assert_eq!((server.limit(), server.users()), (16 << 20, 2));
        // On an error nothing changes, not even the limit.
        server.server.shared.store.set_limit(20 << 20);
        fs::write(&passwords, "wrong\n").unwrap();
        assert!(server.again().unwrap_err().contains("line 1"));
        assert_eq!((server.limit(), server.users()), (20 << 20, 2));
        fs::write(&passwords, "u:p\n").unwrap();
        let mut server = Reloaded::start(&line);
        assert_eq!(server.limit(), 32 << 20);
        fs::write(&toml, text.replace("32m", "24m")).unwrap();
        server.again().unwrap();
        assert_eq!(server.limit(), 24 << 20);
    }

    #[test]
    fn the_log_says_what_has_changed() {
        let passwords = file("changes.passwords", "a:p\nb:p\nc:p\n");
        let text = "memory-limit = \"32m\"\n[[listen]]\naddress = \"127.0.0.1:0\"\n\
            [[user]]\nname = \"a\"\n[[user]]\nname = \"b\"\n\
            [[tenant]]\nname = \"s\"\nmax = \"8m\"\n";
        let toml = file("changes.toml", text);
        let line = format!("-Y {} --config {}", passwords.display(), toml.display());
        let mut server = Reloaded::start(&line);
        let shared = Arc::clone(&server.server.shared);
        let store = &shared.store;
        let mut again = |text: &str| {
            fs::write(&toml, text).unwrap();
            server.again().unwrap()
        };
        assert_eq!(again(text), ["reloaded: nothing has changed"]);
        let other = text.replace("32m", "24m").replace("\"b\"", "\"c\"");
        let other = other.replace("8m", "4m");
        let made = "memory limit 25165824 bytes, limits of tenant s, user c added, user b removed";
        assert_eq!(again(&other), [format!("reloaded: {made}")]);
        // A limit that the files do not give is undone.
        store.set_limit(20 << 20);
        let mut limits = store.tenant("s").unwrap().limits();
        limits.max = 3 << 20;
        store.tenant("s").unwrap().set_limits(limits);
        let made = "reloaded: memory limit 25165824 bytes, limits of tenant s";
        let undone = "an admin's settings that no longer hold: memory limit 20971520 bytes";
        let both = format!("{undone}, limits of tenant s");
        assert_eq!(again(&other), [made, &both]);
        // Also if an admin has set it while the files were read.
        let files = Files::read(&shared.settings, store.limit(), true).unwrap();
        store.set_limit(20 << 20);
        let mut last_files = Last::of(&files.settings);
        let lines = files.apply(&shared, &mut last_files).unwrap();
        assert_eq!(lines.last().map(String::as_str), Some(undone));
        assert_eq!(store.limit(), 24 << 20);
        let more = format!("conn-limit = 7\nidle-timeout = 9\n{other}[[tenant]]\nname = \"t\"\n")
            .replace("127.0.0.1:0", "127.0.0.1:1");
        let later = "takes effect after a restart: [[listen]], conn-limit, idle-timeout";
        assert_eq!(again(&more), ["reloaded: tenant t created", later]);
        let gone = "reloaded: tenant t is no longer in the file, and stays";
        assert_eq!(again(&other), [gone]);
        let without = other.replace("memory-limit = \"24m\"\n", "");
        let gone = "reloaded: memory-limit is no longer in the file, and stays";
        assert_eq!(again(&without), [gone]);
        assert_eq!(again(&without), ["reloaded: nothing has changed"]);
        assert_eq!(store.limit(), 24 << 20);
    }

    /// Detects limits that were set and tenants that were created before a tenant could not be created,
    /// and files that count as applied.
    #[test]
    fn files_that_cannot_be_applied_change_nothing() {
        let text = "[[tenant]]\nname = \"s\"\nmax = \"8m\"\n";
        let file = file("refused.toml", text);
        let mut server = Reloaded::start(&format!("-p -1 --config {}", file.display()));
        let shared = Arc::clone(&server.server.shared);
        let more =
            text.replace("8m", "4m") + "[[tenant]]\nname = \"t\"\n[[tenant]]\nname = \"u\"\n";
        fs::write(&file, &more).unwrap();
        shared.store.refuse_tenants_beyond(3);
        assert!(server.again().unwrap_err().contains("tenant u"));
        assert_eq!(shared.store.names(), ["".into(), "s".into()]);
        let limits = || shared.store.tenant("s").unwrap().limits();
        assert_eq!(limits().max, 8 << 20);
        shared.store.refuse_tenants_beyond(usize::MAX);
        let made = "reloaded: limits of tenant s, tenant t created, tenant u created";
        assert_eq!(server.again().unwrap(), [made]);
        assert_eq!(shared.directory().spaces.len(), 4);
        assert_eq!(limits().max, 4 << 20);
    }

    /// A name server may take seconds, and its answer would not be used.
    #[test]
    fn what_is_read_again_asks_for_no_name() {
        let file = file("names.toml", "");
        let mut server = Reloaded::start(&format!("-p -1 --config {}", file.display()));
        let nowhere = "name.invalid";
        let text = format!("metrics = \"{nowhere}\"\n[[listen]]\naddress = \"{nowhere}\"\n");
        fs::write(&file, format!("memory-limit = \"24m\"\n{text}")).unwrap();
        let flags = server.server.shared.settings.flags.clone();
        assert!(flags.unwrap().settings().is_err());
        server.again().unwrap();
        assert_eq!(server.limit(), 24 << 20);
        // Errors that need no name server are reported.
        let unknown = "[[listen]]\naddress = \"localhost\"\ntenant = \"none\"";
        for (text, says) in [
            ("metrics = \"localhost:metrics\"", "port"),
            ("[[listen]]\naddress = \"localhost:70000\"", "port"),
            (unknown, "no tenant"),
            ("[[listen]]\npath = \"/s\"\nmode = \"9\"", "octal"),
            ("[[listen]]", "either address or path"),
        ] {
            fs::write(&file, format!("memory-limit = \"28m\"\n{text}\n")).unwrap();
            let error = server.again().unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
        assert_eq!(server.limit(), 24 << 20);
    }

    /// A thread that waits for a pipe would keep the store, and the end of the server from coming.
    #[test]
    fn a_server_that_ends_waits_for_the_thread_but_not_for_a_pipe() {
        let file = file("reload-pipe", "");
        let line = format!("-p -1 --config {}", file.display());
        let start = || {
            let server = Server::start(settings(&line)).unwrap();
            let reloads = Reloads::start(&server.shared).unwrap();
            (server, reloads)
        };
        let (idle, reloads) = start();
        let stage = Arc::downgrade(&reloads.stage);
        drop(reloads);
        assert!(stage.upgrade().is_none(), "the thread has ended");
        drop(idle);

        let (server, reloads) = start();
        fs::remove_file(&file).unwrap();
        make_fifo(&file);
        reloads.ask();
        while *lock(&reloads.stage) != Stage::Reading {
            thread::yield_now();
        }
        let stage = Arc::downgrade(&reloads.stage);
        let shared = Arc::downgrade(&server.shared);
        drop(reloads);
        drop(server);
        assert!(shared.upgrade().is_none());
        // It ends once the pipe is written.
        fs::write(&file, "").unwrap();
        while stage.upgrade().is_some() {
            thread::yield_now();
        }
    }
}
