//! Good hashers and bad ones.

use std::hash::{BuildHasher, Hasher};
use stillpoint_map::DefaultHashBuilder;

/// How keys, which are numbers, are hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Default,
    /// The key itself.
    Identity,
    /// All keys collide.
    Constant,
    /// Multiples of 2^32: the low half says nothing.
    HighHalf,
}

pub const KINDS: [Kind; 4] = [
    Kind::Default,
    Kind::Identity,
    Kind::Constant,
    Kind::HighHalf,
];

#[derive(Clone)]
pub struct Hashers {
    kind: Kind,
    default: DefaultHashBuilder,
}

impl Hashers {
    pub fn of(kind: Kind) -> Self {
        Self {
            kind,
            default: DefaultHashBuilder::default(),
        }
    }
}

pub struct KeyHasher {
    kind: Kind,
    default: <DefaultHashBuilder as BuildHasher>::Hasher,
    key: u64,
}

impl BuildHasher for Hashers {
    type Hasher = KeyHasher;

    fn build_hasher(&self) -> KeyHasher {
        KeyHasher {
            kind: self.kind,
            default: self.default.build_hasher(),
            key: 0,
        }
    }
}

impl Hasher for KeyHasher {
    fn write(&mut self, _bytes: &[u8]) {
        unimplemented!("keys are numbers");
    }

    fn write_u64(&mut self, key: u64) {
        self.default.write_u64(key);
        self.key = key;
    }

    fn finish(&self) -> u64 {
        match self.kind {
            Kind::Default => self.default.finish(),
            Kind::Identity => self.key,
            Kind::Constant => 7,
            Kind::HighHalf => self.key << 32,
        }
    }
}
