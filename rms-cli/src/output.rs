//! Writes answers in the requested form, and treats a closed pipe as success.

use std::io::{self, IsTerminal, Write};

use clap::Args;
use serde::{Serialize, Serializer};
use serde_json::Value;

use rms_model::plain::steers;

use crate::failure::{Exit, Failure};
use crate::table::Table;

/// The flags that choose the form of all output.
#[derive(Args, Clone, Debug, Default)]
pub struct FormFlags {
    /// Print one JSON value, for errors too
    #[arg(long, global = true, conflicts_with_all = ["quiet", "parsable"], help_heading = "Output", display_order = 900)]
    pub json: bool,
    /// Print ids or names only
    #[arg(short = 'q', long, global = true, conflicts_with = "parsable", help_heading = "Output", display_order = 901)]
    pub quiet: bool,
    /// Print rows of fields separated by '|' ('\|' inside of one) with a header line; ids if there are none
    #[arg(short = 'P', long, global = true, help_heading = "Output", display_order = 902)]
    pub parsable: bool,
    /// Read and write times in UTC, not in the local time zone
    #[arg(long, global = true, help_heading = "Output", display_order = 903)]
    pub utc: bool,
    /// Do not truncate to the width of the terminal
    #[arg(long, global = true, help_heading = "Output", display_order = 904)]
    pub wide: bool,
}

/// How answers are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Text,
    Json,
    Quiet,
    Parsable,
}

/// The answer of a command, in every form.
pub trait Show {
    /// Returns the text for people.
    fn text(&self) -> String;
    /// Returns one value; times are ISO 8601 with their offset from UTC, spans are milliseconds in fields that end in
    /// `_ms`.
    fn json(&self) -> Value;
    /// Writes that value. A long list is written row by row, because all its values together would take gigabytes.
    ///
    /// # Errors
    /// Those of [`Write::write`].
    fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        Ok(serde_json::to_writer(out, &self.json())?)
    }
    /// Returns bare ids or names, one per line.
    fn ids(&self) -> Vec<String>;
    /// Returns the table for `--parsable`.
    fn table(&self) -> Option<Table>;
}

/// Where a command writes.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    form: Form,
}

impl Output {
    pub fn new(flags: &FormFlags) -> Output {
        let form = match (flags.json, flags.quiet, flags.parsable) {
            (true, _, _) => Form::Json,
            (false, true, _) => Form::Quiet,
            (false, false, true) => Form::Parsable,
            (false, false, false) => Form::Text,
        };
        Output { form }
    }

    pub fn form(self) -> Form {
        self.form
    }

    /// Writes the whole answer of a command.
    ///
    /// # Errors
    /// The standard output cannot be written (a full disk); a closed pipe is no error.
    pub fn show(self, answer: &impl Show) -> Result<(), Failure> {
        write_answer(answer, self.form)
    }

    /// Writes a note for people in addition to the answer.
    pub fn note(self, text: &str) {
        if self.form == Form::Text {
            warn(text);
        }
    }

    pub fn failure(self, failure: &Failure) {
        match self.form {
            Form::Json => {
                if write_out(format!("{}\n", failure.to_json()).as_bytes()).is_err() {
                    warn(failure.to_text().trim_end());
                }
            }
            Form::Text | Form::Quiet | Form::Parsable => warn(failure.to_text().trim_end()),
        }
    }
}

/// Writes the answer to the standard output.
///
/// # Errors
/// Those of [`write_out`].
pub fn write_answer(answer: &impl Show, form: Form) -> Result<(), Failure> {
    write_with(|out| write_as(answer, form, out))
}

/// Returns the answer as it is written to the standard output.
pub fn render(answer: &impl Show, form: Form) -> String {
    let mut written = Vec::new();
    write_as(answer, form, &mut written).expect("memory takes everything");
    String::from_utf8(written).expect("all of it is text")
}

fn write_as(answer: &impl Show, form: Form, out: &mut dyn Write) -> io::Result<()> {
    let ids = || answer.ids().into_iter().map(|id| id + "\n").collect();
    let text: String = match form {
        Form::Json => {
            answer.write_json(out)?;
            "\n".to_owned()
        }
        Form::Text => harmless(&answer.text()),
        Form::Quiet => ids(),
        Form::Parsable => answer.table().map_or_else(ids, |table| table.parsable()),
    };
    out.write_all(text.as_bytes())
}

/// A list whose rows are created one by one while they are written.
pub struct Rows<I>(pub I);

impl<I: Iterator<Item: Serialize> + Clone> Serialize for Rows<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.clone())
    }
}

/// Returns the text without foreign control sequences; the colours of this command stay.
fn harmless(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c != '\n' && c != '\t' && steers(c)) {
        let (before, strange) = rest.split_at(at);
        safe.push_str(before);
        let n_colour = colour_bytes(strange);
        let n_bytes = match n_colour {
            0 => strange.chars().next().map_or(0, char::len_utf8),
            n => n,
        };
        safe.push_str(if n_colour == 0 { "\u{fffd}" } else { &strange[..n_bytes] });
        rest = &strange[n_bytes..];
    }
    safe + rest
}

/// Returns the length of the colour of `rms view` with which the text begins: others could hide what follows.
fn colour_bytes(text: &str) -> usize {
    let Some(colour) = text.strip_prefix("\u{1b}[") else { return 0 };
    let known = ["0m", "2m", "32m", "33m", "34m", "35m"];
    known.into_iter().find(|known| colour.starts_with(known)).map_or(0, |known| 2 + known.len())
}

/// Writes to the standard output. A closed pipe (`rms queue | head`) ends the command silently, as the reader has what
/// it wanted.
///
/// # Errors
/// [`GONE`] if nobody reads the output, else the error of the system.
pub fn write_out(bytes: &[u8]) -> Result<(), Failure> {
    write_with(|out| out.write_all(bytes))
}

fn write_with(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    match write(&mut out).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            Err(Failure::new(GONE, "nobody reads the output").exit(Exit::OK))
        }
        Err(error) => Err(Failure::io("the standard output cannot be written", error)),
    }
}

/// The kind of a failure that is no error: nobody reads the output any more.
pub const GONE: &str = "output_closed";

/// Writes a line to the standard error. If that fails, there is nowhere to report it.
pub fn warn(text: &str) {
    // The text may contain user input or another user's job name: neither may control the terminal.
    let text: String = text.chars().map(|c| if steers(c) && c != '\n' { '\u{fffd}' } else { c }).collect();
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Replaces the last line of the terminal by a text, on the standard error.
pub fn draw_over(text: &str) {
    let mut err = io::stderr().lock();
    let _ = write!(err, "\r\x1b[K{text}").and_then(|()| err.flush());
}

/// Returns whether to use colours: at a terminal, unless they were turned off.
pub fn colours() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Returns whether the standard output is a terminal.
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Returns whether the standard error is a terminal.
pub fn is_stderr_terminal() -> bool {
    io::stderr().is_terminal()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_wrote_does_not_steer_the_terminal() {
        let check = |text: &str, expected: &str| assert_eq!(harmless(text), expected);
        check("plain\n\ttext", "plain\n\ttext");
        check("\u{1b}[32mgreen\u{1b}[0m", "\u{1b}[32mgreen\u{1b}[0m");
        check("\u{1b}[8mhidden", "\u{fffd}[8mhidden");
        check("\u{1b}[2Jgone\u{1b}]0;title\u{7}", "\u{fffd}[2Jgone\u{fffd}]0;title\u{fffd}");
        check("a\u{202e}txt.exe\r\u{9b}2J", "a\u{fffd}txt.exe\u{fffd}\u{fffd}2J");
        check("\u{1b}[", "\u{fffd}[");
    }
}
