//! Traces facts: one line for each that became durable, with job, node and originator in fields.

use rms_core::Fact;

/// Facts that admins follow are logged at `info`. Jobs are many: their steps are logged at `debug`, and their ends are
/// in the history.
pub fn fact(fact: &Fact) {
    match fact {
        Fact::JobSubmitted { job, spec, .. } => {
            tracing::debug!(target: "facts", %job, owner = spec.owner.0, name = spec.labels.name, "submitted");
        }
        Fact::JobStarted { job, run, nodes, .. } => {
            tracing::debug!(target: "facts", %job, %run, n_nodes = nodes.len(), "started");
        }
        Fact::JobDone { record, .. } => {
            tracing::debug!(target: "facts", job = %record.job, run = %record.run, outcome = %record.outcome, "done");
        }
        Fact::JobRequeued { job, .. } => {
            tracing::warn!(target: "facts", %job, "requeued: a node or a supervisor of it was lost")
        }
        Fact::NodeJoined { node, name, .. } => tracing::info!(target: "facts", %node, name, "node joined"),
        Fact::NodeLinkChanged { node, link } => tracing::info!(target: "facts", %node, ?link, "node link"),
        Fact::NodeAdminChanged { node, admin } => tracing::info!(target: "facts", %node, ?admin, "node changed"),
        Fact::NodeRemoved { node } => tracing::info!(target: "facts", %node, "node removed"),
        Fact::SettingChanged { change } => {
            let (key, old, new) = (&change.subject, &change.old, &change.new);
            tracing::info!(target: "facts", by = change.by, key, old, new, "setting changed");
        }
        Fact::DepthChosen { depth } => tracing::info!(target: "facts", depth, "queue depth chosen"),
        Fact::Audited { entry } => {
            let (action, subject, detail) = (&entry.action, &entry.subject, &entry.new);
            tracing::info!(target: "facts", by = entry.by, action, subject, detail, "audit");
        }
        Fact::ClusterRemoved { cluster } => tracing::info!(target: "facts", %cluster, "cluster removed"),
        Fact::TokenCreated { token } => {
            tracing::info!(target: "facts", token = token.id, by = token.created_by, "token created");
        }
        Fact::TokenUsed { id, .. } => tracing::info!(target: "facts", token = id, "token used"),
        Fact::TokenRevoked { id, by, .. } => tracing::info!(target: "facts", token = id, by, "token revoked"),
        Fact::CertificateIssued { issued } => {
            let (peer, serial) = (&issued.identity, &issued.serial);
            tracing::info!(target: "facts", %peer, serial, "certificate issued");
        }
        Fact::CertificatesRevoked { serials, by, .. } => {
            tracing::warn!(target: "facts", by, ?serials, "certificates revoked");
        }
        Fact::StageEntered { job, gained, freed, course, .. } => {
            let (stage, n_gained, n_freed) = (course.number, gained.len(), freed.len());
            tracing::debug!(target: "facts", %job, stage, n_gained, n_freed, "next stage");
        }
        Fact::JobHeld { job, .. }
        | Fact::JobReleased { job, .. }
        | Fact::JobPriorityChanged { job, .. }
        | Fact::JobUpdated { job, .. }
        | Fact::RequestSent { job, .. }
        | Fact::ShareRunning { job, .. }
        | Fact::ShareEnded { job, .. }
        | Fact::JobEnding { job, .. }
        | Fact::CourseSet { job, .. }
        | Fact::NodesFreed { job, .. }
        | Fact::NodesGhosted { job, .. }
        | Fact::NodesChosen { job, .. }
        | Fact::ProfileChanged { job, .. }
        | Fact::GhostExpired { job } => tracing::debug!(target: "facts", %job, "{fact:?}"),
        Fact::NodeGhostsExpired { nodes, .. } => tracing::debug!(target: "facts", ?nodes, "ghosts expired"),
        Fact::LauncherSubscribed { job, spec, .. } => {
            tracing::info!(target: "facts", %job, owner = spec.owner.0, name = spec.labels.name, "a launcher subscribed");
        }
        Fact::ClusterLinkSet { link, by, .. } => {
            tracing::info!(target: "facts", ?link, by, "link between clusters set")
        }
        Fact::DialogueChanged { job, dialogue, .. } => {
            let (id, phase, round) = (dialogue.id(), dialogue.phase(), dialogue.round());
            tracing::debug!(target: "facts", %job, %id, %phase, round, "negotiation");
        }
        Fact::PromiseWarned { job, negotiation, .. } => {
            tracing::warn!(target: "facts", %job, %negotiation, "the job has not released what it promised");
        }
        Fact::PromisedNodesLost { job, negotiation, .. } => {
            tracing::debug!(target: "facts", %job, %negotiation, "promised nodes are lost");
        }
        Fact::NodesHeld { job, .. }
        | Fact::NodesDeparting { job, .. }
        | Fact::NodesStay { job }
        | Fact::NodesReleased { job, .. }
        | Fact::LimitsDeclared { job, .. }
        | Fact::LossDeclared { job, .. }
        | Fact::LoanCalled { job, .. }
        | Fact::LoanEnded { job, .. }
        | Fact::CoresSet { job, .. }
        | Fact::GrantsSet { job, .. }
        | Fact::LicencesSet { job, .. }
        | Fact::CpusShared { job, .. }
        | Fact::CpusInForce { job, .. }
        | Fact::CoresInForce { job, .. } => tracing::debug!(target: "facts", %job, "{fact:?}"),
        Fact::LauncherLinkChanged { job, .. }
        | Fact::LauncherRequested { job, .. }
        | Fact::LauncherLaunched { job, .. }
        | Fact::LauncherAccepted { job, .. }
        | Fact::GhostParted { job, .. }
        | Fact::GhostPartExpired { job, .. } => tracing::debug!(target: "facts", %job, "{fact:?}"),
        Fact::ClusterAdded { .. }
        | Fact::NodeDescribed { .. }
        | Fact::NodeFenced { .. }
        | Fact::NodeGenerationRaised { .. }
        | Fact::JobsQueued { .. }
        | Fact::StartsPromised { .. }
        | Fact::TokenForgotten { .. }
        | Fact::CertificateForgotten { .. } => tracing::debug!(target: "facts", "{fact:?}"),
    }
}
