//! The figures that README and the chapters quote are those of the lab's JSON in `docs/figures`.
//!
//! A quoted figure stands in a block, between `<!-- figures:NAME begin -->` and
//! `<!-- figures:NAME end -->`. What belongs into a block of that name is in `tables.rs`. The test
//! writes the blocks and fails if that changed a file. `scripts/figures` writes the JSON.

mod tables;

use crate::{
    assert_none,
    book::{repository, root},
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};
use tables::{Column, Row, SeedFigure, TABLES, Table};

/// What the lab found, by experiment.
struct Figures(BTreeMap<String, Value>);

impl Figures {
    fn of_the_repository() -> Self {
        let files = fs::read_dir(root().join("figures")).expect("there are figures");
        let read = |path: PathBuf| {
            let name = path.file_stem()?.to_str()?.to_owned();
            let text = fs::read_to_string(&path).expect("it can be read");
            let value = serde_json::from_str(&text)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            Some((name, value))
        };
        Self(
            files
                .filter_map(|entry| read(entry.expect("it can be read").path()))
                .collect(),
        )
    }

    fn rows(&self, experiment: &str) -> impl Iterator<Item = &Value> {
        let rows = self
            .0
            .get(experiment)
            .and_then(|value| value["rows"].as_array());
        rows.into_iter().flatten()
    }

    /// The figure of a column, in the column's unit, of a subject and its variant.
    fn figure(&self, column: &Column, subject: &str, variant: &str) -> Option<f64> {
        if tables::NOT_SHOWN.contains(&(column.scenario, subject, variant)) {
            return None;
        }
        let is_it = |row: &&Value| {
            row["subject"] == subject
                && row["variant"] == variant
                && row["scenario"].as_str().unwrap_or_default() == column.scenario
        };
        let row = self.rows(column.experiment).find(is_it)?;
        Some(row["metrics"][column.metric].as_f64()? / column.unit)
    }

    /// The peer with the smallest figure in a column. Of a peer with several settings, the one that
    /// [`tables::SETTING_BY`] chooses.
    fn best_peer(&self, column: &Column) -> Option<(&str, f64)> {
        let (experiment, metric) = tables::SETTING_BY;
        let setting_by = if column.experiment == experiment {
            metric
        } else {
            column.metric
        };
        let by = |row: &Value| row["metrics"][setting_by].as_f64().unwrap_or(f64::MAX);
        let mut chosen: BTreeMap<&str, &Value> = BTreeMap::new();
        for row in self.rows(column.experiment) {
            let subject = row["subject"].as_str()?;
            let of_column = row["scenario"].as_str().unwrap_or_default() == column.scenario;
            if !of_column || ["stillpoint", "limit"].contains(&subject) {
                continue;
            }
            let best = chosen.entry(subject).or_insert(row);
            if by(row) < by(best) {
                *best = row;
            }
        }
        let peers = chosen.into_iter().filter_map(|(subject, row)| {
            Some((
                subject,
                self.figure(column, subject, row["variant"].as_str()?)?,
            ))
        });
        peers.min_by(|one, other| one.1.total_cmp(&other.1))
    }

    fn table(&self, table: &Table) -> String {
        let cell = |row: &Row, column: &Column| {
            let case = row
                .cases
                .iter()
                .find(|case| case.0.is_empty() || case.0 == column.experiment)?;
            self.figure(column, case.1, case.2).map(readable)
        };
        let heads = table.columns.iter().map(|column| column.head);
        let mut text = head(table.label, heads);
        for row in table.rows {
            let cells = table.columns.iter().map(|column| cell(row, column));
            line(&mut text, row.label, cells.collect());
        }
        text
    }

    /// Stillpoint, the best peer of each row, and those that most people know.
    fn readme(&self) -> String {
        let heads = ["Stillpoint", "best peer"].into_iter();
        let mut text = head(
            "",
            heads.chain(tables::PEERS_OF_README.map(|row| row.label)),
        );
        for column in tables::ROWS_OF_README {
            let of = |row: &Row| {
                let case = row.cases.iter().find(|case| case.0 == column.experiment)?;
                self.figure(column, case.1, case.2)
            };
            let ours = of(&tables::OURS_OF_README);
            let qsbr = of(&tables::QSBR_OF_README);
            let beside = qsbr.map(|qsbr| format!("; QSBR {}", readable(qsbr)));
            let best = self.best_peer(column);
            let smallest = [ours, qsbr, best.map(|best| best.1)]
                .into_iter()
                .flatten()
                .fold(f64::MAX, f64::min);
            let best = best.map(|(peer, figure)| {
                let beats = figure < ours.unwrap_or(0.0) && figure < qsbr.unwrap_or(f64::MAX);
                told(peer, figure, beats)
            });
            let ours = ours.map(|ours| readable(ours) + &beside.unwrap_or_default());
            let mut cells = vec![ours, best];
            cells.extend(tables::PEERS_OF_README.iter().map(|row| {
                let bounds =
                    |figure: &f64| row.label != tables::NO_RECLAMATION.label || *figure <= smallest;
                of(row).filter(bounds).map(readable)
            }));
            line(&mut text, column.head, cells);
        }
        text
    }

    /// The parts of the project, each beside the best peer.
    fn parts(&self) -> String {
        let mut text = head(" | measured", ["Stillpoint", "best peer"].into_iter());
        for part in tables::PARTS {
            let ours = self.figure(&part.column, "stillpoint", part.variant);
            let best = self
                .best_peer(&part.column)
                .map(|(peer, figure)| told(peer, figure, figure < ours.unwrap_or(0.0)));
            let label = format!("{} | {}", part.label, part.column.head);
            line(&mut text, &label, vec![ours.map(readable), best]);
        }
        text
    }

    /// The seeds' systems: the kernel and Stillpoint, before and after.
    fn seeds(&self) -> String {
        let heads = ["kernel before", "after", "here before", "after"];
        let mut text = head("", heads.into_iter());
        for seed in tables::SEEDS {
            let cells = seed.cells.iter().map(|figures| {
                let told = figures.iter().map(|figure| self.seed(figure));
                told.collect::<Option<Vec<_>>>().map(|told| told.join(", "))
            });
            line(&mut text, seed.label, cells.collect());
        }
        text
    }

    fn seed(&self, figure: &SeedFigure) -> Option<String> {
        let is_it = |row: &&Value| {
            row["experiment"] == figure.experiment
                && row["subject"] == figure.subject
                && row["variant"] == figure.variant
                && row["scenario"].as_str().unwrap_or_default() == figure.scenario
        };
        let row = self.rows("seeds").find(is_it)?;
        let (divided_by, unit) = figure.unit;
        let value = row["metrics"][figure.metric].as_f64()? / divided_by;
        Some(format!("{}{}{unit}", figure.name, readable(value)))
    }

    /// When and where the experiments were run, those together that were run alike.
    fn taken(&self) -> String {
        let mut runs: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for (name, value) in &self.0 {
            let (taken, machine) = (&value["taken"], &value["machine"]);
            let of = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let busy = machine["load"]["busy"].as_bool().unwrap_or_default();
            let run = format!(
                "{} | {} | {} CPUs, Linux {}{} | {} | {}",
                of(&taken["date"]),
                of(&taken["commit"]),
                machine["cpus"],
                of(&machine["kernel"]),
                if busy { ", **busy**" } else { "" },
                of(&taken["build"]),
                of(&taken["note"]),
            );
            runs.entry(run).or_default().push(name);
        }
        let mut text =
            "| taken | commit | machine | build | | experiments |\n|---|---|---|---|---|---|\n"
                .to_owned();
        for (run, names) in runs {
            writeln!(text, "| {run} | {} |", names.join(", ")).expect("a string takes all");
        }
        text
    }

    /// What belongs between the marks of that name.
    fn block(&self, name: &str) -> Option<String> {
        match name {
            "readme" => Some(self.readme()),
            "parts" => Some(self.parts()),
            "seeds" => Some(self.seeds()),
            "taken" => Some(self.taken()),
            _ => TABLES
                .iter()
                .find(|table| table.name == name)
                .map(|table| self.table(table)),
        }
    }

    /// A file's text with the blocks as they should be, or what is wrong with its marks.
    fn fill(&self, text: &str) -> Result<String, String> {
        let mut parts = text.split(MARK);
        let mut filled = parts.next().unwrap_or_default().to_owned();
        let mut open = None;
        for part in parts {
            let (words, after) = part.split_once(" -->").unwrap_or((part, ""));
            match (open, words.split_once(' ')) {
                (None, Some((name, "begin"))) => {
                    let block = self
                        .block(name)
                        .ok_or_else(|| format!("no figures {name}"))?;
                    filled += &format!("{MARK}{words} -->\n\n{block}\n");
                    open = Some(name);
                }
                (Some(name), Some((end, "end"))) if name == end => {
                    filled += &format!("{MARK}{words} -->{after}");
                    open = None;
                }
                _ => return Err(format!("'{words}' does not fit the mark before")),
            }
        }
        open.map_or(Ok(filled), |name| Err(format!("{name} has no end")))
    }
}

/// The beginning of a mark. Its name follows, and `begin` or `end`.
const MARK: &str = "<!-- figures:";

fn head<'h>(label: &'h str, heads: impl Iterator<Item = &'h str> + Clone) -> String {
    let labels = label.matches(" | ").count() + 1;
    let line = |cells: Vec<&str>| format!("| {} |\n", cells.join(" | ")).replace("|  |", "| |");
    let rule = format!(
        "|{}{}\n",
        "---|".repeat(labels),
        "---:|".repeat(heads.clone().count())
    );
    line([label].into_iter().chain(heads).collect()) + &rule
}

fn line(text: &mut String, label: &str, cells: Vec<Option<String>>) {
    let cells = cells
        .into_iter()
        .map(|cell| cell.unwrap_or_else(|| "-".to_owned()));
    let cells: Vec<String> = cells.collect();
    writeln!(text, "| {label} | {} |", cells.join(" | ")).expect("a string takes all");
}

/// A peer with its figure, in bold if it beats ours.
fn told(peer: &str, figure: f64, beats: bool) -> String {
    let cell = format!("{peer} {}", readable(figure));
    if beats { format!("**{cell}**") } else { cell }
}

/// A figure with three digits or so: more would be noise.
fn readable(figure: f64) -> String {
    let size = figure.abs();
    match size {
        0.0 => "0".to_owned(),
        _ if size >= 1000.0 => {
            let digits = format!("{figure:.0}");
            let mut text = String::new();
            for (at, digit) in digits.chars().enumerate() {
                if at > 0 && (digits.len() - at) % 3 == 0 {
                    text.push(',');
                }
                text.push(digit);
            }
            text
        }
        _ if size >= 100.0 => format!("{figure:.0}"),
        _ if size >= 10.0 => format!("{figure:.1}"),
        _ if size >= 0.1 => format!("{figure:.2}"),
        _ => format!("{figure:.3}"),
    }
}

/// Lines of a chapter that quote a measured time or size, such as 1.5 ns, outside of blocks.
fn strays(file: &str, text: &str) -> Vec<String> {
    let (mut in_block, mut in_code) = (false, false);
    let mut complaints = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        in_code ^= line.trim_start().starts_with("```");
        if line.contains(MARK) {
            in_block = line.contains(" begin ");
        }
        if !in_block && !in_code && quotes_figure(line) {
            complaints.push(format!(
                "{file}:{number}: a figure outside of a block: say it without one, or link: {line}"
            ));
        }
    }
    complaints
}

fn quotes_figure(line: &str) -> bool {
    let words: Vec<&str> = line.split([' ', '|', ',', ';', '(', ')', ':']).collect();
    let is_decimal = |word: &str| {
        word.split_once('.').is_some_and(|(whole, part)| {
            [whole, part]
                .iter()
                .all(|part| !part.is_empty() && part.chars().all(|digit| digit.is_ascii_digit()))
        })
    };
    let units = ["ns", "us", "ms", "MiB", "MB", "KiB"];
    words.windows(2).any(|pair| {
        is_decimal(pair[0]) && units.contains(&pair[1].trim_end_matches(['.', '*', '`']))
    })
}

/// README and the chapters.
fn files() -> Vec<PathBuf> {
    let chapters = fs::read_dir(root().join("src")).expect("there are chapters");
    let chapters = chapters.map(|entry| entry.expect("it can be read").path());
    chapters
        .chain([repository().join("README.md")])
        .filter(|path| path.extension().is_some_and(|kind| kind == "md"))
        .collect()
}

fn name_of(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

#[test]
fn blocks_are_those_of_the_json() {
    let figures = Figures::of_the_repository();
    let mut complaints = Vec::new();
    for path in files() {
        let text = fs::read_to_string(&path).expect("it can be read");
        match figures.fill(&text) {
            Ok(filled) if filled == text => {}
            Ok(filled) => {
                fs::write(&path, filled).expect("it can be written");
                complaints.push(format!(
                    "{}: its figures were not those of docs/figures. They are now: look at the \
                     change, and run the test again.",
                    name_of(&path)
                ));
            }
            Err(why) => complaints.push(format!("{}: {why}", name_of(&path))),
        }
    }
    assert_none(&complaints);
}

#[test]
fn no_chapter_quotes_figures_elsewhere() {
    let complaints = files()
        .into_iter()
        .filter(|path| path.starts_with(root()))
        .flat_map(|path| {
            strays(
                &name_of(&path),
                &fs::read_to_string(&path).expect("it is there"),
            )
        });
    assert_none(&complaints.collect::<Vec<_>>());
}

#[test]
fn every_column_and_seed_has_figures() {
    let figures = Figures::of_the_repository();
    for table in TABLES {
        for column in table.columns {
            let has = |case: &(&str, &str, &str)| figures.figure(column, case.1, case.2).is_some();
            let is_shown = table.rows.iter().any(|row| row.cases.iter().any(has));
            assert!(is_shown, "{}: no row has {:?}", table.name, column.head);
        }
    }
    let seeds = figures.seeds();
    assert_eq!(seeds.lines().count(), tables::SEEDS.len() + 2);
    assert!(!seeds.contains("| - |"), "{seeds}");
}

/// The figures of one experiment, whose rows are subject, variant, and metrics.
fn figures_of(name: &str, scenario: &str, rows: &[(&str, &str, Value)]) -> Figures {
    let row = |(subject, variant, metrics): &(&str, &str, Value)| {
        json! {{ "subject": subject, "variant": variant, "scenario": scenario, "metrics": metrics }}
    };
    let rows: Vec<_> = rows.iter().map(row).collect();
    let machine = json! {{ "cpus": 2, "load": { "busy": true } }};
    Figures(
        [(
            name.to_owned(),
            json! {{ "rows": rows, "machine": machine }},
        )]
        .into(),
    )
}

#[test]
fn wrong_figures_and_marks_are_found() {
    let read = |rows: &[(&str, &str, f64)]| {
        let row = |&(subject, variant, ns)| (subject, variant, json! {{ "ns_per_pair": ns }});
        figures_of("read", "alone", &rows.iter().map(row).collect::<Vec<_>>())
    };
    let figures = read(&[
        ("stillpoint", "guard", 0.617),
        ("liburcu-memb", "default", 1.02),
        ("seize", "default", 12345.6),
    ]);
    let mark = |name: &str, which: &str| format!("{MARK}{name} {which} -->");
    let (begin, end) = (mark("read", "begin"), mark("read", "end"));
    let filled = figures
        .fill(&format!("a\n{begin}\n| 0.5 |\n{end}\nb"))
        .expect("marks that fit");
    assert!(
        filled.starts_with("a\n") && filled.ends_with("\nb"),
        "{filled}"
    );
    assert_eq!(figures.fill(&filled).as_ref(), Ok(&filled));
    let faster = read(&[
        ("stillpoint", "guard", 3.0),
        ("stillpoint", "qsbr", 2.0),
        ("seize", "default", 1.5),
    ]);
    let of = |ns, mib| json! {{ "ns_per_object": ns, "peak_mib": mib }};
    let kfree = figures_of(
        "kfree",
        "",
        &[
            ("stillpoint", "per-page", of(14, 5)),
            ("seize", "a", of(90, 1)),
            ("seize", "b", of(20, 6)),
            ("limit", "default", of(11, 7)),
        ],
    )
    .readme();
    for (text, has) in [
        (&filled, "| Stillpoint | 0.62 |"),
        (&filled, "| 12,346 |"),
        (
            &figures.readme(),
            "| 0.62 | liburcu-memb 1.02 | 1.02 | - | - |",
        ),
        (&faster.readme(), "| 3.00; QSBR 2.00 | **seize 1.50** |"),
        (&faster.taken(), "2 CPUs, Linux , **busy** |"),
        (&kfree, "| 14.0 | seize 20.0 | - | - | 11.0 |"),
        (&kfree, "| 5.00 | seize 6.00 | - | - | - |"),
    ] {
        assert!(text.contains(has), "{has} is not in {text}");
    }
    for broken in [
        begin.clone(),
        end.clone(),
        format!("{begin}{begin}{end}"),
        format!("{begin}{}", mark("sync", "end")),
        format!("{}{}", mark("nothing", "begin"), mark("nothing", "end")),
    ] {
        assert!(figures.fill(&broken).is_err(), "{broken}");
    }
    let text = "takes 0.6 ns,\n```\n0.6 ns\n```\n| 1.5 MiB |\nRust 1.88, 15 us\n";
    assert_eq!(strays("a.md", text).len(), 2);
    assert_eq!(
        strays("a.md", &format!("{begin}\n{text}{end}\n1.0 us")).len(),
        1
    );
}
