//! What the events of one task tell beside what the projections do.

use cofferdam_core::event::{Event, event_type};
use cofferdam_core::limits;
use cofferdam_core::outcome::Denial;
use serde_json::Value;

use super::model::{ReviewedDenial, ReviewedHost, ReviewedName, ReviewedStateChange};
use super::reading;

/// What the events of one task tell beside what the projections do.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) hosts: Vec<ReviewedHost>,
    pub(super) undone: Vec<ReviewedName>,
    pub(super) agent_state: Vec<ReviewedStateChange>,
    pub(super) denials: Vec<ReviewedDenial>,
    /// How often each of them came with an outcome, and by itself.
    tallies: Vec<(u64, u64)>,
    pub(super) notes: Vec<String>,
    /// Sentences about what is shown in its own place.
    pub(super) said: Vec<String>,
    /// What each command was, by its id.
    pub(super) kinds: Vec<(String, String)>,
}

impl Told {
    pub(super) fn take(&mut self, event: &Event) {
        reading::host(&mut self.hosts, event);
        reading::undone(&mut self.undone, event);
        reading::agent_state(&mut self.agent_state, event);
        let data = &event.data;
        let command = reading::text(data, &["command_id"]);
        match event.kind.as_str() {
            event_type::EXEC_ENDED => {
                let list = data.get("denials").and_then(Value::as_array);
                for denial in list.into_iter().flatten() {
                    self.denied(event.pos, command.as_deref(), denial, true);
                }
            }
            event_type::POLICY_DENIED => {
                let mut denial = data.clone();
                if let Some(fields) = denial.as_object_mut() {
                    fields.remove("command_id");
                }
                self.denied(event.pos, command.as_deref(), &denial, false);
            }
            event_type::EVIDENCE_RECORDED => {
                let kind = reading::text(data, &["kind"]).unwrap_or_default();
                match (kind.as_str(), command) {
                    ("command" | "setup" | "check", Some(command)) => {
                        self.kinds.push((command, kind));
                    }
                    // What of its own credentials the agent could read is to be known.
                    ("credentials", _) => self.notes.extend(reading::text(data, &["summary"])),
                    ("agent_state", _) => self.said.extend(reading::text(data, &["summary"])),
                    _ => {}
                }
            }
            event_type::VERIFIER_CHECK => {
                self.kinds
                    .extend(command.map(|id| (id, "check".to_owned())));
            }
            event_type::LOG_LINE => {
                let note = reading::text(data, &["text"]);
                self.notes
                    .extend(note.filter(|note| !self.notes.contains(note)));
            }
            _ => {}
        }
    }

    /// Counts a denial. It may come by itself and with the outcome of its command too, so each way is
    /// counted for itself and the larger number holds.
    fn denied(&mut self, pos: u64, command: Option<&str>, denial: &Value, with_outcome: bool) {
        let Ok(mut denial) = serde_json::from_value::<Denial>(denial.clone()) else {
            return;
        };
        let certain = std::mem::take(&mut denial.will_not_change);
        let is_same = |known: &ReviewedDenial| {
            let one = &known.denial;
            (one.source, &one.rule, &one.subject, &one.instead)
                == (
                    denial.source,
                    &denial.rule,
                    &denial.subject,
                    &denial.instead,
                )
        };
        let known = self.denials.iter().position(is_same);
        let place = known.unwrap_or(self.denials.len());
        if known.is_none() {
            self.denials.push(ReviewedDenial {
                denial,
                times: 0,
                commands: Vec::new(),
                pos,
            });
            self.tallies.push((0, 0));
        }
        let (known, tally) = (&mut self.denials[place], &mut self.tallies[place]);
        if with_outcome {
            tally.0 += 1;
        } else {
            tally.1 += 1;
        }
        known.times = tally.0.max(tally.1);
        if let Some(command) = command
            && !known.commands.iter().any(|one| one == command)
        {
            known.commands.push(command.to_owned());
        }
        known.denial.will_not_change |=
            certain || known.times >= limits::DENIALS_UNTIL_WILL_NOT_CHANGE as u64;
    }
}
