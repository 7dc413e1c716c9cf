//! The statistics page where the system refuses something, and in the child of a fork.
//!
//! Every test that publishes runs in a separate process.
#![cfg(all(target_os = "linux", not(miri)))]

mod common;

use common::{
    Reader, apart, filter,
    forking::fork,
    limit,
    page::{assert_same, domain, pages, seen, shown, work},
};
use std::{
    fs::{self, File},
    io::Read,
    os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd},
    panic::{self, AssertUnwindSafe},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};
use stillpoint::{Domain, publish_statistics};

/// Returns the number of the page's descriptor.
fn number_of_page() -> i32 {
    let open = fs::read_dir("/proc/self/fd").expect("there is /proc");
    let of_page = open.filter_map(|entry| {
        let entry = entry.ok()?;
        let to = fs::read_link(entry.path()).ok()?;
        let is_page = to.to_string_lossy().starts_with("/memfd:stillpoint-stats");
        is_page.then(|| {
            entry
                .file_name()
                .to_string_lossy()
                .parse()
                .expect("a number")
        })
    });
    let numbers: Vec<_> = of_page.collect();
    assert_eq!(numbers.len(), 1);
    numbers[0]
}

#[test]
fn without_descriptors_the_program_goes_on_and_is_told() {
    apart!();
    let domain = Domain::new();
    let limit = |most| limit(libc::RLIMIT_NOFILE, most);
    limit(3);
    let error = publish_statistics().expect_err("all descriptors are taken");
    assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
    work(&domain);
    limit(100);
    assert!(pages().is_empty());
    publish_statistics().expect("and now they are not");
    assert_eq!(seen().things.len(), 2);
}

/// Growing a file past the limit would end the process.
#[test]
fn a_limit_of_file_sizes_ends_no_process() {
    apart!();
    limit(libc::RLIMIT_FSIZE, 4096);
    let error = publish_statistics().expect_err("it does not fit");
    assert_eq!(error.raw_os_error(), Some(libc::EFBIG));
    assert!(pages().is_empty(), "no descriptor is left");
}

#[test]
fn a_filter_that_hides_the_limits_is_no_limit() {
    apart!();
    filter::deny(libc::SYS_prlimit64, None, libc::EPERM);
    publish_statistics().expect("the system has memory files");
    assert_eq!(pages().len(), 1);
}

#[test]
fn a_forks_child_has_a_page_of_its_own() {
    apart!();
    publish_statistics().expect("the system has memory files");
    let domain = Domain::builder().name("both").build();
    // With a reader, so that a wait is no mere look at the owners.
    let reader = Reader::enter(&domain);
    reader.leave();
    work(&domain);
    let before = shown("both");
    let (parent, theirs) = (seen().pid, domain.clone());
    fork(move || {
        let page = seen();
        assert_eq!(page.pid, u64::from(std::process::id()));
        assert_ne!(page.pid, parent);
        assert_eq!(shown("both").made, before.made, "its counts are as old");
        let mine = shown("both").number_of("grace_periods");
        assert!(mine >= before.number_of("grace_periods"), "as it was");
        assert_eq!(shown("both").number_of("unreclaimed_bytes"), 0);
        for _ in 0..100 {
            theirs.cond_synchronize(theirs.start_poll());
        }
        assert!(
            shown("both").number_of("grace_periods") > mine,
            "it counts here"
        );
        let child = Domain::builder().name("child").build();
        assert_eq!(shown("child").number_of("grace_periods"), 0);
        fork(move || {
            assert_eq!(seen().pid, u64::from(std::process::id()));
            assert_eq!(pages().len(), 1);
            drop(child);
        })
        .well();
    })
    .well();
    assert_same("both", &domain);
    assert_eq!(seen().pid, parent);
    assert!(self::domain(&seen(), "child").is_none());
}

/// The child then has none, and does not write to its parent's.
#[test]
fn a_forks_child_without_a_page_leaves_the_parents_alone() {
    apart!();
    publish_statistics().expect("the system has memory files");
    let domain = Domain::builder().name("both").build();
    let reader = Reader::enter(&domain);
    reader.leave();
    let theirs = domain.clone();
    limit(libc::RLIMIT_FSIZE, 4096);
    fork(move || {
        assert!(pages().is_empty());
        for _ in 0..100 {
            theirs.cond_synchronize(theirs.start_poll());
        }
        assert!(theirs.statistics().grace_periods > 0);
        let error = publish_statistics().expect_err("it is not published");
        assert_eq!(error.raw_os_error(), Some(libc::EFBIG));
        limit(libc::RLIMIT_FSIZE, libc::RLIM_INFINITY);
        // Its own child may have one.
        let both = theirs.clone();
        fork(move || {
            publish_statistics().expect("it has a page");
            assert_same("both", &both);
        })
        .well();
    })
    .well();
    assert_eq!(shown("both").number_of("grace_periods"), 0);
}

/// A program that has closed its standard input would read the page there.
#[test]
fn the_page_is_no_standard_descriptor() {
    apart!();
    // SAFETY: std does not use it here.
    assert_eq!(unsafe { libc::close(0) }, 0);
    publish_statistics().expect("the system has memory files");
    assert!(number_of_page() > 2);
    fork(|| assert!(number_of_page() > 2)).well();
}

/// A program that becomes a daemon closes all that it does not know, and opens its own.
#[test]
fn a_descriptor_that_the_program_has_closed_is_not_closed_again() {
    apart!();
    publish_statistics().expect("the system has memory files");
    let number = number_of_page();
    let other = File::open("/proc/self/comm").expect("there is /proc");
    // SAFETY: the page's, which is ours to close as a program may; and then `other`, which is open.
    let own = unsafe {
        assert_eq!(libc::close(number), 0);
        assert_eq!(libc::dup2(other.as_raw_fd(), number), number);
        OwnedFd::from_raw_fd(number)
    };
    fork(move || {
        let (mut name, mut file) = (String::new(), File::from(own));
        file.read_to_string(&mut name).expect("it is still open");
        assert!(name.starts_with("statistics_page"), "{name}");
        assert_eq!(pages().len(), 1, "another number");
        let _ = file.into_raw_fd();
    })
    .well();
}

/// The parent's has its number free again.
#[test]
fn a_forks_child_without_descriptors_has_a_page() {
    apart!();
    publish_statistics().expect("the system has memory files");
    let number = number_of_page();
    limit(libc::RLIMIT_NOFILE, number as libc::rlim_t + 2);
    let filled: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    fork(move || {
        drop(filled);
        assert_eq!(number_of_page(), number);
        limit(libc::RLIMIT_NOFILE, 100);
        assert_eq!(seen().pid, u64::from(std::process::id()));
    })
    .well();
}

/// Its parent goes on counting while the page is copied, and makes and drops domains.
#[test]
fn a_forks_child_has_the_values_of_the_fork() {
    apart!();
    publish_statistics().expect("the system has memory files");
    let busy = Domain::builder().name("busy").build();
    let over = AtomicBool::new(false);
    let is_over = || over.load(Ordering::Relaxed);
    thread::scope(|scope| {
        let ended = scope.spawn(|| {
            while !is_over() {
                busy.cond_synchronize(busy.start_poll());
            }
        });
        scope.spawn(|| {
            while !is_over() {
                drop(Domain::builder().name("comes and goes").build());
            }
        });
        let forked = panic::catch_unwind(AssertUnwindSafe(|| {
            for _ in 0..100 {
                let theirs = busy.clone();
                fork(move || {
                    assert_same("busy", &theirs);
                    let page = seen();
                    assert!(page.things.len() <= 3 && page.changing == 0, "{page:?}");
                    let own = Domain::builder().name("own").build();
                    assert_same("own", &own);
                    theirs.cond_synchronize(theirs.start_poll());
                    assert_same("busy", &theirs);
                    std::mem::forget((theirs, own));
                })
                .well();
            }
        }));
        over.store(true, Ordering::Relaxed);
        ended.join().expect("it does not panic");
        assert!(forked.is_ok());
    });
}

/// A server that forks its workers first.
#[test]
fn a_forks_child_publishes_what_its_parent_has_made() {
    apart!();
    let early = Domain::builder().name("early").build();
    drop(stillpoint::read_lock());
    work(&early);
    fork(move || {
        assert!(pages().is_empty());
        publish_statistics().expect("the system has memory files");
        assert_eq!(seen().things.len(), 2, "the global domain, and this");
        assert_same("early", &early);
    })
    .well();
}

#[test]
fn a_filter_that_refuses_memory_files_is_an_error() {
    apart!();
    filter::deny(libc::SYS_memfd_create, None, libc::EPERM);
    let error = publish_statistics().expect_err("the filter refuses it");
    assert_eq!(error.raw_os_error(), Some(libc::EPERM));
    work(&Domain::new());
    assert!(pages().is_empty());
}

/// Where the system has no memory for a block, a store into it would end the process.
#[test]
fn a_thing_for_which_there_is_no_memory_is_refused() {
    apart!();
    publish_statistics().expect("the system has memory files");
    let populate = libc::MADV_POPULATE_WRITE as u32;
    filter::deny(libc::SYS_madvise, Some((2, populate)), libc::EFAULT);
    let domain = Domain::builder().name("refused").build();
    work(&domain);
    let page = seen();
    assert_eq!((page.refused, page.things.len()), (1, 1));
    let theirs = domain.clone();
    fork(move || {
        let error = publish_statistics().expect_err("there is no memory for the child's");
        assert_eq!(error.raw_os_error(), Some(libc::ENOMEM));
        assert!(pages().is_empty());
        theirs.cond_synchronize(theirs.start_poll());
    })
    .well();
}

#[test]
fn without_memory_there_is_no_page() {
    apart!();
    let populate = libc::MADV_POPULATE_WRITE as u32;
    filter::deny(libc::SYS_madvise, Some((2, populate)), libc::EFAULT);
    let error = publish_statistics().expect_err("there is no memory");
    assert_eq!(error.raw_os_error(), Some(libc::ENOMEM));
    assert!(pages().is_empty(), "no descriptor is left");
}
