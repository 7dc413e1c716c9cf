//! Tenants by name. A change of a directory makes a new one, which has all but one piece of the old
//! one's: so creating one of ten thousand tenants costs the same few microseconds as one of ten.

use crate::space::Space;
use std::{ops::Index, sync::Arc};

/// A piece that has more is divided.
const PIECE: usize = 128;

/// Spaces in the order of their names.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spaces {
    /// In order, and none of them empty.
    pieces: Vec<Arc<Vec<Arc<Space>>>>,
}

impl Spaces {
    /// The piece that has the name, or would have it.
    fn piece(&self, name: &str) -> usize {
        let behind = self.pieces.partition_point(|piece| *piece[0].name <= *name);
        behind.saturating_sub(1)
    }

    fn find(&self, piece: usize, name: &str) -> Result<usize, usize> {
        self.pieces[piece].binary_search_by(|space| (*space.name).cmp(name))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Arc<Space>> {
        let piece = self.piece(name);
        let at = (piece < self.pieces.len()).then(|| self.find(piece, name))?;
        Some(&self.pieces[piece][at.ok()?])
    }

    /// Adds a space, instead of the one of that name.
    pub(crate) fn insert(&mut self, space: Arc<Space>) {
        if self.pieces.is_empty() {
            self.pieces.push(Arc::new(vec![space]));
            return;
        }
        let number = self.piece(&space.name);
        let at = self.find(number, &space.name);
        let piece = Arc::make_mut(&mut self.pieces[number]);
        match at {
            Ok(at) => piece[at] = space,
            Err(at) => piece.insert(at, space),
        }
        if piece.len() > PIECE {
            let behind = piece.split_off(PIECE / 2);
            self.pieces.insert(number + 1, Arc::new(behind));
        }
    }

    pub(crate) fn remove(&mut self, name: &str) {
        let number = self.piece(name);
        if number >= self.pieces.len() {
            return;
        }
        if let Ok(at) = self.find(number, name) {
            let piece = Arc::make_mut(&mut self.pieces[number]);
            piece.remove(at);
            if piece.is_empty() {
                self.pieces.remove(number);
            }
        }
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Arc<Space>> {
        self.pieces.iter().flat_map(|piece| piece.iter())
    }

    pub(crate) fn len(&self) -> usize {
        self.pieces.iter().map(|piece| piece.len()).sum()
    }
}

impl Index<&str> for Spaces {
    type Output = Arc<Space>;

    fn index(&self, name: &str) -> &Arc<Space> {
        self.get(name).expect("a tenant of that name")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Config, Store};
    use std::collections::BTreeMap;

    /// As a map of std, whatever the order; and a copy stays as it was.
    #[test]
    fn pieces_are_a_map_in_order_and_share_what_does_not_change() {
        let store = Store::new(Config::default()).unwrap();
        let tenant = store.tenant("").unwrap();
        let new = |name: u64| {
            let mut space = Space::new(tenant.clone(), 1);
            space.name = name.to_string().into();
            Arc::new(space)
        };
        let (mut spaces, mut model) = (Spaces::default(), BTreeMap::new());
        let check = |spaces: &Spaces, model: &BTreeMap<Arc<str>, Arc<Space>>| {
            let all = spaces.values().map(Arc::as_ptr);
            assert!(all.eq(model.values().map(Arc::as_ptr)));
            assert_eq!(spaces.len(), model.len());
            assert!(spaces.pieces.iter().all(|piece| !piece.is_empty()));
        };
        assert!(spaces.get("").is_none());
        spaces.remove("");
        let mut number = 1u64;
        for round in 0..4000u64 {
            number = number.wrapping_mul(6_364_136_223_846_793_005) | 1;
            let name = (number >> 40) % 1000;
            let before = (spaces.clone(), model.clone());
            if number >> 63 == 0 || round < 1000 {
                let space = new(name);
                model.insert(Arc::clone(&space.name), Arc::clone(&space));
                spaces.insert(space);
            } else {
                let name = name.to_string();
                model.remove(name.as_str());
                spaces.remove(&name);
            }
            if round % 50 == 0 {
                check(&before.0, &before.1);
                check(&spaces, &model);
                for name in 0..1000u64 {
                    let name = name.to_string();
                    let (space, expected) = (spaces.get(&name), model.get(name.as_str()));
                    assert_eq!(space.map(Arc::as_ptr), expected.map(Arc::as_ptr));
                }
            }
        }
        assert!(spaces.pieces.len() > 4 && spaces.pieces.len() <= spaces.len());
        // One that is added costs one piece.
        let before = spaces.clone();
        spaces.insert(new(5000));
        let shared = |piece: &Arc<_>| before.pieces.iter().any(|other| Arc::ptr_eq(other, piece));
        let own = spaces.pieces.iter().filter(|piece| !shared(piece)).count();
        assert!((1..=2).contains(&own), "{own}");
        for name in model.keys() {
            spaces.remove(name);
        }
        spaces.remove("5000");
        assert!(spaces.pieces.is_empty());
    }
}
