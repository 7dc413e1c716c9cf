//! Bad usage exits with 2 before anything is measured, and the message says what to do.

mod program;

use program::stillpoint;

/// Arguments behind `scale`, and what the message must hold.
const REFUSED: &[(&str, &[&str])] = &[
    ("kfree --threads 0", &["--threads", "1..=4096"]),
    ("kfree --threads 4097", &["--threads", "1..=4096"]),
    ("kfree --loops 0", &["--loops", "1..=1000000"]),
    ("kfree --rounds 0", &["--rounds", "1..=1000"]),
    ("kfree --objects 0", &["--objects", "1..=100000000"]),
    (
        "kfree --objects 9999999999",
        &["--objects", "1..=100000000"],
    ),
    (
        "kfree --object-size 0",
        &["--object-size", "choose one of 16, 32, 64"],
    ),
    (
        "kfree --object-size 24",
        &["--object-size", "choose one of 16, 32, 64"],
    ),
    ("kfree --readers 5000", &["--readers", "0..=4096"]),
    (
        "kfree --peers nothere",
        &[
            "no peer 'nothere'",
            "say all, none, or some of",
            "liburcu-memb",
            "ps-reclaim",
        ],
    ),
    ("kfree --peers seize,all", &["no peer 'all'", "all, none"]),
    (
        "kfree --peers std-rwlock",
        &["no peer 'std-rwlock'", "crossbeam-epoch"],
    ),
    (
        "kfree --threads 4096 --objects 100000000 --object-size 4096",
        &[
            "more than half of this machine's memory",
            "lower --threads, --objects or --object-size",
        ],
    ),
    ("read --threads 0", &["--threads", "1..=4096"]),
    (
        "read --peers nothere",
        &["no peer 'nothere'", "liburcu-qsbr", "std-rwlock"],
    ),
    (
        "kfree --variants nothing",
        &[
            "no variant 'nothing'",
            "say all, or some of per-page, whole-batch, call",
        ],
    ),
    ("kfree --variants none", &["no variant 'none'"]),
    (
        "read --variants guard,rcu",
        &[
            "no variant 'rcu'",
            "guard, closure, fences, qsbr, trace, trace-owned",
        ],
    ),
    (
        "sync --variants guard",
        &["no variant 'guard'", "rcu, expedited, qsbr, service-led"],
    ),
    (
        "sync --scenarios idle,nowhere",
        &[
            "no scenario 'nowhere'",
            "say all, or some of idle, idle16",
            "busy-oversub",
        ],
    ),
    ("sync --scenarios none", &["no scenario 'none'"]),
    (
        "sync --peers seize",
        &["no peer 'seize'", "all, none", "liburcu-qsbr", "kernel"],
    ),
    ("sync --threads 0", &["--threads", "1..=4096"]),
    (
        "trace --variants guard",
        &["no variant 'guard'", "native, read-mb"],
    ),
    (
        "trace --peers crossbeam-epoch",
        &["no peer 'crossbeam-epoch'", "tokio, arc-swap"],
    ),
    (
        "trace --scenarios busy1",
        &["no scenario 'busy1'", "idle, sleepers, async10000"],
    ),
    ("trace --threads 0", &["--threads", "1..=4096"]),
    ("trace --tasks 0", &["--tasks", "1..=1000000"]),
    ("trace --hold-ms 0", &["--hold-ms", "1..=60000"]),
    ("trace --span-ms 0", &["--span-ms", "1..=600000"]),
    (
        "map --peers seize",
        &["no peer 'seize'", "papaya", "scc-hashindex", "std-rwlock"],
    ),
    ("map --capacity-log2 9", &["--capacity-log2", "10..=28"]),
    ("map --threads 0", &["--threads", "1..=4096"]),
    (
        "kfree --scenarios idle",
        &["unexpected argument '--scenarios'"],
    ),
    ("nothing", &["unrecognized subcommand 'nothing'"]),
];

#[test]
fn bad_usage_is_refused_and_explained() {
    for (arguments, fragments) in REFUSED {
        let run = stillpoint(&format!("scale {arguments}"));
        assert_eq!(run.code, 2, "{arguments}: {}", run.err);
        assert_eq!(run.out, "", "{arguments}");
        for fragment in *fragments {
            assert!(
                run.err.contains(fragment),
                "{arguments}: no '{fragment}' in: {}",
                run.err
            );
        }
    }
}

#[test]
fn a_file_that_cannot_be_written_is_told_before_the_run() {
    for option in ["--json", "--plot"] {
        let run = stillpoint(&format!("scale kfree {option} /nowhere/at/all"));
        assert_eq!(run.code, 1, "{}", run.err);
        assert_eq!(run.out, "");
        assert!(
            run.err.contains("cannot write /nowhere/at/all"),
            "{}",
            run.err
        );
    }
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
    let run = stillpoint("scale lru --peers seize");
    assert_eq!(run.code, 2);
    assert!(
        run.err.contains("no peer 'seize' here; say all or none"),
        "{}",
        run.err
    );
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
    assert!(
        !stillpoint("--help").out.contains("measure "),
        "the inner command is not for people"
    );
}
