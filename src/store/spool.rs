//! Results that the store could not take, kept in files until the next start can record them; and the reserve of space
//! that a full disk is given back for that.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};
use serde::{Deserialize, Serialize};

use super::Finish;

/// The folder of results, in the one of locks.
const FOLDER: &str = "spool";
const SUFFIX: &str = ".json";
/// What a result that cannot be read is renamed to, for people to look at.
const UNREADABLE: &str = ".unreadable";
/// The file that gives its space to a full disk.
const RESERVE: &str = "reserve";
/// Room for the rows of a run with the usual output, and for what SQLite needs beside them.
const RESERVE_BYTES: u64 = 512 * 1024;

/// The spool and the reserve in a folder of locks.
pub struct Spool {
    folder: PathBuf,
}

/// A kept result.
pub struct Kept {
    path: PathBuf,
    /// What is to be recorded.
    pub finish: Finish,
}

/// The file's content. The version is that of its shape.
#[derive(Serialize, Deserialize)]
struct Document<F> {
    version: u32,
    job: String,
    finish: F,
}

const VERSION: u32 = 1;

impl Spool {
    /// Those in the folder of locks `folder`; nothing is made yet.
    pub fn in_folder(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
        }
    }

    /// Keeps the result of a run of `job`; it is on the disk then, in the file that is returned.
    pub fn keep(&self, job: &str, finish: &Finish) -> io::Result<PathBuf> {
        let folder = self.folder.join(FOLDER);
        DirBuilder::new()
            .mode(0o700)
            .recursive(true)
            .create(&folder)?;
        let path = folder.join(format!("{job}@{}{SUFFIX}", finish.run));
        let unfinished = path.with_extension("unfinished");
        let document = Document {
            version: VERSION,
            job: job.to_owned(),
            finish,
        };
        let written = File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&unfinished)
            .and_then(|mut file| {
                file.write_all(&serde_json::to_vec(&document)?)?;
                file.sync_all()
            })
            .and_then(|()| fs::rename(&unfinished, &path))
            .and_then(|()| File::open(&folder)?.sync_all())
            .and_then(|()| File::open(&self.folder)?.sync_all());
        if written.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
        written.map(|()| path)
    }

    /// The kept results of `job`, oldest first. One that is none is put aside, and named in its place. The error is that
    /// of a file that cannot be read now, or that a newer jobrun wrote.
    pub fn kept(&self, job: &str) -> Result<Vec<Result<Kept, PathBuf>>, (PathBuf, io::Error)> {
        let folder = self.folder.join(FOLDER);
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err((folder, error)),
        };
        let mut paths: Vec<PathBuf> = entries
            .filter_map(Result::ok)
            .filter(|entry| is_kept(&entry.file_name().to_string_lossy(), job))
            .map(|entry| entry.path())
            .collect();
        // Runs are numbered by their time.
        paths.sort();
        paths.into_iter().map(|path| read(path, job)).collect()
    }

    /// Whether a result of `job` is kept. A folder that cannot be looked into holds none for who asks.
    pub fn holds(&self, job: &str) -> bool {
        let entries = fs::read_dir(self.folder.join(FOLDER));
        entries
            .into_iter()
            .flatten()
            .filter_map(Result::ok)
            .any(|entry| is_kept(&entry.file_name().to_string_lossy(), job))
    }

    /// Sets space aside, unless there is some already. A disk that has none is no error.
    pub fn reserve(&self) {
        let path = self.folder.join(RESERVE);
        if path
            .metadata()
            .is_ok_and(|reserve| reserve.len() >= RESERVE_BYTES)
        {
            return;
        }
        let made = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .and_then(|file| Ok(fallocate(&file, FallocateFlags::empty(), 0, RESERVE_BYTES)?));
        match made {
            Ok(()) => {}
            Err(error) => {
                tracing::debug!("no space is set aside: {error}");
                let _ = fs::remove_file(&path);
            }
        }
    }

    /// Gives the space back to the disk; whether there was any.
    pub fn give_up_reserve(&self) -> bool {
        fs::remove_file(self.folder.join(RESERVE)).is_ok()
    }
}

impl Kept {
    /// Puts it aside, for people to look at; where it is then.
    pub fn put_aside(&self) -> PathBuf {
        put_aside(self.path.clone())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Forgets it: it is recorded, or came too late.
    pub fn forget(&self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }
}

/// Whether a file of that name is a result of `job`.
fn is_kept(name: &str, job: &str) -> bool {
    let rest = name.strip_prefix(job);
    rest.is_some_and(|rest| rest.starts_with('@') && rest.ends_with(SUFFIX))
}

fn read(path: PathBuf, job: &str) -> Result<Result<Kept, PathBuf>, (PathBuf, io::Error)> {
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) => return Err((path, error)),
    };
    match serde_json::from_slice::<Document<Finish>>(&bytes) {
        Ok(document) if document.version == VERSION && document.job == job => Ok(Ok(Kept {
            path,
            finish: document.finish,
        })),
        parsed => {
            let version = serde_json::from_slice::<serde_json::Value>(&bytes);
            let version = version.ok().and_then(|value| value["version"].as_u64());
            if parsed.is_err() && version.is_some_and(|version| version > VERSION.into()) {
                let newer = io::Error::other("a newer jobrun has written it");
                return Err((path, newer));
            }
            Ok(Err(put_aside(path)))
        }
    }
}

/// Where the file is then.
fn put_aside(path: PathBuf) -> PathBuf {
    let mut aside = path.clone().into_os_string();
    aside.push(UNREADABLE);
    let aside = PathBuf::from(aside);
    match fs::rename(&path, &aside) {
        Ok(()) => aside,
        Err(_) => path,
    }
}

/// Bytes as text with a character for each: what is text stays readable, and nothing gets lost.
pub mod bytes_as_text {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    /// Writes each byte as the character of that number.
    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        let text: String = bytes.iter().copied().map(char::from).collect();
        serializer.serialize_str(&text)
    }

    /// Reads them back.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        let byte = |character: char| u8::try_from(u32::from(character)).map_err(D::Error::custom);
        text.chars().map(byte).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::contract::a_finish;

    fn kept_of(spool: &Spool, job: &str) -> Vec<Result<Kept, PathBuf>> {
        spool.kept(job).expect("read")
    }

    #[test]
    fn a_result_of_a_newer_jobrun_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let spool = Spool::in_folder(folder.path());
        let path = spool.keep("j", &a_finish()).expect("kept");
        fs::write(&path, r#"{"version":2,"job":"j"}"#).expect("written");
        assert!(spool.kept("j").is_err());
        assert!(path.exists());
    }

    #[test]
    fn a_result_comes_back_as_it_was_and_only_for_its_job() {
        let folder = tempfile::tempdir().expect("a folder");
        let spool = Spool::in_folder(folder.path());
        assert!(kept_of(&spool, "j").is_empty());
        let finish = Finish {
            output: (0..=255).collect(),
            ..a_finish()
        };
        spool.keep("j", &finish).expect("kept");
        assert!(kept_of(&spool, "i").is_empty());
        assert!(spool.holds("j") && !spool.holds("i"));
        let kept = kept_of(&spool, "j");
        let [Ok(kept)] = kept.as_slice() else {
            panic!("one result");
        };
        assert_eq!(format!("{:?}", kept.finish), format!("{finish:?}"));
        kept.forget().expect("forgotten");
        assert!(!spool.holds("j"));
        assert!(kept_of(&spool, "j").is_empty());
    }

    #[test]
    fn a_result_that_cannot_be_read_is_put_aside_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let spool = Spool::in_folder(folder.path());
        let path = spool.keep("j", &a_finish()).expect("kept");
        fs::write(&path, "{\"version\":").expect("written");
        let kept = kept_of(&spool, "j");
        let [Err(aside)] = kept.as_slice() else {
            panic!("one that cannot be read");
        };
        assert!(aside.to_string_lossy().ends_with(".json.unreadable"));
        assert!(aside.exists() && kept_of(&spool, "j").is_empty());
    }

    #[test]
    fn the_reserve_is_made_once_and_given_up_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let spool = Spool::in_folder(folder.path());
        spool.reserve();
        spool.reserve();
        let meta = fs::metadata(folder.path().join(RESERVE)).expect("made");
        assert_eq!(meta.len(), RESERVE_BYTES);
        assert!(spool.give_up_reserve());
        assert!(!spool.give_up_reserve());
    }
}
