//! Slow, stuck, silent and too many clients.

mod common;
use common::{start, until};
use std::io::Read;
use stillpoint_server::config::Settings;

#[test]
fn a_client_that_does_not_read_costs_a_bounded_amount_and_is_dropped() {
    let server = start(Settings {
        send_timeout: 2,
        ..Settings::default()
    });
    let mut other = server.client();
    let value = "x".repeat(1 << 20);
    other.set("big", &value);
    let mut stuck = server.client();
    stuck.send("get big\r\n".repeat(1000));
    common::until(|| other.stat("", "read_buf_bytes") != "0");
    let held = other.number("read_buf_bytes");
    assert!(held < 256 << 10, "{held}");
    // The others are served all the while, also what is pinned can be deleted and set again.
    other.say(
        "delete big\r\nget big\r\nset big 0 0 1\r\ny",
        "DELETED\r\nEND\r\nSTORED",
    );
    common::until(|| other.stat("", "slow_kicks") == "1");
    assert_eq!(other.stat("", "read_buf_bytes"), "0");
    let mut rest = Vec::new();
    let _ = stuck.0.read_to_end(&mut rest);
    // What came is the old value, not torn.
    let head = format!("VALUE big 0 {}\r\n", value.len());
    for answer in rest.chunks(head.len() + value.len() + 2 + 5) {
        let whole = format!("{head}{value}\r\nEND\r\n");
        assert!(whole.as_bytes().starts_with(answer));
    }
    assert!(rest.len() > 100_000);
}

#[test]
fn a_client_that_reads_slowly_gets_everything() {
    let server = start(Settings::default());
    let mut client = server.client();
    let value = "v".repeat(300_000);
    client.set("big", &value);
    client.set("small", "s");
    let answer = format!(
        "VALUE big 0 {}\r\n{value}\r\nVALUE small 0 1\r\ns\r\nEND\r\n",
        value.len()
    );
    let mut writer = common::Client(client.0.try_clone().unwrap());
    let thread = std::thread::spawn(move || {
        writer.send("get big small\r\n".repeat(100));
        writer.send(format!("get {}\r\n", "big ".repeat(100)));
    });
    for _ in 0..100 {
        client.expect(&answer);
    }
    for _ in 0..100 {
        client.expect(format!("VALUE big 0 {}\r\n{value}\r\n", value.len()));
    }
    client.expect("END\r\n");
    thread.join().unwrap();
}

#[test]
fn silent_clients_are_dropped_where_that_is_asked() {
    let server = start(Settings {
        idle_timeout: 1,
        ..Settings::default()
    });
    let mut silent = server.client();
    silent.ask("mn\r\n", "MN\r\n");
    silent.ends();
    assert_eq!(server.client().stat("", "idle_kicks"), "1");
}

#[test]
fn more_clients_than_allowed_are_told_and_an_admin_comes_in() {
    let server = start(Settings {
        max_connections: 5,
        ..Settings::default()
    });
    let mut clients: Vec<_> = (0..5).map(|_| server.client()).collect();
    for client in &mut clients {
        client.ask("mn\r\n", "MN\r\n");
    }
    let mut sixth = server.client();
    sixth.expect("ERROR Too many open connections\r\n");
    sixth.ends();
    let mut admin = server.admin();
    assert_eq!(admin.stat("", "rejected_connections"), "1");
    assert_eq!(admin.stat("", "curr_connections"), "6");
    clients.pop();
    drop(admin);
    common::until(|| {
        let mut client = server.client();
        // One that is turned away is closed, perhaps before it writes.
        let _ = std::io::Write::write_all(&mut client.0, b"mn\r\n");
        let mut answer = [0; 4];
        client.0.read_exact(&mut answer).is_ok() && answer == *b"MN\r\n"
    });
}

/// Of values that have not come whole.
#[test]
fn values_that_do_not_come_count_to_the_limit_of_buffers() {
    let server = start(Settings {
        buffer_max: 256 << 10,
        // Of several, each could end one too many.
        threads: 1,
        ..Settings::default()
    });
    let mut other = server.client();
    let mut half: Vec<_> = (0..40).map(|_| server.client()).collect();
    let part = "x".repeat(8000);
    for client in &mut half {
        client.send(format!("set k 0 0 30000\r\n{part}"));
    }
    let mut number = |name: &str| -> usize { other.stat("", name).parse().unwrap() };
    until(|| number("read_buf_count") + number("read_buf_oom") == 40);
    let held = number("read_buf_bytes");
    assert!((200 << 10..=256 << 10).contains(&held), "{held}");
    drop(half);
    until(|| other.stat("", "read_buf_bytes") == "0");
    // A value that comes costs nothing afterwards.
    let value = "v".repeat(30_000);
    for _ in 0..20 {
        other.send("set k 0 0 30000\r\nv");
        other.ask(format!("{}\r\n", &value[1..]), "STORED\r\n");
    }
    assert_eq!(other.stat("", "read_buf_oom"), "8");
}

/// Ordinary multigets, whatever one client has asked for and does not read.
#[test]
fn one_that_does_not_read_keeps_no_answer_from_others() {
    let server = start(Settings {
        limit: 8 << 20,
        item_max: 512 << 10,
        ..Settings::default()
    });
    let (mut stuck, mut other, mut admin) = (server.client(), server.client(), server.admin());
    let (mut keys, mut answer) = (String::new(), String::new());
    // From segments that they share with others, and from one of its own.
    for (number, len) in [5000; 64].into_iter().chain([300 << 10]).enumerate() {
        let value = "v".repeat(len);
        other.set(format!("k{number}"), &value);
        // So that each is in a segment with others' items.
        for filler in 0..10 {
            let key = format!("f{number}-{filler}");
            let request = format!("set {key} 0 0 4000\r\n{}\r\n", "f".repeat(4000));
            other.ask(request, "STORED\r\n");
        }
        keys += &format!(" k{number}");
        answer += &format!("VALUE k{number} 0 {len}\r\n{value}\r\n");
    }
    answer += "END\r\n";
    stuck.send(format!("get{keys}\r\n").repeat(200));
    until(|| admin.stat("", "read_buf_bytes") != "0");
    for _ in 0..20 {
        other.ask(format!("get{keys}\r\n"), &answer);
    }
    // Nothing but the large value is kept where it is.
    let pinned = admin.number("pinned_bytes");
    assert!(pinned <= 304 << 10, "{pinned}");
    assert_eq!(admin.stat("", "get_misses"), "0");
}

/// What a client has not read keeps memory; where that is used up, and the buffers too, others are told so, and nothing of the value comes.
#[test]
fn a_value_that_may_not_be_kept_is_copied_or_refused_whole() {
    for buffer_max in [64 << 20, 256 << 10] {
        values_that_may_not_be_kept(buffer_max);
    }
}

fn values_that_may_not_be_kept(buffer_max: usize) {
    let server = start(Settings {
        limit: 8 << 20,
        item_max: 512 << 10,
        buffer_max,
        ..Settings::default()
    });
    let (mut slow, mut other, mut admin) = (server.client(), server.client(), server.admin());
    let value = "v".repeat(500 << 10);
    for key in ["v1", "v2", "v3", "v4"] {
        let request = format!("set {key} 0 0 {}\r\n{value}\r\n", value.len());
        other.ask(request, "STORED\r\n");
    }
    other.set("k", "k");
    slow.send("get v1 v2\r\n");
    until(|| admin.number("pinned_bytes") > 900 << 10);
    if buffer_max > value.len() {
        let line = |key: &str| format!("VALUE {key} 0 {}\r\n{value}\r\n", value.len());
        let (v3, v4) = (line("v3"), line("v4"));
        other.ask("get v3 v4\r\n", format!("{v3}{v4}END\r\n"));
        // One that has to make the value is told so once, with it.
        other.ask("md v4 I\r\n", "HD\r\n");
        let head = format!("VA {}", value.len());
        let won = format!("{head} X W\r\n{value}\r\n");
        other.ask("mg v4 v\r\nmn\r\n", format!("{won}MN\r\n"));
        return;
    }
    let refused = "SERVER_ERROR out of memory writing get response\r\n";
    let mut watcher = server.client();
    watcher.ask("watch fetchers\r\n", "OK\r\n");
    other.ask("get k v4 k\r\nmn\r\n", format!("{refused}MN\r\n"));
    other.ask("mg v4 v k\r\nmn\r\n", format!("{refused}MN\r\n"));
    // It was found all the same.
    assert!(watcher.line().contains("key=k status=found"));
    for _ in 0..2 {
        let line = watcher.line();
        let found = line.contains("key=v4 status=found");
        assert!(found && line.ends_with(" size=512000"), "{line}");
    }
    let mut binary = server.client();
    let mut request = [0; 26];
    (request[0], request[3], request[11]) = (0x80, 2, 2);
    request[24..].copy_from_slice(b"v4");
    binary.send(request);
    let mut head = [0; 24];
    std::io::Read::read_exact(&mut binary.0, &mut head).unwrap();
    assert_eq!((head[0], &head[6..8]), (0x81, &[0, 0x82][..]));
    for key in ["v1", "v2"] {
        slow.expect(format!("VALUE {key} 0 {}\r\n{value}\r\n", value.len()));
    }
    slow.expect("END\r\n");
    until(|| admin.stat("", "pinned_bytes") == "0");
    other.say(
        "get v4",
        format!("VALUE v4 0 {}\r\n{value}\r\nEND", value.len()),
    );
}
