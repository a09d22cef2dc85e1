//! What launchers have cost, both ways.

use rms_api::answer::LauncherStatus;
use rms_api::subscription::AdaptationDelays;

use super::{Malformed, all, span};
use crate::answer as wire;
use crate::request::{LauncherReport, LauncherTraffic};

impl From<&LauncherReport> for wire::LauncherReport {
    fn from(report: &LauncherReport) -> wire::LauncherReport {
        let LauncherReport { status, traffic } = report;
        let AdaptationDelays { count, total, longest, buckets } = &status.adaptations;
        let ghosts = status
            .ghost_host_time
            .iter()
            .map(|(cluster, host_time)| wire::GhostTime { cluster: cluster.clone(), host_time: host_time.as_millis() });
        wire::LauncherReport {
            n_launchers: status.n_launchers,
            n_connected: status.n_connected,
            n_notices: status.n_notices,
            notice_bytes: status.notice_bytes,
            n_requests: status.n_requests,
            request_bytes: status.request_bytes,
            n_refused: status.n_refused,
            adaptations: wire::Delays {
                count: *count,
                total: total.as_millis(),
                longest: longest.as_millis(),
                buckets: buckets.clone(),
            },
            ghosts: ghosts.collect(),
            n_open: traffic.n_open,
            n_opened: traffic.n_opened,
            bytes_up: traffic.bytes_up,
            bytes_down: traffic.bytes_down,
        }
    }
}

impl TryFrom<wire::LauncherReport> for LauncherReport {
    type Error = Malformed;

    fn try_from(report: wire::LauncherReport) -> Result<LauncherReport, Malformed> {
        let wire::Delays { count, total, longest, buckets } = report.adaptations;
        let total = span("the sum of adaptation delays", total)?;
        let longest = span("the longest adaptation delay", longest)?;
        let of_ghosts =
            |ghosts: wire::GhostTime| Ok((ghosts.cluster, span("the host time of ghosts", ghosts.host_time)?));
        let status = LauncherStatus {
            n_launchers: report.n_launchers,
            n_connected: report.n_connected,
            n_notices: report.n_notices,
            notice_bytes: report.notice_bytes,
            n_requests: report.n_requests,
            request_bytes: report.request_bytes,
            n_refused: report.n_refused,
            adaptations: AdaptationDelays { count, total, longest, buckets },
            ghost_host_time: all(report.ghosts, of_ghosts)?,
        };
        let traffic = LauncherTraffic {
            n_open: report.n_open,
            n_opened: report.n_opened,
            bytes_up: report.bytes_up,
            bytes_down: report.bytes_down,
        };
        Ok(LauncherReport { status, traffic })
    }
}
