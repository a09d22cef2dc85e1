//! The answer of `rms admin status`: counters and sizes of the server, and the cost of launchers.

use launcher_sdk::{LauncherReport, ServerReport};
use rms_api::answer::Status;
use rms_api::subscription::ADAPTATION_BOUNDS;
use rms_model::plain::plain;
use rms_model::{Span, Time};
use serde_json::{Value, json};

use crate::json;
use crate::output::Show;
use crate::screen;
use crate::stamp;
use crate::table::Table;

/// The status of the server's core, and of launchers.
pub struct StatusAnswer {
    pub status: Status,
    pub report: LauncherReport,
    pub server: ServerReport,
}

impl StatusAnswer {
    /// Returns the mean of the adaptation delays.
    fn mean_delay(&self) -> Span {
        let delays = &self.report.status.adaptations;
        let count = i64::try_from(delays.count.max(1)).unwrap_or(i64::MAX);
        Span::from_millis(delays.total.as_millis() / count)
    }

    fn uptime(&self) -> Span {
        self.status.now.since(self.server.since)
    }

    fn server_text(&self) -> String {
        let server = &self.server;
        let snapshot = match server.snapshot {
            Some(at) => {
                format!("{}, {} KiB", stamp::iso_secs(at), server.snapshot_bytes.div_ceil(1024))
            }
            None => "none yet".to_owned(),
        };
        format!(
            "server     version {}, up for {}, since {}\njournal    {} KiB with the history; last snapshot: {snapshot}\n",
            server.version,
            stamp::brief(self.uptime()),
            stamp::iso_secs(server.since),
            server.journal_bytes.div_ceil(1024),
        ) + &self.history_text()
            + &self.shortage_text()
    }

    fn history_text(&self) -> String {
        let failure = self.server.history_failure.as_deref().map(plain);
        failure.map_or_else(String::new, |failure| format!("history    {failure}\n"))
    }

    fn core_text(&self) -> String {
        let status = &self.status;
        format!(
            "nodes      {} of {} connected\njobs       {} waiting, {} started, {} ghosts, {} ever submitted\n\
             scheduler  {} passes, the last {}; {}\nghosts     kept nodes idle for {} (node time)\n",
            status.n_connected,
            status.n_nodes,
            status.n_waiting,
            status.n_started,
            status.n_ghosts,
            status.n_submitted,
            status.n_passes,
            status.last_pass.map_or_else(|| "never".to_owned(), stamp::iso_secs),
            status.queue_depth.map_or_else(|| "all jobs are considered".to_owned(), depth),
            stamp::brief(status.ghost_node_time),
        )
    }

    fn shortage_text(&self) -> String {
        let shortage = self.status.shortage.as_deref().map(plain);
        shortage.map_or_else(String::new, |shortage| format!("starts     no job starts now: {shortage}\n"))
    }

    fn launchers_text(&self) -> String {
        let (status, traffic) = (&self.report.status, &self.report.traffic);
        let of_ghosts = status.ghost_node_time.iter();
        let of_ghosts: String = of_ghosts
            .map(|(cluster, span)| format!("           {} {}\n", plain(cluster), stamp::brief(*span)))
            .collect();
        format!(
            "{of_ghosts}launchers  {} of {} connected; {} channels were opened, {} bytes came and {} went\n\
             views      {} sent, {} requests taken, {} calls refused; by the count of 001: {} and {} bytes\n\
             adaptation {} delays: {} on average, {} at most\n",
            status.n_connected,
            status.n_launchers,
            traffic.n_opened,
            traffic.bytes_up,
            traffic.bytes_down,
            status.n_notices,
            status.n_requests,
            status.n_refused,
            status.notice_bytes,
            status.request_bytes,
            status.adaptations.count,
            self.mean_delay(),
            status.adaptations.longest,
        )
    }
}

fn depth(first: u32) -> String {
    format!("the first {first} in the queue are considered")
}

impl Show for StatusAnswer {
    fn text(&self) -> String {
        screen::folded(&(self.server_text() + &self.core_text() + &self.launchers_text()), 11)
    }

    fn json(&self) -> Value {
        let mut value = json::status(&self.status);
        let at = |time: Time| json::time(Some(time));
        value["server"] = json!({
            "version": self.server.version,
            "since": at(self.server.since),
            "uptime_ms": json::span(self.uptime()),
            "journal_bytes": self.server.journal_bytes,
            "snapshot": self.server.snapshot.map_or(Value::Null, at),
            "snapshot_bytes": self.server.snapshot_bytes,
            "history_failure": self.server.history_failure,
        });
        let (status, traffic) = (&self.report.status, &self.report.traffic);
        let delays = &status.adaptations;
        let bounds = ADAPTATION_BOUNDS.iter().map(|bound| json!(bound)).chain([Value::Null]);
        let bucket = |(bound, count): (Value, &u64)| json!({"at_most_ms": bound, "count": count});
        let ghosts = status.ghost_node_time.iter().map(|(cluster, time)| (cluster.clone(), json::span(*time)));
        value["ghost_node_ms_by_cluster"] = Value::Object(ghosts.collect());
        value["launchers"] = json!({
            "launchers": status.n_launchers,
            "connected": status.n_connected,
            "views_sent": status.n_notices,
            "requests": status.n_requests,
            "refused": status.n_refused,
            "model_bytes": {"views": status.notice_bytes, "requests": status.request_bytes},
            "channels": {"open": traffic.n_open, "opened": traffic.n_opened},
            "bytes": {"received": traffic.bytes_up, "sent": traffic.bytes_down},
            "adaptation_delays": {
                "count": delays.count,
                "mean_ms": json::span(self.mean_delay()),
                "longest_ms": json::span(delays.longest),
                "buckets": bounds.zip(&delays.buckets).map(bucket).collect::<Vec<_>>(),
            },
        });
        value
    }

    fn ids(&self) -> Vec<String> {
        vec![self.status.n_submitted.to_string()]
    }

    fn table(&self) -> Option<Table> {
        None
    }
}
