//! Leases of planes, and what dead ones left open.

use cofferdam_core::ambient::FixedAmbient;
use cofferdam_core::event::INTENT_RULES;
use cofferdam_journal::{DataDir, Lease, dead_leases, unsettled};
use serde_json::json;

use crate::support::{event, on_both};

#[test]
fn a_lease_lives_as_long_as_it_is_held() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = DataDir::open(directory.path().join("data")).expect("a data directory");
    assert!(dead_leases(&data).expect("readable").is_empty());
    let ambient = FixedAmbient::default();
    let lease = Lease::take(&data, &ambient, 7).expect("a lease");
    let other = Lease::take(&data, &ambient, 7).expect("a lease");
    assert_ne!(lease.id(), other.id());
    assert!(dead_leases(&data).expect("readable").is_empty());
    let path = data.leases().join(lease.id().as_str());
    // As after a death: the file without its lock.
    let text = std::fs::read(&path).expect("readable");
    drop(lease);
    assert!(!path.exists(), "a lease that was given back leaves nothing");
    std::fs::write(&path, text).expect("writable");
    let dead = dead_leases(&data).expect("readable");
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].record().since_pos, 7);
    assert_eq!(dead[0].record().pid, std::process::id());
    // Whoever settles it is alone.
    assert!(dead_leases(&data).expect("readable").is_empty());
    drop(dead);
    let dead = dead_leases(&data).expect("readable");
    assert_eq!(dead.len(), 1, "what was not buried is found again");
    for lease in dead {
        lease.bury().expect("removed");
    }
    assert!(!path.exists());
    drop(other);
    let left = std::fs::read_dir(data.leases()).expect("readable").count();
    assert_eq!(left, 0);
}

#[test]
fn intents_without_outcome_of_that_lease_are_found() {
    on_both(|journal, ambient| {
        let directory = tempfile::tempdir().expect("a directory");
        let data = DataDir::open(directory.path().join("data")).expect("a data directory");
        let lease = Lease::take(&data, ambient, 0).expect("a lease");
        let other = Lease::take(&data, ambient, 0).expect("a lease");
        let large = "a".repeat(10_000);
        let say = |kind: &str, data| event(ambient, kind, data);
        journal
            .append(&[
                say(
                    "exec.intended",
                    json!({"lease": lease.id(), "command_id": "cmd_1"}),
                ),
                say(
                    "exec.intended",
                    json!({"lease": lease.id(), "command_id": "cmd_2", "argv": [large]}),
                ),
                say(
                    "exec.intended",
                    json!({"lease": other.id(), "command_id": "cmd_3"}),
                ),
                say(
                    "exec.intended",
                    json!({"lease": lease.id(), "command_id": "cmd_4"}),
                ),
                say(
                    "isolation.intended",
                    json!({"lease": lease.id(), "enclosure_id": "encl_1"}),
                ),
                say(
                    "isolation.intended",
                    json!({"lease": lease.id(), "enclosure_id": "encl_2"}),
                ),
                say("isolation.ended", json!({"enclosure_id": "encl_1"})),
                say(
                    "exec.ended",
                    json!({"command_id": "cmd_1", "stdout": large}),
                ),
                say("exec.settled", json!({"command_id": "cmd_4"})),
            ])
            .expect("room");
        let open = unsettled(journal, lease.record(), INTENT_RULES).expect("readable");
        let positions: Vec<u64> = open.iter().map(|event| event.pos).collect();
        assert_eq!(positions, [2, 6]);
        assert_eq!(open[0].data["command_id"], "cmd_2");
        let open = unsettled(journal, other.record(), INTENT_RULES).expect("readable");
        assert_eq!(open.len(), 1);
    });
}
