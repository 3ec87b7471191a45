//! Failures over HTTP: `application/problem+json` (RFC 9457) with code, field and hint.

use axum::body::Body;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_journal::JournalError;
use cofferdam_visibility::RequestError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A failure on its way out.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    problem: Problem,
    /// Which verbs are allowed, where one was not.
    allow: Option<&'static str>,
}

/// A failure as it is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProblemBody {
    /// Always `about:blank`: the code says what it is.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// The name of the HTTP status.
    pub(crate) title: String,
    /// The HTTP status.
    pub(crate) status: u16,
    /// What failed and on what.
    pub(crate) detail: String,
    /// The stable code.
    pub(crate) code: ErrorCode,
    /// The field of the request that is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) field: Option<String>,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<String>,
    /// Facts for a program, where the code alone does not tell them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) details: Option<Box<serde_json::Value>>,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, problem: Problem) -> Self {
        Self {
            status,
            problem,
            allow: None,
        }
    }

    /// Tells of a verb that is not allowed here.
    pub(crate) fn method(method: &Method, allow: &'static str, why: &str) -> Self {
        let message = format!("{method} is not allowed: {why}");
        Self {
            allow: Some(allow),
            ..Self::of(Problem::new(ErrorCode::MethodNotAllowed, message))
        }
    }

    /// Tells of an operation that failed.
    pub(crate) fn of(problem: Problem) -> Self {
        Self::new(status_of(problem.code), problem)
    }

    pub(crate) fn absent(code: ErrorCode, message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, Problem::new(code, message))
    }
}

/// Tells whether a code says that the request itself is wrong, whoever sends it to whomever.
pub(crate) const fn is_wrong_request(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::InvalidRequest
            | ErrorCode::InvalidTimeout
            | ErrorCode::InvalidCursor
            | ErrorCode::InvalidTime
            | ErrorCode::CwdOutside
            | ErrorCode::CwdMissing
            | ErrorCode::PolicyWidening
            | ErrorCode::UnsupportedField
            | ErrorCode::RemoteUnknown
            | ErrorCode::SyntaxIncomplete
    )
}

/// Gives the HTTP status of an operation's failure.
pub(crate) const fn status_of(code: ErrorCode) -> StatusCode {
    match code {
        code if is_wrong_request(code) => StatusCode::BAD_REQUEST,
        ErrorCode::Unauthorized => StatusCode::UNAUTHORIZED,
        ErrorCode::Denied
        | ErrorCode::ApprovalUnavailable
        | ErrorCode::ReadonlyDenied
        | ErrorCode::ApprovalRejected
        | ErrorCode::ApprovalExpired
        | ErrorCode::ApprovalForbidden
        | ErrorCode::GrantRefused
        | ErrorCode::OriginRefused
        | ErrorCode::ScopeMissing
        | ErrorCode::WorkspaceMismatch
        | ErrorCode::WorkspaceRefused => StatusCode::FORBIDDEN,
        ErrorCode::NotFound
        | ErrorCode::NoSuchResource
        | ErrorCode::OperationUnknown
        | ErrorCode::TaskUnknown
        | ErrorCode::ApprovalUnknown
        | ErrorCode::ProposalUnknown
        | ErrorCode::SessionUnknown
        | ErrorCode::WorkspaceMissing => StatusCode::NOT_FOUND,
        ErrorCode::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
        ErrorCode::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        ErrorCode::RequestTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        ErrorCode::TaskState
        | ErrorCode::ApprovalClosed
        | ErrorCode::ProposalDecided
        | ErrorCode::TargetMoved
        | ErrorCode::OtherRepository
        | ErrorCode::SessionTaken
        | ErrorCode::SessionBusy
        | ErrorCode::Cancelled
        | ErrorCode::MergeConflict => StatusCode::CONFLICT,
        ErrorCode::PushFailed | ErrorCode::EffectFailed => StatusCode::BAD_GATEWAY,
        ErrorCode::SessionLimit => StatusCode::TOO_MANY_REQUESTS,
        ErrorCode::JournalLocked
        | ErrorCode::ProviderUnavailable
        | ErrorCode::ServerUnreachable => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl From<RequestError> for Refusal {
    fn from(error: RequestError) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error.to_problem())
    }
}

impl From<JournalError> for Refusal {
    fn from(error: JournalError) -> Self {
        let status = match error.code() {
            ErrorCode::JournalLocked => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, error.to_problem())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = ProblemBody {
            kind: "about:blank".to_owned(),
            title: self
                .status
                .canonical_reason()
                .unwrap_or_default()
                .to_owned(),
            status: self.status.as_u16(),
            detail: self.problem.message,
            code: self.problem.code,
            field: self.problem.field,
            hint: self.problem.hint,
            details: self.problem.details,
        };
        let text = serde_json::to_vec(&body).expect("texts and numbers are JSON");
        let mut response = Response::new(Body::from(text));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        match self.status {
            StatusCode::METHOD_NOT_ALLOWED => {
                let allow = self.allow.unwrap_or("GET, HEAD");
                headers.insert(header::ALLOW, HeaderValue::from_static(allow));
            }
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            _ => {}
        }
        response
    }
}
