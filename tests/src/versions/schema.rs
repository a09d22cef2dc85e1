//! What programs of an older and of a newer version write and understand, as changes of what today's write.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use rmpv::Value;

/// The version that a program is held to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schema {
    /// From before jobs had accounts and comments, and before `rms update`. It leaves out what may be left out.
    Older,
    /// From after today: each struct has fields that today's programs do not know.
    Newer,
}

/// What the older version does not know.
const LATER_FIELDS: [&str; 2] = ["account", "comment"];
const LATER_CALLS: [&str; 1] = ["Update"];

/// What the newer version has beside today's.
pub const ADDED_FIELD: &str = "added_later";

impl Schema {
    /// Makes of what today's program has written what one of this version would have.
    pub fn write(self, whole: &mut Value) {
        for_each_struct(whole, &mut |fields| match self {
            // The labels that are to be changed are no struct, but a map by their names.
            Schema::Newer if fields.iter().all(|(name, _)| is_label(name)) => {}
            Schema::Older => fields.retain(|(name, value)| !(is_later(name) || is_optional(name) && is_empty(value))),
            Schema::Newer => {
                let inner = vec![(Value::from("of"), Value::from(7)), (Value::from("why"), Value::Nil)];
                let added = Value::Array(vec![Value::Map(inner), Value::from("more"), Value::from(-1)]);
                fields.insert(0, (Value::from(ADDED_FIELD), added.clone()));
                fields.push((Value::from("added_last"), added));
            }
        });
    }

    /// Takes from what a program of this version is told what it would not have understood.
    pub fn read(self, whole: &mut Value) {
        match self {
            Schema::Older => {
                for_each_struct(whole, &mut |fields| fields.retain(|(name, _)| !is_later(name)));
                forget_calls(whole);
            }
            Schema::Newer => {}
        }
    }
}

/// Gives calls that came later a name that no program knows.
fn forget_calls(whole: &mut Value) {
    let Some((call, _)) = variant(whole, "Call").and_then(only_entry) else { return };
    if LATER_CALLS.iter().any(|later| call.as_str() == Some(later)) {
        *call = Value::from("NotKnownYet");
    }
}

/// What a variant of this name holds.
fn variant<'a>(value: &'a mut Value, name: &str) -> Option<&'a mut Value> {
    only_entry(value).filter(|(key, _)| key.as_str() == Some(name)).map(|(_, held)| held)
}

fn only_entry(value: &mut Value) -> Option<(&mut Value, &mut Value)> {
    match value {
        Value::Map(entries) => match entries.as_mut_slice() {
            [(key, held)] => Some((key, held)),
            _ => None,
        },
        _ => None,
    }
}

type Fields = Vec<(Value, Value)>;

/// Innermost first.
fn for_each_struct(value: &mut Value, change: &mut dyn FnMut(&mut Fields)) {
    match value {
        Value::Map(entries) => {
            entries.iter_mut().for_each(|(_, value)| for_each_struct(value, change));
            // A variant has a name of another kind, and what users have named is no field.
            let is_struct = entries.iter().all(|(name, _)| is_field(name));
            if is_struct && !entries.is_empty() {
                change(entries);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| for_each_struct(item, change)),
        _ => {}
    }
}

fn is_later(name: &Value) -> bool {
    LATER_FIELDS.iter().any(|later| name.as_str() == Some(later))
}

fn is_label(name: &Value) -> bool {
    ["name", "account", "comment"].iter().any(|label| name.as_str() == Some(label))
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Nil | Value::Boolean(false) => true,
        Value::String(text) => text.as_bytes().is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Map(entries) => entries.is_empty(),
        Value::Integer(number) => number.as_i64() == Some(0),
        _ => false,
    }
}

/// The names of fields in the documented messages.
#[derive(Debug, Default)]
struct Names {
    all: BTreeSet<&'static str>,
    /// Those that are marked `?` wherever they are.
    optional: BTreeSet<&'static str>,
}

fn names() -> &'static Names {
    static NAMES: OnceLock<Names> = OnceLock::new();
    NAMES.get_or_init(|| {
        let (mut names, mut required) = (Names::default(), BTreeSet::new());
        let lines = include_str!("../../../docs/messages.md").lines().filter(|line| !line.trim().starts_with('#'));
        for word in lines.flat_map(|line| line.split([' ', '{', '('])) {
            let Some(name) = word.strip_suffix(':') else { continue };
            let (name, is_optional) = name.strip_suffix('?').map_or((name, false), |name| (name, true));
            names.all.insert(name);
            if is_optional {
                names.optional.insert(name)
            } else {
                required.insert(name)
            };
        }
        names.optional.retain(|name| !required.contains(name));
        names
    })
}

/// Those of the order of a supervisor and of its entry are in no message.
const OF_SUPERVISORS: [&str; 9] =
    ["order", "boot", "seat", "supervisor", "mask", "agent_socket", "rsh", "mark", "aliases"];

fn is_field(name: &Value) -> bool {
    let is_known = |name: &str| names().all.contains(name) || OF_SUPERVISORS.contains(&name);
    name.as_str().is_some_and(is_known)
}

fn is_optional(name: &Value) -> bool {
    name.as_str().is_some_and(|name| names().optional.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(entries: &[(&str, Value)]) -> Value {
        Value::Map(entries.iter().map(|(name, value)| (Value::from(*name), value.clone())).collect())
    }

    #[test]
    fn an_older_program_leaves_out_what_is_empty_and_what_came_later() {
        let labels = map(&[("name", "x".into()), ("account", "y".into())]);
        let mut job = map(&[("labels", labels), ("begin", Value::Nil), ("requeue", Value::Nil), ("job", 0.into())]);
        Schema::Older.write(&mut job);
        assert_eq!(job, map(&[("labels", map(&[("name", "x".into())])), ("job", 0.into())]));
    }

    #[test]
    fn an_older_server_knows_no_later_call() {
        let update = |name: &str| map(&[("Call", map(&[(name, map(&[("select", "Last".into())]))]))]);
        let (mut call, mut hold) = (update("Update"), update("Hold"));
        [&mut call, &mut hold].into_iter().for_each(|call| Schema::Older.read(call));
        assert_eq!((call, hold), (update("NotKnownYet"), update("Hold")));
    }

    #[test]
    fn a_newer_program_adds_to_structs_and_to_nothing_else() {
        let names = map(&[("PATH", "/bin".into()), ("north", 2.into())]);
        let mut whole = map(&[("Submit", map(&[("environment", names.clone()), ("job", 1.into())]))]);
        Schema::Newer.write(&mut whole);
        let fields = variant(&mut whole, "Submit").and_then(|value| value.as_map()).expect("a struct").clone();
        let told: Vec<&str> = fields.iter().filter_map(|(name, _)| name.as_str()).collect();
        assert_eq!(told, [ADDED_FIELD, "environment", "job", "added_last"]);
        assert_eq!(fields[1].1, names);
    }
}
