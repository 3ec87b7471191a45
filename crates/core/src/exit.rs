//! Exit codes of the command line, published and stable.

/// Everything went well.
pub const SUCCESS: u8 = 0;
/// `task run` only: the command was good, the verifier was not.
pub const VERIFIER_FAILED: u8 = 1;
/// The command line itself was wrong.
pub const USAGE: u8 = 2;
/// The command ran into its time limit.
pub const TIMEOUT: u8 = 124;
/// Cofferdam itself failed, or refused before anything started.
pub const OWN_FAILURE: u8 = 125;
/// The command was denied, or what it names cannot be run.
pub const DENIED: u8 = 126;
/// The program was not found.
pub const NOT_FOUND: u8 = 127;

/// Gives the code of a command that a signal ended: 128 and the signal's number.
pub const fn signalled(signal: u8) -> u8 {
    128u8.saturating_add(signal)
}
