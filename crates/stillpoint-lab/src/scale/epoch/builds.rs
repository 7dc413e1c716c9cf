//! The program in `drop-in/bench`: one source with two manifests, of which one has the patch line for
//! the drop-in package. A program has one package of the name, so each build is a separate subject.
//! They are built before anything is measured (minutes, the first time), into the target folder, and
//! each measurement is one run.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::run::Sample;
use crate::run::child::die_with_parent;

/// The name of the program that each manifest makes.
const BINARY: &str = "epoch-bench";

/// A build of the program.
#[derive(Clone, Copy)]
pub struct Program {
    /// Its folder in `target/epoch-bench`.
    pub name: &'static str,
    /// The manifest's folder in `drop-in/bench`.
    pub manifest: &'static str,
    /// Its features.
    pub features: &'static str,
}

/// Builds them. What is missing then fails where it would be measured, and the run goes on.
pub fn build(programs: &[Program]) {
    for program in programs {
        if let Err(error) = program.build() {
            eprintln!("stillpoint: {}: {error:#}", program.name);
        }
    }
}

/// The root of the clone that this program was built in.
fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

impl Program {
    fn target(self) -> PathBuf {
        root().join("target").join(BINARY).join(self.name)
    }

    fn build(self) -> Result<()> {
        let manifest = root().join("drop-in/bench").join(self.manifest);
        let mut command = Command::new("cargo");
        command
            .args(["build", "--release", "--locked", "--quiet"])
            .args(["--features", self.features])
            .arg("--manifest-path")
            .arg(manifest.join("Cargo.toml"))
            .arg("--target-dir")
            .arg(self.target());
        die_with_parent(&mut command);
        let status = command
            .status()
            .context("cannot start cargo, which builds what is measured")?;
        if !status.success() {
            bail!("it cannot be built ({status}); cargo has said why");
        }
        Ok(())
    }

    /// One measurement.
    pub fn run(self, scenario: &str) -> Result<Sample> {
        let program = self.target().join("release").join(BINARY);
        let mut command = Command::new(&program);
        command.args([scenario, "1"]).stderr(Stdio::inherit());
        // It ends with this process, which has a time limit.
        die_with_parent(&mut command);
        let output = command
            .output()
            .with_context(|| format!("cannot start {}", program.display()))?;
        if !output.status.success() {
            bail!("it ended with {}", output.status);
        }
        Ok(Sample {
            metrics: serde_json::from_slice(&output.stdout)?,
            ..Sample::default()
        })
    }
}
