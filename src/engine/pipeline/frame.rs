//! Frames: the encoding of a message on a byte stream. Received data is checked before it is used.
//!
//! | bytes | field |
//! |---|---|
//! | 4 | `TWpl` |
//! | 2, 2 | version of the protocol; 0 |
//! | 4 | bytes of the head, a text of JSON: at most [`MOST_HEAD`] |
//! | 4 | words after the head, four bytes each: at most [`MOST_WORDS`] |
//! | 8 | XXH3 of all other bytes of the frame |
//!
//! All numbers are little-endian. Memory for a body is taken as the body arrives, not by the length
//! that a frame claims.

use std::io::{ErrorKind, Read, Write};

use bytemuck::{Pod, Zeroable};
use thiserror::Error;
use xxhash_rust::xxh3::Xxh3;

/// The version of frames and of the messages in them.
pub const VERSION: u16 = 2;
/// Most bytes of a head.
pub const MOST_HEAD: u32 = 1 << 16;
/// Most words of a body: 256 MiB, the logits of 500 rows of a vocabulary of 128,256.
pub const MOST_WORDS: u32 = 1 << 26;

const MAGIC: [u8; 4] = *b"TWpl";

/// The header of a frame, byte for byte.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Header {
    magic: [u8; 4],
    version: [u8; 2],
    zero: [u8; 2],
    head: [u8; 4],
    words: [u8; 4],
    check: [u8; 8],
}

/// A head and the words that follow it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// JSON.
    pub head: Vec<u8>,
    /// Numbers of 32 bits.
    pub words: Vec<u32>,
}

/// The reason why bytes are not a frame.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the message names every field")]
#[non_exhaustive]
pub enum FrameError {
    #[error("it closed the connection")]
    Closed,
    #[error("the connection ended within a message")]
    Truncated,
    #[error("what came is no message of tilewright: it begins with the bytes {found:02x?}")]
    Magic { found: [u8; 4] },
    #[error("it speaks version {found} of the protocol, this build speaks {VERSION}; run the same build on all hosts")]
    Version { found: u16 },
    #[error("a message claims {found} {what}, at most {most} are read")]
    TooLong { what: &'static str, found: u32, most: u32 },
    #[error("a message was damaged on its way")]
    Damaged,
    #[error("the connection failed")]
    Io(#[from] std::io::Error),
}

impl FrameError {
    /// Whether the other end is gone, by any of the errors with which a system reports it.
    pub fn is_end(&self) -> bool {
        use ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected};
        let gone = [BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected];
        matches!(self, FrameError::Io(error) if gone.contains(&error.kind()))
    }

    /// Whether nothing came for as long as a reader waits, or nothing could be sent.
    pub fn is_silence(&self) -> bool {
        matches!(self, FrameError::Io(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
    }
}

/// The checksum of all other bytes of a frame.
fn checksum(header: &Header, head: &[u8], body: &[u8]) -> [u8; 8] {
    let mut hash = Xxh3::new();
    hash.update(&bytemuck::bytes_of(header)[..16]);
    hash.update(head);
    hash.update(body);
    hash.digest().to_le_bytes()
}

impl Frame {
    /// Writes the frame.
    ///
    /// # Errors
    /// If it is too long to be read, or the stream fails.
    pub fn write(&self, to: &mut impl Write) -> Result<(), FrameError> {
        let head = length("bytes of a head", self.head.len(), MOST_HEAD)?;
        let words = length("words", self.words.len(), MOST_WORDS)?;
        let body: Vec<u8> = self.words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut header = Header {
            magic: MAGIC,
            version: VERSION.to_le_bytes(),
            zero: [0; 2],
            head: head.to_le_bytes(),
            words: words.to_le_bytes(),
            check: [0; 8],
        };
        header.check = checksum(&header, &self.head, &body);
        to.write_all(bytemuck::bytes_of(&header))?;
        to.write_all(&self.head)?;
        to.write_all(&body)?;
        Ok(to.flush()?)
    }

    /// Reads the next frame.
    ///
    /// # Errors
    /// If there is none, or what there is was not written by [`Frame::write`].
    pub fn read(from: &mut impl Read) -> Result<Frame, FrameError> {
        let mut header = Header::zeroed();
        let bytes = bytemuck::bytes_of_mut(&mut header);
        let first = exactly(from, bytes.len() as u64)?;
        match first.len() {
            0 => return Err(FrameError::Closed),
            found if found < bytes.len() => return Err(FrameError::Truncated),
            _ => bytes.copy_from_slice(&first),
        }
        if header.magic != MAGIC {
            return Err(FrameError::Magic { found: header.magic });
        }
        let version = u16::from_le_bytes(header.version);
        if version != VERSION {
            return Err(FrameError::Version { found: version });
        }
        let [head, words] = [header.head, header.words].map(u32::from_le_bytes);
        length("bytes of a head", head as usize, MOST_HEAD)?;
        length("words", words as usize, MOST_WORDS)?;
        let head_bytes = u64::from(head);
        let body_bytes = 4 * u64::from(words);
        let head = exactly(from, head_bytes)?;
        let body = exactly(from, body_bytes)?;
        if (head.len() as u64, body.len() as u64) != (head_bytes, body_bytes) {
            return Err(FrameError::Truncated);
        }
        if checksum(&header, &head, &body) != header.check {
            return Err(FrameError::Damaged);
        }
        let words = body.as_chunks::<4>().0.iter().map(|&bytes| u32::from_le_bytes(bytes)).collect();
        Ok(Frame { head, words })
    }
}

/// A length as a frame has it.
fn length(what: &'static str, found: usize, most: u32) -> Result<u32, FrameError> {
    let found = u32::try_from(found).unwrap_or(u32::MAX);
    if found > most { Err(FrameError::TooLong { what, found, most }) } else { Ok(found) }
}

/// Reads `count` bytes, or fewer if the stream ends: the buffer grows with what arrives.
fn exactly(from: &mut impl Read, count: u64) -> Result<Vec<u8>, FrameError> {
    let mut bytes = Vec::new();
    from.take(count).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frames() -> impl Strategy<Value = Frame> {
        let head = prop::collection::vec(any::<u8>(), 0..200);
        let words = prop::collection::vec(any::<u32>(), 0..300);
        (head, words).prop_map(|(head, words)| Frame { head, words })
    }

    fn written(frame: &Frame) -> Vec<u8> {
        let mut bytes = Vec::new();
        frame.write(&mut bytes).expect("memory takes what is written");
        bytes
    }

    /// A stream that returns its bytes and records the sizes of the requested buffers.
    struct SizedRead<'a> {
        rest: &'a [u8],
        most: usize,
    }

    impl Read for SizedRead<'_> {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            self.most = self.most.max(into.len());
            self.rest.read(into)
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(list in prop::collection::vec(frames(), 0..4)) {
            let bytes: Vec<u8> = list.iter().flat_map(written).collect();
            let mut rest = bytes.as_slice();
            for frame in &list {
                prop_assert_eq!(&Frame::read(&mut rest).expect("a frame"), frame);
            }
            prop_assert!(matches!(Frame::read(&mut rest), Err(FrameError::Closed)));
        }

        /// Bytes that were changed are an error, wherever they are.
        #[test]
        fn damage_is_seen(frame in frames(), at: prop::sample::Index, change in 1u8..) {
            let mut bytes = written(&frame);
            let at = at.index(bytes.len());
            bytes[at] ^= change;
            prop_assert!(Frame::read(&mut bytes.as_slice()).is_err());
        }

        #[test]
        fn an_end_within_a_frame_is_an_error(frame in frames(), end: prop::sample::Index) {
            let bytes = written(&frame);
            let end = end.index(bytes.len());
            let error = Frame::read(&mut &bytes[..end]).expect_err("no whole frame");
            prop_assert!(matches!(error, FrameError::Closed) == (end == 0), "{}", error);
        }

        /// Any bytes give neither a panic nor a buffer larger than the data that arrived.
        #[test]
        fn any_bytes_are_answered_in_little_memory(
            mut bytes in prop::collection::vec(any::<u8>(), 0..400),
            lengths: [u32; 2],
        ) {
            if bytes.len() >= 16 {
                bytes[..8].copy_from_slice(&[b'T', b'W', b'p', b'l', 1, 0, 0, 0]);
                bytes[8..12].copy_from_slice(&(lengths[0] % 300).to_le_bytes());
                bytes[12..16].copy_from_slice(&(lengths[1] % (2 * MOST_WORDS)).to_le_bytes());
            }
            let mut stream = SizedRead { rest: &bytes, most: 0 };
            prop_assert!(Frame::read(&mut stream).is_err());
            prop_assert!(stream.most <= 1 << 20, "a buffer of {} bytes", stream.most);
        }
    }

    #[test]
    fn a_length_beyond_the_bounds_is_refused_with_numbers() {
        let long = Frame { head: vec![b' '; 1 + MOST_HEAD as usize], words: Vec::new() };
        let error = long.write(&mut Vec::new()).expect_err("too long").to_string();
        assert_eq!(error, "a message claims 65537 bytes of a head, at most 65536 are read");
        let mut bytes = written(&Frame::default());
        bytes[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
        let error = Frame::read(&mut bytes.as_slice()).expect_err("too long").to_string();
        assert_eq!(error, "a message claims 4294967295 words, at most 67108864 are read");
    }
}
