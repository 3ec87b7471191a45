//! The operation table: each operation is told once, here. Its HTTP route, its MCP tool, its form
//! on the command line, its part of the OpenAPI document and its page of the reference come from
//! its entry.
//!
//! To add an operation: its request and result in `core`, what carries it out in `exec` and
//! `runtime`, and an entry in the file of its area below.

mod approvals;
mod background;
mod context;
mod entry;
mod environment;
mod fields;
mod files;
mod mode;
mod outbox;
mod page;
mod paths;
mod protected;
mod run;
mod session;
mod terminal;
mod tools;

pub use context::{OperationContext, OperationHost};
pub use entry::{Annotations, Operation, Scope};
pub use fields::{Field, FieldKind, fields};
pub use page::reference_page;

/// Every operation, in the order in which they are shown.
#[derive(Debug)]
pub struct OperationTable(Vec<Operation>);

impl OperationTable {
    /// Puts the table together.
    pub fn new() -> Self {
        let here = [
            run::operations(),
            environment::operations(),
            background::operations(),
            files::operations(),
            tools::operations(),
            approvals::operations(),
            outbox::operations(),
            mode::operations(),
            protected::operations(),
            paths::operations(),
        ];
        // What these open outlives the call that opened it.
        let of_server = [session::operations(), terminal::operations()];
        let outliving = of_server.into_iter().flatten().map(Operation::outliving);
        Self(here.into_iter().flatten().chain(outliving).collect())
    }

    /// Lends every operation.
    pub fn iter(&self) -> std::slice::Iter<'_, Operation> {
        self.0.iter()
    }

    /// Finds an operation by its name.
    pub fn find(&self, name: &str) -> Option<&Operation> {
        self.0.iter().find(|one| one.name() == name)
    }
}

impl Default for OperationTable {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a> IntoIterator for &'a OperationTable {
    type Item = &'a Operation;
    type IntoIter = std::slice::Iter<'a, Operation>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_entry_is_complete_and_stands_once() {
        let table = OperationTable::new();
        let mut names = BTreeSet::new();
        for operation in &table {
            let name = operation.name();
            assert!(names.insert(name), "{name} stands twice");
            let snake = |sign: char| sign.is_ascii_lowercase() || sign == '_';
            assert!(name.chars().all(snake), "{name}");
            assert!(!operation.summary().ends_with('.'), "{name}");
            assert!(operation.description().ends_with('.'), "{name}");
            for schema in [operation.request_schema(), operation.result_schema()] {
                assert_eq!(schema["type"], "object", "{name}: {schema}");
            }
            let request = operation.request_schema();
            assert_eq!(request["additionalProperties"], false, "{name}");
            let described = request["properties"].as_object().is_none_or(|properties| {
                properties
                    .values()
                    .all(|property| property.get("description").is_some())
            });
            assert!(described, "{name}: {request}");
        }
    }

    #[test]
    fn row_73_no_request_has_room_for_a_grant() {
        fn names(schema: &serde_json::Value, found: &mut Vec<String>) {
            if let Some(properties) = schema["properties"].as_object() {
                assert_eq!(schema["additionalProperties"], false, "{schema}");
                found.extend(properties.keys().cloned());
            }
            match schema {
                serde_json::Value::Object(parts) => {
                    parts.values().for_each(|one| names(one, found));
                }
                serde_json::Value::Array(parts) => parts.iter().for_each(|one| names(one, found)),
                _ => {}
            }
        }
        // What only the owner's token may do is the owner's own word.
        let table = OperationTable::new();
        for operation in table.iter().filter(|one| one.scope() <= Scope::Execute) {
            let mut found = Vec::new();
            names(&operation.request_schema(), &mut found);
            let reserved = [
                "grant",
                "permit",
                "permission",
                "actor",
                "authority",
                "root",
            ];
            let forged = found
                .iter()
                .find(|name| reserved.iter().any(|word| name.contains(word)));
            assert_eq!(forged, None, "{}", operation.name());
        }
    }
}
