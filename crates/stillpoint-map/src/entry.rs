//! A key and its value: before a map has them, and found in one.

use crate::slot::{Head, fits};
use std::{marker::PhantomData, ops::Deref, ptr::NonNull};

/// A key and its value.
#[derive(Debug)]
#[repr(C)]
pub struct Entry<K, V> {
    head: Head,
    /// The key.
    pub key: K,
    /// The value.
    pub value: V,
}

impl<K, V> Entry<K, V> {
    /// The hash of the key, spread.
    pub fn hash(&self) -> u64 {
        self.head.hash
    }

    /// Key and value.
    #[inline(always)]
    pub fn pair(&self) -> (&K, &V) {
        (&self.key, &self.value)
    }
}

/// An entry that no map has, in a box.
#[derive(Debug)]
pub struct NewEntry<K, V>(NonNull<Entry<K, V>>);

impl<K, V> NewEntry<K, V> {
    /// Makes an entry of a key with that hash. Ends the process without memory.
    pub fn new(hash: u64, key: K, value: V) -> Self {
        let head = Head { hash };
        let entry = NonNull::from(Box::leak(Box::new(Entry { head, key, value })));
        assert!(
            fits(entry),
            "a map's entries lie at addresses of 48 bits: use an allocator that gives such"
        );
        Self(entry)
    }

    /// Its beginning.
    pub fn head(&self) -> NonNull<Head> {
        self.0.cast()
    }

    /// It is in a map now, for a section that lasts for `'g`.
    pub fn publish<'g>(self) -> Found<'g, K, V> {
        let entry = self.0;
        std::mem::forget(self);
        Found::of(entry.cast())
    }

    /// Takes the key and the value out of the box.
    pub fn into_entry(self) -> Entry<K, V> {
        // SAFETY: from a box, and no map has it.
        let entry = unsafe { Box::from_raw(self.0.as_ptr()) };
        std::mem::forget(self);
        *entry
    }
}

impl<K, V> Deref for NewEntry<K, V> {
    type Target = Entry<K, V>;

    fn deref(&self) -> &Entry<K, V> {
        // SAFETY: from a box, and no map has it.
        unsafe { self.0.as_ref() }
    }
}

impl<K, V> Drop for NewEntry<K, V> {
    fn drop(&mut self) {
        // SAFETY: from a box, and no map has it.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// An entry that was found in a section, which lasts for `'g`.
#[derive(Debug)]
pub struct Found<'g, K, V> {
    /// As it was allocated: a reference would not do to free it.
    entry: NonNull<Entry<K, V>>,
    found: PhantomData<&'g Entry<K, V>>,
}

impl<K, V> Clone for Found<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for Found<'_, K, V> {}

impl<'g, K, V> Found<'g, K, V> {
    /// The entry whose beginning was found, as it was allocated.
    pub fn of(head: NonNull<Head>) -> Self {
        Self {
            entry: head.cast(),
            found: PhantomData,
        }
    }

    /// Its beginning.
    pub fn head(self) -> NonNull<Head> {
        self.entry.cast()
    }

    /// Where it is, as it was allocated.
    pub fn pointer(self) -> NonNull<Entry<K, V>> {
        self.entry
    }

    /// The entry.
    #[inline(always)]
    pub fn get(self) -> &'g Entry<K, V> {
        // SAFETY: found in a section that lasts for `'g`, before whose end it is not freed.
        unsafe { self.entry.as_ref() }
    }
}

impl<K, V> Deref for Found<'_, K, V> {
    type Target = Entry<K, V>;

    #[inline(always)]
    fn deref(&self) -> &Entry<K, V> {
        self.get()
    }
}
