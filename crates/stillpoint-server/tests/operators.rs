//! What operators of memcached know: the search for expired items, statistics, limits of buffers.
//!
//! Detects lines and answers that are not counted, and operators' commands for a client that is no
//! admin.
#![cfg(target_os = "linux")]

#[macro_use]
mod common;
use common::{Running, start, until};
use std::collections::BTreeSet;
use stillpoint_server::config::Settings;

/// A server whose clock clients move, which searches for nothing.
fn idle() -> Running {
    start(Settings {
        debug: true,
        lru_crawler: false,
        ..Settings::default()
    })
}

#[test]
fn the_search_for_expired_items_is_switched_by_admins() {
    let server = idle();
    let (mut client, mut admin) = (server.client(), server.admin());
    let not_admin = "CLIENT_ERROR only an admin may do that\r\n";
    for command in ["enable", "crawl all", "sleep 5", "tocrawl 5"] {
        client.ask(format!("lru_crawler {command}\r\n"), not_admin);
    }
    // What is as it was needs no right.
    for command in ["disable", "sleep 0", "tocrawl 0"] {
        client.ask(format!("lru_crawler {command}\r\n"), "OK\r\n");
    }
    for number in 0..3 {
        client.say(
            format!("set soon{number} 0 5 1\r\nx\r\nset ever{number} 0 0 1\r\nx"),
            "STORED\r\nSTORED",
        );
    }
    admin.ask("debugtime 10\r\n", "OK\r\n");
    server.handle.store().maintain();
    assert_eq!(admin.stat("", "curr_items"), "6");
    assert_eq!(admin.stat("settings", "lru_crawler"), "no");
    asks! { admin:
        "lru_crawler crawl all" => "CLIENT_ERROR lru crawler disabled";
        "lru_crawler enable" => "OK";
        "lru_crawler crawl 2\r\nlru_crawler crawl 1" => "BADCLASS invalid class id\r\nOK";
    }
    until(|| admin.stat("", "lru_crawler_running") == "0");
    assert_eq!(admin.stat("", "curr_items"), "3");
    assert_eq!(admin.stat("", "crawler_reclaimed"), "3");
    assert_eq!(admin.stat("items", "items:1:crawler_reclaimed"), "3");
    assert_eq!(admin.stat("", "crawler_items_checked"), "6");
    assert_ne!(admin.stat("", "lru_crawler_starts"), "0");
    let bad = "CLIENT_ERROR bad command line format\r\n";
    admin.ask("lru_crawler sleep 1000001\r\n", bad);
    admin.ask("lru_crawler tocrawl x\r\n", bad);
    admin.say(
        "lru_crawler sleep 200\r\nlru_crawler tocrawl 77\r\nlru_crawler disable",
        "OK\r\nOK\r\nOK",
    );
    for (name, value) in [
        ("lru_crawler", "no"),
        ("lru_crawler_sleep", "200"),
        ("lru_crawler_tocrawl", "77"),
    ] {
        assert_eq!(admin.stat("settings", name), value);
    }
    assert!(!server.handle.store().search().on);
}

fn with_pressure(file: &std::path::Path) -> Settings {
    Settings {
        memory_pressure: Some(file.to_str().unwrap().into()),
        ..Settings::default()
    }
}

/// Detects a server that is told and evicts nothing, or everything.
#[test]
fn a_server_evicts_a_part_when_the_system_is_short_of_memory() {
    let path = common::new_path("pressure");
    common::make_fifo(&path);
    let server = start(with_pressure(&path));
    let mut client = server.client();
    for key in 0..16 {
        let value = "x".repeat(1 << 19);
        client.say(format!("set {key} 0 0 {}\r\n{value}", 1 << 19), "STORED");
    }
    assert_eq!(client.stat("", "evictions"), "0");
    std::fs::write(&path, "short").unwrap();
    until(|| client.stat("", "evictions") != "0");
    let handle = server.handle.clone();
    // It waits for the end of the pass.
    drop(server);
    let items = handle.store().statistics().all.items;
    assert!((8..16).contains(&items), "{items}");
}

/// Every file of procfs counts as a pressure file. The name of a thread can be written to, and read.
#[test]
fn the_kernel_is_told_what_to_tell_of() {
    let file = "/proc/thread-self/comm";
    let name = std::fs::read(file).unwrap();
    let server = start(with_pressure(file.as_ref()));
    assert_eq!(std::fs::read(file).unwrap(), b"some 200000 200\n");
    std::fs::write(file, name).unwrap();
    drop(server);
}

#[test]
fn a_named_file_that_cannot_be_watched_keeps_the_server_from_starting() {
    let path = common::new_path("missing");
    let start = || {
        let mut settings = with_pressure(&path);
        settings.listeners = vec![common::listener(common::new_path("s"), "", false)];
        settings.log = false;
        let error = stillpoint_server::server::Server::start(settings).map(drop);
        error.unwrap_err().to_string()
    };
    let named = format!("memory-pressure: cannot watch {}: ", path.display());
    assert!(start().starts_with(&named), "{}", start());
    std::fs::write(&path, "").unwrap();
    assert!(start().contains("neither a pressure file"), "{}", start());
}

/// What scripts that read memcached's statistics look for, but for what is about slabs and the lists
/// of their classes.
const NAMES: &str =
    "pid uptime time version libevent pointer_size rusage_user rusage_system max_connections
    curr_connections total_connections rejected_connections connection_structures response_obj_oom
    response_obj_count response_obj_bytes read_buf_count read_buf_bytes read_buf_bytes_free
    read_buf_oom reserved_fds cmd_get cmd_set cmd_flush cmd_touch cmd_meta get_hits get_misses
    get_expired get_flushed delete_misses delete_hits incr_misses incr_hits decr_misses decr_hits
    cas_misses cas_hits cas_badval touch_hits touch_misses store_too_large store_no_memory auth_cmds
    auth_errors bytes_read bytes_written limit_maxbytes accepting_conns listen_disabled_num
    time_in_listen_disabled_us threads conn_yields hash_power_level hash_bytes hash_is_expanding
    malloc_fails log_worker_dropped log_worker_written log_watcher_skipped log_watcher_sent
    log_watchers unexpected_napi_ids round_robin_fallback bytes curr_items total_items
    expired_unfetched evicted_unfetched evictions reclaimed crawler_reclaimed crawler_items_checked
    lrutail_reflocked lru_maintainer_juggles lru_bumps_dropped moves_to_cold moves_to_warm
    moves_within_lru direct_reclaims evicted_active lru_crawler_running lru_crawler_starts";

#[test]
fn the_statistics_have_memcacheds_names_and_some_of_their_own() {
    let server = start(Settings::default());
    let own = "slow_kicks idle_kicks segment_bytes segments compacted_items pinned_bytes";
    let of_admins = "tenants limbo_bytes spare_bytes";
    for (mut client, more) in [(server.client(), ""), (server.admin(), of_admins)] {
        let lines = client.lines("stats");
        let names: Vec<_> = lines
            .iter()
            .filter_map(|line| line.split(' ').nth(1))
            .collect();
        let expected = [NAMES, own, more];
        let expected: BTreeSet<_> = expected
            .iter()
            .flat_map(|names| names.split_whitespace())
            .collect();
        assert_eq!(names.iter().copied().collect::<BTreeSet<_>>(), expected);
        assert_eq!(names.len(), expected.len(), "each once");
    }
}

#[test]
fn the_index_and_flushed_items_are_in_the_statistics() {
    let server = idle();
    let mut client = server.client();
    for number in 0..2000 {
        client.send(format!("set k{number} 0 0 1 noreply\r\nx\r\n"));
    }
    client.ask("mn\r\n", "MN\r\n");
    // Some 2,000 items in buckets of 7.
    let power = client.number("hash_power_level");
    assert!((8..12).contains(&power), "{power}");
    // The clock, at which what was flushed is freed, may tick in between: then it is tried again.
    let mut misses = 0;
    until(|| {
        let before = client.number("get_flushed");
        let set = "set k1 0 0 1\r\nx\r\nset k2 0 0 1\r\nx\r\n";
        client.say(
            format!("{set}flush_all\r\nget k1 k2 none"),
            "STORED\r\nSTORED\r\nOK\r\nEND",
        );
        misses += 3;
        let after = client.number("get_flushed");
        assert!(after <= before + 2, "{before} {after}");
        after == before + 2
    });
    assert_eq!(client.stat("", "get_misses"), misses.to_string());
}

/// A thread's share is room for two clients in the middle of a request, and six answers.
fn small() -> Running {
    start(Settings {
        reserved_max: 2 * (2 * (16 << 10)),
        ..Settings::default()
    })
}

#[test]
fn answers_that_a_threads_share_has_no_room_for_are_refused() {
    let server = small();
    let (mut client, mut admin) = (server.client(), server.admin());
    client.set("a", "x");
    let keys = |count: usize| format!("get {}\r\n", vec!["a"; count].join(" "));
    let item = "VALUE a 0 1\r\nx\r\n";
    client.ask(keys(6), format!("{}END\r\n", item.repeat(6)));
    assert_eq!(admin.stat("", "response_obj_oom"), "0");
    client.ask(
        keys(7),
        "SERVER_ERROR out of memory writing get response\r\n",
    );
    assert_eq!(admin.stat("", "response_obj_oom"), "1");
    // A key that is not there takes as much.
    client.say(
        format!("get {}a", "none ".repeat(6)),
        "SERVER_ERROR out of memory writing get response",
    );
    assert_eq!(admin.stat("", "response_obj_oom"), "2");
    // What is not answered, and what is made meanwhile, takes no room beside that.
    client.ask(format!("{}mn\r\n", "mg none v q\r\n".repeat(20)), "MN\r\n");
    let made: String = (0..6)
        .map(|key| format!("mg made{key} v N30\r\n"))
        .collect();
    client.ask(made, "VA 0 W\r\n\r\n".repeat(6));
    // One after the other there is room for any number.
    for _ in 0..20 {
        client.ask("mg a v\r\n", "VA 1\r\nx\r\n");
    }
    // Of a pipeline of too many nothing is sent.
    client.send("mg a v\r\n".repeat(7));
    let mut rest = Vec::new();
    let _ = std::io::Read::read_to_end(&mut client.0, &mut rest);
    assert_eq!(rest, b"");
    assert_eq!(admin.stat("", "response_obj_oom"), "3");
    assert_eq!(admin.stat("", "malloc_fails"), "0");
}

#[test]
fn clients_in_the_middle_of_a_request_are_no_more_than_a_threads_share_allows() {
    let server = small();
    let mut admin = server.admin();
    let mut clients: Vec<_> = (0..12).map(|_| server.client()).collect();
    for client in &mut clients {
        client.send("set a 0 0 2\r\n");
    }
    let number =
        |admin: &mut common::Client, name: &str| -> usize { admin.stat("", name).parse().unwrap() };
    until(|| number(&mut admin, "read_buf_count") + number(&mut admin, "read_buf_oom") == 12);
    let refused = number(&mut admin, "read_buf_oom");
    assert!((8..=10).contains(&refused), "{refused}");
    let mut stored = 0;
    for client in &mut clients {
        let _ = std::io::Write::write_all(&mut client.0, b"ok\r\n");
        let mut answer = [0; 8];
        stored += usize::from(std::io::Read::read_exact(&mut client.0, &mut answer).is_ok());
    }
    assert_eq!(stored, 12 - refused);
    // A buffer goes back when the answer has been sent.
    until(|| number(&mut admin, "read_buf_count") == 0);
    assert_eq!(number(&mut admin, "malloc_fails"), 0);
    // Those that have gone make room.
    drop(clients);
    until(|| admin.stat("", "curr_connections") == "1");
    for _ in 0..12 {
        server.client().ask("set a 0 0 2\r\nok\r\n", "STORED\r\n");
    }
    assert_eq!(number(&mut admin, "read_buf_oom"), refused);
}

#[test]
fn answers_that_a_socket_does_not_take_are_in_the_statistics() {
    let server = start(Settings::default());
    let (mut stuck, mut admin) = (server.client(), server.admin());
    let value = "x".repeat(1000);
    stuck.set("a", &value);
    assert_eq!(admin.stat("", "response_obj_count"), "0");
    let requests = "get a\r\n".repeat(20_000);
    let writer = stuck.0.try_clone().unwrap();
    let thread = std::thread::spawn(move || {
        let _ = std::io::Write::write_all(&mut &writer, requests.as_bytes());
    });
    until(|| admin.stat("", "response_obj_count") == "1");
    assert_ne!(admin.stat("", "response_obj_bytes"), "0");
    let answer = format!("VALUE a 0 1000\r\n{value}\r\nEND\r\n");
    for _ in 0..20_000 {
        stuck.expect(&answer);
    }
    thread.join().unwrap();
    until(|| admin.stat("", "response_obj_count") == "0");
    assert_eq!(admin.stat("", "response_obj_bytes"), "0");
    assert_eq!(admin.stat("", "read_buf_bytes"), "0");
}

#[test]
fn without_cas_values_a_flush_takes_what_is_stored_in_its_second() {
    for cas in [false, true] {
        let server = start(Settings {
            debug: true,
            cas,
            ..Settings::default()
        });
        let (mut client, mut admin) = (server.client(), server.admin());
        let item = "VALUE k 0 1\r\n5\r\nEND\r\n";
        let kept = if cas { item } else { "END\r\n" };
        // However it is stored. (In one turn, which has the clock of its beginning.)
        for (store, answer) in [
            ("set k 0 0 1\r\n5\r\n", "STORED\r\n"),
            ("add k 0 9 1\r\n5\r\n", "STORED\r\n"),
            ("ms k 1\r\n5\r\n", "HD\r\n"),
            ("ma k N0 J5\r\n", "HD\r\n"),
        ] {
            client.ask(
                format!("flush_all\r\n{store}get k\r\n"),
                format!("OK\r\n{answer}{kept}"),
            );
        }
        // What is stored later stays.
        admin.ask("debugtime 5\r\n", "OK\r\n");
        let stored = format!("STORED\r\n{item}");
        client.ask("set k 0 0 1\r\n5\r\nget k\r\n", &stored);
        // A flush for later is about that second, when it comes.
        client.ask("flush_all 100\r\n", "OK\r\n");
        client.ask("set k 0 0 1\r\n5\r\nget k\r\n", &stored);
        client.ask("debugtime 200\r\nget k\r\n", "OK\r\nEND\r\n");
    }
}
