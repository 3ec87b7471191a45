//! What is written for each agent, where, and what that does not cover.

use std::path::{Path, PathBuf};

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::spec::Digest;
use serde_json::{Value, json};

use super::document::Kind;
use crate::arguments::setup::{Agent, Mode};
use crate::context::Context;

/// The name under which our server stands in an agent's configuration.
const SERVER: &str = "cofferdam";
/// The same of the one that only holds a session.
const HOLDER: &str = "cofferdam-session";

/// One thing that is put into a file.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Edit {
    /// A key that is ours: nobody else may have it.
    Own(Vec<String>, Value),
    /// A switch of the agent's: what it was is put back.
    Switch(Vec<String>, Value),
    /// A value at the end of a list, unless it is in it.
    Element(Vec<String>, Value),
    /// Switches of which the last one holds: they come behind all others of the object, and what is
    /// no object becomes what holds for everything else.
    Last(Vec<String>, Value),
}

impl Edit {
    /// Lends the key.
    pub(super) fn path(&self) -> &[String] {
        match self {
            Self::Own(path, _)
            | Self::Switch(path, _)
            | Self::Element(path, _)
            | Self::Last(path, _) => path,
        }
    }
}

/// A file, and what is put into it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Target {
    pub(super) path: PathBuf,
    pub(super) kind: Kind,
    pub(super) edits: Vec<Edit>,
    /// The content of a file that is ours as a whole.
    pub(super) whole: Option<String>,
}

impl Target {
    fn keys(path: PathBuf, kind: Kind, edits: Vec<Edit>) -> Self {
        Self {
            path,
            kind,
            edits,
            whole: None,
        }
    }
}

/// What an agent is set up with.
#[derive(Debug)]
pub(super) struct Wish<'a> {
    pub(super) agent: Agent,
    pub(super) mode: Mode,
    /// Where this program lies, as text.
    pub(super) own: &'a str,
    /// Flags for walls.
    pub(super) walls: &'a [String],
    /// Where the data directory lies, where that is not its place in the home directory: agents hand
    /// on what variables they like.
    pub(super) data_dir: Option<String>,
    /// The agent is not to ask.
    pub(super) allow: bool,
}

/// Finds what is written, and where. Nothing is read but Codex's list of hooks.
pub(super) fn targets(context: &Context, wish: &Wish<'_>) -> Result<Vec<Target>, Problem> {
    let home = context.home().ok_or_else(|| {
        Problem::new(ErrorCode::InvalidRequest, "there is no home directory").with_hint("set HOME")
    })?;
    let below = |variable: &str, otherwise: &str| {
        let named = context.variable(variable).map(PathBuf::from);
        named
            .filter(|path| path.is_absolute())
            .unwrap_or_else(|| home.join(otherwise))
    };
    let codex_home = || {
        let home = below("CODEX_HOME", ".codex");
        // Codex itself follows links of the one, and not of the other.
        let real = context
            .variable("CODEX_HOME")
            .and(std::fs::canonicalize(&home).ok());
        real.unwrap_or(home)
    };
    match (wish.agent, wish.mode) {
        (Agent::Claude, _) => Ok(claude(context, &home, wish)),
        (Agent::Gemini, _) => Ok(gemini(&home, wish)),
        (Agent::Opencode, _) => Ok(opencode(
            &below("XDG_CONFIG_HOME", ".config").join("opencode"),
            wish,
        )),
        (Agent::Codex, Mode::Hook) => codex_hook(&codex_home(), wish),
        (Agent::Codex, _) => Ok(codex(&codex_home(), wish)),
        (Agent::Cursor, Mode::Hook) => Err(cannot(
            wish,
            "a hook of Cursor may refuse a command, and not say what is run instead",
        )),
        (Agent::Cursor, _) => Err(cannot(
            wish,
            "nobody has tried how its built-in tools are switched off",
        )),
    }
}

fn cannot(wish: &Wish<'_>, why: &str) -> Problem {
    let agent = super::shim::wrapped(wish.agent).name;
    Problem::new(
        ErrorCode::ModeUnsupported,
        format!(
            "{agent} cannot be set up with --mode {}: {why}",
            wish.mode.as_str()
        ),
    )
    .with_field("mode")
    .with_hint(format!("cofferdam setup {agent} --mode wrap"))
}

fn key(parts: &[&str]) -> Vec<String> {
    parts.iter().map(|part| (*part).to_owned()).collect()
}

/// Gives the words by which the agent starts what it talks to.
fn server(wish: &Wish<'_>) -> (&'static str, Vec<String>) {
    let (name, verb): (_, &[&str]) = match wish.mode {
        Mode::Hook => (HOLDER, &["hook", "host"]),
        Mode::Wrap | Mode::Mcp => (SERVER, &["mcp"]),
    };
    let data_dir = wish.data_dir.iter();
    let data_dir = data_dir.flat_map(|place| ["--data-dir".to_owned(), place.clone()]);
    let words = data_dir.chain(verb.iter().map(|word| (*word).to_owned()));
    (name, words.chain(wish.walls.iter().cloned()).collect())
}

/// Gives the words of a shell by which this program is started.
fn own_words(wish: &Wish<'_>) -> String {
    let own = super::quoted(wish.own);
    match &wish.data_dir {
        Some(place) => format!("{own} --data-dir {}", super::quoted(place)),
        None => own,
    }
}

fn elements(path: &[&str], values: &[&str]) -> impl Iterator<Item = Edit> {
    let path = key(path);
    let values: Vec<Value> = values.iter().map(|value| json!(value)).collect();
    values
        .into_iter()
        .map(move |value| Edit::Element(path.clone(), value))
}

/// Gives the line of a hook. Whatever keeps it from answering stops the command: exit code 2.
fn hook_line(wish: &Wish<'_>) -> String {
    let agent = super::shim::wrapped(wish.agent).name;
    let allow = if wish.allow { " --allow" } else { "" };
    format!("{} hook rewrite {agent}{allow} || exit 2", own_words(wish))
}

fn claude(context: &Context, home: &Path, wish: &Wish<'_>) -> Vec<Target> {
    // Where the directory is moved, both lie in it.
    let moved = context
        .variable("CLAUDE_CONFIG_DIR")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
    let state = moved.as_deref().unwrap_or(home).join(".claude.json");
    let settings = moved
        .unwrap_or_else(|| home.join(".claude"))
        .join("settings.json");
    let (name, words) = server(wish);
    let registered = Edit::Own(
        key(&["mcpServers", name]),
        json!({"type": "stdio", "command": wish.own, "args": words}),
    );
    let mut edits = Vec::new();
    if wish.mode == Mode::Hook {
        edits.push(Edit::Element(
            key(&["hooks", "PreToolUse"]),
            json!({
                "matcher": "Bash",
                "hooks": [{"type": "command", "command": hook_line(wish)}],
            }),
        ));
    } else {
        let built_in = [
            "Bash",
            "BashOutput",
            "Edit",
            "EnterWorktree",
            "Glob",
            "Grep",
            "KillShell",
            "LS",
            "Monitor",
            "NotebookEdit",
            "PowerShell",
            "Read",
            "Write",
        ];
        edits.extend(elements(&["permissions", "deny"], &built_in));
        if wish.allow {
            edits.extend(elements(&["permissions", "allow"], &["mcp__cofferdam"]));
        }
    }
    vec![
        Target::keys(settings, Kind::Json, edits),
        Target::keys(state, Kind::Json, vec![registered]),
    ]
}

fn gemini(home: &Path, wish: &Wish<'_>) -> Vec<Target> {
    let (name, words) = server(wish);
    let mut server = json!({"command": wish.own, "args": words});
    let mut edits = Vec::new();
    if wish.mode == Mode::Hook {
        edits.push(Edit::Element(
            key(&["hooks", "BeforeTool"]),
            json!({
                "matcher": "^run_shell_command$",
                "hooks": [{"name": "cofferdam", "type": "command", "command": hook_line(wish)}],
            }),
        ));
    } else {
        if wish.allow {
            server["trust"] = json!(true);
        }
        let built_in = [
            "run_shell_command",
            "write_file",
            "replace",
            "read_file",
            "read_many_files",
            "list_directory",
            "glob",
            "grep_search",
        ];
        edits.extend(elements(&["tools", "exclude"], &built_in));
    }
    edits.push(Edit::Own(key(&["mcpServers", name]), server));
    vec![Target::keys(
        home.join(".gemini/settings.json"),
        Kind::Commented,
        edits,
    )]
}

fn codex(home: &Path, wish: &Wish<'_>) -> Vec<Target> {
    let (name, words) = server(wish);
    let mut server = json!({"command": wish.own, "args": words});
    if wish.allow {
        server["default_tools_approval_mode"] = json!("approve");
    }
    let edits = vec![
        Edit::Switch(key(&["features", "shell_tool"]), json!(false)),
        Edit::Switch(key(&["features", "unified_exec"]), json!(false)),
        Edit::Own(key(&["mcp_servers", name]), server),
    ];
    vec![Target::keys(home.join("config.toml"), Kind::Toml, edits)]
}

/// Seconds that Codex gives a hook; part of what it trusts.
const HOOK_TIME: u64 = 600;

/// Codex runs a hook only that its user trusted: it keeps a digest of each in its configuration, and
/// passes over any other. Whoever sets it up trusts it by doing so.
fn codex_hook(home: &Path, wish: &Wish<'_>) -> Result<Vec<Target>, Problem> {
    let (name, words) = server(wish);
    let list = key(&["hooks", "PreToolUse"]);
    let hook = json!({"type": "command", "command": hook_line(wish), "timeout": HOOK_TIME});
    let group = json!({"matcher": CODEX_COMMANDS, "hooks": [hook]});
    let hooks = home.join("hooks.json");
    // It names a hook by where it stands.
    let there = std::fs::read_to_string(&hooks).unwrap_or_default();
    let there: Value = serde_json::from_str(&there).unwrap_or_default();
    let groups = there.pointer("/hooks/PreToolUse").and_then(Value::as_array);
    let groups = groups.map_or(&[][..], Vec::as_slice);
    let index = groups
        .iter()
        .rposition(|one| *one == group)
        .unwrap_or(groups.len());
    let place = super::plain_path(&hooks)?;
    let state = key(&["hooks", "state", &format!("{place}:pre_tool_use:{index}:0")]);
    let state = |name: &str| [&state[..], &key(&[name])].concat();
    let config = vec![
        Edit::Own(
            key(&["mcp_servers", name]),
            json!({"command": wish.own, "args": words}),
        ),
        Edit::Switch(state("trusted_hash"), json!(trusted(wish))),
        Edit::Switch(state("enabled"), json!(true)),
        // Else its own sandbox keeps the command from the server that holds the session.
        Edit::Switch(
            key(&["sandbox_workspace_write", "network_access"]),
            json!(true),
        ),
    ];
    Ok(vec![
        Target::keys(hooks, Kind::Json, vec![Edit::Element(list, group)]),
        Target::keys(home.join("config.toml"), Kind::Toml, config),
    ])
}

/// The tool by whose name Codex asks its hooks about commands.
const CODEX_COMMANDS: &str = "^Bash$";

/// Gives what Codex keeps of a hook that was trusted: a digest of what it runs, and when.
fn trusted(wish: &Wish<'_>) -> String {
    let hook = json!({
        "async": false,
        "command": hook_line(wish),
        "timeout": HOOK_TIME,
        "type": "command",
    });
    // The keys in the order of the alphabet, and nothing between.
    let text = json!({"event_name": "pre_tool_use", "hooks": [hook], "matcher": CODEX_COMMANDS});
    format!("sha256:{}", Digest::sha256(text.to_string().as_bytes()).0)
}

/// What opencode loads: it says of each command what is run instead.
const PLUGIN: &str = r#"// Written by `cofferdam setup opencode --mode hook`; `cofferdam setup opencode --undo` removes it.
const before = PREFIX;
const quoted = (text) => "'" + text.replaceAll("'", "'\\''") + "'";
export const Cofferdam = async () => ({
  "tool.execute.before": async (input, output) => {
    if (input.tool !== "bash") return;
    if (typeof output.args.command !== "string") throw new Error("cofferdam: no command");
    output.args.command = before + quoted(output.args.command);
  },
});
"#;

fn opencode(config: &Path, wish: &Wish<'_>) -> Vec<Target> {
    let (name, words) = server(wish);
    let command: Vec<&str> = [wish.own]
        .into_iter()
        .chain(words.iter().map(String::as_str))
        .collect();
    let mut edits = vec![Edit::Own(
        key(&["mcp", name]),
        json!({"type": "local", "command": command, "enabled": true}),
    )];
    // The one that is there; with comments where nobody has any.
    let names = ["opencode.jsonc", "opencode.json"];
    let there = names.iter().find(|name| config.join(name).exists());
    let settings = config.join(there.unwrap_or(&"opencode.json"));
    if wish.mode == Mode::Hook {
        let before = format!("{} hook run opencode -- ", own_words(wish));
        let plugin = Target {
            path: config.join("plugin/cofferdam.js"),
            kind: Kind::Whole,
            edits: Vec::new(),
            whole: Some(PLUGIN.replace("PREFIX", &json!(before).to_string())),
        };
        return vec![plugin, Target::keys(settings, Kind::Jsonc, edits)];
    }
    let built_in = [
        "bash",
        "edit",
        "write",
        "patch",
        "apply_patch",
        "multiedit",
        "read",
        "grep",
        "glob",
        "list",
    ];
    let denied = built_in
        .iter()
        .map(|tool| ((*tool).to_owned(), json!("deny")));
    let mut denied: serde_json::Map<String, Value> = denied.collect();
    if wish.allow {
        denied.insert(format!("{SERVER}_*"), json!("allow"));
    }
    edits.push(Edit::Last(key(&["permission"]), Value::Object(denied)));
    vec![Target::keys(settings, Kind::Jsonc, edits)]
}

/// Says what goes on as before.
pub(super) fn not_covered(wish: &Wish<'_>) -> Vec<String> {
    let mut said: Vec<&str> = vec![
        "the agent itself, what it sends to its model, and what it keeps in your home directory",
        "its hooks, its other MCP servers, its status line and its plugins: they run as before",
        "settings of a project or of a managed file that say otherwise",
    ];
    if wish.mode == Mode::Hook {
        said.push(
            "its tools for files, for searching and for the web: they read and write as before",
        );
    }
    match (wish.agent, wish.mode) {
        (Agent::Claude, Mode::Hook) => {
            said.push("commands that you type yourself with ! in it");
            said.push(
                "its own rules for Bash(...): they see the command as it is sent to us, so write rules \
                 about commands into the policy of Cofferdam",
            );
        }
        (Agent::Gemini, Mode::Hook) => {
            said.push(
                "a folder that it does not trust: there it starts no server, and no command runs",
            );
        }
        (Agent::Claude | Agent::Gemini, _) => {
            said.push("its tools for the web, and commands typed with ! in it");
        }
        (Agent::Codex, Mode::Hook) => {
            said.push("its tool for patches, those for the web, and commands typed with ! in it");
            said.push(
                "a Codex that does not trust the hook, as after a change of hooks.json or in another \
                 version: it runs commands without it, and says on its screen that hooks need review",
            );
            said.push(
                "the network in its own sandbox: that is open now, since commands reach our session by \
                 it; a Codex that only reads, or has another sandbox that closes it, runs no command",
            );
        }
        (Agent::Codex, _) => {
            said.push(
                "its tools for the web, for pictures, and for patches where a model has that one",
            );
        }
        (Agent::Opencode, Mode::Hook) => said.push("an opencode that is started with --pure"),
        (Agent::Opencode, _) => said.push("its tools for the web, and its language servers"),
        (Agent::Cursor, _) => {}
    }
    said.into_iter().map(str::to_owned).collect()
}
