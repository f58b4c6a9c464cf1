//! A connection: read until a point in time, written by several threads.

use std::io::{self, ErrorKind, Read};
use std::net::{Shutdown, TcpStream};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::frame::{self, FrameError, Kind, MESSAGE, PIECE};

/// A stream that is read until a point in time.
pub(crate) struct Until<'s> {
    pub(crate) stream: &'s TcpStream,
    pub(crate) end: Instant,
}

impl<'s> Until<'s> {
    pub(crate) fn within(stream: &'s TcpStream, time: Duration) -> Until<'s> {
        Until { stream, end: Instant::now() + time }
    }
}

impl Read for Until<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(bytes)
    }
}

impl io::Write for Until<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// A side of a connection that several threads talk to.
pub(crate) struct Peer {
    stream: TcpStream,
    writing: Mutex<()>,
}

impl Peer {
    pub(crate) fn new(stream: TcpStream) -> Peer {
        Peer { stream, writing: Mutex::default() }
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub(crate) fn write(&self, kind: Kind, bytes: &[u8]) -> Result<(), FrameError> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        frame::write(&mut &self.stream, kind, bytes, MESSAGE.max(PIECE))
    }

    pub(crate) fn send(&self, message: &impl serde::Serialize) -> Result<(), FrameError> {
        self.write(Kind::Message, &postcard::to_allocvec(message)?)
    }

    /// Ends the connection: whoever reads or writes is told that it is closed.
    pub(crate) fn end(&self) {
        // It may have ended by itself.
        _ = self.stream.shutdown(Shutdown::Both);
    }
}
