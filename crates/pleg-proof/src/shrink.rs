//! Reduces the byte string from which a failing world takes its choices.

/// Shortens `bytes`, and replaces bytes with 0, as long as `fails` still returns true for the result.
pub fn shrink(bytes: &[u8], fails: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let mut best = bytes.to_vec();
    let mut size = best.len().max(1);
    while size > 0 {
        let mut at = 0;
        while at < best.len() {
            let end = (at + size).min(best.len());
            let without = [&best[..at], &best[end..]].concat();
            let mut quiet = best.clone();
            quiet[at..end].fill(0);
            if fails(&without) {
                best = without;
            } else {
                if quiet != best && fails(&quiet) {
                    best = quiet;
                }
                at = end;
            }
        }
        size /= 2;
    }
    best
}
