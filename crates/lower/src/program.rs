//! From the fused graph to a program: functions, each once, and the steps that call them.
//!
//! A [`Program`] is still about graph values; where they live and which code runs is decided by [`crate::plan`].

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use tilewright_digest::Digest;
use tilewright_graph::dim::Dim;
use tilewright_graph::op::AttrVisitor;
use tilewright_graph::passes::fuse::{FusionPlan, Group, fuse};
use tilewright_graph::passes::layouts::layouts;
use tilewright_graph::{
    Graph, Layout, Layouts, NodeId, Op, Provenance, RegionId, Tensor, TensorType, ValueId,
};
use tilewright_host::HostOp;
use tilewright_runtime::plan::Space;
use tilewright_te::schedule::Piece;
use tilewright_te::{Buffer, Computation, Expr, Func, Variant};

use crate::dims::DimMap;
use crate::error::{Gap, LowerError};
use crate::host::{host_op, is_host_value};
use crate::ops::{self, Algorithm, Prepared};
use crate::parts::{self, Part, Parts};
use crate::placement::{self, Placement};
use crate::tables::take_tables;
use crate::work::Work;

/// Functions and the steps that call them, region by region.
#[derive(Debug, Default)]
pub struct Program {
    /// Structurally different functions, in order of first use.
    pub funcs: Vec<LoweredFunc>,
    /// The steps of each live region.
    pub regions: BTreeMap<RegionId, Vec<Step>>,
    /// How values are laid out that are not row-major.
    pub layouts: Layouts,
    /// Values that lie in others.
    pub parts: FxHashMap<ValueId, Part>,
    /// Whose memory the results of functions and of control flow are in; those that are not there are on the host.
    pub spaces: FxHashMap<ValueId, Space>,
}

/// A function of the program.
#[derive(Debug)]
pub struct LoweredFunc {
    /// Unscheduled; parameters are the group's inputs, the tables, then its outputs.
    pub computation: Computation,
    /// What the inputs after the group's own are in every call.
    pub tables: Vec<Tensor>,
    /// Who runs it.
    pub space: Space,
}

/// One step of a region.
#[derive(Debug)]
pub enum Step {
    /// Calls a function.
    Call {
        /// Index into [`Program::funcs`].
        func: usize,
        /// The node that decides how it is computed.
        anchor: NodeId,
        /// Values of the function's inputs.
        inputs: Vec<ValueId>,
        /// Values of the function's outputs.
        outputs: Vec<ValueId>,
        /// What the function's size variables stand for.
        sizes: Vec<Dim>,
        /// The nodes computed.
        provenance: Provenance,
        /// What they amount to.
        work: Work,
    },
    /// `output` is `input` with another shape: no code.
    View {
        /// The value viewed.
        input: ValueId,
        /// The view.
        output: ValueId,
        /// The node.
        provenance: Provenance,
    },
    /// A concatenation, slice or split whose values lie in one another ([`Program::parts`]).
    Part {
        /// The results.
        outputs: Vec<ValueId>,
        /// Operands that must be copied to where they belong.
        copies: Vec<(ValueId, Part)>,
        /// The node.
        provenance: Provenance,
    },
    /// `output` holds extents known to the plan: the runtime writes them.
    Extents {
        /// An integer tensor.
        output: ValueId,
        /// The node.
        provenance: Provenance,
    },
    /// A node that a host operator runs.
    Host {
        /// The node.
        node: NodeId,
        /// The operator.
        op: HostOp,
        /// What it amounts to.
        work: Work,
    },
    /// A node the plan itself must express: control flow.
    Control {
        /// The node.
        node: NodeId,
    },
}

/// What lowering may choose.
#[derive(Clone, Copy, Debug, Default)]
pub struct LowerOptions {
    /// The vector width in f32 elements for channel-blocked activations; without it every value is row-major.
    pub block_lanes: Option<i64>,
    /// Whether functions come with variants by algorithms that round otherwise than the operators' definitions.
    pub variants: bool,
    /// Whether values may lie in others, so that concatenations and slices need no copies.
    pub parts: bool,
    /// Whether there is a device beside the host, which runs what is not small and for the host alone.
    pub device: bool,
}

/// Lowers a graph whose fused groups become functions.
///
/// # Errors
/// Every node without a lowering, all at once.
pub fn lower(graph: &Graph, options: LowerOptions) -> Result<Program, LowerError> {
    let mut lowering = Lowering {
        graph,
        options,
        program: Program::default(),
        known: FxHashMap::default(),
        apart: FxHashMap::default(),
        placement: None,
        gaps: Vec::new(),
        defect: None,
    };
    let plans: Vec<(RegionId, FusionPlan)> =
        graph.live_regions().into_iter().map(|region| (region, fuse(graph, region))).collect();
    if options.device {
        let placement = placement::place(graph, plans.iter().map(|(region, plan)| (*region, plan)));
        lowering.program.spaces.clone_from(&placement.values);
        lowering.placement = Some(placement);
    }
    for (region, plan) in &plans {
        let steps = lowering.region(*region, plan);
        lowering.program.regions.insert(*region, steps);
    }
    match lowering.defect {
        Some(defect) => Err(LowerError::Internal(defect)),
        None if lowering.gaps.is_empty() => Ok(lowering.program),
        None => Err(LowerError::Unsupported(lowering.gaps)),
    }
}

/// A group's function and what it is called with.
struct Function {
    func: Func,
    /// Values of its inputs.
    inputs: Vec<ValueId>,
    /// What its size variables stand for.
    sizes: Vec<Dim>,
    /// What it wants in place of some inputs.
    prepared: Vec<Prepared>,
}

struct Lowering<'a> {
    graph: &'a Graph,
    options: LowerOptions,
    program: Program,
    /// Functions by structure, tables, and who runs them.
    known: FxHashMap<(Digest, Vec<Tensor>, Space), usize>,
    /// Nodes that need no function, with what they copy.
    apart: FxHashMap<NodeId, Vec<(ValueId, Part)>>,
    /// Where steps run, if there is a device.
    placement: Option<Placement>,
    gaps: Vec<Gap>,
    /// The first thing that contradicts what the passes promise.
    defect: Option<String>,
}

impl Lowering<'_> {
    fn region(&mut self, region: RegionId, plan: &FusionPlan) -> Vec<Step> {
        if let Some(lanes) = self.options.block_lanes {
            self.program.layouts.extend(layouts(self.graph, region, plan, lanes));
        }
        // What loops and branches hold moves between runs of their regions.
        if self.options.parts && region == self.graph.main() {
            let placement = self.placement.as_ref();
            let may_join = |value| placement.is_none_or(|placement| placement.holds(value));
            let Parts { places, nodes } =
                parts::choose(self.graph, region, &plan.groups, &self.program.layouts, &may_join);
            self.program.parts.extend(places);
            self.apart.extend(nodes);
        }
        let mut steps = Vec::new();
        for group in &plan.groups {
            match self.group(group) {
                Ok(step) => steps.extend(step),
                Err(LowerError::Unsupported(gaps)) => self.gaps.extend(gaps),
                Err(LowerError::Internal(defect)) => _ = self.defect.get_or_insert(defect),
            }
        }
        steps
    }

    /// Who runs a group.
    fn space(&self, group: &Group) -> Space {
        self.placement.as_ref().map_or(Space::Host, |placement| placement.of(group))
    }

    fn group(&mut self, group: &Group) -> Result<Option<Step>, LowerError> {
        let node = self.graph.node(group.anchor);
        let provenance = Provenance::merge(group.nodes.iter().map(|&n| &self.graph.node(n).provenance));
        if let [only] = group.nodes[..] {
            let node = self.graph.node(only);
            if let Some(copies) = self.apart.remove(&only) {
                return Ok(Some(Step::Part { outputs: node.outputs.clone(), copies, provenance }));
            }
            match &node.op {
                Op::If(_) | Op::Loop(_) | Op::Scan(_) => return Ok(Some(Step::Control { node: only })),
                // Extents that only the device needs it writes itself: kernels have them as arguments.
                Op::FromDims(_) if self.space(group) == Space::Device => {}
                Op::FromDims(_) | Op::Shape(_) | Op::Size => {
                    let Some(output) = node.output() else { return Ok(None) };
                    return Ok(Some(Step::Extents { output, provenance }));
                }
                Op::Reshape(_) | Op::Identity => {
                    let is_view = |input, output| match (
                        is_host_value(self.graph, input),
                        is_host_value(self.graph, output),
                    ) {
                        (false, false) => true,
                        (true, true) => matches!(node.op, Op::Identity),
                        (false, true) | (true, false) => false,
                    };
                    if let (Some(input), Some(output)) = (node.input(0), node.output())
                        && is_view(input, output)
                    {
                        return Ok(Some(Step::View { input, output, provenance }));
                    }
                }
                _ => {}
            }
            if let Some(op) = host_op(self.graph, only).map_err(|reason| self.gap(only, reason))? {
                let is_blocked = |value: &ValueId| self.program.layouts.contains_key(value);
                if node.inputs.iter().flatten().any(is_blocked) {
                    let defect = format!("{} on the host reads a value in blocks", node.op.name());
                    return Err(LowerError::Internal(defect));
                }
                let work = Work::of(self.graph, only, &group.nodes, &group.inputs, &group.outputs);
                return Ok(Some(Step::Host { node: only, op, work }));
            }
        }
        // It is there for the extents of its results alone, which the plan computes of operands.
        if group.outputs.is_empty() {
            return Ok(None);
        }
        let Function { mut func, inputs, sizes, .. } = self.function(group, Algorithm::Direct)?;
        let tables = take_tables(&mut func).map_err(LowerError::Internal)?;
        let constant_inputs: Vec<bool> = inputs.iter().map(|&v| self.graph.constant(v).is_some()).collect();
        let layout = |v: &ValueId| self.program.layouts.get(v).map(pieces_of);
        let row_major = tables.iter().map(|_| None);
        let layouts: Vec<Option<Vec<Piece>>> =
            inputs.iter().map(layout).chain(row_major).chain(group.outputs.iter().map(layout)).collect();
        let computation = Computation { func, variants: Vec::new(), constant_inputs, layouts };
        let definition = Digest::of("definition", |writer| computation.write_definition(writer));
        let space = self.space(group);
        let key = (definition, tables.clone(), space);
        let index = match self.known.get(&key) {
            Some(&index) => index,
            None => {
                let index = self.program.funcs.len();
                let mut computation = computation;
                computation.func.name = format!("f{index}_{}", snake_case(node.op.name()));
                let mut variants = self.variants(group, &computation.func, &tables);
                variants.iter_mut().for_each(|variant| variant.func.name.clone_from(&computation.func.name));
                computation.variants = variants;
                self.program.funcs.push(LoweredFunc { computation, tables, space });
                self.known.insert(key, index);
                index
            }
        };
        let outputs = group.outputs.clone();
        let work = Work::of(self.graph, group.anchor, &group.nodes, &group.inputs, &outputs);
        Ok(Some(Step::Call { func: index, anchor: group.anchor, inputs, outputs, sizes, provenance, work }))
    }

    /// The function of a group by the other algorithms that there are for its operators.
    fn variants(&self, group: &Group, direct: &Func, tables: &[Tensor]) -> Vec<Variant> {
        let mut variants: Vec<Variant> = Vec::new();
        for &node in &group.nodes {
            let node = self.graph.node(node);
            let types: Vec<Option<&TensorType>> =
                node.inputs.iter().map(|v| self.tensor_type((*v)?)).collect();
            let allowed = |algorithm: &Algorithm| self.options.variants || algorithm.is_exact();
            for algorithm in Algorithm::alternatives(&node.op, &types).into_iter().filter(allowed) {
                // What cannot be computed so is computed as defined.
                variants.extend(self.variant(group, algorithm, direct, tables));
            }
        }
        variants
    }

    /// The function of a group by an algorithm; nothing where that wants another form of what is no constant.
    fn variant(
        &self,
        group: &Group,
        algorithm: Algorithm,
        direct: &Func,
        tables: &[Tensor],
    ) -> Option<Variant> {
        let Function { mut func, inputs, prepared, .. } = self.function(group, algorithm).ok()?;
        let same_tables = take_tables(&mut func).ok()? == tables;
        let same_parameters = (func.n_inputs, func.params.len()) == (direct.n_inputs, direct.params.len());
        if !same_tables || !same_parameters {
            return None;
        }
        let mut prepare: Vec<Option<Func>> = vec![None; func.n_inputs];
        for Prepared { input, prepared, func: made_by } in prepared {
            let at = func.params[..func.n_inputs].iter().position(|&p| p == input)?;
            let is_constant = self.graph.constant(*inputs.get(at)?).is_some();
            if !is_constant {
                return None;
            }
            func.params[at] = prepared;
            prepare[at] = Some(made_by);
        }
        Some(Variant { algorithm: algorithm.to_string(), func, prepare })
    }

    /// The function of a group, its operators computed by an algorithm where it is one for them.
    fn function(&self, group: &Group, algorithm: Algorithm) -> Result<Function, LowerError> {
        let graph = self.graph;
        let mut func = Func::new("f");
        let mut dims = self.dims_of(group);
        let mut buffers: FxHashMap<ValueId, Buffer> = FxHashMap::default();
        let mut inputs = Vec::new();
        let mut all_prepared = Vec::new();
        for &value in &group.inputs {
            let ty =
                self.tensor_type(value).ok_or_else(|| self.gap(group.anchor, "an operand is no tensor"))?;
            let unranked = || self.gap(group.anchor, "an operand's rank is not known at compile time");
            let shape = self.extents(&mut func, &mut dims, ty).ok_or_else(unranked)?;
            let splat = graph.constant(value).and_then(Tensor::as_splat);
            let buffer = match splat {
                // A constant of one value needs no memory.
                Some(number) if !ty.dtype.is_integer() || number.abs() < 9e15 => {
                    let dtype = ty.dtype;
                    let constant = if dtype.is_float() {
                        Expr::float_of(dtype, number)
                    } else {
                        Expr::int_of(dtype, number as i64)
                    };
                    func.compute("constant", dtype, shape, |_, _| constant)
                }
                _ => {
                    let buffer = func.add_input(&format!("in{}", inputs.len()), ty.dtype, shape);
                    inputs.push(value);
                    buffer
                }
            };
            buffers.insert(value, buffer);
        }
        for &id in &group.nodes {
            let node = graph.node(id);
            let operands: Vec<Option<Buffer>> =
                node.inputs.iter().map(|v| v.and_then(|v| buffers.get(&v).copied())).collect();
            let output_types: Vec<&TensorType> =
                node.outputs.iter().filter_map(|&v| self.tensor_type(v)).collect();
            if output_types.len() != node.outputs.len() {
                return Err(self.gap(id, "a result is no tensor"));
            }
            let mut context = ops::Context { algorithm, ..ops::Context::new(&graph.symbols, &mut dims) };
            let results = ops::define(&mut func, &mut context, &node.op, &operands, &output_types)
                .map_err(|e| self.gap(id, e.reason))?;
            all_prepared.append(&mut context.prepared);
            buffers.extend(node.outputs.iter().copied().zip(results));
        }
        for &value in &group.outputs {
            let Some(&buffer) = buffers.get(&value) else {
                return Err(LowerError::Internal(format!("{value} has no definition in its group")));
            };
            let taken = func.params.contains(&buffer);
            let output = if taken {
                // The result is an operand or another result: the copy is what makes it a value of its own.
                let data = func.buffers[buffer].clone();
                func.compute("copy", data.dtype, data.shape, |f, i| f.load(buffer, i.to_vec()))
            } else {
                buffer
            };
            func.promote_to_output(output);
        }
        Ok(Function { func, inputs, sizes: dims.sizes().to_vec(), prepared: all_prepared })
    }

    fn tensor_type(&self, value: ValueId) -> Option<&TensorType> {
        self.graph.tensor_type(value)
    }

    /// Which extents are size variables of the function of a group.
    fn dims_of(&self, group: &Group) -> DimMap {
        let results = group.nodes.iter().flat_map(|&node| &self.graph.node(node).outputs);
        let types = results.chain(&group.inputs).filter_map(|&value| self.tensor_type(value));
        let mut of_attributes = Extents::default();
        for &node in &group.nodes {
            self.graph.node(node).op.clone().visit(&mut of_attributes);
        }
        DimMap::of(types.filter_map(|ty| ty.shape.dims()).flatten().chain(&of_attributes.0))
    }

    fn extents(&self, func: &mut Func, dims: &mut DimMap, ty: &TensorType) -> Option<Vec<Expr>> {
        let extents = ty.shape.dims()?;
        Some(extents.iter().map(|d| dims.expr(func, &self.graph.symbols, d)).collect())
    }

    fn gap(&self, node: NodeId, reason: impl Into<String>) -> LowerError {
        LowerError::Unsupported(vec![Gap::of_node(self.graph, node, reason)])
    }
}

/// The extents among attributes.
#[derive(Default)]
struct Extents(Vec<Dim>);

impl AttrVisitor for Extents {
    fn dim(&mut self, dim: &mut Dim) {
        self.0.push(dim.clone());
    }
}

/// A layout as schedules take it.
fn pieces_of(layout: &Layout) -> Vec<Piece> {
    layout.pieces.iter().map(|piece| Piece { dim: piece.dim, factor: piece.factor }).collect()
}

/// `LayerNorm` as `layer_norm`.
fn snake_case(name: &str) -> String {
    let mut out = String::new();
    for (i, c) in name.chars().enumerate() {
        if c.is_ascii_uppercase() && i > 0 {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}
