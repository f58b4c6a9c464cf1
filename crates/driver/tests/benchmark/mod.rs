//! The ten benchmark models, with inputs and ONNX Runtime's outputs for them.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::path::Path;

use crate::common::failed;
use crate::onnx_runtime::{Feed, Tensor, answers_of};

/// A model and the inputs it runs on: for each case the extents of every input.
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    inputs: &'static [(&'static str, Fill)],
    cases: &'static [&'static [usize]],
}

/// What an input is filled with.
#[derive(Clone, Copy)]
pub(crate) enum Fill {
    /// Seeded noise between -2 and 2, as F32.
    Noise,
    /// Seeded token ids below 100, as I64.
    Ids,
    /// Ones whose last eighth is padding, as I64.
    Mask,
}

const IMAGE: &[(&str, Fill)] = &[("input", Fill::Noise)];

pub(crate) const SUBJECTS: [Subject; 10] = [
    Subject { name: "squeezenet1_1", inputs: IMAGE, cases: &[&[1, 3, 224, 224]] },
    Subject { name: "mobilenet_v2", inputs: IMAGE, cases: &[&[1, 3, 224, 224]] },
    Subject { name: "efficientnet_b0", inputs: IMAGE, cases: &[&[1, 3, 224, 224]] },
    Subject { name: "densenet121", inputs: IMAGE, cases: &[&[1, 3, 224, 224]] },
    Subject { name: "resnet50", inputs: IMAGE, cases: &[&[1, 3, 224, 224]] },
    Subject { name: "inception_v3", inputs: IMAGE, cases: &[&[1, 3, 299, 299]] },
    Subject { name: "convnext_tiny", inputs: IMAGE, cases: &[&[1, 3, 224, 224]] },
    Subject { name: "vit_b_16", inputs: IMAGE, cases: &[&[1, 3, 224, 224]] },
    Subject { name: "gpt2_s64", inputs: &[("input_ids", Fill::Ids)], cases: &[&[1, 64]] },
    Subject {
        name: "bert_base_dyn",
        inputs: &[("input_ids", Fill::Ids), ("attention_mask", Fill::Mask)],
        cases: &[&[1, 7], &[2, 128], &[1, 384]],
    },
];

/// Inputs, and the outputs that ONNX Runtime has for them.
pub(crate) struct Case {
    pub(crate) inputs: Vec<Tensor>,
    pub(crate) expected: Vec<Tensor>,
}

/// The cases of a model with ONNX Runtime's outputs.
pub(crate) fn prepare(subject: &Subject, model: &Path) -> Result<Vec<Case>, String> {
    let inputs: Vec<Vec<Tensor>> = subject.cases.iter().map(|dims| inputs(subject, dims)).collect();
    let feeds = |inputs: &Vec<Tensor>| inputs.iter().cloned().map(Feed::from).collect();
    let answers = answers_of(model, &inputs.iter().map(feeds).collect::<Vec<Vec<Feed>>>())?;
    let case = |(inputs, answer): (Vec<Tensor>, Result<_, _>)| {
        Ok(Case { inputs, expected: answer.map_err(failed("ONNX Runtime"))? })
    };
    inputs.into_iter().zip(answers).map(case).collect()
}

/// Seeded inputs of the given extents.
fn inputs(subject: &Subject, dims: &[usize]) -> Vec<Tensor> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        // xorshift64
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 40
    };
    let n: usize = dims.iter().product();
    let last = dims.last().copied().unwrap_or(1);
    let tensor = |&(name, fill): &(&str, Fill)| match fill {
        Fill::Noise => Tensor::of_f32(name, dims, (0..n).map(|_| random() as f32 / (1 << 22) as f32 - 2.0)),
        Fill::Ids => Tensor::of_i64(name, dims, (0..n).map(|_| random() as i64 % 100)),
        Fill::Mask => {
            let kept = (last * 7 / 8).max(1);
            Tensor::of_i64(name, dims, (0..n).map(|i| i64::from(i % last < kept)))
        }
    };
    subject.inputs.iter().map(tensor).collect()
}
