//! TLS: a server's certificate, and the encrypted side of a connection.
//!
//! rustls does the protocol, over bytes. What it keeps for a connection has bounds: [`UNSENT`] of
//! what the socket does not take, a record of what has arrived, a handshake of 64 KiB. The time of a
//! handshake is bounded by the connection's deadline.

use super::connection::{receive, send_slices};
use crate::{
    config::{ClientCertificates, Tls},
    output::Output,
};
use rustix::{fd::OwnedFd, io::Errno};
use rustls::{
    RootCertStore, ServerConfig, ServerConnection,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
    version::{TLS12, TLS13},
};
use std::{
    fs,
    io::{self, IoSlice, Read, Write},
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::Arc,
};

/// How much of what is encrypted may be there that the socket has not taken.
const UNSENT: usize = 64 << 10;
/// After so many reads of the socket that gave nothing to be executed, other connections have their
/// turn.
const READS: u32 = 16;
/// What a connection takes of memory beside what it has not sent: its keys, and a record that has
/// not arrived whole.
const FOOTPRINT: usize = 24 << 10;
const SLICES: usize = 16;

/// A certificate with its key, and what clients have to show.
#[derive(Clone)]
pub(crate) struct Certificate(Arc<ServerConfig>);

impl Certificate {
    /// Reads the files.
    pub(crate) fn load(files: &Tls) -> Result<Self, String> {
        let named = |path: &Path, error: &dyn std::fmt::Display| {
            format!("TLS: {}: {error}", path.display())
        };
        let read = |path: &Path| -> Result<Vec<CertificateDer<'static>>, String> {
            let all: Vec<_> = CertificateDer::pem_file_iter(path)
                .and_then(Iterator::collect)
                .map_err(|error| named(path, &error))?;
            if all.is_empty() {
                return Err(named(path, &"there is no certificate in it"));
            }
            Ok(all)
        };
        let (chain, key) = (files.chain.as_path(), files.key.as_path());
        let mode = fs::metadata(key)
            .map_err(|error| named(key, &error))?
            .permissions()
            .mode();
        if mode & 0o007 != 0 {
            return Err(named(key, &"others may read or change it; chmod 0600"));
        }
        let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| named(key, &error))?;
        let provider = Arc::new(ring::default_provider());
        let versions: &[_] = match files.only_1_3 {
            true => &[&TLS13],
            false => &[&TLS12, &TLS13],
        };
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)
            .map_err(|error| format!("TLS: {error}"))?;
        let builder = match (&files.authority, files.clients) {
            (_, ClientCertificates::None) => builder.with_no_client_auth(),
            (None, _) => return Err("TLS: certificates of clients need a file of authorities that vouch for them: ssl_ca_cert, or ca".into()),
            (Some(path), wanted) => {
                let mut roots = RootCertStore::empty();
                for root in read(path)? {
                    roots.add(root).map_err(|error| named(path, &error))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let verifier = match wanted {
                    ClientCertificates::Optional => verifier.allow_unauthenticated(),
                    _ => verifier,
                };
                builder.with_client_cert_verifier(verifier.build().map_err(|error| named(path, &error))?)
            }
        };
        let config = builder
            .with_single_cert(read(chain)?, secret)
            .map_err(|error| named(chain, &error))?;
        Ok(Self(Arc::new(config)))
    }
}

/// The encrypted side of a connection.
pub(crate) struct Stream {
    connection: ServerConnection,
    /// How much has been decrypted and not been read.
    plaintext: usize,
}

/// Bytes to and from a socket that does not block.
struct Socket<'a>(&'a OwnedFd);

impl Read for Socket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(receive(self.0, buffer)?)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(send_slices(self.0, slices)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

impl Stream {
    /// For a client that has just come. `None` without memory, or what else may be missing.
    pub(crate) fn new(certificate: &Certificate) -> Option<Self> {
        let mut connection = ServerConnection::new(Arc::clone(&certificate.0)).ok()?;
        connection.set_buffer_limit(Some(UNSENT));
        Some(Self {
            connection,
            plaintext: 0,
        })
    }

    /// Reads what the client has said, decrypted; 0: it has gone. [`Errno::PROTO`]: what came is no
    /// TLS that is spoken here, and the client has been told so if its socket took that.
    pub(crate) fn read(&mut self, fd: &OwnedFd, buffer: &mut [u8]) -> Result<usize, Errno> {
        for _ in 0..READS {
            if self.plaintext > 0 {
                let bytes = self.connection.reader().read(buffer);
                let bytes = bytes.map_err(|error| errno(&error))?;
                self.plaintext -= bytes;
                return Ok(bytes);
            }
            let read = self.connection.read_tls(&mut Socket(fd));
            let ended = read.map_err(|error| errno(&error))? == 0;
            let state = self.connection.process_new_packets();
            // What it answers by itself, in a handshake above all.
            let flushed = self.flush(fd);
            let state = state.map_err(|_| Errno::PROTO)?;
            flushed?;
            self.plaintext = state.plaintext_bytes_to_read();
            if self.plaintext == 0 && (ended || state.peer_has_closed()) {
                return Ok(0);
            }
        }
        // The next wait returns at once, if there is more.
        Err(Errno::AGAIN)
    }

    /// Sends what has been encrypted, as far as the socket takes it.
    fn flush(&mut self, fd: &OwnedFd) -> Result<(), Errno> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut Socket(fd)) {
                Ok(_) => {}
                Err(error) => match errno(&error) {
                    Errno::INTR => {}
                    Errno::AGAIN => return Ok(()),
                    other => return Err(other),
                },
            }
        }
        Ok(())
    }

    /// Encrypts and sends what `output` has, as far as the socket takes it and [`UNSENT`] allows.
    pub(crate) fn send(&mut self, fd: &OwnedFd, output: &mut Output) -> Result<usize, Errno> {
        let mut sent = 0;
        loop {
            self.flush(fd)?;
            if self.connection.wants_write() || output.is_empty() {
                return Ok(sent);
            }
            let mut slices = [IoSlice::new(&[]); SLICES];
            let used = output.slices(&mut slices);
            let taken = self.connection.writer().write_vectored(&slices[..used]);
            let taken = taken.map_err(|error| errno(&error))?;
            if taken == 0 {
                return Ok(sent);
            }
            output.advance(taken);
            sent += taken;
        }
    }

    /// Whether there is something that the socket has not taken.
    pub(crate) fn is_sending(&self) -> bool {
        self.connection.wants_write()
    }

    /// Whether there is something to read, of which the socket says nothing.
    pub(crate) fn has_plaintext(&self) -> bool {
        self.plaintext > 0
    }

    /// Whether the client has still to finish its handshake.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// What it takes of the process's memory, at most.
    pub(crate) fn footprint(&self) -> usize {
        match self.is_sending() {
            true => FOOTPRINT + UNSENT,
            false => FOOTPRINT,
        }
    }

    /// Says that nothing more comes, if the socket takes that.
    pub(crate) fn close(&mut self, fd: &OwnedFd) {
        self.connection.send_close_notify();
        let _ = self.flush(fd);
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Stream")
    }
}
