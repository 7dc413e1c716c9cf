//! `--metrics`: the server's figures as OpenMetrics, by HTTP, read at the scrape.
//!
//! | file | what it has |
//! |---|---|
//! | `figures` | what is counted, as a collector of `prometheus-client` |
//! | `http` | one request, of a bounded length and in a bounded time |
//!
//! One thread answers the clients, one after the other, so that a scrape costs no client of the
//! cache anything but processor time.

mod figures;
mod http;

use crate::{net::wake::Waker, shared::Shared};
use figures::Page;
use rustix::event::{PollFd, PollFlags, poll};
use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::Arc,
    thread::{self, JoinHandle},
};

/// The thread that answers.
pub(crate) struct Endpoint {
    address: SocketAddr,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl Endpoint {
    /// Listens, and answers from then on.
    pub(crate) fn start(shared: &Arc<Shared>, address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let waker = Arc::new(Waker::new()?);
        let page = Page::new(shared);
        let stop = Arc::clone(&waker);
        let thread = thread::Builder::new()
            .name("stillcache/metrics".into())
            .spawn(move || serve(&listener, &stop, &page))?;
        Ok(Self {
            address,
            waker,
            thread: Some(thread),
        })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            // One that has panicked has said so.
            let _ = thread.join();
        }
    }
}

/// Answers until it is woken.
fn serve(listener: &TcpListener, stop: &Waker, page: &Page) {
    loop {
        let mut events = [
            PollFd::new(&stop.0, PollFlags::IN),
            PollFd::new(listener, PollFlags::IN),
        ];
        // Interrupted, or without memory for a moment: it is asked again.
        let _ = poll(&mut events, None);
        if !events[0].revents().is_empty() {
            return;
        }
        match listener.accept() {
            Ok((stream, _)) => {
                let body = || {
                    let mut text = String::new();
                    page.write(&mut text).map(|()| text).ok()
                };
                // A client that leaves early has had its time.
                let _ = http::answer(&stream, stop, body);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // Without descriptors the client waits, and so does this thread.
            Err(_) => {
                let mut stopped = [PollFd::new(&stop.0, PollFlags::IN)];
                let _ = poll(&mut stopped, Some(&http::PAUSE));
            }
        }
    }
}
