//! Bounds of requests and results. Each is a promise; the unit is part of the name.

/// Time limit of a command over a protocol when none is given, in seconds.
pub const COMMAND_TIMEOUT_SECONDS: u64 = 120;
/// Longest time limit that a request may ask for, in seconds; more is clamped, and said.
pub const COMMAND_TIMEOUT_CAP_SECONDS: u64 = 3600;
/// Characters of output that a result carries; the tail is kept.
pub const OUTPUT_CHARACTERS: usize = 50_000;
/// Bytes of one stream that stay in memory; the whole goes to the spill file.
pub const OUTPUT_RING_BYTES: usize = 256 * 1024;
/// Time for which output is still read after the leader has ended, in milliseconds.
pub const DRAIN_MILLISECONDS: u64 = 150;
/// Time between a polite signal and the end of a tree, in milliseconds.
pub const GRACE_MILLISECONDS: u64 = 2_000;
/// Time that a sweep of descendants may take before the enclosure is taken down, in milliseconds.
pub const SWEEP_MILLISECONDS: u64 = 2_000;
/// Size from which a body of an event lives in the content store, in bytes.
pub const INLINE_BODY_BYTES: usize = 8 * 1024;
/// Events on one page when a query names no number.
pub const PAGE_EVENTS: usize = 100;
/// Proposals of the outbox that are listed at once.
pub const PROPOSALS_LISTED: usize = 200;
/// Commits of a proposal that are listed.
pub const PROPOSAL_COMMITS: usize = 50;
/// Most bytes of a file outside of the workspace that are proposed.
pub const PROPOSED_FILE_BYTES: usize = 1024 * 1024;
/// Most bytes of the text of a pull request, which some programs take as one argument.
pub const PULL_REQUEST_BODY_BYTES: usize = 64 * 1024;
/// Most characters of the title of a pull request.
pub const PULL_REQUEST_TITLE_CHARACTERS: usize = 300;
/// Most words of a command that publishes.
pub const PUBLISH_WORDS: usize = 100;
/// Requests that one task can leave in its outbox.
pub const INSIDE_REQUESTS: usize = 32;
/// Most events on one page.
pub const PAGE_EVENTS_CAP: usize = 1_000;
/// Identical denials of one task after which a result says that nothing will change.
pub const DENIALS_UNTIL_WILL_NOT_CHANGE: usize = 3;
/// Most bytes of one argument or variable, as the kernel has it (`MAX_ARG_STRLEN`).
pub const ARGUMENT_BYTES: usize = 128 * 1024;
/// Most groups of one edit.
pub const EDIT_GROUPS: usize = 100;
/// Bytes of one stream that are kept on disk while no lower limit is set; what comes after is counted.
pub const OUTPUT_KEPT_BYTES: u64 = 1024 * 1024 * 1024;
/// Bytes that the order of arrival of one command may take on disk.
pub const OUTPUT_ORDER_BYTES: u64 = 16 * 1024 * 1024;
/// Time for which bytes are held back that may be the beginning of a secret, in milliseconds.
pub const OUTPUT_HELD_MILLISECONDS: u64 = 50;
/// Bytes on one page of output when a request names no number.
pub const OUTPUT_PAGE_BYTES: u64 = 64 * 1024;
/// Most bytes on one page of output.
pub const OUTPUT_PAGE_BYTES_CAP: u64 = 1024 * 1024;
/// Longest wait for more output, in seconds.
pub const OUTPUT_WAIT_SECONDS: u64 = 30;
/// Time for which the output of a background command is kept after its end, in seconds: a week.
pub const OUTPUT_KEPT_SECONDS: u64 = 7 * 24 * 3600;
/// Wait for an early end of a background command, in seconds; also the longest.
pub const FIRST_WAIT_SECONDS: u64 = 5;
/// Wait for the end of a background command when a request names none, in seconds.
pub const COMMAND_WAIT_SECONDS: u64 = 60;
/// Longest wait for the end of a background command, in seconds.
pub const COMMAND_WAIT_CAP_SECONDS: u64 = COMMAND_TIMEOUT_CAP_SECONDS + 5;
/// Background commands of one runtime that run at once.
pub const BACKGROUND_COMMANDS: usize = 256;
/// Terminals that are open at once, unless the program that embeds us says another number.
pub const TERMINALS: usize = 8;
/// Bytes of a terminal's output that stay in memory as they came.
pub const TERMINAL_RING_BYTES: usize = 256 * 1024;
/// Characters of its history, above what is on the screen.
pub const TERMINAL_HISTORY_CHARACTERS: usize = 400_000;
/// Lines of its history.
pub const TERMINAL_HISTORY_LINES: usize = 5_000;
/// Characters of a snapshot.
pub const TERMINAL_SNAPSHOT_CHARACTERS: usize = 6_000_000;
/// Lines of a snapshot when a request names no number.
pub const TERMINAL_SNAPSHOT_LINES: u32 = 50;
/// Most lines that a request may name.
pub const TERMINAL_SNAPSHOT_LINES_CAP: u32 = 200;
/// Longest wait for the output of an input, in seconds.
pub const TERMINAL_WAIT_CAP_SECONDS: f64 = 300.0;
/// Bytes that are typed at once.
pub const TERMINAL_INPUT_BYTES: usize = 1024 * 1024;
/// Most lines that a screen has.
pub const TERMINAL_ROWS_CAP: u16 = 500;
/// Most characters that a line of a screen has.
pub const TERMINAL_COLUMNS_CAP: u16 = 1_000;
/// Bytes of one recording; what comes later is left out, and the recording says so.
pub const TERMINAL_RECORDING_BYTES: u64 = 64 * 1024 * 1024;
/// Time for which recordings are kept after their terminal's end, in seconds: 30 days.
pub const TERMINAL_RECORDINGS_SECONDS: u64 = 30 * 24 * 3600;
/// Bytes of all recordings together; of what is more the oldest go, never one of an open terminal.
pub const TERMINAL_RECORDINGS_BYTES: u64 = 1024 * 1024 * 1024;
/// Text of one event of terminal output, in bytes; the rest is in memory, recording and stream.
pub const TERMINAL_EVENT_BYTES: usize = 4 * 1024;
/// Time for which output is gathered into one event, in milliseconds.
pub const TERMINAL_EVENT_MILLISECONDS: u64 = 100;
/// Most bytes of a file that is written or edited through the file door.
pub const FILE_WRITE_BYTES: u64 = 64 * 1024 * 1024;
/// Most bytes of a file that is read through the file door.
pub const FILE_READ_BYTES: u64 = 100 * 1024 * 1024;
/// Commands of which is kept what was taken away at protected names; the oldest goes first.
pub const QUARANTINE_COMMANDS: usize = 500;
/// Bytes that this may have together.
pub const QUARANTINE_BYTES: u64 = 1024 * 1024 * 1024;
/// Most older states of files that are kept of one workspace.
pub const FILE_VERSIONS: usize = 500;
/// Most bytes of them together.
pub const FILE_VERSIONS_BYTES: u64 = 1024 * 1024 * 1024;
/// Most bytes of a text that a result shows of a file before and after a change.
pub const FILE_TEXT_BYTES: u64 = 64 * 1024;
/// Most files that are read at once.
pub const READ_FILES: usize = 1_000;
/// Characters of all files together that are read at once.
pub const READ_FILES_CHARACTERS: usize = 4_000_000;
/// Most ranges of one extract.
pub const EXTRACT_SEGMENTS: usize = 50;
/// Most matching lines of one search.
pub const SEARCH_MATCHES: usize = 50;
/// Most matching lines that a search through many files shows.
pub const SEARCH_FILES_MATCHES: usize = 2_000;
/// Most globs of such a search.
pub const SEARCH_GLOBS: usize = 50;
/// Bytes of one line that it shows.
pub const SEARCH_LINE_BYTES: usize = 500;
/// Most files and folders that one recursive removal takes along.
pub const DELETE_ENTRIES: usize = 10_000;
/// Seconds for which an answer is waited for.
pub const APPROVAL_SECONDS: u64 = 3_600;
/// Seconds for which whoever has looked at the questions counts as watching them.
pub const WATCHED_SECONDS: u64 = 30;
/// Most approvals that a list gives.
pub const APPROVALS_LISTED: usize = 200;
/// Most characters of a reason.
pub const APPROVAL_REASON_CHARACTERS: usize = 2_000;

/// Days for which an answer is remembered for a repository, unless it is said.
pub const REMEMBER_DAYS: u32 = 30;

/// Most days for which one is remembered.
pub const REMEMBER_DAYS_CAP: u32 = 365;
