//! Machine code that is mapped and called, in this process or by a program on another machine ([`Remote`], [`serve`]).
//!
//! The program reads jobs from its standard input and writes what the buffers hold after each to its standard output. Numbers are 64 bits, the
//! least significant byte first; everything of open length has its length before it.
#![allow(unsafe_code, reason = "machine code is mapped and called, in a crate that only tests use")]

use std::io::{self, Read, Write};
use std::ops::Range;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use memmap2::{Mmap, MmapMut};

/// Linked code, mapped for execution.
#[derive(Debug)]
pub struct Code {
    map: Mmap,
}

type Entry = unsafe extern "C" fn(*const *mut u8, *const i64, i64, i64);

impl Code {
    /// Maps linked code.
    ///
    /// # Errors
    /// Where the system maps no memory.
    pub fn new(linked: &[u8]) -> io::Result<Code> {
        let mut map = MmapMut::map_anon(linked.len())?;
        map.copy_from_slice(linked);
        Ok(Code { map: map.make_exec()? })
    }

    /// Runs tasks of the kernel whose function begins at `entry`.
    pub fn call(&self, entry: usize, buffers: &mut [AlignedBytes], sizes: &[i64], tasks: Range<i64>) {
        let pointers: Vec<*mut u8> =
            buffers.iter_mut().map(|buffer| buffer.bytes_mut().as_mut_ptr()).collect();
        let address = self.map[entry..].as_ptr();
        // SAFETY: the bytes are the kernel's function, in executable memory that `self` keeps; it has the
        // signature of the kernel ABI, and accesses no element outside the buffers of a legal kernel.
        unsafe {
            let function: Entry = std::mem::transmute(address);
            function(pointers.as_ptr(), sizes.as_ptr(), tasks.start, tasks.end);
        }
    }
}

/// Bytes that begin at a multiple of 64.
#[derive(Clone, Debug)]
pub struct AlignedBytes {
    blocks: Vec<Block>,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Block([u8; 64]);

impl AlignedBytes {
    /// A copy.
    pub fn new(bytes: &[u8]) -> AlignedBytes {
        let blocks = bytes
            .chunks(64)
            .map(|chunk| {
                let mut block = Block([0; 64]);
                block.0[..chunk.len()].copy_from_slice(chunk);
                block
            })
            .collect();
        AlignedBytes { blocks, len: bytes.len() }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: blocks are arrays of 64 initialised bytes without padding, at least `len` in all.
        unsafe { std::slice::from_raw_parts(self.blocks.as_ptr().cast(), self.len) }
    }

    /// The bytes, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; any byte is a valid value.
        unsafe { std::slice::from_raw_parts_mut(self.blocks.as_mut_ptr().cast(), self.len) }
    }
}

/// Tasks of a kernel, range by range.
#[derive(Debug)]
pub struct Job<'a> {
    /// Linked code.
    pub linked: &'a [u8],
    /// Where the kernel's function begins in it.
    pub entry: usize,
    /// Contents of the buffers before.
    pub buffers: &'a [Vec<u8>],
    /// The symbolic extents.
    pub sizes: &'a [i64],
    /// The tasks.
    pub ranges: &'a [Range<i64>],
}

impl Job<'_> {
    /// Does it in this process; gives what the buffers hold after.
    ///
    /// # Errors
    /// Where the system maps no memory.
    pub fn run(&self) -> io::Result<Vec<Vec<u8>>> {
        let code = Code::new(self.linked)?;
        let mut buffers: Vec<AlignedBytes> = self.buffers.iter().map(|b| AlignedBytes::new(b)).collect();
        for range in self.ranges {
            code.call(self.entry, &mut buffers, self.sizes, range.clone());
        }
        Ok(buffers.iter().map(|buffer| buffer.bytes().to_vec()).collect())
    }
}

/// A program that runs jobs, on another machine or in what plays it.
#[derive(Debug)]
pub struct Remote {
    child: Child,
    jobs: ChildStdin,
    results: ChildStdout,
}

impl Remote {
    /// Starts it.
    ///
    /// # Errors
    /// Where it does not start.
    pub fn start(command: &mut Command) -> io::Result<Remote> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (jobs, results) = pipes.ok_or_else(|| io::Error::other("the program has no pipes"))?;
        Ok(Remote { child, jobs, results })
    }

    /// Has a job done; gives what the buffers hold after.
    ///
    /// # Errors
    /// Where the program has ended, as it does when code crashes.
    pub fn run(&mut self, job: &Job<'_>) -> io::Result<Vec<Vec<u8>>> {
        let mut text = Vec::new();
        put_bytes(&mut text, job.linked);
        put(&mut text, job.entry as i64);
        put(&mut text, job.buffers.len() as i64);
        job.buffers.iter().for_each(|buffer| put_bytes(&mut text, buffer));
        put(&mut text, job.sizes.len() as i64);
        job.sizes.iter().for_each(|&size| put(&mut text, size));
        put(&mut text, job.ranges.len() as i64);
        job.ranges.iter().flat_map(|range| [range.start, range.end]).for_each(|n| put(&mut text, n));
        self.jobs.write_all(&text)?;
        self.jobs.flush()?;
        job.buffers.iter().map(|_| take_bytes(&mut self.results)).collect()
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // What it is doing is of no use to anybody any more; a program that has ended already is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Does jobs until there are no more.
///
/// # Errors
/// Where a job ends in the middle, or the system maps no memory.
pub fn serve(jobs: &mut impl Read, results: &mut impl Write) -> io::Result<()> {
    loop {
        let mut first = [0; 8];
        match jobs.read_exact(&mut first) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            other => other?,
        }
        let linked = take_len(jobs, i64::from_le_bytes(first))?;
        let entry = take(jobs)? as usize;
        let buffers = (0..take(jobs)?).map(|_| take_bytes(jobs)).collect::<io::Result<Vec<Vec<u8>>>>()?;
        let sizes = (0..take(jobs)?).map(|_| take(jobs)).collect::<io::Result<Vec<i64>>>()?;
        let range = |jobs: &mut _| Ok(take(jobs)?..take(jobs)?);
        let ranges = (0..take(jobs)?).map(|_| range(jobs)).collect::<io::Result<Vec<Range<i64>>>>()?;
        let job = Job { linked: &linked, entry, buffers: &buffers, sizes: &sizes, ranges: &ranges };
        let mut text = Vec::new();
        job.run()?.iter().for_each(|buffer| put_bytes(&mut text, buffer));
        results.write_all(&text)?;
        results.flush()?;
    }
}

fn put(text: &mut Vec<u8>, number: i64) {
    text.extend(number.to_le_bytes());
}

fn put_bytes(text: &mut Vec<u8>, bytes: &[u8]) {
    put(text, bytes.len() as i64);
    text.extend(bytes);
}

fn take(from: &mut impl Read) -> io::Result<i64> {
    let mut bytes = [0; 8];
    from.read_exact(&mut bytes)?;
    Ok(i64::from_le_bytes(bytes))
}

fn take_bytes(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let len = take(from)?;
    take_len(from, len)
}

fn take_len(from: &mut impl Read, len: i64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(len.max(0) as u64).read_to_end(&mut bytes)?;
    match bytes.len() as i64 == len {
        true => Ok(bytes),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
