//! `--metrics`: what a scraper is told, and what others are refused.
#![cfg(feature = "metrics")]

mod common;

use common::{Running, until};
use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};
use stillpoint_server::config::Settings;

fn start(change: impl FnOnce(&mut Settings)) -> (Running, SocketAddr) {
    let mut settings = Settings {
        metrics: Some("127.0.0.1:0".parse().unwrap()),
        ..Settings::default()
    };
    change(&mut settings);
    let running = common::start(settings);
    let address = running.metrics.expect("it answers");
    (running, address)
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    stream
}

/// The answer to a request: its head and its body.
fn request(address: SocketAddr, bytes: &[u8]) -> (String, String) {
    let mut stream = connect(address);
    stream.write_all(bytes).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    (head.to_owned(), body.to_owned())
}

fn scrape(address: SocketAddr) -> String {
    let (head, body) = request(address, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("Content-Type: application/openmetrics-text; version=1.0.0"));
    assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())));
    body
}

/// The value of a series.
#[track_caller]
fn value(body: &str, series: &str) -> f64 {
    let found = body.lines().find_map(|line| {
        line.strip_prefix(series)?
            .strip_prefix(' ')?
            .parse::<f64>()
            .ok()
    });
    found.unwrap_or_else(|| panic!("no {series} in {body}"))
}

#[test]
fn a_scraper_is_told_what_was_done() {
    let (running, address) = start(|_| {});
    let mut client = running.client();
    client.set("k", "value");
    client.ask("get k none\r\n", "VALUE k 0 5\r\nvalue\r\nEND\r\n");
    let mut admin = running.admin();
    admin.ask("tenant create shop max=10m\r\n", "OK\r\n");
    let body = scrape(address);
    assert!(body.ends_with("# EOF\n"));
    for (series, expected) in [
        ("stillcache_commands_total{command=\"set\"}", 1.0),
        ("stillcache_hits_total{command=\"get\"}", 1.0),
        ("stillcache_misses_total{command=\"get\"}", 1.0),
        ("stillcache_stored_items_total", 1.0),
        ("stillcache_tenant_hits_total{tenant=\"-\"}", 1.0),
        ("stillcache_tenant_misses_total{tenant=\"-\"}", 1.0),
        ("stillcache_tenant_sets_total{tenant=\"-\"}", 1.0),
        ("stillcache_tenant_sets_total{tenant=\"shop\"}", 0.0),
        ("stillcache_tenant_evicted_items_total{tenant=\"-\"}", 0.0),
        ("stillcache_tenant_expired_items_total{tenant=\"-\"}", 0.0),
        ("stillcache_tenant_refused_stores_total{tenant=\"-\"}", 0.0),
        ("stillcache_tenant_connections{tenant=\"-\"}", 2.0),
        ("stillcache_items", 1.0),
        ("stillcache_connections", 2.0),
        ("stillcache_tenants", 2.0),
        ("stillcache_limit_bytes", 67_108_864.0),
        ("stillpoint_tenant_max_bytes{tenant=\"shop\"}", 10_485_760.0),
    ] {
        assert_eq!(value(&body, series), expected, "{series}");
    }
    assert!(value(&body, "stillcache_segment_bytes") > 0.0);
    let fill = value(&body, "stillcache_tenant_fill_ratio{tenant=\"-\"}");
    assert!(fill > 0.0 && fill < 1.0, "{fill}");
    assert!(value(&body, "stillcache_read_bytes_total") > 0.0);
    assert!(body.contains("stillpoint_stalls_total{domain=\"global\"} 0\n"));
    assert!(body.contains("{tenant=\"-\"}"));
    // `stats reset` is about `stats`.
    client.ask("stats reset\r\n", "RESET\r\n");
    let body = scrape(address);
    assert_eq!(value(&body, "stillcache_stored_items_total"), 1.0);
}

#[test]
fn others_are_refused() {
    let (_running, address) = start(|_| {});
    let status = |bytes: &[u8]| request(address, bytes).0[9..12].to_owned();
    assert_eq!(status(b"GET / HTTP/1.1\r\n\r\n"), "404");
    assert_eq!(status(b"nonsense\r\n\r\n"), "400");
    let (head, _) = request(address, b"POST /metrics HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 405") && head.contains("Allow: GET, HEAD\r\n"));
    let long = [&b"GET /metrics HTTP/1.1\r\nX: "[..], &[b'x'; 20_000]].concat();
    assert_eq!(status(&long), "431");
    let (head, body) = request(address, b"HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.contains("Content-Length: ") && body.is_empty());
    // In pieces, each received by itself if the pauses are long enough, and with more behind it.
    let mut slow = connect(address);
    for piece in [&b"GET /met"[..], b"rics HTTP/1.0\r\n\r", b"\nGET /"] {
        slow.write_all(piece).unwrap();
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut text = String::new();
    slow.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("# EOF\n"));
}

/// Detects a scrape that waits until clients that say nothing have had their time.
#[test]
fn those_that_say_nothing_hold_up_no_other() {
    let (running, address) = start(|_| {});
    let mut silent: Vec<_> = (0..3).map(|_| connect(address)).collect();
    drop(connect(address));
    scrape(address);
    // They were not ended for it.
    for stream in &mut silent {
        stream.write_all(b"HEAD /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    }
    // Of too many, the first one goes: at once, and not when it has had its time.
    let mut many: Vec<_> = (0..40).map(|_| connect(address)).collect();
    scrape(address);
    many[0].set_nonblocking(true).unwrap();
    let closed = many[0].read(&mut [0]);
    assert!(
        !matches!(&closed, Err(error) if error.kind() == ErrorKind::WouldBlock),
        "{closed:?}"
    );
    let last = many.last_mut().unwrap();
    last.write_all(b"HEAD /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut text = String::new();
    last.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    drop(running);
    until(|| TcpStream::connect(address).is_err());
}

/// A gauge that stays 0 would be an alert. (It is one if a watch was asked for and there is none.)
#[test]
fn what_is_not_to_be_watched_is_not_exported() {
    let (_running, address) = start(|settings| settings.memory_pressure = Some("/dev/null".into()));
    assert!(!scrape(address).contains("stillpoint_pressure_watching{"));
}

/// Alert rules, their tests and the dashboard name no series of stillcache that is not exported.
#[test]
fn rules_and_queries_name_what_there_is() {
    let (_running, address) = start(|_| {});
    let body = scrape(address);
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/prometheus");
    let mut unknown = Vec::new();
    let mut count = 0;
    for file in ["alerts.yml", "alerts_test.yml", "dashboard.json"] {
        let text = std::fs::read_to_string(format!("{folder}/{file}")).unwrap();
        let words = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
        for name in words.filter(|word| word.starts_with("stillcache_")) {
            count += 1;
            let mut lines = body.lines();
            if !lines.any(|line| line.split(['{', ' ']).next() == Some(name)) {
                unknown.push(format!("{file}: {name}"));
            }
        }
    }
    assert!(count > 20, "names are no longer found: {count}");
    assert_eq!(unknown, Vec::<String>::new());
}
