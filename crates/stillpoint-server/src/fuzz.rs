//! A connection without a socket, for fuzzers and tests.

use crate::{
    config::{Binding, Listener, Settings},
    directory::Directory,
    log::Log,
    output::Output,
    places::Place,
    session::{Access, Context, Session, Work},
    shared::{Card, Shared},
    store::{Config, Store},
    users::{User, Users},
};
use std::{
    convert::Infallible,
    io::IoSlice,
    sync::{Arc, Mutex, OnceLock},
};

/// Gives a session a turn at the time `now`, with `bytes` as its input. Returns how many of them it
/// has consumed, and whether the turn is over.
pub(crate) fn feed(
    session: &mut Session,
    shared: &Shared,
    bytes: &[u8],
    out: &mut Output,
    now: u32,
) -> (usize, bool) {
    let wake: Arc<dyn Fn() + Send + Sync> = Arc::new(|| {});
    let directory = shared.directory();
    session.follow(&directory);
    let mut cx = Context {
        shared,
        directory: &directory,
        thread: 0,
        now,
        budget: 1000,
        work: Work::new(),
        out,
        wake: &wake,
    };
    let used = session.feed(bytes, &mut cx);
    (used, cx.is_over())
}

/// The most that may be waiting to be sent when a request is done: a full output, and one more response to an operator.
const MOST: usize = 4 << 20;

/// Returns the shared part of a server without sockets, with settings that `change` has changed.
pub(crate) fn new_shared(change: impl FnOnce(&mut Settings)) -> Arc<Shared> {
    let store = Store::new(Config {
        item_max: 100_000,
        ..Config::default()
    });
    let mut settings = Settings {
        listeners: vec![Listener::unix("/nowhere".into())],
        threads: 1,
        shutdown: true,
        log: false,
        ..Settings::default()
    };
    change(&mut settings);
    let store = store.expect("memory for a store");
    let shared = Shared::new(
        store,
        settings,
        Log::new(false, 0).expect("it has no thread"),
        None,
        Box::new(|| {}),
        Arc::default(),
    );
    shared.change(|directory| {
        directory.follow(&shared.store, 1);
        directory.users = Users::from(vec![User {
            name: "u".into(),
            password: b"p".to_vec(),
            tenant: String::new(),
            admin: true,
        }]);
    });
    Arc::new(shared)
}

/// A connection to the default tenant.
pub(crate) fn new_session(directory: &Directory, admin: bool, known: bool) -> Session {
    let card = Card {
        peer: "fuzz".into(),
        local: String::new(),
        transport: "local",
        tenant: Mutex::new("".into()),
        state: 1.into(),
        last: 0.into(),
    };
    let home = &directory.spaces[""];
    let access = Access {
        home: Arc::clone(home),
        place: Place::take(&home.clients, |_| true).expect("there is always one"),
        admin,
        known: Place::take(&Arc::default(), |_| known),
        user: None,
    };
    Session::new(access, 0, Arc::new(card), Binding::Auto, directory.version)
}

/// Has a connection receive `bytes`, in pieces of a length that the first byte says, of a client whose rights the second byte says. Returns how many bytes it
/// has answered.
///
/// # Panics
///
/// If the bytes that are not sent yet exceed their limit, or more is consumed than there is.
#[must_use]
pub fn converse(bytes: &[u8]) -> usize {
    let [piece, rights, bytes @ ..] = bytes else {
        return 0;
    };
    talk(bytes, *rights, |end| end + usize::from(*piece) + 1)
}

/// Feeds `bytes` to a connection, each time up to an end that follows from the one before.
fn talk(bytes: &[u8], rights: u8, mut next: impl FnMut(usize) -> usize) -> usize {
    static ONE: Mutex<()> = Mutex::new(());
    static SHARED: OnceLock<Arc<Shared>> = OnceLock::new();
    let shared = &**SHARED.get_or_init(|| new_shared(|_| {}));
    // One at a time, as a thread serves its connections.
    let _one = crate::lock::lock(&ONE);
    let directory = shared.directory();
    directory.spaces[""].tenant.flush_all(0);
    let mut session = new_session(&directory, rights & 1 != 0, rights & 2 != 0);
    let mut out = Output::default();
    let (mut start, mut end, mut answered) = (0, 0, 0);
    loop {
        let now = shared.store.now();
        let (used, _) = feed(&mut session, shared, &bytes[start..end], &mut out, now);
        start += used;
        assert!(start <= end, "more is consumed than there is");
        assert!(out.left() <= MOST, "{} bytes wait to be sent", out.left());
        let progress = used > 0 || !out.is_empty();
        answered += out.left();
        // As a socket that takes what it is given.
        while !out.is_empty() {
            let mut slices = [IoSlice::new(&[]); 8];
            let used = out.slices(&mut slices, usize::MAX);
            let bytes = slices[..used].iter().map(|slice| slice.len()).sum();
            out.advance(bytes);
        }
        out.clear();
        if session.close.is_some() {
            return answered;
        }
        if !progress && end == bytes.len() {
            return answered;
        }
        if start == end {
            let read = session.direct(|direct| {
                let len = direct.len().min(bytes.len() - end);
                direct[..len].copy_from_slice(&bytes[end..end + len]);
                Ok::<_, Infallible>(len)
            });
            if let Some(Ok(len)) = read {
                (start, end) = (end + len, end + len);
            }
        }
        end = next(end).min(bytes.len());
    }
}

#[cfg(test)]
mod tests {
    use super::{converse, talk};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn garbage(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
            let _ = converse(&bytes);
        }

        #[test]
        fn almost_commands(
            piece in 0u8..80,
            rights in 0u8..4,
            lines in proptest::collection::vec(
                "(set|add|cas|append|get|gets|gat|gat 0|mg|ms|md|ma|me|incr|decr|touch|delete|flush_all|stats|watch|lru_crawler|tenant|cache_memlimit)( [a-c]| [0-9]{1,3}| [vqktscfINTMRDJCFb][0-9A-Z]{0,2}| -1| noreply| metadump all| list){0,6}\r?\n[a-c\r\n]{0,9}",
                0..40,
            ),
        ) {
            let mut bytes = vec![piece, rights];
            bytes.extend(lines.concat().bytes());
            let _ = converse(&bytes);
        }
    }

    /// How much is answered to what comes part by part.
    fn in_parts(parts: &[&[u8]]) -> usize {
        let mut lengths = parts.iter().map(|part| part.len());
        talk(&parts.concat(), 2, |end| end + lengths.next().unwrap_or(0))
    }

    /// Input that comes in three parts, each answered before the next: a value is sent, then a line of keys begins, then it turns out to be wrong.
    #[test]
    fn a_line_of_keys_that_goes_on_after_an_answer() {
        let key = "k".repeat(200);
        let value = "v".repeat(5000);
        let head = format!("set {key} 0 0 5000\r\n{value}\r\nset big 0 0 5000\r\n{value}\r\n");
        let get = format!("{key} {}\r\n", "x".repeat(251));
        let parts = [head.as_bytes(), b"get big\r\nget ", get.as_bytes()];
        let error = crate::protocol::text::BAD_FORMAT.line.len() + 2;
        assert_eq!(
            in_parts(&parts),
            2 * "STORED\r\n".len() + "VALUE big 0 5000\r\n\r\nEND\r\n".len() + 5000 + error
        );
    }

    #[test]
    fn it_answers() {
        assert_eq!(
            converse(b"\x03\x02set k 0 0 1\r\nx\r\nget k\r\n"),
            "STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\n".len()
        );
        assert_eq!(
            converse(b"\x03\x00set k 0 0 3\r\nu p\r\nmn\r\n"),
            "STORED\r\nMN\r\n".len()
        );
    }
}
