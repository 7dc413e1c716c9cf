//! One request of HTTP/1, answered and closed.

use rustix::event::PollFlags;
use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    time::{Duration, Instant},
};

/// The most that a request may have: a scraper's has some hundred bytes.
const HEAD_MAX: usize = 8 << 10;
/// The time in which a client has to send its request, and to read the answer.
const TIME: Duration = Duration::from_secs(5);

/// The content type of OpenMetrics.
const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// How a request is answered.
#[derive(Debug, PartialEq, Eq)]
enum Request {
    /// With the page; `false`: with its head alone.
    Page(bool),
    /// With an error: its status, and a header that belongs to it.
    Error(&'static str, &'static str),
}

/// A client, and how far it has come.
pub(super) struct Client {
    pub(super) stream: TcpStream,
    /// When it has had its time.
    pub(super) until: Instant,
    stage: Stage,
}

enum Stage {
    /// Its request comes; this is what has come of it.
    Reads(Vec<u8>),
    /// The rest of the answer is sent.
    Writes(Vec<u8>),
    /// What comes behind the request is dropped: closing a socket with unread input would discard the
    /// answer.
    Drains(usize),
}

impl Client {
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            until: Instant::now() + TIME,
            stage: Stage::Reads(Vec::new()),
        })
    }

    /// Returns what it waits for.
    pub(super) fn waits_for(&self) -> PollFlags {
        match self.stage {
            Stage::Writes(_) => PollFlags::OUT,
            _ => PollFlags::IN,
        }
    }

    /// Goes on as far as its socket allows; `page` returns what is asked for. Returns once it is done.
    ///
    /// # Errors
    ///
    /// `WouldBlock` or `Interrupted` if it has to wait; another error if it has gone.
    pub(super) fn go_on(&mut self, page: impl Fn() -> Option<String>) -> io::Result<()> {
        let mut buffer = [0; HEAD_MAX];
        loop {
            match &mut self.stage {
                Stage::Reads(head) => {
                    let read = self.stream.read(&mut buffer)?;
                    if read == 0 {
                        return Ok(());
                    }
                    head.extend_from_slice(&buffer[..read]);
                    let end = memchr::memmem::find(head, b"\r\n\r\n");
                    let request = match end {
                        Some(_) => parse(head),
                        None if head.len() >= HEAD_MAX => TOO_LARGE,
                        None => continue,
                    };
                    self.stage = Stage::Writes(answer(request, &page));
                }
                Stage::Writes(rest) => {
                    let sent = self.stream.write(rest)?;
                    rest.drain(..sent);
                    if rest.is_empty() {
                        self.stream.shutdown(Shutdown::Write)?;
                        self.stage = Stage::Drains(16);
                    }
                }
                Stage::Drains(reads) => {
                    *reads -= 1;
                    if self.stream.read(&mut buffer)? == 0 || *reads == 0 {
                        return Ok(());
                    }
                }
            }
        }
    }
}

const TOO_LARGE: Request = Request::Error("431 Request Header Fields Too Large", "");

/// Returns the whole answer to a request.
fn answer(request: Request, page: impl Fn() -> Option<String>) -> Vec<u8> {
    let (status, header, body, whole) = match request {
        Request::Page(whole) => match page() {
            Some(text) => ("200 OK", "", text, whole),
            None => ("500 Internal Server Error", "", String::new(), true),
        },
        Request::Error(status, header) => (status, header, format!("{status}\n"), true),
    };
    let kind = match status.starts_with("200") {
        true => TYPE,
        false => "text/plain; charset=utf-8",
    };
    let len = body.len();
    let body = if whole { body } else { String::new() };
    format!("HTTP/1.1 {status}\r\n{header}Content-Type: {kind}\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n{body}").into_bytes()
}

/// The request in the first line.
fn parse(head: &[u8]) -> Request {
    const BAD: Request = Request::Error("400 Bad Request", "");
    let line = head.split(|&byte| byte == b'\r').next().unwrap_or(head);
    let Ok(line) = std::str::from_utf8(line) else {
        return BAD;
    };
    let mut words = line.split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return BAD;
    };
    if method.is_empty() || !target.starts_with('/') || !version.starts_with("HTTP/1.") {
        return BAD;
    }
    let path = target.split('?').next();
    match (path, method) {
        (Some("/metrics"), "GET") => Request::Page(true),
        (Some("/metrics"), "HEAD") => Request::Page(false),
        (Some("/metrics"), _) => Request::Error("405 Method Not Allowed", "Allow: GET, HEAD\r\n"),
        _ => Request::Error("404 Not Found", ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_request_asks_for() {
        let status = |line: &str| match parse(format!("{line}\r\nHost: x\r\n\r\n").as_bytes()) {
            Request::Page(whole) => if whole { "page" } else { "head" }.to_owned(),
            Request::Error(status, _) => status[..3].to_owned(),
        };
        for (line, expected) in [
            ("GET /metrics HTTP/1.1", "page"),
            ("GET /metrics?a=b HTTP/1.0", "page"),
            ("HEAD /metrics HTTP/1.1", "head"),
            ("POST /metrics HTTP/1.1", "405"),
            ("get /metrics HTTP/1.1", "405"),
            ("GET / HTTP/1.1", "404"),
            ("GET /metrics/ HTTP/1.1", "404"),
            ("POST /x HTTP/1.1", "404"),
            ("GET metrics HTTP/1.1", "400"),
            ("GET http://x/metrics HTTP/1.1", "400"),
            ("GET /metrics", "400"),
            ("GET /metrics HTTP/2", "400"),
            ("GET /metrics HTTP/1.1 x", "400"),
            ("get k", "400"),
            ("", "400"),
        ] {
            assert_eq!(status(line), expected, "{line}");
        }
        assert_eq!(parse(b"\xff\xfe / HTTP/1.1\r\n\r\n"), parse(b"x\r\n\r\n"));
    }
}
