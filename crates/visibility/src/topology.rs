use std::collections::{BTreeMap, BTreeSet};

use cofferdam_core::outcome::Status;
use cofferdam_core::spec::{Network, ProviderKind};
use cofferdam_core::task::{IsolationMode, VerificationStatus};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::records::Life;
use crate::state::State;

/// Who works for whom: conversations, their agents, tasks and commands, as trees.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// The trees, oldest first: conversations, and whatever belongs to none.
    pub roots: Vec<Node>,
    /// Commands that run now, in all trees.
    pub running: u64,
}

/// One conversation, agent, task or command, with what is below it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Its id.
    pub id: String,
    /// A short line for people: a goal, a name, a command.
    pub label: String,
    /// How it stands; nothing where that was never said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// Commands that run now, here and below.
    pub running: u64,
    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub started: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub ended: Option<Timestamp>,
    /// Position of the first event about it.
    pub first_pos: u64,
    /// What it is.
    pub detail: NodeDetail,
    /// What is below it, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<Self>,
}

/// What a node is, and what only such a node has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum NodeDetail {
    /// A line of work.
    Conversation {
        /// Through what it came in: `cli`, `http`, `mcp`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        front_door: Option<String>,
    },
    /// An agent.
    Agent {
        /// Whether it is at the root of its conversation.
        root: bool,
        /// Its role.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        role: Option<String>,
    },
    /// A task.
    Task {
        /// How far it stands apart.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        isolation_mode: Option<IsolationMode>,
        /// The step that it reached.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<String>,
        /// Its branch.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        branch: Option<String>,
        /// The verifier's word.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        verification: Option<VerificationStatus>,
    },
    /// A command.
    Command {
        /// Its exit code.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        return_code: Option<i64>,
        /// The signal that ended it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<String>,
        /// Wall time in milliseconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        elapsed_ms: Option<u64>,
        /// Who put the walls up.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        provider: Option<ProviderKind>,
        /// The network level.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        network: Option<Network>,
        /// How much was denied.
        denials: u64,
    },
}

/// Names a node while the trees are made.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key<'a> {
    Conversation(&'a str),
    Agent(&'a str),
    Task(&'a str),
    Command(&'a str),
}

impl State {
    /// Gives who works for whom.
    pub fn topology(&self) -> Topology {
        let mut flat: Vec<(Key<'_>, Option<Key<'_>>, Node)> = Vec::new();
        for (id, record) in &self.conversations {
            let detail = NodeDetail::Conversation {
                front_door: record.front_door.clone(),
            };
            let node = node(id, record.goal.as_deref(), &record.life, detail);
            flat.push((Key::Conversation(id), None, node));
        }
        let root_agents: BTreeSet<&str> = self
            .conversations
            .values()
            .filter_map(|record| record.root_agent.as_deref())
            .collect();
        for (id, record) in &self.agents {
            let root = root_agents.contains(id.as_str());
            let detail = NodeDetail::Agent {
                root,
                role: record.role.clone(),
            };
            let node = node(id, record.name.as_deref(), &record.life, detail);
            flat.push((Key::Agent(id), self.above_agent(id), node));
        }
        for (id, record) in &self.tasks {
            let detail = NodeDetail::Task {
                isolation_mode: record.isolation_mode,
                state: record.state.clone(),
                branch: record.branch.clone(),
                verification: record.verification,
            };
            let node = node(id, record.goal.as_deref(), &record.life, detail);
            let above = self
                .known_task(record.parent.as_deref(), id)
                .or_else(|| self.known_agent(record.agent.as_deref()))
                .or_else(|| self.known_conversation(record.conversation.as_deref()));
            flat.push((Key::Task(id), above, node));
        }
        for (id, record) in &self.commands {
            let detail = NodeDetail::Command {
                return_code: record.return_code,
                signal: record.signal.clone(),
                elapsed_ms: record.elapsed_ms,
                provider: record.provider,
                network: record.network,
                denials: record.denials,
            };
            let mut node = node(id, record.line.as_deref(), &record.life, detail);
            node.running = u64::from(record.life.runs());
            let above = self
                .known_task(record.task.as_deref(), "")
                .or_else(|| self.known_agent(record.agent.as_deref()))
                .or_else(|| self.known_conversation(record.conversation.as_deref()));
            flat.push((Key::Command(id), above, node));
        }
        assemble(flat)
    }

    fn above_agent(&self, id: &str) -> Option<Key<'_>> {
        let record = self.agents.get(id)?;
        let conversation = record.conversation.as_deref();
        let root = conversation
            .and_then(|conversation| self.conversations.get(conversation)?.root_agent.as_deref());
        self.known_agent(record.parent.as_deref().filter(|parent| *parent != id))
            .or_else(|| self.known_agent(root.filter(|root| *root != id)))
            .or_else(|| self.known_conversation(conversation))
    }

    fn known_agent(&self, id: Option<&str>) -> Option<Key<'_>> {
        let (id, _) = self.agents.get_key_value(id?)?;
        Some(Key::Agent(id))
    }

    fn known_task(&self, id: Option<&str>, not: &str) -> Option<Key<'_>> {
        let (id, _) = self.tasks.get_key_value(id?)?;
        (id != not).then_some(Key::Task(id))
    }

    fn known_conversation(&self, id: Option<&str>) -> Option<Key<'_>> {
        let (id, _) = self.conversations.get_key_value(id?)?;
        Some(Key::Conversation(id))
    }
}

fn node(id: &str, label: Option<&str>, life: &Life, detail: NodeDetail) -> Node {
    Node {
        id: id.to_owned(),
        label: label.unwrap_or(id).to_owned(),
        status: life.status,
        running: 0,
        started: life.started,
        ended: life.ended,
        first_pos: life.first_pos,
        detail,
        children: Vec::new(),
    }
}

/// Puts each node below the one above it; a circle, which only wrong events can make, is cut open.
fn assemble(flat: Vec<(Key<'_>, Option<Key<'_>>, Node)>) -> Topology {
    let index: BTreeMap<Key<'_>, usize> = flat
        .iter()
        .enumerate()
        .map(|(place, (key, ..))| (key.clone(), place))
        .collect();
    let above: Vec<Option<usize>> = flat
        .iter()
        .enumerate()
        .map(|(place, (_, above, _))| {
            let parent = index.get(above.as_ref()?).copied()?;
            let mut up = Some(parent);
            for _ in 0..flat.len() {
                match up {
                    Some(here) if here == place => return None,
                    Some(here) => {
                        up = flat[here]
                            .1
                            .as_ref()
                            .and_then(|key| index.get(key))
                            .copied();
                    }
                    None => break,
                }
            }
            Some(parent)
        })
        .collect();
    let mut below: Vec<Vec<usize>> = vec![Vec::new(); flat.len()];
    let mut roots = Vec::new();
    for (place, parent) in above.iter().enumerate() {
        match parent {
            Some(parent) => below[*parent].push(place),
            None => roots.push(place),
        }
    }
    let mut nodes: Vec<Option<Node>> = flat.into_iter().map(|(.., node)| Some(node)).collect();
    let mut roots: Vec<Node> = roots
        .into_iter()
        .filter_map(|place| grow(place, &below, &mut nodes))
        .collect();
    roots.sort_by_key(|node| node.first_pos);
    Topology {
        running: roots.iter().map(|node| node.running).sum(),
        roots,
    }
}

fn grow(place: usize, below: &[Vec<usize>], nodes: &mut [Option<Node>]) -> Option<Node> {
    let mut node = nodes[place].take()?;
    node.children = below[place]
        .iter()
        .filter_map(|child| grow(*child, below, nodes))
        .collect();
    node.children.sort_by_key(|child| child.first_pos);
    node.running += node.children.iter().map(|child| child.running).sum::<u64>();
    Some(node)
}
