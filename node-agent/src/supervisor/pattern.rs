//! Fills in the patterns of output files: `run-%j-%t.out`.

/// What the letters stand for.
#[derive(Clone, Debug)]
pub struct Names<'a> {
    pub job: u64,
    pub job_name: &'a str,
    pub user: &'a str,
    pub node: &'a str,
    pub node_idx: u32,
    pub task: u32,
}

/// `%j` job, `%x` name, `%u` user, `%N` node, `%n` node index, `%t` task, `%%` a percent sign; a number between
/// them pads with zeros (`%4t`). Other letters stay as they are.
pub fn fill(pattern: &str, names: &Names<'_>) -> String {
    let mut filled = String::with_capacity(pattern.len() + 16);
    let mut rest = pattern;
    while let Some((before, after)) = rest.split_once('%') {
        filled.push_str(before);
        let n_digits = after.bytes().take_while(u8::is_ascii_digit).count();
        // A width that no file name could hold is no width.
        let width = after[..n_digits].parse::<usize>().unwrap_or(0).min(20);
        let mut letters = after[n_digits..].chars();
        let letter = letters.next();
        rest = letters.as_str();
        match letter {
            Some('j') => filled.push_str(&format!("{:0width$}", names.job)),
            Some('t') => filled.push_str(&format!("{:0width$}", names.task)),
            Some('n') => filled.push_str(&format!("{:0width$}", names.node_idx)),
            // A name given by a user must not lead out of the directory that the pattern names.
            Some('x') => filled.push_str(&names.job_name.replace('/', "_")),
            Some('u') => filled.push_str(names.user),
            Some('N') => filled.push_str(names.node),
            Some('%') => filled.push('%'),
            Some(other) => {
                filled.push('%');
                filled.push_str(&after[..n_digits]);
                filled.push(other);
            }
            None => {
                filled.push('%');
                filled.push_str(&after[..n_digits]);
            }
        }
    }
    filled.push_str(rest);
    filled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_letter_is_filled_in() {
        let names = Names { job: 7, job_name: "a/b", user: "ada", node: "n3", node_idx: 2, task: 11 };
        let check = |pattern: &str, expected: &str| assert_eq!(fill(pattern, &names), expected);
        check("rms-%j.out", "rms-7.out");
        check("%x-%u-%N-%n-%t", "a_b-ada-n3-2-11");
        check("%4t/%03j", "0011/007");
        check("100%%-%q-%", "100%-%q-%");
        check("%5", "%5");
        check("%ä%5ö", "%ä%5ö");
        check("plain", "plain");
    }
}
