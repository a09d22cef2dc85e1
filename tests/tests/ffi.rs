//! The C library as C, C++ and Fortran programs find it: header, both libraries, pkg-config, manual; and misuse.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rms_tests::sdk::{Language, Linkage, Sdk, sdk};
use tempfile::TempDir;

/// A program of `rms-ffi`, compiled into a directory that goes with it.
struct Program {
    dir: TempDir,
}

impl Program {
    fn compile(language: Language, source: &str, linkage: Linkage) -> Option<Program> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        sdk().compile(language, source, linkage, &dir.path().join("program")).then_some(Program { dir })
    }

    /// Runs it as no process of any job.
    fn run(&self, before: &[&str]) -> Output {
        let program = self.dir.path().join("program");
        let (first, rest) =
            before.split_first().map_or((program.as_path(), before), |(first, rest)| (Path::new(*first), rest));
        let mut command = Command::new(first);
        command.args(rest).stdin(Stdio::null()).current_dir(self.dir.path());
        if !before.is_empty() {
            command.arg(&program);
        }
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("RMS_")) {
            command.env_remove(name);
        }
        command.output().expect("it was compiled")
    }
}

/// What it printed, of a program that is content.
fn printed(output: Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    text
}

const LINKAGES: [Linkage; 2] = [Linkage::Shared, Linkage::Static];

#[test]
fn the_header_compiles_alone_in_c_and_in_cxx() {
    let header = sdk().prefix().join("include/rms.h");
    for (language, name) in [(Language::C, "c"), (Language::Cxx, "c++")] {
        let Some(mut compiler) = language.compiler() else { continue };
        let output = compiler.args(["-fsyntax-only", "-x", name]).arg(&header).output().expect("it is installed");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{name}: {text}");
    }
}

#[test]
fn long_a_program_that_misuses_everything_gets_errors_and_never_crashes() {
    for linkage in LINKAGES {
        let Some(program) = Program::compile(Language::C, "tests/programs/misuse.c", linkage) else { return };
        let text = printed(program.run(&[]));
        assert!(text.contains("of which 0 were taken wrongly"), "{text}");
        if Command::new("valgrind").arg("--version").stdout(Stdio::null()).status().is_ok() {
            printed(program.run(&["valgrind", "-q", "--error-exitcode=9"]));
        }
    }
}

#[test]
fn long_exceptions_of_cxx_pass_by_the_library() {
    for linkage in LINKAGES {
        let Some(program) = Program::compile(Language::Cxx, "tests/programs/plus.cc", linkage) else { return };
        let text = printed(program.run(&[]));
        assert!(text.contains("rms submit --malleable"), "the error says what to do: {text}");
    }
}

#[test]
fn fortran_has_the_same_structs_as_c() {
    let [c, fortran] = [(Language::C, "c"), (Language::Fortran, "f90")]
        .map(|(language, end)| Program::compile(language, &format!("tests/programs/sizes.{end}"), Linkage::Shared));
    let (Some(c), Some(fortran)) = (c, fortran) else { return };
    let numbers = |text: String| -> Vec<u32> { text.split_whitespace().filter_map(|word| word.parse().ok()).collect() };
    let sizes = numbers(printed(c.run(&[])));
    assert_eq!(sizes.len(), 8);
    assert_eq!(numbers(printed(fortran.run(&[]))), sizes);
}

#[test]
fn fortran_has_every_function_and_every_constant_of_c() {
    let module = fs::read_to_string(sdk().prefix().join("include/rms.f90")).expect("installed");
    let header = fs::read_to_string(sdk().prefix().join("include/rms.h")).expect("installed");
    let wanted: Vec<(&str, &str)> =
        header.lines().filter_map(|line| line.strip_prefix("#define RMS_")?.split_once(' ')).collect();
    assert!(wanted.len() > 30, "{}", wanted.len());
    for (name, value) in wanted.into_iter().filter(|(name, _)| !name.starts_with("INIT")) {
        let definition = format!("RMS_{name} = {}", value.trim_matches(['(', ')']));
        assert!(module.contains(&definition), "the module lacks {definition}");
    }
    for name in functions() {
        assert!(module.contains(&format!("function {name}(")), "the module lacks {name}");
    }
}

#[test]
fn long_the_examples_compile_and_say_how_they_are_used() {
    for (language, source) in [(Language::C, "examples/steps.c"), (Language::Fortran, "examples/malleable.f90")] {
        for linkage in LINKAGES {
            let Some(program) = Program::compile(language, source, linkage) else { continue };
            let output = program.run(&[]);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(said.contains("usage: "), "{output:?}");
        }
    }
}

#[test]
fn both_libraries_show_the_functions_of_the_header_and_nothing_else() {
    let wanted = functions();
    let Some(shared) = shown(sdk(), &["-D"], "librms.so") else { return };
    assert_eq!(shared, wanted);
    assert_eq!(shown(sdk(), &[], "librms.a"), Some(wanted));
}

#[test]
fn the_manual_has_every_function() {
    let manual = sdk().prefix().join("share/man/man3");
    let page = fs::read_to_string(manual.join("rms.3")).expect("installed");
    for name in functions() {
        assert!(
            page.contains(&format!(".Fn {name} ")) || page.contains(&format!(".Fo {name}\n")),
            "rms(3) lacks {name}"
        );
        assert!(manual.join(format!("{name}.3")).exists(), "there is no page {name}(3)");
    }
    for status in ["RMS_EINVAL", "RMS_ESESSION", "RMS_EFORK", "RMS_EENDED", "RMS_ETIMEDOUT"] {
        assert!(page.contains(status), "rms(3) lacks {status}");
    }
}

/// The functions that the header declares, in alphabetical order.
fn functions() -> Vec<String> {
    let header = fs::read_to_string(sdk().prefix().join("include/rms.h")).expect("installed");
    let is_declaration =
        |line: &&str| !line.starts_with([' ', '/', '#', '}']) && !line.starts_with("typedef") && !line.ends_with('{');
    let declared = header.lines().filter(is_declaration);
    let names = declared.filter_map(|line| line.split_once('(')?.0.rsplit([' ', '*']).next());
    let mut names: Vec<String> = names.filter(|name| name.starts_with("rms_")).map(str::to_owned).collect();
    names.sort();
    assert!(names.len() > 20, "{names:?}");
    names
}

/// The global symbols that a library defines, in alphabetical order; nothing if there is no `nm`.
fn shown(sdk: &Sdk, flags: &[&str], library: &str) -> Option<Vec<String>> {
    let output = Command::new("nm")
        .args(["--defined-only", "--extern-only", "--format=just-symbols"])
        .args(flags)
        .arg(sdk.prefix().join("lib").join(library))
        .output();
    let Ok(output) = output else {
        eprintln!("SKIPPED: nm (binutils) is not installed");
        return None;
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut names: Vec<String> =
        text.split_whitespace().filter(|word| !word.ends_with(".o:")).map(str::to_owned).collect();
    names.sort();
    Some(names)
}
