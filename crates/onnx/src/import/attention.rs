//! Attention and rotary embeddings.

use tilewright_graph::ValueId;
use tilewright_graph::op::{
    AttentionAttrs, LinearAttentionAttrs, LinearAttentionRule, Op, Real, RotaryAttrs,
};

use super::cx::{Cx, size};
use super::error::{Reason, Result};

pub(super) fn attention(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let window = |name: &str| -> Result<Option<usize>> {
        let value = if cx.opset >= 25 { cx.attrs.int(name, -1)? } else { -1 };
        if value == -1 { Ok(None) } else { size(name, value).map(Some) }
    };
    let (left_window, right_window) = (window("left_window_size")?, window("right_window_size")?);
    let qk_output = cx.size_attr("qk_matmul_output_mode", 0)?;
    if qk_output > 3 {
        return Err(Reason::malformed(format!("`qk_matmul_output_mode` is {qk_output}")));
    }
    let attrs = AttentionAttrs {
        q_num_heads: cx.size_attr("q_num_heads", 0)?,
        kv_num_heads: cx.size_attr("kv_num_heads", 0)?,
        scale: cx.attrs.opt_float("scale")?.map(Real),
        causal: cx.attrs.flag("is_causal", false)?,
        softcap: Real(cx.attrs.float("softcap", 0.0)?),
        left_window,
        right_window,
        qk_output,
        softmax_precision: cx.dtype_attr("softmax_precision")?,
        unseen_is_nan: false,
    };
    let (inputs, n_outputs) = (cx.inputs.clone(), cx.n_outputs().max(1));
    cx.emit_n(Op::Attention(attrs), inputs, n_outputs)
}

pub(super) fn linear_attention(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    // The size of chunks is a matter of schedules.
    cx.attrs.accept("chunk_size");
    let rules = [
        ("linear", LinearAttentionRule::Linear),
        ("gated", LinearAttentionRule::Gated),
        ("delta", LinearAttentionRule::Delta),
        ("gated_delta", LinearAttentionRule::GatedDelta),
    ];
    let attrs = LinearAttentionAttrs {
        q_num_heads: size("q_num_heads", cx.required_int("q_num_heads")?)?,
        kv_num_heads: size("kv_num_heads", cx.required_int("kv_num_heads")?)?,
        scale: Some(cx.attrs.float("scale", 0.0)?).filter(|&scale| scale != 0.0).map(Real),
        rule: cx.keyword("update_rule", "gated_delta", &rules)?,
    };
    let (inputs, n_outputs) = (cx.inputs.clone(), cx.n_outputs().max(1));
    cx.emit_n(Op::LinearAttention(attrs), inputs, n_outputs)
}

pub(super) fn rotary_embedding(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let attrs = RotaryAttrs {
        num_heads: cx.size_attr("num_heads", 0)?,
        dim: cx.size_attr("rotary_embedding_dim", 0)?,
        interleaved: cx.attrs.flag("interleaved", false)?,
    };
    let inputs = cx.inputs.clone();
    Ok(vec![cx.emit_opt(Op::RotaryEmbedding(attrs), inputs)?])
}
