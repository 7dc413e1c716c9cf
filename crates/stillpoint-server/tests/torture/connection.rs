//! A client's bytes.

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

/// A connection, with what has come and was not looked at.
pub struct Connection {
    stream: UnixStream,
    bytes: Vec<u8>,
    at: usize,
}

impl Connection {
    pub fn open(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        // Far longer than anything takes: a client that waits for what does not come ends.
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        stream.set_write_timeout(Some(Duration::from_secs(60)))?;
        Ok(Self {
            stream,
            bytes: Vec::new(),
            at: 0,
        })
    }

    /// Sends, and takes in meanwhile what comes, as neither side waits for the other for ever.
    pub fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        // What fits into the socket whatever the other side does.
        const PIECE: usize = 32 << 10;
        while !bytes.is_empty() {
            let piece = &bytes[..bytes.len().min(PIECE)];
            self.stream.set_nonblocking(true)?;
            let sent = self.stream.write(piece);
            self.stream.set_nonblocking(false)?;
            match sent {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.take_in()?;
                    std::thread::sleep(Duration::from_micros(50));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn take_in(&mut self) -> io::Result<()> {
        self.stream.set_nonblocking(true)?;
        let read = self.fill();
        self.stream.set_nonblocking(false)?;
        match read {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        if self.at == self.bytes.len() {
            self.bytes.clear();
            self.at = 0;
        }
        let mut buffer = [0; 64 << 10];
        match self.stream.read(&mut buffer)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            bytes => {
                self.bytes.extend_from_slice(&buffer[..bytes]);
                Ok(())
            }
        }
    }

    /// The next line, without its end; it comes again.
    pub fn peek(&mut self) -> io::Result<String> {
        loop {
            let rest = &self.bytes[self.at..];
            if let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
                let line = String::from_utf8_lossy(&rest[..end]);
                return Ok(line.trim_end_matches('\r').to_owned());
            }
            self.fill()?;
        }
    }

    pub fn line(&mut self) -> io::Result<String> {
        let line = self.peek()?;
        let rest = &self.bytes[self.at..];
        self.at += rest.iter().position(|&byte| byte == b'\n').unwrap() + 1;
        Ok(line)
    }

    /// A value, and the end of its line.
    pub fn value(&mut self, len: usize) -> io::Result<Vec<u8>> {
        while self.bytes.len() - self.at < len + 2 {
            self.fill()?;
        }
        let value = self.bytes[self.at..][..len].to_vec();
        let end = &self.bytes[self.at + len..][..2];
        assert_eq!(end, b"\r\n", "a value of {len} bytes ends otherwise");
        self.at += len + 2;
        Ok(value)
    }

    /// Sends a line and returns the line that answers it.
    pub fn ask(&mut self, line: &str) -> io::Result<String> {
        self.send(format!("{line}\r\n").as_bytes())?;
        self.line()
    }
}
