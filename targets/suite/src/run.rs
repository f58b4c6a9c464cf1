//! Compiled kernels where they run: in this process, or by a program that runs them on another machine.

use std::io;
use std::ops::Range;

use tilewright_image::Image;
use tilewright_machine::ObjectCode;
use tilewright_suite_runner::Code;
pub use tilewright_suite_runner::{AlignedBytes, Job, Remote};

/// Linked code, mapped for execution.
#[derive(Debug)]
pub struct Loaded {
    code: Code,
    entries: Vec<usize>,
}

impl Loaded {
    /// Links an object and maps its code.
    pub fn new(code: &ObjectCode) -> Result<Loaded, String> {
        let image = link(code)?;
        let code = Code::new(&image.bytes).map_err(|error| error.to_string())?;
        Ok(Loaded { code, entries: entries(&image) })
    }

    /// Runs the tasks of the `entry`-th kernel.
    pub fn call(&self, entry: usize, buffers: &mut [AlignedBytes], sizes: &[i64], tasks: Range<i64>) {
        self.code.call(self.entries[entry], buffers, sizes, tasks);
    }
}

fn link(code: &ObjectCode) -> Result<Image, String> {
    tilewright_image::link(&[&code.object], &code.symbols).map_err(|error| error.to_string())
}

fn entries(image: &Image) -> Vec<usize> {
    image.entries.iter().map(|entry| *entry as usize).collect()
}

/// Where compiled kernels run.
#[derive(Debug)]
pub enum Place {
    /// In this process.
    Here,
    /// By a program.
    There(Box<Remote>),
}

impl Place {
    /// Runs the tasks of a kernel in ranges; gives what the buffers hold after.
    ///
    /// # Errors
    /// Where the code does not link, or the program ends.
    pub fn run(
        &mut self,
        code: &ObjectCode,
        buffers: &[Vec<u8>],
        sizes: &[i64],
        ranges: &[Range<i64>],
    ) -> Result<Vec<Vec<u8>>, String> {
        let image = link(code)?;
        let entry = entries(&image).first().copied().ok_or("there is no kernel in it")?;
        let job = Job { linked: &image.bytes, entry, buffers, sizes, ranges };
        let found: io::Result<Vec<Vec<u8>>> = match self {
            Place::Here => job.run(),
            Place::There(remote) => remote.run(&job),
        };
        found.map_err(|error| error.to_string())
    }
}
