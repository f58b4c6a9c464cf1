//! Recurrent layers: LSTM, GRU and the plain RNN, with ONNX's operands and gate orders.
//!
//! The products with the input of all steps are one matmul (`matmul`, then `gates` with the biases); a loop over
//! steps adds the products with the state (`recurrent`) and updates the states. Work buffers are indexed by step,
//! `[step, direction, batch, ..]`, and those of gates then by gate and unit, so that what belongs to some units lies apart from what
//! belongs to others; a backward direction takes its first step at the end of each sequence.

use tilewright_dtype::DType;
use tilewright_graph::op::{Direction, Real, RecurrentActivation, RecurrentAttrs};
use tilewright_te::{Expr, UnaryOp};

use super::builder::{Builder, Operand, accumulator, clamp};
use super::elementwise::{apply, elu, hard_sigmoid, leaky_relu, relu, softplus, softsign, thresholded_relu};
use super::sequential::Steps;
use super::{NoKernel, Results};

/// The operands and extents all three layers share.
struct Layer<'a> {
    attrs: &'a RecurrentAttrs,
    x: Operand,
    r: Operand,
    lengths: Option<Operand>,
    dtype: DType,
    steps: Expr,
    n_directions: usize,
    batch: Expr,
    hidden: Expr,
    /// Products with the input, and biases; the loop adds the products with the state.
    gates: Operand,
}

/// Whether direction `d` runs from the end; a constant where it is known.
fn is_backward(attrs: &RecurrentAttrs, d: &Expr) -> Expr {
    match attrs.direction {
        Direction::Forward => Expr::bool(false),
        Direction::Reverse => Expr::bool(true),
        Direction::Bidirectional => d.clone().equals(Expr::int(1)),
    }
}

impl<'a> Layer<'a> {
    /// Computes `gates`; `biased_state` says for a gate whether the state's bias belongs there (and not inside
    /// the product with the reset gate).
    fn new(
        b: &mut Builder,
        attrs: &'a RecurrentAttrs,
        n_gates: usize,
        biased_state: impl Fn(&Expr) -> Expr,
    ) -> Result<Layer<'a>, NoKernel> {
        let (x, w, r, bias, lengths) = (b.input(0)?, b.input(1)?, b.input(2)?, b.optional(3), b.optional(4));
        let dtype = accumulator(x.dtype);
        let (time, batch) = if attrs.batch_first { (1, 0) } else { (0, 1) };
        let (steps, batch) = (x.shape[time].clone(), x.shape[batch].clone());
        let hidden = Expr::int(attrs.hidden_size as i64);
        let n_directions = if attrs.direction == Direction::Bidirectional { 2 } else { 1 };
        let rows = Expr::int((n_gates * attrs.hidden_size) as i64);
        let of_gates = [Expr::int(n_gates as i64), hidden.clone()];
        let shape = [&[steps.clone(), Expr::int(n_directions as i64), batch.clone()], &of_gates[..]].concat();
        let mut layer =
            Layer { attrs, gates: x.clone(), x, r, lengths, dtype, steps, n_directions, batch, hidden };
        let products = layer.products(b, &w, &rows);
        let gates = b.compute("gates", dtype, &shape, |i| {
            let row = layer.weights_row(&i[3], &i[4]);
            let product = layer.product_of(&products, &i[..3], &row);
            let Some(bias) = &bias else { return product };
            let input = bias.at(vec![i[1].clone(), row.clone()]).cast(dtype);
            let state = bias.at(vec![i[1].clone(), row + rows.clone()]).cast(dtype);
            product + (input + Expr::select(biased_state(&i[3]), state, Expr::zero(dtype)))
        });
        layer.gates = gates;
        Ok(layer)
    }

    /// Whether rows of the input are multiplied in the order in which they lie in memory, steps and batch together as one number, and
    /// not by steps, as the loop over these needs them: with an open extent tiles are then full whichever of the two is small.
    fn as_it_lies(&self) -> bool {
        self.steps.as_int().is_none() || self.batch.as_int().is_none()
    }

    /// A time and a sequence as indices of the input.
    fn row(&self, time: Expr, batch: Expr) -> [Expr; 2] {
        if self.attrs.batch_first { [batch, time] } else { [time, batch] }
    }

    /// Products of the weights `w` with the input of every step; see [`Layer::product_of`].
    fn products(&self, b: &mut Builder, w: &Operand, rows: &Expr) -> Operand {
        let (dtype, depth) = (self.dtype, vec![w.shape[2].clone()]);
        let fma = |[first, second]: [Expr; 2], d: Expr, row: &Expr, k: &[Expr], acc: Expr| {
            let x = self.x.at(vec![first, second, k[0].clone()]).cast(dtype);
            Expr::fma(x, w.at(vec![d, row.clone(), k[0].clone()]).cast(dtype), acc)
        };
        let directions = Expr::int(self.n_directions as i64);
        if self.as_it_lies() {
            let several = (self.n_directions > 1).then_some(directions);
            let inputs = self.row(self.steps.clone(), self.batch.clone());
            let shape: Vec<Expr> = several.into_iter().chain(inputs).chain([rows.clone()]).collect();
            return b.reduce("matmul", dtype, &shape, depth, Expr::zero(dtype), |i, k, acc| {
                let d = if self.n_directions > 1 { i[0].clone() } else { Expr::int(0) };
                let [.., first, second, row] = i else { return acc };
                fma([first.clone(), second.clone()], d, row, k, acc)
            });
        }
        let shape = [self.steps.clone(), directions, self.batch.clone(), rows.clone()];
        b.reduce("matmul", dtype, &shape, depth, Expr::zero(dtype), |i, k, acc| {
            let time = self.time(&i[0], &i[1], &i[2]);
            fma(self.row(time, i[2].clone()), i[1].clone(), &i[3], k, acc)
        })
    }

    /// Of `products` that for a step, direction and sequence, and a row of the weights.
    fn product_of(&self, products: &Operand, i: &[Expr], row: &Expr) -> Expr {
        if !self.as_it_lies() {
            return products.at([i, std::slice::from_ref(row)].concat());
        }
        let input = self.row(self.time(&i[0], &i[1], &i[2]), i[2].clone());
        let direction = (self.n_directions > 1).then(|| i[1].clone());
        products.at(direction.into_iter().chain(input).chain([row.clone()]).collect())
    }

    /// The row of the weights that belongs to a gate and a unit.
    fn weights_row(&self, gate: &Expr, unit: &Expr) -> Expr {
        gate.clone() * self.hidden.clone() + unit.clone()
    }

    /// Steps that belong to sequence `batch`.
    fn length(&self, batch: &Expr) -> Expr {
        match &self.lengths {
            Some(lengths) => {
                let given = lengths.index_at(batch.clone());
                clamp(given, Expr::int(0), self.steps.clone())
            }
            None => self.steps.clone(),
        }
    }

    /// The time that step `step` of direction `d` is about, and as well the step that time is in.
    fn time(&self, step: &Expr, d: &Expr, batch: &Expr) -> Expr {
        let length = self.length(batch);
        let mirrored = length.clone() - 1 - step.clone();
        let backward = match &self.lengths {
            Some(_) => Expr::select(step.clone().lt(length), mirrored, step.clone()),
            None => mirrored,
        };
        Expr::select(is_backward(self.attrs, d), backward, step.clone())
    }

    /// The directions, if there are two, which know nothing of each other.
    fn apart(&self) -> Vec<Expr> {
        if self.n_directions > 1 { vec![Expr::int(self.n_directions as i64)] } else { Vec::new() }
    }

    fn gate(&self, i: &[Expr], gate: usize) -> Expr {
        self.gates.at(vec![i[0].clone(), i[1].clone(), i[2].clone(), Expr::int(gate as i64), i[3].clone()])
    }

    fn state_shape(&self) -> [Expr; 4] {
        [self.steps.clone(), Expr::int(self.n_directions as i64), self.batch.clone(), self.hidden.clone()]
    }

    /// The state before step `i[0]`: `initial` (or 0) before the first one.
    fn previous(&self, state: &Operand, initial: Option<&Operand>, i: &[Expr]) -> Expr {
        let before = state.at(vec![i[0].clone() - 1, i[1].clone(), i[2].clone(), i[3].clone()]);
        let initial = match initial {
            Some(initial) if self.attrs.batch_first => {
                initial.at(vec![i[2].clone(), i[1].clone(), i[3].clone()])
            }
            Some(initial) => initial.at(i[1..].to_vec()),
            None => Expr::zero(self.dtype),
        };
        Expr::select(i[0].clone().equals(Expr::int(0)), initial.cast(self.dtype), before)
    }

    /// `new` while the sequence lasts, the previous state after its end.
    fn advanced(&self, new: Expr, previous: Expr, i: &[Expr]) -> Expr {
        match &self.lengths {
            Some(_) => Expr::select(i[0].clone().lt(self.length(&i[2])), new, previous),
            None => new,
        }
    }

    /// Activation `n` of the direction `i[1]` of a gate, after clipping.
    fn activate(&self, n: usize, x: Expr, i: &[Expr]) -> Expr {
        let clipped = match self.attrs.clip {
            Some(bound) => {
                let bound = bound.to_f64().abs();
                let at = |value| Expr::float_of(x.dtype(), value);
                at(-bound).max(at(bound).min(x))
            }
            None => x,
        };
        self.activate_unclipped(n, clipped, i)
    }

    /// Activation `n` of the direction `i[1]`.
    fn activate_unclipped(&self, n: usize, x: Expr, i: &[Expr]) -> Expr {
        let each = self.attrs.activations.len() / self.n_directions.max(1);
        let value = |direction: usize| {
            let n = direction * each + n;
            let parameter = |list: &[Real]| list.get(n).map(|value| value.to_f64());
            let (alpha, beta) =
                (parameter(&self.attrs.activation_alpha), parameter(&self.attrs.activation_beta));
            let kind = self.attrs.activations.get(n).copied().unwrap_or(RecurrentActivation::Tanh);
            activation(kind, alpha.unwrap_or(0.0), beta.unwrap_or(0.0), x.clone())
        };
        let forward = value(0);
        if self.n_directions == 1 {
            return forward;
        }
        let backward = value(1);
        if forward == backward {
            forward
        } else {
            Expr::select(i[1].clone().equals(Expr::int(0)), forward, backward)
        }
    }

    /// Adds the products of the previous state, as `state` gives it, with the weights of `gates` to what `target` holds of these.
    fn recur(
        &self,
        steps: &mut Steps,
        target: &Operand,
        gates: std::ops::Range<usize>,
        state: impl Fn(&[Expr]) -> Expr,
    ) {
        let n_gates = Expr::int(gates.len() as i64);
        let spatial = [Expr::int(self.n_directions as i64), self.batch.clone(), n_gates, self.hidden.clone()];
        steps.update("recurrent", &spatial, std::slice::from_ref(&self.hidden), |t, i, k| {
            let gate = i[2].clone() + gates.start as i64;
            let at = vec![t.clone(), i[0].clone(), i[1].clone(), gate.clone(), i[3].clone()];
            let previous = state(&[t.clone(), i[0].clone(), i[1].clone(), k[0].clone()]);
            let row = self.weights_row(&gate, &i[3]);
            let weight = self.r.at(vec![i[0].clone(), row, k[0].clone()]).cast(self.dtype);
            vec![target.store(at.clone(), Expr::fma(previous, weight, target.at(at)))]
        });
    }

    /// The results: all states by time, and the last of each of `states`, which come with what they start from.
    fn results(&self, b: &mut Builder, states: &[(&Operand, Option<&Operand>)]) -> Results {
        let to = self.x.dtype;
        let mut results = Vec::new();
        let shape = b.result_shape(0)?;
        let (hidden, _) = states[0];
        results.push(b.compute("states", to, &shape, |i| {
            let (time, d, batch) =
                if self.attrs.batch_first { (&i[1], &i[2], &i[0]) } else { (&i[0], &i[1], &i[2]) };
            let step = self.time(time, d, batch);
            let state = hidden.at(vec![step, d.clone(), batch.clone(), i[3].clone()]).cast(to);
            match &self.lengths {
                Some(_) => Expr::select(time.clone().lt(self.length(batch)), state, Expr::zero(to)),
                None => state,
            }
        }));
        for (n, (state, initial)) in states.iter().enumerate() {
            if b.n_results() <= n + 1 {
                break;
            }
            let shape = b.result_shape(n + 1)?;
            results.push(b.compute("last_state", to, &shape, |i| {
                let (d, batch) = if self.attrs.batch_first { (&i[1], &i[0]) } else { (&i[0], &i[1]) };
                let end = [self.steps.clone(), d.clone(), batch.clone(), i[2].clone()];
                self.previous(state, *initial, &end).cast(to)
            }));
        }
        Ok(results)
    }
}

fn activation(kind: RecurrentActivation, alpha: f64, beta: f64, x: Expr) -> Expr {
    let constant = |value: f64| Expr::float_of(x.dtype(), value);
    match kind {
        RecurrentActivation::Relu => relu(x),
        RecurrentActivation::Tanh => apply(UnaryOp::Tanh, x),
        RecurrentActivation::Sigmoid => apply(UnaryOp::Sigmoid, x),
        RecurrentActivation::Affine => Expr::fma(x.clone(), constant(alpha), constant(beta)),
        RecurrentActivation::LeakyRelu => leaky_relu(x, alpha),
        RecurrentActivation::ThresholdedRelu => thresholded_relu(x, alpha),
        RecurrentActivation::ScaledTanh => apply(UnaryOp::Tanh, x.clone() * constant(beta)) * constant(alpha),
        RecurrentActivation::HardSigmoid => hard_sigmoid(x, alpha, beta),
        RecurrentActivation::Elu => elu(x, alpha),
        RecurrentActivation::Softsign => softsign(x),
        RecurrentActivation::Softplus => softplus(x),
    }
}

/// Indices `[step, direction, batch, element]` from a step and the rest.
fn at_step(t: &Expr, i: &[Expr]) -> Vec<Expr> {
    [std::slice::from_ref(t), i].concat()
}

/// `(x, w, r, bias?, lengths?, h0?, c0?, peepholes?) -> (y, h, c)`; gates in the order input, output, forget, cell.
pub(super) fn lstm(b: &mut Builder, attrs: &RecurrentAttrs) -> Results {
    let layer = Layer::new(b, attrs, 4, |_| Expr::bool(true))?;
    let (h0, c0, peepholes) = (b.optional(5), b.optional(6), b.optional(7));
    let (dtype, shape) = (layer.dtype, layer.state_shape());
    let hidden = b.temporary("hidden", dtype, &shape);
    let cell = b.temporary("cell", dtype, &shape);
    // What a gate sees of the cell: peephole weights in the order input, output, forget.
    let peep = |gate: usize, value: Expr, cell: &Expr, i: &[Expr]| match &peepholes {
        Some(weights) => {
            let row = Expr::int(gate as i64) * layer.hidden.clone() + i[3].clone();
            Expr::fma(weights.at(vec![i[1].clone(), row]).cast(dtype), cell.clone(), value)
        }
        None => value,
    };
    b.in_order_apart("time", &layer.steps, &layer.apart(), |steps| {
        layer.recur(steps, &layer.gates, 0..4, |i| layer.previous(&hidden, h0.as_ref(), i));
        steps.update("cell", &shape[1..], &[], |t, i, _| {
            let i = at_step(t, i);
            let before = layer.previous(&cell, c0.as_ref(), &i);
            let input = layer.activate(0, peep(0, layer.gate(&i, 0), &before, &i), &i);
            let forget = if attrs.input_forget {
                Expr::int_of(dtype, 1) - input.clone()
            } else {
                layer.activate(0, peep(2, layer.gate(&i, 2), &before, &i), &i)
            };
            let candidate = layer.activate(1, layer.gate(&i, 3), &i);
            let value = Expr::fma(forget, before.clone(), input * candidate);
            vec![cell.store(i.clone(), layer.advanced(value, before, &i))]
        });
        steps.update("hidden", &shape[1..], &[], |t, i, _| {
            let i = at_step(t, i);
            let now = cell.at(i.clone());
            let output = layer.activate(0, peep(1, layer.gate(&i, 1), &now, &i), &i);
            let value = output * layer.activate_unclipped(2, now, &i);
            let before = layer.previous(&hidden, h0.as_ref(), &i);
            vec![hidden.store(i.clone(), layer.advanced(value, before, &i))]
        });
    });
    layer.results(b, &[(&hidden, h0.as_ref()), (&cell, c0.as_ref())])
}

/// `(x, w, r, bias?, lengths?, h0?) -> (y, h)`; gates in the order update, reset, hidden.
pub(super) fn gru(b: &mut Builder, attrs: &RecurrentAttrs) -> Results {
    // With the reset gate after the product, the state's bias of the hidden gate is inside what it scales.
    let layer = Layer::new(b, attrs, 3, |gate| {
        if attrs.linear_before_reset { gate.clone().lt(Expr::int(2)) } else { Expr::bool(true) }
    })?;
    let (bias, h0) = (b.optional(3), b.optional(5));
    let (dtype, shape) = (layer.dtype, layer.state_shape());
    let hidden = b.temporary("hidden", dtype, &shape);
    let scaled = attrs.linear_before_reset.then(|| {
        let gates_shape = layer.gates.shape.clone();
        let rows = layer.hidden.clone() * 3;
        b.compute("scaled", dtype, &gates_shape, |i| match &bias {
            Some(bias) => {
                let row = layer.weights_row(&i[3], &i[4]) + rows.clone();
                bias.at(vec![i[1].clone(), row]).cast(dtype)
            }
            None => Expr::zero(dtype),
        })
    });
    let reset_state = (!attrs.linear_before_reset).then(|| b.temporary("reset", dtype, &shape));
    b.in_order_apart("time", &layer.steps, &layer.apart(), |steps| {
        let before = |i: &[Expr]| layer.previous(&hidden, h0.as_ref(), i);
        layer.recur(steps, &layer.gates, 0..2, before);
        if let Some(scaled) = &scaled {
            layer.recur(steps, scaled, 2..3, before);
        }
        if let Some(reset_state) = &reset_state {
            steps.update("reset", &shape[1..], &[], |t, i, _| {
                let i = at_step(t, i);
                let reset = layer.activate(0, layer.gate(&i, 1), &i);
                vec![reset_state.store(i.clone(), reset * before(&i))]
            });
            layer.recur(steps, &layer.gates, 2..3, |i| reset_state.at(i.to_vec()));
        }
        steps.update("hidden", &shape[1..], &[], |t, i, _| {
            let i = at_step(t, i);
            let update = layer.activate(0, layer.gate(&i, 0), &i);
            let candidate = match &scaled {
                Some(scaled) => {
                    let at = vec![i[0].clone(), i[1].clone(), i[2].clone(), Expr::int(2), i[3].clone()];
                    let product = scaled.at(at);
                    let reset = layer.activate(0, layer.gate(&i, 1), &i);
                    Expr::fma(reset, product, layer.gate(&i, 2))
                }
                None => layer.gate(&i, 2),
            };
            let candidate = layer.activate(1, candidate, &i);
            let previous = before(&i);
            let kept = Expr::int_of(dtype, 1) - update.clone();
            let value = Expr::fma(update, previous.clone(), kept * candidate);
            vec![hidden.store(i.clone(), layer.advanced(value, previous, &i))]
        });
    });
    layer.results(b, &[(&hidden, h0.as_ref())])
}

/// `(x, w, r, bias?, lengths?, h0?) -> (y, h)`.
pub(super) fn rnn(b: &mut Builder, attrs: &RecurrentAttrs) -> Results {
    let layer = Layer::new(b, attrs, 1, |_| Expr::bool(true))?;
    let h0 = b.optional(5);
    let shape = layer.state_shape();
    let hidden = b.temporary("hidden", layer.dtype, &shape);
    b.in_order_apart("time", &layer.steps, &layer.apart(), |steps| {
        let before = |i: &[Expr]| layer.previous(&hidden, h0.as_ref(), i);
        layer.recur(steps, &layer.gates, 0..1, before);
        steps.update("hidden", &shape[1..], &[], |t, i, _| {
            let i = at_step(t, i);
            let value = layer.activate(0, layer.gate(&i, 0), &i);
            vec![hidden.store(i.clone(), layer.advanced(value, before(&i), &i))]
        });
    });
    layer.results(b, &[(&hidden, h0.as_ref())])
}
