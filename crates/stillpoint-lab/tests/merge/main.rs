//! `stillpoint merge`: many files as one, whatever is wrong with some of them; and what is done with
//! the result.

mod files;
#[path = "../program/mod.rs"]
mod program;
mod refused;

use std::fs;

use files::{Folder, merge, names, row, sim, torture};
use program::stillpoint;
use serde_json::{Value, json};

#[test]
fn a_whole_array_is_one_clean_result() {
    let folder = Folder::new();
    for index in 0..10 {
        let flavour = if index % 2 == 0 { "rcu" } else { "map" };
        let file = torture(flavour, index, 1000.0, 0.0);
        folder.put_json(&format!("t-{index}.json"), &file);
    }
    let (run, merged) = folder.merge("");
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    assert_eq!(merged["counts"]["runs"], 10);
    assert_eq!(merged["params"], json!({"of": "torture", "indices": "0-9"}));
    assert_eq!(merged["machines"][0]["files"], 10);
    let rcu = row(&merged, "rcu");
    assert_eq!(rcu["runs"], 5);
    assert_eq!(rcu["metrics"]["reader_sections"], 5000.0);
    assert_eq!(rcu["spread"]["stalls"], json!([0.0, 8.0]));
    let worst = &rcu["worst"]["stalls"];
    assert_eq!((&worst["value"], &worst["seed"]), (&json!(8.0), &json!(9)));
    assert!(
        worst["file"]
            .as_str()
            .expect("a file")
            .ends_with("t-8.json")
    );
}

#[test]
fn faults_are_named_with_the_command_that_repeats_them() {
    let folder = Folder::new();
    folder.put_json("1.json", &torture("rcu", 0, 10.0, 0.0));
    let mut with_variable = torture("busted-cookie", 7, 10.0, 3.0);
    with_variable["machine"]["environment"] = json!({"STILLPOINT_MEMBARRIER": "off now"});
    folder.put_json("2.json", &with_variable);
    // Broken, and nothing seen.
    folder.put_json("3.json", &torture("busted-lru", 8, 10.0, 0.0));
    let (run, merged) = folder.merge("--indices 0-9");
    assert_eq!(run.code, 1, "{}", run.err);
    let failures = merged["failures"].as_array().expect("there are some");
    assert_eq!(failures.len(), 2);
    let command = "STILLPOINT_MEMBARRIER='off now' stillpoint torture busted-cookie --seed 8 --duration 0.2 --readers 2 --writers 1 \
                   --fakewriters 0 --calm";
    assert_eq!(failures[0]["command"], command);
    assert_eq!(failures[0]["what"], "cookie (3)");
    assert_eq!(failures[0]["index"], 7);
    assert_eq!(failures[0]["commit"], "0123456789ab");
    assert_eq!(failures[1]["what"], "not detected");
    let said = format!(
        "cookie (3); to do the same again: {command} (stillpoint 0.1.0, commit 0123456789ab)"
    );
    assert!(run.err.contains(&said), "{}", run.err);
}

#[test]
fn a_fault_counts_whichever_of_its_figures_says_so() {
    let folder = Folder::new();
    let mut without_kind = torture("rcu", 0, 10.0, 2.0);
    without_kind["rows"][0]["metrics"]["errors_cookie"] = json!(0.0);
    folder.put_json("1.json", &without_kind);
    let mut without_sum = torture("rcu", 1, 10.0, 3.0);
    without_sum["rows"][0]["metrics"]["errors"] = json!(0.0);
    folder.put_json("2.json", &without_sum);
    // A fault is more than a file that cannot be read.
    folder.put("3.json", "");
    let (run, merged) = folder.merge("--indices 0-1");
    assert_eq!(run.code, 1, "{}", run.err);
    let failures = merged["failures"].as_array().expect("there are some");
    let what: Vec<_> = failures.iter().map(|failure| &failure["what"]).collect();
    assert_eq!(what, ["errors (2)", "cookie (3)"]);
}

#[test]
fn missing_indices_are_named() {
    let folder = Folder::new();
    for index in [0, 1, 5] {
        folder.put_json(&format!("{index}.json"), &torture("rcu", index, 1.0, 0.0));
    }
    let (run, merged) = folder.merge("");
    assert_eq!(run.code, 1);
    assert_eq!(merged["missing"], json!(["2-4", "6-9"]));
    assert_eq!(merged["counts"]["missing"], 7);
    assert!(
        run.err.contains("missing indices (7): 2-4,6-9"),
        "{}",
        run.err
    );
    let (run, merged) = folder.merge("--indices 0-1");
    // The third file is none of the array's.
    assert_eq!((run.code, &merged["missing"]), (2, &json!([])));
    assert_eq!(names(&merged["unreadable"]), ["5.json"]);
}

#[test]
fn a_file_counts_once_and_its_faults_are_kept() {
    let folder = Folder::new();
    let file = torture("rcu", 3, 10.0, 0.0);
    folder.put_json("1.json", &file);
    folder.put_json("2.json", &file);
    let failed = torture("rcu", 3, 10.0, 2.0);
    folder.put_json("3.json", &failed);
    folder.put_json("4.json", &failed);
    let (run, merged) = folder.merge("--indices 3-3");
    assert_eq!(run.code, 1, "{}", run.err);
    let duplicates = names(&merged["duplicates"]);
    assert_eq!(duplicates, ["2.json", "3.json", "4.json"]);
    assert_eq!(row(&merged, "rcu")["metrics"]["reader_sections"], 10.0);
    assert_eq!(names(&merged["failures"]), ["3.json"]);
    // Without an index, it is the content that says so, wherever it ran.
    let (mut one, mut other) = (sim(0, 2, 1, 6.0), sim(0, 2, 1, 6.0));
    one["params"]["index"] = Value::Null;
    other["params"]["index"] = Value::Null;
    other["machine"]["kernel"] = json!("6.2.0");
    let files = [folder.put_json("a", &one), folder.put_json("b", &other)];
    let (run, merged) = merge(&files.join(" "));
    assert_eq!((run.code, &merged["counts"]["merged"]), (0, &json!(1)));
    assert_eq!(names(&merged["duplicates"]), ["b"]);
}

#[test]
fn what_was_broken_off_is_not_whole() {
    let folder = Folder::new();
    let mut file = torture("busted-cookie", 0, 10.0, 0.0);
    file["partial"] = json!(true);
    folder.put_json("1.json", &file);
    let (run, merged) = folder.merge("--indices 0-0");
    assert_eq!(run.code, 1);
    assert_eq!(names(&merged["partial"]), ["1.json"]);
    assert_eq!(
        merged["failures"],
        json!([]),
        "it had no time to be detected"
    );
}

/// A task that is broken off leaves `FILE.json.partial`; of one that has been done again, the whole
/// result counts.
#[test]
fn a_folder_has_what_runs_have_left_that_were_broken_off() {
    let folder = Folder::new();
    let mut file = torture("rcu", 0, 10.0, 0.0);
    folder.put_json("t-0.json", &file);
    file["partial"] = json!(true);
    file["rows"][0]["metrics"]["reader_sections"] = json!(3.0);
    folder.put_json("a-0.json.partial", &file);
    let mut failed = torture("rcu", 1, 10.0, 2.0);
    failed["partial"] = json!(true);
    folder.put_json("t-1.json.partial", &failed);
    folder.put_json("t-1.json.other", &failed);
    let (run, merged) = folder.merge("--indices 0-1");
    assert_eq!(run.code, 1, "{}", run.err);
    assert_eq!(names(&merged["partial"]), ["t-1.json.partial"]);
    assert_eq!(names(&merged["duplicates"]), ["a-0.json.partial"]);
    assert_eq!(names(&merged["failures"]), ["t-1.json.partial"]);
    assert_eq!(row(&merged, "rcu")["metrics"]["reader_sections"], 20.0);
    assert_eq!(merged["missing"], json!([]));
}

#[test]
fn a_sweep_has_a_row_for_each_point() {
    let folder = Folder::new();
    for (index, (cpus, seed, mean)) in [(16, 1, 6.0), (2, 1, 5.0), (16, 2, 8.0), (128, 1, 7.0)]
        .into_iter()
        .enumerate()
    {
        let file = sim(index as u64, cpus, seed, mean);
        folder.put_json(&format!("{index}.json"), &file);
    }
    let (run, merged) = folder.merge("--indices 0-3");
    assert_eq!(run.code, 0, "{}", run.err);
    let points: Vec<_> = merged["rows"]
        .as_array()
        .expect("there are rows")
        .iter()
        .map(|row| {
            assert_eq!(row["subject"], "stillpoint", "the authors' are no outcome");
            (
                row["point"].clone(),
                row["metrics"]["mean_ms"].clone(),
                row["runs"].clone(),
            )
        })
        .collect();
    let point = |cpus: u64, mean: f64, runs: u64| (json!({"cpus": cpus}), json!(mean), json!(runs));
    assert_eq!(
        points,
        [point(2, 5.0, 1), point(16, 7.0, 2), point(128, 7.0, 1)]
    );
    let worst = &merged["rows"][1]["worst"]["mean_ms"];
    assert_eq!((&worst["value"], &worst["seed"]), (&json!(8.0), &json!(2)));
}

#[test]
fn a_sweep_with_a_broken_property_is_not_clean() {
    let folder = Folder::new();
    let mut file = sim(0, 2, 1, 6.0);
    file["rows"][0]["metrics"] =
        json!({"min_ms": 1.0, "mean_ms": 9.0, "p50_ms": 5.0, "max_ms": 8.0});
    folder.put_json("0.json", &file);
    let (run, merged) = folder.merge("--indices 0-0");
    assert_eq!(run.code, 1, "{}", run.err);
    assert_eq!(merged["counts"]["broken_properties"], 1);
    assert!(
        run.err.contains("does not hold: a mean and a median"),
        "{}",
        run.err
    );
}

/// The most memory that a process with these arguments took, in KiB.
fn most_memory(arguments: &str) -> u64 {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_stillpoint"));
    let mut child = command
        .args(arguments.split(' '))
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("the program starts");
    let pid = libc::pid_t::try_from(child.id()).expect("it is one");
    let mut status = 0;
    // SAFETY: all zeros are an `rusage`, which the call fills; the child is ours, and is waited for
    // here only.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::wait4(pid, &raw mut status, 0, &raw mut usage), pid);
        usage
    };
    assert_eq!(status, 0);
    let _ = child.try_wait();
    u64::try_from(usage.ru_maxrss).expect("it is no less than 0")
}

#[test]
fn thousands_of_files_take_no_more_memory_than_a_few() {
    let folder = Folder::new();
    let few = Folder::new();
    for index in 0..2000_u64 {
        let mut file = torture("rcu", index, 1.0, 0.0);
        file["params"]["indices"] = json!("0-1999");
        // What is read and not kept.
        file["padding"] = json!("x".repeat(8000));
        folder.put_json(&format!("{index}.json"), &file);
        if index < 4 {
            few.put_json(&format!("{index}.json"), &file);
        }
    }
    let memory = |folder: &Folder, last: u64| {
        let path = folder.0.path().display().to_string();
        most_memory(&format!("merge {path} --indices 0-{last}"))
    };
    let (little, much) = (memory(&few, 3), memory(&folder, 1999));
    // The files have 17 MB.
    assert!(much < little + 4 * 1024, "{little} KiB, then {much} KiB");
}

#[test]
fn a_task_of_an_array_is_found_in_the_merge_and_done_again() {
    let folder = Folder::new();
    let task = |index: u64| {
        let json = folder.at(&format!("t-{index}.json"));
        stillpoint(&format!(
            "torture rcu,busted-cookie --seed 40 --index {index} --indices 0-3 --calm --duration {} --json {}",
            if index == 1 { 300 } else { 1 },
            json.display()
        ))
    };
    assert_eq!(task(0).code, 0);
    let broken = task(1);
    assert_eq!(broken.code, 1, "{}", broken.out);
    assert!(
        broken.out.contains("busted-cookie: that was stillpoint 0."),
        "{}",
        broken.out
    );
    let merged = folder.at("merged");
    let (run, _) = folder.merge(&format!("--output {}", merged.display()));
    assert_eq!(run.code, 1, "{}", run.err);
    assert!(run.err.contains("missing indices (2): 2-3"), "{}", run.err);
    let command = "stillpoint torture busted-cookie --seed 41 --duration 300 ";
    assert!(run.err.contains(command), "{}", run.err);

    for file in [
        merged.display().to_string(),
        folder.at("t-1.json").display().to_string(),
    ] {
        let again = folder.at("again");
        let replay = stillpoint(&format!(
            "torture --replay {file} --json {}",
            again.display()
        ));
        assert_eq!(replay.code, 1, "{}{}", replay.out, replay.err);
        assert_eq!(replay.err, "", "it is of this program");
        assert!(
            replay.out.starts_with("busted-cookie: 300.0 s, seed 41: "),
            "{}",
            replay.out
        );
        let again: Value =
            serde_json::from_str(&fs::read_to_string(again).expect("written")).expect("JSON");
        let first: Value =
            serde_json::from_str(&fs::read_to_string(folder.at("t-1.json")).expect("written"))
                .expect("JSON");
        assert_eq!(again["params"]["plans"], first["params"]["plans"]);
    }
    let replay = stillpoint(&format!(
        "torture --replay {} --quiet",
        folder.at("t-0.json").display()
    ));
    assert_eq!(
        replay.code, 0,
        "a clean result is done again as a whole: {}",
        replay.err
    );

    // And drawn.
    let page = folder.at("page.html");
    let run = stillpoint(&format!(
        "report --from {} --output {}",
        merged.display(),
        page.display()
    ));
    assert_eq!(run.code, 1, "{}", run.err);
    let page = fs::read_to_string(page).expect("it was written");
    for text in [
        "busted-cookie",
        command,
        "<b>2</b> indices",
        "2-3",
        "Failures",
    ] {
        assert!(page.contains(text), "{text}");
    }
}
