use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::{Event, EventFilter, event_type};
use cofferdam_core::id::{TaskId, ThreadId};
use cofferdam_journal::{Head, Journal, Query};
use cofferdam_visibility::{
    Checked, Cursor, Message, Meta, RequestError, RuntimeSummary, State as Folded, TaskEvidence,
    Topology, VerifierSummary, VisibilityRequest,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::calls::{self, Allowed, Calls};
use crate::gate::gate;
use crate::openapi;
use crate::operations::Scope;
use crate::problem::Refusal;
use crate::projection::Projection;
use crate::stream::{self, Streams};
use crate::terminals;
use crate::token::Token;

/// Where somebody without a token may ask whether the server is there.
pub(crate) const HEALTH: &str = "/healthz";

/// What every handler needs.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) address: SocketAddr,
    /// Other origins whose pages may ask, exactly as browsers name them.
    pub(crate) origins: Vec<String>,
    pub(crate) token: Token,
    /// The token of whoever may only look.
    pub(crate) read_token: Option<Token>,
    /// The token of whoever works here and answers nothing.
    pub(crate) work_token: Option<Token>,
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) projection: Projection,
    pub(crate) streams: Streams,
    pub(crate) calls: Calls,
}

impl App {
    /// Tells what a token allows; nothing when it is none of ours.
    pub(crate) fn allows(&self, shown: &[u8]) -> Option<Allowed> {
        if self.token.is(shown) {
            return Some(Allowed(Scope::Answer));
        }
        if self.work_token.as_ref().is_some_and(|own| own.is(shown)) {
            return Some(Allowed(Scope::Execute));
        }
        let may_read = self.read_token.as_ref().is_some_and(|own| own.is(shown));
        may_read.then_some(Allowed(Scope::Read))
    }
}

/// A view, and what it was made from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct View<T> {
    /// What is shown.
    pub data: T,
    /// What it was made from.
    pub meta: Meta,
}

/// One page of events, oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EventsPage {
    /// The events; a body beyond 8 KiB is `{"content": digest, "bytes": n}`.
    pub events: Vec<Event>,
    /// Where the next page begins; nothing at the end.
    pub next_cursor: Option<String>,
}

/// One page of messages, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MessagesPage {
    /// The thread.
    pub thread_id: String,
    /// What was said.
    pub messages: Vec<Message>,
    /// Where the next page begins; nothing at the end.
    pub next_cursor: Option<String>,
}

type Answer = Result<Response, Refusal>;

pub(crate) fn router(app: Arc<App>) -> Router {
    let at = openapi::path;
    Router::new()
        .route(HEALTH, get(health))
        .route("/api/openapi.json", get(document))
        .route(&at("events"), get(events))
        .route(&at("topology"), get(topology))
        .route(&at("tasks/{task_id}/evidence"), get(evidence))
        .route(&at("threads/{thread_id}/messages"), get(messages))
        .route(&at("verifier"), get(verifier))
        .route(&at("runtime-summary"), get(runtime_summary))
        .route(&at("stream"), get(events_stream))
        .route(
            &format!("{}terminals/{{name}}/stream", calls::PREFIX),
            get(terminals::stream),
        )
        .route(
            &format!("{}{{operation}}", calls::PREFIX),
            post(calls::call),
        )
        .fallback(nothing_here)
        .layer(axum::middleware::from_fn_with_state(Arc::clone(&app), gate))
        .with_state(app)
}

async fn health() -> Response {
    json(&serde_json::json!({"status": "ok"}))
}

async fn document() -> Response {
    json(&openapi::document())
}

async fn nothing_here() -> Refusal {
    Refusal::absent(
        ErrorCode::NoSuchResource,
        "there is nothing at this address",
    )
}

async fn events(State(app): State<Arc<App>>, RawQuery(query): RawQuery) -> Answer {
    let asked = request(query.as_deref())?.check()?;
    let page = blocking(move || {
        let head = app.journal.head()?;
        let after = resume(asked.cursor.as_ref(), &head)?;
        let page = app
            .journal
            .read(&Query::of(asked.filter).after(after).limit(asked.limit))?;
        let next_cursor = page.next().map(|pos| cursor(&page.head, pos));
        let meta = Meta::of_page(
            &page.head.epoch,
            page.window.first_pos,
            page.head.pos,
            after,
        );
        Ok(View {
            data: EventsPage {
                events: page.events,
                next_cursor,
            },
            meta,
        })
    })
    .await?;
    Ok(json(&page))
}

async fn topology(State(app): State<Arc<App>>, RawQuery(query): RawQuery) -> Answer {
    view(app, query, Folded::topology).await
}

async fn verifier(State(app): State<Arc<App>>, RawQuery(query): RawQuery) -> Answer {
    view(app, query, Folded::verifier_summary).await
}

async fn runtime_summary(State(app): State<Arc<App>>, RawQuery(query): RawQuery) -> Answer {
    view(app, query, Folded::summary).await
}

async fn evidence(
    State(app): State<Arc<App>>,
    Path(task_id): Path<String>,
    RawQuery(query): RawQuery,
) -> Answer {
    let asked = not_paged(request(query.as_deref())?)?.check()?;
    let absent = || {
        let shown: String = task_id.chars().take(80).collect();
        Refusal::absent(
            ErrorCode::TaskUnknown,
            format!("there is no task {shown:?}"),
        )
    };
    let task = TaskId::parse(&task_id).map_err(|_| absent())?;
    let filter = EventFilter {
        task: Some(task),
        ..asked.filter
    };
    let id = task_id.clone();
    let (found, meta) =
        blocking(move || Ok(app.projection.view(&filter, |state| state.evidence(&id))?)).await?;
    let data: TaskEvidence = found.ok_or_else(absent)?;
    Ok(json(&View { data, meta }))
}

async fn messages(
    State(app): State<Arc<App>>,
    Path(thread_id): Path<String>,
    RawQuery(query): RawQuery,
) -> Answer {
    let asked = request(query.as_deref())?.check()?;
    let absent = || {
        let shown: String = thread_id.chars().take(80).collect();
        Refusal::absent(
            ErrorCode::NoSuchResource,
            format!("there is no thread {shown:?}"),
        )
    };
    let thread = ThreadId::parse(&thread_id).map_err(|_| absent())?;
    let id = thread_id.clone();
    let page = blocking(move || {
        let whole = EventFilter {
            thread: Some(thread),
            ..EventFilter::default()
        };
        if app
            .journal
            .read(&Query::of(whole.clone()).limit(1))?
            .events
            .is_empty()
        {
            return Ok(None);
        }
        let head = app.journal.head()?;
        let after = resume(asked.cursor.as_ref(), &head)?;
        let filter = EventFilter {
            thread: whole.thread,
            event_type: Some(event_type::MESSAGE_SENT.to_owned()),
            ..asked.filter
        };
        let page = app
            .journal
            .read(&Query::of(filter).after(after).limit(asked.limit).resolved())?;
        let next_cursor = page.next().map(|pos| cursor(&page.head, pos));
        let folded = Folded::fold(&page.events).thread(&id);
        let meta = Meta::of_page(
            &page.head.epoch,
            page.window.first_pos,
            page.head.pos,
            after,
        );
        Ok(Some(View {
            data: MessagesPage {
                thread_id: id,
                messages: folded.map(|thread| thread.messages).unwrap_or_default(),
                next_cursor,
            },
            meta,
        }))
    })
    .await?;
    Ok(json(&page.ok_or_else(absent)?))
}

async fn events_stream(
    State(app): State<Arc<App>>,
    Extension(allowed): Extension<Allowed>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Answer {
    let mut asked = request(query.as_deref())?;
    if let Some(last) = headers.get("last-event-id") {
        asked.cursor = Some(last.to_str().unwrap_or("?").to_owned());
    }
    let Checked { filter, cursor, .. } = asked.check()?;
    let watching = match app.calls.context() {
        Ok(context) if allowed.0 == Scope::Answer => {
            blocking(move || Ok(context.runtime().watch_approvals().ok())).await?
        }
        _ => None,
    };
    stream::open(&app, filter, cursor, watching).await
}

/// Makes a view of a filter's events.
async fn view<T: Serialize + Send + 'static>(
    app: Arc<App>,
    query: Option<String>,
    make: impl FnOnce(&Folded) -> T + Send + 'static,
) -> Answer {
    let asked = not_paged(request(query.as_deref())?)?.check()?;
    let (data, meta) = blocking(move || Ok(app.projection.view(&asked.filter, make)?)).await?;
    Ok(json(&View { data, meta }))
}

/// Calls what reads the disk where that may block.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| {
        Err(Refusal::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            Problem::new(ErrorCode::Internal, "a part of the server failed"),
        ))
    })
}

/// Reads the query string; a name that nobody knows, or one given twice, is an error with its name.
fn request(query: Option<&str>) -> Result<VisibilityRequest, Refusal> {
    let uri = format!("/?{}", query.unwrap_or_default());
    let pairs = uri
        .parse()
        .ok()
        .and_then(|uri| axum::extract::Query::<Vec<(String, String)>>::try_from_uri(&uri).ok())
        .map(|axum::extract::Query(pairs)| pairs)
        .ok_or_else(|| wrong("query", "the query string cannot be read"))?;
    let mut request = VisibilityRequest::default();
    for (name, value) in pairs {
        let field = match name.as_str() {
            "conversation_id" => &mut request.conversation_id,
            "agent_id" => &mut request.agent_id,
            "thread_id" => &mut request.thread_id,
            "event_type" => &mut request.event_type,
            "from" => &mut request.from,
            "to" => &mut request.to,
            "cursor" => &mut request.cursor,
            "limit" => &mut request.limit,
            _ => return Err(wrong(&name, "there is no such parameter")),
        };
        if field.replace(value).is_some() {
            return Err(wrong(&name, "the parameter is given twice"));
        }
    }
    Ok(request)
}

/// Refuses what only pages have.
fn not_paged(request: VisibilityRequest) -> Result<VisibilityRequest, Refusal> {
    for (name, value) in [("cursor", &request.cursor), ("limit", &request.limit)] {
        if value.is_some() {
            return Err(wrong(name, "this view has no pages"));
        }
    }
    Ok(request)
}

fn wrong(field: &str, why: &str) -> Refusal {
    let field: String = field.chars().take(80).collect();
    Refusal::new(
        StatusCode::BAD_REQUEST,
        Problem::new(ErrorCode::InvalidRequest, format!("{field}: {why}")).with_field(field),
    )
}

/// Gives the position after which to go on; a cursor of another log or of the future is refused.
pub(crate) fn resume(cursor: Option<&Cursor>, head: &Head) -> Result<u64, Refusal> {
    let Some(cursor) = cursor else {
        return Ok(0);
    };
    if cursor.epoch != head.epoch || cursor.pos > head.pos {
        let error = RequestError::InvalidCursor {
            text: cursor.to_string(),
        };
        return Err(Refusal::new(StatusCode::CONFLICT, error.to_problem()));
    }
    Ok(cursor.pos)
}

pub(crate) fn cursor(head: &Head, pos: u64) -> String {
    Cursor {
        epoch: head.epoch.clone(),
        pos,
    }
    .to_string()
}

fn json(value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(text) => {
            let mut response = Response::new(Body::from(text));
            response.headers_mut().insert(
                header::CONTENT_TYPE,
                HeaderValue::from_static("application/json"),
            );
            response
        }
        Err(error) => Refusal::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            Problem::new(ErrorCode::Internal, error.to_string()),
        )
        .into_response(),
    }
}

/// The views by name, for the document.
pub(crate) type TopologyView = View<Topology>;
pub(crate) type EvidenceView = View<TaskEvidence>;
pub(crate) type VerifierView = View<VerifierSummary>;
pub(crate) type SummaryView = View<RuntimeSummary>;
pub(crate) type EventsView = View<EventsPage>;
pub(crate) type MessagesView = View<MessagesPage>;
