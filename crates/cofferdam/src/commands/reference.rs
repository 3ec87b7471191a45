//! Tasks by the names that people give them: a number, an id, or the beginning of one.

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::{EventFilter, event_type};
use cofferdam_core::id::TaskId;
use cofferdam_core::limits;
use cofferdam_journal::{Journal, Query};

/// A task with its number.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Named {
    number: u64,
    id: TaskId,
}

/// Finds the one task that a text names.
pub(crate) fn task(journal: &dyn Journal, text: &str) -> Result<TaskId, Problem> {
    resolve(&tasks(journal)?, text)
}

fn resolve(tasks: &[Named], text: &str) -> Result<TaskId, Problem> {
    let unknown = |message: String| {
        Problem::new(ErrorCode::TaskUnknown, message)
            .with_field("task")
            .with_hint("`cofferdam task list` shows the tasks")
    };
    let text = text.trim_start_matches('#');
    if let Ok(number) = text.parse::<u64>() {
        return tasks
            .iter()
            .find(|task| task.number == number)
            .map(|task| task.id.clone())
            .ok_or_else(|| unknown(format!("there is no task {number}")));
    }
    let matches = |task: &&Named| {
        let id = task.id.as_str();
        // A few characters of the bare id say too little: ids of one minute begin alike.
        id.starts_with(text) || id.trim_start_matches("task_").starts_with(text)
    };
    let mut found = tasks.iter().filter(matches);
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one.id.clone()),
        (None, _) => Err(unknown(format!("there is no task {text:?}"))),
        (Some(_), Some(_)) => Err(unknown(format!(
            "{text:?} is the beginning of several tasks"
        ))),
    }
}

fn tasks(journal: &dyn Journal) -> Result<Vec<Named>, Problem> {
    let filter = EventFilter {
        event_type: Some(event_type::TASK_CREATED.to_owned()),
        ..EventFilter::default()
    };
    let mut tasks = Vec::new();
    let mut query = Query::of(filter).limit(limits::PAGE_EVENTS_CAP).resolved();
    loop {
        let page = journal.read(&query).map_err(|error| error.to_problem())?;
        for event in &page.events {
            if let Some(id) = &event.task {
                let number = event.data["number"]
                    .as_u64()
                    .unwrap_or(tasks.len() as u64 + 1);
                tasks.push(Named {
                    number,
                    id: id.clone(),
                });
            }
        }
        let Some(next) = page.next() else {
            return Ok(tasks);
        };
        query.after = Some(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> Vec<Named> {
        [0_u8, 1, 2]
            .map(|byte| Named {
                number: u64::from(byte) + 1,
                id: TaskId::new(u64::from(byte) << 40, [byte; 10]),
            })
            .into()
    }

    #[test]
    fn numbers_ids_and_beginnings_name_a_task() {
        let tasks = three();
        let second = tasks[1].id.clone();
        let text = second.as_str();
        assert_eq!(resolve(&tasks, "2"), Ok(second.clone()));
        assert_eq!(resolve(&tasks, "#2"), Ok(second.clone()));
        assert_eq!(resolve(&tasks, text), Ok(second.clone()));
        assert_eq!(resolve(&tasks, &text[..9]), Ok(second));
    }

    #[test]
    fn what_names_none_or_several_is_refused() {
        let tasks = three();
        for text in ["9", "task_", "nothing"] {
            let problem = resolve(&tasks, text).unwrap_err();
            assert_eq!(problem.code, ErrorCode::TaskUnknown, "{text}");
        }
    }
}
