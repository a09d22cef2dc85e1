//! What a job takes of each of its nodes, as typed: `--mem-per-cpu 2G`, `--gpus a100:2`, `--gres gpu:2,fpga:1`,
//! `--exclusive`.

use std::fmt;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use rms_api::call::update::ResourceChanges;
use rms_model::devices::DevicesError;
use rms_model::{Devices, Packing, ResourceRequest};
use thiserror::Error;

use crate::memory::Memory;

// No doc comment: clap would print it as the help of each verb that has these flags.
// Beside nodes, tasks and CPUs; each may be absent.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(next_help_heading = "Share of the nodes")]
pub struct ResourceOptions {
    /// Memory per CPU of the tasks: 512M, 4G; instead of --mem
    #[arg(long, value_name = "SIZE", conflicts_with = "mem", allow_negative_numbers = true)]
    pub mem_per_cpu: Option<Memory>,
    /// GPUs in total, the same number on each node: 4, or of one type a100:4
    #[arg(
        short = 'G',
        long,
        value_name = "[TYPE:]COUNT",
        conflicts_with = "gpus_per_node",
        allow_negative_numbers = true
    )]
    pub gpus: Option<Gpus>,
    /// GPUs on each node: 2, or of one type a100:2
    #[arg(long, value_name = "[TYPE:]COUNT", allow_negative_numbers = true)]
    pub gpus_per_node: Option<Gpus>,
    /// Devices of each node: gpu:2, gpu:a100:2,fpga:1, or none
    #[arg(long, value_name = "LIST")]
    pub gres: Option<Gres>,
    /// Licences of the job's cluster: matlab:2,ansys, or none
    #[arg(short = 'L', long, alias = "licenses", value_name = "LIST")]
    pub licences: Option<Licences>,
    /// Allocate whole nodes to the job alone, even where jobs share nodes
    #[arg(long)]
    pub exclusive: bool,
    /// Where jobs share nodes: prefer the fullest nodes with room (the default)
    #[arg(long, conflicts_with = "spread")]
    pub pack: bool,
    /// Where jobs share nodes: prefer the emptiest nodes, and as many as the tasks allow
    #[arg(long)]
    pub spread: bool,
    /// nomultithread: allocate whole cores and leave their other hardware threads idle
    #[arg(long, value_name = "HINT")]
    pub hint: Option<Hint>,
    /// Lend CPUs of the job's nodes while it runs, and let it start on CPUs that others lend (policy slowdown)
    #[arg(long, conflicts_with = "exclusive")]
    pub share: bool,
    /// Keep at least this many CPUs on each node while sharing; one per task there if absent
    #[arg(long, value_name = "COUNT", requires = "share")]
    pub min_cpus_per_node: Option<u32>,
    /// Keep at least this many CPUs for each task while sharing, in order; the last for all others: 4,1
    #[arg(long, value_name = "COUNTS", requires = "share", value_delimiter = ',')]
    pub min_cpus_per_task: Option<Vec<u32>>,
    /// Keep at least this many cores of each package (socket) of the job's nodes while sharing
    #[arg(long, value_name = "COUNT", requires = "share")]
    pub cores_per_package: Option<u32>,
    /// Allocate nodes with consecutive names: n2, n3, n4
    #[arg(long)]
    pub contiguous: bool,
}

/// Why flags do not form a request for resources.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ResourceError {
    #[error("--gres and {0} both name GPUs: name them once")]
    GpusTwice(&'static str),
    #[error(
        "{count} {name} over all of {n_nodes} nodes are not as many on each: ask for {} nodes, or say how many each \
         node has to have (--gpus-per-node)",
        fitting(*count, *n_nodes)
    )]
    Uneven { name: String, count: u32, n_nodes: u32 },
}

/// Returns `2 or 4`, for example: the numbers of nodes closest to this one that divide the count.
fn fitting(count: u32, n_nodes: u32) -> String {
    let divides = |nodes: &u32| count.is_multiple_of(*nodes);
    let fewer = (1..n_nodes.min(count)).rev().find(divides);
    let more = (n_nodes.saturating_add(1)..=count).find(divides);
    [fewer, more].into_iter().flatten().map(|nodes| nodes.to_string()).collect::<Vec<_>>().join(" or ")
}

impl ResourceOptions {
    /// Returns these options, completed by those of `lower`. `says_memory`: other flags name the memory of a node.
    pub fn over(self, lower: ResourceOptions, says_memory: bool) -> ResourceOptions {
        let (names_gpus, packs) = (self.names_gpus(), self.pack || self.spread);
        let lower_gres = lower.gres.map(|gres| if names_gpus { gres.without_gpus() } else { gres });
        ResourceOptions {
            mem_per_cpu: self.mem_per_cpu.or(lower.mem_per_cpu.filter(|_| !says_memory)),
            gpus: self.gpus.or(lower.gpus.filter(|_| !names_gpus)),
            gpus_per_node: self.gpus_per_node.or(lower.gpus_per_node.filter(|_| !names_gpus)),
            gres: self.gres.or(lower_gres),
            licences: self.licences.or(lower.licences),
            exclusive: self.exclusive || lower.exclusive,
            pack: if packs { self.pack } else { lower.pack },
            spread: if packs { self.spread } else { lower.spread },
            hint: self.hint.or(lower.hint),
            share: self.share || lower.share,
            min_cpus_per_node: self.min_cpus_per_node.or(lower.min_cpus_per_node),
            min_cpus_per_task: self.min_cpus_per_task.or(lower.min_cpus_per_task),
            cores_per_package: self.cores_per_package.or(lower.cores_per_package),
            contiguous: self.contiguous || lower.contiguous,
        }
    }

    fn names_gpus(&self) -> bool {
        let in_gres =
            self.gres.as_ref().is_some_and(|gres| gres.0.iter().any(|(name, _)| is_gpu(name)) || gres.is_none());
        self.gpus.is_some() || self.gpus_per_node.is_some() || in_gres
    }

    /// Returns the request; `tasks_per_node` and the fixed number of nodes, if any, come from other flags.
    ///
    /// # Errors
    /// See [`ResourceError`].
    pub fn request(&self, tasks_per_node: Option<u32>, n_nodes: Option<u32>) -> Result<ResourceRequest, ResourceError> {
        let mut devices = self.gres.clone().unwrap_or_default().0;
        let of_gpus = [("--gpus", &self.gpus), ("--gpus-per-node", &self.gpus_per_node)];
        let named = of_gpus.into_iter().find(|(_, gpus)| gpus.is_some());
        if let Some((flag, _)) = named.filter(|_| devices.iter().any(|(name, _)| is_gpu(name))) {
            return Err(ResourceError::GpusTwice(flag));
        }
        for (name, count) in self.gpus_per_node.iter().flat_map(|gpus| gpus.0.iter()) {
            devices.add(name, count);
        }
        let devices_in_all = self.gpus.clone().unwrap_or_default().0;
        let n_nodes = n_nodes.unwrap_or(1).max(1);
        if let Some((name, count)) = devices_in_all.iter().find(|(_, count)| !count.is_multiple_of(n_nodes)) {
            return Err(ResourceError::Uneven { name: name.to_owned(), count, n_nodes });
        }
        Ok(ResourceRequest {
            memory_per_cpu: self.mem_per_cpu.map(|memory| memory.0).unwrap_or_default(),
            devices,
            devices_in_all,
            licences: self.licences.clone().unwrap_or_default().0,
            tasks_per_node: tasks_per_node.unwrap_or(0),
            exclusive: self.exclusive,
            packing: if self.spread { Packing::Spread } else { Packing::Pack },
            one_thread_a_core: self.hint == Some(Hint::Nomultithread),
            share: self.share,
            min_cpus_per_node: self.min_cpus_per_node.unwrap_or(0),
            min_cpus_per_task: self.min_cpus_per_task.clone().unwrap_or_default(),
            cores_per_package: self.cores_per_package.unwrap_or(0),
            contiguous: self.contiguous,
        })
    }

    /// Returns the changes for a waiting job: what no flag names stays.
    ///
    /// # Errors
    /// See [`ResourceError`].
    pub fn changes(&self, tasks_per_node: Option<u32>, n_nodes: Option<u32>) -> Result<ResourceChanges, ResourceError> {
        let asked = self.request(tasks_per_node, n_nodes)?;
        let names_each = self.gres.is_some() || self.gpus_per_node.is_some();
        Ok(ResourceChanges {
            memory_per_cpu: self.mem_per_cpu.map(|memory| memory.0),
            devices: names_each.then_some(asked.devices),
            devices_in_all: self.gpus.is_some().then_some(asked.devices_in_all),
            licences: self.licences.is_some().then_some(asked.licences),
            tasks_per_node,
            exclusive: self.exclusive.then_some(true),
            packing: (self.pack || self.spread).then_some(asked.packing),
            one_thread_a_core: self.hint.map(|_| asked.one_thread_a_core),
            share: self.share.then_some(true),
            min_cpus_per_node: self.min_cpus_per_node,
            min_cpus_per_task: self.min_cpus_per_task.clone(),
            cores_per_package: self.cores_per_package,
            contiguous: self.contiguous.then_some(true),
        })
    }
}

fn is_gpu(name: &str) -> bool {
    Devices::serves(name, "gpu")
}

/// GPUs, all or of one type: `2`, `a100:2`, `a100:1,v100:1`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gpus(pub Devices);

/// Shows the GPUs as they are typed.
impl fmt::Display for Gpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let typed = |(name, count): (&str, u32)| match name.split_once(':') {
            Some((_, kind)) => format!("{kind}:{count}"),
            None => count.to_string(),
        };
        f.write_str(&self.0.iter().map(typed).collect::<Vec<_>>().join(","))
    }
}

/// Why a text is not a number of GPUs.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{0}' is no number of GPUs: write 2, or with a type a100:2; leave it out for none")]
pub struct GpusError(String);

impl FromStr for Gpus {
    type Err = GpusError;

    fn from_str(text: &str) -> Result<Gpus, GpusError> {
        let fail = || GpusError(text.chars().take(80).collect());
        let part = |part: &str| if part.contains(':') || is_count(part) { Some(format!("gpu:{part}")) } else { None };
        let parts: Option<Vec<String>> = text.split(',').map(part).collect();
        parts.ok_or_else(fail)?.join(",").parse().map(Gpus).map_err(|_| fail())
    }
}

fn is_count(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Devices of each node, as Slurm's `--gres` names them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gres(pub Devices);

impl Gres {
    /// Returns whether it is `none`.
    fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    fn without_gpus(self) -> Gres {
        let others = self.0.iter().filter(|(name, _)| !is_gpu(name));
        Gres(others.map(|(name, count)| (name.to_owned(), count)).collect())
    }
}

impl FromStr for Gres {
    type Err = DevicesError;

    fn from_str(text: &str) -> Result<Gres, DevicesError> {
        if text == "none" { Ok(Gres::default()) } else { text.parse().map(Gres) }
    }
}

/// Licences of a cluster, each with its count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Licences(pub Devices);

/// Why a text does not name licences.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{0}' does not name licences: write matlab:2, several with commas between them, or none")]
pub struct LicencesError(String);

impl FromStr for Licences {
    type Err = LicencesError;

    fn from_str(text: &str) -> Result<Licences, LicencesError> {
        let fail = || LicencesError(text.chars().take(80).collect());
        let named: Devices = if text == "none" { Devices::default() } else { text.parse().map_err(|_| fail())? };
        // A name with a colon has an invalid count.
        let are_names = named.iter().all(|(name, _)| !name.contains(':'));
        are_names.then_some(Licences(named)).ok_or_else(fail)
    }
}

/// Which hardware threads of its cores a job uses, in Slurm's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Hint {
    /// One thread of each core
    #[value(aliases = ["compute_bound", "memory_bound"])]
    Nomultithread,
    /// All threads of each core (the default)
    Multithread,
}

#[cfg(test)]
mod tests {
    use rms_model::Mebibytes;

    use super::*;
    use crate::directive::parse_options;

    fn options(words: &str) -> Result<ResourceOptions, String> {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        parse_options(&words).map(|options| options.resources)
    }

    fn request(words: &str) -> ResourceRequest {
        let options = options(words).unwrap_or_else(|error| panic!("{words}: {error}"));
        options.request(None, None).unwrap_or_else(|error| panic!("{words}: {error}"))
    }

    fn devices(text: &str) -> Devices {
        text.parse().expect("devices")
    }

    #[test]
    fn each_flag_is_a_part_of_the_request() {
        let nothing = ResourceRequest::default;
        for (words, asked) in [
            ("", nothing()),
            ("--mem-per-cpu=2G", ResourceRequest { memory_per_cpu: Mebibytes(2048), ..nothing() }),
            ("--gpus 4", ResourceRequest { devices_in_all: devices("gpu:4"), ..nothing() }),
            ("-G a100:2", ResourceRequest { devices_in_all: devices("gpu:a100:2"), ..nothing() }),
            ("--gpus-per-node=2", ResourceRequest { devices: devices("gpu:2"), ..nothing() }),
            (
                "--gpus-per-node=a100:1,v100:1",
                ResourceRequest { devices: devices("gpu:a100:1,gpu:v100:1"), ..nothing() },
            ),
            ("--gres=gpu:a100:2,fpga:1", ResourceRequest { devices: devices("gpu:a100:2,fpga:1"), ..nothing() }),
            ("--gres=fpga --gpus-per-node=2", ResourceRequest { devices: devices("fpga:1,gpu:2"), ..nothing() }),
            ("--gres=none", nothing()),
            ("--licences=matlab:2,ansys", ResourceRequest { licences: devices("matlab:2,ansys:1"), ..nothing() }),
            ("--licenses matlab", ResourceRequest { licences: devices("matlab:1"), ..nothing() }),
            ("-L none", nothing()),
            ("--exclusive", ResourceRequest { exclusive: true, ..nothing() }),
            ("--pack", nothing()),
            ("--spread", ResourceRequest { packing: Packing::Spread, ..nothing() }),
            ("--hint=nomultithread", ResourceRequest { one_thread_a_core: true, ..nothing() }),
            ("--hint compute_bound", ResourceRequest { one_thread_a_core: true, ..nothing() }),
            ("--hint=multithread", nothing()),
            ("--share", ResourceRequest { share: true, ..nothing() }),
            ("--share --min-cpus-per-node=2", ResourceRequest { share: true, min_cpus_per_node: 2, ..nothing() }),
            (
                "--share --min-cpus-per-task=4,1",
                ResourceRequest { share: true, min_cpus_per_task: vec![4, 1], ..nothing() },
            ),
            ("--contiguous", ResourceRequest { contiguous: true, ..nothing() }),
            ("--share --cores-per-package=2", ResourceRequest { share: true, cores_per_package: 2, ..nothing() }),
        ] {
            assert_eq!(request(words), asked, "{words}");
        }
    }

    #[test]
    fn contradictions_and_nonsense_are_refused() {
        for (words, part) in [
            ("--pack --spread", "cannot be used with"),
            ("--mem 1G --mem-per-cpu 1G", "cannot be used with"),
            ("--gpus 2 --gpus-per-node 1", "cannot be used with"),
            ("--gpus a100", "write 2"),
            ("--gpus a100:", "write 2"),
            ("--gpus 1.5", "write 2"),
            ("--gpus -1", "write 2"),
            ("-G -1", "write 2"),
            ("--gpus-per-node -1", "write 2"),
            ("--exclusive=user", "of the same user neither"),
            ("--gres gpu:a:b:1", "gpu:a100:2"),
            ("--hint=fast", "nomultithread"),
            ("--share --exclusive", "cannot be used with"),
            ("--min-cpus-per-node=2", "--share"),
            ("--cores-per-package=2", "--share"),
            ("--min-cpus-per-task=2", "--share"),
            ("--share --min-cpus-per-task=2,", "invalid value"),
            ("-L matlab:", "write matlab:2"),
            ("-L matlab:x", "write matlab:2"),
            ("-L matlab:a:1", "write matlab:2"),
            ("-L none:none", "write matlab:2"),
        ] {
            let error = options(words).expect_err(words);
            assert!(error.contains(part), "{words}: {error}");
        }
        let asked = |words: &str, n_nodes| options(words).expect(words).request(None, n_nodes);
        assert_eq!(asked("--gres gpu:1 --gpus 2", None), Err(ResourceError::GpusTwice("--gpus")));
        assert_eq!(
            asked("--gres gpu:a100:1 --gpus-per-node 2", None),
            Err(ResourceError::GpusTwice("--gpus-per-node"))
        );
        let uneven = asked("--gpus 4", Some(3)).expect_err("4 do not divide by 3").to_string();
        assert!(uneven.contains("ask for 2 or 4 nodes"), "{uneven}");
        assert!(asked("--gpus 4", Some(2)).is_ok());
    }

    #[test]
    fn a_higher_source_silences_other_words_for_the_same() {
        let over = |high: &str, low: &str| {
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            let both = parse_options(&words(high)).unwrap().over(parse_options(&words(low)).unwrap());
            (both.mem, both.resources.request(None, None))
        };
        let mem = |text: &str| text.parse::<Memory>().ok();
        assert_eq!(over("--mem-per-cpu=1G", "--mem=8G"), (None, Ok(request("--mem-per-cpu=1G"))));
        assert_eq!(over("--mem=8G", "--mem-per-cpu=1G"), (mem("8G"), Ok(request(""))));
        assert_eq!(over("--gpus=4", "--gres=gpu:1,fpga:1"), (None, Ok(request("--gpus=4 --gres=fpga:1"))));
        assert_eq!(over("--gres=gpu:1", "--gpus-per-node=2"), (None, Ok(request("--gres=gpu:1"))));
        assert_eq!(over("--gres=none", "--gpus-per-node=2"), (None, Ok(request(""))));
        assert_eq!(over("-L none", "-L matlab:2"), (None, Ok(request(""))));
        assert_eq!(over("", "-L matlab:2"), (None, Ok(request("-L matlab:2"))));
        assert_eq!(over("--pack", "--contiguous"), (None, Ok(request("--contiguous"))));
        assert_eq!(over("--pack", "--spread --exclusive"), (None, Ok(request("--exclusive"))));
        assert_eq!(over("", "--spread --hint=nomultithread"), (None, Ok(request("--spread --hint=nomultithread"))));
    }
}
