//! An authority, the certificates that it issues, and a client of rustls.

use super::{Running, new_path, write_private};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    time::Duration,
};
use stillpoint_server::config::{Listener, Settings, Tls};

/// An authority, whose certificates are in files of its own.
pub struct Authority {
    certificate: rcgen::Certificate,
    issuer: Issuer<'static, KeyPair>,
    pub files: Tls,
}

impl Authority {
    pub fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        let files = Tls {
            chain: new_path("chain.pem"),
            key: new_path("key.pem"),
            authority: Some(new_path("authority.pem")),
            ..Tls::default()
        };
        let authority = Self {
            certificate,
            issuer: Issuer::new(params, key),
            files,
        };
        write_private(
            authority.files.authority.as_ref().unwrap(),
            &authority.certificate.pem(),
        );
        authority.renew();
        authority
    }

    pub fn issue(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    /// Writes another certificate for the server.
    pub fn renew(&self) {
        let (chain, key) = self.issue("localhost");
        write_private(&self.files.chain, &chain);
        write_private(&self.files.key, &key);
    }

    /// A client that trusts it, with a certificate or without.
    pub fn client(&self, shows: bool) -> Arc<ClientConfig> {
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

pub fn start(authority: &Authority, change: impl FnOnce(&mut Settings)) -> (Running, SocketAddr) {
    let mut settings = Settings {
        listeners: vec![Listener::tcp("127.0.0.1:0".parse().unwrap())],
        tls: Some(authority.files.clone()),
        ..Settings::default()
    };
    change(&mut settings);
    let (running, addresses) = super::start_listening(settings);
    (running, addresses[0])
}

pub type Encrypted = StreamOwned<ClientConnection, TcpStream>;

pub fn connect(address: SocketAddr, config: Arc<ClientConfig>) -> Encrypted {
    let stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    StreamOwned::new(ClientConnection::new(config, name).unwrap(), stream)
}

#[track_caller]
pub fn ask(client: &mut Encrypted, command: &[u8], expected: &[u8]) {
    client.write_all(command).unwrap();
    let mut got = vec![0; expected.len()];
    client.read_exact(&mut got).unwrap();
    assert!(
        got == expected,
        "{:?}",
        String::from_utf8_lossy(&got[..got.len().min(100)])
    );
}
