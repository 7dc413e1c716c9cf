//! Random steps on an arena, against a tree.

use super::*;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Against a tree: areas are disjoint, found and walked as the model says, zero when new, and
    /// all space comes back.
    #[test]
    fn it_agrees_with_a_tree(
        steps in prop::collection::vec((1..40_usize * PAGE, 0..16_u32, any::<prop::sample::Index>(), 0..8_u8), 1..400),
        guards: bool, poison: bool, file: bool,
    ) {
        let capacity = 8 << 20;
        let arena = Arena::builder().capacity(capacity).lazy_limit(1 << 20).guards(guards).poison(poison).memory_file(file).build().unwrap();
        let mut model: BTreeMap<usize, (usize, u8, Area)> = BTreeMap::new();
        for (size, align, which, action) in steps {
            match action {
                0..5 => match arena.alloc(size, 1 << align) {
                    Ok(area) => {
                        let (start, end) = (area.addr(), area.addr() + size);
                        prop_assert!(start % (1 << align) == 0);
                        prop_assert!(model.range(..end).next_back().is_none_or(|(&at, (len, ..))| at + len <= start));
                        prop_assert_eq!(all_bytes(&arena, start, size), Some(0));
                        let mark = 1 + (start / PAGE % 255) as u8;
                        area.copy_from(0, &vec![mark; size]).unwrap();
                        model.insert(start, (size, mark, area));
                    }
                    Err(error) => prop_assert!(matches!(error, Error::AddressSpace { waiting: 0, .. }), "{}", error),
                },
                5 | 6 if !model.is_empty() => {
                    let start = *model.keys().nth(which.index(model.len())).unwrap();
                    let (size, mark, area) = model.remove(&start).unwrap();
                    prop_assert_eq!(all_bytes(&arena, start, size), Some(mark));
                    drop(area);
                    prop_assert_eq!(all_bytes(&arena, start, size), None);
                }
                7 => arena.drain().unwrap(),
                _ => {}
            }
        }
        let guard = arena.read_lock();
        let walked: Vec<_> = arena.areas(&guard).map(|found| (found.addr(), found.len())).collect();
        let expected: Vec<_> = model.iter().map(|(&start, &(size, ..))| (start, size)).collect();
        prop_assert_eq!(walked, expected);
        for (&start, &(size, mark, _)) in &model {
            prop_assert_eq!(all_bytes(&arena, start, size), Some(mark));
        }
        drop(guard);
        prop_assert_eq!(arena.statistics().areas, model.len() as u64);
        model.clear();
        let guard_bytes = if arena.statistics().guards { PAGE } else { 0 };
        prop_assert!(arena.alloc(capacity - guard_bytes, 1).is_ok(), "address space has leaked");
    }
}
