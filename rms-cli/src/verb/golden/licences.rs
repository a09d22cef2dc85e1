//! Every form of the list of licences.

use rms_api::answer::{LicenceHolder, LicenceLine};
use rms_model::JobId;

use super::check;
use crate::verb::licences::Licences;

#[test]
fn licences_and_who_has_them() {
    let line = |cluster: &str, name: &str, total, held: &[(u64, u32)]| LicenceLine {
        cluster: cluster.to_owned(),
        name: name.to_owned(),
        total,
        holders: held.iter().map(|(job, count)| LicenceHolder { job: JobId(*job), count: *count }).collect(),
    };
    let lines = vec![
        line("a", "ansys", 5, &[]),
        line("a", "matlab", 20, &[(7, 2), (9, 4)]),
        line("b", "matlab", 1, &[(12, 2)]),
    ];
    check("licences", &Licences { lines });
    check("licences_none", &Licences { lines: Vec::new() });
}
