//! Copies bytes that other threads, and other processes, may be writing.
//!
//! No reference to such bytes is ever made, and the language's own copies may not race. Here each
//! byte is moved by one instruction that the compiler knows nothing of (x86-64), or as a relaxed
//! atomic. A race yields some mixture of bytes that were there, never undefined behavior. A copy
//! orders nothing.

/// Copies `len` bytes that other threads may be writing or reading: what arrives is some mixture of
/// bytes that were there.
///
/// The copy behind [`Checked::copy_to`](super::Checked::copy_to), for memory outside of areas: a
/// mapping of an [`Arena::file`](super::Arena::file) in another process, say. It is about as fast as
/// `memcpy`. Async-signal-safe; orders nothing.
///
/// # Safety
///
/// `len` bytes may be read at `from` and written at `to`. If any thread writes them, no reference to
/// them is in use. Concurrent accesses are by this function, or by other processes. The two ranges
/// do not overlap. `from` was not derived from a shared reference, through which no write is
/// allowed.
#[inline]
pub unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { arch::copy(to, from, len) }
}

/// Like [`copy`], from bytes that no thread writes.
///
/// # Safety
///
/// See [`copy`], as far as `to` is concerned.
#[inline]
pub(crate) unsafe fn copy_in(to: *mut u8, from: &[u8]) {
    // SAFETY: the caller's promise.
    unsafe { arch::copy_in(to, from) }
}

/// Like [`copy`], for ranges that may overlap.
///
/// # Safety
///
/// See [`copy`]; the ranges may overlap.
pub(crate) unsafe fn copy_overlapping(to: *mut u8, from: *const u8, len: usize) {
    const STEP: usize = 256;
    let ahead = to.addr().wrapping_sub(from.addr());
    if ahead >= len && ahead.wrapping_neg() >= len {
        // SAFETY: apart from each other.
        return unsafe { copy(to, from, len) };
    }
    // Through a buffer, from the end that is not overwritten before it has been read.
    let mut buffer = [0_u8; STEP];
    let mut moved = 0;
    while moved < len {
        let step = STEP.min(len - moved);
        let at = if ahead < len {
            len - moved - step
        } else {
            moved
        };
        // SAFETY: inside both ranges; the buffer is ours.
        unsafe {
            copy(buffer.as_mut_ptr(), from.add(at), step);
            copy_in(to.add(at), &buffer[..step]);
        }
        moved += step;
    }
}

#[cfg(all(target_arch = "x86_64", not(any(miri, stillpoint_tsan))))]
mod arch {
    /// # Safety
    ///
    /// See [`copy_in`](super::copy_in).
    #[inline]
    pub(crate) unsafe fn copy_in(to: *mut u8, from: &[u8]) {
        // SAFETY: the caller's promise, and a slice may be read.
        unsafe { copy(to, from.as_ptr(), from.len()) }
    }

    use std::{
        arch::{
            asm,
            x86_64::{__cpuid, __cpuid_count, __m128i},
        },
        sync::atomic::{AtomicUsize, Ordering::Relaxed},
    };

    /// Length in bytes from which on it pays to begin at a cache line.
    const ALIGNED: usize = 1024;

    /// Length in bytes from which on the processor's string move is fastest, without wide registers.
    const STRING: usize = 1024;

    /// Bytes of the widest registers that are worth using; 0 before the first copy that could use
    /// them.
    static WIDEST: AtomicUsize = AtomicUsize::new(0);

    #[cold]
    fn widest() -> usize {
        // Processors with AVX-512 and AVX-VNNI do not lower their frequency for 64 bytes (the C
        // library decides by the same).
        let keeps_frequency = || {
            // SAFETY: every x86-64 has leaf 0; leaf 7 is read only where leaf 0 knows it.
            #[allow(unused_unsafe, reason = "newer compilers have these as safe functions")]
            unsafe {
                __cpuid(0).eax >= 7 && __cpuid_count(7, 1).eax & 1 << 4 != 0
            }
        };
        if is_x86_feature_detected!("avx512f") && keeps_frequency() {
            64
        } else if is_x86_feature_detected!("avx") {
            32
        } else {
            16
        }
    }

    /// Expands to a function that moves the bytes of one register.
    macro_rules! move_as {
        ($class:ident, $type:ty, $modifier:literal, $load:literal, $store:literal) => {
            |to: *mut u8, from: *const u8| {
                let _value: $type;
                // SAFETY: as for `copy`.
                unsafe {
                    asm!(
                        concat!($load, " {value", $modifier, "}, [{from}]"),
                        concat!($store, " [{to}], {value", $modifier, "}"),
                        value = out($class) _value, from = in(reg) from, to = in(reg) to, options(nostack, preserves_flags),
                    );
                }
            }
        };
    }

    /// # Safety
    ///
    /// See [`copy`](super::copy).
    #[inline(always)]
    pub(crate) unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
        let widest = WIDEST.load(Relaxed);
        // SAFETY: the caller's promise; `WIDEST` is no more than the processor has.
        unsafe {
            match len {
                256.. if widest == 64 => by_64(to, from, len),
                128.. if widest >= 32 => by_32(to, from, len),
                _ => narrow(to, from, len),
            }
        }
    }

    /// # Safety
    ///
    /// See [`copy`](super::copy).
    #[inline(never)]
    unsafe fn narrow(to: *mut u8, from: *const u8, len: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            match len {
                0..16 => short(to, from, len),
                128.. if WIDEST.load(Relaxed) == 0 => {
                    WIDEST.store(widest(), Relaxed);
                    copy(to, from, len);
                }
                16..STRING => registers(to, from, len),
                _ => {
                    asm!("rep movsb", inout("rcx") len => _, inout("rdi") to => _, inout("rsi") from => _,
                         options(nostack, preserves_flags));
                }
            }
        }
    }

    /// Defines a copy by four registers at a time. The last four end with the range, so they may
    /// copy some bytes twice.
    macro_rules! copy_by {
        ($name:ident, $bytes:literal, $step:literal, $a:literal, $b:literal, $c:literal, $d:literal, $end:literal) => {
            /// # Safety
            ///
            /// See `copy`, with four registers' bytes at least, on a processor that has them.
            #[inline(never)]
            unsafe fn $name(mut to: *mut u8, mut from: *const u8, mut len: usize) {
                if len >= ALIGNED {
                    // A store across two cache lines costs as much as three: the first line by
                    // itself, and from the next one on.
                    let first = to.addr().wrapping_neg() % 64;
                    // SAFETY: the first 64 bytes are inside the ranges, and there are more.
                    unsafe {
                        registers(to, from, 64);
                        (to, from, len) = (to.add(first), from.add(first), len - first);
                    }
                }
                // SAFETY: all inside the ranges: the steps before the last, which begin at 0, one
                // step, two, ..., and the last, which ends where they do. Each is loaded before it
                // is stored. The upper halves of the lower sixteen registers are clean afterwards,
                // as the ABI has it.
                unsafe {
                    asm!(
                        "jmp 3f",
                        "2:",
                        concat!("vmovups ", $a, ", [rsi]"),
                        concat!("vmovups ", $b, ", [rsi + ", $bytes, "]"),
                        concat!("vmovups ", $c, ", [rsi + 2 * ", $bytes, "]"),
                        concat!("vmovups ", $d, ", [rsi + 3 * ", $bytes, "]"),
                        concat!("vmovups [rdi], ", $a),
                        concat!("vmovups [rdi + ", $bytes, "], ", $b),
                        concat!("vmovups [rdi + 2 * ", $bytes, "], ", $c),
                        concat!("vmovups [rdi + 3 * ", $bytes, "], ", $d),
                        concat!("sub rsi, -", $step),
                        concat!("sub rdi, -", $step),
                        "3:",
                        "cmp rsi, rdx",
                        "jb 2b",
                        "sub rdi, rsi",
                        "add rdi, rdx",
                        concat!("vmovups ", $a, ", [rdx]"),
                        concat!("vmovups ", $b, ", [rdx + ", $bytes, "]"),
                        concat!("vmovups ", $c, ", [rdx + 2 * ", $bytes, "]"),
                        concat!("vmovups ", $d, ", [rdx + 3 * ", $bytes, "]"),
                        concat!("vmovups [rdi], ", $a),
                        concat!("vmovups [rdi + ", $bytes, "], ", $b),
                        concat!("vmovups [rdi + 2 * ", $bytes, "], ", $c),
                        concat!("vmovups [rdi + 3 * ", $bytes, "], ", $d),
                        $end,
                        inout("rsi") from => _, inout("rdi") to => _, in("rdx") from.add(len - $step),
                        clobber_abi("sysv64"), options(nostack),
                    );
                }
            }
        };
    }

    copy_by!(by_32, 32, 128, "ymm0", "ymm1", "ymm2", "ymm3", "vzeroupper");
    // No other code uses the lower halves of these registers, so nothing has to be cleaned.
    copy_by!(by_64, 64, 256, "zmm16", "zmm17", "zmm18", "zmm19", "");

    /// Returns each copy that this processor can run, and the smallest length it takes.
    #[cfg(test)]
    pub(crate) fn ways() -> Vec<(usize, super::tests::Way)> {
        WIDEST.store(widest(), Relaxed);
        let all: [(usize, usize, super::tests::Way); 4] = [
            (16, 0, narrow),
            (16, 0, copy),
            (32, 128, by_32),
            (64, 256, by_64),
        ];
        all.into_iter()
            .filter(|&(width, ..)| width <= widest())
            .map(|(_, least, way)| (least, way))
            .collect()
    }

    /// Copies 16 bytes at a time. The last 16 end with the range, so they may copy some bytes twice.
    ///
    /// # Safety
    ///
    /// See `copy`, with 16 bytes at least.
    #[inline]
    unsafe fn registers(to: *mut u8, from: *const u8, len: usize) {
        let move16 = move_as!(xmm_reg, __m128i, "", "movups", "movups");
        let last = len - 16;
        let mut at = 0;
        // SAFETY: all inside the ranges, and loaded before it is stored; where moves overlap they
        // store the same bytes, but for races.
        unsafe {
            while at + 64 <= len {
                asm!(
                    "movups {a}, [{from}]", "movups {b}, [{from} + 16]", "movups {c}, [{from} + 32]", "movups {d}, [{from} + 48]",
                    "movups [{to}], {a}", "movups [{to} + 16], {b}", "movups [{to} + 32], {c}", "movups [{to} + 48], {d}",
                    a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
                    from = in(reg) from.add(at), to = in(reg) to.add(at), options(nostack, preserves_flags),
                );
                at += 64;
            }
            while at < last {
                move16(to.add(at), from.add(at));
                at += 16;
            }
            move16(to.add(last), from.add(last));
        }
    }

    /// # Safety
    ///
    /// See `copy`, with fewer than 16 bytes.
    #[inline]
    unsafe fn short(to: *mut u8, from: *const u8, len: usize) {
        let move8 = move_as!(reg, u64, ":r", "mov", "mov");
        let move4 = move_as!(reg, u32, ":e", "mov", "mov");
        let move1 = move_as!(reg_byte, u8, "", "mov", "mov");
        // SAFETY: inside the ranges.
        unsafe {
            if len >= 8 {
                move8(to, from);
                move8(to.add(len - 8), from.add(len - 8));
            } else if len >= 4 {
                move4(to, from);
                move4(to.add(len - 4), from.add(len - 4));
            } else {
                (0..len).for_each(|at| move1(to.add(at), from.add(at)));
            }
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", not(any(miri, stillpoint_tsan)))))]
mod arch {
    use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

    /// Copies byte by byte: atomic accesses of different sizes that overlap and race are undefined,
    /// and a concurrent copy may have another alignment.
    ///
    /// # Safety
    ///
    /// See [`copy`](super::copy).
    pub(crate) unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
        let byte = |at: usize| {
            // SAFETY: inside the ranges; bytes have no alignment.
            unsafe {
                AtomicU8::from_ptr(to.add(at)).store(
                    AtomicU8::from_ptr(from.add(at).cast_mut()).load(Relaxed),
                    Relaxed,
                )
            }
        };
        (0..len).for_each(byte);
    }

    #[cfg(test)]
    pub(crate) fn ways() -> Vec<(usize, super::tests::Way)> {
        vec![(0, copy as super::tests::Way)]
    }

    /// # Safety
    ///
    /// See [`copy_in`](super::copy_in).
    pub(crate) unsafe fn copy_in(to: *mut u8, from: &[u8]) {
        // SAFETY: inside the range; bytes have no alignment.
        from.iter()
            .enumerate()
            .for_each(|(at, byte)| unsafe { AtomicU8::from_ptr(to.add(at)) }.store(*byte, Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at * 31 + 7) as u8).collect()
    }

    /// One of the ways that bytes are copied in.
    pub(super) type Way = unsafe fn(*mut u8, *const u8, usize);

    fn assert_copied(to: &[u8], from: &[u8], at: usize, what: &dyn std::fmt::Debug) {
        let end = at + from.len();
        assert_eq!(&to[at..end], from, "{what:?}");
        assert!(
            to[..at].iter().chain(&to[end..]).all(|&byte| byte == 0xEE),
            "{what:?}"
        );
    }

    #[test]
    fn copy_of_every_length() {
        let step = if cfg!(miri) { 37 } else { 1 };
        let lengths = (0..600)
            .chain((1000..1600).step_by(7))
            .step_by(step)
            .chain([4096]);
        for (len, shift) in lengths.flat_map(|len| [0, 1, 8].map(|shift| (len, shift))) {
            let mut from = bytes(len + shift);
            let from = &mut from[shift..];
            for (number, (_, way)) in arch::ways()
                .into_iter()
                .filter(|&(least, _)| least <= len)
                .enumerate()
            {
                let mut to = vec![0xEE; len + 32];
                // SAFETY: inside both, which are our own, and no shorter than it copies.
                unsafe { way(to.as_mut_ptr().add(16), from.as_mut_ptr(), len) };
                assert_copied(&to, from, 16, &(number, len, shift));
            }
            let mut to = vec![0xEE; len + 32];
            // SAFETY: inside `to`, which is our own.
            unsafe { copy_in(to.as_mut_ptr().add(16), from) };
            assert_copied(&to, from, 16, &(len, shift));
        }
    }

    #[test]
    fn copy_of_overlapping_ranges() {
        for (from, to) in [
            (0, 1),
            (1, 0),
            (0, 100),
            (100, 0),
            (0, 700),
            (700, 0),
            (0, 3000),
            (5, 5),
        ] {
            for len in [0, 1, 255, 256, 257, 1000] {
                let mut bytes = bytes(4096);
                let mut expected = bytes.clone();
                expected.copy_within(from..from + len, to);
                let at = bytes.as_mut_ptr();
                // SAFETY: inside the vector.
                unsafe { copy_overlapping(at.add(to), at.add(from), len) };
                assert!(bytes == expected, "{from} {to} {len}");
            }
        }
    }
}
