//! The operations as tools of the Model Context Protocol, over standard input and output.
//!
//! Everything of the protocol's own stays in here.

mod answer;
mod elicit;

use std::borrow::Cow;
use std::io;
use std::sync::Arc;
use std::time::Duration;

pub use answer::text as result_text;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::operation::DescribeEnvironment;
use cofferdam_core::tool::ToolHints;
use rmcp::ErrorData;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, Implementation, InitializeResult, JsonObject,
    ListToolsResult, PaginatedRequestParams, ProgressNotificationParam, ServerCapabilities, Tool,
    ToolAnnotations,
};
use rmcp::service::{RequestContext, RoleServer, ServiceExt as _};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::calls::{Calls, CancelOnDrop};
use crate::error::ServerError;
use crate::operations::{Operation, OperationHost, Scope};

/// How often a caller that asked for it is told that a call goes on.
const PROGRESS: Duration = Duration::from_secs(2);
/// How often is looked whether the owner's own tools have changed.
const TOOLS: Duration = Duration::from_secs(1);
/// How long calls may take to end once nobody waits for them any more.
const LAST_CALLS: Duration = Duration::from_secs(5);
/// The operation that runs the owner's own tools.
const TOOL_RUN: &str = "tool_run";
/// Threads for what blocks: each call holds one until it is done.
const BLOCKING_THREADS: usize = 128;

/// Offers the operations of one workspace to one client over MCP.
#[derive(Debug)]
pub struct McpServer {
    calls: Arc<Calls>,
    instructions: String,
    stop: watch::Sender<bool>,
}

/// Ends an MCP server from anywhere.
#[derive(Debug, Clone)]
pub struct McpStop(watch::Sender<bool>);

impl McpStop {
    /// Cancels every call and ends the server.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl McpServer {
    /// Takes the workspace and its walls, and describes them for the client's model.
    pub fn new(host: Arc<OperationHost>) -> Self {
        let described = host.context().describe(&DescribeEnvironment::default());
        let instructions = match described {
            Ok(described) => described.text,
            Err(problem) => format!("Nothing can be run at present: {problem}."),
        };
        Self {
            calls: Arc::new(Calls::new(Ok(host))),
            instructions,
            stop: watch::Sender::new(false),
        }
    }

    /// Offers nothing, and says what it is there for: a client holds it, and with it whatever else
    /// its process does.
    pub fn without_tools(instructions: &str) -> Self {
        let nothing = Problem::new(ErrorCode::OperationUnknown, "this server offers no tools");
        Self {
            calls: Arc::new(Calls::new(Err(nothing))),
            instructions: instructions.to_owned(),
            stop: watch::Sender::new(false),
        }
    }

    /// Gives a way to end it.
    pub fn stop_handle(&self) -> McpStop {
        McpStop(self.stop.clone())
    }

    /// Serves over standard input and output until the client closes them, on a runtime of its own.
    ///
    /// # Errors
    ///
    /// When the client does not speak the protocol, or the threads cannot be started.
    pub fn run_blocking(self) -> Result<(), ServerError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(BLOCKING_THREADS)
            .thread_name("cofferdam-mcp")
            .enable_all()
            .build()
            .map_err(|source| failed("start", source))?;
        let (input, output) = rmcp::transport::stdio();
        let result = runtime.block_on(self.run(input, output));
        // A thread that still reads standard input cannot be called back; it ends with the process.
        runtime.shutdown_timeout(Duration::from_millis(100));
        result
    }

    /// Serves over any two streams until the client closes them, on the caller's runtime. When it
    /// returns, what the calls had started has ended.
    ///
    /// # Errors
    ///
    /// When the client does not speak the protocol.
    pub async fn run<Input, Output>(self, input: Input, output: Output) -> Result<(), ServerError>
    where
        Input: AsyncRead + Send + Unpin + 'static,
        Output: AsyncWrite + Send + Unpin + 'static,
    {
        let (open, mut closed) = mpsc::channel::<()>(1);
        let calls = Arc::clone(&self.calls);
        let mut stopped = self.stop.subscribe();
        let host = self.calls.context();
        let tools = Tools {
            calls: self.calls,
            instructions: self.instructions,
            stop: self.stop.subscribe(),
            open,
        };
        let stop = async move {
            // An error says that nobody can stop it any more; the sender is held below.
            let _ = stopped.wait_for(|stop| *stop).await;
        };
        let serve = async {
            let running = match tools.serve((input, output)).await {
                Ok(running) => running,
                // A client that goes before it said anything has no complaint.
                Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
                Err(error) => return Err(failed("speak MCP on", io::Error::other(error))),
            };
            if let (Ok(host), Some(elicit)) = (host, elicit::Elicit::of(running.peer())) {
                host.runtime().on_approval(Arc::new(elicit));
            }
            let watched = watch_tools(calls, running.peer().clone());
            let ended = tokio::select! {
                ended = running.waiting() => ended,
                () = watched => return Ok(()),
            };
            ended.map_err(|error| failed("serve", io::Error::other(error)))?;
            Ok(())
        };
        let served = tokio::select! {
            served = serve => served,
            () = stop => Ok(()),
        };
        self.stop.send_replace(true);
        // Every call holds a sender: the channel is closed when the last one has ended.
        let _ = tokio::time::timeout(LAST_CALLS, closed.recv()).await;
        served
    }
}

/// Lists the owner's own tools as they are at this moment.
fn own_tools(calls: &Calls) -> Vec<Tool> {
    let (Ok(context), Some(run)) = (calls.context(), calls.table.find(TOOL_RUN)) else {
        return Vec::new();
    };
    let result = Arc::new(object(run.result_schema()));
    let own = |one: &cofferdam_core::tool::Tool| {
        Tool::new(
            one.name.clone(),
            one.description.clone(),
            object(one.argument_schema()),
        )
        .with_raw_output_schema(Arc::clone(&result))
        .with_annotations(hinted(annotations(run, &one.name), one.hints))
    };
    context.tools().runnable().map(own).collect()
}

/// Tells the client whenever the owner's own tools are others than before. Ends never.
async fn watch_tools(calls: Arc<Calls>, client: rmcp::service::Peer<RoleServer>) {
    let mut known = None;
    let mut ticks = interval_at(Instant::now(), TOOLS);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let calls = Arc::clone(&calls);
        let read = move || own_tools(&calls);
        let Ok(now) = tokio::task::spawn_blocking(read).await else {
            continue;
        };
        let is_new = known.as_ref().is_some_and(|known| *known != now);
        known = Some(now);
        if is_new {
            // A client that has gone needs no news.
            let _ = client.notify_tool_list_changed().await;
        }
    }
}

fn failed(step: &'static str, source: io::Error) -> ServerError {
    ServerError::Io {
        step,
        subject: "standard input and output".to_owned(),
        source,
    }
}

/// What answers the client.
struct Tools {
    calls: Arc<Calls>,
    instructions: String,
    stop: watch::Receiver<bool>,
    open: mpsc::Sender<()>,
}

impl ServerHandler for Tools {
    fn get_info(&self) -> InitializeResult {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .build();
        InitializeResult::new(capabilities)
            .with_server_info(Implementation::new("cofferdam", env!("CARGO_PKG_VERSION")))
            .with_instructions(self.instructions.clone())
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult {
            tools: self.tools(),
            ..ListToolsResult::default()
        })
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        match self.calls.table.find(name) {
            Some(operation) => is_offered(operation).then(|| tool(operation)),
            None => own_tools(&self.calls)
                .into_iter()
                .find(|one| one.name == name),
        }
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let mut name = request.name.clone();
        let mut arguments = Value::Object(request.arguments.unwrap_or_default());
        match self.calls.find(&name) {
            Ok(operation) if is_offered(operation) => {}
            Ok(_) => {
                return Err(ErrorData::invalid_params(
                    format!("there is no tool {name:?}"),
                    None,
                ));
            }
            Err(problem) => {
                if !own_tools(&self.calls).iter().any(|one| one.name == name) {
                    return Err(ErrorData::invalid_params(problem.message, None));
                }
                // One of the owner's is run by the operation for all of them.
                arguments = json!({"name": name, "arguments": arguments});
                name = Cow::Borrowed(TOOL_RUN);
            }
        }
        let answer = match self.calls.context() {
            Ok(call) => {
                let control = call.control().clone();
                // A client that drops the call, in whatever way, has no more use for it.
                let mut guard = CancelOnDrop(Some(control.clone()));
                let calls = Arc::clone(&self.calls);
                let open = self.open.clone();
                let work = tokio::task::spawn_blocking(move || {
                    let _open = open;
                    calls.find(&name)?.call_value(&call, arguments)
                });
                let answer = self.follow(work, &control, &context).await;
                guard.0 = None;
                answer
            }
            Err(problem) => Err(problem),
        };
        Ok(answer::result(answer).into())
    }
}

impl Tools {
    /// Lists the operations, and the owner's own tools as they are at this moment.
    fn tools(&self) -> Vec<Tool> {
        if self.calls.host.is_err() {
            return Vec::new();
        }
        let operations = self
            .calls
            .table
            .iter()
            .filter(|one| is_offered(one))
            .map(tool);
        operations.chain(own_tools(&self.calls)).collect()
    }

    /// Waits for a call, hands a cancellation on to it, and tells that it goes on.
    async fn follow(
        &self,
        mut work: tokio::task::JoinHandle<Result<Value, Problem>>,
        control: &cofferdam_exec::Control,
        context: &RequestContext<RoleServer>,
    ) -> Result<Value, Problem> {
        let mut stopped = self.stop.clone();
        let stop = async move {
            let _ = stopped.wait_for(|stop| *stop).await;
        };
        tokio::pin!(stop);
        let token = context.meta.get_progress_token();
        let began = Instant::now();
        let mut ticks = interval_at(began + PROGRESS, PROGRESS);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_cancelled = false;
        loop {
            tokio::select! {
                done = &mut work => {
                    return done.unwrap_or_else(|_| {
                        Err(Problem::new(ErrorCode::Internal, "a part of the server failed"))
                    });
                }
                () = context.ct.cancelled(), if !is_cancelled => {
                    is_cancelled = true;
                    control.cancel();
                }
                () = &mut stop, if !is_cancelled => {
                    is_cancelled = true;
                    control.cancel();
                }
                _ = ticks.tick(), if token.is_some() => {
                    if let Some(token) = token.clone() {
                        let told = ProgressNotificationParam::new(token, began.elapsed().as_secs_f64());
                        // One that is missed is made up for by the next.
                        let _ = context.peer.notify_progress(told).await;
                    }
                }
            }
        }
    }
}

/// Tells whether an operation is for an agent: answering its own questions is not.
fn is_offered(operation: &Operation) -> bool {
    operation.scope() <= Scope::Execute
}

/// Tells of an operation as a tool.
fn tool(operation: &Operation) -> Tool {
    Tool::new(
        Cow::Borrowed(operation.name()),
        Cow::Owned(format!(
            "{}. {}",
            operation.summary(),
            operation.description()
        )),
        object(operation.request_schema()),
    )
    .with_title(operation.summary())
    .with_raw_output_schema(Arc::new(object(operation.result_schema())))
    .with_annotations(annotations(operation, operation.summary()))
}

fn annotations(operation: &Operation, title: &str) -> ToolAnnotations {
    let told = operation.annotations();
    ToolAnnotations::from_raw(
        Some(title.to_owned()),
        Some(told.read_only),
        Some(told.destructive),
        Some(told.idempotent),
        Some(told.open_world),
    )
}

/// Says of a tool what its author says.
fn hinted(told: ToolAnnotations, hints: ToolHints) -> ToolAnnotations {
    ToolAnnotations::from_raw(
        told.title,
        hints.read_only.or(told.read_only_hint),
        hints
            .destructive
            .or_else(|| (hints.read_only == Some(true)).then_some(false))
            .or(told.destructive_hint),
        told.idempotent_hint,
        hints.open_world.or(told.open_world_hint),
    )
}

fn object(schema: Value) -> JsonObject {
    match schema {
        Value::Object(object) => object,
        _ => JsonObject::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operations::OperationTable;

    #[test]
    fn row_70_an_agents_own_door_cannot_answer_its_questions() {
        let table = OperationTable::new();
        let offered: Vec<_> = table
            .iter()
            .filter(|one| is_offered(one))
            .map(Operation::name)
            .collect();
        assert!(offered.contains(&"approval_list"));
        assert!(!offered.contains(&"approval_answer"));
        for name in [
            "push",
            "pull_request",
            "publish",
            "write_outside",
            "outbox_list",
        ] {
            assert!(offered.contains(&name), "{name}");
        }
        assert!(
            !offered
                .iter()
                .any(|name| ["outbox_release", "outbox_refuse"].contains(name))
        );
        assert!(table.find("approval_answer").is_some());
    }
}
