//! What a person sees: each public type says in its Debug output what tells it from others of its kind, and each error what to do.

mod common;

use common::{Tally, panic_message};
use std::{error::Error as _, io, sync::Arc};
use stillpoint::{
    CallbackHead, Domain, Rcu, RcuOption,
    list_lru::{
        ChargeError, CreateError, DeleteError, Entry, Hierarchy, ListLru, PressureError, PressureWatch, TooManyShrinkers,
    },
    tasks_trace::TraceDomain,
};

/// `Domain { id: 7, ..` without its statistics: the number by which its readers name it.
fn number(domain: &Domain) -> String {
    let text = format!("{domain:?}");
    let (_, rest) = text.split_once("id: ").expect("it has a number");
    rest.split(',').next().expect("a number").to_owned()
}

#[test]
fn readers_name_their_domain() {
    let (one, two) = (Domain::new(), TraceDomain::default());
    assert_ne!(number(&one), number(&two));
    assert!(format!("{one:?}").contains("objects_pending: 0"), "{one:?}");
    let names = |shown: &str, kind: &str, domain: &Domain| {
        assert!(shown.starts_with(kind), "{shown}");
        assert!(shown.contains(&format!("domain: {}", number(domain))), "{shown}, in a domain {}", number(domain));
    };
    names(&format!("{:?}", one.read_lock()), "Guard", &one);
    names(&format!("{:?}", two.read_lock()), "Guard", &two);
    names(&format!("{:?}", two.read_lock_owned()), "OwnedGuard", &two);
    let mut reader = one.qsbr_reader();
    names(&format!("{reader:?}"), "QsbrReader", &one);
    assert!(format!("{reader:?}").contains("online: true"), "{reader:?}");
    names(&format!("{:?}", reader.offline()), "Offline", &one);
}

#[test]
fn waits_name_their_cookie() {
    let domain = Domain::new();
    let guard = domain.read_lock();
    let future = domain.synchronize_async();
    assert!(!domain.poll(future.cookie()), "the section holds it up");
    let shown = format!("{future:?}");
    assert!(shown.contains(&format!("{:?}", future.cookie())) && shown.contains(&number(&domain)), "{shown}");
    drop(guard);
    domain.cond_synchronize(future.cookie());
    assert!(domain.poll(future.cookie()));
}

#[test]
fn handles_of_the_same_are_equal_and_of_others_are_not() {
    let domain = Domain::new();
    assert_eq!(domain, domain.clone());
    assert_ne!(domain, Domain::default());
    let trace = TraceDomain::new();
    assert_eq!(trace.as_ref(), &*trace.clone());
    assert_ne!(trace, TraceDomain::with_fences());
    let (hierarchy, other) = (Hierarchy::new(), Hierarchy::default());
    let tenant = hierarchy.root().create().unwrap();
    assert_eq!(tenant.parent().as_ref(), Some(hierarchy.root()));
    assert_ne!(&tenant, hierarchy.root());
    assert_eq!(hierarchy, hierarchy.clone());
    assert_ne!(hierarchy, other);
}

#[test]
fn values_are_shown_where_they_can_be_seen() {
    let cell = RcuOption::new(String::from("limits"));
    let retired = cell.take().expect("just made");
    assert_eq!(format!("{retired:?}"), "Retired(\"limits\")");
    let entry = Arc::new(Entry::from(7));
    assert_eq!(format!("{entry:?}"), "Entry { value: 7, linked: false }");
    let lru = ListLru::default();
    assert!(lru.add(None, Arc::clone(&entry)));
    assert_eq!(format!("{entry:?}"), "Entry { value: 7, linked: true }");
    assert!(format!("{lru:?}").contains("count: 1"), "{lru:?}");
    // The list has one of the two references until it gives that up.
    assert_eq!(Arc::strong_count(&entry), 2);
    drop(lru.del(&entry));
    assert_eq!(Arc::into_inner(entry).map(Entry::into_inner), Some(7));
    assert_eq!(Entry::<u32>::default().into_inner(), 0);
    // What is queued is the queue's alone, so nothing of it is shown.
    assert_eq!(format!("{:?}", CallbackHead::default()), "CallbackHead { .. }");
}

#[test]
fn tenants_show_what_they_are_charged() {
    let hierarchy = Hierarchy::new();
    let tenant = hierarchy.root().create().unwrap();
    let charge = tenant.charge(4321).unwrap();
    assert!(format!("{charge:?}").contains("bytes: 4321"), "{charge:?}");
    assert!(format!("{tenant:?}").contains("usage: 4321"), "{tenant:?}");
    assert!(format!("{hierarchy:?}").contains("tenants: 2"), "{hierarchy:?}");
    let watch = format!("{:?}", PressureWatch::new("/run/pressure").target(65));
    assert!(watch.contains("/run/pressure") && watch.contains("target: Some(65)"), "{watch}");
}

#[test]
fn errors_say_what_to_do() {
    let over = ChargeError::OverLimit { requested: 5, usage: 98, max: 100 };
    let system = || io::Error::from_raw_os_error(libc::EACCES);
    let refused = PressureError::Refused { path: "/run/pressure".into(), source: system() };
    let errors: [(&dyn std::error::Error, &[&str]); 14] = [
        (&over, &["5", "98", "100", "free something or raise the limit"]),
        (&ChargeError::InSection, &["inside a read-side critical section", "charge outside of it"]),
        (&ChargeError::InShrinker, &["a shrinker cannot reclaim for itself", "charge outside of it"]),
        (&ChargeError::TooLarge, &["at most"]),
        (&ChargeError::NoTenant, &["0 bytes", "make a new one"]),
        (&CreateError::ParentDeleted, &["create the tenant below one that has not"]),
        (&CreateError::OutOfMemory, &["free some, or delete other tenants"]),
        (&DeleteError::Root, &["last handle"]),
        (&DeleteError::HasChildren, &["delete them first"]),
        (&TooManyShrinkers, &["1024"]),
        (&PressureError::Payload, &["base64"]),
        (&PressureError::Kind("/etc".into()), &["/etc", "FIFO or socket", "/dev/null"]),
        (&refused, &["/run/pressure", "Permission denied"]),
        (&PressureError::Thread(system()), &["no thread", "Permission denied"]),
    ];
    for (error, says) in errors {
        let text = error.to_string();
        says.iter().for_each(|part| assert!(text.contains(part), "no '{part}' in: {text}"));
        let cause = error.source().map(ToString::to_string);
        assert_eq!(cause.is_some(), text.contains("Permission denied"), "{text}");
    }
    assert!(refused.source().is_some_and(|source| source.is::<io::Error>()));
}

#[test]
fn a_budget_and_a_policy_are_what_was_set() {
    let domain = Domain::new();
    assert_eq!(domain.budget(), 8 << 20);
    domain.set_budget(123_456);
    assert_eq!(domain.budget(), 123_456);
    assert_eq!(Domain::new().budget(), 8 << 20, "another domain's is its own");
    // The functions of the crate are those of the global domain.
    let cookie = stillpoint::global().get_state();
    stillpoint::synchronize_expedited();
    assert!(stillpoint::global().poll(cookie));
}

#[test]
fn a_section_is_one_however_it_is_borrowed() {
    let (domain, other) = (Domain::new(), Domain::new());
    let tally = Tally::new();
    let cell = Rcu::new_in(&domain, tally.value(3));
    let guard = domain.read_lock();
    let by_reference = &&guard;
    assert_eq!(cell.load(by_reference).get(), 3);
    let stranger = other.read_lock();
    assert!(panic_message(|| cell.load(&&stranger).get()).contains("domain"));
}

#[cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]
mod vmap {
    use stillpoint::vmap::{Arena, Builder, Error};

    #[test]
    fn areas_show_where_they_are() {
        let arena = Builder::default().capacity(64 << 20).build().unwrap();
        let area = arena.alloc(5000, 1).unwrap();
        let at = format!("{:#x}", area.addr());
        let guard = arena.read_lock();
        let checked = arena.check(area.addr() + 1, 12, &guard).unwrap();
        for (shown, says) in [
            (format!("{area:?}"), [at.as_str(), "len: 5000"]),
            (format!("{checked:?}"), ["Checked", "len: 12"]),
            (format!("{arena:?}"), ["addresses: ", "areas: 1"]),
            (format!("{:?}", arena.reader(7..19)), ["Reader", "7..19"]),
        ] {
            says.iter().for_each(|part| assert!(shown.contains(part), "no '{part}' in: {shown}"));
        }
        assert_eq!(arena, arena.clone());
        assert_ne!(arena, Arena::new().unwrap());
    }

    #[test]
    fn every_error_says_what_to_do() {
        let system = |call, errno| Error::System { call, errno };
        let errors: [(Error, &[&str]); 18] = [
            (Error::ZeroSize, &["0 bytes", "ask for 1"]),
            (Error::BadAlign { align: 24 }, &["24", "power of two"]),
            (Error::TooLarge { size: 9, most: 8 }, &["9 bytes", "8 are the most", "split it up"]),
            (Error::AddressSpace { size: 5, capacity: 7, waiting: 0 }, &["5 bytes", "the arena's 7", "free some areas"]),
            (
                Error::AddressSpace { size: 5, capacity: 7, waiting: 3 },
                &["3 that have been freed wait", "drop the calling thread's guards"],
            ),
            (Error::PageSize { size: 65_536 }, &["65536", "4096"]),
            (Error::Forked, &["allocate in the parent"]),
            (Error::Overflow { addr: 0xFFF0, len: 77 }, &["77 bytes", "0xfff0", "check the length"]),
            (Error::NotLive { addr: 0x1234 }, &["0x1234", "Arena::describe"]),
            (Error::CrossesEnd { addr: 0x100, len: 0x20, end: 0x110 }, &["0x100", "0x110", "shorten the range by 16"]),
            (Error::NotAStart { addr: 0x1008, start: 0x1000 }, &["0x1008", "free its first address, 0x1000"]),
            (Error::InSection, &["drop the guard first"]),
            (system("mmap", libc::ENOMEM), &["mmap", "ulimit -v", "vm.max_map_count", "smaller capacity"]),
            (system("mprotect", libc::ENOMEM), &["mprotect", "vm.overcommit_memory"]),
            (system("madvise", libc::ENOMEM), &["madvise", "try again"]),
            (system("memfd_create", libc::EMFILE), &["memfd_create", "ulimit -n"]),
            (system("madvise", libc::EPERM), &["seccomp"]),
            (system("ftruncate", libc::EIO), &["ftruncate", "manual page"]),
        ];
        for (error, says) in errors {
            let text = error.to_string();
            says.iter().for_each(|part| assert!(text.contains(part), "no '{part}' in: {text}"));
        }
    }
}
