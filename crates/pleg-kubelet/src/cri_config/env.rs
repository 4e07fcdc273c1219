//! `$(NAME)` in commands, arguments and values of environment variables.

use std::collections::BTreeMap;

/// Replaces each `$(NAME)` of a known variable. `$$` is a `$` that begins no reference; the reference
/// to an unknown variable stays as it is.
pub(crate) fn expand(text: &str, variables: &BTreeMap<String, String>) -> String {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        expanded.push_str(before);
        rest = after;
        if let Some(after) = rest.strip_prefix('$') {
            expanded.push('$');
            rest = after;
            continue;
        }
        let reference = rest.strip_prefix('(').and_then(|r| r.split_once(')'));
        match reference.and_then(|(name, after)| Some((variables.get(name)?, after))) {
            Some((value, after)) => {
                expanded.push_str(value);
                rest = after;
            }
            None => expanded.push('$'),
        }
    }
    expanded.push_str(rest);
    expanded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_replaced_as_upstream_replaces_them() {
        let pairs = [
            ("VAR_A", "A"),
            ("VAR_B", "B"),
            ("VAR_EMPTY", ""),
            ("REF", "$(VAR_A)"),
        ];
        let known = pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        let cases = [
            ("$(VAR_A)", "A"),
            ("___$(VAR_B)___$(VAR_A)", "___B___A"),
            ("$(VAR_EMPTY)", ""),
            ("$(REF)", "$(VAR_A)"),
            ("$$(VAR_A)", "$(VAR_A)"),
            ("$$$(VAR_A)", "$A"),
            ("$$$$(VAR_A)", "$$(VAR_A)"),
            ("$(UNKNOWN)", "$(UNKNOWN)"),
            ("$VAR_A", "$VAR_A"),
            ("$(VAR_A", "$(VAR_A"),
            ("$(VAR_A)$", "A$"),
            ("$$", "$"),
            ("$", "$"),
            ("é$(VAR_A)é", "éAé"),
            ("", ""),
        ];
        for (text, expanded) in cases {
            assert_eq!(expand(text, &known), expanded, "{text}");
        }
    }
}
