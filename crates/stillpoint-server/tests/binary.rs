//! The binary protocol, over a socket.

mod common;
use common::{Client, listener, new_path, start};
use std::io::Read;
use stillpoint_server::config::{Settings, Tenant};

fn request(opcode: u8, extras: &[u8], key: &[u8], value: &[u8], cas: u64) -> Vec<u8> {
    let body = (extras.len() + key.len() + value.len()) as u32;
    let mut bytes = vec![0x80, opcode];
    bytes.extend((key.len() as u16).to_be_bytes());
    bytes.extend([extras.len() as u8, 0, 0, 0]);
    bytes.extend(body.to_be_bytes());
    bytes.extend(b"oPaq");
    bytes.extend(cas.to_be_bytes());
    bytes.extend_from_slice(extras);
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(value);
    bytes
}

/// Opcode, status, body, CAS value.
fn response(client: &mut Client) -> (u8, u16, Vec<u8>, u64) {
    let mut head = [0; 24];
    client.0.read_exact(&mut head).expect("a response comes");
    assert_eq!((head[0], &head[12..16]), (0x81, &b"oPaq"[..]));
    let mut body = vec![0; u32::from_be_bytes(head[8..12].try_into().unwrap()) as usize];
    client.0.read_exact(&mut body).unwrap();
    let status = u16::from_be_bytes([head[6], head[7]]);
    (
        head[1],
        status,
        body,
        u64::from_be_bytes(head[16..].try_into().unwrap()),
    )
}

fn set(opcode: u8, key: &[u8], value: &[u8], cas: u64) -> Vec<u8> {
    request(opcode, &[0, 0, 0, 9, 0, 0, 0, 0], key, value, cas)
}

#[test]
fn commands() {
    let server = start(Settings::default());
    let mut client = server.client();
    client.send(set(1, b"k", b"value", 0));
    let (_, status, body, cas) = response(&mut client);
    assert_eq!((status, body.len()), (0, 0));
    client.send(request(0x0c, &[], b"k", &[], 0));
    assert_eq!(
        response(&mut client),
        (0x0c, 0, b"\0\0\0\x09kvalue".to_vec(), cas)
    );
    for (bytes, status) in [
        (set(1, b"k", b"x", cas + 7), 2),
        (set(2, b"k", b"x", 0), 2),
        (set(2, b"k", b"x", cas + 7), 2),
        (set(2, b"none", b"x", 5), 1),
        (set(3, b"none", b"x", 0), 1),
        (set(1, b"none", b"x", 5), 1),
        (request(0x0e, &[], b"none", b"x", 0), 5),
        (request(0x0e, &[], b"k", b"+", 0), 0),
        (request(0x00, &[], b"none", &[], 0), 1),
        (request(0x04, &[], b"none", &[], 0), 1),
        (request(0x0a, &[], &[], &[], 0), 0),
        (request(0x1c, &[0, 0, 0, 0], b"k", &[], 0), 0),
        (request(0x55, &[], b"k", b"whatever", 0), 0x81),
        (request(0x20, &[], &[], &[], 0), 0x81),
    ] {
        client.send(&bytes);
        assert_eq!(response(&mut client).1, status, "{bytes:?}");
    }
    client.send(request(0x00, &[], b"k", &[], 0));
    let (_, _, body, cas) = response(&mut client);
    assert_eq!(body, b"\0\0\0\x09value+");
    // With a CAS value, an `add` stores in its item's place, as in memcached.
    client.send(set(2, b"k", b"value+", cas));
    assert_eq!(response(&mut client).1, 0);
    let delta = |delta: u64, initial: u64, exptime: u32| {
        [
            &delta.to_be_bytes()[..],
            &initial.to_be_bytes(),
            &exptime.to_be_bytes(),
        ]
        .concat()
    };
    client.send(request(5, &delta(1, 40, u32::MAX), b"n", &[], 0));
    assert_eq!(response(&mut client).1, 1);
    for (opcode, value) in [(5, 40u64), (5, 42), (6, 40)] {
        client.send(request(opcode, &delta(2, 40, 0), b"n", &[], 0));
        assert_eq!(response(&mut client).2, value.to_be_bytes());
    }
    client.send(request(5, &delta(2, 40, 0), b"k", &[], 0));
    assert_eq!(response(&mut client).1, 6);
    client.send(set(1, b"k", &vec![b'x'; (1 << 20) + 1], 0));
    assert_eq!(response(&mut client).1, 3);
    client.send(request(0x0b, &[], &[], &[], 0));
    assert_eq!(
        response(&mut client).2,
        stillpoint_server::VERSION.as_bytes()
    );
    client.send(request(0x10, &[], &[], &[], 0));
    let mut names = 0;
    while !response(&mut client).2.is_empty() {
        names += 1;
    }
    assert!(names > 40);
    client.send(request(0x07, &[], &[], &[], 0));
    response(&mut client);
    client.ends();
}

/// Most of it is read past the buffer, and no byte comes behind it.
#[test]
fn a_long_value_is_answered() {
    let server = start(Settings::default());
    let mut client = server.client();
    let value = vec![b'v'; 100 << 10];
    for part in [1 << 20, 24 + 8 + 1 + 10, 50_000] {
        let bytes = set(1, b"k", &value, 0);
        for piece in bytes.chunks(part) {
            client.send(piece);
        }
        assert_eq!(response(&mut client).1, 0);
        client.send(request(0, &[], b"k", &[], 0));
        let (_, status, body, _) = response(&mut client);
        assert_eq!((status, &body[4..]), (0, &value[..]));
    }
}

#[test]
fn quiet_commands_answer_only_what_is_remarkable() {
    let server = start(Settings::default());
    let mut client = server.client();
    let mut bytes = Vec::new();
    bytes.extend(set(0x11, b"a", b"1", 0));
    bytes.extend(request(0x09, &[], b"none", &[], 0));
    bytes.extend(request(0x0d, &[], b"a", &[], 0));
    bytes.extend(set(0x12, b"a", b"2", 0));
    bytes.extend(request(0x14, &[], b"a", &[], 0));
    bytes.extend(request(0x18, &[], &[], &[], 0));
    bytes.extend(request(0x0a, &[], &[], &[], 0));
    // In pieces, as a network brings it.
    for piece in bytes.chunks(5) {
        client.send(piece);
    }
    let seen: Vec<_> = (0..3)
        .map(|_| response(&mut client))
        .map(|(opcode, status, ..)| (opcode, status))
        .collect();
    assert_eq!(seen, [(0x0d, 0), (0x12, 2), (0x0a, 0)]);
}

#[test]
fn lengths_that_lie_end_the_connection() {
    let server = start(Settings::default());
    for (opcode, extras, key, body) in [
        (1, 8, 1, 0xffff_ffe8u32),
        (1, 8, 300, 400),
        (1, 8, 5, 3),
        (0, 0, 0, 0),
        (0, 4, 1, 5),
        (1, 255, 1, 256),
        (0x1c, 0, 1, 1),
    ] {
        let mut head = request(opcode, &[], &[], &[], 0);
        head[2..4].copy_from_slice(&u16::to_be_bytes(key));
        head[4] = extras;
        head[8..12].copy_from_slice(&body.to_be_bytes());
        let mut client = server.client();
        head.extend([b'x'; 600]);
        client.send(&head);
        // A value of 4 GiB is refused; the others end at once.
        if body < 1 << 20 {
            client.ends();
        } else {
            assert_eq!(response(&mut client).1, 3);
        }
    }
    server.client().ask("mn\r\n", "MN\r\n");
}

/// The client of one tenant's socket asks for what is another's, or all's.
#[test]
fn a_client_without_rights_is_told_of_its_own_tenant_alone() {
    let own = new_path("own");
    let tenant = |name: &str| Tenant {
        name: name.into(),
        ..Tenant::default()
    };
    let server = start(Settings {
        tenants: vec![tenant("a"), tenant("b")],
        listeners: vec![listener(own.clone(), "a", false)],
        ..Settings::default()
    });
    let (mut client, mut default) = (Client::connect(&own), server.client());
    default.set("k", "d");
    let stat = |client: &mut Client, group: &str| {
        client.send(request(0x10, &[], group.as_bytes(), &[], 0));
        let mut lines = Vec::new();
        loop {
            let (_, status, body, _) = response(client);
            if status != 0 {
                return Err(status);
            }
            if body.is_empty() {
                return Ok(lines);
            }
            lines.push(String::from_utf8(body).unwrap());
        }
    };
    for group in [
        "tenant b",
        "tenant -",
        "tenant",
        "detail on",
        "detail off",
        "none",
    ] {
        let told = stat(&mut client, group);
        match group {
            "tenant" => assert!(told.unwrap().contains(&"tenanta".to_owned())),
            _ => assert_eq!(told, Err(1), "{group}"),
        }
    }
    let has = |lines: &[String], name: &str| lines.iter().any(|line| line.starts_with(name));
    let general = stat(&mut client, "").unwrap();
    assert!(has(&general, "curr_items0") && !has(&general, "total_connections"));
    let conns = stat(&mut client, "conns").unwrap();
    let addresses = conns.iter().filter(|line| line.contains(":listen_addr"));
    assert_eq!(addresses.count(), 1, "{conns:?}");
    // A flush, loud and quiet, a reset and the log's level are its own, or nothing.
    client.send(request(8, &[], &[], &[], 0));
    assert_eq!(response(&mut client).1, 0);
    client.send(request(0x18, &[], &[], &[], 0));
    assert_eq!(stat(&mut client, "reset"), Ok(Vec::new()));
    client.send(request(0x1b, &[0, 0, 0, 2], &[], &[], 0));
    assert_eq!(response(&mut client).1, 0);
    default.ask("get k\r\n", "VALUE k 0 1\r\nd\r\nEND\r\n");
    assert_eq!(default.stat("tenant", "cmd_set"), "1");
    let mut admin = server.admin();
    assert_eq!(admin.lines("stats detail dump"), Vec::<String>::new());
    assert_eq!(admin.stat("tenant a", "curr_items"), "0");
}
