//! Pointers, and objects of all kinds behind them.

use crate::common::{Drops, registered, some};
use crossbeam_epoch::{self as epoch, Atomic, Collector, Owned, Pointable, Shared};
use std::{
    mem::MaybeUninit,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// Contract 2: all bytes 0 is null.
#[test]
fn zeroed_memory_is_null() {
    // SAFETY: the test is about that.
    let zeroed: [Atomic<String>; 3] = unsafe { MaybeUninit::zeroed().assume_init() };
    let guard = &epoch::pin();
    assert!(
        zeroed
            .iter()
            .all(|atomic| atomic.load(Ordering::Relaxed, guard).is_null())
    );
    assert_eq!(size_of::<Atomic<String>>(), size_of::<*mut String>());
    assert_eq!(align_of::<Atomic<String>>(), align_of::<*mut String>());
}

#[test]
fn unsized_objects_have_their_length_with_them() {
    let guard = &epoch::pin();
    for len in [0, 1, 7, 1000] {
        let mut owned = Owned::<[MaybeUninit<u16>]>::init(len);
        assert_eq!(owned.len(), len);
        owned.iter_mut().enumerate().for_each(|(n, element)| {
            element.write(n as u16);
        });
        let atomic: Atomic<[MaybeUninit<u16>]> = Atomic::from(owned.with_tag(1));
        let shared = atomic.load(Ordering::Acquire, guard);
        assert_eq!(shared.tag(), 1);
        // SAFETY: written above; no other thread knows it.
        unsafe {
            let last = shared.deref().last().map(|last| last.assume_init());
            assert_eq!(last, len.checked_sub(1).map(|last| last as u16));
            guard.defer_destroy(shared);
        }
    }
    assert_eq!(<[MaybeUninit<u8>]>::ALIGN, align_of::<usize>());
    #[repr(align(32))]
    struct Aligned;
    assert_eq!(<[MaybeUninit<Aligned>]>::ALIGN, 32);
    let owned = Owned::<[MaybeUninit<Aligned>]>::init(3);
    assert_eq!(owned.as_ptr().addr() % 32, 0);
}

/// A user's type behind a pointer.
struct Pair(Arc<AtomicUsize>);

#[repr(transparent)]
struct Unsized([u8]);

impl Pointable for Unsized {
    const ALIGN: usize = 8;
    type Init = Pair;

    unsafe fn init(init: Pair) -> usize {
        Box::into_raw(Box::new((init, 8_u64))).expose_provenance()
    }
    unsafe fn deref<'a>(ptr: usize) -> &'a Self {
        let at = std::ptr::with_exposed_provenance::<(Pair, u64)>(ptr);
        // SAFETY: eight bytes of a box of this type; transparent.
        unsafe {
            let bytes = std::ptr::slice_from_raw_parts((&raw const (*at).1).cast::<u8>(), 8);
            &*(bytes as *const Self)
        }
    }
    unsafe fn deref_mut<'a>(ptr: usize) -> &'a mut Self {
        let at = std::ptr::with_exposed_provenance_mut::<(Pair, u64)>(ptr);
        // SAFETY: as in `deref`.
        unsafe {
            let bytes = std::ptr::slice_from_raw_parts_mut((&raw mut (*at).1).cast::<u8>(), 8);
            &mut *(bytes as *mut Self)
        }
    }
    unsafe fn drop(ptr: usize) {
        let at = std::ptr::with_exposed_provenance_mut::<(Pair, u64)>(ptr);
        // SAFETY: of a box of this type.
        let both = unsafe { Box::from_raw(at) };
        both.0.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_users_own_pointable_is_freed_by_itself() {
    let freed = Arc::new(AtomicUsize::new(0));
    let (collector, handle) = registered();
    {
        let guard = handle.pin();
        let atomic = Atomic::<Unsized>::init(Pair(Arc::clone(&freed)));
        let shared = atomic.load(Ordering::Acquire, &guard);
        // SAFETY: no other thread knows it.
        unsafe {
            assert_eq!(shared.deref().0.len(), 8);
            // With a tag, which is not part of the address.
            guard.defer_destroy(shared.with_tag(5));
        }
    }
    drop((handle, collector));
    assert_eq!(freed.load(Ordering::Relaxed), 1);
}

#[test]
fn objects_of_all_kinds_are_freed_whatever_their_tag() {
    static GONE: AtomicUsize = AtomicUsize::new(0);
    struct Nothing;
    impl Drop for Nothing {
        fn drop(&mut self) {
            GONE.fetch_add(1, Ordering::Relaxed);
        }
    }
    let drops = Drops::default();
    let (collector, handle) = registered();
    {
        let guard = &handle.pin();
        // SAFETY: no other thread knows any of them.
        unsafe {
            guard.defer_destroy(Owned::new(7_u64).with_tag(3).into_shared(guard));
            guard.defer_destroy(Owned::new(()).into_shared(guard));
            guard.defer_destroy(Owned::new([0_u8; 5000]).into_shared(guard));
            let string = Owned::new(String::from("a string"));
            guard.defer_destroy(string.with_tag(7).into_shared(guard));
            let large = Owned::new((drops.one(), [0_u64; 500]));
            guard.defer_destroy(large.with_tag(1).into_shared(guard));
            guard.defer_destroy(Owned::new(Nothing).into_shared(guard));
        }
    }
    drop((handle, collector));
    assert_eq!((drops.count(), GONE.load(Ordering::Relaxed)), (1, 1));
}

#[test]
fn tags_have_the_bits_that_the_alignment_leaves() {
    let guard = &epoch::pin();
    assert_eq!(Shared::<u8>::null().with_tag(usize::MAX).tag(), 0);
    assert_eq!(Shared::<u64>::null().with_tag(usize::MAX).tag(), 7);
    let atomic = Atomic::new(5_u64);
    atomic.fetch_or(usize::MAX, Ordering::Relaxed, guard);
    assert_eq!(atomic.load(Ordering::Relaxed, guard).tag(), 7);
    assert_eq!(atomic.fetch_and(5, Ordering::Relaxed, guard).tag(), 7);
    assert_eq!(
        atomic.fetch_xor(usize::MAX, Ordering::Relaxed, guard).tag(),
        5
    );
    let shared = atomic.load(Ordering::Relaxed, guard);
    assert_eq!(shared.tag(), 2);
    // SAFETY: no other thread knows it.
    unsafe {
        assert_eq!(shared.deref(), &5);
        assert_ne!(shared, shared.with_tag(0), "compared with their tags");
        drop(atomic.into_owned());
    }
    assert!(Shared::<u64>::null().with_tag(3).is_null());
    // SAFETY: there is nothing.
    assert!(unsafe { Shared::<u64>::null().with_tag(3).try_into_owned() }.is_none());
}

#[test]
#[should_panic(expected = "unaligned pointer")]
fn a_raw_pointer_is_aligned() {
    let _ = Shared::from(std::ptr::without_provenance::<u64>(9));
}

/// Printing a pointer does not follow it.
#[test]
fn pointers_are_shown_without_a_look_at_what_is_there() {
    let dangling = Shared::from(std::ptr::without_provenance::<u64>(0x1000)).with_tag(3);
    let (atomic, collector) = (Atomic::<u64>::from(dangling), Collector::new());
    for (shown, expected) in [
        (format!("{:p}", Atomic::<u64>::null()), "0x0"),
        (format!("{:p}", Shared::<[MaybeUninit<u8>]>::null()), "0x0"),
        (format!("{dangling:p} {atomic:p}"), "0x1000 0x1000"),
        (format!("{dangling:?}"), "Shared { raw: 4096, tag: 3 }"),
        (format!("{atomic:?}"), "Atomic { raw: 4096, tag: 3 }"),
        (format!("{:?}", epoch::pin()), "Guard { .. }"),
        (format!("{collector:?}"), "Collector { .. }"),
        (format!("{:?}", collector.register()), "LocalHandle { .. }"),
    ] {
        assert_eq!(shown, expected);
    }
}

/// Exchanges, and the error of a failed one.
#[test]
fn exchanges_give_back_what_was_not_stored() {
    let guard = &epoch::pin();
    let atomic = Atomic::<u32>::null();
    let (strong, weak) = (Ordering::AcqRel, Ordering::Acquire);
    let stored = atomic
        .compare_exchange(Shared::null(), Owned::new(1), strong, weak, guard)
        .unwrap();
    let error = atomic
        .compare_exchange(Shared::null(), Owned::new(2), strong, weak, guard)
        .unwrap_err();
    assert_eq!((error.current, *error.new), (stored, 2));
    let updated = atomic.fetch_update(strong, weak, guard, |seen| Some(seen.with_tag(1)));
    assert_eq!(updated, Ok(stored));
    let refused = atomic.fetch_update(strong, weak, guard, |_| None);
    assert_eq!(refused, Err(stored.with_tag(1)));
    let swapped = atomic.swap(Shared::null(), strong, guard);
    assert_eq!(swapped, stored.with_tag(1));
    // SAFETY: no other thread knows it.
    drop(unsafe { swapped.into_owned() });
    assert_eq!(atomic.load_consume(guard), Shared::null());
}

/// Many threads replace one object; each object found is whole.
#[test]
fn threads_find_whole_objects() {
    let (drops, made) = (Drops::default(), AtomicUsize::new(1));
    let atomic = Atomic::new((drops.one(), [1_u64; 8]));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for n in 0..some(20_000) as u64 {
                    let guard = &epoch::pin();
                    let found = atomic.load(Ordering::Acquire, guard);
                    // SAFETY: not null, and the guard keeps it.
                    let numbers = unsafe { found.deref() }.1;
                    assert!(numbers.iter().all(|&each| each == numbers[0]));
                    if n % 3 == 0 {
                        let new = Owned::new((drops.one(), [n; 8]));
                        made.fetch_add(1, Ordering::Relaxed);
                        let old = atomic.swap(new, Ordering::AcqRel, guard);
                        // SAFETY: no thread finds it any more.
                        unsafe { guard.defer_destroy(old) };
                    }
                }
            });
        }
    });
    drops.wait_for(made.load(Ordering::Relaxed) - 1);
    // SAFETY: no other thread knows it.
    drop(unsafe { atomic.into_owned() });
}
