//! The keepalive enforcement of grpc-go servers, which includes all real runtimes.
//!
//! hyper answers pings without reporting them, so this reads the frame headers as they pass. A ping
//! less than five minutes after the previous one is a strike, unless the server sent headers or
//! data in between. The third strike is answered with GOAWAY `ENHANCE_YOUR_CALM` "too_many_pings",
//! and the connection is closed. Pure: bytes and times are arguments.

use std::time::Duration;

use tokio::time::Instant;

/// The minimum time between two pings.
const MIN_INTERVAL: Duration = Duration::from_secs(5 * 60);
/// The number of strikes that the server accepts.
const MAX_STRIKES: u32 = 2;
const PREFACE: usize = 24;
const HEADER: usize = 9;
const ACK: u8 = 1;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PING: u8 = 6;

/// GOAWAY on stream 0, with last stream id 2^31 - 1, code 11 and the debug data.
pub(crate) const GOAWAY: &[u8] = b"\0\0\x16\x07\0\0\0\0\0\x7f\xff\xff\xff\0\0\0\x0btoo_many_pings";

/// Finds frames in a byte stream that arrives in arbitrary pieces.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    /// The number of bytes to skip: the preface or a payload.
    skip: usize,
    header: Vec<u8>,
}

impl Frames {
    /// For the byte stream of a client, which starts with the preface.
    pub(crate) fn after_preface() -> Self {
        Self {
            skip: PREFACE,
            header: Vec::new(),
        }
    }

    /// Calls `frame` with the type and flags of each frame whose header ends in these bytes.
    pub(crate) fn scan(&mut self, mut bytes: &[u8], mut frame: impl FnMut(u8, u8)) {
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            let missing = HEADER.saturating_sub(self.header.len());
            let rest = bytes.get(skipped..).unwrap_or_default();
            let (head, rest) = rest.split_at(missing.min(rest.len()));
            self.header.extend_from_slice(head);
            if let [a, b, c, kind, flags, _, _, _, _] = self.header[..] {
                self.skip = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
                self.header.clear();
                frame(kind, flags);
            }
            bytes = rest;
        }
    }

    /// Whether the stream is at a frame boundary.
    pub(crate) fn is_at_boundary(&self) -> bool {
        self.skip == 0 && self.header.is_empty()
    }
}

/// The ping strikes of one connection.
#[derive(Debug, Default)]
pub(crate) struct Strikes {
    last: Option<Instant>,
    strikes: u32,
}

impl Strikes {
    /// The client sent a frame. Returns true if it was one ping too many.
    pub(crate) fn received(&mut self, kind: u8, flags: u8, now: Instant) -> bool {
        if kind != PING || flags & ACK != 0 {
            return false;
        }
        let last = self.last.replace(now);
        if last.is_some_and(|last| now.duration_since(last) < MIN_INTERVAL) {
            self.strikes += 1;
        }
        self.strikes > MAX_STRIKES
    }

    /// The server sent a frame. Data and headers reset the strikes.
    pub(crate) fn sent(&mut self, kind: u8) {
        if kind == DATA || kind == HEADERS {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u8::try_from(payload.len()).unwrap();
        [&[0, 0, length, kind, flags, 0, 0, 0, 0], payload].concat()
    }

    #[test]
    fn frames_are_found_in_pieces_of_any_size() {
        let bytes = [
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
            frame(4, 0, &[]),
            frame(PING, 0, &[6; 8]),
            frame(HEADERS, 4, &[6; 30]),
            frame(PING, ACK, &[0; 8]),
        ]
        .concat();
        for size in 1..bytes.len() {
            let (mut frames, mut seen) = (Frames::after_preface(), Vec::new());
            for piece in bytes.chunks(size) {
                frames.scan(piece, |kind, flags| seen.push((kind, flags)));
            }
            assert_eq!(
                seen,
                [(4, 0), (PING, 0), (HEADERS, 4), (PING, ACK)],
                "{size}"
            );
            assert!(frames.is_at_boundary());
        }
        let mut seen = Vec::new();
        Frames::default().scan(GOAWAY, |kind, flags| seen.push((kind, flags)));
        assert_eq!(seen, [(7, 0)], "one whole frame");
    }

    #[tokio::test(start_paused = true)]
    async fn third_early_ping_is_too_many() {
        let mut strikes = Strikes::default();
        let clock = pleg_runtime::clock::Clock::start();
        let ping = async |strikes: &mut Strikes, after: u64| {
            tokio::time::advance(Duration::from_secs(after)).await;
            strikes.received(PING, 0, clock.tokio(clock.now()))
        };
        for _ in 0..10 {
            assert!(
                !ping(&mut strikes, 300).await,
                "five minutes apart is allowed"
            );
        }
        assert!(!ping(&mut strikes, 10).await);
        assert!(!ping(&mut strikes, 10).await);
        strikes.sent(DATA);
        for _ in 0..3 {
            assert!(!ping(&mut strikes, 10).await);
        }
        strikes.sent(4);
        assert!(ping(&mut strikes, 10).await);
        let mut acks = Strikes::default();
        for _ in 0..9 {
            let now = clock.tokio(clock.now());
            assert!(
                !acks.received(PING, ACK, now),
                "acknowledgements do not count"
            );
        }
    }
}
