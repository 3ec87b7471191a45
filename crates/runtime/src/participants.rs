//! Who takes part in a line of work, as the ids that every event of it carries.

use cofferdam_core::ambient::Ambient;
use cofferdam_core::event::Subject;
use cofferdam_core::id::{AgentId, ConversationId, OperationId, TaskId, ThreadId};

/// One conversation with its root agent and the operation that is carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Participants {
    pub(crate) conversation: ConversationId,
    pub(crate) root: AgentId,
    pub(crate) operation: OperationId,
}

impl Participants {
    pub(crate) fn new(ambient: &dyn Ambient) -> Self {
        let (time, random) = ambient.id_parts();
        let conversation = ConversationId::new(time, random);
        let (time, random) = ambient.id_parts();
        let root = AgentId::new(time, random);
        let (time, random) = ambient.id_parts();
        let operation = OperationId::new(time, random);
        Self {
            conversation,
            root,
            operation,
        }
    }

    /// Gives the same for another operation of the line of work.
    pub(crate) fn another(&self, ambient: &dyn Ambient) -> Self {
        let (time, random) = ambient.id_parts();
        Self {
            operation: OperationId::new(time, random),
            ..self.clone()
        }
    }

    /// Gives the subject of an event about the root agent's own doing.
    pub(crate) fn subject(&self) -> Subject {
        Subject {
            conversation: Some(self.conversation.clone()),
            thread: None,
            agent: Some(self.root.clone()),
            root_agent: Some(self.root.clone()),
            task: None,
            parent_task: None,
            op: Some(self.operation.clone()),
        }
    }

    /// Gives the subject of an event about a worker's task.
    pub(crate) fn of_task(&self, task: &TaskId, thread: &ThreadId, worker: &AgentId) -> Subject {
        Subject {
            thread: Some(thread.clone()),
            agent: Some(worker.clone()),
            task: Some(task.clone()),
            ..self.subject()
        }
    }
}
