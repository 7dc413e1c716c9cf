//! The address space under faults: memory that must fault, system calls that fail, forks, peers, and
//! many allocations.
//!
//! Detects drains without a grace period or a purge, drains that reuse refused ranges, and a child
//! that loses areas or touches its parent's file.
#![cfg(all(target_os = "linux", not(miri)))]

mod setup;

use setup::{
    PAGE, all_bytes, areas, arena, arena_with,
    common::{
        self, Random, Reader, child,
        forking::{assert_works, fork, fork_muted},
        is_child,
        refusing::{Refusing, with_memory, without_memory},
    },
};
use std::{
    collections::BTreeMap,
    iter,
    os::fd::AsRawFd,
    ptr,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};
use stillpoint_vmap::{Area, Arena, Error};

#[global_allocator]
static ALLOCATOR: Refusing = Refusing;

#[test]
fn alloc_reports_that_there_is_no_memory() {
    const NO_MEMORY: Error = Error::System {
        call: "malloc",
        errno: libc::ENOMEM,
    };
    for poison in [false, true] {
        let arena = arena_with(16, |builder| builder.poison(poison));
        // A pool has the next ones.
        let _first = arena.alloc(PAGE, 1).unwrap();
        for pages in [1, 2, 5, 200] {
            let area = without_memory(|| arena.alloc(pages * PAGE, 1));
            let refused = (pages > 1).then_some(NO_MEMORY);
            assert_eq!(area.err(), refused, "{pages} pages, poison {poison}");
            assert_eq!(arena.statistics().areas, 1);
            assert!(arena.alloc(pages * PAGE, 1).is_ok());
        }
    }
}

/// A refused allocation that cannot report failure would end the process.
#[test]
fn alloc_and_drain_end_well_with_any_amount_of_memory() {
    // Larger than what pools keep.
    const LEN: usize = 257 * PAGE;
    // Fills an arena for `count` areas, frees every other one, so that no two ranges merge, and drains
    // `before` of them; then drains the rest, or allocates, with `bytes` of memory.
    let drain = |count: usize, before: usize, bytes: usize, drains: bool| {
        let mib = (count * (LEN + PAGE)).div_ceil(1 << 20);
        let arena = arena_with(mib, |builder| builder.lazy_limit(1 << 36));
        // Takes all of the address space, with guard pages or without.
        let areas: Vec<_> = iter::from_fn(|| arena.alloc(LEN, 1).ok()).collect();
        let mut kept = Vec::new();
        for (number, area) in areas.into_iter().enumerate() {
            if number % 2 == 1 {
                kept.push(area);
            }
            if number + 1 == 2 * before {
                arena.drain().unwrap();
            }
        }
        let drained = drains.then(|| with_memory(bytes, || arena.drain()).is_ok());
        if !drains {
            // Drains first: there is no other address space.
            let _ = with_memory(bytes, || arena.alloc(LEN, 1));
        }
        arena.drain().unwrap();
        assert!(arena.alloc(LEN, 1).is_ok());
        drained
    };
    let mut drained = [0; 2];
    for drains in [true, false] {
        for bytes in (0..200_000).step_by(8_000).chain([1 << 20]) {
            if let Some(well) = drain(2_050, 0, bytes, drains) {
                drained[usize::from(well)] += 1;
            }
        }
        // One range more, which a full node of a tree may have no place for.
        for (before, bytes) in
            (8..14).flat_map(|before| (0..1_500).step_by(30).map(move |bytes| (before, bytes)))
        {
            drain(2 * before + 4, before, bytes, drains);
        }
    }
    assert!(drained.iter().all(|&times| times > 0), "{drained:?}");
}

/// Runs `work` in the child of a fork, which ends with it, and returns the child's status.
fn forked(work: impl FnOnce() -> bool) -> libc::c_int {
    // SAFETY: the child uses this library, and memory of its own, and ends without running
    // destructors.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let well = work();
        common::forking::end(!well);
    }
    let mut status = 0;
    // SAFETY: our child, and our own integer.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    status
}

fn faults(addr: usize) -> bool {
    let status = forked(|| {
        // SAFETY: the process ends here, by a fault or not.
        let _ = unsafe { (addr as *const u8).read_volatile() };
        true
    });
    libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV
}

fn ends_well(work: impl FnOnce() -> bool) -> bool {
    let status = forked(work);
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
}

#[test]
fn guard_pages() {
    for file in [false, true] {
        let arena = arena_with(16, |builder| builder.memory_file(file));
        if !arena.statistics().guards {
            eprintln!("no guard pages here");
            continue;
        }
        for _ in 0..3 {
            for pages in [1, 4, 300] {
                let area = arena.alloc(pages * PAGE, 1).unwrap();
                area.copy_from(0, &vec![1; pages * PAGE]).unwrap();
                assert!(faults(area.addr() + pages * PAGE), "file: {file}");
                assert!(!faults(area.addr() + pages * PAGE - 1));
            }
            // The next ones come from the pools.
            arena.drain().unwrap();
        }
    }
}

#[test]
fn poison() {
    for file in [false, true] {
        let Ok(arena) = Arena::builder()
            .capacity(16 << 20)
            .poison(true)
            .memory_file(file)
            .build()
        else {
            eprintln!("no guard pages here");
            continue;
        };
        let area = arena.alloc(3 * PAGE, 1).unwrap();
        let addr = area.addr();
        area.copy_from(0, &[1; 3 * PAGE]).unwrap();
        let reader = Reader::enter(arena.domain());
        drop(area);
        arena.shrink();
        assert!(!faults(addr), "a reader may be using it");
        reader.leave();
        arena.drain().unwrap();
        assert!(faults(addr) && faults(addr + 2 * PAGE));
        // All addresses, whichever pool the range went to.
        let whole = arena.alloc((16 << 20) - PAGE, 1).unwrap();
        assert!((whole.addr()..whole.addr() + whole.len()).contains(&addr));
        assert_eq!(all_bytes(&arena, addr, 3 * PAGE), Some(0));
    }
}

#[test]
fn memory_file_is_shared_and_sealed() {
    let arena = arena_with(16, |builder| builder.memory_file(true));
    let area = arena.alloc(2 * PAGE, 1).unwrap();
    area.copy_from(0, b"from here").unwrap();
    let file = arena.file().expect("it has one").as_raw_fd();
    let offset = libc::off_t::try_from(area.offset()).unwrap();
    let well = ends_well(|| {
        // SAFETY: a new mapping of the file, read and written inside its length.
        unsafe {
            let shared = libc::mmap(
                ptr::null_mut(),
                2 * PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file,
                offset,
            );
            let seen = shared != libc::MAP_FAILED
                && std::slice::from_raw_parts(shared.cast::<u8>(), 9) == b"from here";
            shared.cast::<u8>().add(PAGE).write_volatile(77);
            seen && libc::ftruncate(file, 0) == -1 && libc::ftruncate(file, 1 << 30) == -1
        }
    });
    assert!(
        well,
        "the peer sees the bytes, and may not change the length"
    );
    let mut byte = [0];
    area.copy_to(PAGE, &mut byte).unwrap();
    assert_eq!(byte, [77]);
}

#[test]
fn child_of_fork_does_not_allocate_from_a_memory_file() {
    let arena = arena_with(16, |builder| builder.lazy_limit(0).memory_file(true));
    let area = arena.alloc(PAGE, 1).unwrap();
    area.copy_from(0, &[5; PAGE]).unwrap();
    let addr = area.addr();
    let mut area = Some(area);
    let well = ends_well(|| {
        let refused = matches!(arena.alloc(PAGE, 1), Err(Error::Forked));
        let seen = all_bytes(&arena, addr, PAGE) == Some(5);
        drop(area.take());
        refused && seen && arena.drain().is_ok() && all_bytes(&arena, addr, 1).is_none()
    });
    assert!(well);
    assert!(area.is_some(), "the child dropped its own");
    assert_eq!(all_bytes(&arena, addr, PAGE), Some(5));
}

#[test]
fn child_of_fork_has_a_private_copy() {
    let arena = arena(16);
    let kept = arena.alloc(3 * PAGE, 1).unwrap();
    kept.copy_from(0, &[5; 3 * PAGE]).unwrap();
    let freed = arena.alloc(100 * PAGE, 1).unwrap();
    drop(freed);
    let mut areas: Vec<_> = (1..50)
        .map(|pages| arena.alloc(pages * PAGE, 1).unwrap())
        .collect();
    let well = ends_well(|| {
        kept.copy_from(0, &[6; PAGE]).unwrap();
        areas.truncate(10);
        arena.drain().unwrap();
        areas.clear();
        // No addresses are lost: those freed before the fork, in pools, or freed since can all be
        // allocated, except around the area that is kept.
        let rest = (16 << 20) - kept.addr().abs_diff(arena.addresses().start) - 10 * PAGE;
        arena.alloc(rest, 1).is_ok() && arena.statistics().areas == 1
    });
    assert!(well);
    assert_eq!(all_bytes(&arena, kept.addr(), 3 * PAGE), Some(5));
    assert_eq!(areas.len(), 49);
}

/// Forks at any moment of threads that allocate and free: in the child the core works, areas are
/// found, and drops end.
#[test]
fn forks_at_any_moment() {
    type Subject = (Vec<Area>, Arena);
    let arena = arena_with(64, |builder| builder.lazy_limit(256 << 10));
    let mine: Vec<_> = (1..20)
        .flat_map(|pages| areas(&arena, 1, pages, 3))
        .collect();
    let subject: *mut Subject = Box::into_raw(Box::new((mine, arena)));
    // SAFETY: freed below, once no thread uses it any more.
    let (mine, arena) = unsafe { &*subject };
    let over = AtomicBool::new(false);
    let change = || {
        let mut new: Vec<_> = (1..20)
            .map(|pages| arena.alloc(pages * PAGE, 1).unwrap())
            .collect();
        new.truncate(10);
        arena.drain().unwrap();
        new.iter()
            .for_each(|area| area.copy_from(0, &vec![4; area.len()]).unwrap());
        let ends: BTreeMap<_, _> = new
            .iter()
            .chain(mine)
            .map(|area| (area.addr(), area.addr() + area.len()))
            .collect();
        let mut pairs = ends.iter().zip(ends.iter().skip(1));
        assert!(pairs.all(|((_, end), (next, _))| end <= next));
    };
    thread::scope(|scope| {
        let _over = common::Over(&over);
        for seed in 1..9 {
            let over = &over;
            scope.spawn(move || {
                let (mut held, mut random) = (Vec::new(), Random(seed));
                while !over.load(Ordering::Relaxed) {
                    let pages = 1 + random.below(20) as usize;
                    held.push(arena.alloc(pages * PAGE, 1).unwrap());
                    if held.len() > 20 {
                        held.swap_remove(random.below(20) as usize);
                    }
                }
            });
        }
        for _ in 0..24 {
            let child = fork(|| {
                for area in mine {
                    assert_eq!(all_bytes(arena, area.addr(), area.len()), Some(3));
                }
                fork_muted(change).well_or_aborted();
                assert_works(arena.domain());
                // SAFETY: no other thread of this process uses it.
                drop(unsafe { Box::from_raw(subject) });
            });
            child.well();
        }
    });
    // Now only the service thread may hold a lock, and it seldom does.
    assert!((0..10).any(|_| fork_muted(change).well_or_aborted()));
    // SAFETY: the threads have ended.
    drop(unsafe { Box::from_raw(subject) });
}

/// Makes system calls `numbers` fail with `errno` in the calling thread from now on.
fn deny(numbers: &[libc::c_long], errno: libc::c_int) {
    let instruction = |code: u32, jf: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf,
        k,
    };
    let (jump, end) = (
        libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
        libc::BPF_RET | libc::BPF_K,
    );
    let mut program = vec![instruction(
        libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
        0,
        0,
    )];
    for &number in numbers {
        program.push(instruction(jump, 1, number as u32));
        program.push(instruction(end, 0, libc::SECCOMP_RET_ERRNO | errno as u32));
    }
    program.push(instruction(end, 0, libc::SECCOMP_RET_ALLOW));
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: plain integers; the kernel copies the program that the pointer leads to.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_SET_MODE_FILTER;
        assert_eq!(
            libc::syscall(libc::SYS_seccomp, mode, 0, &raw const filter),
            0
        );
    }
}

const PURGES: &[libc::c_long] = &[libc::SYS_madvise, libc::SYS_process_madvise];

/// The error where they are denied.
const REFUSED: Error = Error::System {
    call: "madvise",
    errno: libc::ENOMEM,
};

#[test]
fn unpurged_ranges_are_not_reused() {
    let arena = arena_with(16, |builder| builder.guards(false));
    let mut areas = areas(&arena, 64, 1, 9);
    let freed: Vec<_> = areas.drain(..32).map(|area| area.addr()).collect();
    // A filter holds for the thread that installs it.
    thread::scope(|scope| {
        scope.spawn(|| {
            deny(PURGES, libc::ENOMEM);
            assert_eq!(arena.drain(), Err(REFUSED));
            let statistics = arena.statistics();
            let counted = (statistics.failed_drains, statistics.lazy_bytes);
            assert_eq!(counted, (1, 32 * PAGE as u64));
            let others: Vec<_> = (0..500).map(|_| arena.alloc(PAGE, 1).unwrap()).collect();
            assert!(
                others.iter().all(|area| !freed.contains(&area.addr())),
                "used again with what was in it"
            );
        });
    });
    arena.drain().expect("this thread may");
    assert_eq!(arena.statistics().lazy_bytes, 0);
    // All addresses, whichever pool the ranges went to.
    let again: Vec<_> = (0..5000).map_while(|_| arena.alloc(PAGE, 1).ok()).collect();
    for addr in freed {
        assert!(again.iter().any(|area| area.addr() == addr));
        assert_eq!(all_bytes(&arena, addr, PAGE), Some(0));
    }
}

#[test]
fn failed_guards_leak_nothing() {
    let arena = arena(16);
    if !arena.statistics().guards {
        eprintln!("no guard pages here");
        return;
    }
    thread::scope(|scope| {
        scope.spawn(|| {
            deny(PURGES, libc::ENOMEM);
            assert_eq!(arena.alloc(PAGE, 1).err(), Some(REFUSED));
        });
    });
    assert!(arena.alloc(PAGE, 1).is_ok());
    assert!(
        arena.alloc((16 << 20) - PAGE, 1).is_ok(),
        "the range has come back"
    );
}

#[test]
fn fallback_without_process_madvise() {
    thread::spawn(|| {
        deny(&[libc::SYS_process_madvise], libc::EPERM);
        let arena = arena(16);
        assert!(!arena.statistics().vectored);
        let mut areas = areas(&arena, 100, 2, 9);
        let mut stays = [true, false].into_iter().cycle();
        areas.retain(|_| stays.next().unwrap());
        arena.drain().unwrap();
        areas.extend((0..50).map(|_| arena.alloc(2 * PAGE, 1).unwrap()));
        for area in &areas[50..] {
            assert_eq!(all_bytes(&arena, area.addr(), 2 * PAGE), Some(0));
        }
    })
    .join()
    .unwrap();
}

/// A process has as many mappings as it may have: an arena goes on, and building another one fails
/// with advice.
#[test]
fn limit_of_mappings() {
    if !is_child() {
        child("limit_of_mappings").well();
        return;
    }
    let limit = std::fs::read_to_string("/proc/sys/vm/max_map_count").expect("Linux");
    if limit.trim().parse::<usize>().expect("a number") > 300_000 {
        eprintln!("too many mappings are allowed here");
        return;
    }
    let arena = Arena::new().unwrap();
    let mut mapped = Vec::with_capacity(400_000);
    loop {
        let protection = [libc::PROT_READ, libc::PROT_NONE][mapped.len() % 2];
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping.
        let at = unsafe { libc::mmap(ptr::null_mut(), PAGE, protection, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            break;
        }
        mapped.push(at);
    }
    let (large, small) = (arena.alloc(200 << 20, 1), arena.alloc(PAGE, 1));
    let other = Arena::new();
    for at in mapped {
        // SAFETY: made above.
        unsafe { libc::munmap(at, PAGE) };
    }
    let large = large.expect("no mapping more");
    large.copy_from((200 << 20) - 3, b"end").unwrap();
    assert!(small.is_ok());
    let refused = other.expect_err("the limit is reached");
    assert!(
        matches!(
            refused,
            Error::System {
                errno: libc::ENOMEM,
                ..
            }
        ),
        "{refused}"
    );
}

/// Allocates and frees at random: areas never overlap, and in the end all addresses are free again.
fn allocate_at_random(count: usize, threads: usize) {
    let arena = arena_with(2048, |builder| builder.lazy_limit(4 << 20));
    thread::scope(|scope| {
        for seed in 0..threads {
            let arena = &arena;
            scope.spawn(move || {
                let mut numbers = Random(seed as u64 + 1);
                let mut random = |below: usize| numbers.below(below as u64) as usize;
                let mut held: Vec<Area> = Vec::new();
                let mut model: BTreeMap<usize, usize> = BTreeMap::new();
                for _ in 0..count / threads {
                    if held.len() > 400 || (!held.is_empty() && random(2) == 0) {
                        let area = held.swap_remove(random(held.len()));
                        let mut mark = [0; 8];
                        area.copy_to(0, &mut mark).unwrap();
                        let mark = usize::from_ne_bytes(mark);
                        assert_eq!(mark, area.addr(), "another area has the same address");
                        model.remove(&area.addr());
                        continue;
                    }
                    let large = if random(200) == 0 {
                        1500 * PAGE
                    } else {
                        40 * PAGE
                    };
                    let area = arena.alloc(8 + random(large), 1 << random(15)).unwrap();
                    let (start, end) = (area.addr(), area.addr() + area.len());
                    let below = model.range(..end).next_back();
                    assert!(
                        below.is_none_or(|(_, &other)| other <= start),
                        "two areas overlap"
                    );
                    let mut mark = [1; 8];
                    area.copy_to(0, &mut mark).unwrap();
                    assert_eq!(mark, [0; 8], "not purged");
                    area.copy_from(0, &start.to_ne_bytes()).unwrap();
                    model.insert(start, end);
                    held.push(area);
                }
            });
        }
    });
    arena.drain().unwrap();
    arena.shrink();
    let statistics = arena.statistics();
    let used = statistics.live_bytes + statistics.lazy_bytes + statistics.pooled_bytes;
    assert_eq!((statistics.areas, used), (0, 0));
    assert_eq!(
        statistics.free_bytes, statistics.accessible_bytes,
        "address space has leaked"
    );
}

#[test]
fn random_allocations() {
    allocate_at_random(60_000, 3);
}

#[test]
#[ignore = "some minutes; run with --release"]
fn ten_million_random_allocations() {
    allocate_at_random(10_000_000, 3);
}

/// Many holes that are large enough and not aligned stand before the range at the frontier.
#[test]
fn large_alignment_behind_holes() {
    let arena = Arena::new().unwrap();
    let mut areas: Vec<_> = (0..48)
        .map(|_| arena.alloc(257 * PAGE, 1).unwrap())
        .collect();
    let mut stays = [false, true].into_iter().cycle();
    areas.retain(|_| stays.next().unwrap());
    arena.drain().unwrap();
    let area = arena.alloc(PAGE, 1 << 30).unwrap();
    assert!(area.addr().is_multiple_of(1 << 30));
}

/// The system refuses to purge locked memory: the drain unlocks it, and nothing else waits.
#[test]
fn locked_memory_is_purged() {
    let arena = arena_with(64, |builder| builder.lazy_limit(1 << 20));
    let locked = arena.alloc(PAGE, 1).unwrap();
    let addr = locked.addr();
    locked.copy_from(0, &[9; PAGE]).unwrap();
    // SAFETY: the area's own memory.
    if unsafe { libc::mlock(locked.as_ptr().cast(), PAGE) } != 0 {
        eprintln!("no memory may be locked here");
        return;
    }
    drop(locked);
    arena.drain().expect("unlocked by the drain");
    // More than the arena holds, if freed addresses did not come back.
    for _ in 0..200 {
        let area = arena.alloc(1 << 20, 1).expect("what was freed comes back");
        area.copy_from(0, &[1; 1024]).unwrap();
    }
    // All pages: which pool has the one depends on the processor that freed it.
    let all: Vec<_> = std::iter::from_fn(|| arena.alloc(PAGE, 1).ok()).collect();
    assert!(
        all.iter().any(|area| area.addr() == addr),
        "it comes back too"
    );
    assert_eq!(all_bytes(&arena, addr, PAGE), Some(0));
}
