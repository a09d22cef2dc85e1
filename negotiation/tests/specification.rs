//! Checks that the table in the specification is the one in the code. `LIMBER_BLESS=1` rewrites it.

use std::path::Path;

const BEGIN: &str = "<!-- from table::render; LIMBER_BLESS=1 cargo test -p negotiation writes it anew -->\n";
const END: &str = "<!-- end of the table -->\n";

#[test]
fn the_table_in_the_specification_is_the_one_of_the_code() {
    shows_the_table("negotiation.md");
}

#[test]
fn the_table_in_the_protocol_is_the_one_of_the_code() {
    shows_the_table("protocol.md");
}

fn shows_the_table(document: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(document);
    let text = std::fs::read_to_string(&path).expect("the specification is there");
    let (before, rest) = text.split_once(BEGIN).expect("the table's place is marked");
    let (published, after) = rest.split_once(END).expect("the table's end is marked");
    let table = format!("\n{}", negotiation::table::render());
    if test_kit::variable("LIMBER_BLESS").is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{table}{END}{after}")).expect("it can be written");
    } else {
        assert!(published == table, "docs/{document} shows another table; LIMBER_BLESS=1 writes it anew:\n{table}");
    }
}
