//! Checks that every verb and flag of `rms` that a message, a help text or a guide names exists.

use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory};

use super::Cli;

/// Where a command line in prose may begin: after a quote, in a code block, or after another command.
const BEFORE: [&str; 10] = ["'", "`", "\"", "$(", "&& ", "; ", "| ", "$ ", "then ", "if "];

/// Characters that end it.
const ENDS: [char; 10] = ['\'', '`', '"', ';', '|', '&', '#', ')', '>', '<'];

#[test]
fn what_is_named_exists() {
    let mut cli = Cli::command();
    cli.build();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned();
    let mut n_checked = 0;
    let mut wrong = Vec::new();
    for path in texts(&root) {
        let text = std::fs::read_to_string(&path).expect("the sources can be read");
        for (line_idx, line) in text.lines().enumerate() {
            for command in named(line) {
                n_checked += 1;
                if let Err(problem) = check(&cli, &command) {
                    wrong.push(format!("{}:{}: 'rms {command}': {problem}", path.display(), line_idx + 1));
                }
            }
        }
    }
    assert!(n_checked > 300, "only {n_checked} commands were found");
    assert!(wrong.is_empty(), "these are named and do not exist:\n{}", wrong.join("\n"));
}

/// Returns the guides, the files that are shipped for administrators, and the sources without the tests, which contain
/// wrong commands on purpose.
fn texts(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).expect("the sources can be listed").flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let is_ours = !name.starts_with('.')
            && !["target", "tests", "xtask", "golden.rs", "tests.rs", "named.rs"].contains(&&*name);
        if path.is_dir() && is_ours {
            found.extend(texts(&path));
        } else if is_ours && [".rs", ".md", ".toml", ".sh", ".service"].iter().any(|end| name.ends_with(end)) {
            found.push(path);
        }
    }
    found
}

/// Returns what follows `rms ` in each command line.
fn named(line: &str) -> Vec<String> {
    let mut commands = Vec::new();
    for (at, _) in line.match_indices("rms ") {
        let before = &line[..at];
        let is_begin = before.trim().is_empty() || BEFORE.iter().any(|sign| before.ends_with(sign));
        let rest = &line[at + "rms ".len()..];
        let is_verb = rest.starts_with(|c: char| c.is_ascii_lowercase() || c == '-');
        if is_begin && is_verb && !before.trim_start().starts_with("//") {
            let end = rest.find(ENDS).unwrap_or(rest.len());
            // Two spaces or more separate an example from its explanation.
            let command = rest[..end].split("  ").next().unwrap_or_default();
            commands.push(command.trim_end_matches(['.', ',', ':', '\\']).trim().to_owned());
        }
    }
    commands
}

fn check(cli: &Command, text: &str) -> Result<(), String> {
    let mut verb = cli;
    let mut n_words = 0;
    let mut words = text.split_whitespace().peekable();
    while let Some(word) = words.next() {
        if word == "--" {
            break;
        }
        if let Some(flag) = word.strip_prefix("--") {
            let name =
                flag.split('=').next().unwrap_or(flag).trim_matches(|c: char| !c.is_ascii_alphanumeric() && c != '-');
            let known = verb.get_arguments().find(|arg| {
                arg.get_long() == Some(name) || arg.get_all_aliases().is_some_and(|all| all.contains(&name))
            });
            let known = known.or_else(|| cli.get_arguments().find(|arg| arg.get_long() == Some(name)));
            match known {
                Some(arg) if arg.get_action().takes_values() && !flag.contains('=') => drop(words.next()),
                Some(_) => {}
                None if ["help", "version"].contains(&name) => {}
                None => return Err(format!("'{}' has no flag --{name}", verb.get_name())),
            }
            continue;
        }
        if let Some(short) =
            word.strip_prefix('-').and_then(|word| word.chars().next()).filter(char::is_ascii_alphabetic)
        {
            let of = |command: &Command| command.get_arguments().find(|arg| arg.get_short() == Some(short)).cloned();
            match of(verb).or_else(|| of(cli)) {
                Some(arg) if arg.get_action().takes_values() && word.len() == 2 => drop(words.next()),
                Some(_) => {}
                None if short == 'h' || short == 'V' => {}
                None => return Err(format!("'{}' has no flag -{short}", verb.get_name())),
            }
            continue;
        }
        if verb.has_subcommands() {
            let is_word = word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
            match verb.find_subcommand(word) {
                Some(next) => verb = next,
                // A list of verbs, or a placeholder for one.
                None if !is_word || word == "help" => return Ok(()),
                None => return Err(format!("'{}' has no verb '{word}'", verb.get_name())),
            }
            continue;
        }
        n_words += 1;
        let positionals: Vec<_> = verb.get_positionals().collect();
        let takes_many = positionals.iter().any(|arg| arg.get_num_args().is_some_and(|range| range.max_values() > 1));
        if !takes_many && n_words > positionals.len() {
            return Err(format!("'{}' takes no '{word}' there", verb.get_name()));
        }
        // After a program come the program's own flags.
        let is_program = verb.get_positionals().any(|arg| arg.is_trailing_var_arg_set());
        if is_program && !word.starts_with('-') {
            break;
        }
    }
    Ok(())
}

#[test]
fn what_does_not_exist_is_found() {
    let mut cli = Cli::command();
    cli.build();
    for (line, is_right) in [
        ("run 'rms nodes' first", true),
        ("('rms nodes remove {node}')", false),
        ("('rms admin remove {node}')", true),
        ("try 'rms node a1'", false),
        ("try 'rms admin forget a1'", false),
        ("try `rms queue --wach`", false),
        ("rms run -N 2 -- ./program --flag", true),
        ("rms run -N 2 ./program --flag", true),
        ("rms submit -Z 2 job.sh", false),
    ] {
        let commands = named(line);
        assert_eq!(commands.len(), 1, "{line}");
        assert_eq!(check(&cli, &commands[0]).is_ok(), is_right, "{line}");
    }
}
