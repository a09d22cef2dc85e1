//! The JSON forms of the server's answers; their fields are an interface and are only extended.

use std::collections::BTreeMap;

use rms_api::answer::{ClusterView, JobLine, JobState, Lacking, NodeLine, NodeState, Reason, Required, Status};
use rms_api::audit::AuditEntry;
use rms_model::token::{Issued, Token, TokenIdentity, TokenState};
use rms_model::{
    ClusterId, Devices, Grant, JobId, Outcome, Profile, Request, ResourceRequest, Sizes, Slice, Span, Time,
};
use serde_json::{Map, Value, json};

use crate::names::ClusterNames;
use crate::stamp;

/// Returns a time as ISO 8601 with its offset from UTC, or null.
pub fn time(time: Option<Time>) -> Value {
    time.and_then(stamp::iso).map_or(Value::Null, Value::String)
}

/// Returns a span in whole milliseconds.
pub fn span(span: Span) -> Value {
    json!(span.as_millis())
}

pub fn job_id(job: JobId) -> Value {
    json!(job.0)
}

/// Returns the numbers of nodes by the name of their cluster.
pub fn nodes(request: &Request, clusters: &ClusterNames) -> Value {
    let entry = |(cluster, count): (&ClusterId, &u32)| (clusters.name(*cluster), json!(count));
    Value::Object(request.nodes.iter().map(entry).collect::<Map<_, _>>())
}

pub fn request(request: &Request, clusters: &ClusterNames) -> Value {
    json!({"nodes": request.n_nodes(), "nodes_by_cluster": nodes(request, clusters), "wall_ms": span(request.wall)})
}

pub fn outcome(outcome: Option<&Outcome>) -> Value {
    let Some(outcome) = outcome else {
        return Value::Null;
    };
    let (code, signal) = outcome.code_signal();
    json!({"word": outcome.word(), "code": code, "signal": signal, "text": outcome.to_string()})
}

/// Returns why a job waits, or what it awaits of its launcher once it has started.
pub fn reason_of(line: &JobLine) -> Value {
    match (&line.reason, line.state) {
        (Some(Reason::NoRequest { until }), JobState::Started) => json!({"kind": "no_launch", "until": time(*until)}),
        (why, _) => reason(why.as_ref()),
    }
}

pub fn reason(reason: Option<&Reason>) -> Value {
    let Some(reason) = reason else {
        return Value::Null;
    };
    match reason {
        Reason::Held { by } => json!({"kind": "held", "by": by}),
        Reason::NotBefore { at } => json!({"kind": "not_before", "at": time(Some(*at))}),
        Reason::NotPlanned { next_pass } => json!({"kind": "not_planned", "next_pass": time(Some(*next_pass))}),
        Reason::NoRequest { until } => json!({"kind": "no_request", "until": time(*until)}),
        Reason::AgentsExpected { cluster, n_nodes, until } => {
            json!({"kind": "agents_expected", "cluster": cluster, "nodes": n_nodes, "until": time(Some(*until))})
        }
        Reason::LauncherAway { since, until } => {
            json!({"kind": "launcher_away", "since": time(Some(*since)), "until": time(*until)})
        }
        Reason::BeyondDepth { depth, position } => {
            json!({"kind": "beyond_depth", "depth": depth, "position": position})
        }
        Reason::TooFewNodes { cluster, wanted, usable, total, licence, contiguous, lacking } => json!({
            "kind": "too_few_nodes", "cluster": cluster, "wanted": wanted, "usable": usable, "total": total,
            "licence": licence, "contiguous": contiguous, "lacking": lacking.as_deref().map(self::lacking),
        }),
        Reason::Behind { policy, job, until } => {
            json!({"kind": "behind", "policy": policy.to_string(), "job": job_id(*job), "until": time(Some(*until))})
        }
        Reason::Blocked {
            cluster,
            wanted,
            capacity,
            busy,
            from,
            until,
            by,
            total,
            short,
            licence,
            neighbours,
            lenders,
        } => {
            json!({
                "kind": "blocked", "cluster": cluster, "wanted": wanted, "capacity": capacity, "busy": busy, "total": total,
                "licence": licence, "neighbours": neighbours, "lenders": lenders,
                "from": time(Some(*from)), "until": time(Some(*until)),
                "short": short.as_ref().map(|short| json!({
                    "each": slice(&short.each), "nodes_with_cores": short.with_cores,
                    "nodes_with_memory": short.with_memory, "nodes_with_devices": short.with_devices,
                })),
                "by": by.iter().map(|blocker| json!({
                    "job": job_id(blocker.job), "state": blocker.state.word(), "nodes": blocker.nodes,
                    "from": time(Some(blocker.from)), "until": time(Some(blocker.until)), "is_offer": blocker.is_offer,
                    "is_promised": blocker.is_promised,
                })).collect::<Vec<_>>(),
            })
        }
    }
}

/// Returns the requirement that too few usable nodes meet.
fn lacking(Lacking { required, n_nodes, among, unusable, unknown }: &Lacking) -> Value {
    let (what, wanted) = match required {
        Required::Names => ("names", Value::Null),
        Required::Features(features) => ("features", json!(features)),
        Required::Sockets(count) => ("sockets", json!(count)),
        Required::Speed(milli) => ("speed_milli", json!(milli)),
        Required::Scratch(scratch) => ("scratch_mib", json!(scratch.0)),
        Required::Cores(count) => ("cores", json!(count)),
        Required::Cpus(count) => ("cpus", json!(count)),
        Required::Memory(memory) => ("memory_mib", json!(memory.0)),
        Required::Devices(devices) => ("devices", json!(devices)),
    };
    json!({"what": what, "wanted": wanted, "nodes": n_nodes, "among": among, "unusable": unusable, "unknown": unknown})
}

/// Returns resources that are taken of a node, or free on it.
pub fn slice(slice: &Slice) -> Value {
    json!({"cores": slice.cores, "memory_mib": slice.memory.0, "devices": slice.devices})
}

/// Returns the resources that a job requests of its nodes in addition to tasks and CPUs.
pub fn resources(asked: &ResourceRequest) -> Value {
    json!({
        "memory_per_cpu_mib": asked.memory_per_cpu.0,
        "devices": asked.devices,
        "devices_in_all": asked.devices_in_all,
        "licences": asked.licences,
        "tasks_per_node": asked.tasks_per_node,
        "exclusive": asked.exclusive,
        "packing": asked.packing.word(),
        "one_thread_a_core": asked.one_thread_a_core,
        "share": asked.share,
        "min_cpus_per_node": asked.min_cpus_per_node,
        "min_cpus_per_task": asked.min_cpus_per_task,
        "cores_per_package": asked.cores_per_package,
        "contiguous": asked.contiguous,
    })
}

/// Returns what a job has of a node that it shares.
pub fn licences(licences: &BTreeMap<ClusterId, Devices>, clusters: &ClusterNames) -> Value {
    licences.iter().map(|(cluster, licences)| (clusters.name(*cluster), json!(licences))).collect()
}

pub fn grant(grant: &Grant) -> Value {
    let devices = grant.devices.iter().map(|(name, indices)| (name.clone(), indices.to_string().into()));
    json!({
        "cores": grant.cores.to_string(),
        "memory_mib": grant.memory.0,
        "devices": devices.collect::<serde_json::Map<_, _>>(),
    })
}

pub fn node(node: &NodeLine) -> Value {
    let inventory = &node.inventory;
    json!({
        "node": node.name,
        "cluster": node.cluster,
        "state": node.state.word(),
        "usable": is_usable(node.state),
        "reason": node.reason,
        "since": time(Some(node.since)),
        "address": node.address,
        "generation": node.generation.0,
        "jobs": node.jobs.iter().copied().map(job_id).collect::<Vec<_>>(),
        "sockets": inventory.sockets,
        "numa_nodes": inventory.numa_nodes,
        "cores": inventory.cores,
        "cpus": inventory.cpus,
        "memory_mib": inventory.memory.0,
        "scratch_mib": inventory.scratch.0,
        "speed": f64::from(inventory.speed_milli) / 1000.0,
        "features": inventory.features,
        "devices": inventory.devices,
        "unenforced": inventory.unenforced,
        "free": node.free.as_ref().filter(|_| is_usable(node.state)).map(slice),
    })
}

/// Returns whether new jobs may be placed on a node in this state.
pub fn is_usable(state: NodeState) -> bool {
    match state {
        NodeState::Idle | NodeState::Busy | NodeState::Ghost => true,
        NodeState::Draining | NodeState::Drained | NodeState::Down | NodeState::Away | NodeState::Lost => false,
    }
}

/// Returns `[{"from", "nodes"}]`, the last step with 0 nodes.
pub fn profile(profile: &Profile) -> Value {
    let step = |step: rms_model::profile::Step| json!({"from": time(Some(step.from)), "nodes": step.nodes});
    Value::Array(profile.steps().map(step).collect())
}

pub fn cluster_view(view: &ClusterView) -> Value {
    json!({
        "cluster": view.name,
        "capacity": view.capacity,
        "choosable": view.choosable,
        "total": view.total,
        "started": profile(&view.started),
        "ghosts": profile(&view.ghosts),
        "planned": profile(&view.planned),
        "offered": profile(&view.offered),
        "cores": view.cores.as_ref().map(|cores| json!({
            "capacity": cores.capacity,
            "taken": profile(&cores.taken),
            "planned": profile(&cores.planned),
        })),
    })
}

pub fn audit_entry(change: &AuditEntry) -> Value {
    json!({
        "at": time(Some(change.at)),
        "by": change.by,
        "action": change.action,
        "key": change.subject,
        "old": change.old,
        "new": change.new,
    })
}

/// Returns the identity as `role/name`; an agent that names itself is `agent/*`.
pub fn token_identity(identity: &TokenIdentity) -> String {
    match identity {
        TokenIdentity::Named(identity) => identity.to_string(),
        TokenIdentity::AnyAgent => "agent/*".to_owned(),
    }
}

pub fn token(token: &Token, ca: &str, now: Time) -> Value {
    json!({
        "token": token.id,
        "identity": token_identity(&token.identity),
        "cluster": token.cluster,
        "created": time(Some(token.created)),
        "created_by": token.created_by,
        "expires": time(Some(token.expires)),
        "state": token_state(token, ca, now),
    })
}

/// Returns a token's state as one word; `ca` is the fingerprint of the signing CA.
pub fn token_state(token: &Token, ca: &str, now: Time) -> &'static str {
    match token.state {
        TokenState::Open if token.expires <= now => "expired",
        TokenState::Open if token.ca.as_ref().is_some_and(|named| named != ca) => "invalid",
        TokenState::Open => "open",
        TokenState::Used { .. } => "used",
        TokenState::Revoked { .. } => "revoked",
    }
}

pub fn issued(issued: &Issued) -> Value {
    json!({
        "serial": issued.serial,
        "identity": issued.identity.to_string(),
        "issued": time(Some(issued.issued)),
        "expires": time(Some(issued.expires)),
        "revoked": time(issued.revoked),
    })
}

pub fn status(status: &Status) -> Value {
    json!({
        "now": time(Some(status.now)),
        "nodes": status.n_nodes,
        "connected": status.n_connected,
        "waiting": status.n_waiting,
        "started": status.n_started,
        "ghosts": status.n_ghosts,
        "submitted": status.n_submitted,
        "passes": status.n_passes,
        "last_pass": time(status.last_pass),
        "queue_depth": status.queue_depth,
        "shortage": status.shortage,
        "ghost_node_ms": span(status.ghost_node_time),
    })
}

/// Returns `any`, `power_of_two`, or an object with the shape's numbers.
pub fn sizes(sizes: &Sizes) -> Value {
    match sizes {
        Sizes::Any => json!("any"),
        Sizes::PowerOfTwo => json!("power_of_two"),
        Sizes::MultipleOf(unit) => json!({"multiple_of": unit}),
        Sizes::Listed(sizes) => json!({"listed": sizes}),
    }
}
