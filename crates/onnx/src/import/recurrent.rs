//! Recurrent layers.

use tilewright_graph::op::{Direction, Op, Real, RecurrentActivation, RecurrentAttrs};
use tilewright_graph::{Dim, ValueId};

use super::cx::{Cx, size};
use super::error::{Reason, Result};

use RecurrentActivation::{
    Affine, Elu, HardSigmoid, LeakyRelu, Relu, ScaledTanh, Sigmoid, Softplus, Softsign, Tanh, ThresholdedRelu,
};

/// How ONNX writes an activation: its name in lower case, and the defaults of the parameters that it takes from
/// `activation_alpha` and `activation_beta`.
struct Activation {
    name: &'static str,
    kind: RecurrentActivation,
    alpha: Option<f32>,
    beta: Option<f32>,
}

const fn activation(
    name: &'static str,
    kind: RecurrentActivation,
    alpha: Option<f32>,
    beta: Option<f32>,
) -> Activation {
    Activation { name, kind, alpha, beta }
}

const ACTIVATIONS: [Activation; 11] = [
    activation("relu", Relu, None, None),
    activation("tanh", Tanh, None, None),
    activation("sigmoid", Sigmoid, None, None),
    activation("affine", Affine, Some(1.0), Some(0.0)),
    activation("leakyrelu", LeakyRelu, Some(0.01), None),
    activation("thresholdedrelu", ThresholdedRelu, Some(1.0), None),
    activation("scaledtanh", ScaledTanh, Some(1.0), Some(1.0)),
    activation("hardsigmoid", HardSigmoid, Some(0.2), Some(0.5)),
    activation("elu", Elu, Some(1.0), None),
    activation("softsign", Softsign, None, None),
    activation("softplus", Softplus, None, None),
];

fn attrs(cx: &Cx<'_>, defaults: &[RecurrentActivation]) -> Result<RecurrentAttrs> {
    let directions = [
        ("forward", Direction::Forward),
        ("reverse", Direction::Reverse),
        ("bidirectional", Direction::Bidirectional),
    ];
    let direction = cx.keyword("direction", "forward", &directions)?;
    let n_directions = if direction == Direction::Bidirectional { 2 } else { 1 };
    let recurrence = cx.ranked(cx.input(2)?)?;
    let hidden_of_r = recurrence.last().and_then(Dim::as_const);
    let hidden_size = match (cx.attrs.opt_int("hidden_size")?, hidden_of_r) {
        (Some(given), Some(known)) if given != known => {
            return Err(Reason::malformed(format!("`hidden_size` is {given}, but R has {known}")));
        }
        (Some(given), _) => size("hidden_size", given)?,
        (None, Some(known)) => size("hidden_size", known)?,
        (None, None) => return Err(Reason::malformed("`hidden_size` is missing")),
    };
    let names = match cx.attrs.texts("activations")? {
        Some(names) if !names.is_empty() => names,
        _ => Vec::new(),
    };
    let kinds: Vec<RecurrentActivation> = if names.is_empty() {
        defaults.repeat(n_directions)
    } else {
        let find = |name: &String| {
            let lower = name.to_lowercase();
            let row = ACTIVATIONS.iter().find(|row| row.name == lower);
            row.map(|row| row.kind).ok_or_else(|| Reason::unsupported(format!("activation `{name}`")))
        };
        names.iter().map(find).collect::<Result<_>>()?
    };
    if kinds.len() != defaults.len() * n_directions {
        // The default of a vanilla RNN is spelled out for two directions, and some exporters keep it so.
        let spare = kinds.len() > defaults.len() * n_directions;
        if !(spare && defaults.len() == 1) {
            let message =
                format!("`activations` has {} entries, not {}", kinds.len(), defaults.len() * n_directions);
            return Err(Reason::malformed(message));
        }
    }
    let kinds = kinds[..defaults.len() * n_directions].to_vec();
    // The lists hold a value for each activation that takes one, in order.
    let parameters = |name: &str, default: fn(&Activation) -> Option<f32>| {
        let mut given = cx.attrs.floats(name)?.unwrap_or_default().iter().copied();
        let value = |kind: &RecurrentActivation| {
            let default = ACTIVATIONS.iter().find(|row| row.kind == *kind).and_then(default);
            Real(default.map_or(0.0, |default| given.next().unwrap_or(default)))
        };
        Ok(kinds.iter().map(value).collect::<Vec<_>>())
    };
    let activation_alpha = parameters("activation_alpha", |row| row.alpha)?;
    let activation_beta = parameters("activation_beta", |row| row.beta)?;
    if cx.opset < 7 {
        // It only said whether the first output is there, which the outputs say too.
        cx.attrs.accept("output_sequence");
    }
    Ok(RecurrentAttrs {
        direction,
        hidden_size,
        activations: kinds,
        activation_alpha,
        activation_beta,
        clip: cx.attrs.opt_float("clip")?.map(Real),
        batch_first: cx.opset >= 14 && cx.attrs.flag("layout", false)?,
        input_forget: false,
        linear_before_reset: false,
    })
}

pub(super) fn lstm(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let input_forget = cx.attrs.flag("input_forget", false)?;
    let attrs = RecurrentAttrs { input_forget, ..attrs(cx, &[Sigmoid, Tanh, Tanh])? };
    let inputs = cx.inputs.clone();
    cx.emit_n(Op::Lstm(attrs), inputs, 3)
}

pub(super) fn gru(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let linear_before_reset = cx.opset >= 3 && cx.attrs.flag("linear_before_reset", false)?;
    let attrs = RecurrentAttrs { linear_before_reset, ..attrs(cx, &[Sigmoid, Tanh])? };
    let inputs = cx.inputs.clone();
    cx.emit_n(Op::Gru(attrs), inputs, 2)
}

pub(super) fn rnn(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let attrs = attrs(cx, &[Tanh])?;
    let inputs = cx.inputs.clone();
    cx.emit_n(Op::Rnn(attrs), inputs, 2)
}
