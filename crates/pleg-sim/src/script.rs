//! The behavior of a simulated container, parsed from its command. The module has no I/O.

use std::time::Duration;

/// The exit code after `SIGKILL`.
pub(crate) const KILLED: i32 = 137;
/// The exit code after `SIGTERM`.
pub(crate) const TERMINATED: i32 = 143;

/// The behavior of a container's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Script {
    /// Runs until it is stopped; exits with 0 on `SIGTERM`.
    Run,
    /// Runs until it is killed.
    IgnoreTerm,
    /// Exits on its own.
    Exit { code: i32, after: Duration },
    /// Is killed because it is out of memory.
    Oom { after: Duration },
    /// Cannot be started.
    FailStart,
}

impl Script {
    pub(crate) fn parse(command: &[String], args: &[String]) -> Self {
        let all = command.iter().chain(args);
        let words: Vec<&str> = all.flat_map(|w| w.split_whitespace()).collect();
        let exit = |code: &str, ms: &str| {
            let code = code.parse().ok().filter(|c| (0..=255).contains(c));
            let after = ms.parse().ok().map(Duration::from_millis);
            let exit = code.zip(after);
            exit.map_or(Self::Run, |(code, after)| Self::Exit { code, after })
        };
        let oom = |ms: &str| {
            let after = ms.parse().ok().map(Duration::from_millis);
            after.map_or(Self::Run, |after| Self::Oom { after })
        };
        match words[..] {
            [.., "ignore-term"] => Self::IgnoreTerm,
            [.., "fail-start"] => Self::FailStart,
            [.., "oom"] => oom("0"),
            [.., "oom", ms] => oom(ms),
            ["true" | "/bin/true"] | [.., "-c", "true"] => exit("0", "0"),
            ["false" | "/bin/false"] | [.., "-c", "false"] => exit("1", "0"),
            [.., "exit", code, ms] => exit(code, ms),
            [.., "exit", code] => exit(code, "0"),
            _ => Self::Run,
        }
    }

    /// The exit code after `SIGTERM`; `None` if the program does not exit on `SIGTERM`.
    pub(crate) fn on_term(self) -> Option<i32> {
        match self {
            Self::Run => Some(0),
            Self::Exit { .. } | Self::Oom { .. } => Some(TERMINATED),
            Self::IgnoreTerm | Self::FailStart => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_words_of_command_select_behavior_of_container() {
        let after = Duration::from_millis;
        let exit = |code, ms| Script::Exit {
            code,
            after: after(ms),
        };
        for (command, script) in [
            ("", Script::Run),
            ("sleep|inf", Script::Run),
            ("app|exit|3", exit(3, 0)),
            ("app|exit|3|250", exit(3, 250)),
            ("sh|-c|exit 1 20", exit(1, 20)),
            ("true", exit(0, 0)),
            ("/bin/false", exit(1, 0)),
            ("sh|-c|false", exit(1, 0)),
            ("app|true", Script::Run),
            ("exit|many", Script::Run),
            ("exit|256", Script::Run),
            ("exit|1|2|3", Script::Run),
            ("app|ignore-term", Script::IgnoreTerm),
            ("fail-start", Script::FailStart),
            ("app|oom|9", Script::Oom { after: after(9) }),
            ("app|oom|soon", Script::Run),
        ] {
            // The first word of the text is the container's command, the other words are its arguments.
            let words: Vec<_> = command.split('|').map(str::to_owned).collect();
            let (command, args) = words.split_at(1);
            assert_eq!(Script::parse(command, args), script, "{words:?}");
        }
    }
}
