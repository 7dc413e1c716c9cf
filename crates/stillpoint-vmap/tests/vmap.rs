//! The address space: what is allocated is found, what is freed is not, and memory comes back.
#![cfg(all(target_os = "linux", not(miri)))]

#[path = "../../stillpoint/tests/common/mod.rs"]
mod common;

use common::{Reader, panic_message, returns};
use std::{io::Read, thread};
use stillpoint::Domain;
use stillpoint_vmap::{Arena, Description, Error};

const PAGE: usize = 4096;

fn arena() -> Arena {
    Arena::builder()
        .capacity(256 << 20)
        .build()
        .expect("address space")
}

/// Returns the value of the area's bytes, if it is found and they are all the same.
fn all_bytes(arena: &Arena, addr: usize, len: usize) -> Option<u8> {
    let mut bytes = vec![0; len];
    arena.copy_to(addr, &mut bytes).ok()?;
    bytes
        .iter()
        .all(|&byte| byte == bytes[0])
        .then_some(bytes[0])
}

#[test]
fn check_errors() {
    let arena = arena();
    let area = arena.alloc(5000, 1).unwrap();
    let (start, end) = (area.addr(), area.addr() + 5000);
    let guard = arena.read_lock();
    let check = |addr, len| {
        arena
            .check(addr, len, &guard)
            .map(|checked| (checked.addr(), checked.len()))
    };
    assert_eq!(check(start, 5000), Ok((start, 5000)));
    assert_eq!(check(end - 1, 1), Ok((end - 1, 1)));
    assert_eq!(
        check(start, 5001),
        Err(Error::CrossesEnd {
            addr: start,
            len: 5001,
            end
        })
    );
    assert_eq!(
        check(end - 1, 2),
        Err(Error::CrossesEnd {
            addr: end - 1,
            len: 2,
            end
        })
    );
    assert_eq!(check(start, 0), Err(Error::ZeroSize));
    assert_eq!(check(end, 0), Err(Error::ZeroSize));
    assert_eq!(check(end, 1), Err(Error::NotLive { addr: end }));
    for behind in [end + 1, start + 2 * PAGE - 1] {
        assert_eq!(check(behind, 1), Err(Error::NotLive { addr: behind }));
    }
    assert_eq!(check(start - 1, 2), Err(Error::NotLive { addr: start - 1 }));
    assert_eq!(
        check(start, usize::MAX),
        Err(Error::Overflow {
            addr: start,
            len: usize::MAX
        })
    );
    assert_eq!(
        check(start + 1, usize::MAX - start - 1),
        Err(Error::CrossesEnd {
            addr: start + 1,
            len: usize::MAX - start - 1,
            end
        })
    );
    assert_eq!(
        check(usize::MAX, 1),
        Err(Error::Overflow {
            addr: usize::MAX,
            len: 1
        })
    );
    assert!(
        check(start, 5001)
            .unwrap_err()
            .to_string()
            .contains("shorten the range by 1")
    );
}

#[test]
fn range_across_areas_is_refused() {
    // Without guards the two lie side by side.
    let arena = Arena::builder()
        .capacity(64 << 20)
        .guards(false)
        .build()
        .unwrap();
    let areas = [arena.alloc(PAGE, 1).unwrap(), arena.alloc(PAGE, 1).unwrap()];
    let start = areas.iter().map(|area| area.addr()).min().unwrap();
    assert_eq!(
        areas.iter().map(|area| area.addr()).max(),
        Some(start + PAGE)
    );
    let guard = arena.read_lock();
    let refused = Error::CrossesEnd {
        addr: start + PAGE - 8,
        len: 16,
        end: start + PAGE,
    };
    assert_eq!(
        arena.check(start + PAGE - 8, 16, &guard).err(),
        Some(refused)
    );
    assert_eq!(arena.copy_from(start + PAGE - 8, &[1; 16]), Err(refused));
    assert_eq!(
        all_bytes(&arena, start, PAGE),
        Some(0),
        "nothing was copied"
    );
}

#[test]
fn bad_sizes() {
    let arena = arena();
    assert_eq!(arena.alloc(0, 1).err(), Some(Error::ZeroSize));
    assert_eq!(arena.alloc(1, 0).err(), Some(Error::BadAlign { align: 0 }));
    assert_eq!(arena.alloc(1, 3).err(), Some(Error::BadAlign { align: 3 }));
    for size in [257 << 20, 1 << 60, usize::MAX] {
        assert!(
            matches!(arena.alloc(size, 1), Err(Error::TooLarge { .. })),
            "{size}"
        );
    }
    assert!(matches!(
        arena.alloc(1, 1 << 63),
        Err(Error::TooLarge { .. })
    ));
    assert!(matches!(
        Arena::builder().capacity(0).build(),
        Err(Error::ZeroSize)
    ));
    assert!(matches!(
        Arena::builder().capacity(usize::MAX).build(),
        Err(Error::TooLarge { .. })
    ));
    assert_eq!(
        (
            arena.copy_to(0, &mut []),
            arena.copy_from(0, &[]),
            arena.copy_between(0, 0, 0)
        ),
        (Ok(()), Ok(()), Ok(()))
    );
}

#[test]
fn alignment() {
    let arena = Arena::builder().capacity(1 << 30).build().unwrap();
    let mut kept = Vec::new();
    for shift in 0..=22 {
        for pages in [1, 3, 300] {
            for _ in 0..3 {
                let area = arena.alloc(pages * PAGE, 1 << shift).unwrap();
                assert!(area.addr().is_multiple_of(1 << shift), "{shift}");
                kept.push(area);
            }
            kept.swap_remove(kept.len() / 2);
        }
    }
}

#[test]
fn freed_area_is_not_found_and_reads_zero_when_reused() {
    let arena = arena();
    let area = arena.alloc(3 * PAGE, 1).unwrap();
    let addr = area.addr();
    area.copy_from(0, &[7; 3 * PAGE]).unwrap();
    drop(area);
    assert_eq!(arena.copy_to(addr, &mut [0]), Err(Error::NotLive { addr }));
    assert!(
        matches!(arena.describe(addr + PAGE), Description::Freed { start, .. } if start == addr)
    );
    arena.drain().unwrap();
    assert_eq!(arena.describe(addr), Description::Free);
    // SAFETY: accessible, and not in use.
    assert_eq!(unsafe { (addr as *const u8).read_volatile() }, 0);
    // All addresses, whichever pool the range went to.
    let whole = arena.alloc((256 << 20) - PAGE, 1).unwrap();
    assert!((whole.addr()..whole.addr() + whole.len()).contains(&addr));
    assert_eq!(all_bytes(&arena, addr, 3 * PAGE), Some(0));
}

#[test]
fn address_is_reused_after_readers_and_a_drain() {
    let arena = Arena::builder()
        .capacity(8 << 20)
        .lazy_limit(64 << 10)
        .build()
        .unwrap();
    let area = arena.alloc(PAGE, 1).unwrap();
    let addr = area.addr();
    area.copy_from(0, &[9; PAGE]).unwrap();
    let reader = Reader::enter(arena.domain());
    drop(area);
    // All addresses: many times the limit of what may wait.
    let mut held = Vec::new();
    let full = loop {
        let guard = arena.read_lock();
        match arena.alloc(PAGE, 1) {
            Ok(area) => {
                assert_ne!(area.addr(), addr, "in use again too early");
                held.push(area);
            }
            Err(error) => break error,
        }
        drop(guard);
    };
    assert!(
        matches!(full, Error::AddressSpace { waiting, .. } if waiting >= PAGE),
        "{full}"
    );
    assert!(full.to_string().contains("wait for readers"));
    assert_eq!(
        // SAFETY: accessible until its grace period has ended.
        unsafe { (addr as *const u8).read_volatile() },
        9,
        "its memory lives as long as the reader"
    );
    reader.leave();
    assert_eq!(
        arena.alloc(PAGE, 1).expect("the readers have left").addr(),
        addr
    );
}

/// Two domains wait for each other through two threads. The caller of an allocation does not expect a
/// wait for a grace period, so the allocation gives up.
#[test]
fn alloc_in_a_section_of_another_domain_times_out() {
    let (arena, other) = (
        Arena::builder().capacity(8 << 20).build().unwrap(),
        Domain::new(),
    );
    let whole = arena.alloc((8 << 20) - PAGE, 1).unwrap();
    let reader = Reader::enter(arena.domain());
    drop(whole);
    std::thread::scope(|scope| {
        let guard = other.read_lock();
        scope.spawn(|| {
            // The reader waits, too: for the section above.
            other.synchronize();
            reader.leave();
        });
        let full = arena.alloc((8 << 20) - PAGE, 1).unwrap_err();
        assert!(
            matches!(full, Error::AddressSpace { waiting, .. } if waiting > 0),
            "{full}"
        );
        drop(guard);
    });
    arena
        .alloc((8 << 20) - PAGE, 1)
        .expect("the reader has left");
}

#[test]
fn free_during_a_copy() {
    let arena = Arena::builder()
        .capacity(64 << 20)
        .lazy_limit(0)
        .build()
        .unwrap();
    for _ in 0..200 {
        let area = arena.alloc(4 * PAGE, 1).unwrap();
        area.copy_from(0, &[5; 4 * PAGE]).unwrap();
        let addr = area.addr();
        thread::scope(|scope| {
            let copier = scope.spawn(|| {
                let guard = arena.read_lock();
                let Ok(checked) = arena.check(addr, 4 * PAGE, &guard) else {
                    return;
                };
                let mut bytes = [0; 4 * PAGE];
                for _ in 0..4 {
                    checked.copy_to(&mut bytes);
                    assert!(bytes.iter().all(|&byte| byte == 5), "purged under a reader");
                }
            });
            drop(area);
            arena.shrink();
            copier.join().unwrap();
        });
    }
}

#[test]
fn free_rcu() {
    let arena = arena();
    let area = arena.alloc(PAGE, 1).unwrap();
    let addr = area.addr();
    let reader = Reader::enter(arena.domain());
    area.free_rcu();
    assert_eq!(
        all_bytes(&arena, addr, PAGE),
        Some(0),
        "readers of before can check it still"
    );
    reader.leave();
    arena.domain().kvfree_barrier();
    assert_eq!(arena.copy_to(addr, &mut [0]), Err(Error::NotLive { addr }));
    let other = Domain::new();
    arena.alloc(PAGE, 1).unwrap().free_rcu_in(&other);
    other.kvfree_barrier();
    assert_eq!(arena.statistics().areas, 0);
}

#[test]
fn area_keeps_the_arena() {
    let arena = arena();
    let area = arena.alloc(PAGE, 1).unwrap();
    drop(arena);
    area.copy_from(0, &[1; PAGE]).unwrap();
    area.free_rcu();
}

#[test]
fn double_free() {
    let arena = arena();
    let at = arena.alloc(3 * PAGE, 1).unwrap().into_raw().as_ptr();
    let addr = at.addr();
    // SAFETY: out of `into_raw`; what is no such address is what is tested.
    let free = |at: *mut u8| unsafe { arena.free_raw(at) };
    assert_eq!(
        free(at.wrapping_add(PAGE)),
        Err(Error::NotAStart {
            addr: addr + PAGE,
            start: addr
        })
    );
    assert_eq!(
        free(at.wrapping_sub(1 << 40)),
        Err(Error::NotLive {
            addr: addr.wrapping_sub(1 << 40)
        })
    );
    assert_eq!(free(at), Ok(()));
    assert_eq!(free(at), Err(Error::NotLive { addr }));
    assert_eq!(arena.statistics().areas, 0);
    // Of many at once, one succeeds.
    for _ in 0..50 {
        let at = arena.alloc(PAGE, 1).unwrap().into_raw().addr().get();
        // SAFETY: the same.
        let freed = || unsafe { arena.free_raw(at as *const u8) }.is_ok();
        let freed: usize = thread::scope(|scope| {
            let threads = [(); 3].map(|()| scope.spawn(freed));
            threads
                .map(|thread| usize::from(thread.join().unwrap()))
                .iter()
                .sum()
        });
        assert_eq!(freed, 1);
    }
    arena.drain().unwrap();
}

#[test]
fn address_space_exhaustion() {
    let arena = Arena::builder().capacity(2 << 20).build().unwrap();
    let mut held = Vec::new();
    let full = loop {
        match arena.alloc(10 * PAGE, 1) {
            Ok(area) => held.push(area),
            Err(error) => break error,
        }
    };
    let guard = usize::from(arena.statistics().guards);
    assert_eq!(held.len(), 512 / (10 + guard), "all of it is used");
    assert_eq!(
        full,
        Error::AddressSpace {
            size: 10 * PAGE,
            capacity: 2 << 20,
            waiting: 0
        }
    );
    assert!(full.to_string().contains("larger capacity"));
    held.clear();
    // One area of the whole size: pools and freed ranges are joined again.
    let whole = arena
        .alloc((512 - guard) * PAGE, 1)
        .expect("everything has been freed");
    assert_eq!(all_bytes(&arena, whole.addr(), whole.len()), Some(0));
}

#[test]
fn lazy_bytes_are_bounded() {
    let limit = 1 << 20;
    let arena = Arena::builder()
        .capacity(1 << 30)
        .lazy_limit(limit)
        .build()
        .unwrap();
    for _ in 0..5000 {
        drop(arena.alloc(5 * PAGE, 1).unwrap());
        assert!(arena.statistics().lazy_bytes <= limit as u64);
    }
    assert!(arena.statistics().drains > 0);
    arena.drain().unwrap();
    assert_eq!(arena.statistics().lazy_bytes, 0);
}

#[test]
fn free_inside_a_section_does_not_wait() {
    let arena = Arena::builder()
        .capacity(64 << 20)
        .lazy_limit(0)
        .build()
        .unwrap();
    let held = returns({
        let arena = arena.clone();
        move || {
            let guard = arena.read_lock();
            (0..100).for_each(|_| drop(arena.alloc(PAGE, 1).unwrap()));
            assert_eq!(arena.drain(), Err(Error::InSection));
            drop(guard);
            arena.statistics().lazy_bytes
        }
    });
    assert!(held >= 100 * PAGE as u64);
    arena.drain().unwrap();
    assert_eq!(arena.statistics().lazy_bytes, 0);
}

#[test]
fn drain_returns_memory() {
    /// Returns the resident bytes of the arena, as the kernel reports them.
    fn resident(arena: &Arena) -> usize {
        let range = arena.addresses();
        let mut pages = vec![0_u8; range.len() / PAGE];
        assert_eq!(
            // SAFETY: the vector has a byte a page.
            unsafe {
                libc::mincore(
                    range.start as *mut _,
                    range.len(),
                    pages.as_mut_ptr().cast(),
                )
            },
            0
        );
        pages.iter().filter(|&&page| page & 1 == 1).count() * PAGE
    }
    for file in [false, true] {
        let arena = Arena::builder()
            .capacity(64 << 20)
            .memory_file(file)
            .build()
            .unwrap();
        let mut areas: Vec<_> = (0..1000)
            .map(|number| arena.alloc((1 + number % 7) * PAGE, 1).unwrap())
            .collect();
        areas
            .iter()
            .for_each(|area| area.copy_from(0, &vec![1; area.len()]).unwrap());
        let mut keep = false;
        areas.retain(|_| {
            keep = !keep;
            keep
        });
        arena.drain().unwrap();
        let live: usize = areas.iter().map(|area| area.len()).sum();
        assert_eq!(resident(&arena), live, "file: {file}");
        assert!(
            areas
                .iter()
                .all(|area| all_bytes(&arena, area.addr(), area.len()) == Some(1))
        );
    }
}

#[test]
fn walk_in_address_order() {
    let arena = Arena::builder().capacity(1 << 30).build().unwrap();
    let mut areas: Vec<_> = (1..200)
        .map(|number| arena.alloc(number * 3000, 1).unwrap())
        .collect();
    areas.push(arena.alloc(9 << 20, 1).unwrap());
    areas.retain(|area| area.len() % 2 == 0);
    let mut expected: Vec<_> = areas.iter().map(|area| (area.addr(), area.len())).collect();
    expected.sort_unstable();
    let guard = arena.read_lock();
    let walked: Vec<_> = arena
        .areas(&guard)
        .map(|found| (found.addr(), found.len()))
        .collect();
    assert_eq!(walked, expected);
    let middle = expected[expected.len() / 2];
    let next = |addr| {
        arena
            .find_or_next(addr, &guard)
            .map(|found| (found.addr(), found.len()))
    };
    assert_eq!(next(middle.0 + middle.1 - 1), Some(middle));
    assert_eq!(
        next(middle.0 + middle.1),
        Some(expected[expected.len() / 2 + 1])
    );
    assert_eq!(next(usize::MAX), None);
}

#[test]
fn copy_between() {
    let arena = arena();
    let [a, b] = [
        arena.alloc(PAGE, 1).unwrap(),
        arena.alloc(2 * PAGE, 1).unwrap(),
    ];
    a.copy_from(0, b"stillpoint").unwrap();
    arena
        .copy_between(b.addr() + PAGE - 5, a.addr(), 10)
        .unwrap();
    arena
        .copy_between(b.addr() + PAGE - 3, b.addr() + PAGE - 5, 10)
        .unwrap();
    let mut bytes = [0; 12];
    arena.copy_to(b.addr() + PAGE - 5, &mut bytes).unwrap();
    assert_eq!(&bytes, b"ststillpoint");
    assert!(arena.copy_between(b.addr(), a.addr() + 1, PAGE).is_err());
    a.copy_from(PAGE - 3, b"end").unwrap();
    b.copy_from(0, b"begin").unwrap();
    let (low, high) = (a.addr().min(b.addr()), a.addr().max(b.addr()));
    let mut all = vec![0xEE; high + 2 * PAGE - low + 100];
    let from_areas = arena.read(low - 50, &mut all);
    assert_eq!(from_areas, 3 * PAGE);
    for area in [&a, &b] {
        let at = area.addr() - low + 50;
        let mut bytes = vec![0; area.len()];
        area.copy_to(0, &mut bytes).unwrap();
        assert_eq!(all[at..at + area.len()], bytes);
        all[at..at + area.len()].fill(0);
    }
    assert!(all.iter().all(|&byte| byte == 0), "holes are zeroes");
    assert_eq!(arena.read(usize::MAX - 10, &mut [1; 5]), 0);
}

#[test]
fn reader() {
    let arena = arena();
    // More than is copied in one section.
    let long = arena.alloc((5 << 20) + 3, 1).unwrap();
    let bytes: Vec<u8> = (0..long.len()).map(|at| (at / 7) as u8).collect();
    long.copy_from(0, &bytes).unwrap();
    let from = long.addr() - 30;
    let mut reader = arena.reader(from..long.addr() + long.len() + 20);
    let mut piece = [0xEE; 50];
    reader.read_exact(&mut piece).unwrap();
    assert_eq!(
        (&piece[..30], &piece[30..]),
        (&[0; 30][..], &bytes[..20]),
        "a hole, and the area behind it"
    );
    let mut rest = Vec::new();
    assert_eq!(
        reader.read_to_end(&mut rest).unwrap(),
        bytes.len() - 20 + 20
    );
    assert_eq!(rest[..bytes.len() - 20], bytes[20..]);
    assert!(
        rest[bytes.len() - 20..].iter().all(|&byte| byte == 0),
        "behind the area"
    );
    assert_eq!(reader.read(&mut piece).unwrap(), 0, "nothing is left");
}

#[test]
fn checked_range_bounds_writes() {
    let arena = arena();
    let area = arena.alloc(PAGE, 1).unwrap();
    let guard = arena.read_lock();
    let whole = arena.find(area.addr() + 77, &guard).unwrap();
    assert_eq!((whole.addr(), whole.len()), (area.addr(), PAGE));
    whole.copy_from(&[7; PAGE]);
    let middle = arena.check(area.addr() + 10, 3, &guard).unwrap();
    middle.copy_from(b"abc");
    let mut bytes = [0; 5];
    arena.copy_to(area.addr() + 9, &mut bytes).unwrap();
    assert_eq!(&bytes, b"\x07abc\x07");
    for other in [2, 4] {
        let refused = panic_message(|| middle.copy_from(&vec![0; other]));
        assert!(
            refused.contains(&format!("3 bytes is copied to or from {other}")),
            "{refused}"
        );
        assert!(panic_message(|| middle.copy_to(&mut vec![0; other])).contains("make them equal"));
    }
    arena.copy_from(area.addr() + PAGE - 2, b"xy").unwrap();
    let crossing = arena.copy_from(area.addr() + PAGE - 1, b"xy");
    assert_eq!(
        crossing,
        Err(Error::CrossesEnd {
            addr: area.addr() + PAGE - 1,
            len: 2,
            end: area.addr() + PAGE
        })
    );
}

#[test]
fn parts_of_a_checked_range() {
    let arena = arena();
    let area = arena.alloc(PAGE + 100, 1).unwrap();
    let guard = arena.read_lock();
    let whole = arena.find(area.addr() + 77, &guard).unwrap();
    let len = whole.len();
    for (range, inside) in [
        (0..len, true),
        (len - 1..len, true),
        (100..103, true),
        (0..len + 1, false),
        (len..len + 1, false),
        (usize::MAX - 1..usize::MAX, false),
        (0..usize::MAX, false),
        (5..5, false),
        (len..len, false),
        (
            std::ops::Range {
                start: usize::MAX,
                end: 0,
            },
            false,
        ),
    ] {
        let part = whole.get(range.clone());
        let seen = part.map(|part| (part.addr(), part.len()));
        let expected = inside.then(|| (area.addr() + range.start, range.end - range.start));
        assert_eq!(seen, expected, "{range:?}");
    }
    // A part of a part counts from the part's first byte, and ends with it.
    let part = whole.get(100..110).unwrap();
    assert_eq!(
        part.get(8..10).map(|last| last.addr()),
        Some(area.addr() + 108)
    );
    assert!(part.get(8..11).is_none());
    // Its memory stays for the section, as the whole's does.
    drop(area);
    part.copy_from(b"0123456789");
    let mut bytes = [0; 3];
    whole.get(107..110).unwrap().copy_to(&mut bytes);
    assert_eq!(&bytes, b"789");
}

/// At the ends of areas, pages and slots, `find` and `check` agree with the areas' sizes.
#[test]
fn checks_at_every_end() {
    const SLOT: usize = 2 << 20;
    let arena = Arena::builder().capacity(64 << 20).build().unwrap();
    for size in [1, PAGE - 1, PAGE, PAGE + 1, SLOT - 1, 3 * SLOT + 5] {
        let area = arena.alloc(size, 1).unwrap();
        assert_eq!(all_bytes(&arena, area.addr(), size), Some(0));
        let guard = arena.read_lock();
        let below = arena.find(area.addr() - 1, &guard);
        assert!(below.is_none_or(|other| other.addr() != area.addr()));
        let ends = [0, 1, PAGE, SLOT, 2 * SLOT, size - 1, size, size + 1];
        for at in ends.into_iter().flat_map(|at| [at, at ^ 1, at + PAGE - 1]) {
            let addr = area.addr() + at;
            if at >= size {
                // In the last page; the next one may be another area's.
                if at < size.next_multiple_of(PAGE) {
                    assert!(arena.find(addr, &guard).is_none(), "{size} {at}");
                    assert!(arena.check(addr, 1, &guard).is_err(), "{size} {at}");
                }
                continue;
            }
            let found = arena.find(addr, &guard).unwrap();
            assert_eq!((found.addr(), found.len()), (area.addr(), size));
            let left = size - at;
            for (len, fits) in [
                (1, true),
                (left, true),
                (left + 1, false),
                (0, false),
                (usize::MAX, false),
                (isize::MAX as usize + 1, false),
            ] {
                assert_eq!(
                    arena.check(addr, len, &guard).is_ok(),
                    fits,
                    "{size} {at} {len}"
                );
            }
        }
    }
    let guard = arena.read_lock();
    let all = arena.addresses();
    let outside = [0, all.start - 1, all.end, usize::MAX];
    assert!(
        outside
            .map(|addr| arena.find(addr, &guard))
            .iter()
            .all(Option::is_none)
    );
}

#[test]
fn huge_page_alignment() {
    const HUGE: usize = 2 << 20;
    let arena = Arena::builder()
        .capacity(64 << 20)
        .huge_pages(true)
        .build()
        .unwrap();
    let small = arena.alloc(PAGE, 1).unwrap();
    let areas = [HUGE, HUGE + 1, 2 * HUGE].map(|size| arena.alloc(size, 1).unwrap());
    for area in &areas {
        assert!(area.addr().is_multiple_of(HUGE), "{area:?}");
        area.copy_from(area.len() - 1, &[9]).unwrap();
    }
    small.copy_from(0, &[9]).unwrap();
}

#[test]
fn describe_and_dump() {
    let arena = Arena::builder()
        .capacity(64 << 20)
        .track_callers(true)
        .build()
        .unwrap();
    let (area, line) = (arena.alloc(5000, 1).unwrap(), line!());
    let freed = arena.alloc(PAGE, 1).unwrap();
    let freed_at = freed.addr();
    drop(freed);
    let live = arena.describe(area.addr() + 4999);
    assert!(
        matches!(live, Description::Live { offset: 4999, len: 5000, caller: Some(caller), .. } if caller.line() == line)
    );
    assert!(live.to_string().contains("vmap.rs"), "{live}");
    assert!(matches!(
        arena.describe(area.addr() + 5001),
        Description::PastEnd { by: 1, .. }
    ));
    if arena.statistics().guards {
        assert!(matches!(
            arena.describe(area.addr() + 2 * PAGE),
            Description::PastEnd { .. }
        ));
    }
    assert_eq!(
        arena.describe(arena.addresses().end - 1),
        Description::Unused
    );
    assert_eq!(arena.describe(1), Description::Outside);
    let waits = arena.describe(freed_at + 5);
    assert!(
        matches!(waits, Description::Freed { start, len } if start == freed_at && len >= PAGE),
        "{waits}"
    );
    for (addr, says) in [
        (
            area.addr() + 5001,
            "1 bytes past the end of the area of 5000 bytes",
        ),
        (freed_at, "freed and not given back yet"),
        (arena.addresses().end - 1, "never used"),
        (1, "no address of this arena"),
    ] {
        let text = arena.describe(addr).to_string();
        assert!(text.contains(says), "{addr:#x}: {text}");
    }
    let dump = arena.dump();
    let states: Vec<_> = dump
        .areas
        .iter()
        .map(|area| (area.addr, area.live))
        .collect();
    let mut expected = vec![(area.addr(), true), (freed_at, false)];
    expected.sort_unstable();
    assert_eq!(states, expected);
    let text = dump.to_string();
    assert!(
        text.contains("5000 pages=2 ") && text.contains(" unpurged") && text.contains("vmap.rs:"),
        "{text}"
    );
    arena.drain().unwrap();
    assert_eq!(arena.describe(freed_at), Description::Free);
    assert_eq!(arena.describe(freed_at).to_string(), "free");
}

#[test]
fn section_of_another_domain_panics() {
    let arena = arena();
    let other = Domain::new();
    let guard = other.read_lock();
    let message = panic_message(|| arena.find(0, &guard));
    assert!(message.contains("Arena::read_lock"), "{message}");
    let shared = Arena::builder()
        .capacity(2 << 20)
        .domain(&other)
        .build()
        .unwrap();
    assert!(shared.find(0, &guard).is_none());
    let online = shared.domain().qsbr_reader();
    assert!(shared.find(0, &online).is_none());
}
