use super::systems::Better;
use super::*;

#[test]
fn a_gain_is_told_from_none_by_the_figures() {
    let judged = [
        Better::Less.judge(1.0, 37.0, 2),
        Better::More.judge(100.0, 97.0, 2),
        Better::More.judge(50.0, 100.0, 2),
        Better::Less.judge(0.0, 0.9, 2),
        Better::Less.judge(0.0, 0.0, 2),
    ];
    let said = [
        "better by a factor of 37.0.",
        "no gain on 2 CPUs (a factor of 1.03).",
        "worse on 2 CPUs (a factor of 0.500).",
        "none left.",
        "none with either.",
    ];
    assert_eq!(judged, said);
}

/// The kernel's columns have figures before anything is measured.
#[test]
fn each_system_has_the_kernels_figures_and_no_others_until_they_are_measured() {
    let mut found = Found(Vec::new());
    for (experiment, rows) in kernel::rows() {
        found.add(experiment, rows);
    }
    for system in systems::all(&found, 2) {
        assert!(system.gains.is_empty(), "{}", system.title);
        for line in &system.lines {
            assert_eq!(line.cells.len(), system.columns.len(), "{}", line.label);
            let is_kernel = line.origin == "kernel";
            assert_eq!(
                line.cells.iter().any(Option::is_some),
                is_kernel,
                "{} {}",
                system.title,
                line.label
            );
        }
    }
}
