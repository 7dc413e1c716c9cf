//! How large slots are: some sizes, each of which divides a run without a rest.

use stillpoint_map::internal::REGION;

/// Size of a page of the processor, in bytes: the unit in which memory is taken from a region and goes back
/// to the system.
pub const PAGE: usize = if cfg!(any(stillpoint_loom, miri)) {
    REGION / 32
} else if cfg!(any(
    target_arch = "aarch64",
    target_arch = "loongarch64",
    target_arch = "mips64",
    target_arch = "powerpc64"
)) {
    // They may have pages of 64 KiB.
    64 << 10
} else {
    4 << 10
};

/// The bytes of a run.
pub const RUN: usize = if cfg!(any(stillpoint_loom, miri)) {
    REGION / 8
} else if PAGE > 32 << 10 {
    PAGE
} else {
    32 << 10
};

/// The largest slot of a run; what is larger has pages of its own.
const LARGEST: usize = RUN / 4;

/// Up to this size they differ by [`STEP`], above by an eighth of the power of two below.
const EVEN: usize = 8 * STEP;
const STEP: usize = 16;

/// Number of classes.
pub const CLASSES: usize = 8 + 8 * (LARGEST / EVEN).ilog2() as usize;

/// One size of slots.
#[derive(Debug, Clone, Copy)]
pub struct Class {
    pub size: usize,
    /// Number of slots in a run.
    pub slots: usize,
    /// Number of the class: of those with as many slots, the one with the largest.
    number: usize,
}

static TABLE: [Class; CLASSES] = table();

/// Returns the least size that a class has to hold, in bytes.
const fn nominal(index: usize) -> usize {
    if index < 8 {
        return STEP * (index + 1);
    }
    let (doublings, eighth) = ((index - 8) / 8, (index - 8) % 8);
    (EVEN + STEP * (eighth + 1)) << doublings
}

const fn table() -> [Class; CLASSES] {
    let none = Class {
        size: 0,
        slots: 0,
        number: 0,
    };
    let mut table = [none; CLASSES];
    let mut index = CLASSES;
    while index > 0 {
        index -= 1;
        let slots = RUN / nominal(index);
        let is_same = index + 1 < CLASSES && table[index + 1].slots == slots;
        table[index] = Class {
            // All of the run, in words.
            size: RUN / slots / 8 * 8,
            slots,
            number: if is_same {
                table[index + 1].number
            } else {
                index
            },
        };
    }
    table
}

/// Returns the number of the class for slots of `bytes` bytes, at least one; `None` if it takes whole pages.
pub fn of(bytes: usize) -> Option<usize> {
    if bytes > LARGEST {
        return None;
    }
    let index = if bytes <= EVEN {
        bytes.div_ceil(STEP) - 1
    } else {
        let doublings = ((bytes - 1) / EVEN).ilog2() as usize;
        let eighth = (bytes - (EVEN << doublings)).div_ceil(STEP << doublings) - 1;
        8 + 8 * doublings + eighth
    };
    Some(TABLE[index].number)
}

/// Returns the class with a number.
#[inline]
pub fn class(number: usize) -> Class {
    TABLE[number]
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_size_has_a_class_that_wastes_little() {
        for bytes in 1..=LARGEST {
            let class = class(of(bytes).expect("a class"));
            assert!(class.size >= bytes && class.size * class.slots <= RUN);
            assert_eq!(class.size % 8, 0);
            if cfg!(not(miri)) && bytes > EVEN {
                let waste = (class.size - bytes) as f64 / class.size as f64;
                assert!(waste < 0.25, "{bytes} of {}", class.size);
                assert!(RUN - class.size * class.slots < RUN / 32, "{}", class.size);
            }
        }
        assert_eq!(of(LARGEST + 1), None);
    }

    #[test]
    fn a_number_of_slots_has_one_class() {
        let mut before = None;
        for bytes in 1..=LARGEST {
            let number = of(bytes).expect("a class");
            if before.is_some_and(|before| before != number) {
                assert!(class(number).slots < class(before.unwrap()).slots);
            }
            before = Some(number);
        }
    }
}
