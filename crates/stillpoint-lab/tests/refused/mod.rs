//! Command lines that are refused.

use crate::program::stillpoint;

/// Runs the command line of each line of a table, and checks that it is refused with exit status 2, and that the
/// message has what stands behind ` => `, separated by ` | `.
pub fn assert_refused(table: &str) {
    for line in table.lines().filter(|line| !line.is_empty()) {
        let (arguments, fragments) = line.split_once(" => ").expect("it has a message");
        let run = stillpoint(arguments);
        assert_eq!(
            (run.code, run.out.as_str()),
            (2, ""),
            "{arguments}: {}",
            run.err
        );
        for fragment in fragments.split(" | ") {
            assert!(
                run.err.contains(fragment),
                "{arguments}: no '{fragment}' in: {}",
                run.err
            );
        }
    }
}
