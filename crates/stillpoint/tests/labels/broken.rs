//! Each rule finds what is broken on purpose.

use crate::{
    rules::{ambiguous, mistold, superfluous, undefined, unexplained, wordless},
    source::Source,
};

/// A source without faults: it has a label, a pair, and a reason why there is none.
const SOUND: &str = r#"//! [Y1] the store (release) pairs with [Y2] the load (acquire): what is found is complete.
use std::sync::atomic::{AtomicPtr, Ordering::{self, Acquire}};
impl Cell {
    fn publish(&self) {
        // Release [Y1]: the value is complete before it is found.
        self.value.store(1, Ordering::Release);
    }

    /// Acquire [Y2]: the value that is found is complete.
    #[inline]
    fn find<T>(&self, what: &str, more: &str) -> u32
    where
        T: Sized,
    {
        let text = "a brace { and \" and // no comment";
        self.value.load(Acquire)
    }

    fn stop(&self) {
        // Release, pairs with `Cell::run`: what was queued is seen by the last look.
        self.stop.store(true, Ordering::Release);
        // AcqRel, pairs with `run`:
        // the same.
        self.kicked.compare_exchange(
            false,
            true,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
    }

    fn run(&self) {
        let stopped = self.stop.load(Ordering::Acquire); // Acquire, pairs with `stop`.
        // Needs no partner: the lock orders it.
        barrier::heavy();
        light(); // [Y1], [Y2]
    }
}
#[cfg(all(test, not(loom)))]
mod tests {
    fn broken() {
        stop.load(Ordering::Acquire);
    }
}
"#;

const MANUAL: &str = "# Proofs\n\n## Labels\n\n| labels | what | where |\n|---|---|---|\n| Y1, Y2 | a cell | `gp/cell.rs` |\n\n## More\n";

/// Returns the faults that each of the four checks finds if `old` is replaced by `new` in the sound
/// source, beside another one.
fn faults(old: &str, new: &str, beside: Source) -> [Vec<String>; 4] {
    assert!(SOUND.contains(old), "{old}");
    let sources = [
        Source::new("stillpoint/src/gp/cell.rs", &SOUND.replacen(old, new, 1)),
        beside,
    ];
    [
        unexplained(&sources),
        undefined(&sources),
        ambiguous(&sources),
        mistold(&sources, MANUAL),
    ]
}

fn nothing() -> Source {
    Source::new("stillpoint/src/gp/nothing.rs", "")
}

/// Asserts that there is one fault and that its text contains `text`.
#[track_caller]
fn assert_one(faults: &[String], text: &str) {
    assert!(faults.len() == 1 && faults[0].contains(text), "{faults:?}");
}

#[test]
fn what_is_explained_passes() {
    assert_eq!(
        faults("", "", nothing()),
        [const { Vec::<String>::new() }; 4]
    );
}

#[test]
fn an_access_without_an_explanation_is_found() {
    for (old, new) in [
        // No comment, one that says nothing, one that is another line's, one that is another
        // function's.
        (
            "// Release [Y1]: the value is complete before it is found.",
            "",
        ),
        ("Release [Y1]: the value", "The value"),
        (
            "        self.value.store",
            "        self.value.touch();\n        self.value.store",
        ),
        ("// Release, pairs with `Cell::run`: what", "// What"),
        ("// AcqRel, pairs with `run`:\n        // the same.", ""),
        (" // Acquire, pairs with `stop`.", ""),
        ("        // Needs no partner: the lock orders it.\n", ""),
        (" // [Y1], [Y2]", ""),
        ("/// Acquire [Y2]: the value that is found is complete.", ""),
        (
            "self.value.load(Acquire)",
            "self.value.load(Acquire); fence(SeqCst);\n        self.value.load(Acquire)",
        ),
        // A partner that is not there, or has no name.
        ("pairs with `run`", "pairs with `walk`"),
        ("pairs with `Cell::run`", "pairs with `run::walk`"),
        ("pairs with `stop`", "pairs with the other"),
        // The same in code that is not a test's.
        ("#[cfg(all(test, not(loom)))]\n", "#[cfg(not(loom))]\n"),
    ] {
        let [unexplained, ..] = faults(old, new, nothing());
        assert_eq!(
            unexplained.len(),
            if new.contains("SeqCst") { 2 } else { 1 },
            "{old:?}: {unexplained:?}"
        );
    }
}

#[test]
fn a_label_without_a_definition_or_with_two_is_found() {
    let [_, undefined, ..] = faults("Release [Y1]: the", "Release [Y3]: the", nothing());
    assert_one(&undefined, "[Y3] is defined in the head of no file");
    let [_, undefined, ..] = faults("//! [Y1] the store", "// [Y1] the store", nothing());
    assert_eq!(undefined.len(), 2, "{undefined:?}");
    let [_, undefined, ..] = faults(
        "//! [Y1] the store (release)",
        "//! [Y1]\n//! the store",
        nothing(),
    );
    assert!(
        undefined
            .iter()
            .any(|fault| fault.contains("without a word")),
        "{undefined:?}"
    );
    let beside = Source::new(
        "stillpoint/src/gp/other.rs",
        "//! It comes after the store [Y1] of the cell.\n",
    );
    let [_, undefined, ..] = faults("", "", beside);
    assert_one(&undefined, "stands in the heads of");
}

#[test]
fn a_label_that_means_two_things_is_found() {
    // Its own meaning for the letter, in a head; and, as K1 once had, in a comment far away.
    let head = Source::new(
        "stillpoint/src/gp/other.rs",
        "//! [Y3] the kick comes before [Y4] the look.\n",
    );
    let [.., ambiguous, _] = faults("", "", head);
    assert_one(&ambiguous, "the labels Y belong to");
    let far = Source::new(
        "stillpoint-platform/src/other.rs",
        "/// [Y1] is the publication of the key.\nstatic KEY: u32 = 0;\n",
    );
    let [.., ambiguous, _] = faults("", "", far);
    assert_one(&ambiguous, "in another folder");
    let below = Source::new(
        "stillpoint/src/gp/cell/other.rs",
        "/// Relaxed [Y1]: under the lock.\nstatic KEY: u32 = 0;\n",
    );
    let [.., ambiguous, _] = faults("", "", below);
    assert!(ambiguous.is_empty(), "{ambiguous:?}");
}

#[test]
fn a_label_without_a_sentence_is_found() {
    let core = |text: String| [Source::new("stillpoint/src/gp/cell.rs", &text)];
    // In the sound source a call has two labels and no more.
    let whole = SOUND.replace(
        " // [Y1], [Y2]",
        " // Light [Y1, Y2]: the store is seen, or the load sees",
    );
    assert_eq!(wordless(&core(whole.clone())), Vec::<String>::new());
    let light = "Light [Y1, Y2]: the store is seen, or the load sees";
    for (old, new) in [
        (light, "[Y1], [Y2]"),
        (light, "Light [Y1, Y2]: as above."),
        ("Release [Y1]: the value", "[Y1]: the value"),
        ("Release [Y1]: the value", "Release [Y1], the value"),
    ] {
        assert!(whole.contains(old), "{old}");
        let broken = whole.replacen(old, new, 1);
        let elsewhere = [Source::new("stillpoint/src/kvfree/cell.rs", &broken)];
        assert_eq!(wordless(&elsewhere), Vec::<String>::new());
        let faults = wordless(&core(broken));
        assert_eq!(faults.len(), 1, "{new:?}: {faults:?}");
    }
}

#[test]
fn a_family_too_many_is_found() {
    let faults = superfluous(&[Source::new("stillpoint/src/rcu/cell.rs", SOUND)]);
    assert!(
        !faults.is_empty()
            && faults
                .iter()
                .all(|fault| fault.contains("[Y1]") || fault.contains("[Y2]")),
        "{faults:?}"
    );
    assert_eq!(
        superfluous(&[Source::new(
            "stillpoint/src/rcu/cell.rs",
            &SOUND.replace("[Y", "[R")
        )]),
        Vec::<String>::new()
    );
}

#[test]
fn a_table_that_does_not_have_just_these_labels_is_found() {
    let sources = [Source::new("stillpoint/src/gp/cell.rs", SOUND)];
    for (old, new, expected) in [
        ("| Y1, Y2 |", "| Y1 |", "lacks Y2"),
        ("| Y1, Y2 | a cell | `gp/cell.rs` |\n", "", "lacks Y1"),
        ("| Y1, Y2 |", "| Y1 to Y3 |", "has a label Y3"),
        (
            "\n\n## More",
            "\n| Z1 | more | `gp/cell.rs` |\n\n## More",
            "has a label Z1",
        ),
        ("`gp/cell.rs`", "`gp/other.rs`", "is in [\"gp/other.rs\"]"),
    ] {
        let faults = mistold(&sources, &MANUAL.replace(old, new));
        assert!(
            faults.first().is_some_and(|fault| fault.contains(expected)),
            "{new:?}: {faults:?}"
        );
    }
}
