//! The turns of a thread's connections, step by step.
//!
//! Detects a turn without an end, two turns in a step, a connection queued twice, and data that is
//! never read.

use super::*;
use crate::{
    config::Settings,
    fuzz,
    store::{Limits, work_done},
    tests::put,
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    fd::AsRawFd,
    net::{SendFlags, send},
};
use std::{
    io::{ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::net::UnixStream,
};

const TURN: usize = 16 << 10;
const LONG: usize = 90_000;

/// A thread's connections, without the thread.
struct Stepped {
    worker: Worker,
    events: Vec<Event>,
}

/// What threads share, with settings that `change` has changed, and a thread of it.
fn stepped(change: impl FnOnce(&mut Settings)) -> (Arc<Shared>, Stepped) {
    let shared = fuzz::new_shared(change);
    let stepped = Stepped::new(&shared);
    (shared, stepped)
}

/// With a limit of its buffers.
fn stepped_within(bytes: usize) -> (Arc<Shared>, Stepped) {
    stepped(|settings| settings.buffer_max = bytes)
}

fn buffered(shared: &Shared) -> usize {
    shared.totals.buffer_bytes.load(Ordering::Relaxed)
}

impl Stepped {
    fn new(shared: &Arc<Shared>) -> Self {
        let inbox = Arc::new(Inbox::new().unwrap());
        let mut worker = Worker::new(Arc::clone(shared), 0, inbox).unwrap();
        worker.turn = TURN;
        Self {
            worker,
            events: Vec::with_capacity(64),
        }
    }

    fn client(&mut self) -> UnixStream {
        self.come(true)
    }

    /// A client that has logged in or need not, if it is `known`.
    fn come(&mut self, known: bool) -> UnixStream {
        let (client, server) = UnixStream::pair().unwrap();
        client.set_nonblocking(true).unwrap();
        self.admit_one(server.into(), None, known);
        client
    }

    fn admit(&mut self, fd: OwnedFd) {
        self.admit_one(fd, None, true);
    }

    fn admit_one(&mut self, fd: OwnedFd, tls: Option<Box<tls::Stream>>, known: bool) {
        let arrival = self.arrival(fd, tls, known);
        self.worker.admit(arrival, 0);
    }

    fn arrival(&self, fd: OwnedFd, tls: Option<Box<tls::Stream>>, known: bool) -> Arrival {
        let totals = &self.worker.shared.totals;
        let directory = self.worker.shared.directory();
        let mut session = fuzz::new_session(&directory, false, known);
        session.id = fd.as_raw_fd();
        if !known {
            session.access.place = Place::take(&self.worker.inbox.unknown, |_| true).unwrap();
        }
        Arrival {
            fd,
            tls,
            number: totals.connections_total.fetch_add(1, Ordering::Relaxed) + 1,
            place: Place::take(&totals.connections, |_| true).unwrap(),
            session,
            replaces: !known,
        }
    }

    /// Returns whether a step would have something to do, if need be after some seconds.
    fn is_due(&self, seconds: i64) -> bool {
        let mut epoll = [PollFd::new(&self.worker.epoll, PollFlags::IN)];
        let timeout = Timespec {
            tv_sec: seconds,
            tv_nsec: 0,
        };
        !self.worker.ready.is_empty() || poll(&mut epoll, Some(&timeout)).unwrap() > 0
    }

    fn step(&mut self) {
        self.worker.step(&mut self.events).unwrap();
        let mut buffers = Buffers::default();
        for (index, connection) in &self.worker.connections {
            buffers.replace(index, Kept::default(), connection.kept);
        }
        assert_eq!(self.worker.buffers, buffers);
    }

    /// Goes on until a step would wait.
    fn run(&mut self) {
        while self.is_due(0) {
            self.step();
        }
    }
}

/// What has arrived.
fn arrived(client: &mut UnixStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match client.read_to_end(&mut bytes) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => bytes,
        other => panic!("{other:?}, and the connection stays open"),
    }
}

/// The socket would take all of it at once.
#[test]
fn a_long_answer_gives_others_their_turns() {
    let (shared, mut stepped) = stepped(|_| {});
    let (mut long, mut short) = (stepped.client(), stepped.client());
    let value = [b'v'; LONG];
    put(&shared, "k", &value);
    long.write_all(b"get k\r\n").unwrap();
    short.write_all(b"mn\r\n").unwrap();
    stepped.step();
    assert_eq!(arrived(&mut short), b"MN\r\n");
    let mut got = arrived(&mut long);
    assert_eq!(got.len(), TURN - b"get k\r\n".len());
    let head = format!("VALUE k 0 {LONG}\r\n");
    let whole = [head.as_bytes(), &value, b"\r\nEND\r\n"].concat();
    while got.len() < whole.len() {
        short.write_all(b"mn\r\n").unwrap();
        stepped.step();
        assert_eq!(arrived(&mut short), b"MN\r\n");
        let more = arrived(&mut long);
        assert!((1..=TURN).contains(&more.len()), "{}", more.len());
        got.extend(more);
    }
    assert!(got == whole);
    // It goes on as before.
    long.write_all(b"mn\r\n").unwrap();
    stepped.step();
    assert_eq!(arrived(&mut long), b"MN\r\n");
}

#[test]
fn a_long_value_gives_others_their_turns() {
    let (_, mut stepped) = stepped(|_| {});
    let (mut long, mut short) = (stepped.client(), stepped.client());
    let head = format!("set k 0 0 {LONG}\r\n");
    let request = [head.as_bytes(), &[b'v'; LONG], b"\r\n"].concat();
    long.write_all(&request).unwrap();
    let mut steps = 0;
    loop {
        short.write_all(b"mn\r\n").unwrap();
        stepped.step();
        assert_eq!(arrived(&mut short), b"MN\r\n");
        steps += 1;
        let answer = arrived(&mut long);
        if !answer.is_empty() {
            assert_eq!(answer, b"STORED\r\n");
            break;
        }
    }
    assert!(steps >= LONG / TURN, "{steps}");
}

/// One that sends without a pause has one turn in each step, and waits for it in one place.
#[test]
fn a_pipeline_is_queued_once() {
    let (_, mut stepped) = stepped(|settings| settings.requests_per_event = 5);
    let mut client = stepped.client();
    let (mut sent, mut answers, mut steps) = (0, 0, 0);
    while answers < 400 {
        if sent < 400 {
            client.write_all(&b"mn\r\n".repeat(10)).unwrap();
            sent += 10;
        }
        stepped.step();
        let arrived = arrived(&mut client).len() / b"MN\r\n".len();
        assert!(arrived <= 5, "{arrived} in step {steps}");
        assert!(stepped.worker.ready.len() <= 1, "{steps}");
        answers += arrived;
        steps += 1;
    }
    // Nor if another thread wakes it while it waits.
    client.write_all(&b"mn\r\n".repeat(20)).unwrap();
    stepped.step();
    stepped.worker.turn(0, 0);
    assert_eq!(stepped.worker.ready.len(), 1);
    // Nothing is left of it.
    while !stepped.worker.ready.is_empty() {
        stepped.step();
    }
    assert_eq!(arrived(&mut client), b"MN\r\n".repeat(20));
}

/// What it has sent and its end come together, and are told of once.
#[test]
fn one_that_sends_and_leaves_is_answered_and_closed() {
    let (_, mut stepped) = stepped(|_| {});
    let mut client = stepped.client();
    client.write_all(b"mn\r\n").unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    stepped.step();
    assert_eq!(stepped.worker.connections.len(), 0);
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"MN\r\n");
    // Between two turns, or with bytes of a request that is none yet.
    let mut client = stepped.client();
    client.write_all(b"get k").unwrap();
    stepped.step();
    assert_eq!(stepped.worker.connections.len(), 1);
    drop(client);
    stepped.step();
    assert_eq!(stepped.worker.connections.len(), 0);
}

/// More comes while it goes on without an event: it is told of in the step of that turn, and not
/// again.
#[test]
fn what_comes_in_a_turn_is_read_in_the_next() {
    let (_, mut stepped) = stepped(|settings| settings.requests_per_event = 5);
    let mut client = stepped.client();
    client.write_all(&b"mn\r\n".repeat(10)).unwrap();
    stepped.step();
    client.write_all(b"version\r\n").unwrap();
    let mut answers = Vec::new();
    for _ in 0..4 {
        // The next wait returns at once, or there is nothing left to wait for.
        if stepped.worker.ready.is_empty() {
            break;
        }
        stepped.step();
        answers.extend(arrived(&mut client));
    }
    assert!(answers.starts_with(&b"MN\r\n".repeat(10)));
    assert!(answers.ends_with(b"\r\n") && answers[40..].starts_with(b"VERSION"));
}

/// A read ends before a byte out of band, though there is more behind it, which came at once.
#[test]
fn what_comes_behind_a_byte_out_of_band_is_answered() {
    let (_, mut stepped) = stepped(|_| {});
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    stepped.admit(listener.accept().unwrap().0.into());
    let pieces = [
        (b"mn\r\n".as_slice(), SendFlags::empty()),
        (b"!", SendFlags::OOB),
        (b"mn\r\n", SendFlags::empty()),
    ];
    for (piece, flags) in pieces {
        send(&client, piece, flags).unwrap();
    }
    client.set_nonblocking(true).unwrap();
    let mut answers = Vec::new();
    while answers.len() < 2 * b"MN\r\n".len() {
        assert!(stepped.is_due(5), "{answers:?}, and nothing is told of");
        stepped.step();
        let mut bytes = [0; 100];
        if let Ok(got) = client.read(&mut bytes) {
            answers.extend_from_slice(&bytes[..got]);
        }
    }
    assert_eq!(answers, b"MN\r\nMN\r\n");
}

/// Where all places are taken, a client that comes gets that of the one which has taken longest to log
/// in, and none of those that have.
#[test]
fn a_new_client_takes_the_place_of_the_oldest_that_has_not_logged_in() {
    let (shared, mut stepped) = stepped(|settings| settings.max_connections = 4);
    let come = |stepped: &mut Stepped, known| stepped.come(known);
    let is_open = |client: &mut UnixStream| client.read(&mut [0]).is_err();
    let mut known = come(&mut stepped, true);
    let mut old: Vec<_> = (0..3).map(|_| come(&mut stepped, false)).collect();
    // The second logs in.
    old[1].write_all(b"set k 0 0 3\r\nu p\r\n").unwrap();
    stepped.step();
    assert_eq!(arrived(&mut old[1]), b"STORED\r\n");
    let mut new = come(&mut stepped, false);
    let open: Vec<_> = old.iter_mut().map(is_open).collect();
    assert_eq!(open, [false, true, true]);
    // The hint for the thread that accepts.
    stepped.worker.inbox.waker.wake();
    stepped.run();
    assert_eq!(stepped.worker.inbox.oldest.load(Ordering::Relaxed), 4);
    let mut newer = come(&mut stepped, false);
    assert!(!is_open(&mut old[2]) && is_open(&mut new));
    assert!(is_open(&mut known) && is_open(&mut old[1]) && is_open(&mut newer));
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let totals = &shared.totals;
    assert_eq!(count(&totals.dropped_slow), 2);
    // They log in both: there is no place for one more.
    for client in [&mut new, &mut newer] {
        client.write_all(b"set k 0 0 3\r\nu p\r\n").unwrap();
    }
    stepped.step();
    assert!(!is_open(&mut come(&mut stepped, false)));
    assert_eq!(count(&totals.connections_rejected), 1);
    assert_eq!(count(&stepped.worker.inbox.oldest), u64::MAX);
    assert_eq!(totals.connections.load(Ordering::Relaxed), 4);
}

/// The thread that accepts has sent a client for which the oldest one ends: that is told as the oldest
/// neither by a step that has begun before, nor after.
#[test]
fn a_client_that_will_end_is_not_told_as_the_oldest() {
    let (_, mut stepped) = stepped(|settings| settings.max_connections = 2);
    let pairs = [0; 4].map(|_| UnixStream::pair().unwrap());
    let (mut clients, servers): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    let arrive = |stepped: &Stepped, server: UnixStream, replaces| {
        let mut arrival = stepped.arrival(server.into(), None, false);
        arrival.replaces = replaces;
        stepped.worker.inbox.push(arrival);
    };
    let mut servers = servers.into_iter();
    for server in servers.by_ref().take(2) {
        arrive(&stepped, server, false);
    }
    stepped.run();
    let inbox = Arc::clone(&stepped.worker.inbox);
    let oldest = || inbox.oldest.load(Ordering::Relaxed);
    assert_eq!(oldest(), 1);
    arrive(&stepped, servers.next().unwrap(), true);
    assert_eq!(oldest(), u64::MAX);
    inbox.note_oldest(1);
    assert_eq!(oldest(), u64::MAX);
    stepped.run();
    assert_eq!(oldest(), 2);
    // The place has become free meanwhile: the oldest one stays, and is told again.
    drop(clients.remove(2));
    stepped.run();
    arrive(&stepped, servers.next().unwrap(), true);
    stepped.run();
    assert_eq!((stepped.worker.connections.len(), oldest()), (2, 2));
}

/// Values of which `stepped` answers with 4 KB each.
fn store_value(shared: &Shared) -> Vec<u8> {
    let value = vec![b'v'; 4000];
    put(shared, "k", &value);
    [b"VALUE k 0 4000\r\n", &value[..], b"\r\nEND\r\n"].concat()
}

/// A connection whose client asks for much and reads nothing.
fn stuck(stepped: &mut Stepped) -> UnixStream {
    let mut client = stepped.client();
    client.write_all(&b"get k\r\n".repeat(1000)).unwrap();
    client
}

fn is_open(client: &UnixStream) -> bool {
    let mut fd = [PollFd::new(client, PollFlags::RDHUP)];
    poll(&mut fd, Some(&Timespec::default())).unwrap() == 0
}

/// They take buffers from each other, first from the one that has had them longest.
#[test]
fn clients_that_do_not_read_leave_buffers_to_one_that_does() {
    const MOST: usize = 512 << 10;
    let (shared, mut stepped) = stepped_within(MOST);
    let answer = store_value(&shared);
    let hogs: Vec<_> = (0..20).map(|_| stuck(&mut stepped)).collect();
    let mut reader = stepped.client();
    stepped.run();
    assert!(
        (MOST / 2..=MOST).contains(&buffered(&shared)),
        "{}",
        buffered(&shared)
    );
    let open = |hogs: &[UnixStream]| hogs.iter().filter(|&hog| is_open(hog)).count();
    let left = open(&hogs);
    assert!((5..15).contains(&left), "{left}");
    assert_eq!(open(&hogs[20 - left..]), left, "the last");
    // Each answer waits for the next turn, at least.
    reader.write_all(&b"get k\r\n".repeat(200)).unwrap();
    let (mut got, mut most) = (0, 0);
    while got < 200 * answer.len() {
        stepped.step();
        most = most.max(buffered(&shared));
        got += arrived(&mut reader).len();
    }
    assert!(most <= MOST && got == 200 * answer.len(), "{most} {got}");
    assert!(open(&hogs) < left);
}

/// A long answer is one request for as long as it takes, and does not make its client the one that has
/// kept buffers for longest.
#[test]
fn a_client_that_reads_a_long_answer_outlives_those_that_come_later_and_do_not_read() {
    let (shared, mut stepped) = stepped_within(512 << 10);
    let answer = store_value(&shared).len() - b"END\r\n".len();
    (0..20_000).for_each(|key| put(&shared, &format!("key{key}"), b"v"));
    for (request, least) in [
        (["get", &" k".repeat(400), "\r\n"].concat(), 400 * answer),
        ("lru_crawler metadump all\r\n".into(), 1 << 20),
    ] {
        let mut reader = stepped.client();
        reader.write_all(request.as_bytes()).unwrap();
        stepped.run();
        let (mut hogs, mut got) = (Vec::new(), Vec::new());
        while !got.ends_with(b"END\r\n") {
            hogs.extend((0..2).map(|_| stuck(&mut stepped)));
            stepped.run();
            assert!(is_open(&reader), "{} bytes", got.len());
            got.extend(arrived(&mut reader));
            stepped.run();
        }
        assert!(got.len() > least, "{}", got.len());
        assert!(!is_open(&hogs[0]) && is_open(&hogs[hogs.len() - 1]));
    }
}

/// Detects a client that is ended for a few bytes, which make no room.
#[test]
fn a_client_that_keeps_little_outlives_those_that_keep_much() {
    const MOST: usize = 512 << 10;
    let (shared, mut stepped) = stepped_within(MOST);
    store_value(&shared);
    let mut slow = stepped.client();
    slow.write_all(b"touch ").unwrap();
    stepped.run();
    let hogs: Vec<_> = (0..40).map(|_| stuck(&mut stepped)).collect();
    stepped.run();
    assert!(!is_open(&hogs[0]) && is_open(&hogs[39]));
    slow.write_all(b"k 0\r\n").unwrap();
    stepped.run();
    assert_eq!(arrived(&mut slow), b"TOUCHED\r\n");
    // Where all keep little, the limit holds all the same, and they end each other.
    drop(hogs);
    let mut uploads = stepped.client();
    let request = format!("set upload 0 0 20000\r\n{}", "v".repeat(10_000));
    uploads.write_all(request.as_bytes()).unwrap();
    stepped.run();
    let mut many = Vec::new();
    for number in 0..150 {
        let mut client = stepped.client();
        let request = format!("set {number} 0 0 4000\r\n{}", "v".repeat(3900));
        client.write_all(request.as_bytes()).unwrap();
        many.push(client);
        stepped.run();
        let buffered = buffered(&shared);
        assert!(buffered <= MOST, "{buffered}");
    }
    assert!(!is_open(&many[0]) && is_open(&many[149]));
    let rest = format!("{}\r\n", "v".repeat(10_000));
    uploads.write_all(rest.as_bytes()).unwrap();
    stepped.run();
    assert_eq!(arrived(&mut uploads), b"STORED\r\n");
}

#[test]
fn buffers_without_a_limit_end_no_client() {
    let (shared, mut stepped) = stepped_within(0);
    store_value(&shared);
    let hogs: Vec<_> = (0..20).map(|_| stuck(&mut stepped)).collect();
    stepped.run();
    assert!(hogs.iter().all(is_open));
    let buffered = buffered(&shared);
    assert!(buffered > 512 << 10, "{buffered}");
}

/// The place of a client that has not logged in goes to one that need not, and not only to one that
/// has to.
#[test]
fn a_client_that_needs_no_login_takes_the_place_of_one_that_has_not_logged_in() {
    let (shared, mut stepped) = stepped(|settings| settings.max_connections = 2);
    let mut come = |known, replaces| {
        let (client, server) = UnixStream::pair().unwrap();
        let mut arrival = stepped.arrival(server.into(), None, known);
        arrival.replaces = replaces;
        stepped.worker.admit(arrival, 0);
        client
    };
    let clients = [(false, false), (false, false), (true, true), (true, true)]
        .map(|(known, replaces)| come(known, replaces));
    assert_eq!(
        clients.each_ref().map(is_open),
        [false, false, true, true],
        "the first two leave"
    );
    // None is left that would.
    assert!(!is_open(&come(true, true)));
    assert_eq!(shared.totals.connections.load(Ordering::Relaxed), 2);
}

/// Detects one that makes the server wait for it, and reads what that keeps just in time.
#[test]
fn what_is_answered_before_a_login_does_not_extend_its_time() {
    let (_, mut stepped) = stepped(|_| {});
    let mut client = stepped.come(false);
    stepped.worker.connections[0].deadline = 1000;
    let mut is_kept = false;
    for _ in 0..100 {
        let _ = client.write(&b"mn\r\n".repeat(1000));
        stepped.run();
        is_kept |= !stepped.worker.connections[0].pending.is_empty();
    }
    while !arrived(&mut client).is_empty() {
        stepped.run();
    }
    assert!(is_kept && stepped.worker.connections[0].pending.is_empty());
    assert_eq!(stepped.worker.connections[0].deadline, 1000);
}

/// One that is merely silent stays.
#[test]
fn a_value_that_does_not_come_is_given_up() {
    let (shared, mut stepped) = stepped(|settings| settings.send_timeout = 30);
    let (mut half, mut silent) = (stepped.client(), stepped.client());
    half.write_all(b"set k 0 0 100\r\nhalf").unwrap();
    silent.write_all(b"mn\r\n").unwrap();
    stepped.run();
    stepped.worker.drop_late(1000);
    assert!(!is_open(&half));
    assert_eq!(arrived(&mut silent), b"MN\r\n");
    assert_eq!(shared.totals.dropped_slow.load(Ordering::Relaxed), 1);
}

/// The slab gives a new client the index of one that has gone, which is lower than those of others.
#[test]
fn a_client_that_has_just_come_is_not_ended_before_those_that_came_earlier() {
    let (shared, mut stepped) = stepped_within(512 << 10);
    store_value(&shared);
    let mut hogs: Vec<_> = (0..20).map(|_| stuck(&mut stepped)).collect();
    stepped.run();
    for _ in 0..5 {
        hogs.retain(is_open);
        let new = stuck(&mut stepped);
        stepped.run();
        assert!(is_open(&new) && !is_open(&hogs[0]));
        hogs.push(new);
    }
}

/// Detects a client that keeps its buffers because it has asked for more than others.
#[test]
fn a_longer_answer_that_is_not_read_protects_no_client() {
    let (shared, mut stepped) = stepped_within(512 << 10);
    stepped.worker.turn = super::TURN;
    store_value(&shared);
    put(&shared, "big", &[b'b'; LONG]);
    let mut first = stepped.client();
    // The last of them are copied, and so keep buffers.
    let request = ["get", &" big".repeat(10), &" k".repeat(5), "\r\n"].concat();
    first.write_all(request.as_bytes()).unwrap();
    stepped.run();
    let (_, connection) = stepped.worker.connections.iter().next().unwrap();
    assert!(connection.pending.left() > 500_000);
    let hogs: Vec<_> = (0..20).map(|_| stuck(&mut stepped)).collect();
    stepped.run();
    assert!(!is_open(&first) && is_open(&hogs[19]));
}

/// Admits a client by TLS, with or without its handshake.
#[cfg(feature = "tls")]
fn come_by_tls(stepped: &mut Stepped, shakes_hands: bool) -> tls::tests::Client {
    let (mut client, fd, mut stream) = tls::tests::pair();
    if shakes_hands {
        tls::tests::shake_hands(&mut client, &fd, &mut stream);
    }
    stepped.admit_one(fd, Some(stream), true);
    client
}

/// What TLS takes of a new client is less than what others keep and do not read.
#[cfg(feature = "tls")]
#[test]
fn a_new_client_by_tls_has_buffers_of_clients_that_do_not_read() {
    const MOST: usize = 512 << 10;
    let (shared, mut stepped) = stepped_within(MOST);
    store_value(&shared);
    let hogs: Vec<_> = (0..20).map(|_| stuck(&mut stepped)).collect();
    stepped.run();
    let hogs_left = || hogs.iter().filter(|hog| is_open(hog)).count();
    let before = hogs_left();
    let clients: Vec<_> = (0..6).map(|_| come_by_tls(&mut stepped, true)).collect();
    assert!(clients.iter().all(|client| is_open(&client.sock)));
    assert!((1..before).contains(&hogs_left()));
    assert!(buffered(&shared) <= MOST);
}

/// Whatever others keep, and however fast they come.
#[cfg(feature = "tls")]
#[test]
fn clients_that_do_not_finish_their_handshake_end_each_other() {
    const MOST: usize = 512 << 10;
    let (shared, mut stepped) = stepped_within(MOST);
    let mut early = stepped.client();
    early.write_all(b"set k 0 0 3\r\nx").unwrap();
    let early_by_tls = come_by_tls(&mut stepped, true);
    stepped.run();
    let mut stalled: Vec<_> = (0..40).map(|_| come_by_tls(&mut stepped, false)).collect();
    let mut late = stepped.client();
    late.write_all(b"set k 0 0 3\r\nx").unwrap();
    stepped.run();
    stalled.extend((0..40).map(|_| come_by_tls(&mut stepped, false)));
    let left = stalled
        .iter()
        .filter(|&client| is_open(&client.sock))
        .count();
    assert!((8..13).contains(&left), "{left}");
    let last = &stalled[80 - left..];
    assert!(last.iter().all(|client| is_open(&client.sock)));
    assert!(buffered(&shared) <= MOST);
    for client in [&mut early, &mut late] {
        client.write_all(b"yz\r\n").unwrap();
        stepped.run();
        assert_eq!(arrived(client), b"STORED\r\n");
    }
    assert!(is_open(&early_by_tls.sock));
}

/// There is nothing to end that would make enough room.
#[cfg(feature = "tls")]
#[test]
fn a_new_client_by_tls_that_finds_no_room_ends_no_other() {
    const MOST: usize = 512 << 10;
    let (shared, mut stepped) = stepped(|settings| {
        settings.buffer_max = MOST;
        settings.threads = 2;
    });
    let idle: Vec<_> = (0..12).map(|_| come_by_tls(&mut stepped, true)).collect();
    let mut clients: Vec<_> = (0..3).map(|_| stepped.client()).collect();
    for client in &mut clients {
        client.write_all(b"set k 0 0 3\r\nx").unwrap();
    }
    stepped.run();
    for shakes_hands in [false, true] {
        let late = come_by_tls(&mut stepped, shakes_hands);
        stepped.run();
        assert!(!is_open(&late.sock));
    }
    // Nor does another thread, which has its part. A client without TLS needs no room.
    let of_other = 100 << 10;
    let buffer_bytes = &shared.totals.buffer_bytes;
    buffer_bytes.fetch_add(of_other, Ordering::Relaxed);
    clients.push(stepped.client());
    stepped.worker.inbox.waker.wake();
    stepped.run();
    buffer_bytes.fetch_sub(of_other, Ordering::Relaxed);
    assert!(clients.iter().all(is_open));
    assert!(idle.iter().all(|client| is_open(&client.sock)));
}

/// Another thread's clients have taken nearly all.
#[test]
fn a_thread_with_more_than_its_part_of_the_buffers_leaves_it_to_others() {
    const MOST: usize = 512 << 10;
    let mut shared = fuzz::new_shared(|settings| {
        settings.buffer_max = MOST;
        settings.threads = 2;
    });
    let wakes = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&wakes);
    Arc::get_mut(&mut shared).unwrap().wake = Box::new(move || {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    store_value(&shared);
    let (mut more, mut less) = (Stepped::new(&shared), Stepped::new(&shared));
    let hogs: Vec<_> = (0..20).map(|_| stuck(&mut more)).collect();
    more.run();
    assert_eq!(wakes.load(Ordering::Relaxed), 0);
    let stays = (0..3).map(|_| stuck(&mut less)).collect::<Vec<_>>();
    less.run();
    assert!(buffered(&shared) > MOST && stays.iter().all(is_open));
    // The other one is woken.
    assert!(wakes.load(Ordering::Relaxed) > 0);
    more.worker.inbox.waker.wake();
    more.run();
    assert!(buffered(&shared) <= MOST && stays.iter().all(is_open));
    assert!(more.worker.buffers.bytes >= MOST / 4);
    // It gives up what is beyond its part, and no more, whatever others have.
    let buffer_bytes = &shared.totals.buffer_bytes;
    buffer_bytes.fetch_add(MOST, Ordering::Relaxed);
    more.worker.inbox.waker.wake();
    more.run();
    let part = more.worker.buffers.bytes;
    assert!((MOST / 2 - 100_000..=MOST / 2).contains(&part), "{part}");
    buffer_bytes.fetch_sub(MOST, Ordering::Relaxed);
    drop(hogs);
}

/// Its memory was needed for another value of the tenant: that is an answer, and no end.
#[test]
fn a_client_whose_value_is_ended_is_answered() {
    let (shared, mut stepped) = stepped(|_| {});
    let tenant = &shared.directory().spaces[""].tenant;
    // A quarter of it is less than both values take.
    tenant.set_limits(Limits::max(320 << 10));
    let (mut first, mut second) = (stepped.client(), stepped.client());
    let mut send = |client: &mut UnixStream, head: &str, len: usize| {
        client.write_all(head.as_bytes()).unwrap();
        client.write_all(&vec![b'v'; len]).unwrap();
        stepped.run();
    };
    send(&mut first, "set a 0 0 50000\r\n", 20_000);
    send(&mut second, "set b 0 0 80000\r\n", 80_000);
    send(&mut second, "\r\n", 0);
    assert_eq!(arrived(&mut second), b"STORED\r\n");
    send(&mut first, "", 30_000);
    send(&mut first, "\r\nmn\r\n", 0);
    let refused = b"SERVER_ERROR out of memory storing object\r\nMN\r\n";
    assert_eq!(arrived(&mut first), refused);
}

/// Whatever it asks for: the work and the requests of a step are bounded, and the neighbour is answered
/// in each.
#[test]
fn no_command_keeps_a_neighbour_waiting() {
    const ITEMS: usize = 20_000;
    let (shared, mut stepped) = stepped(|settings| settings.admin_clients = true);
    (0..ITEMS).for_each(|number| put(&shared, &format!("key{number}"), b"v"));
    stepped.worker.turn = super::TURN;
    let mut neighbour = stepped.client();
    let mut watchers: Vec<_> = (0..20).map(|_| stepped.client()).collect();
    for watcher in &mut watchers {
        let request = b"watch fetchers mutations evictions connevents\r\n";
        watcher.write_all(request).unwrap();
    }
    let mut answers = vec![0; 1 << 20];
    for watched in [true, false] {
        if !watched {
            for index in stepped.worker.watching.clone() {
                stepped.worker.close(index, Close::Normal);
            }
        }
        for request in [
            "md big I q\r\n",
            "append big 0 0 0 noreply\r\n\r\n",
            "prepend big 0 0 0 noreply\r\n\r\n",
            "touch big 0 noreply\r\n",
            "get big big none\r\n",
            "gat 0 big big none\r\n",
            "mg big v\r\n",
            "mg none q\r\n",
            "incr none 1 noreply\r\n",
            "delete none noreply\r\n",
            "set small 0 0 1 noreply\r\nv\r\n",
            "flush_all 1000 noreply\r\n",
            "stats\r\n",
            "stats items\r\n",
            "stats sizes\r\n",
            "stats conns\r\n",
            "stats cachedump 1 0\r\n",
            "tenant list\r\n",
            "lru_crawler crawl all\r\n",
            "lru_crawler metadump all\r\n",
        ] {
            // Each is as it was, whatever the last request did.
            put(&shared, "big", &[b'b'; 90_000]);
            let index = stepped.worker.connections.vacant_key();
            let mut hog = stepped.client();
            let requests = |stepped: &Stepped| {
                let connection = stepped.worker.connections.get(index);
                connection.map_or(0, |connection| connection.session.requests)
            };
            // What looks at all tenants or connections ends the turn.
            let most = match request.starts_with("stats") || request.starts_with("tenant") {
                true => 1,
                false => 1024,
            };
            // A dump does not come behind other requests.
            let times = match request.contains("metadump") {
                true => 1,
                false => 100_000 / request.len(),
            };
            let _ = hog.write_all(request.repeat(times).as_bytes());
            let mut executed_in_all = 0;
            for _ in 0..40 {
                neighbour.write_all(b"mn\r\n").unwrap();
                let before = (work_done(), requests(&stepped));
                stepped.step();
                let done = work_done() - before.0;
                let executed = requests(&stepped).saturating_sub(before.1);
                assert!(executed <= most, "{executed} times in a step: {request:?}");
                executed_in_all += executed;
                assert!(done <= 8 << 20, "{done} in a step for {request:?}");
                assert_eq!(arrived(&mut neighbour), b"MN\r\n", "{request:?}");
                let _ = hog.read(&mut answers);
            }
            assert!(
                executed_in_all >= times.min(40) as u32,
                "{executed_in_all} {request:?}"
            );
            assert!(stepped.worker.connections.contains(index), "{request:?}");
        }
    }
    drop(watchers);
}
