//! The users of the simulated system.

use rms_model::{Identity, Role};

/// Returns an admin for stories.
pub fn admin() -> Identity {
    Identity::new(Role::Admin, "root").expect("a name")
}

pub fn user(name: &str) -> Identity {
    Identity::new(Role::User, name).expect("a name")
}
