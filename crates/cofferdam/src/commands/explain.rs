//! `policy explain`.

use cofferdam_core::bytes::BytePath;
use cofferdam_core::exit;

use crate::arguments::policy::ExplainArguments;
use crate::arguments::run::TimeArguments;
use crate::context::Context;
use crate::failure::Ending;
use crate::launch;
use crate::render;

/// Carries out `policy explain`.
pub(crate) fn explain(context: &Context, arguments: &ExplainArguments) -> Ending {
    let policy = launch::policy(context, &arguments.walls)?;
    let words: Vec<BytePath> = arguments
        .command
        .iter()
        .map(|word| word.as_os_str().into())
        .collect();
    let command = if words.is_empty() {
        None
    } else {
        let limits = TimeArguments::default();
        Some(launch::command(context, &arguments.walls, limits, words)?)
    };
    let runtime = context.runtime()?;
    let explanation = if arguments.task {
        runtime.explain_task(&policy, command.as_ref())?
    } else {
        runtime.explain(&policy, command.as_ref())?
    };
    context.output.result(&explanation, |explanation| {
        render::explain::explanation(explanation, command.is_some())
    })?;
    Ok(exit::SUCCESS)
}
