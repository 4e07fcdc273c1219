//! Seeded random numbers and ids: equal seeds give equal sequences.

use oorandom::Rand64;

#[derive(Clone, Debug)]
pub(crate) struct Rng(Rand64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Rand64::new(seed.into()))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.rand_u64()
    }

    /// A number below `bound`, or 0 if `bound` is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next().checked_rem(bound).unwrap_or(0)
    }

    /// A random element; `None` if the slice is empty.
    pub(crate) fn choose<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        let at = self.below(of.len() as u64);
        usize::try_from(at).ok().and_then(|at| of.get(at))
    }

    /// 64 hex digits, like the ids of containerd.
    pub(crate) fn id(&mut self) -> String {
        self.hex(4)
    }

    /// A random text in the format of a pod uid.
    pub(crate) fn uid(&mut self) -> String {
        let hex = self.hex(2);
        [0..8, 8..12, 12..16, 16..20, 20..32]
            .map(|part| &hex[part])
            .join("-")
    }

    fn hex(&mut self, words: usize) -> String {
        (0..words)
            .map(|_| format!("{:016x}", self.next()))
            .collect()
    }
}

/// The id of an image: the same name always gives the same id.
pub(crate) fn image_id(name: &str) -> String {
    let seed = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| {
        (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3)
    });
    format!("sha256:{}", Rng::new(seed).id())
}
