//! Answers that take the place of questions: for a task in memory, for a repository in the data
//! directory.

use std::sync::{Mutex, MutexGuard, PoisonError};

use cofferdam_core::approval::{
    Approval, ApprovalAnswer, ApprovalState, Entitled, Remember, RememberedAnswer, recall,
};
use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::{Subject, event_type};
use cofferdam_core::id::{RuleId, TaskId};
use cofferdam_core::limits;
use cofferdam_core::operation::{ForgetAnswer, RememberedLine, RememberedPage};
use cofferdam_exec::{all_remembered, forget_answer, remember_answer, remembered_answers};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::{Kind, Permit, Question};
use crate::runtime::Runtime;
use crate::scribe::{Line, to_value};

/// What was answered for tasks; work in a checkout has one that lives as long as this process.
#[derive(Debug, Default)]
pub(crate) struct TaskAnswers(Mutex<Vec<(TaskId, RememberedAnswer)>>);

impl TaskAnswers {
    /// Gives what was answered for one task in a repository.
    pub(crate) fn of(&self, task: &TaskId, root: &BytePath) -> Vec<RememberedAnswer> {
        self.lock()
            .iter()
            .filter(|(of, one)| of == task && one.repository == *root)
            .map(|(_, one)| one.clone())
            .collect()
    }

    /// Keeps an answer for a task; one about the same gives way.
    pub(crate) fn hold(&self, task: TaskId, answer: RememberedAnswer) {
        let mut answers = self.lock();
        answers.retain(|(of, one)| *of != task || one.what != answer.what);
        answers.push((task, answer));
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(TaskId, RememberedAnswer)>> {
        // Whole after every statement that changes it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Runtime {
    /// Tells whether a yes that is remembered would answer a question.
    pub(super) fn would_recall(&self, question: &Question) -> bool {
        self.recall(&self.of_a_task(question.clone()))
            .is_some_and(|one| one.answer == ApprovalAnswer::Approve)
    }

    fn recall(&self, question: &Question) -> Option<RememberedAnswer> {
        // Two words are said anew each time.
        let what = question
            .remember
            .as_ref()
            .filter(|_| question.entitled != Entitled::Both)?;
        let root = &question.binding.root;
        let task = question.binding.task.as_ref()?;
        let mut answers: Vec<RememberedAnswer> = self
            .task_answers
            .lock()
            .iter()
            .filter(|(of, one)| of == task && one.repository == *root)
            .map(|(_, one)| one.clone())
            .collect();
        answers.extend(remembered_answers(self.data_dir(), root));
        let now = self.plane.ambient().now();
        recall(&answers, what, now).cloned()
    }

    /// Finds the answer to a question that was given before; the journal has it before it counts.
    pub(super) fn recalled(&self, question: &Question) -> Result<Option<Permit>, Problem> {
        let Some(found) = self.recall(question) else {
            return Ok(None);
        };
        let line = found.what.line(found.answer);
        let data = json!({
            "rule_id": found.rule_id,
            "answer": found.answer,
            "line": line,
            "summary": question.summary,
            "binding": question.binding,
        });
        let told = Line::new(event_type::APPROVAL_RECALLED, &question.subject, data);
        self.scribe.say(told)?;
        match found.answer {
            ApprovalAnswer::Approve => Ok(Some(Permit::of(Kind::Write(found.rule_id.to_string())))),
            ApprovalAnswer::Reject => Err(Problem::new(
                ErrorCode::ApprovalRejected,
                format!("the owner said no for good: {line}"),
            )
            .with_details(json!({"rule_id": found.rule_id}))),
        }
    }

    /// Remembers the answer of the owner where it says so: exactly what was asked.
    pub(super) fn keep(&self, approval: &Approval, subject: &Subject) -> Result<(), Problem> {
        let decided = matches!(
            approval.state,
            ApprovalState::Approved | ApprovalState::Rejected
        );
        let Some((answer, what)) = approval
            .answers
            .last()
            .filter(|answer| decided && answer.remember != Remember::Once)
            .zip(approval.ask.remember.clone())
        else {
            return Ok(());
        };
        let ambient = self.plane.ambient();
        let (time, random) = ambient.id_parts();
        let created = ambient.now();
        let binding = &approval.ask.binding;
        let expires = match answer.remember {
            Remember::Repository => {
                let days = answer.remember_days.unwrap_or(limits::REMEMBER_DAYS);
                let length = SignedDuration::from_hours(24 * i64::from(days));
                created.checked_add(length).unwrap_or(created)
            }
            Remember::Once | Remember::Task => Timestamp::MAX,
        };
        let remembered = RememberedAnswer {
            rule_id: RuleId::new(time, random),
            repository: binding.root.clone(),
            answer: answer.answer,
            what,
            approval_id: Some(approval.ask.approval_id.clone()),
            created,
            expires,
        };
        let line = Line::new(
            event_type::APPROVAL_REMEMBERED,
            subject,
            to_value(&remembered)?,
        );
        self.scribe.say(line)?;
        if answer.remember == Remember::Repository {
            return remember_answer(self.data_dir(), remembered);
        }
        let task = binding.task.clone().unwrap_or_else(|| self.plane.work());
        self.task_answers.hold(task, remembered);
        Ok(())
    }

    /// Lists what is remembered and still holds, the newest first: of every repository, and of what
    /// goes on in this process.
    pub fn remembered(&self) -> RememberedPage {
        let now = self.plane.ambient().now();
        let mut all = all_remembered(self.data_dir());
        all.extend(self.task_answers.lock().iter().map(|(_, one)| one.clone()));
        all.sort_by_key(|one| std::cmp::Reverse(one.created));
        RememberedPage {
            remembered: all
                .into_iter()
                .filter(|one| now < one.expires)
                .map(|remembered| RememberedLine {
                    line: remembered.what.line(remembered.answer),
                    remembered,
                })
                .collect(),
        }
    }

    /// Takes a remembered answer back: from now on it is asked again.
    ///
    /// # Errors
    ///
    /// `approval_unknown`; those of writing.
    pub fn forget(&self, request: &ForgetAnswer) -> Result<RememberedLine, Problem> {
        let id = &request.rule_id;
        let of_task = {
            let mut answers = self.task_answers.lock();
            let at = answers.iter().position(|(_, one)| one.rule_id == *id);
            at.map(|at| answers.remove(at).1)
        };
        let found = match of_task {
            Some(found) => Some(found),
            None => forget_answer(self.data_dir(), id)?,
        };
        let found = found.ok_or_else(|| {
            Problem::new(
                ErrorCode::ApprovalUnknown,
                format!("there is no remembered answer {id}"),
            )
            .with_field("rule_id")
            .with_hint("cofferdam approvals remembered lists them")
        })?;
        let line = found.what.line(found.answer);
        let told = json!({"rule_id": id, "line": line});
        // It was said for the task of its question.
        let asked = found.approval_id.as_ref();
        let of = asked.and_then(|id| self.find_approval(id).ok());
        let subject = Subject {
            task: of.and_then(|one| one.ask.binding.task),
            ..Subject::default()
        };
        let line_told = Line::new(event_type::APPROVAL_FORGOTTEN, &subject, told);
        self.scribe.say(line_told)?;
        Ok(RememberedLine {
            line,
            remembered: found,
        })
    }
}
