//! What an admin and her users may rely on, told as stories in virtual time.

mod sim {
    mod administration;
    mod calls;
    mod durable;
    mod ending;
    mod fencing;
    mod found;
    mod launchers;
    mod negotiation;
    mod nodes;
    mod queue;
    mod scheduling;
    mod supervisors;
    mod tokens;
}
