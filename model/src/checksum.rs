//! XXH64, the 64-bit checksum of `xxhsum`, with seed 0: fast enough to be computed while a checkpoint is written.
//!
//! In: bytes in pieces of any size. Out: one `u64`. It detects damage, not forgery.
//! Written from the algorithm's public description (github.com/Cyan4973/xxHash, doc/xxhash_spec.md).

const PRIME_1: u64 = 0x9E37_79B1_85EB_CA87;
const PRIME_2: u64 = 0xC2B2_AE3D_27D4_EB4F;
const PRIME_3: u64 = 0x1656_67B1_9E37_79F9;
const PRIME_4: u64 = 0x85EB_CA77_C2B2_AE63;
const PRIME_5: u64 = 0x27D4_EB2F_1656_67C5;

/// Bytes taken in by one round of the four lanes.
const STRIPE: usize = 32;

/// The checksum of the bytes seen so far.
#[derive(Debug, Clone)]
pub struct Checksum {
    lanes: [u64; 4],
    /// Bytes that do not fill a stripe yet.
    pending: [u8; STRIPE],
    n_pending: usize,
    n_bytes: u64,
}

impl Default for Checksum {
    fn default() -> Self {
        Self {
            lanes: [PRIME_1.wrapping_add(PRIME_2), PRIME_2, 0, 0u64.wrapping_sub(PRIME_1)],
            pending: [0; STRIPE],
            n_pending: 0,
            n_bytes: 0,
        }
    }
}

impl Checksum {
    /// The checksum of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> u64 {
        let mut checksum = Self::default();
        checksum.update(bytes);
        checksum.value()
    }

    /// Takes in the next `bytes`.
    pub fn update(&mut self, mut bytes: &[u8]) {
        self.n_bytes += bytes.len() as u64;
        if self.n_pending > 0 {
            let n = bytes.len().min(STRIPE - self.n_pending);
            self.pending[self.n_pending..self.n_pending + n].copy_from_slice(&bytes[..n]);
            self.n_pending += n;
            bytes = &bytes[n..];
            if self.n_pending < STRIPE {
                return;
            }
            let stripe = self.pending;
            self.absorb(&stripe);
            self.n_pending = 0;
        }
        let (stripes, rest) = bytes.as_chunks::<STRIPE>();
        for stripe in stripes {
            self.absorb(stripe);
        }
        self.pending[..rest.len()].copy_from_slice(rest);
        self.n_pending = rest.len();
    }

    /// The checksum of everything taken in so far.
    #[must_use]
    pub fn value(&self) -> u64 {
        let mut hash = if self.n_bytes < STRIPE as u64 {
            PRIME_5
        } else {
            let [a, b, c, d] = self.lanes;
            let sum = a
                .rotate_left(1)
                .wrapping_add(b.rotate_left(7))
                .wrapping_add(c.rotate_left(12))
                .wrapping_add(d.rotate_left(18));
            self.lanes
                .iter()
                .fold(sum, |hash, &lane| (hash ^ round(0, lane)).wrapping_mul(PRIME_1).wrapping_add(PRIME_4))
        };
        hash = hash.wrapping_add(self.n_bytes);

        let (words, rest) = self.pending[..self.n_pending].as_chunks::<8>();
        for &word in words {
            hash ^= round(0, u64::from_le_bytes(word));
            hash = hash.rotate_left(27).wrapping_mul(PRIME_1).wrapping_add(PRIME_4);
        }
        let (halves, rest) = rest.as_chunks::<4>();
        for &half in halves {
            hash ^= u64::from(u32::from_le_bytes(half)).wrapping_mul(PRIME_1);
            hash = hash.rotate_left(23).wrapping_mul(PRIME_2).wrapping_add(PRIME_3);
        }
        for &byte in rest {
            hash ^= u64::from(byte).wrapping_mul(PRIME_5);
            hash = hash.rotate_left(11).wrapping_mul(PRIME_1);
        }

        hash = (hash ^ (hash >> 33)).wrapping_mul(PRIME_2);
        hash = (hash ^ (hash >> 29)).wrapping_mul(PRIME_3);
        hash ^ (hash >> 32)
    }

    fn absorb(&mut self, stripe: &[u8; STRIPE]) {
        let (words, _) = stripe.as_chunks::<8>();
        for (lane, &word) in self.lanes.iter_mut().zip(words) {
            *lane = round(*lane, u64::from_le_bytes(word));
        }
    }
}

fn round(lane: u64, word: u64) -> u64 {
    lane.wrapping_add(word.wrapping_mul(PRIME_2)).rotate_left(31).wrapping_mul(PRIME_1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values_of_xxhsum_are_met() {
        let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
        let known: [(&[u8], u64); 4] = [
            (b"", 0xEF46_DB37_51D8_E999),
            (b"a", 0xD24E_C4F1_A98C_6E5B),
            (b"abc", 0x44BC_2CF5_AD77_0999),
            (alphabet, 0xAAA4_6907_D304_7814),
        ];
        for (bytes, expected) in known {
            assert_eq!(Checksum::of(bytes), expected, "{}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn pieces_of_any_size_give_the_checksum_of_the_whole() {
        let bytes: Vec<u8> = (0..1000u32).map(|i| (i * 7 % 251) as u8).collect();
        for piece in [1, 3, 31, 32, 33, 100, 999] {
            let mut checksum = Checksum::default();
            bytes.chunks(piece).for_each(|piece| checksum.update(piece));
            assert_eq!(checksum.value(), Checksum::of(&bytes), "pieces of {piece}");
        }
    }
}
