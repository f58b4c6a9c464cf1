//! What a comparison is asked for.

use std::path::PathBuf;

/// Arguments of the task.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Models to measure; all of target/models if none is named
    pub(super) models: Vec<PathBuf>,
    /// Threads of every contestant
    #[arg(long, default_value_t = 2)]
    pub(super) threads: usize,
    /// Rounds; each runs every contestant once
    #[arg(long, default_value_t = 5)]
    pub(super) rounds: usize,
    /// Seconds a contestant measures in one round
    #[arg(long, default_value_t = 3.0)]
    pub(super) seconds: f64,
    /// Whom to compare with
    #[arg(long, value_delimiter = ',', value_enum, default_values_t = [Peer::Onnxruntime, Peer::Openvino])]
    pub(super) peers: Vec<Peer>,
    /// Code generator, if not the build's default
    #[arg(long)]
    pub(super) codegen: Option<String>,
    /// Another `tilewright` program than the one of this tree
    #[arg(long)]
    pub(super) program: Option<PathBuf>,
    /// Extent of an open dimension of inputs; of others, 1
    #[arg(long = "dim", value_name = "NAME=N", default_values_t = ["batch=1".to_string(), "seq=128".to_string()])]
    pub(super) dims: Vec<String>,
    /// An input's shape, where --dim cannot give it
    #[arg(long = "shape", value_name = "INPUT=1x512")]
    pub(super) shapes: Vec<String>,
    /// Fills an input with one value
    #[arg(long = "value", value_name = "INPUT=16000")]
    pub(super) values: Vec<String>,
    /// Further options of `tilewright bench`, such as `--mode max-autotune`
    #[arg(last = true)]
    pub(super) options: Vec<String>,
}

/// What to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(super) enum Peer {
    /// Ours, compiled for the extents of the inputs alone: what it costs to leave extents open
    Fixed,
    /// ONNX Runtime, whose answers are the reference
    Onnxruntime,
    /// OpenVINO
    Openvino,
}

impl Peer {
    /// Its name; that of its Python package, where it has one.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Peer::Fixed => "fixed",
            Peer::Onnxruntime => "onnxruntime",
            Peer::Openvino => "openvino",
        }
    }
}

impl Args {
    /// Whose answers are the reference: ONNX Runtime's, else the first one's.
    pub(super) fn reference(&self) -> Option<Peer> {
        let peers = self.peers();
        peers.iter().find(|&&peer| peer == Peer::Onnxruntime).or(peers.first()).copied()
    }

    /// The peers, each once, in the order of their names.
    pub(super) fn peers(&self) -> Vec<Peer> {
        let mut peers = self.peers.clone();
        peers.sort();
        peers.dedup();
        peers
    }
}
