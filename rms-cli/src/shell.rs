//! Reads a shell script to find out which variables it uses and sets, and which commands it calls, with their lines.
//!
//! It is not a shell: it follows quotes, comments, here-documents and nested expansions, but not names that are built
//! at run time. Text in quotes counts as used, because scripts write scripts (`srun sh -c '… $X'`).

/// An item found in a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub line: usize,
    pub what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A variable that is expanded without a default.
    Uses {
        name: String,
        is_quoted: bool,
    },
    /// The script handles an empty variable, by `${NAME:-…}` and similar expansions, or by `[ -n "$NAME" ]` and `[ -z
    /// "$NAME" ]`.
    Provides {
        name: String,
    },
    Sets {
        name: String,
    },
    Calls {
        command: String,
    },
    /// The script asks whether there is such a command, as by `command -v` or `type`.
    LooksUp {
        command: String,
    },
    /// A function of this name.
    Defines {
        command: String,
    },
    /// The words after a command that starts steps, once all of them were read; the line is that of the command.
    StartsStep {
        command: String,
        words: Vec<Word>,
    },
}

/// A word of the script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// The text up to the first part that is known only at run time.
    pub text: String,
    /// Whether the whole word is known before run time.
    pub is_whole: bool,
}

/// Returns all items, in the order of the script.
pub fn read(script: &str) -> Vec<Found> {
    let mut reader = Reader {
        chars: script.chars().collect(),
        at: 0,
        line: 1,
        frames: vec![Frame::code(None)],
        found: Vec::new(),
        here_documents: Vec::new(),
    };
    reader.run();
    reader.found
}

struct Reader {
    chars: Vec<char>,
    at: usize,
    line: usize,
    frames: Vec<Frame>,
    found: Vec<Found>,
    /// Here-documents that begin after the current line.
    here_documents: Vec<HereDocument>,
}

struct HereDocument {
    end: String,
    strips_tabs: bool,
}

/// The reader's context, and the current word.
struct Frame {
    kind: Kind,
    word: String,
    has_word: bool,
    /// Whether the next word is a command.
    at_command: bool,
    command: String,
    previous: String,
    /// The end of the part of the word that is known before run time, if not all of it is.
    known: Option<usize>,
    /// The current command that starts a step, with its line and words.
    step: Option<(usize, String, Vec<Word>)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Commands up to this character.
    Code(Option<char>),
    /// Between double quotes.
    Double,
    /// In `${…}`.
    Brace,
    /// In `$((…))` or `((…))`, with this many open parentheses.
    Arithmetic(u32),
}

impl Frame {
    fn code(until: Option<char>) -> Frame {
        Frame::of(Kind::Code(until))
    }

    fn of(kind: Kind) -> Frame {
        Frame {
            kind,
            word: String::new(),
            has_word: false,
            at_command: true,
            command: String::new(),
            previous: String::new(),
            known: None,
            step: None,
        }
    }
}

impl Reader {
    fn run(&mut self) {
        while self.at < self.chars.len() {
            let kind = self.frames.last().map_or(Kind::Code(None), |frame| frame.kind);
            match kind {
                Kind::Code(until) => self.in_code(until),
                Kind::Double => self.in_double(),
                Kind::Brace => self.in_brace(),
                Kind::Arithmetic(depth) => self.in_arithmetic(depth),
            }
        }
        while !self.frames.is_empty() {
            self.end_step();
            self.frames.pop();
        }
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn take(&mut self) -> Option<char> {
        let c = self.peek(0)?;
        self.at += 1;
        if c == '\n' {
            self.line += 1;
        }
        Some(c)
    }

    fn note(&mut self, what: What) {
        self.found.push(Found { line: self.line, what });
    }

    /// Returns the surrounding frame of commands.
    fn code(&mut self) -> Option<&mut Frame> {
        self.frames.iter_mut().rev().find(|frame| matches!(frame.kind, Kind::Code(_)))
    }

    fn push(&mut self, c: char) {
        if let Some(code) = self.code() {
            code.word.push(c);
            code.has_word = true;
        }
    }

    /// Marks the rest of the current word as known only at run time.
    fn guess(&mut self) {
        if let Some(code) = self.code() {
            let n_known = code.word.len();
            code.known.get_or_insert(n_known);
        }
    }

    /// Ends the command that starts a step.
    fn end_step(&mut self) {
        self.end_word();
        let Some((line, command, words)) = self.code().and_then(|code| code.step.take()) else { return };
        self.found.push(Found { line, what: What::StartsStep { command, words } });
    }

    fn begin_command(&mut self) {
        self.end_step();
        if let Some(code) = self.code() {
            code.at_command = true;
            code.command.clear();
            code.previous.clear();
        }
    }

    fn in_code(&mut self, until: Option<char>) {
        let Some(c) = self.take() else { return };
        match c {
            '\n' => {
                self.line -= 1;
                self.begin_command();
                self.line += 1;
                self.here_documents();
            }
            c if Some(c) == until => {
                self.end_step();
                self.frames.pop();
            }
            ' ' | '\t' | '\r' => self.end_word(),
            '#' if self.code().is_some_and(|code| !code.has_word) => {
                while self.peek(0).is_some_and(|c| c != '\n') {
                    self.at += 1;
                }
            }
            '\'' => self.single_quoted(),
            '"' => {
                self.has_word();
                self.frames.push(Frame::of(Kind::Double));
            }
            '\\' => {
                if let Some(escaped) = self.take().filter(|c| *c != '\n') {
                    self.push(escaped);
                }
            }
            '`' => {
                self.guess();
                self.has_word();
                self.frames.push(Frame::code(Some('`')));
            }
            '$' => self.dollar(false),
            '<' if self.peek(0) == Some('<') => {
                self.end_word();
                self.at += 1;
                if self.peek(0) == Some('<') {
                    self.at += 1;
                } else {
                    self.here_begins();
                }
            }
            '(' => self.parenthesis(),
            ')' | ';' | '&' | '|' => self.begin_command(),
            '*' | '?' | '{' | '~' | '<' | '>' => {
                self.guess();
                self.push(c);
            }
            c => self.push(c),
        }
    }

    fn has_word(&mut self) {
        if let Some(code) = self.code() {
            code.has_word = true;
        }
    }

    fn parenthesis(&mut self) {
        let Some(code) = self.code() else { return };
        let (at_command, is_array, word) = (code.at_command, code.word.ends_with('='), code.word.clone());
        if is_array {
            // `words=(a b c)`: none of these words is called.
            self.frames.push(Frame { at_command: false, ..Frame::code(Some(')')) });
        } else if at_command && word.is_empty() && self.peek(0) == Some('(') {
            self.at += 1;
            self.frames.push(Frame::of(Kind::Arithmetic(0)));
        } else if at_command && !word.is_empty() && self.peek(0) == Some(')') {
            self.at += 1;
            if let Some(code) = self.code() {
                code.word.clear();
                code.has_word = false;
            }
            self.note(What::Defines { command: word });
        } else {
            self.begin_command();
        }
    }

    fn in_double(&mut self) {
        let Some(c) = self.take() else { return };
        match c {
            '"' => drop(self.frames.pop()),
            '\\' => drop(self.take()),
            '$' => self.dollar(false),
            '`' => {
                self.guess();
                self.frames.push(Frame::code(Some('`')));
            }
            c => self.push(c),
        }
    }

    fn in_brace(&mut self) {
        let Some(c) = self.take() else { return };
        match c {
            '}' => drop(self.frames.pop()),
            '\\' => drop(self.take()),
            '"' => self.frames.push(Frame::of(Kind::Double)),
            '$' => self.dollar(false),
            _of_no_matter => {}
        }
    }

    fn in_arithmetic(&mut self, depth: u32) {
        let set_depth = |reader: &mut Reader, depth| {
            if let Some(frame) = reader.frames.last_mut() {
                frame.kind = Kind::Arithmetic(depth);
            }
        };
        let Some(c) = self.peek(0) else { return };
        if is_name_start(c) {
            // Here a name without a dollar sign is a variable.
            let name = self.name();
            return self.note(What::Uses { name, is_quoted: false });
        }
        self.take();
        match c {
            '$' => self.dollar(false),
            '"' => self.frames.push(Frame::of(Kind::Double)),
            '(' => set_depth(self, depth + 1),
            ')' if depth > 0 => set_depth(self, depth - 1),
            ')' => {
                self.at += usize::from(self.peek(0) == Some(')'));
                self.frames.pop();
            }
            _of_no_matter => {}
        }
    }

    fn single_quoted(&mut self) {
        self.has_word();
        while let Some(c) = self.take().filter(|c| *c != '\'') {
            match c {
                '$' => self.dollar(true),
                c => self.push(c),
            }
        }
    }

    /// Reads an expansion, from after the `$`. In quotes only the name counts: another program may read the text.
    fn dollar(&mut self, is_quoted: bool) {
        self.guess();
        match self.peek(0) {
            Some('{') => {
                self.at += 1;
                let is_plain = !matches!(self.peek(0), Some('#' | '!'));
                self.at += usize::from(!is_plain);
                let name = self.name();
                let operator = if self.peek(0) == Some(':') { self.peek(1) } else { self.peek(0) };
                let provides = is_plain && matches!(operator, Some('-' | '=' | '?' | '+'));
                if !is_quoted {
                    self.has_word();
                    self.frames.push(Frame::of(Kind::Brace));
                }
                match (name.is_empty(), provides) {
                    (true, _) => {}
                    (false, true) => self.note(What::Provides { name: name.clone() }),
                    (false, false) => self.used(name.clone(), is_quoted),
                }
                if provides && operator == Some('=') {
                    self.note(What::Sets { name });
                }
            }
            Some('(') if !is_quoted => {
                self.has_word();
                self.at += 1;
                if self.peek(0) == Some('(') {
                    self.at += 1;
                    self.frames.push(Frame::of(Kind::Arithmetic(0)));
                } else {
                    self.frames.push(Frame::code(Some(')')));
                }
            }
            Some(c) if is_name_start(c) => {
                let name = self.name();
                if !is_quoted {
                    self.push('$');
                }
                self.used(name, is_quoted);
            }
            Some(_) | None if is_quoted => {}
            Some(_) | None => self.push('$'),
        }
    }

    fn used(&mut self, name: String, is_quoted: bool) {
        let is_tested = self.code().is_some_and(|code| matches!(code.previous.as_str(), "-z" | "-n"));
        self.note(if is_tested { What::Provides { name } } else { What::Uses { name, is_quoted } });
    }

    fn name(&mut self) -> String {
        let mut name = String::new();
        while let Some(c) = self.peek(0).filter(|c| *c == '_' || c.is_ascii_alphanumeric()) {
            name.push(c);
            self.at += 1;
        }
        name
    }

    fn here_begins(&mut self) {
        let strips_tabs = self.peek(0) == Some('-');
        self.at += usize::from(strips_tabs);
        while self.peek(0).is_some_and(|c| c == ' ' || c == '\t') {
            self.at += 1;
        }
        let mut end = String::new();
        while let Some(c) = self.peek(0).filter(|c| !c.is_whitespace() && !";&|()<>".contains(*c)) {
            if !matches!(c, '\'' | '"' | '\\') {
                end.push(c);
            }
            self.at += 1;
        }
        self.here_documents.push(HereDocument { end, strips_tabs });
    }

    /// Reads pending here-documents. Their text contains no commands, but uses variables: unquoted documents when they
    /// are expanded, quoted ones when a program reads them.
    fn here_documents(&mut self) {
        for HereDocument { end, strips_tabs } in std::mem::take(&mut self.here_documents) {
            let begin = (self.at, self.line, self.found.len());
            let mut is_over = false;
            while !is_over && self.at < self.chars.len() {
                let rest = &self.chars[self.at..];
                let n_line = rest.iter().position(|c| *c == '\n').unwrap_or(rest.len());
                let text: String = rest[..n_line].iter().collect();
                is_over = if strips_tabs { text.trim_start_matches('\t') == end } else { text == end };
                let line_end = self.at + n_line;
                while !is_over && self.at < line_end {
                    match self.take() {
                        // The line end is not skipped as escaped here, as it would be counted twice.
                        Some('\\') => self.at += usize::from(self.at < line_end),
                        Some('$') => self.dollar(true),
                        Some(_) | None => {}
                    }
                }
                self.at = line_end;
                self.take();
            }
            if let Some(code) = self.code() {
                code.known = None;
            }
            if !is_over {
                // It is not a here-document: commands follow.
                (self.at, self.line) = (begin.0, begin.1);
                self.found.truncate(begin.2);
            }
        }
    }

    fn end_word(&mut self) {
        let line = self.line;
        let Some(code) = self.code() else { return };
        let word = std::mem::take(&mut code.word);
        let known = code.known.take();
        if !std::mem::take(&mut code.has_word) {
            return;
        }
        if let Some((_, _, words)) = &mut code.step {
            let text = word.get(..known.unwrap_or(word.len())).unwrap_or_default().to_owned();
            words.push(Word { text, is_whole: known.is_none() });
        }
        let assigned = word.split_once('=').map(|(name, _)| name.trim_end_matches('+').to_owned());
        let assigned = assigned.filter(|name| is_name(name));
        let is_announced = matches!(code.previous.as_str(), "for" | "select");
        let declares =
            matches!(code.command.as_str(), "export" | "declare" | "typeset" | "local" | "readonly" | "env" | "setenv");
        let reads = matches!(code.command.as_str(), "read" | "mapfile" | "readarray" | "getopts" | "setenv");
        let what = match (assigned, code.at_command) {
            (Some(name), true) => Some(What::Sets { name }),
            (Some(name), false) if declares => Some(What::Sets { name }),
            (_, true) if is_announced => {
                code.at_command = false;
                Some(What::Sets { name: word.clone() })
            }
            (_, true) if code.previous == "function" => Some(What::Defines { command: word.clone() }),
            (_, true) if code.command == "command" && is_asking(&code.previous) => {
                code.at_command = false;
                Some(What::LooksUp { command: word.clone() })
            }
            // After `timeout -k 5 60` and the like, a command still follows.
            (_, true) if !code.command.is_empty() && word.starts_with(|c: char| c == '-' || c.is_ascii_digit()) => None,
            (_, true) if BEFORE_COMMANDS.contains(&word.as_str()) => {
                code.command.clone_from(&word);
                None
            }
            // The command is known only at run time.
            (_, true) if word.starts_with('$') => {
                code.at_command = false;
                None
            }
            (_, true) => {
                code.at_command = false;
                code.command.clone_from(&word);
                if matches!(word.as_str(), "srun" | "rms") {
                    code.step = Some((line, word.clone(), Vec::new()));
                }
                Some(What::Calls { command: word.clone() })
            }
            (None, false) if reads && is_name(&word) => Some(What::Sets { name: word.clone() }),
            (None, false) if LOOK_UP.contains(&code.command.as_str()) && !word.starts_with('-') => {
                Some(What::LooksUp { command: word.clone() })
            }
            (None, false) if code.previous == "-v" && is_name(&word) => Some(What::Provides { name: word.clone() }),
            (_, false) => None,
        };
        code.previous = word;
        if let Some(what) = what {
            self.note(what);
        }
    }
}

/// Words after which a command follows.
const BEFORE_COMMANDS: [&str; 21] = [
    "!", "builtin", "command", "do", "elif", "else", "env", "exec", "for", "function", "if", "nice", "nohup", "select",
    "then", "time", "timeout", "until", "while", "{", "}",
];

/// Commands that tell whether there is another one; `command` does with `-v`.
const LOOK_UP: [&str; 4] = ["command", "hash", "type", "which"];

/// Returns whether the option makes `command` a question: `-v`, `-V` or `-pv`.
fn is_asking(option: &str) -> bool {
    option.starts_with('-') && option.contains(['v', 'V'])
}

fn is_name_start(c: char) -> bool {
    c == '_' || c.is_ascii_alphabetic()
}

fn is_name(word: &str) -> bool {
    word.starts_with(is_name_start) && word.chars().all(|c| c == '_' || c.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Checks what is found, by lines: `3 X` for uses, `3 'X` quoted, `3 X?` provided for, `3 X=` set, `3 x` called, `3
    /// x?()` looked up, `3 x()` defined.
    fn check(script: &str, expected: &[&str]) {
        let show = |found: &Found| {
            let line = found.line;
            match &found.what {
                What::Uses { name, is_quoted: false } => format!("{line} ${name}"),
                What::Uses { name, is_quoted: true } => format!("{line} '${name}"),
                What::Provides { name } => format!("{line} {name}?"),
                What::Sets { name } => format!("{line} {name}="),
                What::Calls { command } => format!("{line} {command}"),
                What::LooksUp { command } => format!("{line} {command}?()"),
                What::Defines { command } => format!("{line} {command}()"),
                What::StartsStep { .. } => String::new(),
            }
        };
        let is_other = |found: &&Found| !matches!(found.what, What::StartsStep { .. });
        assert_eq!(read(script).iter().filter(is_other).map(show).collect::<Vec<_>>(), expected, "{script}");
    }

    #[test]
    fn variables_are_found_where_a_shell_would_expand_them() {
        check("#!/bin/sh\ncd $A/x\nrm \"${B}/$C\" \\$D", &["2 cd", "2 $A", "3 rm", "3 $B", "3 $C"]);
        check("# $A it's\necho x#$B # $C\n", &["2 echo", "2 $B"]);
        check("n=${#A} m=${!B} o=${C%%.*}", &["1 $A", "1 n=", "1 $B", "1 m=", "1 $C", "1 o="]);
        check("echo $((A * $B << 2)) $C", &["1 echo", "1 $A", "1 $B", "1 $C"]);
        check("((i = N << 1))\necho $C", &["1 $i", "1 $N", "2 echo", "2 $C"]);
        check("echo \"$(basename \"$A\" \"`date $B`\")\"", &["1 echo", "1 basename", "1 $A", "1 date", "1 $B"]);
    }

    #[test]
    fn what_a_script_provides_for_is_told_apart() {
        check(": ${A:-x} ${B-} ${C:?no} ${D:+y} ${E:=z}", &["1 :", "1 A?", "1 B?", "1 C?", "1 D?", "1 E?", "1 E="]);
        check("x=${A:-$B}", &["1 A?", "1 $B", "1 x="]);
        check("[ -n \"$A\" ] && [[ -v B ]]", &["1 [", "1 A?", "1 [[", "1 B?"]);
        check(
            "export A=1 B\nread -r C\nfor D in x; do A=2; done",
            &["1 export", "1 A=", "2 read", "2 C=", "3 D=", "3 A=", "3 done"],
        );
    }

    #[test]
    fn commands_are_found_where_a_shell_would_call_them() {
        check("if srun a; then X=1 srun b | srun c; fi", &["1 srun", "1 X=", "1 srun", "1 srun", "1 fi"]);
        check(
            "echo srun 'srun' # srun\nexec srun\n(srun)\ntimeout -k 5 60 srun",
            &["1 echo", "2 srun", "3 srun", "4 srun"],
        );
        check("srun() { echo; }\nfunction module { :; }", &["1 srun()", "1 echo", "2 module()", "2 :"]);
        check("a=(srun -n 4)\ncase $x in srun) ls;; esac", &["1 a=", "2 case", "2 $x", "2 ls", "2 esac"]);
        check("time -p srun \\\n  -n 4\nsrun", &["1 srun", "3 srun"]);
    }

    #[test]
    fn a_question_for_a_command_is_no_call_of_it() {
        check("command -v srun && command srun", &["1 srun?()", "1 srun"]);
        check("if ! type -t ml; then hash -r ml; fi", &["1 type", "1 ml?()", "1 hash", "1 ml?()", "1 fi"]);
        check("[ -x \"$(which srun)\" ] && ls", &["1 [", "1 which", "1 srun?()", "1 ls"]);
        check("echo type srun", &["1 echo"]);
    }

    #[test]
    fn quoted_text_counts_by_its_own_line_and_comments_do_not() {
        check("sh -c 'echo $A\n${B:-1} $C'", &["1 sh", "1 '$A", "2 B?", "2 '$C"]);
        check("cat <<E > f\n$A \\$B srun\nE\nls", &["1 cat", "2 '$A", "4 ls"]);
        check("cat <<-'E'\n$A\n\tE\nls", &["1 cat", "2 '$A", "4 ls"]);
        check("cat << NEVER\n$A\nls", &["1 cat", "2 $A", "3 ls"]);
        check("cat <<E\n\\$A \\\n$B\nE\nls", &["1 cat", "3 '$B", "5 ls"]);
        check("cat <<< $A\nls", &["1 cat", "1 $A", "2 ls"]);
    }

    proptest! {
        #[test]
        fn no_script_panics(script in "[$(){}<E'\"`#\\\\\n a-b=]{0,60}") {
            let n_lines = script.matches('\n').count() + 1;
            for found in read(&script) {
                prop_assert!(found.line >= 1 && found.line <= n_lines, "{found:?}");
            }
        }
    }
}
