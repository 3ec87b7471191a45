//! Files of the workspace (E3–E6, E8).

use cofferdam_core::operation::{
    DeleteFolder, EditFile, FileRead, FileWritten, FilesChanged, FilesRead, FilesSearched,
    FolderListing, ListFolder, OnePath, PathValidate, PathVerdict, ReadFile, ReadFiles, RenameFile,
    RestoreFile, SearchFiles, WriteFile,
};

use super::entry::{Annotations, Operation, Scope};

/// Of what takes something away that can be brought back, and is there once only.
const TAKES: Annotations = Annotations {
    read_only: false,
    destructive: true,
    idempotent: false,
    open_world: false,
};

pub(super) fn operations() -> Vec<Operation> {
    let mut all = reading();
    all.extend(writing());
    all.extend(naming());
    all
}

fn reading() -> Vec<Operation> {
    vec![
        Operation::new(
            "read_file",
            "Read a file: its content, matching lines, ranges of lines, or an image",
            "With `type = read` gives the content or a range of lines, at most `max_chars` characters \
             of it; with `search` the lines that hold `query`, with those around them; with `extract` \
             several ranges; with `media` an image or video whole. `digest` is that of the whole file: \
             `expected_digest` of a change takes it. Bytes that are no UTF-8 come as base64 when \
             `encoding` says so, and else replaced, and then said to be `lossy`. Links are followed as \
             far as they stay in the workspace.",
            Scope::Read,
            Annotations::READS,
            |context, request: ReadFile| -> Result<FileRead, _> {
                context.runtime().read_file(&context.files(), &request)
            },
        ),
        Operation::new(
            "read_files",
            "Read many files at once",
            "Gives the whole of up to 1 000 files, at most `max_chars` characters of each and 4 000 000 \
             in all, in the order in which they were asked for. What is wrong with one is told with it, \
             and the others are read all the same.",
            Scope::Read,
            Annotations::READS,
            |context, request: ReadFiles| -> Result<FilesRead, _> {
                context.runtime().read_files(&context.files(), &request)
            },
        ),
        Operation::new(
            "search_files",
            "Search the files of a folder for a text or a pattern",
            "Gives matching lines with their numbers, file by file, at most `max_matches` in all; \
             `truncated` says that there are more. Names that begin with a dot, and what `.gitignore` \
             and `.ignore` files leave out, are not looked at unless `hidden` and `ignored` say so; \
             git's own directory never is. Files that a command could not read are not searched.",
            Scope::Read,
            Annotations::READS,
            |context, request: SearchFiles| -> Result<FilesSearched, _> {
                context.runtime().search_files(&context.files(), &request)
            },
        ),
        Operation::new(
            "list_folder",
            "List the names in a folder",
            "Gives the names in a folder with what each stands for, sorted; `truncated` says that \
             there are more than `limit`.",
            Scope::Read,
            Annotations::READS,
            |context, request: ListFolder| -> Result<FolderListing, _> {
                context.runtime().list_folder(&context.files(), &request)
            },
        ),
        Operation::new(
            "path_validate",
            "Tell whether a path may be read or written, and by which rule",
            "Follows every link of the path and tells where it really leads, whether that may be used, \
             and the rule that says so. Nothing happens to what stands there.",
            Scope::Read,
            Annotations::READS,
            |context, request: PathValidate| -> Result<PathVerdict, _> {
                context.runtime().path_validate(&context.files(), &request)
            },
        ),
    ]
}

fn writing() -> Vec<Operation> {
    vec![
        Operation::new(
            "write_file",
            "Write a file whole, or add to its end",
            "The file is there as before or as it is to be, never half, and keeps mode and owner. \
             Folders above it are made. A file that exists has to have been read through this server \
             before it is overwritten, or `expected_digest` has to say what it holds: `file_unread` and \
             `file_conflict` otherwise. `change_id` is what restore_file takes.",
            Scope::Write,
            TAKES,
            |context, request: WriteFile| -> Result<FileWritten, _> {
                context.runtime().write_file(&context.files(), request)
            },
        ),
        Operation::new(
            "edit_file",
            "Replace texts in a file, all of them or none",
            "Takes 1 to 100 groups, each on the result of those before it. When one fails, nothing is \
             written, and `details` says which and why; where an old text nearly stands, it says where. \
             An old text in several places is an error unless `replace_all` or `ambiguous` says \
             otherwise. The file has to have been read through this server, or `expected_digest` has \
             to say what it holds. Everything else in the file stays, byte for byte.",
            Scope::Write,
            TAKES,
            |context, request: EditFile| -> Result<FileWritten, _> {
                context.runtime().edit_file(&context.files(), &request)
            },
        ),
        Operation::new(
            "restore_file",
            "Take a change of files back",
            "Brings back how files were before a change: what it wrote, removed, made or renamed. \
             Refused as `file_conflict`, with nothing done, where one of them has changed since. It is \
             a change itself, and can be taken back too.",
            Scope::Write,
            TAKES,
            |context, request: RestoreFile| -> Result<FilesChanged, _> {
                context.runtime().restore_file(&context.files(), &request)
            },
        ),
    ]
}

fn naming() -> Vec<Operation> {
    vec![
        Operation::new(
            "create_file",
            "Make an empty file",
            "Folders above it are made. Refused where something has the name.",
            Scope::Write,
            Annotations::CHANGES,
            |context, request: OnePath| -> Result<FilesChanged, _> {
                context.runtime().create_file(&context.files(), &request)
            },
        ),
        Operation::new(
            "delete_file",
            "Remove a file or a symbolic link",
            "What was in the file is kept, so that restore_file can bring it back. Of a link only the \
             link goes, never what it leads to.",
            Scope::Write,
            TAKES,
            |context, request: OnePath| -> Result<FilesChanged, _> {
                context.runtime().delete_file(&context.files(), &request)
            },
        ),
        Operation::new(
            "rename_file",
            "Give a file, link or folder another name",
            "Refused where something has the new name: nothing is replaced. Folders above the new name \
             are made.",
            Scope::Write,
            Annotations::CHANGES,
            |context, request: RenameFile| -> Result<FilesChanged, _> {
                context.runtime().rename_file(&context.files(), &request)
            },
        ),
        Operation::new(
            "create_folder",
            "Make a folder, with those above it",
            "Refused where something has the name.",
            Scope::Write,
            Annotations::CHANGES,
            |context, request: OnePath| -> Result<FilesChanged, _> {
                context.runtime().create_folder(&context.files(), &request)
            },
        ),
        Operation::new(
            "delete_folder",
            "Remove a folder, with what is in it where that is said",
            "Without `recursive` the folder has to be empty. What was in its files is kept, so that \
             restore_file can bring it back. At most 10 000 names are taken along.",
            Scope::Write,
            TAKES,
            |context, request: DeleteFolder| -> Result<FilesChanged, _> {
                context.runtime().delete_folder(&context.files(), &request)
            },
        ),
    ]
}
