//! Reading many files with few questions to the worker.

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::file::{LineRange, excerpt, line_count};
use cofferdam_core::limits;
use cofferdam_core::operation::{FileRead, FilesRead, OneOfMany, ReadFile, ReadFiles};
use cofferdam_core::spec::Digest;
use cofferdam_keeper::{FileReply, FileRequest};
use cofferdam_sandbox::SandboxError;

use super::content::tell;
use super::path::Located;
use super::{FileDoor, worker};

/// Bytes of a file up to which it comes with others; a larger one is read by itself.
const SMALL: u32 = 256 * 1024;

impl FileDoor<'_> {
    /// Reads the whole of many files. What is wrong with one is told with it; the others are read all
    /// the same.
    ///
    /// # Errors
    ///
    /// `invalid_request`; that the worker did not answer.
    pub fn read_many(&self, request: &ReadFiles) -> Result<FilesRead, Problem> {
        let wrong = |field: &str, message: String| {
            Err(Problem::new(ErrorCode::InvalidRequest, message).with_field(field))
        };
        let number = request.paths.len();
        if !(1..=limits::READ_FILES).contains(&number) {
            let message = format!("paths are 1 to {}, not {number}", limits::READ_FILES);
            return wrong("paths", message);
        }
        let most = request.max_chars.unwrap_or(limits::OUTPUT_CHARACTERS);
        if most == 0 {
            return wrong("max_chars", "max_chars is at least 1".to_owned());
        }
        let located: Vec<Result<Located, Problem>> =
            request.paths.iter().map(|path| self.locate(path)).collect();
        let asked: Vec<&Located> = located.iter().filter_map(|one| one.as_ref().ok()).collect();
        let mut contents = Vec::with_capacity(asked.len());
        while contents.len() < asked.len() {
            let left = &asked[contents.len()..];
            // One worker is asked at a time, and each has its root.
            let same = left.iter().take_while(|at| at.root() == left[0].root());
            let left = &left[..same.count()];
            let paths = left.iter().map(|at| at.relative().to_vec()).collect();
            let question = FileRequest::ReadMany { paths, most: SMALL };
            match self.ask(left[0], &question)?.0 {
                FileReply::Many(some) if !some.is_empty() && some.len() <= left.len() => {
                    contents.extend(some);
                }
                other => return Err(worker::odd(&other)),
            }
        }
        let mut contents = contents.into_iter();
        let mut characters = limits::READ_FILES_CHARACTERS;
        let files = request.paths.iter().zip(located).map(|(path, at)| {
            let read = at.and_then(|at| {
                let Some(content) = contents.next() else {
                    let message = "a file worker forgot a file";
                    return Err(Problem::new(ErrorCode::Internal, message));
                };
                let content = content.map_err(|failure| {
                    worker::refused(at.shown(), SandboxError::from(failure).errno)
                })?;
                let Some(bytes) = content.bytes else {
                    return self.read(&ReadFile {
                        max_chars: Some(most.min(characters).max(1)),
                        encoding: request.encoding,
                        ..ReadFile::whole(path.clone())
                    });
                };
                let real = at.really(content.path);
                self.may_read(&real)?;
                let digest = Digest::of(&bytes.0);
                if let Some(visits) = &self.terms.visits {
                    visits.see(self.on_host(&real), digest.clone());
                }
                let piece = excerpt(&bytes.0, LineRange::default(), most.min(characters));
                let (text, encoding) = tell(piece.bytes, request.encoding);
                Ok(FileRead {
                    char_count: text.chars().count() as u64,
                    encoding,
                    content: Some(text),
                    start_line: piece.first_line,
                    end_line: piece.last_line,
                    truncated: piece.is_truncated,
                    ..FileRead::of(path.clone(), &bytes.0, line_count(&bytes.0), digest)
                })
            });
            let taken = read.as_ref().map_or(0, |read| read.char_count);
            characters = characters.saturating_sub(usize::try_from(taken).unwrap_or(usize::MAX));
            let (read, problem) = match read {
                Ok(read) => (Some(read), None),
                Err(problem) => (None, Some(problem)),
            };
            OneOfMany {
                path: path.clone(),
                read,
                problem,
            }
        });
        Ok(FilesRead {
            files: files.collect(),
        })
    }
}
