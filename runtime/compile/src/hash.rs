//! A 128-bit hash that stays the same across machines, versions and builds: FNV-1a.
//!
//! It names cache entries and notices damaged ones. It is no defence against someone who forges entries: whoever
//! can write the cache folder can run code as this user anyway.

const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

/// A running hash.
#[derive(Clone, Copy, Debug)]
pub struct Hash(u128);

impl Hash {
    /// The hash of nothing.
    #[allow(clippy::new_without_default)]
    #[must_use]
    pub fn new() -> Hash {
        Hash(OFFSET)
    }

    /// Adds bytes.
    #[must_use]
    pub fn bytes(mut self, bytes: &[u8]) -> Hash {
        for &byte in bytes {
            self.0 = (self.0 ^ u128::from(byte)).wrapping_mul(PRIME);
        }
        self
    }

    /// Adds a field with its length before it, so that `("ab", "c")` and `("a", "bc")` differ.
    #[must_use]
    pub fn field(self, text: &str) -> Hash {
        self.bytes(&(text.len() as u64).to_le_bytes()).bytes(text.as_bytes())
    }

    /// The hash of all that was added.
    #[must_use]
    pub fn finish(self) -> u128 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_published_fnv_1a() {
        assert_eq!(Hash::new().bytes(b"").finish(), OFFSET);
        assert_eq!(Hash::new().bytes(b"a").finish(), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
        assert_eq!(Hash::new().bytes(b"foobar").finish(), 0x343e_1662_793c_64bf_6f0d_3597_ba44_6f18);
    }

    #[test]
    fn a_border_between_fields_counts() {
        assert_ne!(Hash::new().field("ab").field("c").finish(), Hash::new().field("a").field("bc").finish());
    }
}
