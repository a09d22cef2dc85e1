//! What an admin and her users may rely on, told as stories in virtual time.

mod sim {
    mod fencing;
}
