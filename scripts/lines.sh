#!/usr/bin/env bash
# Lines of Rust by crate at two commits, without generated code, as a table: `just lines`. Unit tests in files of their
# own count as tests, those at the end of a source file as source.
set -euo pipefail
cd "$(dirname "$0")/.."
old="${1:-8862f5d}" new="${2:-HEAD}"

count() {
    git ls-tree -r --name-only "$1" | grep '\.rs$' | grep -v /generated/ | while read -r file; do
        crate="$(sed -E 's#^(crates/[^/]*|[^/]*).*#\1#' <<<"$file")"
        case "$file" in tests/* | */tests/* | */tests.rs | *_tests.rs) part=2 ;; *) part=1 ;; esac
        echo "$2 $crate $part $(git show "$1:$file" | wc -l)"
    done
}

{ count "$old" 1 && count "$new" 2; } | awk -v old="$old" -v new="$new" '
    { lines[$2, $1, $3] += $4; sum[$1, $3] += $4; crates[$2] }
    END {
        print "| crate | source at " old " | tests | source at " new " | tests |"
        print "| --- | ---: | ---: | ---: | ---: |"
        for (c in crates)
            printf "| %s | %d | %d | %d | %d |\n", c, lines[c, 1, 1], lines[c, 1, 2], lines[c, 2, 1], lines[c, 2, 2] | "sort"
        close("sort")
        printf "| all | %d | %d | %d | %d |\n", sum[1, 1], sum[1, 2], sum[2, 1], sum[2, 2]
    }'
