use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::records::MessageRecord;
use crate::state::State;

/// The messages of a thread, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ThreadMessages {
    /// The thread.
    pub thread_id: String,
    /// What was said.
    pub messages: Vec<Message>,
}

/// One message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Message {
    /// Position of its event.
    pub pos: u64,
    /// When it was sent.
    #[schemars(with = "String")]
    pub time: Timestamp,
    /// Its id; of the event, when it has none of its own.
    pub message_id: String,
    /// Who says it.
    pub from: Option<String>,
    /// To whom.
    pub to: Option<String>,
    /// What is said, whole.
    pub text: String,
    /// The task that it is about.
    pub task_id: Option<String>,
}

/// A thread in figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ThreadSummary {
    /// The thread.
    pub thread_id: String,
    /// How many messages it has.
    pub messages: u64,
    /// Everybody who sent or got one, in the order of their first.
    pub participants: Vec<String>,
    /// When the last one was sent.
    #[schemars(with = "String")]
    pub last: Timestamp,
}

impl State {
    /// Gives the messages of a thread; `None` when no event names it.
    pub fn thread(&self, thread_id: &str) -> Option<ThreadMessages> {
        let messages = self.threads.get(thread_id)?;
        Some(ThreadMessages {
            thread_id: thread_id.to_owned(),
            messages: messages.iter().map(message).collect(),
        })
    }

    /// Gives every thread in figures, by id.
    pub fn threads(&self) -> Vec<ThreadSummary> {
        self.threads
            .iter()
            .filter_map(|(id, messages)| {
                let mut participants: Vec<String> = Vec::new();
                for name in messages
                    .iter()
                    .flat_map(|message| [&message.from, &message.to])
                    .flatten()
                {
                    if !participants.contains(name) {
                        participants.push(name.clone());
                    }
                }
                Some(ThreadSummary {
                    thread_id: id.clone(),
                    messages: messages.len() as u64,
                    participants,
                    last: messages.last()?.time,
                })
            })
            .collect()
    }
}

fn message(record: &MessageRecord) -> Message {
    Message {
        pos: record.pos,
        time: record.time,
        message_id: record.id.clone(),
        from: record.from.clone(),
        to: record.to.clone(),
        text: record.text.clone(),
        task_id: record.task.clone(),
    }
}
