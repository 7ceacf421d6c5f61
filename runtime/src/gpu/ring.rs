//! Which bytes of a staging room are free: plain numbers, no memory.
//!
//! Pieces are claimed one after the other. Those claimed since the last sending are a group, which lies in one piece and
//! travels as one; groups are free again in the order in which they were sent.

use std::collections::VecDeque;
use std::ops::Range;

/// Pieces begin at multiples of this.
const ALIGNMENT: usize = 256;

/// What comes of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// The piece begins here.
    At(usize),
    /// There is no room behind the open group: send it, and ask again.
    Send,
    /// There is no room until the oldest group has passed: wait for it, and ask again.
    Wait,
}

/// A room whose bytes are used in a circle.
#[derive(Debug)]
pub(super) struct Ring {
    bytes: usize,
    /// The end of the newest piece.
    head: usize,
    open: Option<Range<usize>>,
    sent: VecDeque<Range<usize>>,
}

impl Ring {
    pub(super) fn new(bytes: usize) -> Self {
        Self { bytes, head: 0, open: None, sent: VecDeque::new() }
    }

    /// Asks for a piece of the open group; it is no longer than the room.
    pub(super) fn claim(&mut self, bytes: usize) -> Claim {
        let Some(tail) = self.sent.front().or(self.open.as_ref()).map(|oldest| oldest.start) else {
            return self.give(0, bytes);
        };
        let start = self.head.next_multiple_of(ALIGNMENT);
        // The head never meets the tail, or a full room would look like an empty one.
        let end = if tail < self.head { self.bytes } else { tail - 1 };
        if start + bytes <= end {
            return self.give(start, bytes);
        }
        if self.open.is_some() {
            return Claim::Send;
        }
        if tail < self.head && bytes < tail { self.give(0, bytes) } else { Claim::Wait }
    }

    fn give(&mut self, start: usize, bytes: usize) -> Claim {
        self.head = start + bytes;
        self.open = Some(self.open.as_ref().map_or(start, |open| open.start)..self.head);
        Claim::At(start)
    }

    /// Bytes of the open group.
    pub(super) fn open_bytes(&self) -> usize {
        self.open.as_ref().map_or(0, Range::len)
    }

    /// Closes the open group, if there is one: its bytes.
    pub(super) fn send(&mut self) -> Option<Range<usize>> {
        let group = self.open.take()?;
        self.sent.push_back(group.clone());
        Some(group)
    }

    /// The oldest group has passed.
    pub(super) fn passed(&mut self) {
        self.sent.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that look random and are the same every time.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, end: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % end
        }
    }

    #[test]
    fn pieces_in_use_never_overlap_and_groups_lie_in_one_piece() {
        for (seed, bytes) in [(1, 4096), (2, 2048), (3, 1 << 16), (4, 5000)] {
            let mut numbers = Numbers(seed);
            let mut ring = Ring::new(bytes);
            // Groups in use, oldest first, each a list of pieces; the last is the open one.
            let mut groups: VecDeque<Vec<Range<usize>>> = VecDeque::from([Vec::new()]);
            let (mut waits, mut sendings, mut wraps, mut last) = (0, 0, 0, 0);
            for _ in 0..5000 {
                if numbers.below(8) == 0 && ring.send().is_some() {
                    groups.push_back(Vec::new());
                }
                let wanted = 1 + numbers.below(bytes / 3);
                let at = loop {
                    match ring.claim(wanted) {
                        Claim::At(at) => break at,
                        Claim::Send => {
                            let group = ring.send().expect("it is open");
                            let pieces = groups.back().expect("there is always an open group");
                            let first = pieces.first().expect("it has pieces").start;
                            let end = pieces.last().expect("it has pieces").end;
                            assert_eq!(group, first..end);
                            groups.push_back(Vec::new());
                            sendings += 1;
                        }
                        Claim::Wait => {
                            assert!(groups.len() > 1, "there is something to wait for");
                            ring.passed();
                            groups.pop_front();
                            waits += 1;
                        }
                    }
                };
                let piece = at..at + wanted;
                assert!(piece.end <= bytes && at % ALIGNMENT == 0);
                for used in groups.iter().flatten() {
                    assert!(used.end <= piece.start || piece.end <= used.start, "{used:?} {piece:?}");
                }
                let open = groups.back_mut().expect("there is always an open group");
                assert!(open.last().is_none_or(|before| before.end <= at), "a group lies in one piece");
                open.push(piece);
                wraps += usize::from(at < last);
                last = at;
            }
            assert!(waits > 100 && sendings > 100 && wraps > 100, "{waits} {sendings} {wraps}");
        }
    }

    #[test]
    fn a_piece_may_be_as_long_as_the_room() {
        let mut ring = Ring::new(1000);
        assert_eq!(ring.claim(1000), Claim::At(0));
        assert_eq!(ring.claim(1), Claim::Send);
        assert_eq!(ring.send(), Some(0..1000));
        assert_eq!((ring.claim(1), ring.open_bytes()), (Claim::Wait, 0));
        ring.passed();
        assert_eq!((ring.claim(1000), ring.open_bytes()), (Claim::At(0), 1000));
    }
}
