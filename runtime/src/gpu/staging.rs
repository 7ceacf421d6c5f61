//! Bytes on their way between host and device.
//!
//! Uploads are copied into pinned memory and return at once. Those of one pause between launches travel together, on a
//! stream of their own, beside what the device is doing; the main stream waits for them and puts them in place in order
//! with everything else. Downloads go through two pinned rooms in turn. Fetches have slots: a copy on the main stream and
//! an event, for which alone whoever wants the bytes waits.

use super::calls::{DeviceMemory, Event, Fault, Pinned, Stream, Timing};
use super::ring::{Claim, Ring};
use std::collections::VecDeque;

/// Of uploads that may be under way at once.
pub(super) const RING: usize = 16 << 20;
/// A longer upload goes in pieces of this; so many bytes do not wait for company either.
const PIECE: usize = 2 << 20;
/// One of the two rooms of downloads.
const CHUNK: usize = 4 << 20;
/// Fetches that may be under way at once, and bytes of each.
const SLOTS: usize = 1 << 10;
const SLOT: usize = 4 << 10;
/// All that is pinned.
pub(super) const PINNED: usize = RING + 2 * CHUNK + SLOTS * SLOT;

/// The rooms, and what is in them.
#[derive(Debug)]
pub(super) struct Staging {
    ring: Ring,
    host: Pinned,
    device: DeviceMemory,
    upload: Stream,
    /// Pieces of the open group: where in the ring, how long, where to.
    waiting: Vec<(usize, usize, u64)>,
    /// Reached by the upload stream once the newest group is on the device.
    arrived: Event,
    /// Reached by the main stream once a sent group is in place, oldest first.
    placed: VecDeque<Event>,
    spare: Vec<Event>,
    chunks: [(Pinned, Event); 2],
    slots: Pinned,
    fetches: Vec<(Event, Option<usize>)>,
}

impl Staging {
    pub(super) fn new() -> Result<Self, Fault> {
        let chunk = || Ok((Pinned::take(CHUNK)?, Event::new(Timing::Off)?));
        Ok(Self {
            ring: Ring::new(RING),
            host: Pinned::take(RING)?,
            device: DeviceMemory::take(RING)?,
            upload: Stream::new()?,
            waiting: Vec::new(),
            arrived: Event::new(Timing::Off)?,
            placed: VecDeque::new(),
            spare: Vec::new(),
            chunks: [chunk()?, chunk()?],
            slots: Pinned::take(SLOTS * SLOT)?,
            fetches: (0..SLOTS).map(|_| Ok((Event::new(Timing::Off)?, None))).collect::<Result<_, _>>()?,
        })
    }

    /// Waits until all that was sent is on the device.
    pub(super) fn synchronize(&self) -> Result<(), Fault> {
        self.upload.synchronize()
    }

    /// Puts bytes on their way; they are in place before anything that `main` is asked for after the next `flush`.
    pub(super) fn upload(&mut self, mut to: u64, bytes: &[u8], main: &Stream) -> Result<(), Fault> {
        for piece in bytes.chunks(PIECE) {
            let at = self.claim(piece.len(), main)?;
            self.host.put(at, piece);
            self.waiting.push((at, piece.len(), to));
            to += piece.len() as u64;
            if self.ring.open_bytes() >= PIECE {
                self.flush(main)?;
            }
        }
        Ok(())
    }

    fn claim(&mut self, bytes: usize, main: &Stream) -> Result<usize, Fault> {
        loop {
            match self.ring.claim(bytes) {
                Claim::At(at) => return Ok(at),
                Claim::Send => self.flush(main)?,
                Claim::Wait => {
                    if let Some(event) = self.placed.pop_front() {
                        event.synchronize()?;
                        self.spare.push(event);
                    }
                    self.ring.passed();
                }
            }
        }
    }

    /// Sends what waits. To be called before anything is asked of `main`.
    pub(super) fn flush(&mut self, main: &Stream) -> Result<(), Fault> {
        let Some(group) = self.ring.send() else { return Ok(()) };
        self.host.upload(
            group.start,
            group.len(),
            self.device.address() + group.start as u64,
            &self.upload,
        )?;
        self.arrived.record(&self.upload)?;
        main.wait(&self.arrived)?;
        for (at, bytes, to) in self.waiting.drain(..) {
            main.copy(self.device.address() + at as u64, to, bytes)?;
        }
        let placed = self.spare.pop().map_or_else(|| Event::new(Timing::Off), Ok)?;
        placed.record(main)?;
        self.placed.push_back(placed);
        Ok(())
    }

    /// Copies bytes of the device to the host, once all that `main` was asked for is done.
    pub(super) fn download(&mut self, from: u64, bytes: &mut [u8], main: &Stream) -> Result<(), Fault> {
        self.flush(main)?;
        let mut before: Option<(usize, &mut [u8])> = None;
        for (index, part) in bytes.chunks_mut(CHUNK).enumerate() {
            let (room, event) = &self.chunks[index % 2];
            room.download(0, part.len(), from + (index * CHUNK) as u64, main)?;
            event.record(main)?;
            // The one before is copied out while this one is on its way.
            if let Some((index, part)) = before.replace((index, part)) {
                self.copy_out(index, part)?;
            }
        }
        before.map_or(Ok(()), |(index, part)| self.copy_out(index, part))
    }

    fn copy_out(&self, index: usize, part: &mut [u8]) -> Result<(), Fault> {
        let (room, event) = &self.chunks[index % 2];
        event.synchronize()?;
        room.get(0, part);
        Ok(())
    }

    /// Puts bytes of the device on their way to a slot: its number; `None` where they are too many or no slot is free.
    pub(super) fn fetch(&mut self, from: u64, bytes: usize, main: &Stream) -> Result<Option<usize>, Fault> {
        self.flush(main)?;
        let free = self.fetches.iter().position(|(_, bytes)| bytes.is_none());
        let Some(slot) = free.filter(|_| bytes <= SLOT) else { return Ok(None) };
        let (event, held) = &mut self.fetches[slot];
        self.slots.download(slot * SLOT, bytes, from, main)?;
        event.record(main)?;
        *held = Some(bytes);
        Ok(Some(slot))
    }

    /// The bytes of a slot, which is free from then on; `None` where there are none under way.
    pub(super) fn take(&mut self, slot: usize) -> Result<Option<Vec<u8>>, Fault> {
        let Some((event, held)) = self.fetches.get_mut(slot) else { return Ok(None) };
        let Some(bytes) = held.take() else { return Ok(None) };
        event.synchronize()?;
        let mut out = vec![0; bytes];
        self.slots.get(slot * SLOT, &mut out);
        Ok(Some(out))
    }
}
