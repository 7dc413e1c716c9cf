//! The address space: what is allocated is found, what is freed is not, and memory comes back.
#![cfg(all(target_os = "linux", not(miri)))]

mod setup;

use setup::{
    PAGE, all_bytes, areas, arena, arena_with,
    common::{Reader, returns, told},
};
use std::{io::Read, iter, ops::Range, thread};
use stillpoint::Domain;
use stillpoint_vmap::{Area, Arena, Checked, Description, Error};

#[test]
fn check_errors() {
    let arena = arena(256);
    let area = arena.alloc(5000, 1).unwrap();
    let (start, end) = (area.addr(), area.addr() + 5000);
    let guard = arena.read_lock();
    let check = |addr, len| {
        arena
            .check(addr, len, &guard)
            .map(|checked| (checked.addr(), checked.len()))
    };
    let crosses = |addr, len| Error::CrossesEnd { addr, len, end };
    let not_live = |addr| Error::NotLive { addr };
    let overflow = |addr, len| Error::Overflow { addr, len };
    for (addr, len) in [(start, 5000), (end - 1, 1)] {
        assert_eq!(check(addr, len), Ok((addr, len)));
    }
    let rest = usize::MAX - start - 1;
    for (addr, len, error) in [
        (start, 5001, crosses(start, 5001)),
        (end - 1, 2, crosses(end - 1, 2)),
        (start + 1, rest, crosses(start + 1, rest)),
        (start, 0, Error::ZeroSize),
        (end, 0, Error::ZeroSize),
        (end, 1, not_live(end)),
        (end + 1, 1, not_live(end + 1)),
        (start + 2 * PAGE - 1, 1, not_live(start + 2 * PAGE - 1)),
        (start - 1, 2, not_live(start - 1)),
        (start, usize::MAX, overflow(start, usize::MAX)),
        (usize::MAX, 1, overflow(usize::MAX, 1)),
    ] {
        assert_eq!(check(addr, len), Err(error));
    }
}

#[test]
fn range_across_areas_is_refused() {
    // Without guards the two lie side by side.
    let arena = arena_with(64, |builder| builder.guards(false));
    let [a, b] = [(); 2].map(|()| arena.alloc(PAGE, 1).unwrap());
    let start = a.addr().min(b.addr());
    assert_eq!(a.addr().max(b.addr()), start + PAGE);
    let guard = arena.read_lock();
    let (addr, end) = (start + PAGE - 8, start + PAGE);
    let refused = Error::CrossesEnd { addr, len: 16, end };
    assert_eq!(arena.check(addr, 16, &guard).err(), Some(refused));
    assert_eq!(arena.copy_from(addr, &[1; 16]), Err(refused));
    assert_eq!(
        all_bytes(&arena, start, PAGE),
        Some(0),
        "nothing was copied"
    );
}

#[test]
fn bad_sizes() {
    let arena = arena(256);
    assert_eq!(arena.alloc(0, 1).err(), Some(Error::ZeroSize));
    assert_eq!(arena.alloc(1, 0).err(), Some(Error::BadAlign { align: 0 }));
    assert_eq!(arena.alloc(1, 3).err(), Some(Error::BadAlign { align: 3 }));
    for (size, align) in [(257 << 20, 1), (1 << 60, 1), (usize::MAX, 1), (1, 1 << 63)] {
        let refused = arena.alloc(size, align).unwrap_err();
        assert!(matches!(refused, Error::TooLarge { .. }), "{size} {align}");
    }
    let built = |capacity| Arena::builder().capacity(capacity).build();
    assert_eq!(built(0).err(), Some(Error::ZeroSize));
    assert!(matches!(built(usize::MAX), Err(Error::TooLarge { .. })));
    let none = (
        arena.copy_to(0, &mut []),
        arena.copy_from(0, &[]),
        arena.copy_between(0, 0, 0),
    );
    assert_eq!(none, (Ok(()), Ok(()), Ok(())));
}

#[test]
fn alignment() {
    let arena = arena(1024);
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
    let arena = arena(256);
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
    let arena = arena_with(8, |builder| builder.lazy_limit(64 << 10));
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
    let (arena, other) = (arena(8), Domain::new());
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
fn free_rcu() {
    let arena = arena(256);
    let area = arena.alloc(1, 1).unwrap();
    let addr = area.addr();
    let reader = Reader::enter(arena.domain());
    area.free_rcu();
    let pending = arena.domain().statistics().bytes_pending;
    assert!(pending >= PAGE as u64, "the budget counts its page");
    assert_eq!(
        all_bytes(&arena, addr, 1),
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
    let arena = arena(256);
    let area = arena.alloc(PAGE, 1).unwrap();
    drop(arena);
    area.copy_from(0, &[1; PAGE]).unwrap();
    area.free_rcu();
}

#[test]
fn double_free() {
    let arena = arena(256);
    let at = arena.alloc(3 * PAGE, 1).unwrap().into_raw().as_ptr();
    let addr = at.addr();
    // SAFETY: out of `into_raw`; what is no such address is what is tested.
    let free = |at: *mut u8| unsafe { arena.free_raw(at) };
    let inside = Error::NotAStart {
        addr: addr + PAGE,
        start: addr,
    };
    assert_eq!(free(at.wrapping_add(PAGE)), Err(inside));
    let outside = Error::NotLive {
        addr: addr.wrapping_sub(1 << 40),
    };
    assert_eq!(free(at.wrapping_sub(1 << 40)), Err(outside));
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
    let arena = arena(2);
    let mut held: Vec<_> = iter::from_fn(|| arena.alloc(10 * PAGE, 1).ok()).collect();
    let full = arena.alloc(10 * PAGE, 1).unwrap_err();
    let guard = usize::from(arena.statistics().guards);
    assert_eq!(held.len(), 512 / (10 + guard), "all of it is used");
    let (size, capacity) = (10 * PAGE, 2 << 20);
    assert_eq!(
        full,
        Error::AddressSpace {
            size,
            capacity,
            waiting: 0
        }
    );
    held.clear();
    // One area of the whole size: pools and freed ranges are joined again.
    let whole = arena
        .alloc((512 - guard) * PAGE, 1)
        .expect("everything has been freed");
    assert_eq!(all_bytes(&arena, whole.addr(), whole.len()), Some(0));
}

#[test]
fn lazy_bytes_are_bounded() {
    let arena = arena_with(1024, |builder| builder.lazy_limit(1 << 20));
    for _ in 0..5000 {
        drop(arena.alloc(5 * PAGE, 1).unwrap());
        assert!(arena.statistics().lazy_bytes <= 1 << 20);
    }
    assert!(arena.statistics().drains > 0);
    arena.drain().unwrap();
    assert_eq!(arena.statistics().lazy_bytes, 0);
}

#[test]
fn free_inside_a_section_does_not_wait() {
    let arena = arena_with(64, |builder| builder.lazy_limit(0));
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
        let (start, bytes) = (range.start as *mut _, pages.as_mut_ptr().cast());
        // SAFETY: the vector has a byte a page.
        assert_eq!(unsafe { libc::mincore(start, range.len(), bytes) }, 0);
        pages.iter().filter(|&&page| page & 1 == 1).count() * PAGE
    }
    for file in [false, true] {
        let arena = arena_with(64, |builder| builder.memory_file(file));
        let mut areas: Vec<_> = (1..=7)
            .flat_map(|pages| areas(&arena, 140, pages, 1))
            .collect();
        let mut keep = [true, false].into_iter().cycle();
        areas.retain(|_| keep.next().unwrap());
        arena.drain().unwrap();
        let live: usize = areas.iter().map(|area| area.len()).sum();
        assert_eq!(resident(&arena), live, "file: {file}");
        let is_kept = |area: &Area| all_bytes(&arena, area.addr(), area.len()) == Some(1);
        assert!(areas.iter().all(is_kept));
    }
}

#[test]
fn walk_in_address_order() {
    let arena = arena(1024);
    let mut areas: Vec<_> = (1..200)
        .map(|number| arena.alloc(number * 3000, 1).unwrap())
        .collect();
    areas.push(arena.alloc(9 << 20, 1).unwrap());
    areas.retain(|area| area.len() % 2 == 0);
    let mut expected: Vec<_> = areas.iter().map(|area| (area.addr(), area.len())).collect();
    expected.sort_unstable();
    let guard = arena.read_lock();
    let range = |found: Checked<'_>| (found.addr(), found.len());
    assert_eq!(arena.areas(&guard).map(range).collect::<Vec<_>>(), expected);
    let [middle, behind] = [0, 1].map(|at| expected[expected.len() / 2 + at]);
    let next = |addr| arena.find_or_next(addr, &guard).map(range);
    assert_eq!(next(middle.0 + middle.1 - 1), Some(middle));
    assert_eq!(next(middle.0 + middle.1), Some(behind));
    assert_eq!(next(usize::MAX), None);
}

#[test]
fn copy_between() {
    let arena = arena(256);
    let [a, b] = [1, 2].map(|pages| arena.alloc(pages * PAGE, 1).unwrap());
    a.copy_from(0, b"stillpoint").unwrap();
    let across = b.addr() + PAGE - 5;
    arena.copy_between(across, a.addr(), 10).unwrap();
    arena.copy_between(across + 2, across, 10).unwrap();
    let mut bytes = [0; 12];
    arena.copy_to(across, &mut bytes).unwrap();
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
    let arena = arena(256);
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
    let arena = arena(256);
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
        let refused = told(|| middle.copy_from(&vec![0; other]));
        let says = format!("3 bytes is copied to or from {other}");
        assert!(refused.contains(&says), "{refused}");
        assert!(told(|| middle.copy_to(&mut vec![0; other])).contains("make them equal"));
    }
    assert!(told(|| whole.copy_between(&middle)).contains("make them equal"));
    arena.copy_from(area.addr() + PAGE - 2, b"xy").unwrap();
    assert!(arena.copy_from(area.addr() + PAGE - 1, b"xy").is_err());
}

#[test]
fn parts_of_a_checked_range() {
    let arena = arena(256);
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
            Range {
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
    let arena = arena(64);
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
            for len in [0, 1, left, left + 1, isize::MAX as usize + 1, usize::MAX] {
                let fits = (1..=left).contains(&len);
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
    for outside in [0, all.start - 1, all.end, usize::MAX] {
        assert!(arena.find(outside, &guard).is_none());
    }
}

#[test]
fn huge_page_alignment() {
    const HUGE: usize = 2 << 20;
    let arena = arena_with(64, |builder| builder.huge_pages(true));
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
    let arena = arena_with(64, |builder| builder.track_callers(true));
    let (area, line) = (arena.alloc(5000, 1).unwrap(), line!());
    let freed = arena.alloc(PAGE, 1).unwrap();
    let freed_at = freed.addr();
    drop(freed);
    let live = arena.describe(area.addr() + 4999);
    assert!(
        matches!(live, Description::Live { offset: 4999, len: 5000, caller: Some(caller), .. } if caller.line() == line)
    );
    assert!(live.to_string().contains("vmap.rs"), "{live}");
    if arena.statistics().guards {
        let guard_page = arena.describe(area.addr() + 2 * PAGE);
        assert!(
            matches!(guard_page, Description::PastEnd { .. }),
            "{guard_page}"
        );
    }
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
    assert_eq!(arena.describe(freed_at).to_string(), "free");
}

#[test]
fn section_of_another_domain_panics() {
    let (arena, other) = (arena(256), Domain::new());
    let wrong = other.read_lock();
    for message in [
        told(|| arena.find(0, &wrong).is_some()),
        told(|| arena.find_or_next(0, &wrong).is_some()),
        told(|| arena.check(0, 1, &wrong).is_ok()),
        told(|| arena.areas(&wrong).count()),
        told(|| arena.areas_from(0, &wrong).count()),
    ] {
        assert!(message.contains("Arena::read_lock"), "{message}");
    }
    let shared = arena_with(2, |builder| builder.domain(&other));
    assert!(shared.find(0, &wrong).is_none());
    let online = shared.domain().qsbr_reader();
    assert!(shared.find(0, &online).is_none());
}
