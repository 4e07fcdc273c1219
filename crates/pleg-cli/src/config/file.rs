//! Reads a configuration file: TOML, one key for each setting, no tables.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The largest file that is read.
const MOST_BYTES: u64 = 1 << 20;

/// A setting in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) key: String,
    pub(super) value: String,
    pub(super) line: usize,
}

/// What is wrong in a file, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) line: usize,
    pub(super) text: String,
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    /// It cannot be read.
    #[error("cannot read {}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Its content is not valid.
    #[error("{}", Problems(file, problems))]
    Invalid {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        problems: Vec<Problem>,
    },
}

impl FileError {
    /// One line for each problem.
    pub(super) fn lines(&self) -> Vec<String> {
        match self {
            Self::Unreadable { source, .. } => vec![format!("{self}: {source}")],
            Self::Invalid { file, problems } => {
                let lines = problems.iter().map(|p| located(file, p));
                lines.collect()
            }
        }
    }
}

struct Problems<'a>(&'a Path, &'a [Problem]);

impl fmt::Display for Problems<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.1.iter().map(|p| located(self.0, p)).collect();
        f.write_str(&all.join("; "))
    }
}

fn located(file: &Path, problem: &Problem) -> String {
    format!("{}:{}: {}", file.display(), problem.line, problem.text)
}

/// The settings in the file. Their keys and values are not checked.
pub(super) fn read(file: &Path) -> Result<Vec<Setting>, FileError> {
    let text = read_text(file).map_err(|source| FileError::Unreadable {
        file: file.to_owned(),
        source,
    })?;
    settings(&text).map_err(|problems| FileError::Invalid {
        file: file.to_owned(),
        problems,
    })
}

fn read_text(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    let read = File::open(file)?
        .take(MOST_BYTES + 1)
        .read_to_string(&mut text)?;
    if read as u64 > MOST_BYTES {
        let reason = format!("it is larger than {MOST_BYTES} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
    }
    Ok(text)
}

fn settings(text: &str) -> Result<Vec<Setting>, Vec<Problem>> {
    let line = |span: Range<usize>| 1 + text[..span.start].matches('\n').count();
    let table = DeTable::parse(text).map_err(|error| {
        vec![Problem {
            line: error.span().map_or(1, line),
            text: error.message().to_owned(),
        }]
    })?;
    let (mut settings, mut problems) = (Vec::new(), Vec::new());
    for (key, value) in table.into_inner() {
        let line = line(key.span());
        let key = key.into_inner().into_owned();
        match text_of(&value) {
            Some(value) => settings.push(Setting { key, value, line }),
            None => problems.push(Problem {
                line,
                text: format!(
                    "`{key}` must be a string, a number or a boolean; there are no tables"
                ),
            }),
        }
    }
    if problems.is_empty() {
        settings.sort_by_key(|setting| setting.line);
        Ok(settings)
    } else {
        Err(problems)
    }
}

/// The value as on the command line.
fn text_of(value: &Spanned<DeValue<'_>>) -> Option<String> {
    match value.get_ref() {
        DeValue::String(text) => Some(text.clone().into_owned()),
        DeValue::Integer(number) => Some(number.to_string()),
        DeValue::Boolean(flag) => Some(flag.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_key_value_and_line() {
        let text = "# about\nlisten = \"unix:///run/a\"\n\nverbose = 2\n";
        let setting = |key: &str, value: &str, line| Setting {
            key: key.to_owned(),
            value: value.to_owned(),
            line,
        };
        let expected = [
            setting("listen", "unix:///run/a", 2),
            setting("verbose", "2", 4),
        ];
        assert_eq!(settings(text).as_deref(), Ok(&expected[..]));
        assert_eq!(settings(""), Ok(vec![]));
    }

    #[test]
    fn problem_has_its_line() {
        for (text, line, words) in [
            ("a = \"1\"\nb = ", 2, "value"),
            ("a = 1\n\na = 2", 3, "duplicate key"),
            ("a = 1\n[agent]\nb = 1", 2, "`agent` must be a string"),
            ("a = 1\nb = [1]", 2, "`b` must be"),
            ("a.b = 1", 1, "no tables"),
            ("é = 1", 1, ""),
        ] {
            let problems = settings(text).expect_err(text);
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert_eq!(problems[0].line, line, "{text}: {problems:?}");
            assert!(problems[0].text.contains(words), "{problems:?}");
        }
    }
}
