//! `--metrics`: the server's figures as OpenMetrics, by HTTP, read at the scrape.
//!
//! | file | what it has |
//! |---|---|
//! | `figures` | what is counted, as a collector of `prometheus-client` |
//! | `http` | one request, of a bounded length and in a bounded time |
//!
//! One thread answers the clients, so that a scrape costs no client of the cache anything but processor
//! time. It waits for all of its clients at once.

mod figures;
mod http;

use crate::{net::wake::Waker, shared::Shared};
use figures::Page;
use http::Client;
use rustix::event::{PollFd, PollFlags, poll};
use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use stillpoint_lru::Pressure;

/// The thread that answers.
pub(crate) struct Endpoint {
    address: SocketAddr,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl Endpoint {
    /// Listens, and answers from then on.
    pub(crate) fn start(
        shared: &Arc<Shared>,
        address: SocketAddr,
        pressure: Option<&Arc<Pressure>>,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let waker = Arc::new(Waker::new()?);
        let page = Page::new(shared, pressure);
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

/// The most clients at a time. If another comes, the one that has been there for longest goes.
const MOST: usize = 16;
/// Between two tries to accept without descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Answers until it is woken.
fn serve(listener: &TcpListener, stop: &Waker, page: &Page) {
    let body = || {
        let mut text = String::new();
        page.write(&mut text).map(|()| text).ok()
    };
    // In the order in which they came.
    let mut clients: Vec<Client> = Vec::new();
    let mut accepts = true;
    loop {
        let now = Instant::now();
        clients.retain(|client| client.until > now);
        let mut events = vec![PollFd::new(&stop.0, PollFlags::IN)];
        events.push(PollFd::new(
            listener,
            if accepts {
                PollFlags::IN
            } else {
                PollFlags::empty()
            },
        ));
        let streams = clients.iter();
        events.extend(streams.map(|client| PollFd::new(&client.stream, client.waits_for())));
        let ends = clients
            .first()
            .map(|client| client.until.saturating_duration_since(now));
        let wait = match accepts {
            true => ends,
            false => Some(ends.map_or(PAUSE, |ends| ends.min(PAUSE))),
        };
        let wait = wait.and_then(|wait| wait.try_into().ok());
        // Interrupted, or without memory for a moment: it is asked again.
        let _ = poll(&mut events, wait.as_ref());
        let ready: Vec<_> = events
            .iter()
            .map(|event| !event.revents().is_empty())
            .collect();
        drop(events);
        if ready[0] {
            return;
        }
        let mut ready_clients = ready[2..].iter();
        clients.retain_mut(|client| {
            !ready_clients.next().is_some_and(|ready| *ready)
                || client.go_on(body).is_err_and(|error| waits(&error))
        });
        accepts = match listener
            .accept()
            .and_then(|(stream, _)| Client::new(stream))
        {
            Ok(client) => {
                if clients.len() >= MOST {
                    clients.remove(0);
                }
                clients.push(client);
                true
            }
            Err(error) => waits(&error),
        };
    }
}

/// Returns whether an error says to wait.
fn waits(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, WouldBlock};
    matches!(error.kind(), WouldBlock | Interrupted)
}
