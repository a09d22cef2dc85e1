//! Compares the layout in Rust with that in C.

use std::path::Path;
use std::process::Command;

use rms_malleable::{ANSWER_BYTES, MAGIC, MOST_PROCESSES, REQUEST_BYTES, VERSION, page};

#[test]
fn both_languages_have_one_layout() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, program) = (dir.join("layout.c"), dir.join("layout"));
    let lines = [
        format!("RMS_MAGIC == {MAGIC} && RMS_VERSION == {VERSION} && RMS_MOST_PROCESSES == {MOST_PROCESSES}"),
        format!("sizeof(struct rms_page) == {} && sizeof(struct rms_request) == {REQUEST_BYTES}", page::BYTES),
        format!("sizeof(struct rms_answer) == {ANSWER_BYTES} && RMS_MASK_WORDS == {}", page::WORDS),
        format!("offsetof(struct rms_page, magic) == {}", page::MAGIC),
        format!("offsetof(struct rms_page, version) == {}", page::VERSION),
        format!("offsetof(struct rms_page, seq) == {}", page::SEQ),
        format!("offsetof(struct rms_page, n_cpus) == {}", page::N_CPUS),
        format!("offsetof(struct rms_page, most) == {}", page::MOST),
        format!("offsetof(struct rms_page, is_over) == {}", page::IS_OVER),
        format!("offsetof(struct rms_page, mask) == {}", page::MASK),
        format!("offsetof(struct rms_page, acked_seq) == {}", page::ACKED_SEQ),
        format!("offsetof(struct rms_page, threads) == {}", page::THREADS),
    ];
    let asserts: String = lines.iter().map(|line| format!("_Static_assert({line}, \"{line}\");\n")).collect();
    let text = format!("#include <stddef.h>\n#include \"wire.h\"\n{asserts}int main(void) {{ return 0; }}\n");
    std::fs::write(&source, text).expect("a file");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-I"]).arg(root.join("src/c")).arg("-o").arg(program).arg(source);
    let output = compiler.output().expect("a C compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
