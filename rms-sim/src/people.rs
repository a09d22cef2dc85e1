//! Who uses the simulated system.

use rms_model::{Identity, Role};

/// An admin, as stories know her.
pub fn admin() -> Identity {
    Identity::new(Role::Admin, "root").expect("a name")
}

pub fn user(name: &str) -> Identity {
    Identity::new(Role::User, name).expect("a name")
}
