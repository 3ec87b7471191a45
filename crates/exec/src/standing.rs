//! Walls as they stand: planned, told of, put up, and taken down again.

use std::sync::Arc;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::Problem;
use cofferdam_core::event::{NewEvent, Severity, Subject, event_type};
use cofferdam_core::id::EnclosureId;
use cofferdam_core::outcome::{CommandOutcome, EndedBy, Isolation, IsolationLevel};
use cofferdam_core::ports::PublishedPort;
use cofferdam_core::spec::{Digest, EnclosureSpec, Mechanism};
use cofferdam_sandbox::GroupPlan;
use serde_json::json;

use crate::backend::Backend;
use crate::files::Workers;
use crate::guard::Guard;
use crate::limits::{self, Limiter};
use crate::network::{Door, Opening};
use crate::plane::Plane;
use crate::ports::Ports;
use crate::provider::{self, Occupancy, Scratch};
use crate::run::{self, Run};

/// What commands of one enclosure have in common.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) plane: Plane,
    pub(crate) id: EnclosureId,
    pub(crate) hash: Digest,
    pub(crate) spec: EnclosureSpec,
    pub(crate) isolation: Isolation,
    pub(crate) output_limit: Option<u64>,
    guard: Option<Guard>,
    pub(crate) ports: Option<Ports>,
    door: Option<Door>,
}

impl Place {
    /// Lends the way out, where the network is restricted.
    pub(crate) const fn door(&self) -> Option<&Door> {
        self.door.as_ref()
    }

    pub(crate) const fn guard(&self) -> Option<&Guard> {
        self.guard.as_ref()
    }

    /// The event that says that the walls are down.
    fn ended(&self, reason: &str, by: EndedBy, subject: &Subject) -> NewEvent {
        self.plane.event(
            subject,
            event_type::ISOLATION_ENDED,
            Severity::Debug,
            json!({"enclosure_id": self.id, "reason": reason, "ended_by": by}),
        )
    }

    /// Lists the ports of the place that were opened outside.
    pub(crate) fn published(&self) -> Vec<PublishedPort> {
        self.ports
            .as_ref()
            .map(Ports::published)
            .unwrap_or_default()
    }
}

/// The walls as they stand now; put up anew when the host took a part of them away.
#[derive(Debug)]
pub(crate) struct Standing {
    pub(crate) place: Place,
    // Before the backend, so that they leave before the walls come down.
    workers: Workers,
    pub(crate) backend: Box<dyn Backend>,
    _scratch: Option<Scratch>,
}

impl Standing {
    /// Lends the plan of the place.
    pub(crate) const fn spec(&self) -> &EnclosureSpec {
        &self.place.spec
    }

    /// Lends those who serve files in it.
    pub(crate) const fn workers(&self) -> &Workers {
        &self.workers
    }

    pub(crate) fn backend(&self) -> &dyn Backend {
        self.backend.as_ref()
    }
}

/// A place before its walls are put up.
struct Planned {
    id: EnclosureId,
    hash: Digest,
    spec: EnclosureSpec,
    isolation: Isolation,
    /// The control group that bounds it, to be made.
    group: Option<GroupPlan>,
}

impl Planned {
    fn new(plane: &Plane, spec: &EnclosureSpec, requested: IsolationLevel) -> Self {
        let (milliseconds, random) = plane.ambient().id_parts();
        let id = EnclosureId::new(milliseconds, random);
        Self {
            group: limits::plan(|| plane.control_trees(), spec, id.as_str()),
            id,
            hash: spec.hash(),
            spec: spec.clone(),
            isolation: isolation(spec, requested),
        }
    }

    fn intent(&self, plane: &Plane, subject: &Subject) -> NewEvent {
        let mut data = json!({
            "enclosure_id": self.id,
            "spec_hash": self.hash,
            "provider": self.spec.provider,
            "scratch": self.spec.scratch,
            "lease": plane.lease(),
        });
        if let Some(group) = &self.group {
            let paths: Vec<BytePath> = group.paths().map(BytePath::from).collect();
            data["control_groups"] = json!(paths);
        }
        plane.event(
            subject,
            event_type::ISOLATION_INTENDED,
            Severity::Debug,
            data,
        )
    }

    /// Puts the walls up and tells of it with the next step of the journal.
    fn stand(
        self,
        plane: &Plane,
        subject: &Subject,
        occupancy: Occupancy,
    ) -> Result<Standing, Problem> {
        let Self {
            id,
            hash,
            spec,
            mut isolation,
            group,
        } = self;
        let about = About {
            plane,
            subject,
            id: &id,
        };
        let raised = raise(&about, &spec, occupancy, group.as_ref()).map_err(|problem| {
            let data = json!({"enclosure_id": id, "reason": "failed", "problem": problem});
            plane.record_later(subject, event_type::ISOLATION_ENDED, Severity::Error, data);
            problem
        });
        let Raised {
            scratch,
            guard,
            ports,
            door,
            backend,
        } = raised?;
        if backend.limiter().is_some_and(Limiter::has_group) {
            isolation.enforced_by.push(Mechanism::Cgroup);
            isolation.enforced_by.sort_unstable();
        }
        plane.record_later(
            subject,
            event_type::ISOLATION_ENCLOSED,
            Severity::Info,
            json!({
                "enclosure_id": id,
                "spec_hash": hash,
                "requested": isolation.requested,
                "effective": isolation.effective,
                "enforced_by": isolation.enforced_by,
                "gaps": isolation.gaps,
            }),
        );
        let output_limit = spec.limits.output_bytes;
        let place = Place {
            plane: plane.clone(),
            id,
            hash,
            spec,
            isolation,
            output_limit,
            guard,
            ports,
            door,
        };
        Ok(Standing {
            place,
            workers: Workers::default(),
            backend,
            _scratch: scratch,
        })
    }
}

pub(crate) fn stand(
    plane: &Plane,
    spec: &EnclosureSpec,
    requested: IsolationLevel,
    subject: &Subject,
) -> Result<Standing, Problem> {
    let planned = Planned::new(plane, spec, requested);
    plane.append(vec![planned.intent(plane, subject)])?;
    planned.stand(plane, subject, Occupancy::Many)
}

/// Runs one command in a place of its own: both intents in one step, then the walls and the
/// command, then everything that came of it in one step.
pub(crate) fn run_once(
    plane: &Plane,
    spec: EnclosureSpec,
    requested: IsolationLevel,
    run: Run<'_>,
    last: &mut dyn FnMut(&CommandOutcome) -> Vec<NewEvent>,
) -> CommandOutcome {
    let planned = Planned::new(plane, &spec, requested);
    let isolation = planned.isolation.clone();
    let prepared = match run::prepare(plane, &spec, run) {
        Ok(prepared) => prepared,
        Err(not) => return run::never_ran(plane, isolation, *not),
    };
    let subject = prepared.subject().clone();
    let intents = vec![
        planned.intent(plane, &subject),
        prepared.intent(plane, &planned.id, &planned.hash),
    ];
    if let Err(problem) = plane.append(intents) {
        return run::never_ran(plane, isolation, prepared.refuse(problem));
    }
    let occupancy = prepared.occupancy();
    let control = prepared.control();
    let command_id = prepared.command_id().clone();
    let standing = match planned.stand(plane, &subject, occupancy) {
        Ok(standing) => standing,
        Err(problem) => {
            return run::never_ran_as(plane, command_id, isolation, prepared.refuse(problem));
        }
    };
    let (mut outcome, told) = prepared.run(&standing.place, standing.backend.as_ref());
    let by = standing.end();
    let mut after = vec![standing.place.ended("closed", by, &subject)];
    after.extend(last(&outcome));
    if let Err(problem) = plane.record_all(&subject, told, &outcome, after) {
        outcome.error.get_or_insert(problem);
    }
    run::forget(&control);
    outcome
}

/// On whose behalf a place is put up.
struct About<'a> {
    plane: &'a Plane,
    subject: &'a Subject,
    id: &'a EnclosureId,
}

struct Raised {
    scratch: Option<Scratch>,
    guard: Option<Guard>,
    ports: Option<Ports>,
    door: Option<Door>,
    backend: Box<dyn Backend>,
}

fn raise(
    about: &About<'_>,
    spec: &EnclosureSpec,
    occupancy: Occupancy,
    group: Option<&GroupPlan>,
) -> Result<Raised, Problem> {
    // Ports are asked of the keeper while commands run, and so is the listener of a way out.
    let occupancy = if spec.ports.is_empty() && spec.egress.is_none() {
        occupancy
    } else {
        Occupancy::Many
    };
    let plane = about.plane;
    let mut opening = match &spec.egress {
        Some(egress) => Opening::prepare(plane, egress)?,
        None => Opening::default(),
    };
    let completed = opening.complete(spec);
    let spec = completed.as_ref().unwrap_or(spec);
    let scratch = if provider::needs_scratch(spec) {
        Some(Scratch::make(spec)?)
    } else {
        None
    };
    let guard = Guard::new(&spec.protections, &spec.mounts)?;
    let backend = provider::enclose(plane, spec, occupancy, group)?;
    // A file that was replaced while the walls went up would lie bare behind them.
    if let Some(problem) = guard.as_ref().and_then(Guard::look) {
        return Err(problem);
    }
    let ports = match backend.network() {
        Some(network) => Some(Ports::open(
            plane,
            about.subject,
            about.id,
            &spec.ports,
            network,
        )?),
        None => None,
    };
    let door = match &spec.egress {
        Some(egress) => {
            let of = (about.id, about.subject);
            Some(Door::open(
                plane,
                of,
                (egress, opening),
                &spec.workspace,
                backend.network(),
            )?)
        }
        None => None,
    };
    Ok(Raised {
        scratch,
        guard,
        ports,
        door,
        backend,
    })
}

pub(crate) fn take_down(
    standing: Option<Arc<Standing>>,
    reason: &str,
    subject: &Subject,
) -> EndedBy {
    let Some(standing) = standing else {
        return EndedBy::Itself;
    };
    let by = standing.end();
    let place = &standing.place;
    place
        .plane
        .append_later(vec![place.ended(reason, by, subject)]);
    by
}

impl Standing {
    /// Ends everything in the place and takes the walls down.
    fn end(&self) -> EndedBy {
        let ports = self.place.ports.as_ref();
        ports.inspect(|ports| ports.stop());
        let by = self.backend.end();
        ports.inspect(|ports| ports.end());
        if let Some(door) = self.place.door() {
            door.close();
        }
        by
    }
}

pub(crate) fn isolation(spec: &EnclosureSpec, requested: IsolationLevel) -> Isolation {
    Isolation {
        requested,
        effective: IsolationLevel {
            provider: Some(spec.provider),
            network: spec.network,
        },
        enforced_by: spec.enforced_by.clone(),
        gaps: spec.gaps.clone(),
        uid: spec.identity.uid,
    }
}
