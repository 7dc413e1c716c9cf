//! The methods of a `BTreeMap` in a section that change what they find.

use super::map::PinnedBTreeMap;
use crate::{
    key_source::KeySource,
    outcome::{Compute, Operation},
    upsert::upserts,
};
use std::{borrow::Borrow, convert::Infallible};

impl<K: Ord + Send + 'static, V: Send + 'static> PinnedBTreeMap<K, V> {
    /// Replaces the value of a key by what `update` makes of it. Returns the new value, or `None`
    /// if there is no such key. Otherwise as [`insert`](Self::insert).
    ///
    /// The new entry has a clone of the key. For keys that are not `Clone` there is
    /// [`update_or_insert`](Self::update_or_insert). `update` is called again if another thread has changed the
    /// entry meanwhile.
    ///
    /// ```
    /// let map = stillpoint_map::BTreeMap::from([("a", 1)]);
    /// let map = map.pin();
    /// assert_eq!(map.update("a", |number| number + 1), Some(&2));
    /// assert_eq!(map.update("b", |number| number + 1), None);
    /// ```
    #[doc(alias("alter", "and_modify", "get_mut", "modify"))]
    pub fn update<Q>(&self, key: &Q, mut update: impl FnMut(&V) -> V) -> Option<&V>
    where
        K: Clone + Borrow<Q>,
        Q: Ord + ?Sized,
    {
        loop {
            let at = self.store().locate(key)?;
            let (key, value) = at.found()?.pair();
            let new = self.store().new_entry(key.clone(), update(value));
            if let Ok(new) = at.replace(new) {
                return Some(new.value());
            }
        }
    }

    upserts! { "BTreeMap", compute where K: Borrow<Q>, Q: Ord + ToOwned<Owned = K> + ?Sized }

    /// [`compute`](Self::compute), whose closure also gets the value whose insertion was refused
    /// since the last call, because another thread had inserted the key.
    #[track_caller]
    fn compute_again<'g, N, T>(
        &'g self,
        mut sought: N,
        mut compute: impl FnMut(Option<(&'g K, &'g V)>, Option<V>) -> Operation<V, T>,
    ) -> Compute<'g, K, V, T>
    where
        N: KeySource<K, Key: Ord>,
        K: Borrow<N::Key>,
    {
        let mut not_inserted = None;
        loop {
            let at = self.store().locate(sought.key());
            let found = at.as_ref().and_then(|at| at.found());
            let pair = found.map(|found| found.pair());
            match (compute(pair, not_inserted.take()), at, found) {
                (Operation::Abort(with), ..) => return Compute::Aborted(with),
                (Operation::Remove, Some(at), Some(found)) => {
                    if at.remove() {
                        let (key, value) = found.pair();
                        return Compute::Removed(key, value);
                    }
                }
                (Operation::Remove, ..) => panic!(
                    "`Operation::Remove` for a key that is not there: return `Abort` for `None`"
                ),
                (Operation::Insert(value), Some(at), Some(old)) => {
                    let new = self.store().new_entry(sought.own(), value);
                    match at.replace(new) {
                        Ok(new) => {
                            return Compute::Updated {
                                old: old.pair(),
                                new: new.pair(),
                            };
                        }
                        Err(refused) => sought.take_back(refused.into_pair().0),
                    }
                }
                (Operation::Insert(value), ..) => {
                    let new = self.store().new_entry(sought.own(), value);
                    match self.store().insert(new, false) {
                        Ok(inserted) => {
                            let (key, value) = inserted.new.pair();
                            return Compute::Inserted(key, value);
                        }
                        Err(occupied) => {
                            let refused = occupied.new.into_pair();
                            sought.take_back(refused.0);
                            not_inserted = Some(refused.1);
                        }
                    }
                }
            }
        }
    }
}
