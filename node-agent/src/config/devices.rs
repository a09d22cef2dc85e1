//! The devices of a node as written in the configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use clap::{Args, Command};
use rms_model::Devices;
use rms_model::devices::DevicesError;
use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::{ConfigError, Written};
use crate::devices::{DeviceFiles, is_everyones};

/// The ways to write devices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "write devices as \"gpu:2,fpga:1\", or as a table: \"gpu:a100\" = [\"/dev/nvidia0\", \"/dev/nvidia1\"]"
)]
pub enum WrittenDevices {
    Text(String),
    /// By name of the device.
    Table(BTreeMap<String, WrittenFiles>),
}

impl From<String> for WrittenDevices {
    fn from(text: String) -> WrittenDevices {
        WrittenDevices::Text(text)
    }
}

/// Devices of one name: how many, or the files of each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum WrittenFiles {
    Count(u32),
    Each(Vec<FilesOfOne>),
}

/// The files of one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FilesOfOne {
    File(PathBuf),
    Files(Vec<PathBuf>),
}

/// Returns the declared devices of the node, or the detected ones if none are declared.
pub(super) fn declared(written: Option<WrittenDevices>) -> Result<DeviceFiles, ConfigError> {
    let declared = match written {
        None => return Ok(DeviceFiles::found(Path::new("/dev"), Path::new("/sys"))),
        Some(WrittenDevices::Text(text)) if text == "none" => DeviceFiles::default(),
        Some(WrittenDevices::Text(text)) => {
            let devices: Devices = text.parse()?;
            if let Some(name) = named_twice(&text) {
                return Err(ConfigError::DeviceTwice { text, name });
            }
            DeviceFiles::counted(&devices)
        }
        Some(WrittenDevices::Table(table)) => {
            let mut seen = BTreeSet::new();
            let each = table.into_iter().map(|(name, written)| {
                let files = files_of(&name, written, &mut seen)?;
                Ok((name, files))
            });
            DeviceFiles(each.collect::<Result<_, ConfigError>>()?)
        }
    };
    if let Some(setting) = declared.0.keys().find(|name| is_setting(name)) {
        return Err(ConfigError::Misplaced(setting.clone()));
    }
    if declared.0.contains_key("none") {
        return Err(ConfigError::NoneBesideOthers);
    }
    let is_gpu = |name: &str| Devices::serves(name, "gpu");
    let of_gpus = || declared.0.iter().filter(|(name, _)| is_gpu(name));
    let lacks_files = of_gpus().any(|(_, each)| each.iter().any(Vec::is_empty));
    if of_gpus().count() > 1 && lacks_files { Err(ConfigError::SeveralTypes(declared.counts())) } else { Ok(declared) }
}

/// Finds a setting of the agent, and its place, in the table of devices: TOML reads what is written below `[devices]`
/// as one of them.
pub(super) fn misplaced(text: &str) -> Option<(String, Range<usize>)> {
    #[derive(Deserialize)]
    struct WithDevices {
        devices: BTreeMap<Spanned<String>, toml::Value>,
    }
    let written: WithDevices = toml::from_str(text).ok()?;
    let setting = written.devices.into_keys().find(|name| is_setting(name.get_ref()))?;
    let span = setting.span();
    Some((setting.into_inner(), span))
}

fn is_setting(name: &str) -> bool {
    Written::augment_args(Command::new("agent")).get_arguments().any(|setting| setting.get_id() == name)
}

/// Returns a name that occurs twice in a list of devices: their numbers would be added.
fn named_twice(text: &str) -> Option<String> {
    let devices: Vec<Devices> = text.split(',').filter_map(|part| part.parse().ok()).collect();
    let mut seen = BTreeSet::new();
    devices.iter().flat_map(Devices::iter).find(|(name, _)| !seen.insert(*name)).map(|(name, _)| name.to_owned())
}

/// Returns the files of each device of a name, none of which may be in `seen`.
fn files_of(name: &str, written: WrittenFiles, seen: &mut BTreeSet<PathBuf>) -> Result<Vec<Vec<PathBuf>>, ConfigError> {
    let each = match written {
        WrittenFiles::Count(count) => return Ok(vec![Vec::new(); counted(name, count)? as usize]),
        WrittenFiles::Each(each) => each,
    };
    if each.is_empty() {
        return Err(ConfigError::NoDevice(name.to_owned()));
    }
    counted(name, each.len() as u32)?;
    let files = |of_one: FilesOfOne| match of_one {
        FilesOfOne::File(file) => vec![file],
        FilesOfOne::Files(files) => files,
    };
    let each: Vec<Vec<PathBuf>> = each.into_iter().map(files).collect();
    if each.iter().any(Vec::is_empty) {
        return Err(ConfigError::NoFile(name.to_owned()));
    }
    let is_wrong = |file: &&PathBuf| !file.is_absolute() || !seen.insert((*file).clone());
    if let Some(file) = each.iter().flatten().find(is_wrong) {
        return Err(ConfigError::DeviceFile(file.clone()));
    }
    match each.iter().flatten().find(|file| is_everyones(file)) {
        Some(file) => Err(ConfigError::EveryonesFile(file.clone())),
        None => Ok(each),
    }
}

/// Returns the count if the name and the number of devices are valid.
fn counted(name: &str, count: u32) -> Result<u32, DevicesError> {
    // A comma would separate two names.
    let text = if name.contains(',') { format!(":{name}") } else { format!("{name}:{count}") };
    text.parse::<Devices>().map(|_| count)
}
