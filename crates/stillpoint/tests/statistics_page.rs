//! The statistics page, as another process sees it: found in `/proc/self/fd`, and read with `pread`.
//!
//! Every test that publishes runs in a separate process.
#![cfg(all(target_os = "linux", not(miri)))]

mod common;

use common::{
    CHILD, Reader, apart, eventually, in_environments, is_child,
    page::{assert_same, domain, page, pages, seen, shown, times, work},
    retire,
};
use proptest::prelude::*;
use std::{
    fs::File,
    io,
    os::{fd::AsRawFd, unix::fs::FileExt},
    panic::{self, AssertUnwindSafe},
    sync::OnceLock,
    thread,
    time::Duration,
};
use stillpoint::{Domain, publish_statistics};
use stillpoint_platform::stats::{
    layout::{self, MAGIC, WORD, head, slot},
    read::{self, Error, Page, ReadAt},
};

#[test]
fn a_domain_is_in_the_page_while_it_exists() {
    apart!();
    assert!(pages().is_empty(), "only for those that ask for it");
    publish_statistics().expect("the system has memory files");
    publish_statistics().expect("again does nothing");
    let before = seen();
    assert_eq!(before.pid, u64::from(std::process::id()));
    assert!(before.made > 0 && before.refused == 0 && before.changing == 0);
    assert!(domain(&before, "global").is_some());
    let routes = Domain::builder().name("routes").budget(1 << 20).build();
    assert_eq!(shown("routes").number_of("budget_bytes"), 1 << 20);
    let reader = Reader::enter(&routes);
    reader.leave();
    work(&routes);
    let thing = shown("routes");
    assert!(thing.number_of("grace_periods") > 0 && thing.number_of("objects_freed") > 0);
    assert_same("routes", &routes);
    routes.set_budget(2 << 20);
    assert_eq!(shown("routes").number_of("budget_bytes"), 2 << 20);
    drop(routes);
    eventually(|| domain(&seen(), "routes").is_none());
    // Its slot and its block are used again, from zero, once the threads that know it have gone.
    let other = Domain::builder().name("other").build();
    assert_eq!(seen().things.len(), 2, "the global domain, and this");
    assert_eq!(shown("other").number_of("grace_periods"), 0);
    assert_same("other", &other);
}

#[test]
fn what_has_happened_before_is_in_the_page() {
    apart!();
    let (domain, dropped) = (Domain::builder().name("early").build(), Domain::new());
    drop(dropped);
    work(&domain);
    publish_statistics().expect("the system has memory files");
    assert!(shown("early").number_of("grace_periods") > 0);
    assert_same("early", &domain);
    work(&domain);
    assert_same("early", &domain);
    assert_eq!(seen().things.len(), 2, "the global domain, and this");
}

/// A thread that has used it still has its memory.
#[test]
fn a_domain_that_was_dropped_before_is_not_in_the_page() {
    apart!();
    let domain = Domain::builder().name("dropped").build();
    drop(domain.read_lock());
    work(&domain);
    drop(domain);
    publish_statistics().expect("the system has memory files");
    eventually(|| seen().things.len() == 1);
    assert!(shown("global").number_of("budget_bytes") > 0);
}

/// While the process is stuck, only the stall is written.
#[test]
fn a_stalled_grace_period_shows_its_reader_and_since_when() {
    apart!();
    publish_statistics().expect("the system has memory files");
    let domain = Domain::builder().name("stuck").build();
    domain.set_stall_timeout(Duration::from_millis(20));
    for round in 1..3 {
        assert_eq!(shown("stuck").number_of("stalled_since"), 0);
        let theirs = domain.clone();
        let reader = Reader::inside("sleeper", move |stay| {
            let _guard = theirs.read_lock();
            stay();
        });
        domain.call(|| ());
        eventually(|| shown("stuck").number_of("stalled_since") > 0);
        let stuck = shown("stuck");
        assert_eq!(stuck.number_of("stalls"), round);
        let text = stuck.text_of("stall");
        assert!(
            text.contains("thread 'sleeper'") && text.contains("holds a guard"),
            "{text}"
        );
        reader.leave();
        domain.barrier();
        eventually(|| shown("stuck").number_of("stalled_since") == 0);
    }
}

#[test]
fn writers_that_are_held_back_are_counted() {
    apart!();
    publish_statistics().expect("the system has memory files");
    let domain = Domain::builder().name("full").budget(64 << 10).build();
    let reader = Reader::enter(&domain);
    eventually(|| {
        (0..1000).for_each(|_| retire(&domain, [0_u64; 16]));
        domain.statistics().waits > 1
    });
    let full = shown("full");
    assert!(full.number_of("unreclaimed_bytes") > 32 << 10, "{full:?}");
    // The service thread goes on to try; what it has counted it copies in its next pass.
    let statistics = domain.statistics();
    assert_eq!(full.number_of("waits"), statistics.waits);
    assert_eq!(times(&full, "wait_times"), statistics.wait_times.count());
    reader.leave();
    domain.kvfree_barrier();
    // What threads count for themselves is published by the service thread.
    eventually(|| shown("full").number_of("unreclaimed_bytes") < 8 << 10);
}

#[test]
fn the_environment_asks_for_it() {
    let name = "the_environment_asks_for_it";
    if is_child() {
        let _ = stillpoint::read_lock();
        println!("pages {}", pages().len());
        return;
    }
    for (value, expected) in [("on", 1), ("off", 0), ("", 0), ("nonsense", 0)] {
        let ended = in_environments(name, &[(CHILD, "1"), ("STILLPOINT_STATS", value)]);
        ended.well();
        assert!(
            ended.stdout.contains(&format!("pages {expected}")),
            "{value}: {ended:?}"
        );
        let said = ended.stderr.contains("STILLPOINT_STATS");
        assert_eq!(said, value == "nonsense", "{value}: {ended:?}");
    }
}

#[test]
fn other_descriptors_of_the_file_cannot_write_or_shorten_it() {
    apart!();
    publish_statistics().expect("the system has memory files");
    let page = page();
    let path = format!("/proc/self/fd/{}", page.as_raw_fd());
    let theirs = File::options().read(true).write(true).open(path);
    let theirs = theirs.expect("of the same user");
    let is_refused = |error: io::Error| error.raw_os_error() == Some(libc::EPERM);
    assert!(theirs.set_len(100).is_err_and(is_refused));
    assert!(theirs.set_len(1 << 30).is_err_and(is_refused));
    assert!(theirs.write_at(&[1], 0).is_err_and(is_refused));
    // SAFETY: asks.
    let seals = unsafe { libc::fcntl(page.as_raw_fd(), libc::F_GET_SEALS) };
    let expected = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    assert_eq!(seals & expected, expected);
    // Sparse: the head, the slots' first page, one block.
    use std::os::unix::fs::MetadataExt;
    let metadata = page.metadata().expect("it is open");
    assert_eq!(metadata.size(), layout::BYTES as u64);
    assert!(metadata.blocks() * 512 < 64 << 10, "{}", metadata.blocks());
}

#[test]
fn things_without_space_are_counted_and_work() {
    apart!();
    publish_statistics().expect("the system has memory files");
    let domains: Vec<_> = (0..layout::MOST_SLOTS + 10)
        .map(|_| Domain::new())
        .collect();
    let page = seen();
    assert_eq!(page.things.len(), layout::MOST_SLOTS);
    assert_eq!(page.refused, 11, "the global domain has one");
    domains.iter().for_each(Domain::synchronize);
    drop(domains);
    eventually(|| seen().things.len() == 1);
    let _again = Domain::builder().name("again").build();
    assert!(domain(&seen(), "again").is_some());
}

/// Things come and go on all threads while they are read.
#[test]
fn what_is_read_belongs_together() {
    apart!();
    publish_statistics().expect("the system has memory files");
    let page = page();
    let over = std::sync::atomic::AtomicBool::new(false);
    let is_over = || over.load(std::sync::atomic::Ordering::Relaxed);
    thread::scope(|scope| {
        for name in ["a", "b"] {
            scope.spawn(move || {
                let name = name.repeat(80);
                while !is_over() {
                    drop(Domain::builder().name(&*name).build());
                }
            });
        }
        let looked = panic::catch_unwind(AssertUnwindSafe(|| {
            for _ in 0..2000 {
                let page = read::read(&page).expect("it is consistent");
                for thing in &page.things {
                    let first = thing.name.chars().next().expect("all have names");
                    let is_whole = thing.name.chars().all(|letter| letter == first);
                    assert!(is_whole || thing.name == "global", "{}", thing.name);
                }
            }
        }));
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(looked.is_ok());
    });
}

/// The bytes of a real page, as far as they are used.
fn real() -> &'static [u8] {
    static REAL: OnceLock<Vec<u8>> = OnceLock::new();
    REAL.get_or_init(|| {
        publish_statistics().expect("the system has memory files");
        let _domain = Domain::builder().name("routes").build();
        // The global domain, and this.
        let mut bytes = vec![0; layout::block_at(2) * WORD];
        let page = page();
        page.read_exact_at(&mut bytes, 0).expect("it is there");
        bytes
    })
}

fn with_word(at: usize, value: u64) -> Vec<u8> {
    let mut bytes = real().to_vec();
    bytes[at * WORD..][..WORD].copy_from_slice(&value.to_ne_bytes());
    bytes
}

#[test]
fn what_is_no_page_is_said_to_be_none() {
    let read = |bytes: &[u8]| read::read(bytes);
    assert!(read(real()).is_ok());
    assert!(matches!(read(&[]), Err(Error::Io(_))));
    assert!(matches!(read(&[0; 4096]), Err(Error::NotAPage)));
    assert!(matches!(
        read(&with_word(head::MAGIC, MAGIC + 1)),
        Err(Error::NotAPage)
    ));
    let other = read(&with_word(head::VERSION, 7));
    assert!(matches!(other, Err(Error::Version(7))));
    let message = other.expect_err("just looked").to_string();
    assert!(message.contains("version 7"), "{message}");
    let slots = layout::MOST_SLOTS as u64 + 1;
    let more = read(&with_word(head::SLOTS, slots));
    assert!(matches!(more, Err(Error::Slots(more)) if more == slots));
    let cut = &real()[..real().len() - WORD];
    assert!(
        matches!(read(cut), Err(Error::Io(_))),
        "a block that is not there"
    );
}

#[test]
fn texts_lose_what_a_terminal_would_obey() {
    let clean = read::clean;
    assert_eq!(clean("\u{1b}[2Jroutes\u{7}\n"), "?[2Jroutes??");
    assert_eq!(clean("a\u{202e}b\u{200b}c\u{9b}d"), "a?b?c?d");
    assert_eq!(clean("Grüße, 世界"), "Grüße, 世界");
}

/// A domain that changes all the time.
struct Restless;

impl ReadAt for Restless {
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        real().read_at(offset, bytes)?;
        let slot = ((layout::slot_at(0) + slot::SEQUENCE) * WORD) as u64;
        if offset == slot && bytes.len() == WORD {
            bytes.copy_from_slice(&1_u64.to_ne_bytes());
        }
        Ok(())
    }
}

#[test]
fn what_never_stands_still_is_left_out() {
    let (all, page) = (read::read(real()).expect("a page"), read::read(&Restless));
    let page = page.expect("a page");
    assert_eq!(page.changing, 1);
    assert_eq!(page.things, all.things[1..]);
}

/// The limits of what is read: of memory, and for a person.
fn assert_bounded(page: &Page) -> Result<(), TestCaseError> {
    prop_assert!(page.things.len() <= layout::MOST_SLOTS);
    for thing in &page.things {
        for text in [&thing.name, thing.text_of("stall")] {
            prop_assert!(text.len() <= 3 * 256 && !text.contains(char::is_control));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn a_hostile_page_is_refused_or_bounded(
        changes in prop::collection::vec(
            (
                prop_oneof![
                    0_usize..300,
                    0_usize..layout::BLOCKS_AT,
                    layout::BLOCKS_AT..layout::block_at(2),
                ],
                prop_oneof![any::<u64>(), 0_u64..2000, Just(u64::MAX), 1_000_000..1_100_000_u64],
            ),
            1..8,
        ),
        cut in prop::option::of(0_usize..200_000),
    ) {
        let mut bytes = real().to_vec();
        for (at, value) in changes {
            let word = bytes.chunks_exact_mut(WORD).nth(at);
            if let Some(word) = word {
                word.copy_from_slice(&value.to_ne_bytes());
            }
        }
        bytes.truncate(cut.unwrap_or(usize::MAX));
        if let Ok(page) = read::read(&bytes[..]) {
            assert_bounded(&page)?;
        }
    }
}
