//! What sessions do on a device alone: tensors of callers that lie there, and streams of callers.
#![allow(unsafe_code, reason = "takes addresses and streams of callers")]

use alloc::string::ToString;
use alloc::vec::Vec;
use core::ffi::c_void;

use super::{Outputs, Session, check_form, fail, host_view, lend_output};
use crate::device::DeviceError;
use crate::error::{ExecFault, InputError, RunError};
use crate::exec::{Frame, ModelDevice};
use crate::memory::AlignedBuf;
use crate::model::Program;
use crate::placed::{DeviceTensor, Output, OwnedDeviceTensor, Placed};
use crate::plan::TensorSpec;

impl Session {
    /// Works in the order of the caller's own stream from now on: what the caller has asked of it comes before the next run, and a run
    /// is over when it returns. For CUDA `raw` is a `CUstream`, or a `cudaStream_t` of CUDA's runtime library; null is the default
    /// stream, on which nothing can be recorded as graphs. It is not destroyed.
    ///
    /// # Errors
    /// [`DeviceError::Stream`] where the model runs on no device or its kind has no such streams; the session goes on as before.
    ///
    /// # Safety
    /// `raw` is a stream of the model's device (CUDA: of its primary context), and outlives the session's use of it: until it is
    /// dropped or given another stream. While a run lasts nobody asks for anything of the stream, or of the default stream where the two
    /// wait for one another.
    pub unsafe fn use_stream(&mut self, raw: *mut c_void) -> Result<(), RunError> {
        let Some(device) = self.program.device() else {
            return Err(DeviceError::Stream { device: "the processor".to_string() }.into());
        };
        // SAFETY: by the caller's word.
        let stream = unsafe { device.module.stream_of_caller(raw) }?;
        self.frame.set_stream(stream)?;
        Ok(())
    }

    /// Runs a model whose inputs and outputs are all tensors, in its order, each where it lies: on the host, or on the session's device,
    /// mixed freely.
    ///
    /// A tensor on the device costs a copy there, from or to the memory in which the plan has it, and none to the host. Three are copied
    /// by way of the host: inputs that code of the host reads (what extents and control flow come from), outputs that it writes,
    /// and outputs whose extents depend on data.
    ///
    /// All is done when this returns. The inputs must be there when it is called: what writes them is waited for by the caller, or was
    /// asked of the stream that the session works on ([`Session::use_stream`]).
    ///
    /// # Errors
    /// As [`Session::run_into`]; also for tensors on a device that the model does not have, that are not aligned to their elements, or
    /// that an output shares memory with. What outputs hold after an error is unspecified.
    ///
    /// # Safety
    /// Each [`DeviceTensor`] has its bytes at its address, in memory that the model's code on the device may read (CUDA: of its device's
    /// primary context; OpenCL: shared virtual memory of the same model), until this returns. Nobody else writes them meanwhile, or
    /// reads those of outputs.
    pub unsafe fn run_placed(
        &mut self,
        inputs: &[Placed<'_>],
        outputs: &mut [Output<'_>],
    ) -> Result<(), RunError> {
        self.check_outputs(inputs, outputs)?;
        let errors = self.too_many("inputs", inputs.len(), self.model.inputs().len());
        self.start(&|i| inputs.get(i).copied(), &[], errors)?;
        let program = self.program.clone();
        let made = self.lend_outputs(&program, outputs)?;
        self.finish(&mut ())?;
        self.deliver(&program, outputs, made)
    }

    /// Checks what of the outputs does not depend on the values of sizes.
    fn check_outputs(&self, inputs: &[Placed<'_>], outputs: &[Output<'_>]) -> Result<(), RunError> {
        let (in_specs, specs) = (self.model.inputs(), self.model.outputs());
        let mut errors = self.too_many("outputs", outputs.len(), specs.len());
        errors.extend(
            specs.iter().skip(outputs.len()).map(|spec| InputError::Missing { name: spec.name.clone() }),
        );
        let given = in_specs.iter().zip(inputs).filter_map(|(spec, input)| match input {
            Placed::Device(tensor) => Some((spec, *tensor)),
            Placed::Host(_) => None,
        });
        let mut on_device: Vec<(&TensorSpec, DeviceTensor<'_>)> = given.collect();
        let mut at_device: Vec<&TensorSpec> = on_device.iter().map(|(spec, _)| *spec).collect();
        for (spec, output) in specs.iter().zip(outputs) {
            match output {
                Output::Host(view) => check_form(spec, &host_view(view), &mut errors),
                Output::New(_) => at_device.push(spec),
                Output::Device(tensor) => {
                    at_device.push(spec);
                    check_form(spec, &Placed::Device(*tensor), &mut errors);
                    if let Some((other, _)) = on_device.iter().find(|(_, other)| other.overlaps(tensor)) {
                        let (name, other) = (spec.name.clone(), other.name.clone());
                        errors.push(InputError::Shared { name, other });
                    }
                    on_device.push((spec, *tensor));
                }
            }
        }
        if self.program.device().is_none() {
            errors.extend(at_device.iter().map(|spec| InputError::NoDevice { name: spec.name.clone() }));
        }
        fail(errors)
    }

    /// Gives an input on the device to the frame: it, or a copy on the host where the host needs it.
    pub(super) fn lend_from_device(
        program: &Program,
        frame: &mut Frame,
        copy: &mut AlignedBuf,
        index: usize,
        tensor: &DeviceTensor<'_>,
    ) -> Result<(), RunError> {
        let id = program.plan.inputs[index].buffer;
        let Some(device) = program.device() else { return Ok(()) };
        if !program.facts.touched_by_host[id.index()] {
            // SAFETY: by the word of the caller of `run_placed`.
            unsafe { frame.lend_away(id, tensor.address, tensor.bytes) };
            return Ok(());
        }
        copy.reset(tensor.bytes)?;
        // SAFETY: as above.
        unsafe { frame.fetch(device, tensor.address, copy) }?;
        // SAFETY: the copy is aligned, and the session's.
        unsafe { frame.lend(id, copy.as_mut_ptr(), tensor.bytes) };
        Ok(())
    }

    /// Lets the run write outputs where they are to go, as far as that is known before it; gives those that were allocated, by output.
    fn lend_outputs(
        &mut self,
        program: &Program,
        outputs: &mut [Output<'_>],
    ) -> Result<Vec<Option<OwnedDeviceTensor>>, RunError> {
        let mut errors = Vec::new();
        let mut made = Vec::with_capacity(outputs.len());
        for (spec, output) in program.plan.outputs.iter().zip(outputs) {
            let id = spec.buffer;
            if program.facts.late[id.index()] {
                made.push(None);
                continue;
            }
            let mut own = None;
            let needed = self.frame.spot(program, id).map(|spot| spot.bytes);
            let is_touched = program.facts.touched_by_host[id.index()];
            match output {
                Output::Host(view) => {
                    self.check_dims(spec, view.dims, &mut errors);
                    // SAFETY: `run_placed` has it until the run ends.
                    unsafe { lend_output(program, &mut self.frame, spec, view) };
                }
                Output::Device(tensor) => {
                    self.check_dims(spec, tensor.dims, &mut errors);
                    if !is_touched && needed == Ok(tensor.bytes) {
                        // SAFETY: by the word of the caller of `run_placed`.
                        unsafe { self.frame.lend_away(id, tensor.address, tensor.bytes) };
                    }
                }
                Output::New(_) => {
                    if let (false, Ok(bytes), Some(device)) = (is_touched, needed, program.device()) {
                        let tensor = self.output_on(device, spec, bytes)?;
                        // SAFETY: it is as large, and nobody else has it.
                        unsafe { self.frame.lend_away(id, tensor.address(), bytes) };
                        own = Some(tensor);
                    }
                }
            }
            made.push(own);
        }
        fail(errors)?;
        Ok(made)
    }

    /// Memory on the device for an output whose extents are known.
    fn output_on(
        &self,
        device: &ModelDevice,
        spec: &TensorSpec,
        room: usize,
    ) -> Result<OwnedDeviceTensor, RunError> {
        let fault = |fault: ExecFault| RunError::Plan { fault, nodes: spec.name.clone() };
        let dims = spec.dims.iter().map(|dim| self.frame.count(dim.size)).collect::<Result<Vec<_>, _>>();
        let dims = dims.map_err(fault)?;
        Ok(OwnedDeviceTensor::with_room(&device.module, spec.dtype, dims, room)?)
    }

    /// Brings outputs that the run has written elsewhere to where they are to go.
    fn deliver(
        &mut self,
        program: &Program,
        outputs: &mut [Output<'_>],
        made: Vec<Option<OwnedDeviceTensor>>,
    ) -> Result<(), RunError> {
        let mut made = made.into_iter();
        for (i, (spec, output)) in program.plan.outputs.iter().zip(outputs).enumerate() {
            let is_away = self.frame.is_away(spec.buffer);
            let own = made.next().flatten();
            let mut errors = Vec::new();
            match output {
                Output::Host(view) => {
                    self.check_dims(spec, view.dims, &mut errors);
                    self.copy_output(i, view);
                }
                Output::Device(tensor) => {
                    self.check_dims(spec, tensor.dims, &mut errors);
                    if !is_away && errors.is_empty() {
                        // SAFETY: by the word of the caller of `run_placed`.
                        unsafe { self.send_output(program, i, tensor) }?;
                    }
                }
                Output::New(to) => {
                    let tensor = match (own, program.device()) {
                        (Some(tensor), _) => tensor,
                        (None, None) => continue,
                        (None, Some(device)) => {
                            let tensor = self.output_on(device, spec, 0)?;
                            // SAFETY: nobody else has its memory.
                            unsafe { self.send_output(program, i, &tensor.view()) }?;
                            tensor
                        }
                    };
                    **to = Some(tensor);
                }
            }
            fail(errors)?;
        }
        Ok(())
    }

    /// Copies an output from the host to the device.
    ///
    /// # Safety
    /// The tensor is there, and as large as the output.
    unsafe fn send_output(
        &mut self,
        program: &Program,
        index: usize,
        to: &DeviceTensor<'_>,
    ) -> Result<(), RunError> {
        let Some(device) = program.device() else { return Ok(()) };
        let bytes = Outputs { session: self }.view(index).bytes;
        if bytes.len() != to.bytes {
            let spec = &program.plan.outputs[index];
            let (fault, nodes) = (ExecFault::Shape(spec.buffer), spec.name.clone());
            return Err(RunError::Plan { fault, nodes });
        }
        // SAFETY: the bytes are the session's, which nothing writes before the stream has been waited for.
        let bytes = unsafe { core::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) };
        // SAFETY: by the caller's word.
        unsafe { self.frame.send(device, bytes, to.address) }?;
        Ok(())
    }
}
