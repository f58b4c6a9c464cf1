//! Tokens: what client and server both know, and prove to know without saying it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};

/// Variable that holds the token.
pub const TOKEN_VARIABLE: &str = "TILEWRIGHT_RPC_TOKEN";

/// Fewest bytes of a token. Who listens can try tokens against what was proven, so short ones protect nothing.
const LEAST: usize = 16;

/// Most bytes of a file with a token.
const MOST: usize = 4096;

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// Its file cannot be read.
    #[error("cannot read the token in {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// It is too short to protect anything, or too long.
    #[error("a token of {bytes} bytes: give {least} to {most}, as `openssl rand -hex 32` makes them")]
    Length {
        /// Its bytes.
        bytes: usize,
        /// Fewest.
        least: usize,
        /// Most.
        most: usize,
    },
}

/// A secret that clients and a server share.
#[derive(Clone)]
pub struct Token {
    /// The digest of its text: a key of any text has one length.
    key: [u8; 32],
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Who proves something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

impl Token {
    /// A token of this text, without white space around it.
    ///
    /// # Errors
    /// [`TokenError::Short`].
    pub fn new(text: &str) -> Result<Token, TokenError> {
        let text = text.trim();
        match text.len() {
            LEAST..=MOST => Ok(Token { key: Sha256::digest(text).into() }),
            bytes => Err(TokenError::Length { bytes, least: LEAST, most: MOST }),
        }
    }

    /// The token in a file.
    ///
    /// # Errors
    /// When the file cannot be read or holds no token.
    pub fn read(path: &Path) -> Result<Token, TokenError> {
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|error| TokenError::Read { path: path.into(), error })?;
        Token::new(&text)
    }

    /// The token of a file, or else that of [`TOKEN_VARIABLE`], if there is one.
    ///
    /// # Errors
    /// As [`Token::read`] and [`Token::new`].
    pub fn given(file: Option<&Path>) -> Result<Option<Token>, TokenError> {
        match (file, std::env::var(TOKEN_VARIABLE)) {
            (Some(path), _) => Token::read(path).map(Some),
            (None, Ok(text)) if !text.is_empty() => Token::new(&text).map(Some),
            (None, Ok(_) | Err(_)) => Ok(None),
        }
    }

    fn mac(&self, side: Side, hellos: [&[u8]; 2]) -> Hmac<Sha256> {
        // HMAC itself fills shorter keys with zeros.
        let mut key = [0; 64];
        key[..32].copy_from_slice(&self.key);
        let mut mac = Hmac::<Sha256>::new(&key.into());
        mac.update(match side {
            Side::Client => b"tilewright-rpc client",
            Side::Server => b"tilewright-rpc server",
        });
        for hello in hellos {
            mac.update(&(hello.len() as u64).to_le_bytes());
            mac.update(hello);
        }
        mac
    }

    /// What proves to the other side that this one knows the token: no other connection has the same, for both hellos have a nonce.
    pub(crate) fn prove(&self, side: Side, hellos: [&[u8]; 2]) -> [u8; 32] {
        self.mac(side, hellos).finalize().into_bytes().into()
    }

    /// Whether that is the other side's proof. Takes as long for any that is not.
    pub(crate) fn is_proven(&self, side: Side, hellos: [&[u8]; 2], proof: &[u8; 32]) -> bool {
        self.mac(side, hellos).verify_slice(proof).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proofs_are_of_one_side_of_one_connection() {
        let (token, other) =
            (Token::new("0123456789abcdef\n").unwrap(), Token::new("0123456789abcdeg").unwrap());
        let proof = token.prove(Side::Client, [b"a", b"b"]);
        assert!(token.is_proven(Side::Client, [b"a", b"b"], &proof));
        assert!(!token.is_proven(Side::Server, [b"a", b"b"], &proof), "sent back");
        assert!(!token.is_proven(Side::Client, [b"a", b"c"], &proof), "of another connection");
        assert!(!token.is_proven(Side::Client, [b"ab", b""], &proof), "cut elsewhere");
        assert!(!other.is_proven(Side::Client, [b"a", b"b"], &proof), "of another token");
        assert_eq!(format!("{token:?}"), "Token(..)");
    }

    #[test]
    fn short_tokens_are_refused() {
        let error = Token::new(" 0123456789abcde \n").unwrap_err().to_string();
        assert_eq!(error, "a token of 15 bytes: give 16 to 4096, as `openssl rand -hex 32` makes them");
    }
}
