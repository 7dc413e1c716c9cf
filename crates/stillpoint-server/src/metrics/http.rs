//! One request of HTTP/1, answered and closed.

use crate::net::wake::Waker;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    time::{Duration, Instant},
};

/// The most that a request may have: a scraper's has some hundred bytes.
const HEAD_MAX: usize = 8 << 10;
/// The time in which a client has to send its request, and to read the answer.
const TIME: Duration = Duration::from_secs(5);
/// Between two tries to accept.
pub(super) const PAUSE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

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

/// Reads a request from `stream` and answers it, with what `page` returns if that is asked for. Fails
/// if the client takes too long or goes, or the thread is woken.
pub(super) fn answer(
    stream: &TcpStream,
    stop: &Waker,
    page: impl FnOnce() -> Option<String>,
) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    let until = Instant::now() + TIME;
    let mut head = [0; HEAD_MAX];
    let mut have = 0;
    let request = loop {
        if have == head.len() {
            break Request::Error("431 Request Header Fields Too Large", "");
        }
        let read = retry(stream, stop, PollFlags::IN, until, || {
            (&mut &*stream).read(&mut head[have..])
        })?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        have += read;
        let end = memchr::memmem::find(&head[..have], b"\r\n\r\n");
        if end.is_some() {
            break parse(&head[..have]);
        }
    };
    let (status, header, body, whole) = match request {
        Request::Page(whole) => match page() {
            Some(text) => ("200 OK", "", text, whole),
            None => ("500 Internal Server Error", "", String::new(), true),
        },
        Request::Error(status, header) => (status, header, format!("{status}\n"), true),
    };
    let kind = if status.starts_with("200") {
        TYPE
    } else {
        "text/plain; charset=utf-8"
    };
    let mut text = format!(
        "HTTP/1.1 {status}\r\n{header}Content-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    if whole {
        text.push_str(&body);
    }
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        let sent = retry(stream, stop, PollFlags::OUT, until, || {
            (&mut &*stream).write(rest)
        })?;
        rest = &rest[sent..];
    }
    // Closing a socket with unread input would discard the answer.
    stream.shutdown(Shutdown::Write)?;
    for _ in 0..16 {
        let left = retry(stream, stop, PollFlags::IN, until, || {
            (&mut &*stream).read(&mut head)
        })?;
        if left == 0 {
            break;
        }
    }
    Ok(())
}

/// Does `once` as soon as the socket is ready for it, until that time.
fn retry(
    stream: &TcpStream,
    stop: &Waker,
    ready: PollFlags,
    until: Instant,
    mut once: impl FnMut() -> io::Result<usize>,
) -> io::Result<usize> {
    loop {
        match once() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let left = Timespec {
            tv_sec: left.as_secs().cast_signed(),
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut events = [
            PollFd::new(stream, ready),
            PollFd::new(&stop.0, PollFlags::IN),
        ];
        let _ = poll(&mut events, Some(&left));
        if !events[1].revents().is_empty() {
            return Err(io::ErrorKind::Interrupted.into());
        }
    }
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
