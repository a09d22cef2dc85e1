//! The variables that tell the processes of a job which GPUs of a shared node are theirs.

use rms_api::desired::LaunchNode;
use rms_model::variables::GPUS;
use rms_model::{Devices, Indices};

use super::variables::Variables;
use crate::order::{Order, OwnDevices};

/// The variables that CUDA, ROCm and scripts read; an empty value hides all GPUs.
pub const VARIABLES: [&str; 4] = ["CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", GPUS, "CUDA_DEVICE_ORDER"];

/// Returns the variables of a job. Libraries count the GPUs that they may open; scripts get the node's own numbers.
pub fn variables(own: &OwnDevices) -> [(&'static str, String); 4] {
    let list = |numbers: &mut dyn Iterator<Item = u32>| numbers.map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let numbers = list(&mut own.gpus.iter().copied());
    let visible = if own.is_alone { list(&mut (0..own.gpus.len() as u32)) } else { numbers.clone() };
    let [cuda, rocm, rms, order] = VARIABLES;
    // GPUs are ordered as the driver numbers the files, not by speed.
    [(cuda, visible.clone()), (rocm, visible), (rms, numbers), (order, "PCI_BUS_ID".to_owned())]
}

/// Makes the variables of this node safe on all nodes of the job: MPICH's `mpirun` hands them on to ranks everywhere,
/// where they override those of the node. Without a number that holds everywhere, a program that is started here must
/// still not see the GPUs of other jobs: unless the kernel hides these, all are hidden.
pub fn hide_what_differs(variables: &mut Variables, order: &Order) {
    let nodes: Vec<&LaunchNode> = order.usable().collect();
    let are_same = nodes.iter().all(|node| gpus(node) == gpus(nodes[0]));
    let is_alone = order.devices.as_ref().is_some_and(|own| own.is_alone);
    // The kernel of another node may not hide GPUs, so that libraries number the job's GPUs differently there.
    let is_renumbered =
        is_alone && order.devices.iter().any(|own| !own.gpus.iter().copied().eq(0..own.gpus.len() as u32));
    if nodes.len() <= 1 || (are_same && !is_renumbered) {
        return;
    }
    let [cuda, rocm, rms, device_order] = VARIABLES;
    let sees_others = order.devices.is_some() && !is_alone;
    for name in [cuda, rocm] {
        match sees_others {
            true => drop(variables.insert(name.to_owned(), String::new())),
            false => drop(variables.remove(name)),
        }
    }
    if !are_same {
        variables.remove(rms);
        variables.remove(device_order);
    }
}

/// Returns the job's GPUs on a node by name; `None` if it has the whole node, and so all of them.
fn gpus(node: &LaunchNode) -> Option<Vec<(&str, &Indices)>> {
    let grant = node.grant.as_ref()?;
    let is_gpu = |(name, _): &(&String, &Indices)| Devices::serves(name, "gpu");
    Some(grant.devices.iter().filter(is_gpu).map(|(name, indices)| (name.as_str(), indices)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_count_from_zero_where_the_kernel_hides_the_gpus_of_others() {
        let told = |is_alone: bool| {
            let own = OwnDevices { gpus: vec![1, 3], is_alone, ..OwnDevices::default() };
            variables(&own).map(|(_, value)| value)
        };
        assert_eq!(told(false), ["1,3", "1,3", "1,3", "PCI_BUS_ID"]);
        assert_eq!(told(true), ["0,1", "0,1", "1,3", "PCI_BUS_ID"]);
        assert_eq!(variables(&OwnDevices::default())[0].1, "");
    }
}
