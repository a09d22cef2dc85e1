//! The variables of a process, by name and in the form for execve(2).

use std::collections::BTreeMap;
use std::ffi::CString;

use rms_model::execution::to_bytes;

/// Variables by name; the last setting of a name wins.
pub type Variables = BTreeMap<String, String>;

/// Returns `NAME=VALUE` for each variable; values with a NUL are omitted, because they cannot be passed.
pub fn to_c(variables: &Variables) -> Vec<CString> {
    let variable = |(name, value): (&String, &String)| {
        let (name, value) = (to_bytes(name), to_bytes(value));
        // With room for the NUL that follows.
        let mut bytes = Vec::with_capacity(name.len() + value.len() + 2);
        bytes.extend_from_slice(&name);
        bytes.push(b'=');
        bytes.extend_from_slice(&value);
        CString::new(bytes).ok()
    };
    variables.iter().filter_map(variable).collect()
}
