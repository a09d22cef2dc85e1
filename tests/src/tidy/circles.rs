//! The modules of a crate import downwards only: no circles between those at its top. Files inside one module may know each other.
//! A folder of a program, and one of a crate's tests, counts as a crate.

use std::collections::{BTreeMap, BTreeSet};

use super::{read, root, tracked};

/// Who imports whom, and an example: the file.
type Imports = BTreeMap<String, BTreeMap<String, String>>;

#[test]
fn modules_import_downwards_only() {
    let mut said = Vec::new();
    for folder in members().iter().flat_map(|name| folders(name)) {
        let imports = imports(&folder);
        said.extend(circles(&imports).iter().map(|circle| format!("{folder}: {}", way_around(&imports, circle))));
    }
    assert!(said.is_empty(), "imports go in circles:\n  {}", said.join("\n  "));
}

fn members() -> Vec<String> {
    let manifest = read("Cargo.toml");
    let (_, after) = manifest.split_once("members = [").expect("the workspace has members");
    let (list, _) = after.split_once(']').expect("the list ends");
    list.split(',').map(|member| member.trim().trim_matches('"').to_owned()).filter(|name| !name.is_empty()).collect()
}

/// The folders of a crate whose files are modules: `src/`, `src/bin/NAME/` and `tests/NAME/`.
fn folders(member: &str) -> BTreeSet<String> {
    let mut folders = BTreeSet::from([format!("{member}/src/")]);
    for parent in [format!("{member}/src/bin/"), format!("{member}/tests/")] {
        let files = tracked().into_iter().filter(|file| file.ends_with(".rs"));
        let folder = |file: String| Some(format!("{parent}{}/", file.strip_prefix(&parent)?.split_once('/')?.0));
        folders.extend(files.filter_map(folder));
    }
    folders
}

fn imports(prefix: &str) -> Imports {
    let files: Vec<String> =
        tracked().into_iter().filter(|name| name.starts_with(prefix) && name.ends_with(".rs")).collect();
    let module_of = |file: &str| {
        let rest = &file[prefix.len()..];
        let first = rest.split('/').next().unwrap_or_default();
        let name = first.trim_end_matches(".rs");
        (!["lib", "main", "mod", "bin", "tests"].contains(&name)).then(|| name.to_owned())
    };
    let modules: BTreeSet<String> = files.iter().filter_map(|file| module_of(file)).collect();
    // What the crate's root shows of a module is the module's.
    let lib = format!("{prefix}lib.rs");
    let shown = if root().join(&lib).exists() { shown(&read(&lib), &modules) } else { BTreeMap::new() };
    let mut imports: Imports = modules.iter().map(|module| (module.clone(), BTreeMap::new())).collect();
    for file in &files {
        let Some(module) = module_of(file) else { continue };
        let inside = &file[prefix.len()..];
        if inside.ends_with("/tests.rs") || inside.contains("/tests/") {
            continue;
        }
        let code = code(&read(file));
        let is_top = !inside.contains('/');
        let mut names = mentioned(&code, "crate::");
        if is_top {
            names.extend(mentioned(&code, "super::"));
        }
        for name in names {
            let target = if modules.contains(&name) { Some(&name) } else { shown.get(&name) };
            if let Some(target) = target.filter(|target| **target != module) {
                imports
                    .get_mut(&module)
                    .expect("every module is there")
                    .entry(target.clone())
                    .or_insert_with(|| file.clone());
            }
        }
    }
    imports
}

/// Without comments and unit tests.
fn code(source: &str) -> String {
    let end = source.find("#[cfg(test)]\nmod tests {").unwrap_or(source.len());
    let lines = source[..end].lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// The first name of each path that begins so, of each one in a group as well.
fn mentioned(code: &str, begin: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (at, _) in code.match_indices(begin) {
        let is_whole = !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':' || c == '$');
        if !is_whole {
            continue;
        }
        let rest = &code[at + begin.len()..];
        match rest.strip_prefix('{') {
            None => drop(names.insert(word(rest))),
            Some(group) => {
                let mut depth = 0;
                let mut begins = true;
                for (idx, c) in group.char_indices() {
                    match c {
                        '{' => depth += 1,
                        '}' if depth == 0 => break,
                        '}' => depth -= 1,
                        ',' if depth == 0 => begins = true,
                        c if begins && !c.is_whitespace() => {
                            names.insert(word(&group[idx..]));
                            begins = false;
                        }
                        _ => {}
                    }
                }
            }
        }
    }
    names
}

fn word(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// `pub use module::{A, B};`: A and B by their module.
fn shown(lib: &str, modules: &BTreeSet<String>) -> BTreeMap<String, String> {
    let mut shown = BTreeMap::new();
    let code = code(lib);
    for (at, _) in code.match_indices("use ") {
        let statement = code[at + 4..].split(';').next().unwrap_or_default();
        let Some((module, names)) = statement.split_once("::") else { continue };
        if modules.contains(module) {
            let names = names.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|name| !name.is_empty());
            shown.extend(names.map(|name| (name.to_owned(), module.to_owned())));
        }
    }
    shown
}

/// Sets of modules each of which leads to every other one.
fn circles(imports: &Imports) -> Vec<Vec<String>> {
    let reached: BTreeMap<&String, BTreeSet<&String>> =
        imports.keys().map(|module| (module, reached_from(imports, module))).collect();
    let mut circles = BTreeSet::new();
    for (module, reach) in &reached {
        let circle: Vec<String> =
            reach.iter().filter(|other| reached[*other].contains(module)).map(|other| (*other).clone()).collect();
        if circle.len() > 1 {
            circles.insert(circle);
        }
    }
    circles.into_iter().collect()
}

fn reached_from<'a>(imports: &'a Imports, module: &'a String) -> BTreeSet<&'a String> {
    let mut reached = BTreeSet::new();
    let mut open = vec![module];
    while let Some(next) = open.pop() {
        open.extend(imports[next].keys().filter(|target| reached.insert(*target)));
    }
    reached
}

/// One way from a module back to itself, with the files.
fn way_around(imports: &Imports, circle: &[String]) -> String {
    let mut way = vec![&circle[0]];
    let mut said = String::new();
    loop {
        let last = way[way.len() - 1];
        // The shortest way back: by breadth, from each of its imports.
        let back = |target: &&String| *target == &circle[0] || reached_from(imports, target).contains(&circle[0]);
        let next = imports[last].keys().filter(|target| circle.contains(target)).find(back);
        let Some(next) = next else { return said };
        said += &format!("{last} imports {next} ({}), ", imports[last][next]);
        if way.contains(&next) {
            return said.trim_end_matches(", ").to_owned();
        }
        way.push(next);
    }
}

#[test]
fn a_circle_is_found_and_a_way_around_is_named() {
    let imports = |pairs: &[(&str, &str)]| {
        let mut imports = Imports::new();
        for (from, to) in pairs {
            imports.entry((*to).to_owned()).or_default();
            imports.entry((*from).to_owned()).or_default().insert((*to).to_owned(), format!("{from}.rs"));
        }
        imports
    };
    let straight = imports(&[("a", "b"), ("b", "c"), ("a", "c")]);
    assert_eq!(circles(&straight), [[""; 0]; 0] as [[&str; 0]; 0]);
    let round = imports(&[("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")]);
    assert_eq!(circles(&round), [["a", "b", "c"]]);
    let way = way_around(&round, &circles(&round)[0]);
    assert_eq!(way, "a imports b (a.rs), b imports c (b.rs), c imports a (c.rs)");
    let code = code(
        "use crate::{a::{x, y}, B}; // crate::no\nfn f() { crate::c::g() }\n#[cfg(test)]\nmod tests {\nuse crate::d;",
    );
    assert_eq!(mentioned(&code, "crate::").into_iter().collect::<Vec<_>>(), ["B", "a", "c"]);
    let modules = BTreeSet::from(["a".to_owned()]);
    assert_eq!(shown("pub use a::{B, C};\npub use z::D;", &modules).len(), 2);
}
