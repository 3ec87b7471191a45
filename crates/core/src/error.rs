//! Error codes: stable words that programs may rely on, each with what to do about it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        /// Names the kind of a failure; the words are published and never change their meaning.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum ErrorCode {
            $($(#[$doc])* #[doc = concat!("\n\nWritten `", $text, "`.")] #[serde(rename = $text)] $name,)*
        }

        impl ErrorCode {
            /// Every code there is, in the order of the published list.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Gives the word itself.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

codes! {
    /// The request has a wrong or missing value.
    InvalidRequest = "invalid_request";
    /// A time limit is zero, negative or no number.
    InvalidTimeout = "invalid_timeout";
    /// The policy file is not readable, or not TOML or JSON.
    PolicyUnreadable = "policy_unreadable";
    /// The policy has a key that nobody knows.
    PolicyUnknownKey = "policy_unknown_key";
    /// The policy has a value that its key cannot have.
    PolicyInvalidValue = "policy_invalid_value";
    /// Two values of the policy contradict each other.
    PolicyContradiction = "policy_contradiction";
    /// A layer that may only narrow would widen.
    PolicyWidening = "policy_widening";
    /// A secret that hosts are to be told cannot be had.
    SecretUnavailable = "secret_unavailable";
    /// This version does not enforce the field.
    UnsupportedField = "unsupported_field";
    /// The provider cannot enforce what the policy asks for.
    Unenforceable = "unenforceable";
    /// The provider does not work on this host.
    ProviderUnavailable = "provider_unavailable";
    /// Unprivileged namespaces come without capabilities on this host (AppArmor).
    UsernsNoCaps = "userns_no_caps";
    /// A system-call filter around this program forbids new namespaces, as in a container.
    NamespacesFiltered = "namespaces_filtered";
    /// The limit of user namespaces is reached.
    UsernsExhausted = "userns_exhausted";
    /// A fresh `/proc` is refused, as in a container.
    ProcMountRefused = "proc_mount_refused";
    /// Root without CAP_SETFCAP cannot map its own uid.
    RootWithoutSetfcap = "root_without_setfcap";
    /// A port that was to be opened outside is taken or not allowed.
    PortTaken = "port_taken";
    /// bubblewrap is not installed.
    BwrapMissing = "bwrap_missing";
    /// bubblewrap failed to put the walls up.
    BwrapFailed = "bwrap_failed";
    /// bubblewrap, or what stands in its place, does not answer.
    BwrapHung = "bwrap_hung";
    /// No container engine answers.
    EngineMissing = "engine_missing";
    /// The container engine refused, or the container did not start.
    EngineFailed = "engine_failed";
    /// The kernel's Landlock is too old or switched off.
    LandlockUnavailable = "landlock_unavailable";
    /// The workspace may not be used as one.
    WorkspaceRefused = "workspace_refused";
    /// The workspace does not exist.
    WorkspaceMissing = "workspace_missing";
    /// The request names another workspace than the server's.
    WorkspaceMismatch = "workspace_mismatch";
    /// The directory lies outside the workspace.
    CwdOutside = "cwd_outside";
    /// The directory does not exist.
    CwdMissing = "cwd_missing";
    /// A Unix socket of the host that nothing inside may have, or that is granted as a file.
    SocketRefused = "socket_refused";
    /// The path may not be authorised: it is denied, secret or protected, or holds something that is.
    PathRefused = "path_refused";
    /// There is no such authorisation.
    PathUnknown = "path_unknown";
    /// The path leads out of the workspace.
    PathOutside = "path_outside";
    /// The file or folder does not exist.
    FileMissing = "file_missing";
    /// Something stands there already.
    FileExists = "file_exists";
    /// It is no regular file, or not of the kind that was asked for.
    NotAFile = "not_a_file";
    /// It is no folder.
    NotAFolder = "not_a_folder";
    /// The folder holds something.
    FolderNotEmpty = "folder_not_empty";
    /// The file, or what is in the folder, is more than is taken.
    FileTooLarge = "file_too_large";
    /// The change adds more bytes than the policy allows file operations to add.
    QuotaExceeded = "quota_exceeded";
    /// The file is not what was expected: somebody has changed it.
    FileConflict = "file_conflict";
    /// The file has to be read before it is changed.
    FileUnread = "file_unread";
    /// A group of an edit cannot be applied; nothing was written.
    EditFailed = "edit_failed";
    /// A file did not answer in time.
    FileTimeout = "file_timeout";
    /// There is no such change of files.
    ChangeUnknown = "change_unknown";
    /// Bytes that are needed are not kept any more.
    ContentExpired = "content_expired";
    /// The program does not exist.
    NotFound = "not_found";
    /// The program exists and cannot be run.
    NotExecutable = "not_executable";
    /// The kernel could not start the program.
    SpawnFailed = "spawn_failed";
    /// A rule denies it.
    Denied = "denied";
    /// It needs an answer that nobody can give.
    ApprovalUnavailable = "approval_unavailable";
    /// The permission lets nothing be changed.
    ReadonlyDenied = "readonly_denied";
    /// Whoever was asked said no.
    ApprovalRejected = "approval_rejected";
    /// Nobody answered in time.
    ApprovalExpired = "approval_expired";
    /// There is no such approval.
    ApprovalUnknown = "approval_unknown";
    /// The approval is at its end: nothing is left to answer.
    ApprovalClosed = "approval_closed";
    /// Whoever wants to answer is not the one who may.
    ApprovalForbidden = "approval_forbidden";
    /// What was approved is not what is to be done, or was done already.
    GrantRefused = "grant_refused";
    /// There is no such proposal in the outbox.
    ProposalUnknown = "proposal_unknown";
    /// The proposal was released or refused already.
    ProposalDecided = "proposal_decided";
    /// The owner's configuration of the repository has no such remote.
    RemoteUnknown = "remote_unknown";
    /// The remote, a hook of the owner's or the connection did not let a push through.
    PushFailed = "push_failed";
    /// Nothing is known, or nothing is installed, that makes pull requests where the remote leads.
    ForgeUnknown = "forge_unknown";
    /// The program that carries out what was released did not end well.
    EffectFailed = "effect_failed";
    /// A supervisor or keeper vanished; what it guarded was ended.
    EnclosureLost = "enclosure_lost";
    /// It was cancelled before it started.
    Cancelled = "cancelled";
    /// The directory is no git repository.
    NotARepository = "not_a_repository";
    /// The repository has no commit yet.
    RepoUnborn = "repo_unborn";
    /// The repository has no working tree.
    RepoBare = "repo_bare";
    /// The branch exists already.
    BranchTaken = "branch_taken";
    /// The directory exists already.
    DirectoryTaken = "directory_taken";
    /// git failed.
    GitFailed = "git_failed";
    /// git is missing or too old.
    GitUnavailable = "git_unavailable";
    /// A set-up command failed; the task's command was not started.
    SetupFailed = "setup_failed";
    /// An agent cannot be set up in this mode.
    ModeUnsupported = "mode_unsupported";
    /// What came out of the task's repository did not pass the check.
    HarvestRejected = "harvest_rejected";
    /// The target branch moved since the task began.
    TargetMoved = "target_moved";
    /// The checkout of the target has changes of its own.
    CheckoutDirty = "checkout_dirty";
    /// The two sides changed the same lines.
    MergeConflict = "merge_conflict";
    /// There is no such session, or it has ended.
    SessionUnknown = "session_unknown";
    /// Another command of the shell session did not end in time.
    SessionBusy = "session_busy";
    /// The name of the session is taken.
    SessionTaken = "session_taken";
    /// No more sessions can be open at once.
    SessionLimit = "session_limit";
    /// The script is not whole: a quote, a bracket or a here-document is left open. Nothing of it ran.
    SyntaxIncomplete = "syntax_incomplete";
    /// There is no such task.
    TaskUnknown = "task_unknown";
    /// The task cannot do this in the state in which it is.
    TaskState = "task_state";
    /// There is no such command.
    CommandUnknown = "command_unknown";
    /// The command cannot do this in the state in which it is.
    CommandState = "command_state";
    /// As many commands as there may be run already.
    TooManyCommands = "too_many_commands";
    /// The offset lies beyond the output that there is.
    OffsetOutOfWindow = "offset_out_of_window";
    /// The output was kept for its time and is gone.
    OutputExpired = "output_expired";
    /// The task belongs to another repository than the one that is meant.
    OtherRepository = "other_repository";
    /// There is a terminal of this name already.
    TerminalExists = "terminal_exists";
    /// There is no such terminal, or none at all.
    TerminalUnknown = "terminal_unknown";
    /// There are as many terminals as there may be.
    TerminalLimit = "terminal_limit";
    /// The terminal's program has ended.
    TerminalEnded = "terminal_ended";
    /// The data directory belongs to somebody else, or is open to others.
    DataDirRefused = "data_dir_refused";
    /// No room is left in the data directory.
    StorageExhausted = "storage_exhausted";
    /// The journal is damaged.
    JournalCorrupt = "journal_corrupt";
    /// The journal is locked by a program that does not let go.
    JournalLocked = "journal_locked";
    /// The journal was written by a newer version.
    JournalNewer = "journal_newer";
    /// The journal lies on a network file system.
    JournalNetworkFs = "journal_network_fs";
    /// The journal could not be read or written.
    JournalIo = "journal_io";
    /// A cursor is not one of ours.
    InvalidCursor = "invalid_cursor";
    /// A time is not one.
    InvalidTime = "invalid_time";
    /// The token is missing or wrong.
    Unauthorized = "unauthorized";
    /// The Host or Origin of a request is not allowed.
    OriginRefused = "origin_refused";
    /// The address may not be listened on.
    ListenRefused = "listen_refused";
    /// The verb is not allowed here.
    MethodNotAllowed = "method_not_allowed";
    /// The body of a request is not said to be JSON.
    UnsupportedMediaType = "unsupported_media_type";
    /// The body of a request is larger than what is taken.
    RequestTooLarge = "request_too_large";
    /// There is no operation of this name.
    OperationUnknown = "operation_unknown";
    /// The token may read only.
    ScopeMissing = "scope_missing";
    /// There is nothing at this address.
    NoSuchResource = "no_such_resource";
    /// No server answers, and what was asked for outlives a single call.
    ServerUnreachable = "server_unreachable";
    /// Another server has this data directory.
    ServerRunning = "server_running";
    /// An operation of the system failed.
    Io = "io";
    /// A defect of Cofferdam itself.
    Internal = "internal";
}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// Tells a failure to whoever asked: what failed, on what, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("{message}")]
#[serde(deny_unknown_fields)]
pub struct Problem {
    /// The stable code.
    pub code: ErrorCode,
    /// What failed and on what: a lowercase sentence without a period.
    pub message: String,
    /// What to do about it, where there is something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The field of the request that is wrong, where it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Facts for a program, where the code alone does not tell them: which of several, how many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Box<serde_json::Value>>,
}

impl Problem {
    /// Makes a problem with nothing but a code and a message.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: None,
            field: None,
            details: None,
        }
    }

    /// Adds what to do.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds the field that is wrong.
    #[must_use]
    pub fn with_field(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    /// Adds facts for a program.
    #[must_use]
    pub fn with_details(mut self, details: serde_json::Value) -> Self {
        self.details = Some(Box::new(details));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_written_word_is_the_serialised_one() {
        for code in ErrorCode::ALL {
            let written = serde_json::to_value(code).expect("a word");
            assert_eq!(written, code.as_str());
        }
    }
}
