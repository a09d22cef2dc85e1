//! Turns arguments from C into valid values, or into a failure that names the wrong argument.

use std::time::Duration;

use launcher_sdk::negotiator::{Limits, Price, Quantity, Sizes, Want};
use rms_model::sizes::MAX_SIZES;
use rms_model::{Span, Speedup, Time};

use super::pointer;
use crate::counter::Counter;
use crate::failure::Failure;
use crate::kind;
use crate::layout::{self as c, RMS_EXTEND, RMS_FEWER_CORES, RMS_GROW, RMS_MORE_CORES, RMS_SHORTEN, RMS_SHRINK};
use crate::session::Declaration;

/// Returns the timeout of answers, and whether the application survives lost nodes.
pub fn options(options: *const c::Options) -> Result<(Duration, bool), Failure> {
    if options.is_null() {
        return Ok((PATIENCE, false));
    }
    let options = pointer::read(options, "options")?;
    let patience = match u64::try_from(options.timeout_ms) {
        Ok(0) => PATIENCE,
        Ok(millis) => Duration::from_millis(millis),
        Err(_) => return Err(invalid("options: timeout_ms must not be negative")),
    };
    Ok((patience, options.survives_loss != 0))
}

/// Returns how long to wait for an event; `None` waits forever.
pub fn wait(timeout_ms: i32) -> Option<Duration> {
    u64::try_from(timeout_ms).ok().map(Duration::from_millis)
}

pub fn limits(limits: *const c::Limits) -> Result<Declaration, Failure> {
    let limits = pointer::read(limits, "limits")?;
    if limits.least == 0 || limits.least > limits.most {
        return Err(invalid("limits: least must be at least 1 and not above most"));
    }
    let sizes = sizes(limits.shape, limits.sizes, limits.n_sizes)?;
    let points = pointer::array(limits.speedup, limits.n_speedup, "limits: speedup")?;
    let is_ascending = points.windows(2).all(|pair| pair[0].nodes < pair[1].nodes);
    if !is_ascending || points.iter().any(|point| point.nodes == 0 || point.milli == 0) {
        return Err(invalid("limits: speedup must be ascending by nodes, with nothing that is 0"));
    }
    let speedup = Speedup(points.iter().map(|point| (point.nodes, point.milli)).collect());
    let (least, most) = (limits.least, limits.most);
    Ok(Declaration { limits: Limits { least, most, sizes, speedup }, is_automatic: limits.automatic != 0 })
}

/// Returns what the application requests.
pub fn terms(terms: *const c::Terms) -> Result<Want, Failure> {
    let terms = pointer::read(terms, "terms")?;
    let name = pointer::optional_text(terms.name, "terms: name")?;
    let cluster = pointer::optional_text(terms.cluster, "terms: cluster")?;
    let nodes = pointer::texts(terms.nodes, terms.n_nodes, "terms: nodes")?;
    let named = || name.clone().ok_or_else(|| invalid("terms: devices and licences need a name, like gpu or matlab"));
    let mut want = match terms.kind {
        RMS_GROW => Want::grow(terms.quantity),
        RMS_SHRINK => Want::shrink(terms.quantity),
        RMS_EXTEND => Want::more_time(millis(terms.quantity)?),
        RMS_SHORTEN => Want::less_time(millis(terms.quantity)?),
        RMS_MORE_CORES => Want::more_cores(terms.quantity),
        RMS_FEWER_CORES => Want::fewer_cores(terms.quantity),
        c::RMS_MORE_MEMORY => Want::more_memory(terms.quantity),
        c::RMS_LESS_MEMORY => Want::less_memory(terms.quantity),
        c::RMS_MORE_DEVICES => Want::more_devices(&named()?, terms.quantity),
        c::RMS_FEWER_DEVICES => Want::fewer_devices(&named()?, terms.quantity),
        c::RMS_MORE_LICENCES => Want::more_licences(&named()?, terms.quantity),
        c::RMS_FEWER_LICENCES => Want::fewer_licences(&named()?, terms.quantity),
        _ => return Err(invalid("terms: kind must be RMS_GROW, RMS_SHRINK, RMS_EXTEND, RMS_SHORTEN or RMS_MORE_...")),
    };
    for (field, is_set, has) in [
        ("cluster", cluster.is_some(), kind::has_cluster(terms.kind)),
        ("nodes", !nodes.is_empty(), kind::has_nodes(terms.kind)),
        ("name", name.is_some(), kind::has_name(terms.kind)),
    ] {
        if is_set && !has {
            return Err(Failure::Invalid(format!("terms: {} has no {field}", kind::name(terms.kind))));
        }
    }
    want = want.to_sizes(sizes(terms.shape, terms.sizes, terms.n_sizes)?);
    want = want.at_price(terms.price).with_priority(terms.priority);
    if terms.least > 0 {
        want = want.at_least(terms.least);
    }
    if let Some(span) = span(terms.duration_ms, "terms: duration_ms must not be negative")? {
        want = want.for_span(span);
    }
    if let Some(span) = span(terms.deadline_ms, "terms: deadline_ms must not be negative")? {
        want = want.by(Time::EPOCH + span);
    }
    if terms.valid_s > 0 {
        want = want.within(Span::from_secs(terms.valid_s.into()));
    }
    if let Some(cluster) = cluster {
        want = want.on(&cluster);
    }
    Ok(want.nodes(nodes))
}

/// Returns the answer to an offer.
pub fn counter(terms: *const c::Terms) -> Result<Counter, Failure> {
    let terms = pointer::read(terms, "terms")?;
    if terms.quantity == 0 || terms.least > terms.quantity {
        return Err(invalid("terms: quantity must be above 0, and not below least"));
    }
    if terms.valid_s != 0 {
        return Err(invalid("terms: valid_s must be 0 in a counter-proposal, which waits 60 s for its answer"));
    }
    Ok(Counter {
        kind: terms.kind,
        cluster: pointer::optional_text(terms.cluster, "terms: cluster")?,
        name: pointer::optional_text(terms.name, "terms: name")?,
        quantity: Quantity(terms.quantity),
        least: Quantity(if terms.least == 0 { terms.quantity } else { terms.least }),
        sizes: sizes(terms.shape, terms.sizes, terms.n_sizes)?,
        price: Price(terms.price),
        duration: span(terms.duration_ms, "terms: duration_ms must not be negative")?,
        deadline: span(terms.deadline_ms, "terms: deadline_ms must not be negative")?.map(|span| Time::EPOCH + span),
        priority: terms.priority,
        nodes: pointer::texts(terms.nodes, terms.n_nodes, "terms: nodes")?,
    })
}

pub fn sizes(shape: i32, sizes: *const u64, n_sizes: usize) -> Result<Sizes, Failure> {
    let listed = pointer::array(sizes, n_sizes, "sizes")?;
    match (shape, listed.as_slice()) {
        (c::RMS_SIZES_ANY, []) => Ok(Sizes::Any),
        (c::RMS_SIZES_POWER_OF_TWO, []) => Ok(Sizes::PowerOfTwo),
        (c::RMS_SIZES_MULTIPLE, [unit]) if *unit > 0 => Ok(Sizes::MultipleOf(*unit)),
        (c::RMS_SIZES_MULTIPLE, _) => Err(invalid("sizes: RMS_SIZES_MULTIPLE needs exactly one number above 0")),
        (c::RMS_SIZES_LISTED, listed) if listed.len() > MAX_SIZES => {
            Err(Failure::Invalid(format!("sizes: at most {MAX_SIZES} numbers")))
        }
        (c::RMS_SIZES_LISTED, [_, ..]) if listed.is_sorted_by(|a, b| a < b) => Ok(Sizes::Listed(listed)),
        (c::RMS_SIZES_LISTED, _) => Err(invalid("sizes: RMS_SIZES_LISTED needs ascending numbers")),
        (c::RMS_SIZES_ANY | c::RMS_SIZES_POWER_OF_TWO, [_, ..]) => Err(invalid("sizes: this shape has no numbers")),
        (_, _) => Err(invalid("shape must be one of RMS_SIZES_...")),
    }
}

fn millis(quantity: u64) -> Result<Span, Failure> {
    let millis = i64::try_from(quantity).map_err(|_| invalid("terms: quantity is more than a hundred years"))?;
    Ok(Span::from_millis(millis))
}

/// Returns a span, or `None` if it is 0.
fn span(millis: i64, wrong: &str) -> Result<Option<Span>, Failure> {
    match millis {
        ..0 => Err(invalid(wrong)),
        0 => Ok(None),
        1.. => Ok(Some(Span::from_millis(millis))),
    }
}

fn invalid(text: &str) -> Failure {
    Failure::Invalid(text.to_owned())
}

const PATIENCE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    #[test]
    fn sizes_are_what_their_shape_needs() {
        let check = |shape, numbers: &[u64]| sizes(shape, numbers.as_ptr(), numbers.len()).ok();
        assert_eq!(check(c::RMS_SIZES_ANY, &[]), Some(Sizes::Any));
        assert_eq!(check(c::RMS_SIZES_ANY, &[1]), None);
        assert_eq!(check(c::RMS_SIZES_MULTIPLE, &[3]), Some(Sizes::MultipleOf(3)));
        assert_eq!(check(c::RMS_SIZES_MULTIPLE, &[0]), None);
        assert_eq!(check(c::RMS_SIZES_MULTIPLE, &[]), None);
        assert_eq!(check(c::RMS_SIZES_LISTED, &[2, 3]), Some(Sizes::Listed(vec![2, 3])));
        assert_eq!(check(c::RMS_SIZES_LISTED, &[3, 3]), None);
        assert_eq!(check(c::RMS_SIZES_LISTED, &[]), None);
        assert_eq!(check(9, &[]), None);
        let many: Vec<u64> = (1..=MAX_SIZES as u64 + 1).collect();
        assert_eq!(check(c::RMS_SIZES_LISTED, &many[1..]), Some(Sizes::Listed(many[1..].to_vec())));
        let too_many = sizes(c::RMS_SIZES_LISTED, many.as_ptr(), many.len()).expect_err("the server refuses it, too");
        assert_eq!(too_many.to_string(), format!("sizes: at most {MAX_SIZES} numbers"));
        assert!(sizes(c::RMS_SIZES_LISTED, ptr::null(), 4).is_err());
        assert!(sizes(c::RMS_SIZES_LISTED, [1_u64].as_ptr(), usize::MAX).is_err(), "nothing is read of it");
    }

    #[test]
    fn a_field_that_a_kind_does_not_have_is_refused() {
        let (cluster, node, gpu) = (c"a".as_ptr(), [c"a2".as_ptr()], c"gpu".as_ptr());
        let plain = |kind| c::Terms {
            size: size_of::<c::Terms>(),
            kind,
            shape: c::RMS_SIZES_ANY,
            quantity: 1,
            least: 0,
            sizes: ptr::null(),
            n_sizes: 0,
            price: 0,
            duration_ms: 0,
            deadline_ms: 0,
            priority: 0,
            valid_s: 0,
            cluster: ptr::null(),
            nodes: ptr::null(),
            n_nodes: 0,
            name: ptr::null(),
        };
        let check = |kind: i32, fields: &str| {
            let named = fields.contains("name");
            let plain = c::Terms { name: if named { gpu } else { ptr::null() }, ..plain(kind) };
            assert_eq!(terms(&plain).map(drop).map_err(|failure| failure.to_string()), Ok(()), "{kind}");
            for (field, set) in [
                ("cluster", c::Terms { cluster, ..plain }),
                ("nodes", c::Terms { nodes: node.as_ptr(), n_nodes: 1, ..plain }),
                ("name", c::Terms { name: gpu, ..plain }),
            ] {
                match terms(&set) {
                    Ok(_) => assert!(fields.contains(field), "{kind} takes {field}"),
                    Err(failure) => {
                        assert!(!fields.contains(field), "{kind}: {failure}");
                        assert_eq!(failure.status(), c::RMS_EINVAL);
                        assert!(failure.to_string().ends_with(&format!(" has no {field}")), "{failure}");
                    }
                }
            }
        };
        check(RMS_GROW, "cluster");
        check(RMS_SHRINK, "cluster nodes");
        check(RMS_EXTEND, "");
        check(RMS_SHORTEN, "");
        check(RMS_MORE_CORES, "cluster nodes");
        check(RMS_FEWER_CORES, "cluster nodes");
        check(c::RMS_MORE_MEMORY, "cluster nodes");
        check(c::RMS_LESS_MEMORY, "cluster nodes");
        check(c::RMS_MORE_DEVICES, "cluster nodes name");
        check(c::RMS_FEWER_DEVICES, "cluster nodes name");
        check(c::RMS_MORE_LICENCES, "cluster name");
        check(c::RMS_FEWER_LICENCES, "cluster name");
    }

    #[test]
    fn a_negative_time_waits_for_ever() {
        assert_eq!((wait(-1), wait(0), wait(5)), (None, Some(Duration::ZERO), Some(Duration::from_millis(5))));
    }
}
