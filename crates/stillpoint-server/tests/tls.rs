//! TLS: a client of rustls, certificates that are read again, clients that do not finish.
#![cfg(feature = "tls")]

mod common;

use common::{Client, Running, socket_path, until};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};
use stillpoint_server::{
    config::{Address, ClientCertificates, Listener, Settings, Tls},
    server::Server,
};

/// An authority, whose certificates are in files of its own.
struct Authority {
    certificate: rcgen::Certificate,
    issuer: Issuer<'static, KeyPair>,
    files: Tls,
}

fn write(path: &PathBuf, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        let authority = Self {
            certificate,
            issuer: Issuer::new(params, key),
            files: Tls {
                chain: socket_path("chain.pem"),
                key: socket_path("key.pem"),
                authority: Some(socket_path("authority.pem")),
                ..Tls::default()
            },
        };
        write(
            authority.files.authority.as_ref().unwrap(),
            &authority.certificate.pem(),
        );
        authority.renew();
        authority
    }

    fn issue(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    /// Writes another certificate for the server.
    fn renew(&self) {
        let (chain, key) = self.issue("localhost");
        write(&self.files.chain, &chain);
        write(&self.files.key, &key);
    }

    /// A client that trusts it, with a certificate or without.
    fn client(&self, shows: bool) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.der().clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        Arc::new(match shows {
            false => builder.with_no_client_auth(),
            true => {
                let (chain, key) = self.issue("client");
                let chain = CertificateDer::from_pem_slice(chain.as_bytes()).unwrap();
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                builder.with_client_auth_cert(vec![chain], key).unwrap()
            }
        })
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        for file in self.files.files() {
            let _ = fs::remove_file(file);
        }
    }
}

fn start(authority: &Authority, change: impl FnOnce(&mut Settings)) -> (Running, SocketAddr) {
    let mut settings = Settings {
        listeners: vec![Listener {
            address: Address::Tcp("127.0.0.1:0".parse().unwrap()),
            mode: 0,
            tenant: String::new(),
            admin: false,
            tls: true,
        }],
        tls: Some(authority.files.clone()),
        ..Settings::default()
    };
    change(&mut settings);
    let (running, addresses) = common::start_listening(settings);
    (running, addresses[0])
}

type Encrypted = StreamOwned<ClientConnection, TcpStream>;

fn connect(address: SocketAddr, config: Arc<ClientConfig>) -> Encrypted {
    let stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    StreamOwned::new(ClientConnection::new(config, name).unwrap(), stream)
}

#[track_caller]
fn ask(client: &mut Encrypted, command: &[u8], expected: &[u8]) {
    client.write_all(command).unwrap();
    let mut got = vec![0; expected.len()];
    client.read_exact(&mut got).unwrap();
    assert!(
        got == expected,
        "{:?}",
        String::from_utf8_lossy(&got[..got.len().min(100)])
    );
}

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
    running.client().ask(
        "refresh_certs\r\n",
        "CLIENT_ERROR only an admin may do that\r\n",
    );
    assert_eq!(shown(&mut connect(address, authority.client(false))), old);
    running.admin().ask("refresh_certs\r\n", "OK\r\n");
    assert_ne!(shown(&mut connect(address, authority.client(false))), old);
    // A key that does not belong to it, and one that all may read, change nothing.
    let (_, other) = authority.issue("localhost");
    write(&authority.files.key, &other);
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
fn a_certificate_that_is_none_is_refused_at_the_start() {
    let authority = Authority::new();
    write(&authority.files.chain, "none\n");
    let settings = Settings {
        listeners: vec![common::listener(socket_path("none"), "", false)],
        tls: Some(authority.files.clone()),
        log: false,
        ..Settings::default()
    };
    let error = Server::start(settings).unwrap_err().to_string();
    assert!(error.contains("there is no certificate in it"), "{error}");
}
