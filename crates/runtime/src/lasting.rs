//! What outlives a request, as a whole: ended with its server, and held to the policy that is in
//! effect.

use std::time::Duration;

use cofferdam_core::operation::TerminalName;

use crate::host::PolicyRequest;
use crate::runtime::Runtime;

/// How long background commands may take to end by themselves before they are ended by force.
const END_OF_COMMANDS: Duration = Duration::from_secs(2);

/// What a changed policy ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyFollowed {
    /// Terminals that it would not open like that any more, closed.
    pub terminals: Vec<TerminalName>,
    /// How many sessions got other walls, or lost those that they had.
    pub sessions: usize,
}

impl Runtime {
    /// Ends everything that outlives a request, and waits for that: background commands, terminals
    /// and sessions, with all that runs in them. Nothing is opened afterwards. Who calls it twice does no harm.
    pub fn end_lasting(&self, reason: &str) {
        self.terminals.stop_opening();
        self.sessions.stop_opening();
        std::thread::scope(|scope| {
            scope.spawn(|| self.close_terminals(reason));
            scope.spawn(|| self.end_commands(END_OF_COMMANDS));
            self.close_sessions(reason);
        });
    }

    /// Looks whether files of a policy have changed since it was last asked. What stands behind walls
    /// that the policy would not put up any more is ended then: terminals are closed, sessions go on
    /// in other walls, and what ran in theirs has ended. Files that cannot be read change nothing.
    ///
    /// The first look only notes how they are. A look that finds nothing costs a few system calls.
    pub fn follow_policy_files(&self, policy: &PolicyRequest) -> Option<PolicyFollowed> {
        let now = self.policy_stamp(policy);
        let before = self.seen_policy(now.clone())?;
        (before != now).then(|| PolicyFollowed {
            terminals: self.close_crossed_terminals(),
            sessions: self.relaunch_crossed_sessions(),
        })
    }
}
