//! The key of a lookup that may become the key of a new entry.

/// A key that is sought, by value or by reference.
pub trait KeySource<K> {
    type Key: ?Sized;

    fn key(&self) -> &Self::Key;

    /// Returns a key for a new entry.
    fn own(&mut self) -> K;

    /// Takes the key of an entry back that was refused.
    fn take_back(&mut self, refused: K);
}

/// By value. An entry has the key, or this.
impl<K> KeySource<K> for Option<K> {
    type Key = K;

    fn key(&self) -> &K {
        self.as_ref().expect("a refused entry's key comes back")
    }

    fn own(&mut self) -> K {
        self.take().expect("a refused entry's key comes back")
    }

    fn take_back(&mut self, refused: K) {
        *self = Some(refused);
    }
}

/// By reference: a key is made for each entry.
impl<K, Q: ToOwned<Owned = K> + ?Sized> KeySource<K> for &Q {
    type Key = Q;

    fn key(&self) -> &Q {
        self
    }

    fn own(&mut self) -> K {
        (*self).to_owned()
    }

    fn take_back(&mut self, _: K) {}
}
