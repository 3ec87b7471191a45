//! `demo`.

use std::fmt::Write as _;

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::exit;

use super::view;
use crate::arguments::DemoArguments;
use crate::context::Context;
use crate::demo::Stage;
use crate::failure::Ending;
use crate::render;
use crate::render::{PLACE, STRONG, paint};

/// Carries out `demo`.
pub(crate) fn demo(context: &Context, arguments: &DemoArguments) -> Ending {
    let place = tempfile::Builder::new()
        .prefix("cofferdam-demo-")
        .tempdir()
        .map_err(|error| {
            Problem::new(
                ErrorCode::Io,
                format!("no temporary directory can be made: {error}"),
            )
        })?;
    let path = place.path().to_owned();
    let _kept = if arguments.keep {
        Err(place.keep())
    } else {
        Ok(place)
    };
    let text = !context.output.is_json();
    if text {
        let removed = if arguments.keep {
            "kept at the end"
        } else {
            "removed at the end"
        };
        context.output.text(&format!(
            "{} in {} ({removed}): a repository whose sum is wrong,\n\
             and three tasks side by side, each in a working tree and on a branch of its own.\n\n",
            paint(STRONG, "Cofferdam at work"),
            paint(PLACE, path.display()),
        ))?;
    }
    let provider = arguments
        .provider
        .map(crate::arguments::policy::ProviderChoice::choice);
    let stage = Stage::build(context, &path, provider)?;
    let told = stage.play()?;
    if text {
        let mut said = render::demo::told(&told);
        let journal = stage.runtime().journal();
        let _ = write!(
            said,
            "\n{}\n{}",
            paint(STRONG, "Topology"),
            view::topology_text(journal.as_ref())?
        );
        said.push_str(&render::task::next(&if arguments.keep {
            let data = path.join("data");
            vec![
                format!("cofferdam --data-dir {} task diff 1", data.display()),
                format!("cofferdam --data-dir {} events", data.display()),
            ]
        } else {
            vec![
                "cofferdam doctor".to_owned(),
                "cofferdam task run --goal TEXT --verify CHECK -- CMD".to_owned(),
            ]
        }));
        context.output.text(&said)?;
    } else {
        context.output.result(&told, |_| String::new())?;
    }
    Ok(if told.came_out_right {
        exit::SUCCESS
    } else {
        exit::OWN_FAILURE
    })
}
