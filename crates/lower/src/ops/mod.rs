//! The meaning of every graph operator, as tensor expressions on logical indices.
//!
//! There is no second semantics: constant folding, the reference run and every target start from the blocks that
//! [`define`] appends. Rules that all definitions keep:
//! - Results are temporaries of the function, with extents from the result types; operands are buffers with their
//!   logical extents, whatever a schedule makes of their layout later.
//! - An operator that copies or computes element by element is one block, which can be inlined. A composite is
//!   several blocks, each a clear stage, named after its role: `pad`, `max`, `sum`, `matmul`, `conv`, `bias`.
//!   Rules know blocks by what they compute, people by these names. Tables of elementary functions are blocks of their own, which are
//!   computed at compile time.
//! - Products accumulate by fused multiply-add, with iteration order `[result axes.., summed axes..]`; floats
//!   narrower than `F32` accumulate in `F32` and are rounded once at the end.
//! - Indices that are data are clamped into their axis: no data makes a kernel touch memory outside a tensor.
//! - Extents known to be 0 are handled; an extent that is 0 only at run time leaves a reduction's result unset.

mod attention;
mod attention_blocks;
mod builder;
mod context;
mod conv;
mod elementwise;
mod fft;
mod gather_scatter;
mod generate;
mod heads;
mod linalg;
mod matmul;
mod movement;
mod norm;
mod operand;
mod pool;
mod quant;
mod recurrent;
mod reduce;
mod resize;
mod sample;
mod sequential;
mod signal;
mod strassen;
#[cfg(test)]
mod tests;
mod window;
mod winograd;

use tilewright_dtype::DType;
use tilewright_graph::op::{GemmAttrs, MatMulAttrs, Op};
use tilewright_graph::types::TensorType;
use tilewright_te::{Buffer, Func};

use builder::Builder;
use context::Results;
pub use context::{Algorithm, Context, NoKernel, Prepared};

impl Algorithm {
    /// The algorithms for an operator beside its definition.
    pub fn alternatives(op: &Op, operands: &[Option<&TensorType>]) -> Vec<Algorithm> {
        match (op, operands) {
            (Op::Conv(attrs), [Some(x), Some(w), ..]) if winograd::applies(attrs, x, w) => {
                vec![Algorithm::Winograd { tile: 4 }, Algorithm::Winograd { tile: 2 }]
            }
            (Op::MatMul(MatMulAttrs { transpose_a: false, .. }), [Some(a), Some(b)])
            | (Op::Gemm(GemmAttrs { transpose_a: false, .. }), [Some(a), Some(b), ..])
                if strassen::applies(a, b) =>
            {
                vec![Algorithm::Strassen]
            }
            (Op::Attention(attrs), [Some(q), Some(k), Some(v), ..])
                if attention_blocks::applies(attrs, [q, k, v], operands) =>
            {
                attention_blocks::forms(attention_blocks::n_keys(k))
            }
            (Op::ConvTranspose(attrs), _) if conv::has_phases(attrs) => vec![Algorithm::Phases],
            _ => Vec::new(),
        }
    }
}

/// Appends to `func` the blocks that compute the results of `op`, and returns the temporaries that hold them.
///
/// `inputs` are buffers of `func` with the operands' logical extents, `None` for absent optional ones; `results`
/// the types of the results, all of them.
///
/// # Errors
/// The operator has no kernel: it runs on the host, steers control flow, or needs extents that are data.
pub fn define(
    func: &mut Func,
    ctx: &mut Context<'_>,
    op: &Op,
    inputs: &[Option<Buffer>],
    results: &[&TensorType],
) -> Result<Vec<Buffer>, NoKernel> {
    let mut b = Builder::new(func, ctx, op.name(), inputs, results);
    let strings = b.inputs().iter().any(|operand| operand.dtype == DType::String);
    if strings || results.iter().any(|result| result.dtype == DType::String) {
        return Err(b.no_kernel("it is not implemented on strings"));
    }
    let operands = define_op(&mut b, op)?;
    debug_assert_eq!(operands.len(), results.len(), "results of {}", op.name());
    for (operand, result) in operands.iter().zip(results) {
        debug_assert_eq!(operand.dtype, result.dtype, "element type of a result of {}", op.name());
    }
    Ok(operands.into_iter().map(|operand| operand.buffer).collect())
}

/// The definition of each operator.
#[expect(clippy::too_many_lines, reason = "a table of one line an operator")]
fn define_op(b: &mut Builder, op: &Op) -> Results {
    match op {
        Op::Identity => elementwise::identity(b),
        Op::Unary(op) => elementwise::unary(b, *op),
        Op::Activation(attrs) => elementwise::activation(b, attrs),
        Op::Clip => elementwise::clip(b),
        Op::Binary(op) => elementwise::binary(b, *op),
        Op::Where => elementwise::select(b),
        Op::Cast(attrs) => quant::cast(b, attrs),
        Op::QuantizeLinear(attrs) => quant::quantize(b, attrs),
        Op::DequantizeLinear(attrs) => quant::dequantize(b, attrs),
        Op::BitCast(to) => elementwise::bit_cast(b, *to),
        Op::Constant(tensor) => elementwise::constant(b, tensor),

        Op::MatMul(attrs) => matmul::matmul(b, attrs),
        Op::Gemm(attrs) => matmul::gemm(b, attrs),
        Op::MatMulInteger => matmul::matmul_integer(b),
        Op::Einsum(attrs) => matmul::einsum(b, attrs),
        Op::Conv(attrs) => conv::conv(b, attrs),
        Op::ConvInteger(attrs) => conv::conv_integer(b, attrs),
        Op::ConvTranspose(attrs) => conv::conv_transpose(b, attrs),
        Op::DeformConv(attrs) => conv::deform_conv(b, attrs),
        Op::CausalConv(attrs) => conv::causal_conv(b, attrs),

        Op::Pool(attrs) => pool::pool(b, attrs),
        Op::MaxPoolIndices(attrs) => pool::max_pool_indices(b, attrs),
        Op::MaxUnpool(_) => pool::max_unpool(b),
        Op::MaxUnpoolDynamic(attrs) => pool::max_unpool_dynamic(b, attrs),
        Op::Col2Im(attrs) => pool::col2im(b, attrs),

        Op::Reduce(attrs) => reduce::reduce(b, attrs),
        Op::ReduceDynamic(attrs) => reduce::reduce_dynamic(b, attrs),
        Op::ArgReduce(attrs) => reduce::arg_reduce(b, attrs),
        Op::Cumulative(attrs) => reduce::cumulative(b, attrs),

        Op::Softmax(attrs) => norm::softmax(b, attrs),
        Op::LayerNorm(attrs) => norm::layer_norm(b, attrs),
        Op::RmsNorm(attrs) => norm::rms_norm(b, attrs),
        Op::InstanceNorm(attrs) => norm::instance_norm(b, attrs),
        Op::GroupNorm(attrs) => norm::group_norm(b, attrs),
        Op::BatchNorm(attrs) => norm::batch_norm(b, attrs),
        Op::LpNorm(attrs) => norm::lp_norm(b, attrs),
        Op::Lrn(attrs) => norm::lrn(b, attrs),

        Op::Attention(attrs) => attention::attention(b, attrs),
        Op::LinearAttention(attrs) => attention::linear_attention(b, attrs),
        Op::RotaryEmbedding(attrs) => attention::rotary_embedding(b, attrs),
        Op::Lstm(attrs) => recurrent::lstm(b, attrs),
        Op::Gru(attrs) => recurrent::gru(b, attrs),
        Op::Rnn(attrs) => recurrent::rnn(b, attrs),

        Op::Resize(attrs) => resize::resize(b, attrs),
        Op::ResizeDynamic(attrs) => resize::resize_dynamic(b, attrs),
        Op::GridSample(attrs) => sample::grid_sample(b, attrs),
        Op::AffineGrid(attrs) => sample::affine_grid(b, attrs),
        Op::RoiAlign(attrs) => sample::roi_align(b, attrs),
        Op::MaxRoiPool(attrs) => sample::max_roi_pool(b, attrs),
        Op::Dft(attrs) => signal::dft(b, attrs),
        Op::Stft(attrs) => signal::stft(b, attrs),
        Op::MelWeightMatrix(to) => signal::mel_weight_matrix(b, *to),
        Op::Det => linalg::det(b),

        Op::Reshape(_) | Op::ReshapeDynamic(_) => movement::reshape(b),
        Op::Transpose(attrs) => movement::transpose(b, attrs),
        Op::Expand(_) | Op::ExpandDynamic => movement::expand(b),
        Op::Slice(attrs) => movement::slice(b, attrs),
        Op::SliceDynamic => movement::slice_dynamic(b),
        Op::Concat(attrs) => movement::concat(b, attrs),
        Op::Split(attrs) => movement::split(b, attrs.axis),
        Op::SplitDynamic(attrs) => movement::split(b, attrs.axis),
        Op::Pad(attrs) => movement::pad(b, attrs),
        Op::PadDynamic(attrs) => movement::pad_dynamic(b, attrs),
        Op::Tile(_) | Op::TileDynamic => movement::tile(b),
        Op::CenterCropPad(attrs) => movement::center_crop_pad(b, attrs),
        Op::Trilu(attrs) => movement::trilu(b, attrs),
        Op::ReverseSequence(attrs) => movement::reverse_sequence(b, attrs),

        Op::Gather(attrs) => gather_scatter::gather(b, attrs),
        Op::GatherElements(attrs) => gather_scatter::gather_elements(b, attrs),
        Op::GatherNd(attrs) => gather_scatter::gather_nd(b, attrs),
        Op::ScatterElements(attrs) => gather_scatter::scatter_elements(b, attrs),
        Op::ScatterNd(attrs) => gather_scatter::scatter_nd(b, attrs),
        Op::TensorScatter(attrs) => gather_scatter::tensor_scatter(b, attrs),
        Op::OneHot(attrs) => gather_scatter::one_hot(b, attrs),
        Op::TopK(attrs) => gather_scatter::top_k(b, attrs.axis, attrs.largest),

        Op::FromDims(attrs) => generate::from_dims(b, attrs),
        Op::Shape(attrs) => generate::shape(b, attrs),
        Op::Size => generate::size(b),
        Op::Full(_) => generate::full(b, 0),
        Op::FullDynamic => generate::full(b, 1),
        Op::Iota(_) => generate::iota(b, 0, 1),
        Op::RangeDynamic => generate::iota(b, 0, 2),
        Op::Eye(attrs) => generate::eye(b, attrs),

        Op::Compress(_) | Op::NonZero | Op::Unique(_) | Op::NonMaxSuppression(_) => {
            Err(b.no_kernel("the extents of its result depend on data, so it runs on the host"))
        }
        Op::Random(_) | Op::Multinomial(_) => Err(b.no_kernel("random numbers are drawn on the host")),
        Op::If(_) | Op::Loop(_) | Op::Scan(_) => Err(b.no_kernel("control flow is part of the plan")),
        Op::SequenceConstruct
        | Op::SequenceEmpty(_)
        | Op::SequenceAt
        | Op::SequenceInsert
        | Op::SequenceErase
        | Op::SequenceLength
        | Op::SplitToSequence(_)
        | Op::ConcatFromSequence(_)
        | Op::Optional(_)
        | Op::OptionalGet
        | Op::OptionalHas => Err(b.no_kernel("sequences and optionals are handled on the host")),
        Op::StringConcat
        | Op::StringSplit(_)
        | Op::StringNormalizer(_)
        | Op::RegexFullMatch(_)
        | Op::TfIdf(_) => Err(b.no_kernel("text is handled on the host")),
        Op::Extern(_) => Err(b.no_kernel("its implementation is not part of the compiler")),
    }
}
