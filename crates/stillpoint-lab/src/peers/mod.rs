//! The peers, a file each: what a peer does in every experiment that it takes part in, at its best
//! documented use. A new one is a file here, its `mod`, and a line in [`register`].

use crate::choice::Choice;
use crate::subject::{
    Ability, Cache, Cell, Map, OrderedMap, Peer, ReadSide, Reclaimer, Registry, Updater, Value,
};

mod arc_swap;
mod crossbeam_epoch;
mod crossbeam_skiplist;
mod dashmap;
mod kernel;
#[cfg(have_liburcu)]
mod liburcu;
#[cfg(have_liburcu)]
mod liburcu_memb;
#[cfg(have_liburcu)]
mod liburcu_qsbr;
mod moka;
mod papaya;
mod ps_reclaim;
mod quick_cache;
mod scc;
mod sdd;
mod seize;
pub mod servers;
mod std_rwlock;
mod tinyufo;
mod tokio;

/// Has every peer say what it takes part in, in the order of the tables.
pub fn register(to: &mut impl Registry) {
    #[cfg(have_liburcu)]
    {
        liburcu_memb::register(to);
        liburcu_qsbr::register(to);
    }
    if !cfg!(have_liburcu) {
        to.absent(
            "liburcu-memb",
            &[Ability::Reads, Ability::Reclaims, Ability::Waits],
        );
        to.absent("liburcu-qsbr", &[Ability::Reads, Ability::Waits]);
    }
    crossbeam_epoch::register(to);
    seize::register(to);
    sdd::register(to);
    ps_reclaim::register(to);
    tokio::register(to);
    arc_swap::register(to);
    papaya::register(to);
    dashmap::register(to);
    scc::register(to);
    std_rwlock::register(to);
    crossbeam_skiplist::register(to);
    moka::register(to);
    quick_cache::register(to);
    tinyufo::register(to);
    kernel::register(to);
}

/// The names of the peers that have `ability`, whether or not they are part of this build.
fn names(ability: Ability) -> Vec<&'static str> {
    let mut names = Names {
        ability,
        found: Vec::new(),
    };
    register(&mut names);
    names.found
}

/// Those of `scale read`.
pub fn that_read() -> Vec<&'static str> {
    names(Ability::Reads)
}

/// Those of `scale kfree`.
pub fn that_reclaim() -> Vec<&'static str> {
    names(Ability::Reclaims)
}

/// Those of `scale sync`.
pub fn that_wait() -> Vec<&'static str> {
    names(Ability::Waits)
}

/// Those of `scale trace`.
pub fn that_share() -> Vec<&'static str> {
    names(Ability::Shares)
}

/// Those of `scale map`.
pub fn that_map() -> Vec<&'static str> {
    names(Ability::Maps)
}

/// Those of `scale cache`.
pub fn that_cache() -> Vec<&'static str> {
    names(Ability::Caches)
}

struct Names {
    ability: Ability,
    found: Vec<&'static str>,
}

impl Names {
    fn note(&mut self, ability: Ability, name: &'static str) {
        if ability == self.ability && !self.found.contains(&name) {
            self.found.push(name);
        }
    }
}

impl Registry for Names {
    fn reads<S: ReadSide>(&mut self, peer: Peer) {
        self.note(Ability::Reads, peer.name);
    }

    fn reclaims<S: Reclaimer>(&mut self, peer: Peer) {
        self.note(Ability::Reclaims, peer.name);
    }

    fn waits<S: Updater>(&mut self, peer: Peer) {
        self.note(Ability::Waits, peer.name);
    }

    fn shares<C: Cell>(&mut self, peer: Peer, _make: fn(Value) -> C) {
        self.note(Ability::Shares, peer.name);
    }

    fn maps<M: Map<u64>>(&mut self, peer: Peer) {
        self.note(Ability::Maps, peer.name);
    }

    fn orders<M: OrderedMap>(&mut self, peer: Peer) {
        self.note(Ability::Maps, peer.name);
    }

    fn caches<C: Cache>(&mut self, peer: Peer) {
        self.note(Ability::Caches, peer.name);
    }

    fn absent(&mut self, name: &'static str, abilities: &[Ability]) {
        abilities
            .iter()
            .for_each(|&ability| self.note(ability, name));
    }
}

/// Those of the chosen peers that this build has and this machine allows. Says on standard error
/// which others there are, and how to get them.
pub fn available(chosen: &Choice) -> Choice {
    let mut present = chosen.clone();
    if !cfg!(have_liburcu) {
        present.retain(|peer| !peer.starts_with("liburcu-"));
        report_missing_liburcu(chosen);
    }
    if chosen.includes(kernel::NAME)
        && let Err(error) = kernel::try_out()
    {
        present.retain(|&peer| peer != kernel::NAME);
        eprintln!(
            "stillpoint: {} left out: it refuses membarrier(MEMBARRIER_CMD_GLOBAL): {error}",
            kernel::NAME
        );
    }
    for kind in servers::Kind::ALL {
        if chosen.includes(kind.name())
            && let Some(reason) = kind.missing()
        {
            present.retain(|&peer| peer != kind.name());
            eprintln!("stillpoint: {reason}");
        }
    }
    present
}

fn report_missing_liburcu(chosen: &Choice) {
    let missing: Vec<_> = chosen
        .names()
        .iter()
        .copied()
        .filter(|peer| peer.starts_with("liburcu-"))
        .collect();
    if !missing.is_empty() {
        eprintln!(
            "stillpoint: {} left out: liburcu was not found when this program was built. Install liburcu-dev and pkg-config \
             (Debian, Ubuntu), or userspace-rcu-devel and pkgconf (Fedora), run `cargo clean -p \
             stillpoint-lab`, and build again.",
            missing.join(", ")
        );
    }
}
