//! TLS: a client of rustls, certificates that are read again, clients that do not finish.
#![cfg(feature = "tls")]

mod common;

use common::{
    Client, Running, new_path,
    tls::{Authority, Encrypted, ask, connect, start},
    until, write_private,
};
use std::{
    fs,
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    time::Duration,
};
use stillpoint_server::{
    config::{ClientCertificates, Settings, Tenant},
    server::Server,
};

fn stat(running: &Running, name: &str) -> u64 {
    running.admin().stat("", name).parse().unwrap()
}

#[test]
fn what_is_stored_comes_back() {
    let authority = Authority::new();
    let (running, address) = start(&authority, |_| {});
    let mut client = connect(address, authority.client(false));
    ask(&mut client, b"set k 5 0 5\r\nvalue\r\n", b"STORED\r\n");
    ask(
        &mut client,
        b"get k\r\n",
        b"VALUE k 5 5\r\nvalue\r\nEND\r\n",
    );
    // Long ones, of many records, which are read past the buffer and pinned.
    let long = vec![b'x'; 900_000];
    let set = [&b"set long 0 0 900000\r\n"[..], &long, b"\r\n"].concat();
    ask(&mut client, &set, b"STORED\r\n");
    let get = [&b"VALUE long 0 900000\r\n"[..], &long, b"\r\nEND\r\n"].concat();
    ask(&mut client, b"get long\r\n", &get);
    // Many requests in a record, and requests over the ends of records.
    let many = b"get k\r\n".repeat(20_000);
    let answers = b"VALUE k 5 5\r\nvalue\r\nEND\r\n".repeat(20_000);
    let mut reader = connect(address, authority.client(false));
    let (mut sent, mut got) = (0, Vec::new());
    while got.len() < answers.len() {
        let end = (sent + 7_001).min(many.len());
        reader.write_all(&many[sent..end]).unwrap();
        let requests = (end / 7) * (answers.len() / 20_000);
        sent = end;
        while got.len() < requests {
            let mut buffer = [0; 8192];
            let bytes = reader.read(&mut buffer).unwrap();
            assert!(bytes > 0);
            got.extend_from_slice(&buffer[..bytes]);
        }
    }
    assert!(got == answers);
    // The same items, for who comes without.
    running
        .client()
        .ask("get k\r\n", "VALUE k 5 5\r\nvalue\r\nEND\r\n");
}

#[test]
fn a_new_certificate_is_for_those_that_come_then() {
    let authority = Authority::new();
    let (running, address) = start(&authority, |_| {});
    let shown = |client: &mut Encrypted| {
        ask(client, b"mn\r\n", b"MN\r\n");
        client.conn.peer_certificates().unwrap()[0].clone()
    };
    let mut early = connect(address, authority.client(false));
    let old = shown(&mut early);
    authority.renew();
    running
        .client()
        .say("refresh_certs", "CLIENT_ERROR only an admin may do that");
    assert_eq!(shown(&mut connect(address, authority.client(false))), old);
    running.admin().ask("refresh_certs\r\n", "OK\r\n");
    assert_ne!(shown(&mut connect(address, authority.client(false))), old);
    // A key that does not belong to it, and one that all may read, change nothing.
    let (_, other) = authority.issue("localhost");
    write_private(&authority.files.key, &other);
    running.admin().ask("refresh_certs\r\n", "SERVER_ERROR");
    fs::set_permissions(&authority.files.key, fs::Permissions::from_mode(0o604)).unwrap();
    running.admin().ask("refresh_certs\r\n", "SERVER_ERROR");
    ask(
        &mut connect(address, authority.client(false)),
        b"mn\r\n",
        b"MN\r\n",
    );
    ask(&mut early, b"mn\r\n", b"MN\r\n");
}

#[test]
fn clients_show_what_is_asked_for() {
    let authority = Authority::new();
    let (running, address) = start(&authority, |settings| {
        settings.tls.as_mut().unwrap().clients = ClientCertificates::Required;
    });
    ask(
        &mut connect(address, authority.client(true)),
        b"mn\r\n",
        b"MN\r\n",
    );
    let mut without = connect(address, authority.client(false));
    let ended = without
        .write_all(b"set k 0 0 1\r\nx\r\n")
        .and_then(|()| without.read(&mut [0]));
    assert!(ended.is_err() || matches!(ended, Ok(0)), "{ended:?}");
    running.client().ask("get k\r\n", "END\r\n");
}

#[test]
fn those_that_do_not_finish_a_handshake_are_dropped() {
    let authority = Authority::new();
    let (running, address) = start(&authority, |settings| settings.send_timeout = 1);
    // One says nothing, one begins, one speaks no TLS.
    let silent = TcpStream::connect(address).unwrap();
    let mut half = TcpStream::connect(address).unwrap();
    half.write_all(&[22, 3, 1, 2, 0, 1]).unwrap();
    let mut plain = TcpStream::connect(address).unwrap();
    plain.write_all(b"set k 0 0 1\r\nx\r\n").unwrap();
    for mut stream in [silent, half, plain] {
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        let ended = stream.read_to_end(&mut Vec::new());
        let timed_out = |error: &std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
        assert!(!ended.as_ref().is_err_and(timed_out), "{ended:?}");
    }
    until(|| stat(&running, "ssl_handshake_errors") == 3);
    running.client().ask("get k\r\n", "END\r\n");
}

/// What was asked before the end is answered, also where the socket does not take it at once.
#[test]
fn one_that_sends_no_more_still_gets_its_answers() {
    let authority = Authority::new();
    let (_running, address) = start(&authority, |_| {});
    let mut client = connect(address, authority.client(false));
    let set = [&b"set k 0 0 900000\r\n"[..], &[b'x'; 900_000], b"\r\n"].concat();
    ask(&mut client, &set, b"STORED\r\n");
    client.write_all(&b"get k\r\n".repeat(20)).unwrap();
    client.conn.send_close_notify();
    client.flush().unwrap();
    client.sock.shutdown(Shutdown::Write).unwrap();
    let mut got = Vec::new();
    client.read_to_end(&mut got).unwrap();
    let answer = [
        &b"VALUE k 0 900000\r\n"[..],
        &[b'x'; 900_000],
        b"\r\nEND\r\n",
    ]
    .concat();
    assert_eq!(got.len(), 20 * answer.len());
    assert!(got == answer.repeat(20));
}

/// `ssl_handshake_errors` is about all, so that a tenant that has neighbours is not told it.
#[test]
fn a_tenant_is_not_told_of_others_handshakes() {
    let authority = Authority::new();
    let (running, _) = start(&authority, |settings| {
        settings.tenants.push(Tenant {
            name: "other".into(),
            ..Tenant::default()
        });
    });
    let told = |mut client: Client| {
        let lines = client.lines("stats");
        lines.iter().any(|line| line.contains("handshake"))
    };
    assert!(told(running.admin()) && !told(running.client()));
}

#[test]
fn one_that_does_not_read_costs_a_bounded_amount() {
    let authority = Authority::new();
    let (running, address) = start(&authority, |settings| settings.send_timeout = 1);
    let mut client = connect(address, authority.client(false));
    let set = [&b"set k 0 0 500000\r\n"[..], &[b'x'; 500_000], b"\r\n"].concat();
    ask(&mut client, &set, b"STORED\r\n");
    // As many as are taken: the server reads nothing more while it cannot send.
    client.sock.set_nonblocking(true).unwrap();
    for _ in 0..10_000 {
        if client.write_all(b"get k\r\n").is_err() {
            break;
        }
    }
    let mut most = 0;
    let mut other = Client::connect(&running.path);
    until(|| {
        most = most.max(stat(&running, "read_buf_bytes"));
        other.ask("mn\r\n", "MN\r\n");
        stat(&running, "slow_kicks") == 1
    });
    assert!(most < 2 << 20, "{most}");
    assert_eq!(stat(&running, "pinned_bytes"), 0);
}

#[test]
fn what_is_wrong_with_the_files_is_said() {
    let wrong = |change: &dyn Fn(&mut Authority), says: &str| {
        let mut authority = Authority::new();
        change(&mut authority);
        let socket = new_path("none");
        let settings = Settings {
            listeners: vec![common::listener(socket.clone(), "", false)],
            tls: Some(authority.files.clone()),
            log: false,
            ..Settings::default()
        };
        let error = Server::start(settings).unwrap_err().to_string();
        assert!(
            error.starts_with("TLS: ") && error.contains(says),
            "{error}"
        );
        assert!(
            !socket.exists(),
            "a server that does not start leaves no socket"
        );
    };
    let mode = |file: &PathBuf, mode| {
        fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap();
    };
    wrong(
        &|a| write_private(&a.files.chain, "none\n"),
        "there is no certificate in it",
    );
    wrong(
        &|a| a.files.chain = "/nonexistent/chain".into(),
        "/nonexistent/chain: No such file",
    );
    wrong(&|a| a.files.chain = std::env::temp_dir(), "Is a directory");
    wrong(
        &|a| write_private(&a.files.chain, &"x".repeat((1 << 20) + 1)),
        "larger than 1 MiB",
    );
    wrong(
        &|a| write_private(&a.files.key, "none\n"),
        "there is no private key in it",
    );
    let locked =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMAA=\n-----END ENCRYPTED PRIVATE KEY-----\n";
    wrong(
        &|a| write_private(&a.files.key, locked),
        "behind a password",
    );
    wrong(
        &|a| write_private(&a.files.key, &a.issue("localhost").1),
        "the key is not that of",
    );
    for open in [0o604, 0o602, 0o601] {
        wrong(&|a| mode(&a.files.key, open), "chmod 0600");
    }
    let asks = |a: &mut Authority| a.files.clients = ClientCertificates::Optional;
    wrong(
        &|a| {
            asks(a);
            a.files.authority = None;
        },
        "ssl_ca_cert, or authority",
    );
    wrong(
        &|a| {
            asks(a);
            write_private(a.files.authority.as_ref().unwrap(), "none\n");
        },
        "there is no certificate in it",
    );
}
