//! Bad usage exits with 2 before anything is measured, and the message says what to do.

mod program;
mod refused;

use program::stillpoint;
use refused::assert_refused;

const REFUSED: &str = "
scale kfree --threads 0 => --threads | 1..=4096
scale kfree --threads 4097 => --threads | 1..=4096
scale kfree --loops 0 => --loops | 1..=1000000
scale kfree --rounds 0 => --rounds | 1..=1000
scale kfree --objects 0 => --objects | 1..=100000000
scale kfree --objects 9999999999 => --objects | 1..=100000000
scale kfree --object-size 0 => --object-size | choose one of 16, 32, 64
scale kfree --object-size 24 => --object-size | choose one of 16, 32, 64
scale kfree --readers 5000 => --readers | 0..=4096
scale kfree --peers nothere => no peer 'nothere' | say all, none, or some of | liburcu-memb | ps-reclaim
scale kfree --peers seize,all => no peer 'all' | all, none
scale kfree --peers std-rwlock => no peer 'std-rwlock' | crossbeam-epoch
scale kfree --threads 4096 --objects 100000000 --object-size 4096 => more than half of this machine's memory | lower --threads, --objects or --object-size
scale read --threads 0 => --threads | 1..=4096
scale read --peers nothere => no peer 'nothere' | liburcu-qsbr | std-rwlock
scale kfree --variants nothing => no variant 'nothing' | say all, or some of per-page, whole-batch, call
scale kfree --variants none => no variant 'none'
scale read --variants guard,rcu => no variant 'rcu' | guard, closure, fences, qsbr, trace, trace-owned
scale sync --variants guard => no variant 'guard' | rcu, expedited, qsbr, service-led
scale sync --scenarios idle,nowhere => no scenario 'nowhere' | say all, or some of idle, idle1000 | busy-oversub
scale sync --scenarios none => no scenario 'none'
scale sync --peers seize => no peer 'seize' | all, none | liburcu-qsbr
scale sync --threads 0 => --threads | 1..=4096
scale trace --variants guard => no variant 'guard' | native, read-mb
scale trace --peers crossbeam-epoch => no peer 'crossbeam-epoch' | tokio, arc-swap
scale trace --scenarios busy1 => no scenario 'busy1' | idle, sleepers, async10000
scale trace --threads 0 => --threads | 1..=4096
scale trace --tasks 0 => --tasks | 1..=1000000
scale trace --hold-ms 0 => --hold-ms | 1..=60000
scale trace --span-ms 0 => --span-ms | 1..=600000
scale map --peers seize => no peer 'seize' | papaya | scc-hashindex | std-rwlock
scale map --capacity-log2 9 => --capacity-log2 | 10..=28
scale map --threads 0 => --threads | 1..=4096
scale kfree --scenarios idle => unexpected argument '--scenarios'
scale nothing => unrecognized subcommand 'nothing'
";

#[test]
fn bad_usage_is_refused_and_explained() {
    assert_refused(REFUSED);
}

#[test]
fn a_file_that_cannot_be_written_is_told_before_the_run() {
    let run = stillpoint("scale kfree --json /nowhere/at/all");
    assert_eq!((run.code, run.out.as_str()), (2, ""), "{}", run.err);
    assert!(
        run.err.contains("cannot write /nowhere/at/all"),
        "{}",
        run.err
    );
}

#[test]
fn help_begins_with_examples() {
    let help = stillpoint("--help").out;
    for text in ["stillpoint scale kfree ", "seconds", "--quiet"] {
        assert!(help.contains(text), "{text}: {help}");
    }
}

#[test]
fn where_there_are_no_peers_the_help_says_so() {
    let help = stillpoint("scale lru --help").out;
    assert!(help.contains("--peers <all|none>"), "{help}");
    assert!(help.contains("there is no peer that does this"), "{help}");
    assert_refused("scale lru --peers seize => no peer 'seize' here; say all or none");
    let run = stillpoint("scale lru --peers seize");
    assert!(!run.err.contains("some of"), "{}", run.err);
}

#[test]
fn help_names_the_peers_and_hides_the_inner_command() {
    let help = stillpoint("scale kfree --help");
    assert_eq!(help.code, 0);
    // Peers that this build lacks, too.
    for peer in [
        "all, none, or some of ",
        "liburcu-memb,",
        "crossbeam-epoch,",
        "ps-reclaim",
    ] {
        assert!(help.out.contains(peer), "{peer}: {}", help.out);
    }
    let inner = stillpoint("--help").out.contains("measure ");
    assert!(!inner, "the inner command is not for people");
}
