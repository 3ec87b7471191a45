//! A scripted model on loopback: agents talk to it as if it were that of their maker.
//!
//! It speaks what Claude, Codex, opencode and Gemini ask in. Each run has a list of commands, which it
//! has the agent run one after the other; what the agent sends along tells how far it is.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

/// A model that is being asked.
pub(crate) struct Model {
    pub(crate) port: u16,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    /// Which run it is, and what is run in it.
    run: usize,
    commands: Vec<String>,
    /// Bodies of the requests that offered a tool for commands.
    asked: Vec<Value>,
}

/// The ways in which agents ask.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Messages,
    Responses,
    Chat,
    Google,
}

/// What is answered.
enum Answer {
    Text(String),
    Call {
        id: String,
        name: String,
        input: Value,
    },
}

/// Tools that run a command: the agents' own, and ours.
const SHELLS: [&str; 6] = [
    "Bash",
    "exec_command",
    "shell_command",
    "bash",
    "run_shell_command",
    "mcp__cofferdam__run_command",
];

impl Model {
    /// Begins one whose first run has these commands.
    pub(crate) fn begin(commands: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let model = Self {
            port,
            shared: Arc::default(),
        };
        model.set(0, commands);
        let shared = Arc::clone(&model.shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || {
                    let Ok(mut writer) = stream.try_clone() else {
                        return;
                    };
                    let mut reader = BufReader::new(stream);
                    while answer(&mut reader, &mut writer, &shared).is_some() {}
                });
            }
        });
        model
    }

    fn set(&self, run: usize, commands: &[&str]) {
        let mut shared = self.shared.lock().expect("whole");
        shared.run = run;
        shared.commands = commands.iter().map(|one| (*one).to_owned()).collect();
    }

    /// Goes on with the next run, and gives how often it was asked before.
    pub(crate) fn next_run(&self, commands: &[&str]) -> usize {
        let (run, before) = {
            let shared = self.shared.lock().expect("whole");
            (shared.run, shared.asked.len())
        };
        self.set(run + 1, commands);
        before
    }

    /// Gives what it was asked, in order.
    pub(crate) fn asked(&self) -> Vec<Value> {
        self.shared.lock().expect("whole").asked.clone()
    }

    /// Gives the last that it was told.
    pub(crate) fn told(&self) -> String {
        self.asked().last().expect("asked").to_string()
    }
}

/// By what a call is known again in what the agent sends later.
pub(crate) fn mark(run: usize, step: usize) -> String {
    format!("call_{run}_{step}")
}

fn answer(
    reader: &mut BufReader<TcpStream>,
    writer: &mut TcpStream,
    shared: &Mutex<Shared>,
) -> Option<()> {
    let mut first = String::new();
    reader.read_line(&mut first).ok().filter(|read| *read > 0)?;
    let (mut length, mut chunked, mut closes) = (0, false, false);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        if line.trim().is_empty() {
            break;
        }
        let line = line.to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        chunked |= line.starts_with("transfer-encoding:") && line.contains("chunked");
        closes |= line.starts_with("upgrade:");
    }
    let body = if chunked {
        chunks(reader)?
    } else {
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        body
    };
    let path = first.split(' ').nth(1).unwrap_or("");
    let path = path.split('?').next().unwrap_or("");
    let way = [
        ("/messages", Way::Messages),
        ("/responses", Way::Responses),
        ("/chat/completions", Way::Chat),
        ("enerateContent", Way::Google),
    ]
    .into_iter()
    .find_map(|(end, way)| path.ends_with(end).then_some(way));
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let (status, kind, text) = match way {
        _ if closes => ("426 Upgrade Required", "application/json", "{}".to_owned()),
        Some(way) if first.starts_with("POST") => {
            let is_stream = body["stream"] == true || path.ends_with(":streamGenerateContent");
            let answer = decide(&body, shared);
            if is_stream {
                ("200 OK", "text/event-stream", events(way, &answer))
            } else {
                (
                    "200 OK",
                    "application/json",
                    whole(way, &answer).to_string(),
                )
            }
        }
        _ => ("200 OK", "application/json", "{}".to_owned()),
    };
    let size = text.len();
    write!(
        writer,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {size}\r\n\r\n"
    )
    .ok()?;
    if !first.starts_with("HEAD ") {
        writer.write_all(text.as_bytes()).ok()?;
    }
    (!closes).then_some(())
}

fn chunks(reader: &mut BufReader<TcpStream>) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let size = usize::from_str_radix(line.trim(), 16).ok()?;
        let mut piece = vec![0; size + 2];
        reader.read_exact(&mut piece).ok()?;
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(&piece[..size]);
    }
}

/// Lists the tools that are offered.
pub(crate) fn tools(body: &Value) -> Vec<&str> {
    let mut names = Vec::new();
    for tool in body["tools"].as_array().into_iter().flatten() {
        let declared = tool["functionDeclarations"].as_array();
        names.extend(
            declared
                .into_iter()
                .flatten()
                .filter_map(|one| one["name"].as_str()),
        );
        names.extend(tool["name"].as_str());
        names.extend(tool.pointer("/function/name").and_then(Value::as_str));
    }
    names
}

fn decide(body: &Value, shared: &Mutex<Shared>) -> Answer {
    let offered = tools(body);
    let Some(shell) = SHELLS.into_iter().find(|name| offered.contains(name)) else {
        // For a title, or where the request is best sent: who asks takes any answer of its shape.
        let shape = body.pointer("/generationConfig/responseJsonSchema/properties");
        return Answer::Text(match shape.and_then(Value::as_object) {
            Some(fields) => fields
                .iter()
                .map(|(name, field)| {
                    let value = if field["type"] == "INTEGER" {
                        json!(1)
                    } else {
                        json!("ok")
                    };
                    (name.clone(), value)
                })
                .collect::<Value>()
                .to_string(),
            None => "ok".to_owned(),
        });
    };
    let mut shared = shared.lock().expect("whole");
    shared.asked.push(body.clone());
    let text = body.to_string();
    let run = shared.run;
    let step = (0..shared.commands.len()).find(|step| !text.contains(&mark(run, *step)));
    let Some(step) = step else {
        return Answer::Text(format!("finished run {run}"));
    };
    let id = mark(run, step);
    // Not each of them hands the id back: what was run stands in what it sends in any case.
    let command = format!(": {id}; {}", shared.commands[step]);
    let mut input = json!({});
    input[if shell == "exec_command" {
        "cmd"
    } else {
        "command"
    }] = command.into();
    if shell == "Bash" || shell == "bash" {
        input["description"] = "a step".into();
    }
    if shell == "exec_command" {
        input["yield_time_ms"] = 30_000.into();
    }
    let name = shell.to_owned();
    Answer::Call { id, name, input }
}

/// Gives an answer in one piece.
fn whole(way: Way, answer: &Answer) -> Value {
    match way {
        Way::Messages => {
            let (content, reason) = match answer {
                Answer::Text(text) => (json!({"type": "text", "text": text}), "end_turn"),
                Answer::Call { id, name, input } => (
                    json!({"type": "tool_use", "id": id, "name": name, "input": input}),
                    "tool_use",
                ),
            };
            json!({
                "id": "msg_1", "type": "message", "role": "assistant", "model": "scripted",
                "content": [content], "stop_reason": reason, "stop_sequence": null,
                "usage": {"input_tokens": 1, "output_tokens": 1},
            })
        }
        Way::Responses => {
            let item = match answer {
                Answer::Text(text) => json!({
                    "type": "message", "id": "item_1", "role": "assistant", "status": "completed",
                    "content": [{"type": "output_text", "text": text, "annotations": []}],
                }),
                Answer::Call { id, name, input } => json!({
                    "type": "function_call", "id": "item_1", "call_id": id, "name": name,
                    "arguments": input.to_string(), "status": "completed",
                }),
            };
            json!({
                "id": "resp_1", "object": "response", "status": "completed", "model": "scripted",
                "output": [item],
                "usage": {
                    "input_tokens": 1, "input_tokens_details": {"cached_tokens": 0},
                    "output_tokens": 1, "output_tokens_details": {"reasoning_tokens": 0},
                    "total_tokens": 2,
                },
            })
        }
        Way::Chat => {
            let (message, reason) = chat(answer);
            json!({
                "id": "chat_1", "object": "chat.completion", "created": 1, "model": "scripted",
                "choices": [{"index": 0, "message": message, "finish_reason": reason}],
                "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
            })
        }
        Way::Google => {
            let part = match answer {
                Answer::Text(text) => json!({"text": text}),
                Answer::Call { id, name, input } => {
                    json!({"functionCall": {"id": id, "name": name, "args": input}})
                }
            };
            let content = json!({"role": "model", "parts": [part]});
            json!({
                "candidates": [{"index": 0, "content": content, "finishReason": "STOP"}],
                "modelVersion": "scripted",
                "usageMetadata": {
                    "promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2,
                },
            })
        }
    }
}

fn chat(answer: &Answer) -> (Value, &'static str) {
    match answer {
        Answer::Text(text) => (json!({"role": "assistant", "content": text}), "stop"),
        Answer::Call { id, name, input } => {
            let function = json!({"name": name, "arguments": input.to_string()});
            let call = json!({"index": 0, "id": id, "type": "function", "function": function});
            (
                json!({"role": "assistant", "content": null, "tool_calls": [call]}),
                "tool_calls",
            )
        }
    }
}

/// Gives an answer as a stream of events.
fn events(way: Way, answer: &Answer) -> String {
    let all = whole(way, answer);
    let events = match way {
        Way::Messages => {
            let mut begun = all["content"][0].clone();
            let delta = match answer {
                Answer::Text(text) => {
                    begun["text"] = "".into();
                    json!({"type": "text_delta", "text": text})
                }
                Answer::Call { input, .. } => {
                    begun["input"] = json!({});
                    json!({"type": "input_json_delta", "partial_json": input.to_string()})
                }
            };
            let mut start = all.clone();
            start["content"] = json!([]);
            start["stop_reason"] = Value::Null;
            let end = json!({"stop_reason": all["stop_reason"], "stop_sequence": null});
            vec![
                json!({"type": "message_start", "message": start}),
                json!({"type": "content_block_start", "index": 0, "content_block": begun}),
                json!({"type": "content_block_delta", "index": 0, "delta": delta}),
                json!({"type": "content_block_stop", "index": 0}),
                json!({"type": "message_delta", "delta": end, "usage": {"output_tokens": 1}}),
                json!({"type": "message_stop"}),
            ]
        }
        Way::Responses => {
            let mut begun = all.clone();
            begun["status"] = "in_progress".into();
            begun["output"] = json!([]);
            let item = &all["output"][0];
            vec![
                json!({"type": "response.created", "response": begun}),
                json!({"type": "response.output_item.added", "output_index": 0, "item": item}),
                json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
                json!({"type": "response.completed", "response": all}),
            ]
        }
        Way::Chat => {
            let (message, reason) = chat(answer);
            let piece = |delta: Value, reason: Value| {
                json!({
                    "id": "chat_1", "object": "chat.completion.chunk", "created": 1,
                    "model": "scripted",
                    "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
                })
            };
            vec![piece(message, Value::Null), piece(json!({}), reason.into())]
        }
        Way::Google => vec![all],
    };
    let events = events.iter().map(|event| {
        let name = event["type"].as_str().map(|name| {
            format!(
                "event: {name}
"
            )
        });
        format!(
            "{}data: {event}

",
            name.unwrap_or_default()
        )
    });
    let end = (way == Way::Chat).then(|| {
        "data: [DONE]

"
        .to_owned()
    });
    events.chain(end).collect()
}
