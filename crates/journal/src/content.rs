//! The content store on disk: one file per body, named by its digest, readable by its owner only.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use cofferdam_core::spec::Digest;
use sha2::{Digest as _, Sha256};

use crate::body::hex;
use crate::error::JournalError;
use crate::journal::{ContentReference, ContentSink};
use crate::platform;

/// Age from which a file that no event names is swept: whoever wrote it is long gone.
const ORPHAN_AGE: Duration = Duration::from_hours(24);

#[derive(Debug, Clone)]
pub(crate) struct ContentStore {
    directory: PathBuf,
}

impl ContentStore {
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    fn path(&self, digest: &str) -> PathBuf {
        self.directory
            .join(digest.get(..2).unwrap_or("00"))
            .join(digest)
    }

    pub(crate) fn sink(&self) -> Result<FileSink, JournalError> {
        platform::create_private_directory(&self.directory)
            .map_err(|source| JournalError::from_io("create", &self.directory, source))?;
        let (file, unfinished) = platform::create_unnamed(&self.directory)
            .map_err(|source| JournalError::from_io("create a file in", &self.directory, source))?;
        Ok(FileSink {
            store: self.clone(),
            file,
            unfinished,
            digest: Sha256::new(),
            bytes: 0,
        })
    }

    /// Keeps a whole body; nothing is written when it is there already.
    pub(crate) fn put(&self, digest: &str, bytes: &[u8]) -> Result<(), JournalError> {
        let path = self.path(digest);
        if fs::metadata(&path).is_ok_and(|there| there.len() == bytes.len() as u64) {
            return Ok(());
        }
        let mut sink = self.sink()?;
        sink.write_all(bytes)
            .map_err(|source| JournalError::from_io("write", &path, source))?;
        Box::new(sink).finish().map(|_| ())
    }

    /// Keeps a whole file: takes the file itself where it lies on the same file system, else its
    /// bytes.
    pub(crate) fn adopt(&self, file: &mut File) -> Result<ContentReference, JournalError> {
        let failed = |source| JournalError::from_io("keep", &self.directory, source);
        file.rewind().map_err(failed)?;
        let mut sum = Sha256::new();
        let mut bytes = 0;
        let mut buffer = vec![0; 256 * 1024];
        loop {
            match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => {
                    sum.update(&buffer[..read]);
                    bytes += read as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
        let digest = hex(&sum.finalize());
        let path = self.path(&digest);
        let reference = ContentReference {
            content: Digest(digest),
            bytes,
        };
        if fs::metadata(&path).is_ok_and(|there| there.len() == bytes) {
            return Ok(reference);
        }
        path.parent()
            .map_or(Ok(()), platform::create_private_directory)
            .map_err(failed)?;
        match platform::give_name(file, None, &path) {
            Ok(()) => Ok(reference),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(reference),
            Err(_) => {
                // Another file system, or one that cannot: a copy then.
                file.rewind().map_err(failed)?;
                let mut sink = self.sink()?;
                io::copy(file, &mut sink).map_err(failed)?;
                Box::new(sink).finish()
            }
        }
    }

    pub(crate) fn read(
        &self,
        digest: &str,
        offset: u64,
        limit: usize,
    ) -> Result<Option<Vec<u8>>, JournalError> {
        let path = self.path(digest);
        let failed = |source| JournalError::from_io("read", &path, source);
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        file.seek(SeekFrom::Start(offset)).map_err(failed)?;
        let mut bytes = Vec::new();
        file.take(limit as u64)
            .read_to_end(&mut bytes)
            .map_err(failed)?;
        Ok(Some(bytes))
    }

    /// Digests a body again: whether it is there, and whether it is what its name says.
    pub(crate) fn check(&self, digest: &str) -> Result<Option<bool>, JournalError> {
        let path = self.path(digest);
        let failed = |source| JournalError::from_io("read", &path, source);
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let mut sum = Sha256::new();
        let mut buffer = vec![0; 64 * 1024];
        loop {
            match file.read(&mut buffer).map_err(failed)? {
                0 => return Ok(Some(hex(&sum.finalize()) == digest)),
                read => sum.update(&buffer[..read]),
            }
        }
    }

    pub(crate) fn remove(&self, digest: &str) -> bool {
        fs::remove_file(self.path(digest)).is_ok()
    }

    /// Removes old files that `known` does not know: what a killed program left.
    pub(crate) fn sweep(&self, known: impl Fn(&str) -> bool) -> u64 {
        let mut removed = 0;
        for file in entries(&self.directory)
            .flat_map(|shelf| entries(&shelf).chain(std::iter::once(shelf.clone())))
        {
            let name = file.file_name().and_then(|name| name.to_str());
            let old = fs::metadata(&file).is_ok_and(|there| {
                there.is_file()
                    && there
                        .modified()
                        .ok()
                        .and_then(|changed| SystemTime::now().duration_since(changed).ok())
                        .is_some_and(|age| age > ORPHAN_AGE)
            });
            if old && !name.is_some_and(&known) && fs::remove_file(&file).is_ok() {
                removed += 1;
            }
        }
        removed
    }
}

fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
}

#[derive(Debug)]
pub(crate) struct FileSink {
    store: ContentStore,
    file: File,
    /// The name under which the file stands until it is finished, where it cannot be without one.
    unfinished: Option<PathBuf>,
    digest: Sha256,
    bytes: u64,
}

impl Write for FileSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.digest.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl ContentSink for FileSink {
    fn finish(mut self: Box<Self>) -> Result<ContentReference, JournalError> {
        let digest = hex(&std::mem::take(&mut self.digest).finalize());
        let path = self.store.path(&digest);
        let kept = path
            .parent()
            .map_or(Ok(()), platform::create_private_directory)
            .and_then(|()| platform::give_name(&self.file, self.unfinished.as_deref(), &path));
        match kept {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(JournalError::from_io("write", &path, error)),
        }
        Ok(ContentReference {
            content: Digest(digest),
            bytes: self.bytes,
        })
    }
}

impl Drop for FileSink {
    fn drop(&mut self) {
        if let Some(path) = self.unfinished.take() {
            // Renamed away when it was finished; else it goes now.
            let _ = fs::remove_file(path);
        }
    }
}
