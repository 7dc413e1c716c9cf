//! The parts of a report: each is a command of this program, which the report starts and whose JSON
//! it reads.

use crate::choice::Menu;
use crate::torture::{self, Entry};

/// Returns the names of the parts that can be asked for, in the report's order.
pub fn names() -> impl Iterator<Item = &'static str> {
    let others = ["sim-sync", "sim-bridge", "sim-trace", "torture", BROKEN];
    SCALE.iter().map(|(name, ..)| *name).chain(others)
}

/// Returns the menu of parts.
pub fn menu() -> Menu {
    Menu::new("parts", "Parts of the report", names())
}

/// All broken flavours, each of which is a part.
const BROKEN: &str = "broken";

/// Seconds that a broken flavour has before it counts as not detected.
const FOUND_WITHIN_S: f64 = 10.0;

/// A part and its command.
pub struct Task {
    /// Its name.
    pub name: String,
    /// The arguments, without the names of the files that it writes.
    pub arguments: Vec<String>,
    /// True if it must fail: a flavour that is broken on purpose.
    pub is_broken: bool,
}

/// How much of each part is done.
#[derive(Clone, Copy)]
pub struct Extent {
    /// True for few rounds, which take about three minutes in all.
    pub quick: bool,
    /// Rounds of every experiment, instead of its default.
    pub rounds: Option<u32>,
    /// Seconds of torture of the sound flavours together.
    pub torture_s: Option<f64>,
    /// The seed of every part.
    pub seed: u64,
}

/// The scale experiments, the rounds of each in a quick report, which has some three minutes for all parts, and their
/// scenarios in a report, if these are not all.
const SCALE: [(&str, u32, &str); 10] = [
    ("kfree", 2, ""),
    ("read", 2, ""),
    ("sync", 2, ""),
    ("trace", 1, ""),
    ("lru", 1, ""),
    ("vmap", 1, ""),
    (
        "map",
        1,
        " --scenarios get-100000,readheavy-2,exchange-2,rapidgrow-2-grow,memory",
    ),
    ("epoch", 1, " --scenarios pin,box-2,moka-50,flood-loaded"),
    ("cache", 1, " --scenarios read-2,mixed-2,isolation"),
    ("server", 1, " --scenarios get-1,get-pipelined,isolation"),
];

/// The default number of rounds of an experiment.
const USUAL_ROUNDS: u32 = 3;

/// Returns the part's tasks: one, but one for each broken flavour.
pub fn tasks(part: &str, extent: Extent) -> Vec<Task> {
    let seed = format!("--seed {}", extent.seed);
    if let Some((name, quick_rounds, scenarios)) = SCALE.iter().find(|(name, ..)| *name == part) {
        let usual = if extent.quick {
            *quick_rounds
        } else {
            USUAL_ROUNDS
        };
        let rounds = extent.rounds.unwrap_or(usual);
        let command = format!("scale {name}{scenarios} --rounds {rounds} {seed}");
        return vec![task(name, &command)];
    }
    if let Some(simulation) = part.strip_prefix("sim-") {
        return vec![task(part, &format!("sim {simulation} {seed}"))];
    }
    if part == BROKEN {
        let broken = torture::flavours().filter(|flavour| flavour.is_broken());
        let task = |flavour: &Entry| {
            let name = flavour.name;
            let command = format!("torture {name} --duration {FOUND_WITHIN_S} {seed}");
            Task {
                is_broken: true,
                ..task(name, &command)
            }
        };
        return broken.map(task).collect();
    }
    let usual = if extent.quick { 18.0 } else { 60.0 };
    let seconds = extent.torture_s.unwrap_or(usual);
    let command = format!("torture all --duration {seconds} {seed}");
    vec![task(part, &command)]
}

fn task(name: &str, command: &str) -> Task {
    Task {
        name: name.to_owned(),
        arguments: command.split(' ').map(ToOwned::to_owned).collect(),
        is_broken: false,
    }
}

impl Task {
    /// Returns the command as a person types it.
    pub fn command(&self) -> String {
        format!("stillpoint {}", self.arguments.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_broken_flavour_is_a_part() {
        let extent = Extent {
            quick: true,
            rounds: None,
            torture_s: None,
            seed: 7,
        };
        let all: Vec<Task> = names().flat_map(|part| tasks(part, extent)).collect();
        let broken = torture::flavours()
            .filter(|flavour| flavour.is_broken())
            .count();
        assert!(broken > 0);
        assert_eq!(all.iter().filter(|task| task.is_broken).count(), broken);
        assert!(all.iter().all(|task| {
            task.arguments
                .ends_with(&["--seed".to_owned(), "7".to_owned()])
        }));
    }
}
