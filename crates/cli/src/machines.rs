//! Which code runs on the machines of servers.

use tilewright_driver::runtime::isa::Isa;
use tilewright_driver::{Machine, isa, machine};

/// Whether a machine runs code for another.
pub(crate) fn runs_code_for(there: &Isa, machine: &Machine) -> bool {
    let needs = isa(machine);
    needs.arch == there.arch && needs.features.iter().all(|feature| there.features.contains(feature))
}

/// The machine with a name, and most features, whose code runs on all of these.
pub(crate) fn best_machine(there: &[Isa]) -> Option<&'static str> {
    let features = |name: &str| {
        let machine = name.parse::<Machine>().ok()?;
        there.iter().all(|there| runs_code_for(there, &machine)).then(|| isa(&machine).features.len())
    };
    let names = machine::names().map(|(name, _)| name).filter(|name| *name != "cpu");
    // The first of those with most features: to the loader, the others are the same.
    let best = names
        .filter_map(|name| Some((features(name)?, name)))
        .reduce(|best, next| if next.0 > best.0 { next } else { best });
    best.map(|(_, name)| name)
}
