//! What clients by TLS cost is charged: counted at the allocator, against `read_buf_bytes`.
#![cfg(feature = "tls")]

mod common;

use common::{
    Running,
    tls::{Authority, Encrypted, ask, connect, start},
    until,
};
use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    io::{Read, Write},
    net::TcpStream,
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};
use stillpoint_server::config::ClientCertificates;

/// Counts what the server's threads have allocated.
struct Counting;

static HELD: AtomicI64 = AtomicI64::new(0);

thread_local! {
    /// Whether this thread is a client, whose memory is not counted.
    static CLIENT: Cell<bool> = const { Cell::new(false) };
}

fn count(bytes: usize, sign: i64) {
    if !CLIENT.get() {
        HELD.fetch_add(sign * bytes as i64, Ordering::Relaxed);
    }
}

// SAFETY: each call goes to the system's allocator as it is; the counter is beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(layout.size(), -1);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(layout.size(), -1);
        count(size, 1);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn stat(running: &Running, name: &str) -> i64 {
    running.admin().stat("", name).parse().unwrap()
}

/// How much is held when that has not changed for a while, with what is charged.
fn held(running: &Running) -> (i64, i64) {
    let mut last = (HELD.load(Ordering::Relaxed), 0);
    for _ in 0..200 {
        // Many in a row: the answer to one may be what has changed.
        let charged = stat(running, "read_buf_bytes");
        std::thread::sleep(Duration::from_millis(20));
        let now = (HELD.load(Ordering::Relaxed), charged);
        if now == last {
            break;
        }
        last = now;
    }
    last
}

const CLIENTS: i64 = 40;

/// Has `CLIENTS` of them come, and compares.
fn compare<T>(running: &Running, what: &str, come: impl Fn() -> T) {
    // What is made once, and by the first.
    drop(come());
    until(|| stat(running, "curr_connections") == 1);
    let (held_before, charged_before) = held(running);
    let clients: Vec<T> = (0..CLIENTS).map(|_| come()).collect();
    let (held_now, charged_now) = held(running);
    let each = (held_now - held_before) / CLIENTS;
    let charged = (charged_now - charged_before) / CLIENTS;
    println!("{what}: {each} bytes each, {charged} charged");
    assert!(
        each <= charged,
        "{what}: {each} bytes each, {charged} charged"
    );
    drop(clients);
    until(|| stat(running, "curr_connections") == 1);
}

/// The beginning of a handshake: a message of that length in records of 4 KiB.
fn long_hello(length: u32) -> Vec<u8> {
    let [_, high, middle, low] = length.to_be_bytes();
    let mut message = vec![1, high, middle, low];
    message.resize(4 + length as usize, 0);
    let mut records = Vec::new();
    for piece in message.chunks(4096) {
        records.extend_from_slice(&[22, 3, 1]);
        records.extend_from_slice(&u16::try_from(piece.len()).unwrap().to_be_bytes());
        records.extend_from_slice(piece);
    }
    records
}

#[test]
fn what_a_client_holds_is_charged() {
    CLIENT.set(true);
    let authority = Authority::new();
    CLIENT.set(false);
    let (plain, shows) = (authority.client(false), authority.client(true));
    for asks in [false, true] {
        let (running, address) = start(&authority, |settings| {
            settings.max_connections = 1000;
            if asks {
                settings.tls.as_mut().unwrap().clients = ClientCertificates::Required;
            }
        });
        CLIENT.set(true);
        let new = || -> Encrypted {
            let config = if asks { &shows } else { &plain };
            let mut client = connect(address, config.clone());
            ask(&mut client, b"mn\r\n", b"MN\r\n");
            client
        };
        compare(&running, "idle", new);
        compare(&running, "silent", || TcpStream::connect(address).unwrap());
        // As much of a handshake as is taken.
        let hello = long_hello(65_000);
        let most = if asks { 60_000 } else { 16_000 };
        compare(&running, "in its handshake", || {
            let mut client = TcpStream::connect(address).unwrap();
            client.write_all(&hello[..most]).unwrap();
            client
        });
        // A record of which the last byte does not come.
        compare(&running, "in a record", || {
            let mut client = new();
            let mut record = Vec::new();
            client.conn.writer().write_all(&[b'x'; 16_000]).unwrap();
            client.conn.write_tls(&mut record).unwrap();
            client.sock.write_all(&record[..record.len() - 1]).unwrap();
            client
        });
        // Answers that are not read, and requests behind them.
        let mut client = new();
        let set = [&b"set k 0 0 4000\r\n"[..], &[b'x'; 4000], b"\r\n"].concat();
        ask(&mut client, &set, b"STORED\r\n");
        drop(client);
        compare(&running, "that does not read", || {
            let mut client = new();
            client.sock.set_nonblocking(true).unwrap();
            for _ in 0..3000 {
                if client.write_all(&b"get k\r\n".repeat(1000)).is_err() {
                    break;
                }
            }
            client
        });
        CLIENT.set(false);
        drop(running);
    }
    CLIENT.set(true);
    drop((authority, plain, shows));
}

/// Also with nothing in it, it ends.
#[test]
fn a_handshake_is_not_endless() {
    CLIENT.set(true);
    let authority = Authority::new();
    // Not for its time either.
    let (running, address) = start(&authority, |settings| settings.send_timeout = 3600);
    let mut client = TcpStream::connect(address).unwrap();
    client
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    // It may be closed while this is sent.
    let _ = client.write_all(&long_hello(65_000)[..40_000]);
    let ended = client.read(&mut [0; 100]);
    let timed_out = |error: &std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
    assert!(!ended.as_ref().is_err_and(timed_out), "{ended:?}");
    until(|| stat(&running, "ssl_handshake_errors") == 1);
}
