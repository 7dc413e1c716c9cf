//! A client of memcached's text protocol and of Redis's.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

use anyhow::{Context, Result, bail, ensure};

use crate::peers::servers::Kind;

/// How a server is spoken to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dialect {
    /// memcached's text protocol.
    Memcached,
    /// RESP.
    Redis,
}

impl Dialect {
    /// That of a server.
    pub fn of(kind: Kind) -> Self {
        match kind {
            Kind::Redis => Self::Redis,
            _ => Self::Memcached,
        }
    }

    /// Asks for a value.
    fn get(self, out: &mut Vec<u8>, key: &[u8]) {
        match self {
            Self::Memcached => {
                out.extend_from_slice(b"get ");
                out.extend_from_slice(key);
                out.extend_from_slice(b"\r\n");
            }
            Self::Redis => {
                out.extend_from_slice(b"*2\r\n");
                bulk(out, b"GET");
                bulk(out, key);
            }
        }
    }

    /// Stores a value.
    fn set(self, out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
        match self {
            Self::Memcached => {
                out.extend_from_slice(b"set ");
                out.extend_from_slice(key);
                let _ = write!(out, " 0 0 {}\r\n", value.len());
                out.extend_from_slice(value);
                out.extend_from_slice(b"\r\n");
            }
            Self::Redis => {
                out.extend_from_slice(b"*3\r\n");
                bulk(out, b"SET");
                bulk(out, key);
                bulk(out, value);
            }
        }
    }

    /// Reads one answer at the beginning of `input`; `None` if it has not come whole.
    fn answer(self, input: &[u8]) -> Result<Option<Answer>> {
        match self {
            Self::Memcached => memcached(input),
            Self::Redis => redis(input),
        }
    }
}

fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    let _ = write!(out, "${}\r\n", bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// An answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// How many bytes it takes.
    pub len: usize,
    /// How many values it has.
    pub values: usize,
}

/// The line at `at`, without its end, and where the next one begins.
fn line(input: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let rest = input.get(at..)?;
    let end = rest.iter().position(|&byte| byte == b'\n')?;
    let line = &rest[..end];
    Some((line.strip_suffix(b"\r").unwrap_or(line), at + end + 1))
}

fn number(digits: &[u8]) -> Result<i64> {
    let text = std::str::from_utf8(digits)?;
    text.parse()
        .with_context(|| format!("{text:?} in an answer is no number"))
}

fn memcached(input: &[u8]) -> Result<Option<Answer>> {
    let (mut at, mut values) = (0, 0);
    while let Some((line, next)) = line(input, at) {
        if line.starts_with(b"VALUE ") {
            let length = line.split(|&byte| byte == b' ').nth(3).unwrap_or_default();
            at = next + usize::try_from(number(length)?)? + 2;
            values += 1;
            continue;
        }
        // A server without memory answers SERVER_ERROR, which is an answer.
        ensure!(
            !line.starts_with(b"ERROR") && !line.starts_with(b"CLIENT_ERROR"),
            "the server says {:?}",
            String::from_utf8_lossy(line)
        );
        return Ok(Some(Answer { len: next, values }));
    }
    Ok(None)
}

fn redis(input: &[u8]) -> Result<Option<Answer>> {
    let Some((head, mut len)) = line(input, 0) else {
        return Ok(None);
    };
    let mut values = 0;
    match head.split_first() {
        Some((b'+', _)) => {}
        Some((b'-', text)) if text.starts_with(b"OOM") => {}
        Some((b'$', length)) => match number(length)? {
            -1 => {}
            length => {
                len += usize::try_from(length)? + 2;
                values = 1;
            }
        },
        _ => bail!("the server says {:?}", String::from_utf8_lossy(head)),
    }
    Ok((len <= input.len()).then_some(Answer { len, values }))
}

/// A connection.
pub struct Connection {
    stream: UnixStream,
    pub dialect: Dialect,
    /// What is to be sent.
    pub output: Vec<u8>,
    input: Vec<u8>,
    /// How much of `input` has been read.
    at: usize,
}

/// What is read at once.
const CHUNK: usize = 64 << 10;

impl Connection {
    /// On an open socket.
    pub fn new(stream: UnixStream, dialect: Dialect) -> Self {
        Self {
            stream,
            dialect,
            output: Vec::new(),
            input: Vec::new(),
            at: 0,
        }
    }

    /// Appends a command that asks for a value.
    pub fn get(&mut self, key: &[u8]) {
        self.dialect.get(&mut self.output, key);
    }

    /// Appends a command that stores a value.
    pub fn set(&mut self, key: &[u8], value: &[u8]) {
        self.dialect.set(&mut self.output, key, value);
    }

    /// Has neither sending nor receiving wait.
    pub fn do_not_block(&self) -> Result<()> {
        Ok(self.stream.set_nonblocking(true)?)
    }

    /// Sends all of `output`.
    pub fn send(&mut self) -> Result<()> {
        self.stream
            .write_all(&self.output)
            .context("the server takes nothing")?;
        self.output.clear();
        Ok(())
    }

    /// Sends what the socket takes of `output`.
    pub fn send_some(&mut self) -> Result<()> {
        match self.stream.write(&self.output) {
            Ok(sent) => {
                self.output.drain(..sent);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error).context("the server takes nothing"),
        }
    }

    /// Reads what has arrived. Returns false if nothing has.
    pub fn receive(&mut self) -> Result<bool> {
        if self.at == self.input.len() {
            self.input.clear();
            self.at = 0;
        } else if self.at > CHUNK {
            self.input.drain(..self.at);
            self.at = 0;
        }
        let end = self.input.len();
        self.input.resize(end + CHUNK, 0);
        let read = self.stream.read(&mut self.input[end..]);
        self.input.truncate(end + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => bail!("the server has closed the connection"),
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error).context("the server says nothing"),
        }
    }

    /// The next answer that has come whole.
    pub fn next(&mut self) -> Result<Option<Answer>> {
        let answer = self.dialect.answer(&self.input[self.at..])?;
        if let Some(answer) = answer {
            self.at += answer.len;
        }
        Ok(answer)
    }

    /// Sends `output`, and waits for `count` answers. Returns the number of values in them.
    pub fn ask(&mut self, count: usize) -> Result<usize> {
        self.send()?;
        self.wait(count, |_, _| {})
    }

    /// Waits for `count` answers, and calls `each` with the number of each and the answer. Returns the number of values
    /// in them.
    pub fn wait(&mut self, count: usize, mut each: impl FnMut(usize, Answer)) -> Result<usize> {
        let (mut come, mut values) = (0, 0);
        while come < count {
            match self.next()? {
                Some(answer) => {
                    each(come, answer);
                    come += 1;
                    values += answer.values;
                }
                None => _ = self.receive()?,
            }
        }
        Ok(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(dialect: Dialect, input: &[u8], values: usize) {
        for end in 0..input.len() {
            assert_eq!(dialect.answer(&input[..end]).expect("it is in order"), None);
        }
        let mut more = input.to_vec();
        more.extend_from_slice(b"+more");
        let answer = dialect.answer(&more).expect("it is in order");
        let answer = answer.expect("it is whole");
        assert_eq!((answer.len, answer.values), (input.len(), values));
    }

    #[test]
    fn an_answer_is_whole_at_its_last_byte() {
        let two = b"VALUE a 0 5\r\nEND\r\n\r\nVALUE b 3 0\r\n\r\nEND\r\n";
        lengths(Dialect::Memcached, two, 2);
        lengths(Dialect::Memcached, b"END\r\n", 0);
        lengths(Dialect::Memcached, b"STORED\r\n", 0);
        lengths(Dialect::Redis, b"$5\r\n\r\n$-1\r\n", 1);
        lengths(Dialect::Redis, b"$-1\r\n", 0);
        lengths(Dialect::Redis, b"+OK\r\n", 0);
    }

    #[test]
    fn an_error_is_no_answer() {
        assert!(Dialect::Memcached.answer(b"ERROR\r\n").is_err());
        assert!(Dialect::Redis.answer(b"-ERR unknown\r\n").is_err());
        for (dialect, without_memory) in [
            (
                Dialect::Memcached,
                &b"SERVER_ERROR out of memory storing object\r\n"[..],
            ),
            (Dialect::Redis, b"-OOM command not allowed\r\n"),
        ] {
            lengths(dialect, without_memory, 0);
        }
    }

    #[test]
    fn requests_are_what_the_servers_read() {
        let mut out = Vec::new();
        Dialect::Memcached.get(&mut out, b"bc");
        Dialect::Memcached.set(&mut out, b"a", b"xyz");
        assert_eq!(out, b"get bc\r\nset a 0 0 3\r\nxyz\r\n");
        out.clear();
        Dialect::Redis.get(&mut out, b"bc");
        assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$2\r\nbc\r\n");
        out.clear();
        Dialect::Redis.set(&mut out, b"a", b"xyz");
        assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$3\r\nxyz\r\n");
    }
}
