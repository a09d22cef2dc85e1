//! The GPUs that the machine shows by itself.

use std::fs;
use std::path::Path;

use rms_model::Devices;

/// NVIDIA's driver makes a file `nvidiaN` in `dev` for each GPU. Nothing where the directory cannot be read.
pub fn found(dev: &Path) -> Devices {
    let is_gpu = |name: &str| {
        name.strip_prefix("nvidia")
            .is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let entries = fs::read_dir(dev).into_iter().flatten().flatten();
    let n_gpus = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_gpu)).count();
    [("gpu".to_owned(), n_gpus as u32)].into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_gpu_has_a_file_and_other_files_of_the_driver_are_none() {
        let dev = tempfile::tempdir().expect("a folder");
        assert!(found(dev.path()).is_empty());
        for name in ["nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "nvidia", "null"] {
            fs::write(dev.path().join(name), "").expect("written");
        }
        assert_eq!(found(dev.path()).to_string(), "gpu:3");
        assert!(found(&dev.path().join("none")).is_empty());
    }
}
