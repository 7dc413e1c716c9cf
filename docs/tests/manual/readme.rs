//! README's stall report is what the library prints.

use crate::book::{Chapter, repository};
use std::{fs, sync::mpsc, thread, time::Duration};
use stillpoint::Domain;

/// A report of a reader that does not leave and a writer that waits for it.
fn report(timeout: Duration) -> String {
    let domain = &Domain::new();
    domain.set_stall_timeout(timeout);
    let (report, reported) = mpsc::channel();
    domain.on_stall(move |stall| drop(report.send(stall.to_string())));
    let (entered, has_entered) = mpsc::channel();
    let (leave, left) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let reader = move || {
            let _guard = domain.read_lock();
            entered.send(()).expect("the test waits");
            left.recv().expect("the test says when");
        };
        let named = |name: &str| thread::Builder::new().name(name.to_owned());
        named("reader")
            .spawn_scoped(scope, reader)
            .expect("a thread");
        has_entered.recv().expect("it enters");
        named("writer")
            .spawn_scoped(scope, || domain.synchronize())
            .expect("a thread");
        let report = reported.recv().expect("the reader blocks it");
        leave.send(()).expect("the reader waits");
        report
    })
}

/// On one line, with `#` for each number, and its unit of time.
fn without_numbers(text: &str) -> String {
    let mut words = Vec::new();
    for word in text.split_whitespace() {
        let mut shown = String::new();
        for letter in word.chars() {
            if !letter.is_ascii_digit() && letter != '.' {
                shown.push(letter);
            } else if !shown.ends_with('#') {
                shown.push('#');
            }
        }
        words.push(shown);
    }
    words.join(" ").replace("# ms", "# s")
}

/// C's build gives no hints, and neither does one of the whole workspace, which selects it.
fn without_hint(report: &str) -> &str {
    report.split("; hint: ").next().unwrap_or(report)
}

/// README's `text` blocks are reports; this is how one differs from `printed`.
fn misquoted(readme: &Chapter, printed: &str) -> Option<String> {
    let quoted: Vec<_> = readme
        .blocks
        .iter()
        .filter(|block| block.info == "text")
        .collect();
    let [quoted] = quoted[..] else {
        return Some(format!("README has {} reports and not one", quoted.len()));
    };
    let comparable = |text| without_hint(&without_numbers(text)).to_owned();
    let same = comparable(&quoted.code) == comparable(printed);
    (!same).then(|| {
        format!(
            "README.md:{}: the report is printed as\n{printed}",
            quoted.line
        )
    })
}

#[test]
fn readme_shows_a_report_as_it_is_printed() {
    let text = fs::read_to_string(repository().join("README.md")).expect("it is there");
    let printed = report(Duration::from_millis(200));
    assert_eq!(
        misquoted(&Chapter::parse("README.md", &text), &printed),
        None
    );
}

#[test]
fn a_report_that_reads_otherwise_is_found() {
    let readme = |text: &str| Chapter::parse("README.md", &format!("```text\n{text}\n```\n"));
    let printed = "grace period 1 of domain 3: 20.1 ms; tid 17";
    assert_eq!(
        misquoted(
            &readme("grace period 8 of domain 4:\n1.5 s; tid 2"),
            printed
        ),
        None
    );
    assert!(misquoted(&readme("grace period 8 of 4: 1.5 s; tid 2"), printed).is_some());
    assert!(misquoted(&Chapter::parse("README.md", "none"), printed).is_some());
}
