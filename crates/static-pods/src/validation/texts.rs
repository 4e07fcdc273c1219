//! Kinds of texts: names, keys, paths.

use std::net::IpAddr;

/// A kind of text.
pub(super) struct Text {
    /// What it is, with its article.
    what: &'static str,
    /// How to write one.
    rule: &'static str,
    allows: fn(&str) -> bool,
}

impl Text {
    pub(super) const fn new(
        what: &'static str,
        rule: &'static str,
        allows: fn(&str) -> bool,
    ) -> Self {
        Self { what, rule, allows }
    }

    /// Returns what is wrong with a text, and what to do.
    pub(super) fn problem(&self, text: &str) -> Option<String> {
        let Self { what, rule, allows } = self;
        (!allows(text)).then(|| format!("{text:?} is not {what}: {rule}"))
    }
}

/// A DNS label.
pub(super) const LABEL: Text = Text::new(
    "a name",
    "use at most 63 lower-case letters, digits and -, with a letter or digit at both ends",
    |text| text.len() <= 63 && is_label(text, '-'),
);

/// A DNS subdomain: labels with dots between them.
pub(super) const SUBDOMAIN: Text = Text::new(
    "a name",
    "use at most 253 lower-case letters, digits, - and ., with a letter or digit at both ends",
    is_subdomain,
);

/// The key of a label and of other things: a name, or a domain, `/` and a name.
pub(super) const KEY: Text = Text::new(
    "a key",
    "use at most 63 letters, digits, -, _ and ., with a letter or digit at both ends; a domain and / \
     may come before",
    is_key,
);

/// The key of an annotation. Upstream compares domains in lower case.
pub(super) const ANNOTATION_KEY: Text = Text::new(KEY.what, KEY.rule, |text| {
    is_key(&text.to_ascii_lowercase())
});

pub(super) const LABEL_VALUE: Text = Text::new(
    "the value of a label",
    "use at most 63 letters, digits, -, _ and ., with a letter or digit at both ends",
    |text| text.is_empty() || is_key_name(text),
);

/// The name of a port, as the registry of services has them.
pub(super) const PORT_NAME: Text = Text::new(
    "the name of a port",
    "use at most 15 lower-case letters, digits and single -, with at least one letter, and a letter \
     or digit at both ends",
    is_port_name,
);

pub(super) const VARIABLE: Text = Text::new(
    "the name of a variable",
    "use printable ASCII characters except =",
    |text| {
        let allowed = |byte: u8| (b' '..=b'~').contains(&byte) && byte != b'=';
        !text.is_empty() && text.bytes().all(allowed)
    },
);

pub(super) const HEADER: Text = Text::new(
    "the name of a header",
    "use letters, digits and -",
    |text| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'),
);

pub(super) const SYSCTL: Text = Text::new(
    "the name of a sysctl",
    "use parts of lower-case letters, digits, - and _ with . or / between them, such as \
     kernel.shm_rmid_forced",
    |text| {
        let part = |part: &str| is_label(&part.replace('_', "-"), '-');
        text.len() <= 253 && text.split(['.', '/']).all(part)
    },
);

pub(super) const IP: Text = Text::new("an IP address", "write one such as 10.0.0.1", |text| {
    text.parse::<IpAddr>().is_ok()
});

pub(super) const IMAGE: Text = Text::new(
    "an image",
    "remove the spaces at its start and end",
    |text| text.trim() == text,
);

pub(super) const ABSOLUTE: Text = Text::new("an absolute path", "begin it with /", |text| {
    text.starts_with('/')
});

pub(super) const NODE_PATH: Text = Text::new(
    "an absolute path without ..",
    "begin it with /, and leave out ..",
    |text| text.starts_with('/') && no_backsteps(text),
);

pub(super) const MOUNT_PATH: Text = Text::new(
    "a path in a container",
    "write a path without a colon",
    |text| !text.is_empty() && !text.contains(':'),
);

/// A path below another one.
pub(super) const RELATIVE: Text = Text::new(
    "a relative path without ..",
    "do not begin it with /, and leave out ..",
    |text| !text.starts_with('/') && no_backsteps(text),
);

/// Returns true for letters, digits and the separator, with a letter or digit at both ends.
fn is_label(text: &str, separator: char) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == separator;
    let ends = !text.starts_with(separator) && !text.ends_with(separator);
    !text.is_empty() && ends && text.chars().all(inner)
}

fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(|label| is_label(label, '-'))
}

fn is_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((domain, name)) => is_subdomain(domain) && is_key_name(name),
        None => is_key_name(text),
    }
}

fn is_key_name(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let outer = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let ends = outer(text.chars().next()) && outer(text.chars().next_back());
    text.len() <= 63 && ends && text.chars().all(inner)
}

pub(super) fn is_key_with_domain(text: &str) -> bool {
    text.contains('/') && is_key(text)
}

fn is_port_name(text: &str) -> bool {
    let letter = text.chars().any(|c| c.is_ascii_lowercase());
    text.len() <= 15 && letter && is_label(text, '-') && !text.contains("--")
}

fn no_backsteps(path: &str) -> bool {
    path.split('/').all(|part| part != "..")
}
