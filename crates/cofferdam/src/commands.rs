//! What each command does.

mod approvals;
mod attach;
mod call;
mod demo;
mod doctor;
mod events;
mod explain;
mod hook;
mod journal;
mod kill;
mod living;
mod logs;
mod mcp;
mod mode;
mod outbox;
mod paths;
mod policy;
mod policy_watch;
mod profile;
mod protected;
mod ps;
mod reference;
mod remedy;
mod review;
mod run;
mod serve;
mod session;
mod setup;
mod snapshots;
mod task;
mod task_fork;
mod terminal;
mod tool;
mod view;

use crate::arguments::TopCommand;
use crate::context::Context;
use crate::failure::Ending;

/// Carries a command out.
pub(crate) fn dispatch(context: &Context, command: TopCommand) -> Ending {
    match command {
        TopCommand::Run(arguments) => run::run(context, &arguments),
        TopCommand::Task(command) => task::task(context, *command),
        TopCommand::Review(arguments) => review::review(context, &arguments),
        TopCommand::Merge(arguments) => {
            review::merge(context, &arguments.tasks.tasks, &arguments.how)
        }
        TopCommand::Drop(arguments) => review::drop_tasks(context, &arguments.tasks),
        TopCommand::Undo(arguments) => snapshots::undo(context, &arguments),
        TopCommand::Terminal(command) => terminal::terminal(context, &command),
        TopCommand::Attach(arguments) => attach::attach(context, &arguments),
        TopCommand::Session(command) => session::session(context, &command),
        TopCommand::Approvals(arguments) => approvals::approvals(context, &arguments),
        TopCommand::Push(arguments) => outbox::push(context, &arguments),
        TopCommand::Outbox(arguments) => outbox::outbox(context, &arguments),
        TopCommand::Mode(arguments) => mode::mode(context, &arguments),
        TopCommand::Paths(arguments) => paths::paths(context, &arguments),
        TopCommand::Protected(arguments) => protected::protected(context, &arguments),
        TopCommand::Ps => ps::ps(context),
        TopCommand::Stop(arguments) => ps::stop(context, &arguments),
        TopCommand::Logs(arguments) => logs::logs(context, &arguments),
        TopCommand::Kill(arguments) => kill::kill(context, &arguments),
        TopCommand::Setup(arguments) => setup::setup(context, &arguments),
        TopCommand::Hook(command) => hook::hook(context, &command),
        TopCommand::Claude(_)
        | TopCommand::Codex(_)
        | TopCommand::Gemini(_)
        | TopCommand::Opencode(_) => Err(cofferdam_core::error::Problem::new(
            cofferdam_core::error::ErrorCode::Internal,
            "a short form was not written out",
        )
        .into()),
        TopCommand::Profile(command) => profile::profile(context, &command),
        TopCommand::Tool(command) => tool::tool(context, &command),
        TopCommand::Policy(command) => policy::policy(context, *command),
        TopCommand::Doctor(arguments) => doctor::doctor(context, &arguments),
        TopCommand::Demo(arguments) => demo::demo(context, &arguments),
        TopCommand::Serve(arguments) => serve::serve(context, &arguments),
        TopCommand::Mcp(arguments) => mcp::mcp(context, &arguments),
        TopCommand::Call(arguments) => call::call(context, &arguments),
        TopCommand::Topology => view::topology(context),
        TopCommand::Evidence(arguments) => view::evidence(context, &arguments),
        TopCommand::Threads(arguments) => view::threads(context, &arguments),
        TopCommand::Verifier => view::verifier(context),
        TopCommand::Summary => view::summary(context),
        TopCommand::Journal(command) => journal::journal(context, command),
        TopCommand::Events(arguments) => events::events(context, &arguments),
    }
}
