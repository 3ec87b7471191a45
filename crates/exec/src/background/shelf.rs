//! Where the files of a command's output stand while it runs.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use cofferdam_core::id::CommandId;
use cofferdam_core::outcome::OutputReference;
use cofferdam_journal::Journal;
use rustix::fs::{Mode, OFlags};
use serde_json::{Value, json};

use super::reader::order_value;
use crate::output::Stream;

/// The directory below the data directory.
const DIRECTORY: &str = "output";
/// Age from which a file that nobody holds is no longer one that is just being made.
const SETTLED_AGE: Duration = Duration::from_mins(1);

/// One of the files of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Stdout,
    Stderr,
    Order,
}

impl Part {
    const ALL: [Self; 3] = [Self::Stdout, Self::Stderr, Self::Order];

    pub(crate) const fn of(stream: Stream) -> Self {
        match stream {
            Stream::Stdout => Self::Stdout,
            Stream::Stderr => Self::Stderr,
        }
    }

    const fn suffix(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Order => "order",
        }
    }
}

/// Files of a plane without a data directory: they have no names, whoever reads shares them.
pub(crate) type LiveFiles = Arc<Mutex<[Option<Arc<File>>; 3]>>;

/// Where the files of one command stand.
#[derive(Debug, Clone)]
pub(crate) enum Shelf {
    /// Under names below the data directory.
    Named { data: PathBuf, command: CommandId },
    /// Without names, on the file system of this directory.
    Unnamed { place: PathBuf, files: LiveFiles },
}

impl Shelf {
    pub(crate) fn new(data: Option<&Path>, place: &Path, command: &CommandId) -> Self {
        match data {
            Some(data) => Self::Named {
                data: data.to_owned(),
                command: command.clone(),
            },
            None => Self::Unnamed {
                place: place.to_owned(),
                files: LiveFiles::default(),
            },
        }
    }

    fn path(data: &Path, command: &CommandId, part: Part) -> PathBuf {
        data.join(DIRECTORY)
            .join(format!("{command}.{}", part.suffix()))
    }

    /// Makes a file and holds it as ours: its lock says that somebody writes it.
    pub(crate) fn create(&self, part: Part) -> io::Result<File> {
        match self {
            Self::Named { data, command } => {
                let path = Self::path(data, command, part);
                let mut options = File::options();
                options.read(true).write(true).create_new(true).mode(0o600);
                let file = match options.open(&path) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        DirBuilder::new()
                            .recursive(true)
                            .mode(0o700)
                            .create(data.join(DIRECTORY))?;
                        options.open(&path)?
                    }
                    other => other?,
                };
                // A file system without locks: then nothing is swept there either.
                let _ = file.try_lock();
                Ok(file)
            }
            Self::Unnamed { place, files } => {
                let file = open_unnamed(place)?;
                let shared = Arc::new(file.try_clone()?);
                files.lock().unwrap_or_else(PoisonError::into_inner)[part as usize] = Some(shared);
                Ok(file)
            }
        }
    }

    /// Opens a file for reading by offset; `None` where there is none (yet, or any more).
    pub(crate) fn open(&self, part: Part) -> io::Result<Option<Arc<File>>> {
        match self {
            Self::Named { data, command } => match File::open(Self::path(data, command, part)) {
                Ok(file) => Ok(Some(Arc::new(file))),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error),
            },
            Self::Unnamed { files, .. } => {
                Ok(files.lock().unwrap_or_else(PoisonError::into_inner)[part as usize].clone())
            }
        }
    }

    /// Takes the names away. Whoever reads goes on with what is open.
    pub(crate) fn remove(&self) {
        match self {
            Self::Named { data, command } => {
                for part in Part::ALL {
                    let _ = fs::remove_file(Self::path(data, command, part));
                }
            }
            Self::Unnamed { files, .. } => {
                *files.lock().unwrap_or_else(PoisonError::into_inner) = Default::default();
            }
        }
    }

    /// Tells when output was last written, where files have names.
    pub(crate) fn last_written(&self) -> Option<SystemTime> {
        let Self::Named { data, command } = self else {
            return None;
        };
        [Part::Stdout, Part::Stderr]
            .into_iter()
            .filter_map(|part| {
                fs::metadata(Self::path(data, command, part))
                    .ok()?
                    .modified()
                    .ok()
            })
            .max()
    }
}

fn open_unnamed(place: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(place, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => Ok(File::from(file)),
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::ISDIR) => {
            // A file system without nameless files: a name for a moment.
            let path = place.join(format!("spill-{}", std::process::id()));
            let file = File::options()
                .read(true)
                .write(true)
                .create_new(true)
                .open(&path)?;
            fs::remove_file(&path)?;
            Ok(file)
        }
        Err(error) => Err(error.into()),
    }
}

/// Keeps what a command of a plane that died had written, and takes the names away; gives what an
/// event says of it.
pub(crate) fn adopt_abandoned(data: &Path, journal: &dyn Journal, command: &CommandId) -> Value {
    let shelf = Shelf::new(Some(data), data, command);
    let keep = |part| -> Option<OutputReference> {
        let file = shelf.open(part).ok()??;
        let mut file = Arc::into_inner(file)?;
        let kept = journal.adopt_content(&mut file, None).ok()?;
        Some(OutputReference {
            bytes: kept.bytes,
            digest: Some(kept.content.0),
            dropped: 0,
        })
    };
    let [stdout, stderr] = [Part::Stdout, Part::Stderr].map(keep);
    let order = shelf
        .open(Part::Order)
        .ok()
        .flatten()
        .and_then(|file| super::reader::read_whole(&file).ok())
        .and_then(|order| order_value(&order, |bytes| journal.put_content(bytes)).ok());
    let mut told = serde_json::Map::new();
    for (name, kept) in [("stdout_full", stdout), ("stderr_full", stderr)] {
        if let Some(kept) = kept {
            told.insert(name.to_owned(), json!(kept));
        }
    }
    if let Some(order) = order {
        told.insert("order".to_owned(), order);
    }
    shelf.remove();
    Value::Object(told)
}

/// Removes files whose writer is gone: ours by directory and name, dead because nobody holds their
/// lock, and saved or settled before. Gives how many there were.
pub(crate) fn sweep(data: &Path) -> u64 {
    let mut removed = 0;
    for entry in fs::read_dir(data.join(DIRECTORY))
        .into_iter()
        .flatten()
        .flatten()
    {
        let name = entry.file_name();
        let is_ours = name.to_str().is_some_and(|name| {
            name.rsplit_once('.').is_some_and(|(id, suffix)| {
                CommandId::parse(id).is_ok() && Part::ALL.iter().any(|part| part.suffix() == suffix)
            })
        });
        let is_old = entry
            .metadata()
            .ok()
            .and_then(|found| found.modified().ok())
            .and_then(|changed| SystemTime::now().duration_since(changed).ok())
            .is_some_and(|age| age > SETTLED_AGE);
        if !is_ours || !is_old {
            continue;
        }
        let path = entry.path();
        let is_free = File::open(&path).is_ok_and(|file| file.try_lock().is_ok());
        if is_free && fs::remove_file(&path).is_ok() {
            removed += 1;
        }
    }
    removed
}
