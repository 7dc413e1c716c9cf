//! Walls between tenants: what one may not read, write, count or list of another's.
//!
//! Detects a limit, a search or a shutdown for a user without the right, and another tenant's
//! figures.

#[macro_use]
mod common;
use common::{Client, Running, listener, new_path, start, until, write_private};
use std::{
    io::{Read, Write},
    path::PathBuf,
};
use stillpoint_server::config::{Settings, Tenant, file};

fn tenant(name: &str, prefixes: &[&str]) -> Tenant {
    Tenant {
        name: name.into(),
        prefixes: prefixes.iter().map(|&prefix| prefix.into()).collect(),
        ..Tenant::default()
    }
}

/// Settings with users ann and bob, each with a tenant, and the admin root.
fn users() -> Settings {
    let (passwords, toml) = (new_path("passwords"), new_path("toml"));
    let all = "ann:ann's\nbob:bob's\nroot:root's\nplain:plain's\n";
    write_private(&passwords, all);
    let text = r#"
        [[tenant]]
        name = "a"
        [[tenant]]
        name = "b"
        [[user]]
        name = "ann"
        tenant = "a"
        [[user]]
        name = "bob"
        tenant = "b"
        [[user]]
        name = "root"
        admin = true
        [[user]]
        name = "plain"
    "#;
    write_private(&toml, text);
    let mut settings = Settings {
        auth_file: Some(passwords),
        ..Settings::default()
    };
    file::read(&toml, &mut settings).unwrap();
    file::read_users(&mut settings).unwrap();
    settings
}

/// A server with a tenant `a`, and the socket of its clients.
fn with_tenant(settings: Settings) -> (Running, PathBuf) {
    let own = new_path("own");
    let server = start(Settings {
        tenants: vec![tenant("a", &[])],
        listeners: vec![listener(own.clone(), "a", false)],
        ..settings
    });
    (server, own)
}

/// Sends a login, and returns whether it is accepted.
fn logs_in(client: &mut Client, name: &str) -> bool {
    let token = format!("{name} {name}'s");
    let request = format!("set auth 0 0 {}\r\n{token}\r\n", token.len());
    let mut answer = [0; 8];
    client.0.write_all(request.as_bytes()).is_ok()
        && client.0.read_exact(&mut answer).is_ok()
        && answer == *b"STORED\r\n"
}

fn login(client: &mut Client, name: &str) {
    assert!(logs_in(client, name), "{name}");
}

#[test]
fn nothing_is_done_before_authentication() {
    let server = start(users());
    let mut client = server.client();
    for command in [
        "get k",
        "gets k",
        "gat 0 k",
        "mg k v",
        "mn",
        "version",
        "stats",
        "flush_all",
        "delete k",
        "watch",
        "add k 0 0 1",
        "shutdown",
        "tenant list",
        "lru_crawler metadump all",
    ] {
        client.ask(format!("{command}\r\n"), "CLIENT_ERROR unauthenticated\r\n");
    }
    for (token, answer) in [
        ("ann bob's", "CLIENT_ERROR authentication failure\r\n"),
        ("ann ann'", "CLIENT_ERROR authentication failure\r\n"),
        ("ann ann's ", "CLIENT_ERROR authentication failure\r\n"),
        ("ann", "CLIENT_ERROR bad authentication token format\r\n"),
        ("", "CLIENT_ERROR bad authentication token format\r\n"),
    ] {
        client.ask(format!("set k 0 0 {}\r\n{token}\r\n", token.len()), answer);
    }
    client.say(
        "set k 0 0 9\r\nann ann'sxx",
        "CLIENT_ERROR bad command line termination",
    );
    client.ask("", "CLIENT_ERROR unauthenticated\r\n");
    login(&mut client, "ann");
    client.ask("get k\r\n", "END\r\n");
    // The binary protocol has no way to say who one is.
    let mut binary = server.client();
    binary.send([0x80; 24]);
    binary.ends();
    // Announced tokens of any length take no memory.
    let mut long = server.client();
    long.say(
        "set k 0 0 4294967295",
        "CLIENT_ERROR bad authentication token format",
    );
    long.ends();
    // Guessing ends.
    let mut guess = server.client();
    for _ in 0..10 {
        guess.say(
            "set k 0 0 5\r\nann x",
            "CLIENT_ERROR authentication failure",
        );
    }
    guess.ends();
    assert_eq!(server.admin().stat("", "auth_errors"), "13");
}

#[test]
fn users_of_different_tenants_see_nothing_of_each_other() {
    let server = start(users());
    let (mut ann, mut bob) = (server.client(), server.client());
    login(&mut ann, "ann");
    login(&mut bob, "bob");
    let mut watcher = server.client();
    login(&mut watcher, "bob");
    watcher.ask("watch fetchers mutations connevents\r\n", "OK\r\n");
    ann.set("secret", "ann's");
    // Read.
    for command in ["get secret", "gets secret", "gat 0 secret"] {
        bob.ask(format!("{command}\r\n"), "END\r\n");
    }
    asks! { bob:
        "mg secret v\r\nme secret" => "EN\r\nEN";
        // Change.
        "delete secret\r\ntouch secret 1\r\nincr secret 1\r\nmd secret" => "NOT_FOUND\r\nNOT_FOUND\r\nNOT_FOUND\r\nNF";
        "append secret 0 0 1\r\nx\r\ncas secret 0 0 1 1\r\nx" => "NOT_STORED\r\nNOT_FOUND";
        "flush_all" => "OK";
        "set secret 0 0 5\r\nbob's" => "STORED";
    }
    ann.ask("get secret\r\n", "VALUE secret 0 5\r\nann's\r\nEND\r\n");
    // Count.
    ann.set("two", "x");
    assert_eq!(
        (bob.stat("", "curr_items"), ann.stat("", "curr_items")),
        ("1".into(), "2".into())
    );
    assert_eq!(
        (bob.stat("tenant", "tenant"), bob.stat("tenant", "cmd_set")),
        ("b".into(), bob.stat("", "cmd_set"))
    );
    for group in ["tenant a", "tenant -", "tenant none"] {
        assert_eq!(bob.lines(&format!("stats {group}")), ["ERROR"], "{group}");
    }
    bob.ask("stats reset\r\n", "RESET\r\n");
    assert_ne!(ann.stat("", "cmd_set"), "0");
    // List.
    let dump = bob.lines("lru_crawler metadump all");
    assert!(
        dump.len() == 1 && dump[0].starts_with("key=secret "),
        "{dump:?}"
    );
    assert_eq!(bob.lines("stats cachedump 1 0").len(), 1);
    // (Two connections are bob's, this one and the watcher.)
    let connections = |client: &mut Client| {
        client
            .lines("stats conns")
            .iter()
            .filter(|line| line.contains(":listen_addr"))
            .count()
    };
    assert_eq!((connections(&mut ann), connections(&mut bob)), (1, 2));
    // Watch: all lines are about what bob did.
    let cfd = bob.lines("stats conns");
    assert!(!cfd.is_empty());
    for _ in 0..10 {
        let line = watcher.line();
        assert!(!line.contains("two"), "{line}");
    }
    for command in ["cache_memlimit 64", "tenant list", "tenant delete a"] {
        bob.say(command, "CLIENT_ERROR only an admin may do that");
    }
    let mut root = server.client();
    login(&mut root, "root");
    assert_eq!(root.stat("tenant a", "curr_items"), "2");
    assert_eq!(root.stat("", "curr_items"), "3");
}

#[test]
fn tenants_by_socket_and_by_prefix() {
    let own = new_path("own");
    let server = start(Settings {
        tenants: vec![tenant("a", &[]), tenant("p", &["p:"])],
        listeners: vec![listener(own.clone(), "a", false)],
        ..Settings::default()
    });
    let (mut default, mut a) = (server.client(), Client::connect(&own));
    default.say("set k 0 0 1\r\nd\r\nset p:k 0 0 1\r\np", "STORED\r\nSTORED");
    a.ask("get k p:k\r\n", "END\r\n");
    a.set("p:k", "a");
    default.say("get k p:k", "VALUE k 0 1\r\nd\r\nVALUE p:k 0 1\r\np\r\nEND");
    let mut admin = server.admin();
    assert_eq!(admin.stat("tenant p", "curr_items"), "1");
    assert_eq!(admin.stat("tenant -", "curr_items"), "1");
    // One key space: a flush and a list are about all of it.
    assert_eq!(default.lines("lru_crawler metadump all").len(), 2);
    default.ask("flush_all\r\nget k p:k\r\n", "OK\r\nEND\r\n");
    a.ask("get p:k\r\n", "VALUE p:k 0 1\r\na\r\nEND\r\n");
}

/// A library that cannot log in comes by an address of its tenant that asks for none, and reaches
/// nothing else.
#[test]
fn a_listener_of_a_tenant_asks_for_a_login_unless_it_says_otherwise() {
    let (own, asks) = (new_path("own"), new_path("asks"));
    let mut settings = users();
    settings.listeners = [&own, &asks]
        .map(|path| listener(path.clone(), "b", false))
        .into();
    settings.listeners[0].login = false;
    settings.admin_clients = true;
    let server = start(settings);
    let (mut ann, mut b) = (server.client(), Client::connect(&own));
    login(&mut ann, "ann");
    ann.set("k", "ann's");
    b.ask("get k\r\n", "END\r\n");
    // A login is a value here, of ann and of an admin.
    for name in ["ann", "root"] {
        login(&mut b, name);
        let token = format!(
            "VALUE auth 0 {}\r\n{name} {name}'s\r\nEND\r\n",
            2 * name.len() + 3
        );
        b.ask("get auth\r\n", token);
        b.ask("get k\r\n", "END\r\n");
        b.say("tenant list", "CLIENT_ERROR only an admin may do that");
    }
    // The user of that tenant sees the same keys.
    let mut bob = server.client();
    login(&mut bob, "bob");
    bob.ask("delete auth\r\n", "DELETED\r\n");
    // By binary too.
    let mut binary = Client::connect(&own);
    let mut noop = [0; 24];
    (noop[0], noop[1]) = (0x80, 0x0a);
    binary.send(noop);
    noop[0] = 0x81;
    binary.expect(noop);
    // The other addresses ask, that of the tenant too.
    for mut other in [server.client(), Client::connect(&asks)] {
        other.ask("get k\r\n", "CLIENT_ERROR unauthenticated\r\n");
        login(&mut other, "ann");
        other.ask("get k auth\r\n", "VALUE k 0 5\r\nann's\r\nEND\r\n");
    }
}

/// A request that would make an item where none fits is answered.
#[test]
fn an_item_that_cannot_be_made_is_refused() {
    let own = new_path("own");
    let mut full = tenant("full", &[]);
    full.max = 0;
    let _server = start(Settings {
        tenants: vec![full],
        listeners: vec![listener(own.clone(), "full", false)],
        ..Settings::default()
    });
    let mut client = Client::connect(&own);
    client.say(
        "mg k N30 v\r\nmn",
        "SERVER_ERROR out of memory storing object\r\nMN",
    );
    assert_eq!(client.stat("", "store_no_memory"), "1");
}

#[test]
fn an_admin_creates_changes_and_deletes_tenants() {
    let server = start(Settings::default());
    let mut admin = server.admin();
    admin.ask("tenant create t min=1m max=8m\r\n", "OK\r\n");
    assert_eq!(admin.lines("tenant list").len(), 2);
    admin.ask("tenant set t high=4m\r\n", "OK\r\n");
    let line = &admin.lines("tenant list")[1];
    assert!(
        line.starts_with("TENANT t min=1048576 low=0 high=4194304 max=8388608 used="),
        "{line}"
    );
    for (command, answer) in [
        ("create t", "SERVER_ERROR there is a tenant"),
        ("create", "CLIENT_ERROR a tenant's name"),
        ("create a/b", "CLIENT_ERROR a tenant's name"),
        ("create u max=much", "CLIENT_ERROR max=much"),
        ("create u max=1m high=2m", "CLIENT_ERROR high="),
        ("create u limit=1m", "CLIENT_ERROR limit=1m"),
        ("set none max=1m", "SERVER_ERROR there is no tenant"),
        ("delete none", "SERVER_ERROR there is no tenant"),
        ("rename t u", "CLIENT_ERROR usage"),
    ] {
        admin.send(format!("tenant {command}\r\n"));
        let line = admin.line();
        assert!(line.starts_with(answer), "{command}: {line}");
    }
    assert_eq!(
        admin.lines("tenant list").len(),
        2,
        "what was refused created nothing"
    );
    admin.ask("tenant delete t\r\n", "OK\r\n");
    assert_eq!(admin.lines("tenant list").len(), 1);
}

#[test]
fn a_client_whose_tenant_was_deleted_stores_nothing() {
    let (server, own) = with_tenant(Settings::default());
    let (mut a, mut admin) = (Client::connect(&own), server.admin());
    a.set("k", "x");
    admin.ask("tenant delete a\r\n", "OK\r\n");
    a.ask("get k\r\n", "END\r\n");
    a.say(
        "set k 0 0 1\r\nx",
        "SERVER_ERROR the tenant has been deleted",
    );
    admin.ask("tenant create a\r\n", "OK\r\n");
    a.ask("get k\r\n", "END\r\n");
    a.set("k", "x");
    assert_eq!(admin.stat("tenant a", "curr_items"), "1");
}

/// What is counted for the server is for those that see all of it.
#[test]
fn a_tenant_is_not_told_what_others_do() {
    let server = start(users());
    let mut ann = server.client();
    login(&mut ann, "ann");
    let named = |lines: &[String], name: &str| {
        let head = format!("STAT {name} ");
        lines.iter().any(|line| line.starts_with(&head))
    };
    let (own, all) = (ann.lines("stats"), server.admin().lines("stats"));
    for name in [
        "curr_connections",
        "auth_errors",
        "bytes_read",
        "rusage_user",
    ] {
        assert!(!named(&own, name) && named(&all, name), "{name}");
    }
    for name in ["pid", "version", "cmd_get", "curr_items", "evictions"] {
        assert!(named(&own, name), "{name}");
    }
    assert!(!named(&ann.lines("stats settings"), "domain_socket"));
}

/// What is for admins, in each form that it has: it is refused, and nothing of it is done.
#[test]
fn a_user_without_the_right_changes_nothing() {
    let server = start(Settings {
        shutdown: true,
        debug: true,
        ..users()
    });
    let (mut ann, mut bob, mut root) = (server.client(), server.client(), server.client());
    login(&mut ann, "ann");
    login(&mut bob, "bob");
    login(&mut root, "root");
    bob.set("k", "b");
    let state = |root: &mut Client| {
        let searches = ["lru_crawler", "lru_crawler_sleep", "lru_crawler_tocrawl"];
        let searches = searches.map(|name| root.stat("settings", name));
        let limit = root.stat("", "limit_maxbytes");
        let own = |line: &String| line.split(" used=").next().unwrap().to_owned();
        let tenants: Vec<_> = root.lines("tenant list").iter().map(own).collect();
        (searches, limit, tenants)
    };
    let before = state(&mut root);
    for command in [
        "cache_memlimit 8",
        "cache_memlimit 100",
        "shutdown",
        "shutdown graceful",
        "tenant",
        "tenant list",
        "tenant create c",
        "tenant create c max=1m",
        "tenant set a max=1g",
        "tenant set b max=1",
        "tenant delete a",
        "tenant delete b",
        "lru_crawler disable",
        "lru_crawler sleep 999",
        "lru_crawler tocrawl 9",
        "lru_crawler crawl all",
    ] {
        let refused = "CLIENT_ERROR only an admin may do that\r\n";
        ann.ask(format!("{command}\r\n"), refused);
    }
    // Without an answer, it is not done either.
    ann.ask("cache_memlimit 8 noreply\r\nmn\r\n", "MN\r\n");
    let usage = "CLIENT_ERROR usage: stats detail on|off|dump, by an admin\r\n";
    ann.ask("stats detail on\r\n", usage);
    ann.ask("stats detail off\r\n", usage);
    ann.say("set x:y 0 0 1\r\n1\r\nstats detail dump", "STORED\r\nEND");
    // There is no TLS, for which no right would help.
    ann.ask("refresh_certs\r\n", "ERROR\r\n");
    // Its own commands are about its own tenant, also where they look like all's.
    ann.ask("flush_all\r\nstats reset\r\n", "OK\r\nRESET\r\n");
    ann.ask("flush_all 0 noreply\r\nmn\r\n", "MN\r\n");
    bob.ask("get k\r\n", "VALUE k 0 1\r\nb\r\nEND\r\n");
    assert_eq!(bob.stat("", "cmd_set"), "1");
    assert_eq!(state(&mut root), before);
    // Of meta commands none is for admins, whatever a key or a token says.
    for (command, answer) in [
        ("mg k v c t", "EN"),
        ("mg aw== b v", "EN"),
        ("me k", "EN"),
        ("me aw== b", "EN"),
        ("md k", "NF"),
        ("ma k", "NF"),
        ("ms k 1 MR\r\nx", "NS"),
        ("ms k 1 MA\r\nx", "NS"),
    ] {
        ann.ask(format!("{command}\r\n"), format!("{answer}\r\n"));
    }
    bob.ask("mg k v\r\n", "VA 1\r\nb\r\n");
    // The right is looked at when it is used, and not when the client came.
    root.ask("tenant set b max=2m\r\n", "OK\r\n");
    root.ask("shutdown\r\n", "");
    root.ends();
}

/// Takes as many places as it can get, and returns them.
fn take_places(path: &std::path::Path) -> Vec<Client> {
    let mut clients = Vec::new();
    loop {
        let mut client = Client::connect(path);
        // One that is refused may be closed before it has written.
        let _ = client.0.write_all(b"mn\r\n");
        let mut answer = [0; 4];
        if client.0.read_exact(&mut answer).is_err() || answer != *b"MN\r\n" {
            return clients;
        }
        clients.push(client);
    }
}

#[test]
fn a_tenant_that_takes_all_places_leaves_some_to_others() {
    let (server, own) = with_tenant(Settings {
        max_connections: 12,
        ..Settings::default()
    });
    let (hog, other) = (take_places(&own), take_places(&server.path));
    assert_eq!((hog.len(), other.len()), (9, 3));
    server.admin().ask("mn\r\n", "MN\r\n");
}

#[test]
fn clients_that_do_not_log_in_leave_their_places_to_those_that_do() {
    let server = start(Settings {
        max_connections: 12,
        ..users()
    });
    let connect = || server.client();
    let mut silent: Vec<_> = (0..12).map(|_| connect()).collect();
    let mut hog = Vec::new();
    loop {
        let mut client = connect();
        if !logs_in(&mut client, "ann") {
            break;
        }
        hog.push(client);
    }
    assert_eq!(hog.len(), 9);
    // The other tenants get the places that are kept for them, whatever other clients come.
    let mut others = Vec::new();
    for name in ["bob", "plain"] {
        silent.extend((0..12).map(|_| connect()));
        let mut client = connect();
        assert!(logs_in(&mut client, name), "{name}");
        others.push(client);
    }
    for client in hog.iter_mut().chain(&mut others) {
        client.ask("mn\r\n", "MN\r\n");
    }
}

/// It sends nothing, and nothing has been kept for it.
#[test]
fn a_watcher_hears_of_a_tenant_that_is_made_again() {
    let (server, own) = with_tenant(Settings::default());
    let mut watcher = Client::connect(&own);
    watcher.ask("watch mutations\r\n", "OK\r\n");
    server
        .admin()
        .ask("tenant delete a\r\ntenant create a\r\n", "OK\r\nOK\r\n");
    watcher.0.set_nonblocking(true).unwrap();
    let mut writer = Client::connect(&own);
    let mut line = [0; 3];
    until(|| {
        writer.set("k", "v");
        watcher.0.read(&mut line).is_ok()
    });
    assert_eq!(&line, b"ts=");
}
