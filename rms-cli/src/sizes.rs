//! The changing size of a malleable job, for people and for programs.

use rms_api::answer::JobLine;
use rms_api::negotiate::{Declared, NegotiationLine};
use rms_model::{Malleable, OnResize, Sizes, Speedup, Time, hostlist};
use serde_json::{Value, json};

use crate::json;
use crate::negotiations;
use crate::signal;
use crate::size_range::{NO_END, SizeRange};
use crate::stamp;

/// Returns the sizes as typed; `negotiable` for a job without limits.
pub fn range(declared: &Declared) -> String {
    let Declared { least, most, sizes, speedup: _ } = declared;
    if *most == 0 {
        return "negotiable".to_owned();
    }
    SizeRange { least: *least, most: *most, sizes: sizes.clone() }.to_string()
}

/// Returns the same in words.
fn in_words(declared: &Declared) -> String {
    let Declared { least, most, sizes, speedup: _ } = declared;
    let ends = match *most {
        NO_END.. => format!("{least} nodes or more"),
        most => format!("{least} to {most} nodes"),
    };
    match sizes {
        Sizes::Any => ends,
        Sizes::PowerOfTwo => format!("{ends}, by powers of two"),
        Sizes::MultipleOf(unit) => format!("{ends}, by multiples of {unit}"),
        Sizes::Listed(sizes) => {
            let sizes: Vec<String> = sizes.iter().map(u64::to_string).collect();
            format!("{} nodes", sizes.join(", "))
        }
    }
}

/// Returns the text for the list of jobs: `r3: +4 until 09:51:40, offered` while the job negotiates, and `2-8`.
pub fn brief(declared: Option<&Declared>, open: &[&NegotiationLine], now: Time) -> Vec<String> {
    let open = open.iter().map(|line| {
        let until = line.until.map(|until| format!(" until {}", stamp::short(until, now))).unwrap_or_default();
        let what = negotiations::signed(line).map(|what| format!("{what}{until}, ")).unwrap_or_default();
        format!("{}: {what}{}", line.record.id, negotiations::word_of(line))
    });
    open.chain(declared.map(range)).collect()
}

/// Returns the lines for `rms show`.
pub fn lines(malleable: &Malleable, line: &JobLine) -> Vec<(&'static str, String)> {
    let submitted = Declared::from(malleable);
    let other = line.malleable.as_ref().filter(|present| range(present) != range(&submitted));
    let other = other.map(|present| why_other(&submitted, present)).unwrap_or_default();
    let mut lines = vec![("malleable", range(&submitted) + &other), ("told by", told_by(&malleable.on_resize))];
    lines.push(("node lost", on_loss(malleable)));
    if !malleable.speedup.0.is_empty() {
        lines.push(("speed-up", speedup(&malleable.speedup)));
    }
    if let Some(stages) = &line.stages {
        lines.push(("generation", stages.generation.to_string()));
        if !stages.leaving.is_empty() {
            lines.push(("leaves", hostlist::fold(&stages.leaving)));
        }
        if stages.n_violations > 0 {
            let text = format!("{}: processes had to be killed on nodes that it had freed", stages.n_violations);
            lines.push(("violations", text));
        }
    }
    lines
}

/// Returns the sizes that are possible now, and why they are others than those of the submission.
fn why_other(submitted: &Declared, present: &Declared) -> String {
    let least = Declared { least: present.least, ..submitted.clone() };
    let ranks = "ranks of mpirun that cannot leave before all of them end";
    match present.least > submitted.least && range(&least) == range(present) {
        true => format!("; {} at least now: its program has declared this, or has {ranks}", present.least),
        false => format!("; {} now, as its program has declared", range(present)),
    }
}

fn on_loss(malleable: &Malleable) -> String {
    let shrinks = "goes on without it, if as many as its least are left";
    match (malleable.survives_loss, &malleable.on_resize) {
        (Some(true), _) | (None, OnResize::Workers) => shrinks.to_owned(),
        (None, OnResize::Negotiates) => format!("{shrinks}, and its negotiator has said that it can; else it ends"),
        (Some(false), _) | (None, OnResize::Signal(_) | OnResize::Hook(_)) => "it ends".to_owned(),
    }
}

fn told_by(on_resize: &OnResize) -> String {
    match on_resize {
        OnResize::Negotiates => "its own negotiator".to_owned(),
        OnResize::Signal(signal) => format!("signal {}", signal::name(*signal)),
        OnResize::Hook(command) => format!("the command {}", rms_model::plain::plain(command)),
        OnResize::Workers => "starting and ending its workers".to_owned(),
    }
}

fn speedup(speedup: &Speedup) -> String {
    let point = |(nodes, milli): &(u32, u32)| format!("{nodes}:{}", f64::from(*milli) / 1000.0);
    speedup.0.iter().map(point).collect::<Vec<_>>().join(",")
}

/// Returns a sentence for `rms explain`; empty for a job whose size does not change.
pub fn sentence(line: &JobLine, open: &[&NegotiationLine], now: Time) -> String {
    let Some(declared) = &line.malleable else { return String::new() };
    let mut text = match declared.most {
        0 => " Its size may be negotiated.".to_owned(),
        most if most == declared.least => format!(" It keeps its {most} nodes, unless it asks for others."),
        _ => format!(" While it runs it can be changed: {}.", in_words(declared)),
    };
    for line in open {
        let until = line.until.map(|until| format!(", until {}", stamp::clock(until, now))).unwrap_or_default();
        text += &format!(" It negotiates {}{until}.", negotiations::brief(line));
    }
    let leaving = line.stages.as_ref().map(|stages| stages.leaving.as_slice()).unwrap_or_default();
    if !leaving.is_empty() {
        text += &format!(" It is leaving {}.", hostlist::fold(leaving));
    }
    text
}

/// Returns the limits and, for a running job, how often its nodes have changed and which it is leaving; null for a job
/// whose size does not change.
pub fn to_json(line: &JobLine) -> Value {
    let Some(declared) = &line.malleable else { return Value::Null };
    let Declared { least, most, sizes, speedup: Speedup(points) } = declared;
    let speedup = points.iter().map(|(nodes, milli)| json!({"nodes": nodes, "speed": f64::from(*milli) / 1000.0}));
    json!({
        "range": range(declared),
        "least": least,
        "most": most,
        "sizes": json::sizes(sizes),
        "speedup": speedup.collect::<Vec<_>>(),
        "generation": line.stages.as_ref().map_or(u32::from(line.started.is_some()), |stages| stages.generation),
        "leaving": line.stages.as_ref().map(|stages| stages.leaving.as_slice()).unwrap_or_default(),
        "violations": line.stages.as_ref().map_or(0, |stages| stages.n_violations),
    })
}

/// Returns how the job learns of a change, or null.
pub fn on_resize_json(malleable: Option<&Malleable>) -> Value {
    match malleable.map(|malleable| &malleable.on_resize) {
        None => Value::Null,
        Some(OnResize::Negotiates) => json!("negotiates"),
        Some(OnResize::Workers) => json!("workers"),
        Some(OnResize::Signal(number)) => json!({"signal": signal::name(*number)}),
        Some(OnResize::Hook(command)) => json!({"exec": command}),
    }
}
