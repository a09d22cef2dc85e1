//! Signals as typed: `USR1`, `SIGTERM`, `10`.

use std::str::FromStr;

use nix::sys::signal::Signal;

/// # Errors
/// The text is not a signal; the error says what to write.
pub fn parse(text: &str) -> Result<i32, &'static str> {
    let upper = text.to_ascii_uppercase();
    let name = if upper.starts_with("SIG") { upper.clone() } else { format!("SIG{upper}") };
    let by_number = || text.parse::<i32>().ok().and_then(|number| Signal::try_from(number).ok());
    let signal = Signal::from_str(&name).ok().or_else(by_number);
    signal.map(|signal| signal as i32).ok_or("write a signal like USR1, SIGTERM or 10")
}

/// Returns the name, for example `USR1`; the number of a signal without a name.
pub fn name(signal: i32) -> String {
    match Signal::try_from(signal) {
        Ok(signal) => signal.as_str().trim_start_matches("SIG").to_owned(),
        Err(_) => signal.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_names_and_numbers() {
        for text in ["USR1", "usr1", "SIGUSR1", "10"] {
            assert_eq!(parse(text), Ok(Signal::SIGUSR1 as i32), "{text}");
        }
        assert_eq!((name(10), name(64)), ("USR1".to_owned(), "64".to_owned()));
        for text in ["", "0", "-9", "999", "SIG", "NOPE"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
