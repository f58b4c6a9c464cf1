//! Firmware that reads handwritten digits: the artifact lies in flash and runs there, all memory is one static block.
//!
//! It reads images and labels from the machine that plays the board, and ends with status 0 where it reads all of them right. With the feature
//! `report`, which is on by default, it also says how many it reads right, what a run takes, how much of the memory was used, and what is wrong.
#![no_std]
#![no_main]

extern crate alloc;

mod digits;
#[cfg(feature = "report")]
mod report;
mod semihosting;
mod start;

pub(crate) fn reads_all_digits() -> bool {
    let findings = digits::read();
    #[cfg(feature = "report")]
    report::print(&findings);
    findings.is_ok_and(|findings| findings.right == findings.images)
}
