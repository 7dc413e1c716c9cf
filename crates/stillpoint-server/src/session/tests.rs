//! Sessions without sockets.

use super::*;
use crate::{
    fuzz,
    store::{Condition, Limits, Mode, Search},
    tests::{create, put},
    users::{User, Users},
};

/// Returns the answer, the number of bytes consumed, and whether the turn is over.
fn turn(session: &mut Session, shared: &Shared, bytes: &[u8]) -> (Vec<u8>, usize, bool) {
    turn_at(session, shared, bytes, shared.store.now())
}

fn turn_at(
    session: &mut Session,
    shared: &Shared,
    bytes: &[u8],
    now: u32,
) -> (Vec<u8>, usize, bool) {
    let mut out = Output::default();
    let (used, is_over) = fuzz::feed(session, shared, bytes, &mut out, now);
    (out.bytes, used, is_over)
}

fn feed(session: &mut Session, shared: &Shared, bytes: &[u8]) -> Vec<u8> {
    turn(session, shared, bytes).0
}

/// What threads share, and a client of the default tenant.
fn open() -> (Arc<Shared>, Session) {
    let shared = fuzz::new_shared(|_| {});
    let session = fuzz::new_session(&shared.directory(), false, true);
    (shared, session)
}

/// A client that logs in.
fn login(shared: &Shared) -> Session {
    let mut session = fuzz::new_session(&shared.directory(), false, false);
    let answer = feed(&mut session, shared, b"set k 0 0 3\r\nu p\r\n");
    assert_eq!(answer, b"STORED\r\n");
    session
}

fn change_users(shared: &Shared, change: impl Fn(&mut User)) {
    shared.change(|directory| {
        let users = directory.users.all().iter();
        let mut users: Vec<_> = users.map(|user| User::clone(user)).collect();
        users.iter_mut().for_each(change);
        directory.users = users.into();
    });
}

/// A turn ends after a bounded amount of work: values copied, items touched, requests that do next to
/// nothing.
#[test]
fn requests_that_do_much_give_others_their_turns() {
    let shared = fuzz::new_shared(|_| {});
    let mut session = fuzz::new_session(&shared.directory(), true, true);
    put(&shared, "k", &[b'x'; 90_000]);
    // The most requests of a turn, and the most bytes of work.
    for (request, most, bytes) in [
        ("md k I q\r\n", 1024, 0),
        ("append k 0 0 0 noreply\r\n\r\n", 12, 12 * 90_100),
        ("prepend k 0 0 0 noreply\r\n\r\n", 12, 12 * 90_100),
        ("mg none q\r\n", 1024, 0),
        ("delete none noreply\r\n", 1024, 0),
        ("stats sizes\r\n", 1, 0),
        ("tenant list\r\n", 1, 0),
    ] {
        let input = request.repeat(4000);
        let before = work_done();
        let (_, used, is_over) = turn(&mut session, &shared, input.as_bytes());
        assert!(is_over, "{request}");
        let requests = used / request.len();
        assert!((1..=most).contains(&requests), "{requests} {request}");
        let done = work_done() - before;
        assert!(done <= bytes, "{done} bytes for {requests} {request}");
    }
    // The keys of a request.
    let input = format!("get {}\r\n", "none ".repeat(4000));
    let (_, used, is_over) = turn(&mut session, &shared, input.as_bytes());
    assert!(is_over && used <= 5 * 1024 + 4, "{used}");
    let (answer, rest, _) = turn(&mut session, &shared, &input.as_bytes()[used..]);
    assert!(answer.is_empty() && rest <= 5 * 1024);
}

/// A pin copies nothing.
#[test]
fn a_value_that_is_copied_to_an_answer_counts_as_work() {
    let (shared, mut session) = open();
    for (key, len) in [("short", 4000), ("long", 40_000)] {
        put(&shared, key, &vec![b'x'; len]);
    }
    for (request, work) in [
        ("get short short\r\n", 8000),
        ("mg short v\r\n", 4000),
        ("mg short k\r\n", 0),
        ("get long\r\n", 0),
        ("get none\r\n", 0),
    ] {
        let before = work_done();
        feed(&mut session, &shared, request.as_bytes());
        assert_eq!(work_done() - before, work, "{request}");
    }
}

/// Looking at an expired item takes as long as showing one.
#[test]
fn a_dump_of_what_has_expired_gives_others_their_turns() {
    let shared = fuzz::new_shared(|_| {});
    shared.store.change_search(|search| search.on = false);
    let mut session = fuzz::new_session(&shared.directory(), false, true);
    let tenant = &shared.directory().spaces[""].tenant;
    let now = shared.store.now();
    for key in 0..40_000u32 {
        let (key, now) = (key.to_le_bytes(), now.max(1));
        let stored = tenant.set(&key, 0, now, b"", Mode::Set, Condition::default());
        stored.unwrap();
    }
    for request in ["lru_crawler metadump all\r\n", "stats cachedump 1 10\r\n"] {
        let before = work_done();
        turn(&mut session, &shared, request.as_bytes());
        let done = work_done() - before;
        assert!(done <= 6 << 20, "{done} for {request}");
        while session.has_more() {
            feed(&mut session, &shared, b"");
        }
    }
}

/// A dump that has begun, and a value that has not come whole, are about a tenant that is not
/// the user's any longer.
#[test]
fn one_in_the_middle_of_something_loses_what_its_user_loses() {
    let shared = fuzz::new_shared(|_| {});
    create(&shared, &["a", "b"]);
    let belongs = |tenant: &str| {
        change_users(&shared, |user| {
            (user.tenant, user.admin) = (tenant.into(), false);
        });
    };
    let login = || login(&shared);
    belongs("a");
    let mut dumps = login();
    for key in 0..5000 {
        let request = format!("set {key} 0 0 1\r\nx\r\n");
        feed(&mut dumps, &shared, request.as_bytes());
    }
    let (first, _, is_over) = turn(&mut dumps, &shared, b"lru_crawler metadump all\r\n");
    assert!(first.starts_with(b"key=") && dumps.has_more() && is_over);
    let mut stores = login();
    feed(&mut stores, &shared, b"set late 0 0 10\r\n01234");
    let mut other = login();
    feed(&mut other, &shared, b"set own 0 0 10\r\n01234");
    // A change that is not about them.
    create(&shared, &["c"]);
    let answer = feed(&mut other, &shared, b"56789\r\n");
    assert_eq!(answer, b"STORED\r\n");
    assert!(feed(&mut dumps, &shared, b"").starts_with(b"key="));
    belongs("b");
    assert_eq!(feed(&mut dumps, &shared, b""), b"END\r\n");
    assert_eq!(feed(&mut stores, &shared, b"56789\r\n"), b"");
    assert_eq!(stores.close, Some(Close::Shutdown));
    let a = &shared.directory().spaces["a"];
    assert_eq!(a.tenant.peek(b"late", |_| ()), None);
    assert_eq!(a.tenant.peek(b"own", |_| ()), Some(()));
}

/// A user is given another tenant, which an admin deletes before the session has followed.
#[test]
fn one_whose_new_tenant_is_gone_does_not_keep_the_old_one() {
    let shared = fuzz::new_shared(|_| {});
    create(&shared, &["a", "b"]);
    let belongs = |tenant: &str| change_users(&shared, |user| user.tenant = tenant.into());
    belongs("a");
    // What comes with the login is the user's already.
    let mut session = fuzz::new_session(&shared.directory(), false, false);
    let both = b"set k 0 0 3\r\nu p\r\nset k 0 0 1\r\nx\r\n";
    assert_eq!(feed(&mut session, &shared, both), b"STORED\r\nSTORED\r\n");
    let stored = shared.directory().spaces["a"].tenant.peek(b"k", |_| ());
    assert_eq!(stored, Some(()));
    belongs("b");
    shared.store.delete_tenant("b").unwrap();
    create(&shared, &[]);
    assert_eq!(feed(&mut session, &shared, b"get k\r\n"), b"");
    assert_eq!(session.close, Some(Close::Shutdown));
}

/// Nor does it take a place to watch from others.
#[test]
fn what_no_client_watches_is_not_told() {
    let shared = fuzz::new_shared(|_| {});
    create(&shared, &["a"]);
    let directory = shared.directory();
    let new = |name: &str| {
        let mut session = fuzz::new_session(&directory, false, true);
        session.access.home = Arc::clone(&directory.spaces[name]);
        session
    };
    let all = b"watch fetchers mutations connevents evictions\r\n";
    let mut watching: Vec<_> = (0..20).map(|_| new("a")).collect();
    for session in &mut watching {
        assert_eq!(feed(session, &shared, all), b"OK\r\n");
    }
    let full = b"SERVER_ERROR too many clients watch\r\n";
    assert_eq!(feed(&mut new("a"), &shared, all), full);
    let mut admin = fuzz::new_session(&directory, true, true);
    assert_eq!(feed(&mut admin, &shared, all), b"OK\r\n");
    drop(admin);
    let requests = b"set k 0 0 1\r\nv\r\nget k\r\nmg k v\r\nincr k 1\r\n";
    let told = |session: &mut Session| {
        let before = watch::tests::TOLD.get();
        feed(session, &shared, requests);
        watch::tests::TOLD.get() - before
    };
    assert_eq!((told(&mut new("a")), told(&mut new(""))), (4, 0));
    assert_eq!(feed(&mut new(""), &shared, all), b"OK\r\n");
    // Telling them counts as work.
    let requests_of_a_turn = |session: &mut Session| {
        let request = "mg none q\r\n";
        let (_, used, _) = turn(session, &shared, request.repeat(4000).as_bytes());
        used / request.len()
    };
    assert!(requests_of_a_turn(&mut new("a")) < 1024 * 2 / 3);
    // They are forgotten as they leave.
    watching.clear();
    assert_eq!(told(&mut new("a")), 0);
    assert_eq!(requests_of_a_turn(&mut new("a")), 1000);
    assert_eq!(feed(&mut new("a"), &shared, all), b"OK\r\n");
}

/// Gives each of these prefixes to the tenant of that name.
fn give_prefixes(shared: &Shared, prefixes: &[(&str, &str)]) {
    shared.change(|directory| {
        directory.follow(&shared.store, 1);
        let of = |&(prefix, name): &(&str, &str)| {
            let space = Arc::clone(&directory.spaces[name]);
            (prefix.into(), space)
        };
        directory.set_prefixes(prefixes.iter().map(of).collect());
    });
}

/// A prefix that goes and comes would bring back what was overwritten and deleted meanwhile.
#[test]
fn a_key_whose_tenant_changes_is_not_found_with_an_old_value() {
    let shared = fuzz::new_shared(|_| {});
    create(&shared, &["a", "b"]);
    let give = |prefixes: &[(&str, &str)]| give_prefixes(&shared, prefixes);
    let mut session = fuzz::new_session(&shared.directory(), false, true);
    let mut ask = |request: &str, answer: &str| {
        let got = feed(&mut session, &shared, request.as_bytes());
        assert_eq!(String::from_utf8_lossy(&got), answer, "{request}");
    };
    let get = "get s:1 s:x:1 t:1\r\n";
    let found = |keys: &[&str]| {
        let item = |key: &&str| format!("VALUE {key} 0 1\r\nv\r\n");
        keys.iter().map(item).collect::<String>() + "END\r\n"
    };
    let fill = "set s:1 0 0 1\r\nv\r\nset s:x:1 0 0 1\r\nv\r\nset t:1 0 0 1\r\nv\r\n";
    let filled = "STORED\r\n".repeat(3);
    give(&[("t:", "a")]);
    ask(fill, &filled);
    // To a tenant, to another one, to the default one, and back to each.
    for [to_s, to_x] in [
        ["a", "a"],
        ["b", "a"],
        ["b", "b"],
        ["a", ""],
        ["", "b"],
        ["", ""],
        ["a", "b"],
    ] {
        let to = [("t:", "a"), ("s:", to_s), ("s:x:", to_x)];
        let given: Vec<_> = to
            .into_iter()
            .filter(|(_, name)| !name.is_empty())
            .collect();
        give(&given);
        ask(get, &found(&["t:1"]));
        ask(fill, &filled);
        // A change that is about other keys.
        give(&[&given[..], &[("u:", "b")]].concat());
        give(&given);
        ask(get, &found(&["s:1", "s:x:1", "t:1"]));
        give(&[("t:", "a"), ("s:", "b"), ("s:x:", "a")]);
        give(&[("t:", "a")]);
        ask(get, &found(&["t:1"]));
    }
    // A prefix that goes with its tenant.
    ask(fill, &filled);
    give(&[("t:", "a"), ("s:", "b")]);
    shared.store.delete_tenant("b").unwrap();
    shared.change(|directory| directory.follow_tenant(&shared.store, "b", 1));
    ask(get, &found(&["t:1"]));
}

/// It would be answered as stored, and not be found.
#[test]
fn a_value_on_its_way_to_a_tenant_that_has_lost_its_key_is_not_stored() {
    let shared = fuzz::new_shared(|_| {});
    create(&shared, &["a", "b"]);
    give_prefixes(&shared, &[("s:", "a"), ("t:", "a")]);
    let new = || fuzz::new_session(&shared.directory(), false, true);
    let (mut lost, mut kept) = (new(), new());
    feed(&mut lost, &shared, b"set s:1 0 0 10\r\n01234");
    feed(&mut kept, &shared, b"set t:1 0 0 10\r\n01234");
    give_prefixes(&shared, &[("s:", "b"), ("t:", "a")]);
    assert_eq!(feed(&mut lost, &shared, b"56789\r\n"), b"");
    assert_eq!(lost.close, Some(Close::Shutdown));
    assert_eq!(feed(&mut kept, &shared, b"56789\r\n"), b"STORED\r\n");
}

/// A login moves a client from those that have not logged in to its tenant.
#[test]
fn a_tenant_beyond_its_share_takes_no_place_that_is_kept_for_others() {
    let shared = fuzz::new_shared(|settings| settings.max_connections = 8);
    shared.store.create_tenant("a").unwrap();
    shared.change(|directory| {
        directory.follow(&shared.store, 1);
        directory.homes = 2;
    });
    change_users(&shared, |user| {
        (user.tenant, user.admin) = ("a".into(), false);
    });
    let totals = &shared.totals;
    let take = |taken| Place::take(taken, |_| true).unwrap();
    let mut others: Vec<_> = (0..6).map(|_| take(&totals.known)).collect();
    let clients = Arc::clone(&shared.directory().spaces["a"].clients);
    let number = || clients.load(Ordering::Relaxed);
    let login = || {
        let mut session = fuzz::new_session(&shared.directory(), false, false);
        let answer = feed(&mut session, &shared, b"set k 0 0 3\r\nu p\r\n");
        (session, String::from_utf8(answer).unwrap())
    };
    let sessions: Vec<_> = (0..2).map(|_| login()).collect();
    assert!(sessions.iter().all(|(_, answer)| answer == "STORED\r\n"));
    assert_eq!(number(), 2);
    let (refused, answer) = login();
    assert_eq!(answer, "SERVER_ERROR too many clients of this tenant\r\n");
    assert_eq!((refused.close, number()), (Some(Close::Error), 2));
    others.truncate(3);
    let (last, answer) = login();
    assert_eq!((&*answer, number()), ("STORED\r\n", 3));
    // One that is given another tenant takes its place with it.
    change_users(&shared, |user| user.tenant = String::new());
    let (mut moved, _) = sessions.into_iter().next().unwrap();
    feed(&mut moved, &shared, b"mn\r\n");
    assert_eq!(number(), 1);
    drop(last);
    assert_eq!(number(), 0);
}

/// Without CAS values a flush takes what is stored in its second: when a value began to come does
/// not matter.
#[test]
fn a_value_is_stored_when_it_has_come_whole() {
    let shared = fuzz::new_shared(|settings| settings.cas = false);
    let new = || fuzz::new_session(&shared.directory(), false, true);
    let (mut before, mut after, mut flushes) = (new(), new(), new());
    let now = shared.store.now();
    let long = "x".repeat(50_000);
    for len in [5, long.len()] {
        let value = &long[..len];
        let head = |key| format!("set {key} 0 0 {len}\r\n");
        let end = format!("{value}\r\n");
        let at = |session: &mut Session, bytes: &str, now| {
            turn_at(session, &shared, bytes.as_bytes(), now).0
        };
        assert_eq!(at(&mut before, &head("before"), now), b"");
        assert_eq!(at(&mut flushes, "flush_all\r\n", now), b"OK\r\n");
        assert_eq!(at(&mut after, &head("after"), now), b"");
        assert_eq!(at(&mut before, &end, now), b"STORED\r\n");
        assert_eq!(at(&mut after, &end, now + 1), b"STORED\r\n");
        let there = |key: &str| {
            let space = &shared.directory().spaces[""];
            space.tenant.peek(key.as_bytes(), |item| item.value().len())
        };
        assert_eq!((there("before"), there("after")), (None, Some(len)));
    }
}

/// An item that is made for one that asks is taken by a flush of that second too.
#[test]
fn what_is_made_in_the_second_of_a_flush_goes_with_it() {
    let shared = fuzz::new_shared(|settings| settings.cas = false);
    let mut session = fuzz::new_session(&shared.directory(), false, true);
    let now = shared.store.now();
    let mut at = |bytes: &str, now| turn_at(&mut session, &shared, bytes.as_bytes(), now).0;
    let made = b"VA 0 t30 W\r\n\r\n";
    let ask = "mg k v N30 t\r\n";
    assert_eq!(at(ask, now), made);
    assert_eq!(at("flush_all\r\n", now), b"OK\r\n");
    for _ in 0..2 {
        assert_eq!(at(ask, now), made);
        assert_eq!(at("mg k v\r\n", now), b"EN\r\n");
    }
    // As what is counted up from nothing.
    assert_eq!(at("ma n N30 v\r\nmg n v\r\n", now), b"VA 1\r\n0\r\nEN\r\n");
    assert_eq!(at(ask, now + 1), made);
    assert_eq!(at("mg k v\r\n", now + 1), b"VA 0 Z\r\n\r\n");
}

/// A number is told with the time that it was stored with: the answer looks for no item.
#[test]
fn what_is_counted_is_no_read() {
    let (shared, mut session) = open();
    for (request, answer) in [
        ("ma n N-1 J5 t\r\n", "HD t0\r\n"),
        ("ma n N30 J5 t\r\n", "HD t30\r\n"),
        ("ma n t\r\n", "HD t30\r\n"),
        ("ma n T0 t\r\n", "HD t-1\r\n"),
        ("ma n T-1 t\r\n", "HD t0\r\n"),
    ] {
        let answered = feed(&mut session, &shared, request.as_bytes());
        assert_eq!(answered, answer.as_bytes(), "{request}");
    }
    let tenant = &shared.directory().spaces[""].tenant;
    assert_eq!(tenant.statistics().get_expired, 0);
}

/// As in memcached. `scripts/stillcache-differential` compares such requests, at random.
#[test]
fn meta_commands_do_what_they_do_in_memcached() {
    let (shared, mut session) = open();
    for (requests, answers) in [
        // Of times, the one counts that the flag finds.
        ("mg k t N30\r\n", "HD t-1 W\r\n"),
        ("mg k N30 t\r\n", "HD t30 W\r\n"),
        ("mg k N30 T60\r\nmg k t\r\n", "HD W\r\nHD t60 Z\r\n"),
        ("mg k T60 N30\r\nmg k t\r\n", "HD W\r\nHD t30 Z\r\n"),
        ("ma k T60 N30\r\nmg k t\r\n", "HD\r\nHD t30\r\n"),
        ("ma k N30 T60\r\nmg k t\r\n", "HD\r\nHD t60\r\n"),
        ("ms k 0\r\n\r\nmg k R30 T20\r\n", "HD\r\nHD\r\n"),
        ("ms k 0\r\n\r\nmg k T20 R30\r\n", "HD\r\nHD W\r\n"),
        // What makes an item, or touches it, has used it.
        ("mg k N30\r\nmg k h\r\n", "HD W\r\nHD h1 Z\r\n"),
        ("mg k N30 u\r\nmg k h\r\n", "HD W\r\nHD h0 Z\r\n"),
        (
            "ms k 0\r\n\r\ntouch k 9\r\nmg k h\r\n",
            "HD\r\nTOUCHED\r\nHD h1\r\n",
        ),
        ("touch k 9\r\n", "NOT_FOUND\r\n"),
        // CAS values of what is not there, or is no number.
        ("ms k 0 C5 MA\r\n\r\nms k 0 C5 MP\r\n\r\n", "NS\r\nNS\r\n"),
        ("ms k 0 C5 MR\r\n\r\nms k 0 C5\r\n\r\n", "NF\r\nNF\r\n"),
        ("ms k 1\r\n5\r\nma k C0 v\r\n", "HD\r\nVA 1\r\n6\r\n"),
        (
            "ms k 0\r\n\r\nma k C5\r\n",
            "HD\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
        ),
        ("ms k 1\r\nx\r\nma k C5\r\n", "HD\r\nEX\r\n"),
        ("me\r\n", "CLIENT_ERROR bad command line format\r\n"),
    ] {
        let answer = feed(&mut session, &shared, requests.as_bytes());
        assert_eq!(feed(&mut session, &shared, b"flush_all\r\n"), b"OK\r\n");
        assert_eq!(String::from_utf8_lossy(&answer), answers, "{requests}");
    }
}

/// What one admin sets is not lost to what another one sets at the same time.
#[test]
fn settings_of_two_admins_are_both_kept() {
    let shared = fuzz::new_shared(|_| {});
    let set = |word: &str, is_kept: fn(Search, u32) -> bool| {
        let mut session = fuzz::new_session(&shared.directory(), true, true);
        for number in 1..20_000 {
            let request = format!("lru_crawler {word} {number}\r\n");
            assert_eq!(feed(&mut session, &shared, request.as_bytes()), b"OK\r\n");
            let search = shared.store.search();
            assert!(is_kept(search, number), "{word} {number}: {search:?}");
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| set("tocrawl", |search, number| search.most == number));
        scope.spawn(|| {
            set("sleep", |search, number| {
                search.rest.as_micros() == number.into()
            });
        });
    });
}

#[test]
fn one_that_watches_loses_what_its_user_loses() {
    let shared = fuzz::new_shared(|_| {});
    let mut session = login(&shared);
    assert_eq!(feed(&mut session, &shared, b"watch\r\n"), b"OK\r\n");
    let watcher = Arc::clone(session.watcher().unwrap());
    let taken = || {
        let mut lines = Vec::new();
        watcher.take(&mut lines);
        String::from_utf8(lines).unwrap()
    };
    let tell = || {
        shared
            .watchers
            .tell(watch::FETCHERS, None, "x", |line| line.push(b'x'));
    };
    tell();
    assert!(taken().ends_with(" gid=1 type=x x\n"));
    tell();
    change_users(&shared, |user| user.admin = false);
    session.follow(&shared.directory());
    tell();
    assert_eq!(taken(), "");
    shared.change(|directory| directory.users = Users::default());
    session.follow(&shared.directory());
    assert_eq!(session.close, Some(Close::Shutdown));
}

/// Another value of the tenant ends one of which some has arrived: the next bytes are answered with
/// an error, the rest is skipped, and the old value is deleted.
#[test]
fn a_value_that_is_ended_while_it_arrives_is_skipped() {
    let (shared, mut session) = open();
    let mut other = fuzz::new_session(&shared.directory(), false, true);
    let space = Arc::clone(&shared.directory().spaces[""]);
    // A quarter of it is less than both values take.
    space.tenant.set_limits(Limits::max(320 << 10));
    let long = [b'y'; 90_000];
    let arrives = |session: &mut Session, bytes: &[u8]| feed(session, &shared, bytes);
    let direct = |session: &mut Session| {
        session.direct(|rest| {
            rest[..10_000].fill(b'y');
            Ok::<_, ()>(10_000)
        })
    };
    for _ in 0..2 {
        assert_eq!(
            arrives(&mut session, b"set k 0 0 1\r\nx\r\n"),
            b"STORED\r\n"
        );
        assert_eq!(arrives(&mut session, b"set k 0 0 50000\r\n"), b"");
        assert_eq!(arrives(&mut session, &long[..20_000]), b"");
        assert_eq!(arrives(&mut other, b"set o 0 0 80000\r\n"), b"");
        assert_eq!(arrives(&mut other, &long[..70_000]), b"");
        assert_eq!(direct(&mut session), None);
        let answer = arrives(&mut session, &long[..10_000]);
        assert_eq!(answer, b"SERVER_ERROR out of memory storing object\r\n");
        assert_eq!(arrives(&mut session, &long[..19_999]), b"");
        assert_eq!(arrives(&mut session, b"y\r\nget k\r\n"), b"END\r\n");
        assert_eq!(direct(&mut other), Some(Ok(10_000)));
        assert_eq!(arrives(&mut other, b"\r\n"), b"STORED\r\n");
    }
}

/// As memcached 1.6.18 answers and counts.
#[test]
fn details_are_those_of_memcached() {
    let (shared, mut session) = open();
    let mut ask = |request: &str| {
        let answer = feed(&mut session, &shared, request.as_bytes());
        String::from_utf8(answer).unwrap()
    };
    for (request, answer) in [
        // There is nothing to compare with.
        ("ms n 1 ME C5\r\nx\r\n", "HD\r\n"),
        ("ms n 1 ME C5\r\nx\r\n", "NS\r\n"),
        // `I` is about values that are replaced, and about CAS values that an item could have had.
        ("ms n 1 MA C1 I\r\ny\r\n", "EX\r\n"),
        ("ms n 1 I C0\r\ny\r\n", "EX\r\n"),
        ("ms n 1 I C1\r\ny\r\n", "HD\r\n"),
        ("ms none 1 MR C1\r\ny\r\n", "NF\r\n"),
        // A CAS value of 0 compares nothing where a value is appended.
        ("ms n 1 MA C0\r\nz\r\n", "HD\r\n"),
        ("ms n 1 MP C0\r\nx\r\n", "HD\r\n"),
        ("ms none 1 MA C0\r\nz\r\n", "NS\r\n"),
        ("get n\r\n", "VALUE n 0 3\r\nxyz\r\nEND\r\n"),
        ("ms n 1\r\ny\r\n", "HD\r\n"),
        ("get n\r\n", "VALUE n 0 1\r\ny\r\nEND\r\n"),
        ("ma m N0 q\r\nma m q\r\n", "HD\r\n"),
        ("gat 0\r\n", "END\r\n"),
        ("gat\r\n", "ERROR\r\n"),
        ("set w 0 0 6\r\n 5 abc\r\nincr w 1\r\n", "STORED\r\n6\r\n"),
        ("stats cachedump 2 0\r\n", "END\r\n"),
        (
            "stats cachedump 64 0\r\n",
            "CLIENT_ERROR Illegal slab id\r\n",
        ),
    ] {
        assert_eq!(ask(request), answer, "{request}");
    }
    let large = format!("set large 0 0 200000\r\n{}\r\n", "x".repeat(200_000));
    for (request, counts) in [
        ("gat 9 n\r\n", "cmd_touch touch_hits"),
        ("gat 9 none\r\n", "cmd_touch touch_misses"),
        ("mg n T9\r\n", "cmd_meta cmd_touch touch_hits"),
        ("mg none T9\r\n", "cmd_meta cmd_get get_misses"),
        ("ms n 1 MA C1\r\ny\r\n", "cmd_set"),
        ("ms n 1 MP C1\r\ny\r\n", "cmd_set"),
        ("ms n 1 MR C1\r\ny\r\n", "cmd_set cas_badval"),
        ("ms none 1 C1\r\ny\r\n", "cmd_set cas_misses"),
        ("mg n\r\n", "cmd_meta cmd_get get_hits"),
        ("mg made N9\r\n", "cmd_meta cmd_get get_hits"),
        ("ma made2 N9\r\n", ""),
        ("incr none 1\r\n", "incr_misses"),
        ("set n 0 0 1\r\nxyz\r\n", "cmd_set"),
        (&large, "store_too_large"),
    ] {
        ask("stats reset\r\n");
        ask(request);
        let stats = ask("stats\r\n");
        let counted = |name: &&str| stats.contains(&format!("STAT {name} 1\r\n"));
        let names = "cmd_get get_hits get_misses cmd_touch touch_hits touch_misses cmd_set
            cmd_meta incr_hits incr_misses cas_hits cas_misses cas_badval store_too_large";
        let counted: Vec<_> = names.split_whitespace().filter(counted).collect();
        let mut expected: Vec<_> = counts.split_whitespace().collect();
        expected.sort_by_key(|name| names.find(name));
        assert_eq!(counted, expected, "{request:.20}");
    }
}

/// With a CAS value too, which a binary `add` compares.
#[test]
fn a_refused_add_deletes_nothing() {
    let shared = fuzz::new_shared(|_| {});
    let mut text = fuzz::new_session(&shared.directory(), false, true);
    let mut binary = fuzz::new_session(&shared.directory(), false, true);
    let shown = feed(&mut text, &shared, b"ms k 1 c\r\nx\r\n");
    let cas = std::str::from_utf8(&shown[4..]).unwrap().trim_end();
    let cas: u64 = cas.parse().unwrap();
    let value = [b'y'; 200_000];
    for (cas, answer) in [(0, 2), (cas, 3), (cas + 1, 2)] {
        let mut add = vec![0x80, 2, 0, 1, 8, 0, 0, 0];
        add.extend_from_slice(&(9 + value.len() as u32).to_be_bytes());
        add.extend_from_slice(&[0; 4]);
        add.extend_from_slice(&u64::to_be_bytes(cas));
        add.extend_from_slice(&[0; 8]);
        add.push(b'k');
        add.extend_from_slice(&value);
        assert_eq!(feed(&mut binary, &shared, &add)[6..8], [0, answer]);
        let found = feed(&mut text, &shared, b"get k\r\n");
        assert_eq!(found, b"VALUE k 0 1\r\nx\r\nEND\r\n");
    }
}

#[test]
fn the_limit_of_a_tenants_clients_is_their_tenants() {
    let shared = fuzz::new_shared(|_| {});
    create(&shared, &["a"]);
    let space = Arc::clone(&shared.directory().spaces["a"]);
    space.tenant.set_limits(Limits::max(5 << 20));
    for (admin, limit) in [(false, 5 << 20), (true, shared.store.limit())] {
        let mut session = fuzz::new_session(&shared.directory(), admin, true);
        session.access.home = Arc::clone(&space);
        let stats = String::from_utf8(feed(&mut session, &shared, b"stats\r\n")).unwrap();
        assert!(stats.contains(&format!("STAT limit_maxbytes {limit}\r\n")));
    }
}
