//! Stories of what the server wants in its negotiations: whom it offers hosts, whom it asks for some, and at what price.

mod starting;
