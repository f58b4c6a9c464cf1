//! Inputs and outputs of models, as C programs see them.
#![allow(unsafe_code, reason = "structs of C")]
#![allow(non_camel_case_types, reason = "the names of C")]

use std::ffi::{CString, c_char};

use tilewright_dtype::DType;
use tilewright_run::{Extent, Spec};
use tilewright_runtime::dlpack::DLDataType;
use tilewright_runtime::plan::{Nesting, Plan, SizeBounds, TensorSpec};

use crate::failure::c_text;

/// `tw_extent`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct tw_extent {
    extent: i64,
    name: *const c_char,
    least: i64,
    most: i64,
    step: i64,
}

/// `tw_spec`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct tw_spec {
    size: usize,
    name: *const c_char,
    ty: *const c_char,
    extents: *const tw_extent,
    kind: i32,
    rank: i32,
    dtype: DLDataType,
}

/// An input or output with the texts that its struct of C points to.
pub(crate) struct KeptSpec {
    name: CString,
    ty: CString,
    /// The names of open extents are in `names`.
    extents: Vec<tw_extent>,
    _names: Vec<CString>,
    kind: i32,
    rank: i32,
    dtype: DLDataType,
}

// SAFETY: the pointers are into what the struct owns and never changes.
unsafe impl Send for KeptSpec {}
// SAFETY: likewise.
unsafe impl Sync for KeptSpec {}

impl KeptSpec {
    /// The struct of C, whose pointers hold while this lives.
    pub(crate) fn spec(&self) -> tw_spec {
        tw_spec {
            size: size_of::<tw_spec>(),
            name: self.name.as_ptr(),
            ty: self.ty.as_ptr(),
            extents: self.extents.as_ptr(),
            kind: self.kind,
            rank: self.rank,
            dtype: self.dtype,
        }
    }

    fn new(spec: &Spec, tensors: &[TensorSpec], plan: &Plan) -> KeptSpec {
        let tensor = tensors.iter().find(|tensor| tensor.name == spec.name);
        let bounds = |axis: usize| -> Option<&SizeBounds> {
            let size = tensor?.dims.get(axis)?.size;
            plan.bounds.iter().find(|bounds| bounds.size == size)
        };
        let dims = spec.dims.as_deref().unwrap_or_default();
        let name = |extent: &Extent| match extent {
            Extent::Fixed(_) => CString::default(),
            Extent::Open(name) => c_text(name),
        };
        let names: Vec<CString> = dims.iter().map(name).collect();
        let extent = |(axis, (dim, name)): (usize, (&Extent, &CString))| {
            let name = name.as_ptr();
            let (extent, least, most, step) = match (dim, bounds(axis)) {
                (&Extent::Fixed(extent), _) => (extent, extent, extent, 1),
                (Extent::Open(_), Some(bounds)) => (-1, bounds.min, bounds.max.unwrap_or(-1), bounds.step),
                (Extent::Open(_), None) => (-1, 0, -1, 1),
            };
            tw_extent { extent, name, least, most, step }
        };
        let extents: Vec<tw_extent> = dims.iter().zip(&names).enumerate().map(extent).collect();
        let rank = spec.dims.as_ref().map_or(-1, |dims| i32::try_from(dims.len()).unwrap_or(-1));
        let kind = match (spec.nesting.first(), spec.dtype) {
            (Some(Nesting::Sequence), _) => 2,
            (Some(Nesting::Optional), _) => 3,
            (None, DType::String) => 1,
            (None, _) => 0,
        };
        let dtype = DLDataType::of(spec.dtype).unwrap_or(DLDataType { code: 0, bits: 0, lanes: 0 });
        KeptSpec {
            name: c_text(&spec.name),
            ty: c_text(&spec.ty()),
            extents,
            _names: names,
            kind,
            rank,
            dtype,
        }
    }
}

/// The inputs and outputs of a model.
pub(crate) fn of_model(model: &tilewright_run::Model) -> (Vec<KeptSpec>, Vec<KeptSpec>) {
    let plan = model.inner().plan();
    let kept = |specs: &[Spec], tensors: &[TensorSpec]| -> Vec<KeptSpec> {
        specs.iter().map(|spec| KeptSpec::new(spec, tensors, plan)).collect()
    };
    (kept(model.inputs(), &plan.inputs), kept(model.outputs(), &plan.outputs))
}
