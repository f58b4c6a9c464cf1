//! Elements that follow one another and are copied to all lanes become lanes of one vector that is loaded.
//!
//! A register tile whose steps are unrolled loads an element a row and step, and multiplies all lanes of the panel by it. Where a multiply-add
//! takes one lane of a vector for that, the elements of several steps are one load, and no instruction copies them. Loads of single elements
//! are joined that have the same index and consecutive offsets, with nothing between them that writes there.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};
use tilewright_dtype::DType;

use crate::flatten::FlattenOptions;
use crate::kernel::{Inst, Kernel, KernelOp, MemRef, Type, Value};

/// Joins the loads of a kernel, on a target that multiplies by lanes.
pub fn join_elements(kernel: &mut Kernel, options: &FlattenOptions) {
    let Some(bytes) = options.element_vector else { return };
    let mut others = FxHashSet::default();
    used_otherwise(&mut kernel.body, &mut others);
    let body = std::mem::take(&mut kernel.body);
    let mut pass = Join { kernel, bytes, others };
    let body = pass.list(body);
    kernel.body = body;
}

/// Notes the values that are operands of anything but copies to all lanes.
fn used_otherwise(insts: &mut [Inst], others: &mut FxHashSet<Value>) {
    for inst in insts {
        if !matches!(inst, Inst::Let { op: KernelOp::Splat(_), .. }) {
            inst.for_each_operand_mut(|operand| {
                others.insert(*operand);
            });
        }
        match inst {
            Inst::Loop { carried, body, .. } => {
                others.extend(carried.iter().map(|carried| carried.next));
                used_otherwise(body, others);
            }
            Inst::If { then_body, else_body, joins, .. } => {
                others.extend(joins.iter().flat_map(|join| [join.then_value, join.else_value]));
                used_otherwise(then_body, others);
                used_otherwise(else_body, others);
            }
            _ => {}
        }
    }
}

/// Where elements are: the memory, the index, their type.
type Place = (MemRef, Value, DType);

/// Elements by offset: the position of the load in its list, and what it defines.
type Elements = BTreeMap<i64, (usize, Value)>;

/// Elements that one load brings: that at the offset, and those behind it.
struct Vector {
    place: Place,
    offset: i64,
    elements: Vec<(usize, Value)>,
}

struct Join<'a> {
    kernel: &'a mut Kernel,
    /// Bytes of a vector.
    bytes: u32,
    /// Values that are operands of anything but copies to all lanes.
    others: FxHashSet<Value>,
}

impl Join<'_> {
    fn list(&mut self, mut insts: Vec<Inst>) -> Vec<Inst> {
        let mut open: FxHashMap<Place, Elements> = FxHashMap::default();
        let mut vectors = Vec::new();
        for (at, inst) in insts.iter_mut().enumerate() {
            match inst {
                Inst::Let { result, op } => self.note(at, *result, op, &mut open),
                // What is loaded behind it may be what it has written.
                Inst::Store { place, .. } | Inst::Scatter { place, .. } => {
                    let written = *place;
                    let closed = open.extract_if(|place, _| place.0 == written);
                    closed.for_each(|(place, elements)| self.join(place, &elements, &mut vectors));
                }
                Inst::Prefetch { .. } => {}
                Inst::Loop { body, .. } => {
                    self.close(&mut open, &mut vectors);
                    *body = self.list(std::mem::take(body));
                }
                Inst::If { then_body, else_body, .. } => {
                    self.close(&mut open, &mut vectors);
                    for body in [then_body, else_body] {
                        *body = self.list(std::mem::take(body));
                    }
                }
                Inst::Barrier | Inst::CopyAsync { .. } | Inst::CommitCopies | Inst::WaitCopies { .. } => {
                    self.close(&mut open, &mut vectors);
                }
            }
        }
        self.close(&mut open, &mut vectors);
        if vectors.is_empty() { insts } else { self.rewrite(insts, &vectors) }
    }

    /// Notes a load of one element that is only copied to all lanes.
    fn note(&self, at: usize, result: Value, op: &KernelOp, open: &mut FxHashMap<Place, Elements>) {
        let ty = self.kernel.values[result];
        if let KernelOp::Load { place, index, offset, mask: None } = *op
            && ty.lanes == 1
            && ty.dtype != DType::Bool
            && !self.others.contains(&result)
        {
            open.entry((place, index, ty.dtype)).or_default().entry(offset).or_insert((at, result));
        }
    }

    fn close(&self, open: &mut FxHashMap<Place, Elements>, vectors: &mut Vec<Vector>) {
        open.drain().for_each(|(place, elements)| self.join(place, &elements, vectors));
    }

    /// Makes vectors of elements, from the first on.
    fn join(&self, place: Place, elements: &Elements, vectors: &mut Vec<Vector>) {
        let lanes = self.bytes as usize / place.2.bytes().max(1);
        let mut run: Vec<(i64, (usize, Value))> = Vec::new();
        for (&offset, &element) in elements {
            if run.last().is_some_and(|(last, _)| last + 1 != offset) {
                run.clear();
            }
            run.push((offset, element));
            if run.len() == lanes && lanes > 1 {
                let elements = run.iter().map(|(_, element)| *element).collect();
                vectors.push(Vector { place, offset: run[0].0, elements });
                run.clear();
            }
        }
    }

    fn rewrite(&mut self, insts: Vec<Inst>, vectors: &[Vector]) -> Vec<Inst> {
        let mut begins: FxHashMap<usize, &Vector> = FxHashMap::default();
        let mut lane_of: FxHashMap<Value, (usize, u32)> = FxHashMap::default();
        for vector in vectors {
            let first = vector.elements.iter().map(|(at, _)| *at).min().unwrap_or_default();
            begins.insert(first, vector);
            lane_of.extend((0..).zip(&vector.elements).map(|(lane, (_, result))| (*result, (first, lane))));
        }
        let mut loaded: FxHashMap<usize, Value> = FxHashMap::default();
        let mut out = Vec::with_capacity(insts.len());
        for (at, inst) in insts.into_iter().enumerate() {
            if let Some(vector) = begins.get(&at) {
                let (place, index, dtype) = vector.place;
                let ty = Type::vector(dtype, vector.elements.len() as u32);
                let result = self.kernel.values.push(ty);
                let op = KernelOp::Load { place, index, offset: vector.offset, mask: None };
                out.push(Inst::Let { result, op });
                loaded.insert(at, result);
            }
            match inst {
                Inst::Let { result, .. } if lane_of.contains_key(&result) => {
                    let (first, lane) = lane_of[&result];
                    out.push(Inst::Let { result, op: KernelOp::Extract(loaded[&first], lane) });
                }
                other => out.push(other),
            }
        }
        out
    }
}
