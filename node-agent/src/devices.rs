//! The devices of a node: declared with or without their files, or the GPUs detected on the machine.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use rms_api::desired::LaunchNode;
use rms_model::Devices;

use crate::cgroup::DeviceNumber;
use crate::order::OwnDevices;

/// The files of each device, by device name; a device that is only counted has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceFiles(pub BTreeMap<String, Vec<Vec<PathBuf>>>);

impl DeviceFiles {
    /// Returns devices without files.
    pub fn counted(devices: &Devices) -> DeviceFiles {
        let each = |(name, count): (&str, u32)| (name.to_owned(), vec![Vec::new(); count as usize]);
        DeviceFiles(devices.iter().map(each).collect())
    }

    /// Finds a file `nvidiaN` in `dev` for each NVIDIA GPU, and `dri/renderDN` for each AMD GPU that ROCm's driver
    /// lists below `sys`, in its order. Finds nothing if the directories cannot be read.
    pub fn found(dev: &Path, sys: &Path) -> DeviceFiles {
        let entries = fs::read_dir(dev).into_iter().flatten().flatten();
        let mut nvidia: Vec<u32> = entries.filter_map(|entry| number_of(&entry.path())).collect();
        nvidia.sort_unstable();
        let nvidia = nvidia.into_iter().map(|number| dev.join(format!("nvidia{number}")));
        let gpus: Vec<Vec<PathBuf>> = nvidia.chain(of_amd(dev, sys)).map(|file| vec![file]).collect();
        DeviceFiles(if gpus.is_empty() { BTreeMap::new() } else { BTreeMap::from([("gpu".to_owned(), gpus)]) })
    }

    /// Returns the number of devices of each name.
    pub fn counts(&self) -> Devices {
        self.0.iter().map(|(name, each)| (name.clone(), each.len() as u32)).collect()
    }

    fn each(&self) -> impl Iterator<Item = &Vec<PathBuf>> {
        self.0.values().flatten()
    }

    /// Returns whether there are files that must be closed to some jobs.
    pub fn has_files(&self) -> bool {
        self.each().any(|files| !files.is_empty())
    }

    /// Returns whether there are devices without known files.
    pub fn lacks_files(&self) -> bool {
        self.each().any(Vec::is_empty)
    }

    /// Returns whether the files of all GPUs are known.
    fn has_files_of_gpus(&self) -> bool {
        let mut gpus = self.0.iter().filter(|(name, _)| Devices::serves(name, "gpu")).flat_map(|(_, each)| each);
        gpus.all(|files| !files.is_empty())
    }

    /// Returns the files that do not exist, are not device files, or have become those of a device that every program
    /// needs.
    pub fn missing(&self) -> impl Iterator<Item = &PathBuf> {
        self.each().flatten().filter(|file| DeviceNumber::of(file).is_none() || is_everyones(file))
    }

    /// Returns the devices of a job in this place; `None` for all. With `is_enforced`, the kernel closes the files of
    /// the others.
    pub fn own(&self, place: &LaunchNode, is_enforced: bool) -> Option<OwnDevices> {
        let grant = place.grant.as_ref()?;
        let (mut own, mut n_gpus) = (OwnDevices::default(), 0);
        own.is_alone = is_enforced && self.has_files_of_gpus();
        for (name, each) in &self.0 {
            let granted = grant.devices.get(name);
            for (idx, files) in (0..).zip(each) {
                let is_own = granted.is_some_and(|indices| indices.contains(idx));
                let numbers: BTreeSet<DeviceNumber> = files.iter().filter_map(|file| DeviceNumber::of(file)).collect();
                match is_own {
                    true if numbers.is_empty() => {}
                    true => drop(own.files.entry(name.clone()).or_default().insert(idx, numbers)),
                    false if is_enforced => own.closed.extend(numbers),
                    false => {}
                }
                if Devices::serves(name, "gpu") {
                    let number = files.first().and_then(|file| number_of(file)).unwrap_or(n_gpus);
                    own.gpus.extend(is_own.then_some(number));
                    n_gpus += 1;
                }
            }
        }
        // Two devices may share a file.
        let is_opened =
            |number: &DeviceNumber| own.files.values().flat_map(BTreeMap::values).any(|of| of.contains(number));
        own.closed.retain(|number| !is_opened(number));
        Some(own)
    }
}

/// Returns whether the file is, under any name, a device that programs open without requesting it.
pub fn is_everyones(file: &Path) -> bool {
    let all = ["/dev/null", "/dev/zero", "/dev/tty", "/dev/ptmx"];
    let number = DeviceNumber::of(file);
    number.is_some() && all.into_iter().any(|known| DeviceNumber::of(Path::new(known)) == number)
}

/// Returns the number of an NVIDIA GPU; the driver has other files, too.
fn number_of(file: &Path) -> Option<u32> {
    let number = file.file_name()?.to_str()?.strip_prefix("nvidia")?;
    number.bytes().all(|byte| byte.is_ascii_digit()).then(|| number.parse().ok())?
}

fn of_amd(dev: &Path, sys: &Path) -> Vec<PathBuf> {
    let nodes = fs::read_dir(sys.join("class/kfd/kfd/topology/nodes")).into_iter().flatten().flatten();
    let mut nodes: Vec<(u32, PathBuf)> =
        nodes.filter_map(|node| Some((node.file_name().to_str()?.parse().ok()?, node.path()))).collect();
    nodes.sort_unstable();
    let file = |(_, node): (u32, PathBuf)| {
        let properties = fs::read_to_string(node.join("properties")).ok()?;
        // For a CPU the value is 0.
        let minor = properties.lines().find_map(|line| line.strip_prefix("drm_render_minor "))?.trim();
        let file = dev.join("dri").join(format!("renderD{minor}"));
        file.exists().then_some(file)
    };
    nodes.into_iter().filter_map(file).collect()
}

#[cfg(test)]
mod tests {
    use rms_model::Grant;

    use super::*;

    #[test]
    fn each_gpu_has_a_file_and_other_files_of_the_drivers_are_none() {
        let root = tempfile::tempdir().expect("a folder");
        let (dev, sys) = (root.path().join("dev"), root.path().join("sys"));
        assert_eq!(DeviceFiles::found(&dev, &sys), DeviceFiles::default());
        fs::create_dir_all(dev.join("dri")).expect("made");
        for name in [
            "nvidia0",
            "nvidia2",
            "nvidia10",
            "nvidiactl",
            "nvidia-uvm",
            "nvidia",
            "null",
            "kfd",
            "dri/renderD128",
            "dri/renderD129",
        ] {
            fs::write(dev.join(name), "").expect("written");
        }
        // The first is a CPU; the last is a GPU whose file does not exist here.
        for (node, minor) in [0, 129, 128, 130].into_iter().enumerate() {
            let dir = sys.join(format!("class/kfd/kfd/topology/nodes/{node}"));
            fs::create_dir_all(&dir).expect("made");
            let properties = format!("simd_count 304\ndrm_render_minor {minor}\n");
            fs::write(dir.join("properties"), properties).expect("written");
        }
        let found = DeviceFiles::found(&dev, &sys);
        let files: Vec<_> = found.each().flatten().map(|file| file.strip_prefix(&dev).expect("below")).collect();
        let expected = ["nvidia0", "nvidia2", "nvidia10", "dri/renderD129", "dri/renderD128"];
        assert_eq!(files, expected.map(Path::new));
        assert_eq!(found.counts().to_string(), "gpu:5");
    }

    /// Returns the GPUs of a job with these devices, how many files are closed to it, and whether it sees only its own.
    fn given(files: &DeviceFiles, devices: &[(&str, &[u32])], is_enforced: bool) -> (Vec<u32>, usize, bool) {
        let devices = devices.iter().map(|(name, numbers)| ((*name).to_owned(), numbers.iter().copied().collect()));
        let grant = Some(Grant { devices: devices.collect(), ..Grant::default() });
        let own = files.own(&LaunchNode { grant, ..test_kit::place("n1") }, is_enforced).expect("a share");
        (own.gpus, own.closed.len(), own.is_alone)
    }

    #[test]
    fn a_job_has_the_gpus_that_it_was_given_and_no_others() {
        let counted = DeviceFiles::counted(&"gpu:a100:4,fpga:1".parse().expect("devices"));
        assert_eq!(given(&counted, &[("gpu:a100", &[1, 3]), ("fpga", &[0])], true), (vec![1, 3], 0, false));
        assert_eq!(given(&counted, &[("fpga", &[0])], true), (vec![], 0, false));
        assert_eq!(counted.own(&test_kit::place("n1"), true), None, "it has the whole node");
    }

    #[test]
    fn the_files_of_what_it_was_not_given_are_closed_to_a_job() {
        let each = |names: &[&str]| names.iter().map(|name| vec![PathBuf::from(format!("/dev/{name}"))]).collect();
        let files =
            [("gpu:a", each(&["null", "zero"])), ("gpu:b", each(&["full", "zero"])), ("gpu:c", each(&["gone"]))];
        let files = DeviceFiles(files.map(|(name, each)| (name.to_owned(), each)).into());
        assert_eq!(given(&files, &[("gpu:a", &[0])], true), (vec![0], 2, true));
        assert_eq!(given(&files, &[("gpu:b", &[1])], true), (vec![3], 2, true), "its file has the other, too");
        assert_eq!(given(&files, &[], true), (vec![], 3, true));
        assert_eq!(given(&files, &[("gpu:b", &[0])], false), (vec![2], 0, false));
        let with = |name: &str, each: Vec<Vec<PathBuf>>| {
            let mut files = files.clone();
            files.0.insert(name.to_owned(), each);
            files
        };
        let counted = with("dongle", vec![Vec::new(); 3]);
        assert_eq!(given(&counted, &[("gpu:b", &[1])], true), (vec![3], 2, true), "what is no GPU hides none");
        let unknown = with("gpu:d", vec![Vec::new()]);
        assert_eq!(given(&unknown, &[("gpu:b", &[1])], true), (vec![3], 2, false), "it may open the last one");
        let missing: Vec<&Path> = files.missing().map(PathBuf::as_path).collect();
        assert_eq!(missing, ["/dev/null", "/dev/zero", "/dev/zero", "/dev/gone"].map(Path::new));
    }
}
