//! Separates differences between settings from chance: intervals from resamples, and the conclusions from them.

use serde::Serialize;

use super::{Point, Sweep};

/// A value of the real past, and the interval around it in which 95 % of such pasts lie.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Interval {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

/// The comparison of a setting with the one in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It is the setting in force.
    Current,
    /// Waits are shorter, beyond chance.
    Better,
    Worse,
    /// The difference may be chance.
    NoDifference,
}

/// The recommended action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Advice {
    /// Another setting is better.
    Change,
    /// No other setting is better, some are worse.
    Keep,
    /// The settings make no difference beyond chance.
    NoDifference,
    /// The past is too short to decide.
    TooLittle,
}

impl Verdict {
    pub fn words(self) -> &'static str {
        match self {
            Verdict::Current => "in force",
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::NoDifference => "no diff.",
        }
    }
}

impl Interval {
    /// Computes the interval from the value of the past itself, which is first, and those of its resamples.
    pub fn of(values: &[f64]) -> Interval {
        let (value, half) = (values[0], NORMAL * deviation(&values[1..]));
        Interval { value, low: value - half, high: value + half }
    }

    /// Returns half of its width.
    pub fn half(&self) -> f64 {
        (self.high - self.low) / 2.0
    }

    /// Judges a difference of waits.
    pub fn verdict(&self) -> Verdict {
        if self.high < -ROUNDING {
            Verdict::Better
        } else if self.low > ROUNDING {
            Verdict::Worse
        } else {
            Verdict::NoDifference
        }
    }
}

/// Returns the difference of each setting to that at `reference`, past by past. `waits` are by setting, the past itself
/// first.
///
/// An interval includes the past's own difference and the mean of the resamples, from the lower to the higher of both:
/// a difference that the past shows and its resamples do not was an accident of its order, however precisely it is
/// known. The intervals hold for all settings together: among thirty settings one looks better by chance. They are as
/// many standard errors wide as the farthest of all settings lies from the other resamples, in no more than 5 % of the
/// resamples (a studentized maximum).
pub fn against(waits: &[Vec<f64>], reference: usize) -> Vec<Interval> {
    let paired =
        |own: &Vec<f64>| -> Vec<f64> { own.iter().zip(&waits[reference]).map(|(own, other)| own - other).collect() };
    let differences: Vec<Vec<f64>> = waits.iter().map(paired).collect();
    let n_resamples = waits[reference].len() - 1;
    let mut maxima = vec![0.0_f64; n_resamples];
    for values in &differences {
        maxima.iter_mut().zip(studentized(&values[1..])).for_each(|(most, value)| *most = most.max(value));
    }
    maxima.sort_by(f64::total_cmp);
    let rank = (CONFIDENCE * (n_resamples + 1) as f64).ceil() as usize;
    let factor = maxima[rank.clamp(1, n_resamples) - 1].max(NORMAL);
    let interval = |values: &Vec<f64>| {
        let (value, mean, half) = (values[0], mean(&values[1..]), factor * deviation(&values[1..]));
        Interval { value, low: value.min(mean) - half, high: value.max(mean) + half }
    };
    differences.iter().map(interval).collect()
}

/// Returns how far each value lies from the mean of the others, in standard deviations of the others: a value
/// contributes to the deviation of all, and so would never look far from them.
fn studentized(values: &[f64]) -> impl Iterator<Item = f64> {
    let (n, mean, deviation) = (values.len() as f64, mean(values), deviation(values));
    values.iter().map(move |value| {
        if deviation <= ROUNDING {
            return 0.0;
        }
        let inner = (value - mean).abs() / (deviation * (1.0 - 1.0 / n).sqrt());
        let left = n - 1.0 - inner.powi(2);
        // If all others are equal, there is no scale to measure by.
        if left <= ROUNDING { FARTHEST } else { (inner * ((n - 2.0) / left).sqrt()).min(FARTHEST) }
    })
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns the standard deviation.
fn deviation(values: &[f64]) -> f64 {
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (values.len() - 1) as f64).sqrt()
}

/// Recommends, among the settings that waste little enough, the fairest ones, as far as there are launchers to be fair
/// to; of those one that is better than the setting in force beyond chance, else that setting, or the one nearest to
/// it.
pub fn recommend(
    sweep: &Sweep,
    points: &[Point],
    waits: &[Vec<f64>],
    current_idx: usize,
    has_launchers: bool,
    is_enough: bool,
) -> (usize, Advice, String) {
    if !is_enough {
        let reason = format!(
            "jobs were submitted in fewer than {} blocks of the past: what differs cannot be told from chance. Run it \
             again with a longer past, or try a shorter --block",
            super::LEAST_BLOCKS
        );
        return (current_idx, Advice::TooLittle, reason);
    }
    let percent = 100.0 * sweep.most_waste;
    let unfairness = |idx: usize| if has_launchers { points[idx].unfairness } else { 0.0 };
    let affordable: Vec<usize> = (0..points.len()).filter(|idx| points[*idx].waste.high <= sweep.most_waste).collect();
    let Some(fairest) = affordable.iter().map(|idx| unfairness(*idx)).min_by(f64::total_cmp) else {
        let least = (0..points.len()).min_by(|one, two| points[*one].waste.value.total_cmp(&points[*two].waste.value));
        let least = least.unwrap_or(current_idx);
        let answer = if least == current_idx { Advice::Keep } else { Advice::Change };
        return (
            least,
            answer,
            format!("every setting may waste more than {percent} % of the node-time; this one wastes the least"),
        );
    };
    let equals: Vec<usize> = affordable.into_iter().filter(|idx| unfairness(*idx) <= fairest).collect();
    let current = &points[current_idx];
    let distance = |idx: &usize| {
        let timer = (points[*idx].resched_timer_s - current.resched_timer_s).abs();
        (timer, (points[*idx].fair_start_s - current.fair_start_s).abs())
    };
    let nearer =
        |one: &usize, two: &usize| distance(one).partial_cmp(&distance(two)).unwrap_or(std::cmp::Ordering::Equal);
    // The setting in force is the nearest to itself.
    let reference = equals.iter().copied().min_by(nearer).unwrap_or(current_idx);
    let differences = against(waits, reference);
    let others = || equals.iter().copied().filter(|idx| *idx != reference);
    let better = others().filter(|idx| differences[*idx].verdict() == Verdict::Better);
    let best = better.min_by(|one, two| differences[*one].value.total_cmp(&differences[*two].value));
    let fair = |idx: usize| match has_launchers {
        true => format!(
            ", leaves the fewest launchers behind ({:.0} %, if they take up to {} to adapt)",
            100.0 * unfairness(idx),
            sweep.longest_adaptation
        ),
        false => String::new(),
    };
    let waits_of = |idx: usize, against: &Interval| {
        format!(
            "mean wait {:+.1} s ({:+.1} to {:+.1}) against {}",
            against.value,
            against.low,
            against.high,
            name(&points[idx])
        )
    };
    match best {
        Some(best) => {
            let what = waits_of(reference, &differences[best]);
            (
                best,
                Advice::Change,
                format!("it wastes at most {percent} %{}, and jobs wait for less: {what}", fair(best)),
            )
        }
        None if reference != current_idx => {
            let what = waits_of(current_idx, &points[reference].difference_s);
            let why = match has_launchers && points[reference].unfairness < current.unfairness {
                true => format!("it wastes at most {percent} %{}; {what}", fair(reference)),
                false => format!("the setting in force may waste more than {percent} % of the node-time; {what}"),
            };
            (reference, Advice::Change, why)
        }
        None => {
            let is_alone = others().next().is_none();
            let any_worse = points.iter().any(|point| point.verdict == Verdict::Worse);
            let (answer, why) = if is_alone && points.len() > 1 {
                (Advice::Keep, format!("no other setting wastes at most {percent} %{}", fair(current_idx)))
            } else if any_worse {
                (Advice::Keep, "no other setting is better beyond chance, and some are worse".to_owned())
            } else {
                (Advice::NoDifference, "no difference between the settings is more than chance".to_owned())
            };
            (current_idx, answer, why)
        }
    }
}

fn name(point: &Point) -> String {
    format!("fair_start={}s resched_timer={}s", point.fair_start_s, point.resched_timer_s)
}

/// The part of all such pasts that is within an interval; in standard errors, where nothing else is known.
const CONFIDENCE: f64 = 0.95;
const NORMAL: f64 = 1.96;
const FARTHEST: f64 = 10.0;
/// Differences in seconds that are no more than the rounding of sums.
const ROUNDING: f64 = 1e-9;
