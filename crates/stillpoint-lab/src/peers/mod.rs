//! The peers, a file each: what a peer does in every experiment that it takes part in, at its best documented use.

use crate::choice::Choice;

pub mod arc_swap;
pub mod crossbeam_epoch;
pub mod haphazard;
pub mod kernel;
#[cfg(feature = "kovan")]
pub mod kovan;
#[cfg(have_liburcu)]
mod liburcu;
#[cfg(have_liburcu)]
pub mod liburcu_memb;
#[cfg(have_liburcu)]
pub mod liburcu_qsbr;
pub mod ps_reclaim;
pub mod sdd;
pub mod seize;
pub mod std_rwlock;
pub mod tokio;

/// Those of the chosen peers that this build has and this machine allows. Says on standard error which others there are, and how
/// to get them.
pub fn at_hand(chosen: &Choice) -> Choice {
    let mut present = chosen.clone();
    if !cfg!(have_liburcu) {
        present.retain(|peer| !peer.starts_with("liburcu-"));
        tell_missing_liburcu(chosen);
    }
    if !cfg!(feature = "kovan") && chosen.includes("kovan") {
        present.retain(|&peer| peer != "kovan");
        eprintln!(
            "stillpoint: kovan left out: it asks for Rust 1.90. With that or a newer one, build with `--features kovan`, from the \
             workspace's root `cargo run --release -p stillpoint-lab --features kovan -- scale ...`."
        );
    }
    if chosen.includes(kernel::NAME)
        && let Err(error) = kernel::try_out()
    {
        present.retain(|&peer| peer != kernel::NAME);
        eprintln!("stillpoint: {} left out: it refuses membarrier(MEMBARRIER_CMD_GLOBAL): {error}", kernel::NAME);
    }
    present
}

fn tell_missing_liburcu(chosen: &Choice) {
    let missing: Vec<_> = chosen.names().iter().copied().filter(|peer| peer.starts_with("liburcu-")).collect();
    if !missing.is_empty() {
        eprintln!(
            "stillpoint: {} left out: liburcu was not found when this program was built. Install liburcu-dev and pkg-config \
             (Debian, Ubuntu), or userspace-rcu-devel and pkgconf (Fedora), run `cargo clean -p \
             stillpoint-lab`, and build again.",
            missing.join(", ")
        );
    }
}
