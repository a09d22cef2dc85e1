//! What nodes lack for a job, in words.

use rms_api::answer::{Lacking, Required, Shortage};
use rms_model::{Mebibytes, Slice, hostlist};

/// Returns, for example, `of 4 candidates that can be used now, only 1 has 64 GiB of memory`.
pub fn too_few_have(Lacking { required, n_nodes, among, unusable, unknown }: &Lacking) -> String {
    let (one, more) = match required {
        Required::Names => ("is", "are"),
        Required::Features(_)
        | Required::Sockets(_)
        | Required::Speed(_)
        | Required::Scratch(_)
        | Required::Cores(_)
        | Required::Cpus(_)
        | Required::Memory(_)
        | Required::Devices(_) => ("has", "have"),
    };
    let only = match n_nodes {
        0 => format!("none {one}"),
        1 => format!("only 1 {one}"),
        count => format!("only {count} {more}"),
    };
    let counted = |count: u32, one: &str| if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") };
    let what = match required {
        Required::Names => "among those that it names (--nodelist, --exclude)".to_owned(),
        Required::Features(features) => {
            let names: Vec<&str> = features.iter().map(String::as_str).collect();
            format!("{} (--constraint)", names.join("&"))
        }
        Required::Sockets(count) => counted(*count, "socket"),
        Required::Speed(milli) => format!("the speed {}", f64::from(*milli) / 1000.0),
        Required::Scratch(scratch) => format!("{} of scratch space", memory(*scratch)),
        Required::Cores(count) => counted(*count, "core"),
        Required::Cpus(count) => counted(*count, "CPU"),
        Required::Memory(amount) => format!("{} of memory", memory(*amount)),
        Required::Devices(devices) => devices.to_string(),
    };
    let candidates = counted(*among, "candidate");
    let others = match unusable.as_slice() {
        [] => String::new(),
        names => format!("; {} would do, but cannot be used now", hostlist::fold(names)),
    };
    let unknown = match unknown.as_slice() {
        [] => String::new(),
        names => format!("; there is no node {}", hostlist::fold(names)),
    };
    format!("of {candidates} that can be used now, {only} {what}{others}{unknown}")
}

fn memory(amount: Mebibytes) -> String {
    if amount.0.is_multiple_of(1024) { format!("{} GiB", amount.0 / 1024) } else { amount.to_string() }
}

/// Returns, for example, `3 nodes have 8 free cores, but only 1 of them 64 GiB`: the first resource of which too few
/// nodes have enough.
pub fn shortage(short: &Shortage, wanted: u32) -> String {
    let Shortage { each: Slice { cores, memory, devices }, with_cores, with_memory, with_devices } = short;
    let cores = if *cores == 1 { "1 free core".to_owned() } else { format!("{cores} free cores") };
    let memory = self::memory(*memory);
    let have = |count: u32| if count == 1 { "1 node has".to_owned() } else { format!("{count} nodes have") };
    let of_them = |count: u32| if count == 0 { "none of them".to_owned() } else { format!("only {count} of them") };
    if *with_cores < wanted {
        let only = if *with_cores == 0 { "no node has".to_owned() } else { format!("only {}", have(*with_cores)) };
        return format!("{only} {cores}");
    }
    let with_cores = format!("{} {cores}", have(*with_cores));
    if *with_memory < wanted {
        return format!("{with_cores}, but {} {memory}", of_them(*with_memory));
    }
    if *with_devices < wanted {
        return format!("{with_cores}, but {} {devices}", of_them(*with_devices));
    }
    // Others have reserved the nodes from a time before this job's end.
    format!("{} free what it takes, but not for all of its wall time", have(*with_devices))
}
