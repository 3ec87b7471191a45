//! What runs, and what became of what was to be stopped.

use std::fmt::Write as _;

use cofferdam_core::operation::{CommandCancelled, SessionView, TerminalInfo};
use cofferdam_runtime::{CommandStopped, RunningCommand, RunningThings, StopEnd, TaskStopped};

use super::table::Table;
use super::task::next;
use super::{BAD, CAUTION, FAINT, GOOD, PLACE, STRONG, duration, one_line, paint};

/// Renders what runs.
pub(crate) fn running(
    running: &RunningThings,
    sessions: &[SessionView],
    terminals: &[TerminalInfo],
) -> String {
    let is_quiet = running.tasks.is_empty() && running.commands.is_empty();
    if is_quiet && sessions.is_empty() && terminals.is_empty() {
        return "nothing runs\n".to_owned();
    }
    let mut text = String::new();
    if !running.tasks.is_empty() {
        let has_ports = running.tasks.iter().any(|task| !task.ports.is_empty());
        let commands = || running.tasks.iter().flat_map(|task| &task.commands);
        let has_output = commands().any(|command| command.last_output_ms.is_some());
        let mut head = vec!["#", "STATE", "FOR", "PID", "GOAL", "WORKSPACE", "BRANCH"];
        if has_ports {
            head.push("PORTS");
        }
        if has_output {
            head.push("LAST OUTPUT");
        }
        let mut table = Table::new(&head);
        for task in &running.tasks {
            let mut row = vec![
                paint(STRONG, task.number),
                task.state.as_str().to_owned(),
                duration(task.elapsed_ms),
                match task.doubt {
                    None => task.pid.to_string(),
                    Some(_) => paint(CAUTION, format_args!("{}?", task.pid)),
                },
                one_line(&task.goal, 40),
                place(task.workspace.as_ref().map(ToString::to_string)),
                place(task.branch.clone()),
            ];
            if has_ports {
                let ports: Vec<_> = task.ports.iter().map(ToString::to_string).collect();
                row.push(ports.join(" "));
            }
            if has_output {
                row.push(task.commands.last().map_or_else(String::new, last_output));
            }
            table.row(row);
        }
        text.push_str(&table.render());
    }
    if !running.commands.is_empty() {
        if !text.is_empty() {
            text.push('\n');
        }
        let has_output = running
            .commands
            .iter()
            .any(|command| command.last_output_ms.is_some());
        let mut head = vec!["ID", "PID", "FOR"];
        if has_output {
            head.push("LAST OUTPUT");
        }
        head.extend(["COMMAND", "DIRECTORY"]);
        let mut table = Table::new(&head);
        for command in &running.commands {
            let mut row = vec![
                paint(STRONG, &command.command_id),
                command.pid.to_string(),
                duration(command.elapsed_ms),
            ];
            if has_output {
                row.push(last_output(command));
            }
            let mark = if command.background { " &" } else { "" };
            row.push(format!("{}{mark}", one_line(&command.command, 60)));
            row.push(place(command.cwd.clone()));
            table.row(row);
        }
        text.push_str(&table.render());
    }
    for table in [
        super::sessions::running(sessions),
        super::terminals::running(terminals),
    ] {
        if !text.is_empty() && !table.is_empty() {
            text.push('\n');
        }
        text.push_str(&table);
    }
    let mut commands = Vec::new();
    let session = sessions.last().map(super::sessions::name);
    let terminal = terminals.last().map(|terminal| terminal.name.as_str());
    if let Some(name) = terminal.or(session) {
        commands.push(format!("cofferdam attach {name}"));
        commands.push(format!("cofferdam kill {name}"));
    }
    if let Some(command) = running.commands.last() {
        commands.push(format!("cofferdam logs -f {}", command.command_id));
        commands.push(format!("cofferdam kill {}", command.command_id));
    }
    if let Some(task) = running.tasks.last() {
        commands.push(format!("cofferdam review {}", task.number));
        commands.push(format!("cofferdam logs -f {}", task.number));
        commands.push(format!("cofferdam stop {}", task.number));
        if running.tasks.len() > 1 {
            commands.push("cofferdam stop --all".to_owned());
        }
    }
    text.push_str(&next(&commands));
    text
}

fn place(text: Option<String>) -> String {
    text.map_or_else(String::new, |text| paint(PLACE, one_line(&text, 60)))
}

fn last_output(command: &RunningCommand) -> String {
    command
        .last_output_ms
        .map_or_else(String::new, |age| format!("{} ago", duration(age)))
}

/// Renders what became of commands that were to be ended.
pub(crate) fn cancelled(commands: &[CommandCancelled]) -> String {
    let mut text = String::new();
    for one in commands {
        let Some(record) = &one.command else { continue };
        let word = if one.ended {
            paint(GOOD, "ended")
        } else {
            paint(CAUTION, "still running:")
        };
        let _ = writeln!(
            text,
            "{word} {} ({}) {}",
            record.command_id,
            record.status,
            one_line(&record.command, 60)
        );
    }
    text
}

fn end_word(end: StopEnd) -> String {
    match end {
        StopEnd::Stopped => paint(GOOD, "stopped"),
        StopEnd::NotRunning => paint(FAINT, "had ended already:"),
        StopEnd::StillRunning => paint(CAUTION, "still running:"),
        StopEnd::Refused => paint(BAD, "not stopped:"),
    }
}

/// Renders what became of tasks and commands that were to be stopped.
pub(crate) fn stopped(tasks: &[TaskStopped], commands: &[CommandStopped]) -> String {
    if tasks.is_empty() && commands.is_empty() {
        return "nothing runs\n".to_owned();
    }
    let mut text = String::new();
    for one in commands {
        let (word, command) = (end_word(one.end), one_line(&one.command, 60));
        let _ = writeln!(text, "{word} {command} (process {})", one.pid);
    }
    for task in tasks {
        let word = end_word(task.end);
        let kept = match &task.branch {
            Some(branch) => format!("its work is on branch {}", paint(PLACE, branch)),
            None if matches!(task.end, StopEnd::Stopped | StopEnd::NotRunning) => {
                "it left no work to bring in".to_owned()
            }
            None => String::new(),
        };
        let line = format!("{word} task {} ({}) {kept}", task.number, task.status);
        text.push_str(line.trim_end());
        text.push('\n');
    }
    if let Some(last) = tasks.last() {
        text.push_str(&next(&last.next));
    }
    text
}

#[cfg(test)]
mod tests {
    use cofferdam_core::id::TaskId;
    use cofferdam_core::outcome::Status;
    use cofferdam_core::task::IsolationMode;
    use cofferdam_runtime::{RunningTask, TaskState};

    use super::*;
    use crate::render::plain;

    fn command(id: &str) -> RunningCommand {
        RunningCommand {
            command_id: id.to_owned(),
            pid: 77,
            command: "make check".to_owned(),
            cwd: Some("/code/app".to_owned()),
            elapsed_ms: 2_000,
            last_output_ms: Some(500),
            background: id == "cmd_2",
        }
    }

    #[test]
    fn what_runs_is_one_table_of_tasks_and_one_of_commands() {
        let task = RunningTask {
            task_id: TaskId::new(0, [0; 10]),
            number: 4,
            goal: "fix the parser".to_owned(),
            command: "agent fix".to_owned(),
            state: TaskState::Running,
            isolation_mode: IsolationMode::Worktree,
            pid: 4711,
            doubt: None,
            workspace: Some("/code/app".into()),
            tree: Some("/data/tree".into()),
            branch: Some("cofferdam/4/fix".to_owned()),
            elapsed_ms: 61_000,
            ports: vec![3000],
            commands: vec![command("cmd_1")],
        };
        let running_things = RunningThings {
            tasks: vec![task],
            commands: vec![command("cmd_2")],
        };
        insta::assert_snapshot!(plain(&running(&running_things, &[], &[])), @r"
        #  STATE    FOR        PID   GOAL            WORKSPACE  BRANCH           PORTS  LAST OUTPUT
        4  running  1 min 1 s  4711  fix the parser  /code/app  cofferdam/4/fix  3000   500 ms ago

        ID     PID  FOR    LAST OUTPUT  COMMAND       DIRECTORY
        cmd_2  77   2.0 s  500 ms ago   make check &  /code/app

        next: cofferdam logs -f cmd_2
              cofferdam kill cmd_2
              cofferdam review 4
              cofferdam logs -f 4
              cofferdam stop 4
        ");
        assert_eq!(
            running(&RunningThings::default(), &[], &[]),
            "nothing runs\n"
        );
    }

    #[test]
    fn a_stopped_task_says_where_its_work_is() {
        let of = |end, branch: Option<&str>| TaskStopped {
            number: 4,
            end,
            status: Status::Failed,
            branch: branch.map(str::to_owned),
            problem: None,
            next: vec!["cofferdam review 4".to_owned()],
        };
        let said = plain(&stopped(
            &[
                of(StopEnd::Stopped, Some("cofferdam/4/fix")),
                of(StopEnd::NotRunning, None),
                of(StopEnd::StillRunning, None),
            ],
            &[CommandStopped {
                command_id: "cmd_1".to_owned(),
                command: "sleep 300".to_owned(),
                pid: 7,
                end: StopEnd::Stopped,
                problem: None,
            }],
        ));
        insta::assert_snapshot!(said, @r"
        stopped sleep 300 (process 7)
        stopped task 4 (failed) its work is on branch cofferdam/4/fix
        had ended already: task 4 (failed) it left no work to bring in
        still running: task 4 (failed)

        next: cofferdam review 4
        ");
    }
}
