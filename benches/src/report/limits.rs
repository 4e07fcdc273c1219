//! What stops us where a target is missed: profiles and counts, each with how it was had. They were
//! taken by hand, and are no part of the results that the rest of the page is made from.

/// The limits behind those targets, as far as they are known: the targets, and what stops us.
pub(super) fn behind<'a>(missed: &[&'a str]) -> Vec<(Vec<&'a str>, &'static str)> {
    let of = |(targets, limit): &(&[&str], &'static str)| {
        let concerned: Vec<_> = missed
            .iter()
            .copied()
            .filter(|missed| targets.contains(missed))
            .collect();
        (!concerned.is_empty()).then_some((concerned, *limit))
    };
    LIMITS.iter().filter_map(of).collect()
}

const LIMITS: [(&[&str], &str); 9] = [
    (
        &["T1"],
        "a beat every two seconds is law 12. It takes 80 to 90 µs of CPU after a sleep, when all \
        caches are cold (one wake-up); a C program that does nothing but sleep took 49 beside it. Of 110 \
        pods the 300 beats of ten minutes are most of what there is: a fiftieth of what P2 took is \
        16 ms, and that program's wake-ups are 15. Of an audit (1,000 pods: 1.9 ms after a quiet \
        minute, 1.2 back to back) two thirds are the transport's. P2b reads lists as we do, and \
        gains by all that makes them cheaper.",
    ),
    (
        &["T2"],
        "P2 waits a second after each list, so it does not get round to 7,200 calls an hour; ours makes its 120.",
    ),
    (
        &["T3"],
        "a lone event finds cold caches. In one process the same way takes 13 µs where events \
        come 5 µs apart and 28 µs where they come 700 µs apart (`cargo bench --bench event`, the pause \
        varied). Here they come 10 ms apart. By stamps within the peer, p50, in a run where the whole took \
        64 µs (medians, which do not add up): 10 until the writer has it, 37 to join it and put the pod's status together, 2 to the cache, 5 to be announced, \
        6 to show counters and health, 12 until the consumer has looked, of which this measures the \
        end. Those 37 are 20,000 instructions, and 728 cache lines of code and 248 of data that reading the \
        event did not touch (valgrind's lackey over `hot stopped`). A line from the third-level \
        cache costs 16 ns here and one from memory 150 (a chase of pointers): 5 µs are 300 of the \
        one or 33 of the other. Code compiled for size gains nothing, huge pages 6 %, processors that \
        never halt 25 %. P0's receipt is 150 to 210 µs after the change, mostly the runtime's sending and two \
        wake-ups: 1.10 × leaves some 20 µs.",
    ),
    (
        &["T3b"],
        "P2's half second divided by 3,000 is 167 µs. P0, which does nothing with an event but receive \
        it, needs about as much (above): at p50 it would just reach 3,000 ×, and whoever does something \
        with it cannot. See T3.",
    ),
    (
        &["T4b", "T4c"],
        "h2 allocates three times for each frame that it reads, and gRPC servers in Go (containerd, \
        CRI-O) send none of more than 16 KiB, whatever a client allows: of two lists of 1.82 MB (somewhat smaller than those of the table) 403 \
        allocations with 3.69 MB are the transport's and 3 with 2 KB ours (`cargo bench --bench audit`). \
        Half of those bytes are tonic's, which puts each message together. To read the parts as they \
        come was tried: an audit takes 1.11 ms of CPU instead of 1.16, and 1.65 where glibc gives memory \
        back to the kernel after each list, for nothing large is held any more.",
    ),
    (
        &["T5"],
        "of a typical pod's 1,900 bytes 690 are texts that no other pod has (two ids, uid, name, \
        values of labels, the log's path), 368 two records, 208 the published status, 200 details, \
        104 the pod's record, 228 the trees and the cache's table, 64 the memory of the last list, the \
        rest small lists (live allocations of the peer, by their size). What is published is never changed, so that \
        a reader needs no lock: state is held twice, once to publish and once to reason about.",
    ),
    (
        &["T5b"],
        "reading an event that tells nothing new is comparing its 2.8 KB with what is remembered: \
        16,000 instructions, six a byte, of the 21,000; one of a container that was not told of \
        before makes the texts that will be kept.",
    ),
    (
        &["T7", "T8"],
        "peers have one thread: what P0 does to receive an event we do as well, and the \
        rest comes on top. A pod of which no event has told yet is read at 22,000 instructions, one \
        that was told of before at 16,000 (the reader remembers 2,048 ids and may not share the \
        writer's memory, law 8); to join, publish and announce an end takes 25,000. In the three seconds of 10,000 \
        events/s falls one list of which every container is new: of its one thread the peer needs 4 ms \
        for it (2.4 to read it, 1.4 to judge it; stamps), while the runtime, which has one thread, too, \
        has encoded all of it anew; P0 makes no lists. Half a percent of the changes are 3 to 21 ms late \
        for it. 98 % are visible within 0.6 ms in six of seven runs (P0: within 0.35); the rest falls \
        into hiccups of some 1.5 ms, of which P0 has fewer, and whose cause was not found. The storm's \
        ratio is decided by how long the runtime takes to send: 15 to 42 ms, whoever listens.",
    ),
    (
        &["T12"],
        "nothing is asked of a quiet runtime between two lists, and law 12 counts from the \
        first sign: from the call that is late. The liveness probe asks; it is off by default, for it \
        wakes both processes each time.",
    ),
];

#[cfg(test)]
mod tests {
    use super::behind;

    #[test]
    fn a_limit_is_given_once_for_the_targets_that_it_stops() {
        let limits = behind(&["T6", "T4b", "T4c", "T7"]);
        let targets: Vec<_> = limits.iter().map(|(targets, _)| targets.clone()).collect();
        assert_eq!(targets, [vec!["T4b", "T4c"], vec!["T7"]]);
        for (targets, limit) in limits {
            assert!(limit.ends_with('.') && !limit.contains("  "), "{targets:?}");
        }
    }
}
