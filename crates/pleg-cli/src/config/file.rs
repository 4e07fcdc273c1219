//! Reads a configuration file: TOML, one key for each setting, no tables.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use anyhow::Context as _;
use toml::de::{DeTable, DeValue};

use crate::bounded;

/// The problems in a file, one line each.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub(super) struct Invalid(pub(super) Vec<String>);

/// The settings in the file. `check` returns an error for a key or value that is not valid.
pub(super) fn read(
    file: &Path,
    check: impl Fn(&str, &str) -> Result<(), String>,
) -> anyhow::Result<BTreeMap<String, String>> {
    let shown = file.display();
    let text = bounded::read(file).with_context(|| format!("cannot read {shown}"))?;
    settings(&text, check).map_err(|problems| {
        let located = problems
            .iter()
            .map(|(line, why)| format!("{shown}:{line}: {why}"));
        Invalid(located.collect()).into()
    })
}

/// The settings, or the problems and their lines.
fn settings(
    text: &str,
    check: impl Fn(&str, &str) -> Result<(), String>,
) -> Result<BTreeMap<String, String>, Vec<(usize, String)>> {
    let newlines = |before: usize| text.bytes().take(before).filter(|b| *b == b'\n').count();
    let line = |span: Range<usize>| 1 + newlines(span.start);
    let table = DeTable::parse(text)
        .map_err(|error| vec![(error.span().map_or(1, line), error.message().to_owned())])?;
    let (mut settings, mut problems) = (BTreeMap::new(), Vec::new());
    for (key, value) in table.into_inner() {
        let line = line(key.span());
        let key = key.into_inner().into_owned();
        // As on the command line.
        let value = match value.get_ref() {
            DeValue::String(text) => Ok(text.to_string()),
            DeValue::Integer(number) => Ok(number.to_string()),
            DeValue::Boolean(flag) => Ok(flag.to_string()),
            _ => Err(format!(
                "`{key}` must be a string, a number or a boolean; there are no tables"
            )),
        };
        match value.and_then(|value| check(&key, &value).map(|()| value)) {
            Ok(value) => drop(settings.insert(key, value)),
            Err(why) => problems.push((line, why)),
        }
    }
    problems.sort();
    if problems.is_empty() {
        Ok(settings)
    } else {
        Err(problems)
    }
}
