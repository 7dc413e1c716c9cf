//! The peers, a file each: what a peer does in every experiment that it takes part in, at its best
//! documented use. A new one is a file here, its `mod`, and a line in [`register`].

use crate::choice::Choice;
use crate::subject::Registry;

mod arc_swap;
mod crossbeam_epoch;
mod crossbeam_skiplist;
mod dashmap;
#[cfg(have_liburcu)]
mod liburcu;
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

/// Adds what every peer takes part in, in the order of the tables.
pub fn register(to: &mut impl Registry) {
    #[cfg(have_liburcu)]
    liburcu::register(to);
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
}

/// Returns the names of the peers that `experiment` has where liburcu is found, and this build lacks.
pub fn missing(experiment: &str) -> &'static [&'static str] {
    match experiment {
        _ if cfg!(have_liburcu) => &[],
        "read" | "sync" => &["liburcu-memb", "liburcu-qsbr"],
        "kfree" => &["liburcu-memb"],
        _ => &[],
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
    let names = chosen.names().iter().copied();
    let missing: Vec<_> = names.filter(|peer| peer.starts_with("liburcu-")).collect();
    if !missing.is_empty() {
        eprintln!(
            "stillpoint: {} left out: liburcu was not found when this program was built. Install liburcu-dev and pkg-config \
             (Debian, Ubuntu), or userspace-rcu-devel and pkgconf (Fedora), run `cargo clean -p \
             stillpoint-lab`, and build again.",
            missing.join(", ")
        );
    }
}
