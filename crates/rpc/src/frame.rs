//! Frames: how messages and pieces of blobs lie in a stream of bytes.
//!
//! A frame is the number of its bytes (four, the lowest first), its kind (one), and the bytes. The number is checked against a limit before
//! memory is taken.

use std::io::{self, ErrorKind, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Most bytes of a piece of a blob.
pub(crate) const PIECE: usize = 1 << 20;

/// Most bytes of a message; larger things are blobs.
pub(crate) const MESSAGE: usize = 1 << 20;

/// Most bytes of a message before the other side has proven itself.
pub(crate) const HELLO: usize = 1 << 10;

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A message.
    Message = 0,
    /// A piece of a blob.
    Piece = 1,
}

/// Why there is no frame.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// A longer frame than there may be.
    #[error("a frame of {claimed} bytes, and {limit} are the most")]
    TooLong {
        /// Its bytes.
        claimed: u32,
        /// Most bytes.
        limit: usize,
    },
    /// A kind of frame that the protocol does not have.
    #[error("the other side sends a frame of kind {0}, which the protocol does not have")]
    Kind(u8),
    /// A frame of a kind that does not belong here.
    #[error("the other side sends {got}, where {expected} belongs")]
    Unexpected {
        /// What came.
        got: &'static str,
        /// What belongs there.
        expected: &'static str,
    },
    /// Bytes that are no message.
    #[error("the other side sends what is no message: {0}")]
    Message(#[from] postcard::Error),
    /// Bytes behind a message.
    #[error("the other side sends {0} bytes behind a message")]
    Rest(usize),
    /// The other side has gone.
    #[error("the other side has closed the connection")]
    Closed,
    /// The other side says nothing, or takes nothing.
    #[error("the other side is silent")]
    Silent,
    /// What the system says.
    #[error("the connection is lost: {0}")]
    Io(io::Error),
}

impl From<io::Error> for FrameError {
    fn from(error: io::Error) -> FrameError {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => FrameError::Silent,
            ErrorKind::UnexpectedEof
            | ErrorKind::BrokenPipe
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::NotConnected => FrameError::Closed,
            _ => FrameError::Io(error),
        }
    }
}

/// Writes a frame of `limit` bytes at most.
pub(crate) fn write(out: &mut dyn Write, kind: Kind, bytes: &[u8], limit: usize) -> Result<(), FrameError> {
    let claimed = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    if bytes.len() > limit {
        return Err(FrameError::TooLong { claimed, limit });
    }
    // One write is one packet where it fits: two would wait for one another.
    let mut frame = Vec::with_capacity(bytes.len() + 5);
    frame.extend_from_slice(&claimed.to_le_bytes());
    frame.push(kind as u8);
    frame.extend_from_slice(bytes);
    out.write_all(&frame)?;
    out.flush()?;
    Ok(())
}

/// Reads a frame of `limit` bytes at most.
pub(crate) fn read(input: &mut dyn Read, limit: usize) -> Result<(Kind, Vec<u8>), FrameError> {
    let (mut length, mut kind) = ([0; 4], [0; 1]);
    input.read_exact(&mut length)?;
    input.read_exact(&mut kind)?;
    let claimed = u32::from_le_bytes(length);
    let kind = match kind {
        [0] => Kind::Message,
        [1] => Kind::Piece,
        [other] => return Err(FrameError::Kind(other)),
    };
    let length = usize::try_from(claimed).ok().filter(|&length| length <= limit);
    let length = length.ok_or(FrameError::TooLong { claimed, limit })?;
    let mut bytes = vec![0; length];
    input.read_exact(&mut bytes)?;
    Ok((kind, bytes))
}

/// Writes a message of `limit` bytes at most.
pub(crate) fn send(out: &mut dyn Write, message: &impl Serialize, limit: usize) -> Result<(), FrameError> {
    write(out, Kind::Message, &postcard::to_allocvec(message)?, limit)
}

/// Reads a message of `limit` bytes at most.
pub(crate) fn receive<M: DeserializeOwned>(input: &mut dyn Read, limit: usize) -> Result<M, FrameError> {
    match read(input, limit)? {
        (Kind::Message, bytes) => parse(&bytes),
        (Kind::Piece, _) => Err(FrameError::Unexpected { got: "a piece of a blob", expected: "a message" }),
    }
}

/// The message that bytes are, all of them.
pub(crate) fn parse<M: DeserializeOwned>(bytes: &[u8]) -> Result<M, FrameError> {
    match postcard::take_from_bytes(bytes)? {
        (message, []) => Ok(message),
        (_, rest) => Err(FrameError::Rest(rest.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut stream = Vec::new();
        write(&mut stream, Kind::Piece, &[7; 1000], PIECE).unwrap();
        send(&mut stream, &("a", 5u32), HELLO).unwrap();
        let input = &mut stream.as_slice();
        assert_eq!(read(input, PIECE).unwrap(), (Kind::Piece, vec![7; 1000]));
        assert_eq!(receive::<(String, u32)>(input, HELLO).unwrap(), ("a".to_string(), 5));
        assert!(matches!(read(input, PIECE), Err(FrameError::Closed)));
    }

    #[test]
    fn damaged_frames_are_refused() {
        let refusal = |bytes: &[u8]| read(&mut &bytes[..], 8).unwrap_err().to_string();
        let expected = "a frame of 4294967295 bytes, and 8 are the most";
        assert_eq!(refusal(&[255, 255, 255, 255, 0, 1]), expected);
        assert_eq!(
            refusal(&[1, 0, 0, 0, 9, 1]),
            "the other side sends a frame of kind 9, which the protocol does not have"
        );
        assert_eq!(refusal(&[4, 0, 0, 0, 0, 1]), "the other side has closed the connection");
        assert!(matches!(parse::<u8>(&[1, 2]), Err(FrameError::Rest(1))));
        let piece = [1, 0, 0, 0, 1, 0];
        assert!(matches!(receive::<u8>(&mut &piece[..], 8), Err(FrameError::Unexpected { .. })));
        let long = write(&mut Vec::new(), Kind::Message, &vec![0; MESSAGE + 1], MESSAGE);
        assert!(matches!(long, Err(FrameError::TooLong { .. })));
    }
}
