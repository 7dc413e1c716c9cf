//! What cannot be merged: other files, hostile ones, bad usage.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use serde_json::{Value, json};

use crate::files::{Folder, merge, names, row, sim, torture};
use crate::program::stillpoint;

#[test]
fn results_of_two_kinds_are_refused() {
    let folder = Folder::new();
    folder.put_json("1.json", &torture("rcu", 0, 1.0, 0.0));
    folder.put_json("2.json", &sim(1, 2, 1, 6.0));
    let output = folder.at("merged");
    let (run, _) = folder.merge(&format!("--output {}", output.display()));
    assert_eq!(run.code, 2);
    for text in [
        "2.json is of `sim sync`",
        "1.json is of `torture`",
        "one kind",
    ] {
        assert!(run.err.contains(text), "{text}: {}", run.err);
    }
    assert!(!output.exists());
    // `scale sync` and `sim sync` have the same name in their files.
    let mut measured = sim(0, 2, 1, 6.0);
    measured["params"] = json!({"rounds": 3, "seed": 1});
    folder.put_json("1.json", &measured);
    let (run, _) = folder.merge("");
    assert!(
        run.code == 2 && run.err.contains("`scale sync`"),
        "{}",
        run.err
    );
}

#[test]
fn whatever_is_wrong_with_a_file_is_said_of_it() {
    let folder = Folder::new();
    let good = torture("rcu", 0, 10.0, 0.0);
    let text = good.to_string();
    let changed = |change: fn(&mut Value)| {
        let mut file = torture("rcu", 1, 1.0, 0.0);
        change(&mut file);
        file.to_string()
    };
    let bad = [
        (String::new(), "is empty"),
        (text[..text.len() / 2].to_owned(), "is cut off after"),
        ("stillpoint".to_owned(), "is no JSON"),
        ("{}".to_owned(), "has no figures of this program"),
        (
            format!(
                r#"{{"experiment": "torture", "params": {{"a": {}{}}}, "rows": []}}"#,
                "[".repeat(100_000),
                "]".repeat(100_000)
            ),
            "recursion limit",
        ),
        (text.replace("10.0", "1e999"), "is no JSON"),
        (text.replace("10.0", "-10.0"), "has the figure -10"),
        (text.replace("10.0", "1e300"), "has the figure 1"),
        (
            r#"{"experiment": "report", "parts": []}"#.to_owned(),
            "has a whole `report`",
        ),
        (
            r#"{"experiment": "merge", "rows": []}"#.to_owned(),
            "has a whole `merge`",
        ),
        (
            changed(|file| file["params"]["plans"] = json!([])),
            "has rows of other flavours",
        ),
        (
            changed(|file| file["params"]["plans"][0]["turns"] = json!("no")),
            "has no valid plans",
        ),
        (
            changed(|file| file["params"]["index"] = json!(10)),
            "has the index 10",
        ),
        (
            changed(|file| file["params"]["index"] = json!(-1)),
            "has no index",
        ),
        (
            changed(|file| file["params"]["indices"] = json!("0-8")),
            "is of another job array",
        ),
        (
            changed(|file| file["rows"][0]["metrics"] = json!({})),
            "does not say whether",
        ),
        (
            changed(|file| file["rows"][0]["subject"] = json!("\u{1b}[2J")),
            "names that no run",
        ),
        (
            changed(|file| file["rows"][0]["scenario"] = json!("\u{1b}[2J")),
            "names that no run",
        ),
        (
            changed(|file| file["rows"][0]["metrics"]["errors_\u{1b}[2J"] = json!(1.0)),
            "names that no run",
        ),
        (
            changed(|file| file["rows"][0]["variant"] = json!("x".repeat(2000))),
            "names that no run",
        ),
        (
            changed(|file| file["experiment"] = json!("\u{1b}[2J")),
            "has no figures of this program",
        ),
        (
            changed(|file| file["experiment"] = json!("of another program")),
            "has no figures of this program",
        ),
        (
            changed(|file| file["machine"]["environment"] = json!({"LD_PRELOAD": "a.so"})),
            "names that no run",
        ),
        (
            changed(|file| file["machine"]["version"] = json!("1".repeat(2000))),
            "names that no run",
        ),
        (
            changed(|file| file["machine"]["environment"] = json!({"A;b": ""})),
            "names that no run",
        ),
        (
            changed(|file| file["machine"]["kernel"] = json!("a\nb")),
            "names that no run",
        ),
    ];
    folder.put_json("00.json", &good);
    for (number, (text, _)) in bad.iter().enumerate() {
        folder.put(&format!("bad-{number:02}.json"), text);
    }
    let pipe = CString::new(folder.at("pipe.json").as_os_str().as_bytes()).expect("no 0 in it");
    // SAFETY: the path is a C string.
    assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
    let (run, merged) = folder.merge("--indices 0-0");
    let listed = merged["unreadable"].as_array().expect("a list");
    let of_array = |why: &str| why.contains("index") || why.contains("job array");
    for (number, (_, said)) in bad.iter().enumerate() {
        let name = format!("bad-{number:02}.json");
        let why = listed
            .iter()
            .find(|named| {
                named["file"]
                    .as_str()
                    .is_some_and(|file| file.ends_with(&name))
            })
            .and_then(|named| named["why"].as_str())
            .unwrap_or_else(|| panic!("{name} is not named"));
        // What the command line says of the array goes before what the files say.
        assert!(
            why.contains(said) || of_array(said) && of_array(why),
            "{name}: {why}"
        );
    }
    let is_pipe = |named: &&Value| named["why"] == "is no file";
    assert_eq!(listed.iter().filter(is_pipe).count(), 1);
    assert!(run.err.contains("... and "), "{}", run.err);
    assert_eq!(run.code, 2, "{}", run.err);
    assert_eq!(merged["counts"]["merged"], 1);
    assert_eq!(merged["counts"]["unreadable"], bad.len() + 1);
    assert_eq!(row(&merged, "rcu")["metrics"]["reader_sections"], 10.0);
    // Also without any good one.
    let (run, merged) = merge(&folder.at("bad-00.json").display().to_string());
    assert_eq!((run.code, merged), (2, Value::Null));
    assert!(
        run.err.contains("none of the files can be merged"),
        "{}",
        run.err
    );
}

#[test]
fn a_file_of_another_job_array_is_refused() {
    let folder = Folder::new();
    folder.put_json("0.json", &torture("rcu", 0, 10.0, 0.0));
    let mut other = torture("rcu", 1, 10.0, 3.0);
    other["params"]["indices"] = json!("0-8");
    folder.put_json("1.json", &other);
    other["params"]["indices"] = Value::Null;
    folder.put_json("2.json", &other);
    let (run, merged) = folder.merge("");
    assert_eq!(run.code, 1, "indices are missing: {}", run.err);
    assert_eq!(names(&merged["unreadable"]), ["1.json", "2.json"]);
    for unreadable in merged["unreadable"].as_array().expect("a list") {
        let why = unreadable["why"].as_str().expect("a reason");
        assert!(why.starts_with("is of another job array than "), "{why}");
        assert!(why.ends_with("0.json"), "{why}");
    }
    assert_eq!(merged["failures"], json!([]), "nothing of them is kept");
    assert_eq!(merged["missing"], json!(["1-9"]));
}

/// Neither its index, nor its content, nor, of the first one, its kind and array.
#[test]
fn nothing_is_kept_of_a_file_that_is_refused() {
    let folder = Folder::new();
    let mut refused = sim(0, 2, 1, 6.0);
    refused["params"]["padding"] = json!("x".repeat(2000));
    folder.put_json("0.json", &refused);
    folder.put_json("1.json", &sim(0, 2, 1, 6.0));
    let (run, merged) = folder.merge("--indices 0-0");
    assert_eq!(run.code, 2, "{}", run.err);
    assert!(
        run.err.contains("has parameters that no run"),
        "{}",
        run.err
    );
    assert_eq!(names(&merged["unreadable"]), ["0.json"]);
    assert_eq!(merged["counts"]["merged"], 1);
    assert_eq!(merged["duplicates"], json!([]));
    // And now a file of another kind behind it.
    folder.put_json("1.json", &torture("rcu", 0, 1.0, 0.0));
    let (run, merged) = folder.merge("--indices 0-0");
    assert_eq!((run.code, &merged["params"]["of"]), (2, &json!("torture")));
}

/// They are printed, and stand in the result.
#[test]
fn names_with_control_characters_are_refused() {
    let folder = Folder::new();
    folder.put_json("0.json", &torture("rcu", 0, 1.0, 0.0));
    folder.put_json("1\u{1b}[2J.json", &torture("rcu", 1, 1.0, 2.0));
    let (run, merged) = folder.merge("--indices 0-1");
    assert_eq!(run.code, 1, "index 1 is missing: {}", run.err);
    assert!(!run.err.contains('\u{1b}') && !run.out.contains('\u{1b}'));
    assert_eq!(names(&merged["unreadable"]), ["1\\u{1b}[2J.json"]);
    assert_eq!(merged["failures"], json!([]));
}

/// Variables stand before commands that are to be typed, and may be secret.
#[test]
fn only_the_librarys_variables_are_in_commands() {
    let folder = Folder::new();
    let mut failed = torture("rcu", 0, 1.0, 2.0);
    failed["machine"]["environment"] =
        json!({"STILLPOINT_TOKEN": "secret", "STILLPOINT_MEMBARRIER": "off"});
    folder.put_json("0.json", &failed);
    let (run, merged) = folder.merge("--indices 0-0");
    let command = merged["failures"][0]["command"].as_str().expect("one");
    assert!(
        command.starts_with("STILLPOINT_MEMBARRIER=off stillpoint torture rcu "),
        "{command}"
    );
    assert!(!run.out.contains("secret") && !run.err.contains("secret"));
}

#[test]
fn bad_usage_is_refused() {
    let folder = Folder::new();
    let file = folder.put_json("1.json", &torture("rcu", 0, 1.0, 0.0));
    let empty = folder.at("empty");
    fs::create_dir(&empty).expect("the folder can be written");
    for (arguments, said) in [
        ("merge".to_owned(), "<FILES>"),
        (format!("merge {file} --indices 9-0"), "say FIRST-LAST"),
        (
            format!("merge {file} --output {file}"),
            "is one of the files, and --output",
        ),
        (format!("merge {}", empty.display()), "no .json files"),
        (
            format!("merge {}", folder.at("absent").display()),
            "cannot be read",
        ),
        (
            "torture rcu --index 3 --indices 0-2".to_owned(),
            "is not in --indices 0-2",
        ),
        ("torture rcu --indices 0-2".to_owned(), "--index"),
        (
            "sim sync --index 3 --cpus 4".to_owned(),
            "cannot be used with",
        ),
        (
            format!("torture --replay {file} --seed 3"),
            "cannot be used with",
        ),
        (
            format!("torture --replay {}", folder.at("absent").display()),
            "cannot be read",
        ),
    ] {
        let run = stillpoint(&arguments);
        assert_eq!(
            (run.code, run.out.as_str()),
            (2, ""),
            "{arguments}: {}",
            run.err
        );
        assert!(run.err.contains(said), "{arguments}: {}", run.err);
    }
    // The output of the last time is no input.
    let output = folder.at("all.json").display().to_string();
    for _ in 0..2 {
        let (run, _) = folder.merge(&format!("--indices 0-0 --output {output}"));
        assert_eq!(run.code, 0, "{}", run.err);
    }
}

#[test]
fn a_replay_of_what_no_command_line_says_is_refused() {
    let folder = Folder::new();
    for (change, said) in [
        (json!({"readers": 1_000_000}), "readers is 1000000"),
        (json!({"duration_s": 1e30}), "duration_s is"),
        (json!({"flavour": "none"}), "no flavour \"none\""),
        (
            json!({"disturbances": ["nothing"]}),
            "is no result of a torture",
        ),
    ] {
        let mut file = torture("rcu", 0, 1.0, 0.0);
        for (name, value) in change.as_object().expect("it is one") {
            file["params"]["plans"][0][name] = value.clone();
        }
        let path = folder.put_json("r.json", &file);
        let run = stillpoint(&format!("torture --replay {path}"));
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{}", run.err);
        assert!(run.err.contains(said), "{said}: {}", run.err);
    }
    let mut file = torture("rcu", 0, 1.0, 0.0);
    file["machine"]["version"] = json!("\u{1b}[2J");
    let path = folder.put_json("r.json", &file);
    let run = stillpoint(&format!("torture --replay {path}"));
    assert_eq!((run.code, run.out.as_str()), (2, ""), "{}", run.err);
    assert!(!run.err.contains('\u{1b}'), "{:?}", run.err);
}
