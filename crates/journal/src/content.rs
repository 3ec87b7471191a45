//! The content store on disk: one file per body, named by its digest, readable by its owner only.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use cofferdam_core::spec::{DigestSum, EitherSum};

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

    fn begin(&self) -> Result<Unfinished, JournalError> {
        platform::create_private_directory(&self.directory)
            .map_err(|source| JournalError::from_io("create", &self.directory, source))?;
        let (file, name) = platform::create_unnamed(&self.directory)
            .map_err(|source| JournalError::from_io("create a file in", &self.directory, source))?;
        Ok(Unfinished { file, name })
    }

    pub(crate) fn sink(&self) -> Result<FileSink, JournalError> {
        Ok(FileSink {
            store: self.clone(),
            unfinished: self.begin()?,
            sum: DigestSum::default(),
        })
    }

    /// Keeps a whole body under its digest, which is believed; nothing is written where it is there
    /// already.
    pub(crate) fn put(&self, digest: &str, bytes: &[u8]) -> Result<(), JournalError> {
        let path = self.path(digest);
        if fs::metadata(&path).is_ok_and(|there| there.len() == bytes.len() as u64) {
            return Ok(());
        }
        let mut unfinished = self.begin()?;
        unfinished
            .file
            .write_all(bytes)
            .map_err(|source| JournalError::from_io("write", &path, source))?;
        unfinished.finish(&path)
    }

    /// Keeps a whole file: takes the file itself where it lies on the same file system, else its
    /// bytes. A sum that its writer made is believed where it covers as many bytes as there are.
    pub(crate) fn adopt(
        &self,
        file: &mut File,
        written: Option<DigestSum>,
    ) -> Result<ContentReference, JournalError> {
        let failed = |source| JournalError::from_io("keep", &self.directory, source);
        let length = file.metadata().map_err(failed)?.len();
        let sum = match written.filter(|sum| sum.bytes() == length) {
            Some(sum) => sum,
            None => sum_of(file).map_err(failed)?,
        };
        let bytes = sum.bytes();
        let reference = ContentReference {
            content: sum.digest(),
            bytes,
        };
        let path = self.path(reference.content.as_str());
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
        let mut sum = EitherSum::default();
        each_piece(&mut file, |piece| sum.add(piece)).map_err(failed)?;
        Ok(Some(sum.is(digest)))
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

/// Reads a whole file and adds it up.
fn sum_of(file: &mut File) -> io::Result<DigestSum> {
    let mut sum = DigestSum::default();
    each_piece(file, |piece| sum.add(piece))?;
    Ok(sum)
}

/// Reads a whole file piece by piece.
fn each_piece(file: &mut File, mut take: impl FnMut(&[u8])) -> io::Result<()> {
    file.rewind()?;
    let mut buffer = vec![0; 256 * 1024];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => take(&buffer[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
}

/// A file of the store that has not its name yet; dropped, it leaves nothing.
#[derive(Debug)]
struct Unfinished {
    file: File,
    /// The name under which it stands until then, where it cannot be without one.
    name: Option<PathBuf>,
}

impl Unfinished {
    /// Gives it its name, unless the same content has it already.
    fn finish(self, path: &Path) -> Result<(), JournalError> {
        let kept = path
            .parent()
            .map_or(Ok(()), platform::create_private_directory)
            .and_then(|()| platform::give_name(&self.file, self.name.as_deref(), path));
        match kept {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(JournalError::from_io("write", path, error))
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(path) = self.name.take() {
            // It has its other name when it was finished; else it goes now.
            let _ = fs::remove_file(path);
        }
    }
}

#[derive(Debug)]
pub(crate) struct FileSink {
    store: ContentStore,
    unfinished: Unfinished,
    sum: DigestSum,
}

impl Write for FileSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.unfinished.file.write(bytes)?;
        self.sum.add(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.unfinished.file.flush()
    }
}

impl ContentSink for FileSink {
    fn finish(self: Box<Self>) -> Result<ContentReference, JournalError> {
        let Self {
            store,
            unfinished,
            sum,
        } = *self;
        let bytes = sum.bytes();
        let content = sum.digest();
        unfinished.finish(&store.path(content.as_str()))?;
        Ok(ContentReference { content, bytes })
    }
}

#[cfg(test)]
mod tests {
    use cofferdam_core::spec::Digest;

    use super::*;

    /// Makes a file of the store's own kind, and the sum of other bytes of a given length.
    fn adopted(bytes: &[u8], summed: Option<&[u8]>) -> String {
        let place = tempfile::tempdir().expect("a directory");
        let store = ContentStore::new(place.path().join("content"));
        let mut file = tempfile::tempfile_in(place.path()).expect("a file");
        file.write_all(bytes).expect("room");
        let sum = summed.map(|summed| {
            let mut sum = DigestSum::default();
            sum.add(summed);
            sum
        });
        let kept = store.adopt(&mut file, sum).expect("kept");
        assert_eq!(kept.bytes, bytes.len() as u64);
        let read = store.read(kept.content.as_str(), 0, 100).expect("readable");
        assert_eq!(read.as_deref(), Some(bytes));
        kept.content.0
    }

    #[test]
    fn content_of_an_older_version_holds_and_changed_content_does_not() {
        let place = tempfile::tempdir().expect("a directory");
        let store = ContentStore::new(place.path().join("content"));
        for digest in [Digest::of(b"text"), Digest::sha256(b"text")] {
            store.put(digest.as_str(), b"text").expect("kept");
            assert_eq!(store.check(digest.as_str()).expect("read"), Some(true));
            fs::write(store.path(digest.as_str()), "test").expect("written");
            assert_eq!(store.check(digest.as_str()).expect("read"), Some(false));
        }
    }

    #[test]
    fn a_sum_made_while_writing_is_believed_unless_it_covers_another_length() {
        let read = adopted(b"what was written", None);
        assert_eq!(
            adopted(b"what was written", Some(b"what was written")),
            read
        );
        assert_eq!(adopted(b"what was written", Some(b"what was")), read);
    }
}
