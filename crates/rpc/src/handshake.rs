//! The handshake: versions first, then tokens, then the machine. Each side says why it does not go on.

use std::io::{Read, Write};
use std::time::Duration;

use crate::frame::{self, FrameError};
use crate::machine::Machine;
use crate::message::{ClientHello, Proof, ServerHello, Welcome};
use crate::token::{Side, TOKEN_VARIABLE, Token};
use crate::{MAGIC, PROTOCOL};

/// Why client and server do not get along. `ours` is the side that says so.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The other side is something else.
    #[error("what answers there is no server of tilewright, or no client")]
    Foreign,
    /// Another version of the protocol.
    #[error(
        "this program speaks version {ours} of the protocol, the other side {theirs}: use the same version of tilewright"
    )]
    Protocol {
        /// This side's.
        ours: u16,
        /// The other side's.
        theirs: u16,
    },
    /// Another version of the program: requests are told in its own types.
    #[error("this is tilewright {ours}, the other side is {theirs}: use the same version")]
    Version {
        /// This side's.
        ours: String,
        /// The other side's.
        theirs: String,
    },
    /// The server has no connection left.
    #[error("the server has {connections} connections, and takes no more: try again later")]
    Full {
        /// Its connections.
        connections: u32,
    },
    /// The server wants a token, and the client has none.
    #[error("the server has a token, this client has none: give it by --token-file or {TOKEN_VARIABLE}")]
    NoClientToken,
    /// The client has a token, and the server does not know it.
    #[error(
        "this client has a token, the server has none: it may be another server; give no token to trust it"
    )]
    NoServerToken,
    /// The server says that the client's token is another one.
    #[error("the server's token is not the one that this client has")]
    WrongToken,
    /// The client's proof is wrong. This is the server's word.
    #[error("the client's token is not the one that this server has")]
    WrongClientToken,
    /// The server took the client's proof, but does not know the token itself.
    #[error("the server does not know the token that this client has: it is another server")]
    Impostor,
    /// The system has no random numbers.
    #[error("no random numbers: {0}")]
    Random(getrandom::Error),
    /// The connection does not hold.
    #[error(transparent)]
    Frame(#[from] FrameError),
}

fn preamble() -> [u8; 8] {
    let [a, b, c, d, e, f] = MAGIC;
    let [low, high] = PROTOCOL.to_le_bytes();
    [a, b, c, d, e, f, low, high]
}

/// Says what protocol this side speaks.
fn open(stream: &mut dyn Write) -> Result<(), HandshakeError> {
    stream.write_all(&preamble()).and_then(|()| stream.flush()).map_err(FrameError::from)?;
    Ok(())
}

/// Hears what protocol the other side speaks.
fn hear(stream: &mut dyn Read) -> Result<(), HandshakeError> {
    let mut heard = [0; 8];
    stream.read_exact(&mut heard).map_err(FrameError::from)?;
    let [a, b, c, d, e, f, low, high] = heard;
    match ([a, b, c, d, e, f] == MAGIC, u16::from_le_bytes([low, high])) {
        (false, _) => Err(HandshakeError::Foreign),
        (true, PROTOCOL) => Ok(()),
        (true, theirs) => Err(HandshakeError::Protocol { ours: PROTOCOL, theirs }),
    }
}

fn nonce() -> Result<[u8; 32], HandshakeError> {
    let mut nonce = [0; 32];
    getrandom::fill(&mut nonce).map_err(HandshakeError::Random)?;
    Ok(nonce)
}

/// A message with its bytes, which proofs are over.
fn say(stream: &mut dyn Write, message: &impl serde::Serialize) -> Result<Vec<u8>, FrameError> {
    let bytes = postcard::to_allocvec(message)?;
    frame::write(stream, frame::Kind::Message, &bytes, frame::MESSAGE)?;
    Ok(bytes)
}

fn listen<M: serde::de::DeserializeOwned>(stream: &mut dyn Read) -> Result<(M, Vec<u8>), FrameError> {
    match frame::read(stream, frame::HELLO)? {
        (frame::Kind::Message, bytes) => Ok((frame::parse(&bytes)?, bytes)),
        (frame::Kind::Piece, _) => {
            Err(FrameError::Unexpected { got: "a piece of a blob", expected: "a message" })
        }
    }
}

/// The client's part; what machine the server is, and how long the client may be silent.
pub(crate) fn as_client<S: Read + Write>(
    stream: &mut S,
    version: &str,
    token: Option<&Token>,
) -> Result<(Machine, Duration), HandshakeError> {
    open(stream)?;
    hear(stream)?;
    let hello = ClientHello { version: version.to_string(), nonce: nonce()?, has_token: token.is_some() };
    let ours = say(stream, &hello)?;
    let (hello, theirs) = listen(stream)?;
    match (hello, token) {
        (ServerHello::Full { connections }, _) => return Err(HandshakeError::Full { connections }),
        (ServerHello::Ready { version: theirs, .. }, _) if theirs != version => {
            return Err(HandshakeError::Version { ours: version.to_string(), theirs });
        }
        (ServerHello::Ready { has_token: true, .. }, None) => return Err(HandshakeError::NoClientToken),
        (ServerHello::Ready { has_token: false, .. }, Some(_)) => return Err(HandshakeError::NoServerToken),
        (ServerHello::Ready { .. }, _) => {}
    }
    let hellos = [&ours[..], &theirs[..]];
    say(stream, &Proof(token.map(|token| token.prove(Side::Client, hellos))))?;
    match (frame::receive(stream, frame::MESSAGE)?, token) {
        (Welcome::WrongToken, _) => Err(HandshakeError::WrongToken),
        (Welcome::Come { machine, silence_ms, .. }, None) => Ok((machine, Duration::from_millis(silence_ms))),
        (Welcome::Come { proof: Some(proof), silence_ms, machine }, Some(token))
            if token.is_proven(Side::Server, hellos, &proof) =>
        {
            Ok((machine, Duration::from_millis(silence_ms)))
        }
        (Welcome::Come { .. }, Some(_)) => Err(HandshakeError::Impostor),
    }
}

/// What a server says of itself.
pub(crate) struct Server<'s> {
    pub(crate) version: &'s str,
    pub(crate) token: Option<&'s Token>,
    pub(crate) machine: &'s Machine,
    pub(crate) silence: Duration,
    /// How many connections it has, where these are too many.
    pub(crate) full: Option<u32>,
}

/// The server's part.
pub(crate) fn as_server<S: Read + Write>(stream: &mut S, server: &Server<'_>) -> Result<(), HandshakeError> {
    let Server { version, token, machine, silence, full } = *server;
    open(stream)?;
    hear(stream)?;
    let (hello, theirs) = listen::<ClientHello>(stream)?;
    if let Some(connections) = full {
        say(stream, &ServerHello::Full { connections })?;
        return Err(HandshakeError::Full { connections });
    }
    let answer =
        ServerHello::Ready { version: version.to_string(), nonce: nonce()?, has_token: token.is_some() };
    let ours = say(stream, &answer)?;
    // The client has been told enough to say the same.
    match (hello.version == version, hello.has_token, token) {
        (false, ..) => {
            return Err(HandshakeError::Version { ours: version.to_string(), theirs: hello.version });
        }
        (true, false, Some(_)) | (true, true, None) => return Err(HandshakeError::WrongClientToken),
        (true, ..) => {}
    }
    let hellos = [&theirs[..], &ours[..]];
    let (Proof(proof), _) = listen(stream)?;
    let is_proven = match (token, proof) {
        (None, _) => true,
        (Some(token), Some(proof)) => token.is_proven(Side::Client, hellos, &proof),
        (Some(_), None) => false,
    };
    if !is_proven {
        say(stream, &Welcome::WrongToken)?;
        return Err(HandshakeError::WrongClientToken);
    }
    let proof = token.map(|token| token.prove(Side::Server, hellos));
    let silence_ms = u64::try_from(silence.as_millis()).unwrap_or(u64::MAX);
    say(stream, &Welcome::Come { proof, silence_ms, machine: machine.clone() })?;
    Ok(())
}
