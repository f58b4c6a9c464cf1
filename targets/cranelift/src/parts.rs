//! Lanes of values taken apart, put together, and worked on part by part.

use cranelift_codegen::ir::{self, ConstantData, InstBuilder, types};
use cranelift_frontend::FunctionBuilder;

use crate::function::Function;
use crate::lanes::{Lanes, per_vector, vector_of};

impl Function<'_, '_> {
    /// Lanes of a vector register; more than any value has where the machine has none.
    pub(crate) fn per_vector(&self, lane: ir::Type) -> u32 {
        if self.target.has_vectors() { per_vector(lane) } else { u32::MAX }
    }

    /// Whether vectors of both lane types split a value of so many lanes without a rest.
    pub(crate) fn fills_vectors(&self, n: u32, a: ir::Type, b: ir::Type) -> bool {
        n.is_multiple_of(self.per_vector(a)) && n.is_multiple_of(self.per_vector(b))
    }

    /// Types of the parts of a value in block parameters; masks have lanes of `I8` there.
    pub(crate) fn part_types(&self, lane: ir::Type, n: u32) -> Vec<ir::Type> {
        let n_vectors = n / self.per_vector(lane);
        let n_scalars = n % self.per_vector(lane);
        let vectors = std::iter::repeat_n(vector_of(lane), n_vectors as usize);
        vectors.chain(std::iter::repeat_n(lane, n_scalars as usize)).collect()
    }

    /// One lane as a scalar; 0 or 1 in an `I8` for a mask.
    pub(crate) fn lane(&mut self, value: &Lanes, i: u32) -> ir::Value {
        let per_vector = self.per_vector(value.lane);
        let in_vectors = value.n_vectors() as u32 * per_vector;
        if i >= in_vectors {
            return value.parts[value.n_vectors() + (i - in_vectors) as usize];
        }
        let part = value.parts[(i / per_vector) as usize];
        let lane = self.builder.ins().extractlane(part, (i % per_vector) as u8);
        if !value.mask {
            return lane;
        }
        let byte = if value.lane == types::I8 { lane } else { self.builder.ins().ireduce(types::I8, lane) };
        self.builder.ins().band_imm_s(byte, 1)
    }

    /// Every lane as a scalar.
    pub(crate) fn scalars(&mut self, value: &Lanes) -> Vec<ir::Value> {
        (0..value.n).map(|i| self.lane(value, i)).collect()
    }

    /// A value from scalars, one a lane (0 or 1 in an `I8` for a mask).
    pub(crate) fn assemble(&mut self, lane: ir::Type, mask: bool, scalars: &[ir::Value]) -> Lanes {
        let n = scalars.len() as u32;
        let chunks = scalars.chunks_exact(self.per_vector(lane) as usize);
        let rest = chunks.remainder().to_vec();
        let mut parts = Vec::new();
        for chunk in chunks {
            let first = self.vector_lane(lane, mask, chunk[0]);
            let mut vector = self.builder.ins().splat(vector_of(lane), first);
            for (i, scalar) in chunk.iter().enumerate().skip(1) {
                if *scalar != chunk[0] {
                    let scalar = self.vector_lane(lane, mask, *scalar);
                    vector = self.builder.ins().insertlane(vector, scalar, i as u8);
                }
            }
            parts.push(vector);
        }
        parts.extend(rest);
        Lanes { lane, n, mask, parts }
    }

    /// What a scalar is inside a vector: itself, or all ones for true in a mask.
    fn vector_lane(&mut self, lane: ir::Type, mask: bool, scalar: ir::Value) -> ir::Value {
        if !mask {
            return scalar;
        }
        let wide = if lane == types::I8 { scalar } else { self.builder.ins().uextend(lane, scalar) };
        self.builder.ins().ineg(wide)
    }

    /// The scalar in every lane.
    pub(crate) fn splat(&mut self, lane: ir::Type, mask: bool, n: u32, scalar: ir::Value) -> Lanes {
        let n_vectors = (n / self.per_vector(lane)) as usize;
        let n_scalars = (n % self.per_vector(lane)) as usize;
        let mut parts = Vec::new();
        if n_vectors > 0 {
            let inside = self.vector_lane(lane, mask, scalar);
            let vector = self.builder.ins().splat(vector_of(lane), inside);
            parts.extend(std::iter::repeat_n(vector, n_vectors));
        }
        parts.extend(std::iter::repeat_n(scalar, n_scalars));
        Lanes { lane, n, mask, parts }
    }

    /// A constant a lane, given as bit patterns; for a mask 0 or 1.
    pub(crate) fn constants(&mut self, lane: ir::Type, mask: bool, lanes: &[u64]) -> Lanes {
        let bytes = lane.bytes() as usize;
        let chunks = lanes.chunks_exact(self.per_vector(lane) as usize);
        let rest = chunks.remainder().to_vec();
        let mut parts = Vec::new();
        for chunk in chunks {
            let inside = |value: &u64| if mask { value.wrapping_neg() } else { *value };
            let data: Vec<u8> =
                chunk.iter().flat_map(|value| inside(value).to_le_bytes().into_iter().take(bytes)).collect();
            let constant = self.builder.func.dfg.constants.insert(ConstantData::from(&data[..]));
            parts.push(self.builder.ins().vconst(vector_of(lane), constant));
        }
        for value in rest {
            parts.push(self.scalar_constant(if mask { types::I8 } else { lane }, value));
        }
        Lanes { lane, n: lanes.len() as u32, mask, parts }
    }

    /// A constant in every lane.
    pub(crate) fn constant_splat(&mut self, like: &Lanes, bits: u64) -> Lanes {
        self.constants(like.lane, like.mask, &vec![bits; like.n as usize])
    }

    /// A scalar constant from its bits.
    pub(crate) fn scalar_constant(&mut self, lane: ir::Type, bits: u64) -> ir::Value {
        if lane == types::F32 {
            self.builder.ins().f32const(f32::from_bits(bits as u32))
        } else if lane == types::F64 {
            self.builder.ins().f64const(f64::from_bits(bits))
        } else {
            let spare = 64 - lane.bits();
            self.builder.ins().iconst(lane, ((bits << spare) >> spare) as i64)
        }
    }

    /// Applies an instruction to each part: one that Cranelift has for vectors and scalars alike.
    pub(crate) fn map(
        &mut self,
        a: &Lanes,
        mut instruction: impl FnMut(&mut FunctionBuilder<'_>, ir::Value) -> ir::Value,
    ) -> Lanes {
        let parts = a.parts.iter().map(|x| instruction(&mut self.builder, *x)).collect();
        Lanes { parts, ..a.clone() }
    }

    /// Applies an instruction to each pair of parts.
    pub(crate) fn map2(
        &mut self,
        a: &Lanes,
        b: &Lanes,
        mut instruction: impl FnMut(&mut FunctionBuilder<'_>, ir::Value, ir::Value) -> ir::Value,
    ) -> Lanes {
        let parts =
            a.parts.iter().zip(&b.parts).map(|(x, y)| instruction(&mut self.builder, *x, *y)).collect();
        Lanes { parts, ..a.clone() }
    }

    /// Applies scalar code to each lane.
    pub(crate) fn each(
        &mut self,
        a: &Lanes,
        to: ir::Type,
        mut code: impl FnMut(&mut FunctionBuilder<'_>, ir::Value) -> ir::Value,
    ) -> Lanes {
        let scalars = self.scalars(a);
        let results: Vec<_> = scalars.into_iter().map(|x| code(&mut self.builder, x)).collect();
        self.assemble(to, false, &results)
    }

    /// Applies scalar code to each pair of lanes.
    pub(crate) fn each2(
        &mut self,
        a: &Lanes,
        b: &Lanes,
        mut code: impl FnMut(&mut FunctionBuilder<'_>, ir::Value, ir::Value) -> ir::Value,
    ) -> Lanes {
        let (xs, ys) = (self.scalars(a), self.scalars(b));
        let results: Vec<_> = xs.into_iter().zip(ys).map(|(x, y)| code(&mut self.builder, x, y)).collect();
        self.assemble(a.lane, a.mask, &results)
    }
}
