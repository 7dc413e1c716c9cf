//! Files that a run fills at its end.
//!
//! A file keeps what it has until then, whatever becomes of the run: it is written beside its place
//! and then renamed into it. Until the end there is nothing of it in the directory, not even a
//! temporary name (where the file system can do that), so that a run which is killed leaves nothing
//! behind.
//!
//! A symbolic link stays, and the file that it names is replaced. What cannot be replaced (a device,
//! a pipe, `/dev/stdout` and its like wherever they lead) is written to as it is.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Seek, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Symbolic links that are followed, as many as the kernel does.
const MOST_LINKS: u32 = 40;

/// A file for the end of a run. Nothing is in its place before [`commit`](Output::commit).
pub struct Output {
    /// The place that the command line names.
    path: PathBuf,
    /// What has been written so far, or the place itself if that cannot be replaced.
    file: File,
    /// The file to replace; `None` where `file` is the place.
    place: Option<PathBuf>,
}

impl Output {
    /// For a file at `path`. Fails if that could not be written at the end: this must be known
    /// before a run, not after it.
    pub fn create(path: &Path) -> Result<Self> {
        Self::open(path).with_context(|| format!("cannot write {}", path.display()))
    }

    fn open(path: &Path) -> io::Result<Self> {
        let place = replaceable(path)?;
        let file = match &place {
            Some(place) => {
                if place.try_exists()? {
                    // Who may not write to the file should not replace it either.
                    OpenOptions::new().write(true).open(place)?;
                }
                tempfile::tempfile_in(directory(place))?
            }
            // Appends, because standard output may be a file that has text already.
            None => OpenOptions::new().append(true).open(path)?,
        };
        Ok(Self {
            path: path.to_owned(),
            file,
            place,
        })
    }

    /// The path, as the command line has it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where [`commit_partial`](Output::commit_partial) puts what it has.
    pub fn partial_path(&self) -> PathBuf {
        partial(&self.path)
    }

    /// Returns whether the end of the run replaces a file; otherwise what is written is out at
    /// once.
    pub fn is_replaced(&self) -> bool {
        self.place.is_some()
    }

    /// Writes behind what has been written.
    pub fn write(&mut self, text: &str) -> Result<()> {
        self.file
            .write_all(text.as_bytes())
            .with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// Forgets what has been written, if it is not out yet.
    pub fn restart(&mut self) -> Result<()> {
        if self.is_replaced() {
            self.file
                .set_len(0)
                .and_then(|()| self.file.rewind())
                .with_context(|| format!("cannot write {}", self.path.display()))?;
        }
        Ok(())
    }

    /// Puts what has been written into its place.
    pub fn commit(&mut self) -> Result<()> {
        match self.place.clone() {
            Some(place) => self.replace(&place),
            None => Ok(()),
        }
    }

    /// Puts what has been written beside its place, as the outcome of a run that was broken off,
    /// and returns where: the path with `.partial` behind it.
    pub fn commit_partial(&mut self) -> Result<PathBuf> {
        let Some(place) = &self.place else {
            return Ok(self.path.clone());
        };
        self.replace(&partial(place))?;
        Ok(self.partial_path())
    }

    /// Puts what has been written into its place, and removes what [`commit_partial`] has put
    /// beside it.
    ///
    /// [`commit_partial`]: Output::commit_partial
    pub fn commit_whole(&mut self) -> Result<()> {
        self.commit()?;
        if let Some(place) = &self.place {
            // It may never have been there.
            let _ = fs::remove_file(partial(place));
        }
        Ok(())
    }

    fn replace(&mut self, place: &Path) -> Result<()> {
        let name = self.path.display();
        let mut file = tempfile::Builder::new()
            .prefix(".stillpoint-")
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(directory(place))
            .with_context(|| format!("cannot write {name}"))?;
        let mut fill = || {
            self.file.rewind()?;
            io::copy(&mut self.file, &mut file)?;
            if let Ok(before) = fs::metadata(place) {
                file.as_file().set_permissions(before.permissions())?;
            }
            file.as_file().sync_all()
        };
        fill().with_context(|| format!("cannot write {name}"))?;
        if let Err(failed) = file.persist(place) {
            let error = failed.error;
            let (_, kept) = failed
                .file
                .keep()
                .with_context(|| format!("cannot write {name}"))?;
            return Err(error).with_context(|| {
                format!(
                    "cannot replace {name}; what it was to hold is in {}",
                    kept.display()
                )
            });
        }
        Ok(())
    }
}

/// The file that a path leads to, over symbolic links; `None` if it is none that can be replaced.
fn replaceable(path: &Path) -> io::Result<Option<PathBuf>> {
    let mut place = path.to_owned();
    for _ in 0..MOST_LINKS {
        let name = place.file_name().ok_or(io::ErrorKind::IsADirectory)?;
        place = directory(&place).canonicalize()?.join(name);
        // Links there are to open files, and do not say where these are.
        if place.starts_with("/proc") {
            return Ok(None);
        }
        let kind = match fs::symlink_metadata(&place) {
            Ok(found) => found.file_type(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Some(place)),
            Err(error) => return Err(error),
        };
        if kind.is_symlink() {
            place = directory(&place).join(fs::read_link(&place)?);
        } else if kind.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        } else {
            return Ok(kind.is_file().then_some(place));
        }
    }
    Err(rustix::io::Errno::LOOP.into())
}

/// The directory of a file.
fn directory(file: &Path) -> &Path {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn partial(path: &Path) -> PathBuf {
    let mut name: OsString = path.into();
    name.push(".partial");
    name.into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    struct Folder(TempDir);

    impl Folder {
        fn new() -> Self {
            Self(TempDir::new().expect("a folder for temporary files"))
        }

        fn at(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn put(&self, name: &str, text: &str) -> PathBuf {
            fs::write(self.at(name), text).expect("the folder can be written");
            self.at(name)
        }

        fn text(&self, name: &str) -> String {
            fs::read_to_string(self.at(name)).expect("the file is there")
        }

        fn names(&self) -> Vec<OsString> {
            let entries = fs::read_dir(self.0.path()).expect("the folder is there");
            let mut names: Vec<_> = entries
                .map(|entry| entry.expect("it can be read").file_name())
                .collect();
            names.sort();
            names
        }
    }

    fn written(path: &Path, text: &str) -> Output {
        let mut output = Output::create(path).expect("the folder can be written");
        output.write(text).expect("there is space");
        output
    }

    #[test]
    fn a_file_keeps_its_text_until_the_end() {
        let folder = Folder::new();
        let path = folder.put("figures", "old, and longer than what comes");
        let mut output = written(&path, "new");
        assert_eq!(folder.text("figures"), "old, and longer than what comes");
        output.commit().expect("the folder can be written");
        assert_eq!(folder.text("figures"), "new");
        assert_eq!(folder.names(), ["figures"]);
    }

    #[test]
    fn what_is_never_committed_leaves_nothing() {
        let folder = Folder::new();
        let path = folder.put("figures", "old");
        drop(written(&path, "new"));
        drop(written(&folder.at("other"), "new"));
        assert_eq!(folder.names(), ["figures"]);
        assert_eq!(folder.text("figures"), "old");
    }

    #[test]
    fn a_broken_off_run_writes_beside_the_file() {
        let folder = Folder::new();
        let path = folder.put("figures", "old");
        let mut output = written(&path, "half");
        let partial = output.commit_partial().expect("the folder can be written");
        assert_eq!(partial, folder.at("figures.partial"));
        assert_eq!(
            (folder.text("figures"), folder.text("figures.partial")),
            ("old".to_owned(), "half".to_owned())
        );
        output.restart().expect("it is a file");
        output.write("all").expect("there is space");
        output.commit_whole().expect("the folder can be written");
        assert_eq!(folder.names(), ["figures"]);
        assert_eq!(folder.text("figures"), "all");
    }

    #[test]
    fn links_are_followed_and_stay() {
        let folder = Folder::new();
        folder.put("figures", "old");
        for (target, name) in [("figures", "one"), ("one", "two"), ("absent", "dangling")] {
            symlink(target, folder.at(name)).expect("the folder can be written");
        }
        for name in ["two", "dangling"] {
            written(&folder.at(name), name)
                .commit()
                .expect("the folder can be written");
        }
        assert_eq!(folder.text("figures"), "two");
        assert_eq!(folder.text("absent"), "dangling");
        for name in ["one", "two", "dangling"] {
            assert!(folder.at(name).is_symlink(), "{name}");
        }
        symlink("ring", folder.at("ring")).expect("the folder can be written");
        assert!(Output::create(&folder.at("ring")).is_err());
    }

    #[test]
    fn the_mode_stays() {
        let folder = Folder::new();
        let path = folder.put("figures", "old");
        fs::set_permissions(&path, Permissions::from_mode(0o640)).expect("it is ours");
        written(&path, "new").commit().expect("it can be written");
        let mode = fs::metadata(&path).expect("it is there").permissions();
        assert_eq!(mode.mode() & 0o777, 0o640);
        // A new file is like any other program's.
        let usual = folder.put("usual", "");
        written(&folder.at("fresh"), "new")
            .commit()
            .expect("it can be written");
        let mode = |path: &Path| {
            fs::metadata(path)
                .expect("it is there")
                .permissions()
                .mode()
        };
        assert_eq!(mode(&folder.at("fresh")), mode(&usual));
    }

    #[test]
    fn what_cannot_be_replaced_is_written_to() {
        for path in ["/dev/null", "/dev/full", "/dev/stdout", "/proc/self/fd/1"] {
            let output = Output::create(Path::new(path)).expect("it can be opened");
            assert!(!output.is_replaced(), "{path}");
        }
        let mut full = Output::create(Path::new("/dev/full")).expect("it can be opened");
        assert!(full.write("text").is_err());
    }

    #[test]
    fn what_cannot_be_written_is_told_at_once() {
        let folder = Folder::new();
        for path in [folder.at("absent/figures"), folder.at(""), "..".into()] {
            let error = Output::create(&path).err().expect("it cannot be written");
            assert!(error.to_string().starts_with("cannot write "), "{error:#}");
        }
        assert!(folder.names().is_empty());
    }

    #[test]
    fn figures_whose_place_is_lost_are_kept_elsewhere() {
        let folder = Folder::new();
        let path = folder.at("figures");
        let mut output = written(&path, "new");
        fs::create_dir(&path).expect("the folder can be written");
        let error = output.commit().expect_err("a directory is there now");
        let said = error.to_string();
        let (_, kept) = said.split_once(" is in ").expect("it says where");
        assert_eq!(fs::read_to_string(kept).expect("it is there"), "new");
    }
}
