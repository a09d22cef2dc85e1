//! Checks whether published values are contained in the values that are written now.

use rmpv::Value;

/// Returns whether all of `published` is in `now`, at the same place. Structs may have new fields; nothing else may
/// differ.
pub fn is_contained(published: &Value, now: &Value) -> bool {
    match (published, now) {
        (Value::Map(published), Value::Map(now)) => published.iter().all(|(name, value)| {
            let found = now.iter().find(|(found, _)| found == name);
            found.is_some_and(|(_, found)| is_contained(value, found))
        }),
        (Value::Array(published), Value::Array(now)) => {
            published.len() == now.len()
                && published.iter().zip(now).all(|(published, now)| is_contained(published, now))
        }
        (published, now) => published == now,
    }
}

/// Like [`is_contained`], for bytes of MessagePack.
pub fn is_contained_in(published: &[u8], now: &[u8]) -> bool {
    let value = |mut bytes: &[u8]| rmpv::decode::read_value(&mut bytes).expect("it is MessagePack");
    is_contained(&value(published), &value(now))
}

#[test]
fn a_field_may_come_and_nothing_may_go() {
    let map = |entries: &[(&str, i32)]| {
        let inner = entries.iter().map(|(name, value)| (Value::from(*name), Value::from(*value)));
        Value::Array(vec![Value::Map(inner.collect()), Value::Nil])
    };
    let published = map(&[("a", 1), ("b", 2)]);
    assert!(is_contained(&published, &map(&[("a", 1), ("c", 3), ("b", 2)])));
    assert!(!is_contained(&published, &map(&[("a", 1), ("c", 2)])));
    assert!(!is_contained(&published, &map(&[("a", 1), ("b", 3)])));
    assert!(!is_contained(&published, &Value::Array(vec![Value::Nil])));
}
