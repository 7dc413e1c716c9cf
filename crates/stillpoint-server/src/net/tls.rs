//! TLS: a server's certificate, and the encrypted side of a connection.
//!
//! rustls implements the protocol, without sockets. What it keeps for a connection is bounded:
//!
//! * encrypted bytes that the socket has not taken, by [`Tls::buffer`];
//! * input without a byte that can be executed, by [`SILENT`], or [`HANDSHAKE`] in a handshake with a
//!   client's certificate.
//!
//! The connection's deadline bounds the time of a handshake.

use super::socket::{receive, send_slices};
use crate::{
    config::{ClientCertificates, Tls},
    output::Output,
};
use rustix::{fd::OwnedFd, io::Errno};
use rustls::{
    RootCertStore, ServerConfig, ServerConnection,
    crypto::ring,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject},
    },
    server::{NoServerSessionStorage, WebPkiClientVerifier},
    version::{TLS12, TLS13},
};
use std::{
    fs::File,
    io::{self, IoSlice, Read, Write},
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::Arc,
};

/// Number of reads that gave nothing to execute, after which other connections have their turn.
const READS: u32 = 16;
/// Most bytes that may arrive without data: a record has at most 18 KiB, and there are some that change
/// keys. rustls alone would join records up to 64 KiB, and accept any number of empty ones.
const SILENT: usize = 20 << 10;
/// The same for a handshake in which a client shows its certificate.
const HANDSHAKE: usize = 64 << 10;
/// Bytes that a connection takes for its keys and states, beside its buffers.
const KEYS: usize = 8 << 10;
/// Bytes that a connection takes after its handshake, whatever its client does. Input is in a vector,
/// which doubles.
pub(crate) const IDLE: usize = KEYS + SILENT.next_power_of_two();
const SLICES: usize = 16;
/// Most bytes of a file with certificates or a key.
const FILE_MAX: u64 = 1 << 20;

/// A certificate with its key, and what clients have to show.
#[derive(Clone)]
pub(crate) struct Certificate {
    config: Arc<ServerConfig>,
    /// Bytes that a client may send before its handshake is finished.
    handshake: usize,
    /// Most encrypted bytes that the socket has not taken.
    unsent: usize,
}

/// Reads a file with certificates, or with a key, which is `secret`.
fn read(path: &Path, secret: bool) -> Result<Vec<u8>, String> {
    let mut file = File::open(path).map_err(|error| named(path, &error))?;
    let metadata = file.metadata().map_err(|error| named(path, &error))?;
    // Those of the open file, as another one may have its name by now.
    let mode = metadata.permissions().mode();
    if secret && mode & 0o007 != 0 {
        return Err(named(path, &"others may read or change it; chmod 0600"));
    }
    let mut bytes = Vec::new();
    (&mut file)
        .take(FILE_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| named(path, &error))?;
    if bytes.len() as u64 > FILE_MAX {
        return Err(named(path, &"it is larger than 1 MiB"));
    }
    Ok(bytes)
}

fn named(path: &Path, error: &dyn std::fmt::Display) -> String {
    format!("TLS: {}: {error}", path.display())
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Vec<_> = CertificateDer::pem_slice_iter(&read(path, false)?)
        .collect::<Result<_, _>>()
        .map_err(|error| named(path, &error))?;
    if all.is_empty() {
        return Err(named(path, &"there is no certificate in it"));
    }
    Ok(all)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_slice(&read(path, true)?).map_err(|error| match error {
        pem::Error::NoItemsFound => named(
            path,
            &"there is no private key in it, or only one behind a password",
        ),
        error => named(path, &error),
    })
}

impl Certificate {
    /// Reads the files.
    pub(crate) fn load(files: &Tls) -> Result<Self, String> {
        let provider = Arc::new(ring::default_provider());
        let versions: &[_] = match files.only_1_3() {
            true => &[&TLS13],
            false => &[&TLS12, &TLS13],
        };
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)
            .map_err(|error| format!("TLS: {error}"))?;
        let builder = match (&files.authority, files.clients) {
            (_, ClientCertificates::None) => builder.with_no_client_auth(),
            (None, _) => return Err("TLS: certificates of clients need a file of authorities that vouch for them: ssl_ca_cert, or authority in the file".into()),
            (Some(path), wanted) => {
                let mut roots = RootCertStore::empty();
                for root in certificates(path)? {
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
        let (chain, key) = (files.chain.as_path(), files.key.as_path());
        let mut config = builder
            .with_single_cert(certificates(chain)?, private_key(key)?)
            .map_err(|error| match error {
                rustls::Error::InconsistentKeys(_) => {
                    format!(
                        "TLS: {}: the key is not that of {}",
                        key.display(),
                        chain.display()
                    )
                }
                error => named(chain, &error),
            })?;
        if !files.sessions {
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        Ok(Self {
            config: Arc::new(config),
            unsent: files.buffer,
            handshake: match files.clients {
                ClientCertificates::None => SILENT,
                _ => HANDSHAKE,
            },
        })
    }
}

/// The encrypted side of a connection.
pub(crate) struct Stream {
    connection: ServerConnection,
    /// Number of decrypted bytes that have not been read.
    plaintext: usize,
    /// Bytes that may still arrive before data is decrypted or the handshake finished.
    room: usize,
    /// Bytes that may still arrive until the handshake is finished; 0 after that.
    handshake: usize,
    /// [`Certificate::unsent`].
    unsent: usize,
    /// The error that ended it.
    failure: Option<rustls::Error>,
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
    /// Creates the stream of a client that has just come. Returns `None` without memory or random bytes.
    pub(crate) fn new(certificate: &Certificate) -> Option<Self> {
        let mut connection = ServerConnection::new(Arc::clone(&certificate.config)).ok()?;
        connection.set_buffer_limit(Some(certificate.unsent));
        Some(Self {
            connection,
            plaintext: 0,
            room: certificate.handshake,
            handshake: certificate.handshake,
            unsent: certificate.unsent,
            failure: None,
        })
    }

    /// Reads and decrypts what the client has sent. Returns 0 if it has gone.
    ///
    /// # Errors
    ///
    /// [`Errno::AGAIN`] if the socket has no more; [`Errno::INTR`] if it may have, and others have their
    /// turn; [`Errno::PROTO`] if the input is wrong. Then an alert has been sent, if the socket took it.
    pub(crate) fn read(&mut self, fd: &OwnedFd, buffer: &mut [u8]) -> Result<usize, Errno> {
        for _ in 0..READS {
            if self.plaintext > 0 {
                let bytes = self.connection.reader().read(buffer);
                let bytes = bytes.map_err(|error| errno(&error))?;
                self.plaintext -= bytes;
                return Ok(bytes);
            }
            let read = self.connection.read_tls(&mut Socket(fd));
            let arrived = read.map_err(|error| errno(&error))?;
            let state = self.connection.process_new_packets();
            // TLS's own messages, mostly in a handshake.
            let flushed = self.flush(fd);
            let state = state.map_err(|error| {
                self.failure = Some(error);
                Errno::PROTO
            })?;
            flushed?;
            self.plaintext = state.plaintext_bytes_to_read();
            self.room = self.room.saturating_sub(arrived);
            if self.handshake > 0 && !self.connection.is_handshaking() {
                self.handshake = 0;
                self.room = SILENT;
            }
            if self.plaintext > 0 {
                self.room = SILENT;
                continue;
            }
            if arrived == 0 || state.peer_has_closed() {
                return Ok(0);
            }
            if self.room == 0 {
                let long = "more has come than a record has, and nothing in it";
                self.failure = Some(rustls::Error::General(long.into()));
                return Err(Errno::PROTO);
            }
        }
        // The wait does not report again what is left in the socket.
        Err(Errno::INTR)
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

    /// Encrypts and sends up to `most` bytes of `output`, as far as the socket takes them and
    /// [`Tls::buffer`] allows. Returns how many were encrypted.
    pub(crate) fn send(
        &mut self,
        fd: &OwnedFd,
        output: &mut Output,
        most: usize,
    ) -> Result<usize, Errno> {
        let mut sent = 0;
        loop {
            self.flush(fd)?;
            if self.connection.wants_write() || output.is_empty() || sent == most {
                return Ok(sent);
            }
            let mut slices = [IoSlice::new(&[]); SLICES];
            let used = output.slices(&mut slices, most - sent);
            let taken = self.connection.writer().write_vectored(&slices[..used]);
            let taken = taken.map_err(|error| errno(&error))?;
            if taken == 0 {
                return Ok(sent);
            }
            output.advance(taken);
            sent += taken;
        }
    }

    /// Returns whether there are encrypted bytes that the socket has not taken.
    pub(crate) fn is_sending(&self) -> bool {
        self.connection.wants_write()
    }

    /// Returns whether there are decrypted bytes to read, for which no event comes.
    pub(crate) fn has_plaintext(&self) -> bool {
        self.plaintext > 0
    }

    /// Returns whether the client has still to finish its handshake.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Returns the error that ended it.
    pub(crate) fn failure(&self) -> Option<impl std::fmt::Display> {
        self.failure.as_ref()
    }

    /// Returns the most bytes of memory that it may take.
    pub(crate) fn footprint(&self) -> usize {
        let unsent = if self.is_sending() { self.unsent } else { 0 };
        self.idle_footprint() + self.plaintext + unsent
    }

    /// Returns the part of [`Stream::footprint`] that it takes whatever its client does.
    pub(crate) fn idle_footprint(&self) -> usize {
        // Input is in a vector, which doubles.
        KEYS + self.handshake.max(SILENT).next_power_of_two()
    }

    /// Tells the client that nothing more comes, if the socket takes that.
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{fuzz, net::connection::Connection, places::Place, session::Session};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair, sockopt};
    use rustls::{ClientConfig, ClientConnection, StreamOwned, pki_types::ServerName};
    use std::os::unix::net::UnixStream;

    pub(crate) type Client = StreamOwned<ClientConnection, UnixStream>;

    /// A client that has not begun its handshake, and the server's end of the socket.
    pub(crate) fn pair() -> (Client, OwnedFd, Box<Stream>) {
        pair_with(0)
    }

    /// The same for a client that shows `shown` certificates.
    fn pair_with(shown: usize) -> (Client, OwnedFd, Box<Stream>) {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let provider = Arc::new(ring::default_provider());
        let private = || PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.der().clone()).unwrap();
        let roots = Arc::new(roots);
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = match shown {
            0 => builder.with_no_client_auth(),
            _ => {
                let roots = Arc::clone(&roots);
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider));
                builder.with_client_cert_verifier(verifier.build().unwrap())
            }
        };
        let config = builder
            .with_single_cert(vec![certificate.der().clone()], private())
            .unwrap();
        let certificate_of_server = Certificate {
            config: Arc::new(config),
            handshake: if shown == 0 { SILENT } else { HANDSHAKE },
            unsent: 16 << 10,
        };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match shown {
            0 => builder.with_no_client_auth(),
            shown => builder
                .with_client_auth_cert(vec![certificate.der().clone(); shown], private())
                .unwrap(),
        };
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::empty(),
            None,
        )
        .unwrap();
        let client = StreamOwned::new(connection, UnixStream::from(theirs));
        let stream = Stream::new(&certificate_of_server).unwrap();
        (client, ours, Box::new(stream))
    }

    /// Finishes the handshake. (Each side has said all that it can before the other reads.)
    pub(crate) fn shake_hands(client: &mut Client, fd: &OwnedFd, stream: &mut Stream) {
        while client.conn.is_handshaking() || stream.is_handshaking() {
            while client.conn.wants_write() {
                client.conn.write_tls(&mut client.sock).unwrap();
            }
            assert_eq!(stream.read(fd, &mut [0; 100]), Err(Errno::AGAIN));
            if client.conn.is_handshaking() {
                client.conn.read_tls(&mut client.sock).unwrap();
                client.conn.process_new_packets().unwrap();
            }
        }
    }

    /// One record with `bytes`.
    fn record(client: &mut Client, bytes: &[u8]) -> Vec<u8> {
        let mut record = Vec::new();
        client.conn.writer().write_all(bytes).unwrap();
        client.conn.write_tls(&mut record).unwrap();
        record
    }

    #[test]
    fn what_comes_with_nothing_in_it_is_bounded() {
        let (mut client, fd, mut stream) = pair();
        shake_hands(&mut client, &fd, &mut stream);
        let mut buffer = [0; 16 << 10];
        // However many have come, if there was something in them.
        for _ in 0..20 {
            let whole = record(&mut client, &[b'x'; 16_000]);
            client.sock.write_all(&whole).unwrap();
            assert_eq!(stream.read(&fd, &mut buffer), Ok(16_000));
        }
        assert_eq!(stream.room, SILENT);
        // Of a connection that could hold no record.
        stream.room = 4000;
        let part = record(&mut client, &[b'x'; 16_000]);
        client.sock.write_all(&part[..3000]).unwrap();
        assert_eq!(stream.read(&fd, &mut buffer), Err(Errno::AGAIN));
        assert!(stream.failure().is_none());
        client.sock.write_all(&part[3000..5000]).unwrap();
        assert_eq!(stream.read(&fd, &mut buffer), Err(Errno::PROTO));
        assert!(
            stream
                .failure()
                .unwrap()
                .to_string()
                .contains("nothing in it")
        );
    }

    /// The thread is told once of what has come: here a long chain of certificates and a value, in
    /// many reads that give nothing.
    #[test]
    fn a_socket_that_has_more_is_not_said_to_be_empty() {
        // Up to more than may come in a handshake.
        for shown in (100..).step_by(3) {
            let (mut client, fd, mut stream) = pair_with(shown);
            client.conn.set_buffer_limit(None);
            sockopt::set_socket_send_buffer_size(&client.sock, 1 << 20).unwrap();
            client.conn.write_tls(&mut client.sock).unwrap();
            assert_eq!(stream.read(&fd, &mut [0; 100]), Err(Errno::AGAIN));
            client.conn.read_tls(&mut client.sock).unwrap();
            client.conn.process_new_packets().unwrap();
            client.conn.writer().write_all(&[b'x'; 16_000]).unwrap();
            // All of it is there before the server reads.
            client.sock.set_nonblocking(true).unwrap();
            while client.conn.wants_write() {
                client.conn.write_tls(&mut client.sock).unwrap();
            }
            let error = loop {
                match stream.read(&fd, &mut [0; 16 << 10]) {
                    Ok(0) => panic!("the client has not gone"),
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => break error,
                }
            };
            if error == Errno::PROTO {
                assert!(shown > 110, "{shown}");
                break;
            }
            assert_eq!(error, Errno::AGAIN);
            assert_eq!(receive(&fd, &mut [0]), Err(Errno::AGAIN), "{shown}");
        }
    }

    /// Detects a client that keeps only what is encrypted for it, and is never ended for that.
    #[test]
    fn what_a_client_does_not_read_is_kept_for_it() {
        let shared = fuzz::new_shared(|_| {});
        let session: Session = fuzz::new_session(&shared.directory(), false, true);
        let (mut client, fd, mut stream) = pair();
        shake_hands(&mut client, &fd, &mut stream);
        let place = Place::take(&shared.totals.connections, |_| true).unwrap();
        let mut connection = Connection::new(fd, Some(stream), session, place, 0);
        connection.set_deadline(0, 30);
        connection.charge(&shared, 7);
        assert_eq!(connection.kept.due, None);
        connection.turn_left = usize::MAX;
        let mut out = Output::default();
        while !connection.is_stuck() {
            out.bytes.extend_from_slice(&[b'x'; 10_000]);
            connection.send(&mut out).unwrap();
        }
        connection.charge(&shared, 9);
        assert!(connection.pending.is_empty());
        assert!(connection.kept.due.is_some());
    }

    /// A client finishes its handshake and announces a value at once: the value has the same time as over
    /// a plain connection.
    #[test]
    fn the_time_of_a_handshake_is_not_that_of_a_value() {
        let shared = fuzz::new_shared(|_| {});
        let directory = shared.directory();
        let session: Session = fuzz::new_session(&directory, false, true);
        let (mut client, fd, stream) = pair();
        let place = Place::take(&shared.totals.connections, |_| true).unwrap();
        let mut connection = Connection::new(fd, Some(stream), session, place, 0);
        connection.set_deadline(100, 30);
        assert_eq!(connection.deadline, 130);
        let stream = connection.tls.as_mut().unwrap();
        shake_hands(&mut client, &connection.fd, stream);
        let (mut out, now) = (Output::default(), shared.store.now());
        let request = b"set k 0 0 90000\r\nx";
        fuzz::feed(&mut connection.session, &shared, request, &mut out, now);
        connection.set_deadline(125, 30);
        assert_eq!(connection.deadline, 155);
        // A little more does not extend it.
        connection.set_deadline(126, 30);
        assert_eq!(connection.deadline, 155);
    }
}
