//! Files and text of the machine that plays the board, or debugs it. Arm, "Semihosting for AArch32 and AArch64".

use core::arch::asm;
#[cfg(feature = "report")]
use core::fmt;

const OPEN: usize = 0x01;
#[cfg(feature = "report")]
const WRITE0: usize = 0x04;
const READ: usize = 0x06;
const LENGTH: usize = 0x0c;
const EXIT_EXTENDED: usize = 0x20;

/// # Safety
/// `arguments` are what the operation takes.
unsafe fn call(operation: usize, arguments: *const usize) -> isize {
    let result;
    // SAFETY: the debugger reads the arguments and writes where they say.
    unsafe { asm!("bkpt 0xab", inlateout("r0") operation => result, in("r1") arguments) };
    result
}

/// Text for the terminal, a piece at a time.
#[cfg(feature = "report")]
pub(crate) struct Terminal;

#[cfg(feature = "report")]
impl fmt::Write for Terminal {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for piece in text.as_bytes().chunks(63) {
            let mut line = [0u8; 64];
            line.iter_mut().zip(piece).for_each(|(to, from)| *to = *from);
            // SAFETY: the text ends with a zero byte.
            unsafe { call(WRITE0, line.as_ptr().cast()) };
        }
        Ok(())
    }
}

/// Reads a whole file, whose name ends with a zero byte; nothing where it cannot be read or does not fit.
pub(crate) fn read_file<'r>(path: &[u8], room: &'r mut [u8]) -> Option<&'r [u8]> {
    let open = [path.as_ptr().addr(), 1 /* "rb" */, path.len() - 1];
    // SAFETY: address, mode, and length of the name.
    let file = usize::try_from(unsafe { call(OPEN, open.as_ptr()) }).ok()?;
    // SAFETY: an open file.
    let bytes = usize::try_from(unsafe { call(LENGTH, [file].as_ptr()) }).ok()?;
    let room = room.get_mut(..bytes)?;
    let read = [file, room.as_mut_ptr().expose_provenance(), bytes];
    // SAFETY: an open file, and room for so many bytes.
    (unsafe { call(READ, read.as_ptr()) } == 0).then_some(&*room)
}

/// Ends the program.
pub(crate) fn end(status: usize) -> ! {
    const APPLICATION_ENDED: usize = 0x20026;
    // SAFETY: reason and status.
    unsafe { call(EXIT_EXTENDED, [APPLICATION_ENDED, status].as_ptr()) };
    loop {}
}
