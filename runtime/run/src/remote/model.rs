//! An artifact for a server: what it takes, and whether the server's machine runs it. Nothing of it is loaded here.

use std::path::{Path, PathBuf};

use tilewright_rpc::{Blob, Machine};
use tilewright_runtime::artifact::{Artifact, ImageDef};
use tilewright_runtime::isa::Isa;

use super::error::RemoteError;
use crate::spec::{self, Spec};

/// An artifact for a server.
pub struct RemoteModel {
    pub(super) blob: Blob,
    path: PathBuf,
    images: Vec<ImageDef>,
    inputs: Vec<Spec>,
}

impl RemoteModel {
    /// Reads an artifact file.
    ///
    /// # Errors
    /// When it cannot be read or is none.
    pub fn read(path: &Path) -> Result<RemoteModel, RemoteError> {
        let bytes = std::fs::read(path).map_err(|error| RemoteError::Read { path: path.into(), error })?;
        RemoteModel::of(bytes, path)
    }

    /// An artifact in memory; messages name it by `path`.
    ///
    /// # Errors
    /// When it is none.
    pub fn of(bytes: Vec<u8>, path: &Path) -> Result<RemoteModel, RemoteError> {
        let artifact = Artifact::read(&bytes);
        let artifact = artifact.map_err(|error| RemoteError::Artifact { path: path.into(), error })?;
        let inputs = artifact.plans.first().map_or(Vec::new(), |plans| spec::inputs(&plans.open));
        Ok(RemoteModel {
            blob: Blob::new(bytes),
            path: path.into(),
            images: artifact.manifest.images,
            inputs,
        })
    }

    /// Its inputs, in order.
    pub fn inputs(&self) -> &[Spec] {
        &self.inputs
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> u64 {
        self.blob.bytes()
    }

    /// Asks whether a server's machine runs it. Devices are asked when it is loaded there.
    pub(super) fn check(&self, server: &str, machine: &Machine) -> Result<(), RemoteError> {
        let isa = Isa { arch: machine.arch.clone(), features: machine.features.clone() };
        match isa.choose(&self.images) {
            Ok(_) => Ok(()),
            Err(_) => {
                let code: Vec<String> = self.images.iter().map(described).collect();
                Err(RemoteError::OtherMachine {
                    server: server.to_string(),
                    machine: with(&machine.arch, &machine.features),
                    path: self.path.clone(),
                    code: code.join(" or "),
                })
            }
        }
    }
}

fn described(image: &ImageDef) -> String {
    with(image.triple.split('-').next().unwrap_or_default(), &image.features)
}

/// `x86_64 with avx2, fma`.
fn with(arch: &str, features: &[String]) -> String {
    match features {
        [] => arch.to_string(),
        features => format!("{arch} with {}", features.join(", ")),
    }
}
