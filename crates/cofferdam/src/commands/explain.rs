//! `policy explain`.

use cofferdam_core::error::{ErrorCode, Problem};

use crate::arguments::policy::ExplainArguments;
use crate::context::Context;
use crate::failure::Ending;

pub(crate) fn explain(_context: &Context, _arguments: &ExplainArguments) -> Ending {
    Err(Problem::new(ErrorCode::Internal, "not wired").into())
}
