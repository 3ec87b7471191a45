//! Files (E3–E6, E8): what is asked for and what comes of it.
//!
//! Paths are relative to the workspace, or absolute as commands see them. Names are bytes, see
//! [`BytePath`]; contents are text, or base64 where they are not.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bytes::BytePath;
use crate::error::Problem;
use crate::file::{AmbiguousMatch, LineRange, MatchBlock, Replacement, ReplacementDetail};
use crate::limits;
use crate::spec::Digest;

/// How bytes are written in JSON.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Encoding {
    /// As text; the bytes are valid UTF-8.
    #[default]
    Utf8,
    /// As text in which bytes that are no UTF-8 were replaced: for reading only.
    Lossy,
    /// As base64, with padding.
    Base64,
}

/// What is read of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReadKind {
    /// Its content, or a range of lines.
    #[default]
    Read,
    /// The lines that hold a text, with those around them.
    Search,
    /// Several ranges of lines.
    Extract,
    /// An image or a video, whole, as base64.
    Media,
}

/// Reads a file (E5).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadFile {
    /// The file.
    pub path: BytePath,
    /// What is read of it; `read` unless said.
    #[serde(default, rename = "type")]
    pub kind: ReadKind,
    /// First line, from 1; for `read`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_line: Option<u64>,
    /// Last line; for `read`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_line: Option<u64>,
    /// Most characters of content; 50 000 unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_chars: Option<usize>,
    /// How the content is told; `utf8` unless said, which becomes `lossy` where it has to.
    #[serde(default)]
    pub encoding: Encoding,
    /// Plain text that is looked for; for `search`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// Most matching lines, 1 to 50; 5 unless said; for `search`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_matches: Option<usize>,
    /// Lines before each match, at most 3; 1 unless said; for `search`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_before: Option<usize>,
    /// Lines after each match, at most 5; 1 unless said; for `search`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_after: Option<usize>,
    /// Whether capital letters are told from small ones; for `search`.
    #[serde(default)]
    pub case_sensitive: bool,
    /// Ranges of lines, 1 to 50 of them; for `extract`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub segments: Vec<LineRange>,
}

impl ReadFile {
    /// Asks for the whole of a file, as text.
    pub fn whole(path: impl Into<BytePath>) -> Self {
        Self {
            path: path.into(),
            kind: ReadKind::Read,
            start_line: None,
            end_line: None,
            max_chars: None,
            encoding: Encoding::Utf8,
            query: None,
            max_matches: None,
            context_before: None,
            context_after: None,
            case_sensitive: false,
            segments: Vec::new(),
        }
    }
}

/// One range of lines of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Segment {
    /// First line that is there, from 1; 0 where the range holds none.
    pub start_line: u64,
    /// Last line that is there.
    pub end_line: u64,
    /// Its text.
    pub content: String,
    /// Whether characters were left out.
    pub truncated: bool,
}

/// An image or a video.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Media {
    /// Its type, such as `image/png`, told by its first bytes and not by its name.
    pub mime_type: String,
    /// All of it, as base64.
    pub base64: String,
}

/// What was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileRead {
    /// The file, as it was named.
    pub path: BytePath,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its lines; 0 for media.
    pub total_lines: u64,
    /// BLAKE3 of the whole: what `expected_digest` of a change takes.
    pub digest: Digest,
    /// How `content` and `segments` are told.
    pub encoding: Encoding,
    /// For `read`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// First line of the content, from 1; 0 where there is none.
    pub start_line: u64,
    /// Last line of the content.
    pub end_line: u64,
    /// Characters of `content`, or of all segments.
    pub char_count: u64,
    /// Whether something of what was asked for was left out.
    pub truncated: bool,
    /// For `search`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub matches: Vec<MatchBlock>,
    /// How many lines match, shown or not; for `search`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matching_lines: Option<u64>,
    /// For `extract`, in the order in which they were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub segments: Vec<Segment>,
    /// For `media`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media: Option<Media>,
}

impl FileRead {
    /// Tells of a file without anything of its content.
    pub const fn of(path: BytePath, content: &[u8], total_lines: u64, digest: Digest) -> Self {
        Self {
            path,
            bytes: content.len() as u64,
            total_lines,
            digest,
            encoding: Encoding::Utf8,
            content: None,
            start_line: 0,
            end_line: 0,
            char_count: 0,
            truncated: false,
            matches: Vec::new(),
            matching_lines: None,
            segments: Vec::new(),
            media: None,
        }
    }
}

/// Reads the whole of many files at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadFiles {
    /// The files, 1 to 1 000.
    pub paths: Vec<BytePath>,
    /// Most characters of each; 50 000 unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_chars: Option<usize>,
    /// How contents are told; `utf8` unless said, which becomes `lossy` where it has to.
    #[serde(default)]
    pub encoding: Encoding,
}

/// What was read of many files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FilesRead {
    /// What came of each, in the order in which they were asked for.
    pub files: Vec<OneOfMany>,
}

/// What came of one file of many.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OneOfMany {
    /// The file, as it was named.
    pub path: BytePath,
    /// What was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<FileRead>,
    /// Why nothing was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}

/// Whether content takes the place of a file's or follows it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WriteMode {
    /// The content is the file.
    #[default]
    Write,
    /// The content follows what is there.
    Append,
}

/// Writes a file (E3). It is there before or after, never half.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WriteFile {
    /// The file; directories above it are made.
    pub path: BytePath,
    /// What stands in it.
    pub content: String,
    /// How `content` is told: `utf8` or `base64`.
    #[serde(default)]
    pub encoding: Encoding,
    /// Whether it replaces or follows what is there.
    #[serde(default)]
    pub mode: WriteMode,
    /// What the file must hold now, by its `digest` or its SHA-256; a conflict where it holds
    /// something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_digest: Option<Digest>,
    /// Whether the answer comes only when the file and its name have reached the disk, so that they
    /// outlive a loss of power; it takes the time that the disk takes.
    #[serde(default)]
    pub durable: bool,
}

/// Edits a file (E4): 1 to 100 groups, each on the result of those before it, all or nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EditFile {
    /// The file.
    pub path: BytePath,
    /// The groups, in order.
    pub replacements: Vec<Replacement>,
    /// What is done where an old text stands in several places and not all are meant.
    #[serde(default)]
    pub ambiguous: AmbiguousMatch,
    /// What the file must hold now, by its `digest` or its SHA-256; a conflict where it holds
    /// something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_digest: Option<Digest>,
    /// Whether the answer comes only when the file and its name have reached the disk, so that they
    /// outlive a loss of power; it takes the time that the disk takes.
    #[serde(default)]
    pub durable: bool,
}

/// A state of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileVersion {
    /// BLAKE3 of its bytes. Those of a file that was replaced are in the content store.
    pub digest: Digest,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its text, where it is small, text, and holds nothing secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// What came of writing or editing a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileWritten {
    /// The file, as it was named.
    pub path: BytePath,
    /// The change, by which it can be taken back.
    pub change_id: String,
    /// Whether it was not there before.
    pub created: bool,
    /// Its size in bytes now.
    pub bytes: u64,
    /// How it was; absent where it was not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original_file: Option<FileVersion>,
    /// How it is.
    pub new_file: FileVersion,
    /// How many places were replaced; for an edit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replacements: Option<u64>,
    /// How many places were found; for an edit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found_matches: Option<u64>,
    /// What became of each group; for an edit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<ReplacementDetail>,
    /// What counts against the quota, where the policy sets one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<QuotaUse>,
}

/// How much file operations have added to a workspace, of what they may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QuotaUse {
    /// Bytes that its files hold more than before, by what file operations did.
    pub used_bytes: u64,
    /// How many the policy allows (`limits.files`).
    pub limit_bytes: u64,
}

/// Names one path (E6): a file or folder to be made or removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OnePath {
    /// The path.
    pub path: BytePath,
}

/// Removes a folder (E6).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeleteFolder {
    /// The folder.
    pub path: BytePath,
    /// Whether what is in it goes too; otherwise it has to be empty.
    #[serde(default)]
    pub recursive: bool,
}

/// Renames a file or folder (E6). Nothing is replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RenameFile {
    /// The old path.
    pub path: BytePath,
    /// The new path; nothing stands there.
    pub new_path: BytePath,
}

/// Takes a change of files back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RestoreFile {
    /// The change, as its result named it.
    pub change_id: String,
}

/// What came of making, removing, renaming or restoring.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FilesChanged {
    /// The change, by which it can be taken back.
    pub change_id: String,
    /// Every path that was touched, in order, those within a folder too.
    pub changes: Vec<PathChange>,
    /// What counts against the quota, where the policy sets one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<QuotaUse>,
}

/// What happened at one path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PathChange {
    /// The path, as commands see it.
    pub path: BytePath,
    /// What happened.
    pub kind: PathChangeKind,
    /// Its new path, where it was renamed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_path: Option<BytePath>,
    /// How a removed or replaced file was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<KeptFile>,
    /// How a made or changed file is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<KeptFile>,
}

/// Enough of a file to bring it back: what a change took away is in the content store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KeptFile {
    /// BLAKE3 of its bytes.
    pub digest: Digest,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its permission bits.
    pub mode: u32,
}

/// What happened at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PathChangeKind {
    /// A file was made.
    FileCreated,
    /// A file has another content.
    FileModified,
    /// A file was removed.
    FileDeleted,
    /// A symbolic link was removed; `before` holds where it led, as it said itself.
    LinkDeleted,
    /// A symbolic link was made: one that had been removed is there again.
    LinkCreated,
    /// A folder was made.
    FolderCreated,
    /// A folder was removed.
    FolderDeleted,
    /// It has another name.
    Renamed,
}

/// Lists a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListFolder {
    /// The folder; the workspace unless said.
    #[serde(default)]
    pub path: BytePath,
    /// Most names, 1 to 10 000; 1 000 unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// The names of a folder, sorted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FolderListing {
    /// The folder, as it was named.
    pub path: BytePath,
    /// What is in it.
    pub entries: Vec<FolderEntry>,
    /// Whether there is more.
    pub truncated: bool,
}

/// One name of a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FolderEntry {
    /// The name.
    pub name: BytePath,
    /// What it is.
    pub kind: EntryKind,
}

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link.
    Link,
    /// A FIFO, socket or device: never opened.
    Other,
}

/// What a path is wanted for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PathAccess {
    /// Reading.
    #[default]
    Read,
    /// Writing.
    Write,
}

/// Asks whether a path may be used (E8); nothing happens to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PathValidate {
    /// The path.
    pub path: BytePath,
    /// What it is wanted for.
    #[serde(default)]
    pub access: PathAccess,
}

/// Whether a path may be used, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PathVerdict {
    /// The path, as it was named.
    pub path: BytePath,
    /// Whether it may be used so.
    pub allowed: bool,
    /// The rule that decided, in words.
    pub rule: String,
    /// The path as commands see it, with symbolic links followed; absent where it leads out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub real_path: Option<BytePath>,
    /// The same, relative to the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relative_path: Option<BytePath>,
    /// What stands there; absent where nothing does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<EntryKind>,
}

/// Bounds of what a file operation takes and gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileBounds {
    /// Most bytes of a file that is written or edited.
    pub written_bytes: u64,
    /// Most bytes of a file that is read.
    pub read_bytes: u64,
    /// Most bytes that the files of the workspace may hold more than before, by what is done through
    /// the door; `None` is no bound.
    pub quota_bytes: Option<u64>,
    /// Most older states of files that are kept of the workspace; the newest always is.
    pub versions: usize,
    /// Most bytes of them together.
    pub version_bytes: u64,
}

impl Default for FileBounds {
    fn default() -> Self {
        Self {
            written_bytes: limits::FILE_WRITE_BYTES,
            read_bytes: limits::FILE_READ_BYTES,
            quota_bytes: None,
            versions: limits::FILE_VERSIONS,
            version_bytes: limits::FILE_VERSIONS_BYTES,
        }
    }
}
