//! Tells the processes of a job which GPUs of a shared node are theirs.

use rms_api::desired::LaunchNode;
use rms_model::Devices;

/// What CUDA, ROCm and scripts read; nothing in them hides all GPUs.
pub const VARIABLES: [&str; 3] = ["CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "RMS_GPUS"];

/// Numbers of the job's GPUs on a node, with commas between them; `None` where it has the whole node, and so all.
pub fn gpus(node: &LaunchNode) -> Option<String> {
    let grant = node.grant.as_ref()?;
    let of_gpus = grant.devices.iter().filter(|(name, _)| Devices::serves(name, "gpu"));
    let numbers: Vec<String> = of_gpus.flat_map(|(_, indices)| indices.iter()).map(|index| index.to_string()).collect();
    Some(numbers.join(","))
}

#[cfg(test)]
mod tests {
    use rms_model::Grant;

    use super::*;
    use crate::order::tests::node;

    #[test]
    fn a_job_sees_the_gpus_that_it_was_given_and_no_others() {
        let given = |devices: &[(&str, &[u32])]| {
            let devices = devices.iter().map(|(name, numbers)| ((*name).to_owned(), numbers.iter().copied().collect()));
            let grant = Some(Grant { devices: devices.collect(), ..Grant::default() });
            gpus(&LaunchNode { grant, ..node("n1") })
        };
        assert_eq!(given(&[("gpu:a100", &[1, 3]), ("fpga", &[0])]), Some("1,3".to_owned()));
        assert_eq!(given(&[("fpga", &[0])]), Some(String::new()));
        assert_eq!(gpus(&node("n1")), None);
    }
}
