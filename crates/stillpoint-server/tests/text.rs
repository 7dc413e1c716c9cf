//! The text protocol, over a socket.

#[macro_use]
mod common;
use common::start;
use stillpoint_server::config::Settings;

#[test]
fn storage_and_retrieval() {
    let server = start(Settings::default());
    let mut client = server.client();
    asks! { client:
        "get none" => "END";
        "set k 7 0 5\r\nvalue" => "STORED";
        "get k none k" => "VALUE k 7 5\r\nvalue\r\nVALUE k 7 5\r\nvalue\r\nEND";
        "add k 0 0 1\r\nx" => "NOT_STORED";
        "replace k 1 0 1\r\nx" => "STORED";
        "append k 9 0 1\r\ny" => "STORED";
        "prepend k 9 0 1\r\nw" => "STORED";
        "get k" => "VALUE k 1 3\r\nwxy\r\nEND";
        "append none 0 0 1\r\ny" => "NOT_STORED";
        "touch k 100\r\ntouch none 1" => "TOUCHED\r\nNOT_FOUND";
        "gat 0 k none" => "VALUE k 1 3\r\nwxy\r\nEND";
        "gat soon k" => "CLIENT_ERROR invalid exptime argument";
        "delete k\r\ndelete k" => "DELETED\r\nNOT_FOUND";
        "set k 0 -1 1\r\nx\r\nget k" => "STORED\r\nEND";
        "set a 0 0 1\r\nx\r\nflush_all\r\nget a" => "STORED\r\nOK\r\nEND";
        "get\r\nget \r\ngets" => "ERROR\r\nERROR\r\nERROR";
    }
}

#[test]
fn cas_and_numbers() {
    let server = start(Settings::default());
    let mut client = server.client();
    client.ask("cas k 0 0 1 1\r\nx\r\n", "NOT_FOUND\r\n");
    client.set("k", "x");
    client.send("gets k\r\n");
    let cas: u64 = client.line().rsplit(' ').next().unwrap().parse().unwrap();
    client.expect("x\r\nEND\r\n");
    client.ask(format!("cas k 0 0 1 {}\r\ny\r\n", cas + 99), "EXISTS\r\n");
    client.ask(format!("cas k 0 0 1 {cas}\r\ny\r\n"), "STORED\r\n");
    client.ask(format!("cas k 0 0 1 {cas}\r\nz\r\n"), "EXISTS\r\n");
    asks! { client:
        "incr k 1" => "CLIENT_ERROR cannot increment or decrement non-numeric value";
        "set n 0 0 2\r\n10\r\nincr n 5\r\ndecr n 20\r\nincr m 1" => "STORED\r\n15\r\n0\r\nNOT_FOUND";
        "incr n 18446744073709551615\r\nincr n 1" => "18446744073709551615\r\n0";
    }
}

#[test]
fn noreply_and_pipelines() {
    let server = start(Settings::default());
    let mut client = server.client();
    let quiet = "set a 0 0 1 noreply\r\n1\r\nincr a 1 noreply\r\ntouch a 0 noreply\r\nadd a 0 0 1 noreply\r\nx\r\ndelete b noreply\r\nverbosity 0 noreply\r\nset c x 0 1 noreply\r\ny\r\n";
    client.ask(format!("{quiet}get a c\r\n"), "VALUE a 0 1\r\n2\r\nEND\r\n");
    let (mut commands, mut answers) = (String::new(), String::new());
    for i in 0..5000 {
        commands += &format!("set key{i} 0 0 6\r\n{i:06}\r\nget key{i}\r\n");
        answers += &format!("STORED\r\nVALUE key{i} 0 6\r\n{i:06}\r\nEND\r\n");
    }
    let mut writer = server.client();
    let mut reader = common::Client(writer.0.try_clone().unwrap());
    let thread = std::thread::spawn(move || writer.send(commands));
    reader.expect(answers);
    thread.join().unwrap();
}

#[test]
fn however_bytes_are_cut_the_answers_are_the_same() {
    let server = start(Settings::default());
    let commands = b"set k 1 0 10\r\n0123456789\r\nget k\r\nset k 2 0 0\r\n\r\ngets nope\r\nms m 3 T0 c0\r\nabc\r\nmg k v f\r\nbogus\r\nget k  k\r\n".as_slice();
    let whole = "STORED\r\nVALUE k 1 10\r\n0123456789\r\nEND\r\nSTORED\r\nEND\r\n";
    for step in [1, 2, 3, 7, 13] {
        let mut client = server.client();
        for piece in commands.chunks(step) {
            client.send(piece);
        }
        client.expect(whole);
        assert!(client.line().starts_with("HD c"));
        client.expect("VA 0 f2\r\n\r\nERROR\r\nVALUE k 2 0\r\n\r\nVALUE k 2 0\r\n\r\nEND\r\n");
    }
}

#[test]
fn keys_and_values_of_all_lengths() {
    let server = start(Settings::default());
    let mut client = server.client();
    let key = "k".repeat(250);
    client.say(
        format!("set {key} 0 0 1\r\nx\r\nget {key}"),
        format!("STORED\r\nVALUE {key} 0 1\r\nx\r\nEND"),
    );
    client.say(
        format!("set {key}k 0 0 5\r\nquit\n"),
        "CLIENT_ERROR bad command line format",
    );
    client.say(
        format!("get a {key}k b\r\nget a"),
        "CLIENT_ERROR bad command line format\r\nEND",
    );
    for len in [0, 1, 4095, 4096, 4097, 16_000, 16_384, 70_000, 1 << 20] {
        let value: String = (0..len)
            .map(|i| char::from(b'a' + (i % 26) as u8))
            .collect();
        client.set("v", &value);
        client.say("get v", format!("VALUE v 0 {len}\r\n{value}\r\nEND"));
    }
    let long = "x".repeat((1 << 20) + 1);
    client.say(
        format!("set v 0 0 {}\r\n{long}\r\nget v", long.len()),
        "SERVER_ERROR object too large for cache\r\nEND",
    );
}

#[test]
fn hostile_bytes_end_in_errors_and_the_server_lives() {
    let server = start(Settings::default());
    let mut client = server.client();
    client.say("set k 0 0 3\r\nabcdef", "CLIENT_ERROR bad data chunk");
    client.ask("", "ERROR\r\n");
    for line in [
        "set k 0 0 -1",
        "set k 0 0 2147483647",
        "set k 0 0 18446744073709551616",
        "ms k -5",
        "ms k 99999999999",
    ] {
        client.say(line, "CLIENT_ERROR bad command line format");
    }
    // A value of 1 GiB is refused before it comes, and without memory for it.
    client.say(
        "set k 0 0 1073741824",
        "SERVER_ERROR object too large for cache",
    );
    let before = server.client().stat("", "read_buf_bytes");
    assert!(before.parse::<usize>().unwrap() < 1 << 20);
    for garbage in [
        &b"GET / HTTP/1.1\r\n"[..],
        &[b'x'; 4096],
        b"\x80\x01\xff\xff\xff\x00\x00\x00\xff\xff\xff\xff\0\0\0\0\0\0\0\0\0\0\0\0",
    ] {
        let mut client = server.client();
        client.send(garbage);
        client.ends();
    }
    // The byte of the binary protocol, in the middle of the text protocol.
    let mut client = server.client();
    client.say("version", format!("VERSION {}", stillpoint_server::VERSION));
    client.ask(b"\x80\x01\0\0\r\nmn\r\n", "ERROR\r\nMN\r\n");
    // A line of keys has no limit.
    client.say(format!("get {}\r\nmn", "key ".repeat(100_000)), "END\r\nMN");
}

#[test]
fn operators() {
    let server = start(Settings::default());
    let (mut client, mut admin) = (server.client(), server.admin());
    asks! { client:
        "verbosity 1" => "OK";
        "shutdown" => "ERROR: shutdown not enabled";
        "cache_memlimit 100" => "CLIENT_ERROR only an admin may do that";
        "tenant list" => "CLIENT_ERROR only an admin may do that";
    }
    asks! { admin:
        "cache_memlimit 7" => "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m";
        "cache_memlimit 18446744073709551615" => "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m";
        "cache_memlimit 100" => "OK";
    }
    assert_eq!(client.stat("settings", "maxbytes"), (100 << 20).to_string());
    for i in 0..1000 {
        client.ask(format!("set key{i} 0 0 1\r\nx\r\n"), "STORED\r\n");
    }
    let mut keys = client.lines("lru_crawler metadump all");
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 1000);
    assert!(keys[0].starts_with("key=key0 exp=-1 la="), "{}", keys[0]);
    client.say(
        "mn\r\nlru_crawler metadump all",
        "MN\r\nERROR cannot pipeline other commands before metadump",
    );
    assert_eq!(client.lines("stats cachedump 1 10").len(), 10);
    assert_eq!(
        (client.stat("", "curr_items"), client.stat("", "cmd_set")),
        ("1000".into(), "1000".into())
    );
    client.ask("stats reset\r\n", "RESET\r\n");
    assert_eq!(
        (client.stat("", "curr_items"), client.stat("", "cmd_set")),
        ("1000".into(), "0".into())
    );
    assert_eq!(client.lines("stats nonsense"), ["ERROR"]);
    client.send("quit\r\n");
    client.ends();
}

#[test]
fn evictions_are_watched() {
    let server = start(Settings {
        limit: 8 << 20,
        item_max: 100_000,
        ..Settings::default()
    });
    let (mut watcher, mut client) = (server.client(), server.client());
    watcher.ask("watch evictions\r\n", "OK\r\n");
    let value = "x".repeat(10_000);
    for number in 0..2000 {
        client.set(format!("key{number}"), &value);
    }
    let line = watcher.line();
    assert!(line.contains(" type=eviction key=key"), "{line}");
    assert!(line.contains(" fetch=no ttl=-1 la="), "{line}");
    assert!(line.ends_with(" clsid=1 size=10000"), "{line}");
    // They were counted as well.
    assert_ne!(client.stat("", "evictions"), "0");
}

#[test]
fn watching() {
    let server = start(Settings::default());
    let (mut watcher, mut client) = (server.client(), server.client());
    watcher.ask("watch nonsense\r\n", "ERROR\r\n");
    watcher.ask("watch fetchers mutations\r\n", "OK\r\n");
    client.ask("get a=b\r\n", "END\r\n");
    let line = watcher.line();
    assert!(
        line.contains(" type=item_get key=a%3Db status=not_found "),
        "{line}"
    );
    client.set("k", "xx");
    assert!(watcher.line().contains("type=item_get"));
    let line = watcher.line();
    assert!(
        line.contains(" type=item_store key=k status=stored cmd=set ") && line.ends_with(" size=2"),
        "{line}"
    );
    drop(watcher);
    common::until(|| client.stat("", "log_watchers") == "0");
}

/// Each item once, though a step may come to a few more than it was asked for.
#[test]
fn a_dump_of_a_class_is_complete() {
    let server = start(Settings::default());
    let mut client = server.client();
    let mut expected = Vec::new();
    for key in 0..1000 {
        client.ask(format!("set %:{key} 0 0 1\r\nx\r\n"), "STORED\r\n");
        expected.push(format!("ITEM %25:{key} [1 b; 0 s]"));
    }
    let mut lines = client.lines("stats cachedump 1 0");
    lines.sort();
    expected.sort();
    assert!(lines == expected, "{} lines", lines.len());
    assert_eq!(client.lines("stats cachedump 1 20").len(), 20);
}

#[test]
fn statistics_by_prefix() {
    let server = start(Settings::default());
    let (mut client, mut admin) = (server.client(), server.admin());
    client.say(
        "stats detail on",
        "CLIENT_ERROR usage: stats detail on|off|dump, by an admin",
    );
    client.set("a:1", "x");
    admin.ask("stats detail on\r\n", "OK\r\n");
    asks! { client:
        "set a:1 0 0 1\r\nx\r\nget a:1 a:2 plain\r\ndelete a:3" => "STORED\r\nVALUE a:1 0 1\r\nx\r\nEND\r\nNOT_FOUND";
        "stats detail dump" => "PREFIX <null> get 1 hit 0 set 0 del 0\r\nPREFIX a get 2 hit 1 set 1 del 1\r\nEND";
    }
}

#[test]
fn a_time_that_is_over_is_for_those_that_ask_next() {
    let server = start(Settings::default());
    let mut client = server.client();
    asks! { client:
        "set k 0 0 1\r\nx\r\ngat -1 k\r\nget k" => "STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\nEND";
        "set k 0 100 1\r\nx\r\nmg k T900 t\r\nmg k t T100\r\nmg k v T-1\r\nmg k v" => "STORED\r\nHD t900\r\nHD t900\r\nVA 1\r\nx\r\nEN";
    }
}

#[test]
fn a_value_that_is_too_long_takes_away_only_the_item_that_was_compared() {
    let server = start(Settings {
        flush: false,
        ..Settings::default()
    });
    let mut client = server.client();
    let long = "v".repeat(2 << 20);
    client.set("k", "k");
    client.say(
        format!("cas k 0 0 {} 7777777\r\n{long}\r\nget k", long.len()),
        "SERVER_ERROR object too large for cache\r\nVALUE k 0 1\r\nk\r\nEND",
    );
    client.say(
        format!("set k 0 0 {}\r\n{long}\r\nget k", long.len()),
        "SERVER_ERROR object too large for cache\r\nEND",
    );
    // What is refused is not answered either where no answer is asked for.
    client.ask("flush_all noreply\r\nmn\r\n", "MN\r\n");
}

/// An item without a time is written anew for one, which takes memory.
#[test]
fn a_time_that_cannot_be_kept_is_refused() {
    let server = start(Settings {
        limit: 8 << 20,
        evict: false,
        ..Settings::default()
    });
    let mut client = server.client();
    let value = "v".repeat(3000);
    let mut refused = false;
    for key in 0..4000 {
        client.send(format!("set {key} 0 0 3000\r\n{value}\r\n"));
        refused |= client.line() != "STORED";
    }
    assert!(refused);
    let answer = "SERVER_ERROR out of memory storing object\r\n";
    for command in ["touch 0 100", "gat 100 0", "mg 0 T100", "mg 0 T100 v"] {
        client.ask(format!("{command}\r\nmn\r\n"), format!("{answer}MN\r\n"));
    }
    client.ask("touch none 100\r\n", "NOT_FOUND\r\n");
    client.ask("mg 0 t\r\n", "HD t-1\r\n");
}
