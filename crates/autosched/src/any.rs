//! Strategies of all kinds of machines as one type.

use std::fmt;

use serde::{Deserialize, Serialize};
use tilewright_te::schedule::{Schedule, ScheduleError};

use crate::layouts::Relayout;
use crate::rule::{self, Packing};
use crate::{cpu, gpu};

/// What is done to a group of blocks, on whatever machine.
///
/// It is serialised as the strategy that it holds, so records of processors are as they were before there were others.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Strategy {
    /// On a processor.
    Cpu(cpu::Strategy),
    /// On a GPU.
    Gpu(gpu::Strategy),
}

impl rule::Strategy for Strategy {
    fn plain(block: &str) -> Strategy {
        Strategy::Cpu(cpu::Strategy::plain(block))
    }

    fn blocks(&self) -> Vec<String> {
        match self {
            Strategy::Cpu(strategy) => strategy.blocks(),
            Strategy::Gpu(strategy) => strategy.blocks(),
        }
    }

    fn copies(&self) -> Vec<String> {
        match self {
            Strategy::Cpu(strategy) => strategy.copies(),
            Strategy::Gpu(strategy) => strategy.copies(),
        }
    }

    fn packings(&self) -> Vec<&Packing> {
        match self {
            Strategy::Cpu(strategy) => strategy.packings(),
            Strategy::Gpu(strategy) => strategy.packings(),
        }
    }

    fn apply(&self, schedule: &mut Schedule) -> Result<Vec<Relayout>, ScheduleError> {
        match self {
            Strategy::Cpu(strategy) => strategy.apply(schedule),
            Strategy::Gpu(strategy) => strategy.apply(schedule),
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Strategy::Cpu(strategy) => strategy.fmt(f),
            Strategy::Gpu(strategy) => strategy.fmt(f),
        }
    }
}
