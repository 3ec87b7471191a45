//! The runtime on a real repository, behind real walls, each test in a home of its own.

#[path = "main/approvals.rs"]
mod approvals;
#[path = "main/sessions.rs"]
mod sessions;
#[path = "main/support.rs"]
mod support;

#[path = "main/commands.rs"]
mod commands;

#[path = "main/tasks.rs"]
mod tasks;

#[path = "main/actions.rs"]
mod actions;

#[path = "main/scripted.rs"]
mod scripted;

#[path = "main/crash.rs"]
mod crash;

#[path = "main/cases.rs"]
mod cases;
#[path = "main/checks.rs"]
mod checks;

#[path = "main/files.rs"]
mod files;
#[path = "main/modes.rs"]
mod modes;

#[path = "main/asking.rs"]
mod asking;

#[path = "main/rules.rs"]
mod rules;

#[path = "main/agents.rs"]
mod agents;

#[path = "main/cut_off.rs"]
mod cut_off;

#[path = "main/terminals.rs"]
mod terminals;

#[path = "main/snapshots.rs"]
mod snapshots;

#[path = "main/background.rs"]
mod background;

#[path = "main/protected.rs"]
mod protected;

#[path = "main/leaving.rs"]
mod leaving;
#[path = "main/remotes.rs"]
mod remotes;

#[path = "main/outbox.rs"]
mod outbox;

#[path = "main/pushing.rs"]
mod pushing;

#[path = "main/paths.rs"]
mod paths;
