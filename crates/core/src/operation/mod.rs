//! Requests and results of the operations that the plane carries out, one file per area.

mod approvals;
mod background;
mod command;
mod environment;
mod files;
mod mode;
mod outbox;
mod paths;
mod protected;
mod request;
mod search;
mod session;
mod terminal;
mod tools;

pub use approvals::{
    AnswerApproval, ApprovalDecided, ApprovalPage, ForgetAnswer, GetApproval, ListApprovals,
    ListRemembered, RememberedLine, RememberedPage,
};
pub use background::{
    AuthoritySnapshot, BackgroundRequest, BackgroundStart, CancelCommand, CommandCancelled,
    CommandList, CommandNotices, CommandRecord, CommandView, GetCommand, ListCommands, OutputChunk,
    OutputForm, OutputGap, OutputPage, OutputStream, OutputView, PollCommands, ReadOutput,
    StreamSummary, WaitCommand, wait_time,
};
pub use command::{CommandForm, Input, RunCommand};
pub use environment::{
    DescribeEnvironment, Described, EnvironmentDescription, LimitsDescription, NetworkDescription,
    ProtectedPath,
};
pub use files::{
    DeleteFolder, EditFile, Encoding, EntryKind, FileBounds, FileRead, FileVersion, FileWritten,
    FilesChanged, FilesRead, FolderEntry, FolderListing, KeptFile, ListFolder, Media, OneOfMany,
    OnePath, PathAccess, PathChange, PathChangeKind, PathValidate, PathVerdict, QuotaUse, ReadFile,
    ReadFiles, ReadKind, RenameFile, RestoreFile, Segment, WriteFile, WriteMode,
};
pub use mode::{GetMode, Mode, ModeView, SetMode, SubmitPlan};
pub use outbox::{
    GetHeld, HeldAnswer, ListOutbox, OutboxAnswer, OutboxPage, PendingEffect, Proposed, Publish,
    PullRequest, Push, RefuseHeld, ReleaseHeld, WriteOutside,
};
pub use paths::{
    AuthorisePath, AuthorisedPath, AuthorisedPathPage, ListAuthorisedPaths, RequestPath, RevokePath,
};
pub use protected::{
    ListProtected, ListQuarantine, ProtectedBy, ProtectedLine, ProtectedPage, ProtectedReleased,
    QuarantinePage, Quarantined, ReleaseProtected, RestoreQuarantined,
};
pub use request::{CommandRequest, command_form, variables};
pub use search::{FileMatches, FilesSearched, SearchFiles};
pub use session::{
    EndSessionJob, ListSessions, OpenSession, ReadSessionLog, RunInSession, SessionClosed,
    SessionJob, SessionJobEnded, SessionList, SessionLogPage, SessionMode, SessionReference,
    SessionResult, SessionView,
};
pub use terminal::{
    InputStatus, KeyError, TerminalChoice, TerminalClosed, TerminalEnd, TerminalInfo,
    TerminalInput, TerminalKey, TerminalList, TerminalListRequest, TerminalName, TerminalNameError,
    TerminalOpen, TerminalOpened, TerminalOutput, TerminalReset, TerminalResize, TerminalScreen,
    TerminalSignal, TerminalSnapshot, TerminalState, TerminalTarget, TerminalWrite,
    TerminalWritten,
};
pub use tools::{
    CommandCheck, CommandCheckRequest, ListTools, ToolList, ToolOrigin, ToolRun, ToolState,
    ToolView,
};
