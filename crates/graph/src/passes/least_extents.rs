//! Raises the least value of an open extent of an input to where no extent of the model is negative.
//!
//! Convolutions and pools without padding make images smaller, so an input may be too small for a model. With the range of the extent raised,
//! such an input is refused by the name of the extent and the least that it may be, and later stages may rely on extents that are not negative.
//!
//! ```text
//! sym h input 0..*       %y: f32[b, 8, h - 2, w - 2] = Conv(%x)
//! sym h input 2..*       %y: f32[b, 8, h - 2, w - 2] = Conv(%x)
//! ```

use crate::dim::{Atom, Dim};
use crate::graph::Graph;
use crate::ids::SymbolId;
use crate::pass::PassError;
use crate::symbol::{Range, SymbolKind, SymbolTable};

/// Raises least values by the extents of what every run computes: branches and bodies may not run.
pub fn least_extents(graph: &mut Graph) -> Result<bool, PassError> {
    let mut raised: Vec<(SymbolId, Range)> = Vec::new();
    for &node in &graph.region(graph.main()).nodes {
        for &value in &graph.node(node).outputs {
            raised.extend(
                graph.dims(value).unwrap_or_default().iter().filter_map(|dim| least(dim, &graph.symbols)),
            );
        }
    }
    let mut changed = false;
    for (symbol, range) in raised {
        // Of several extents the one that needs the most counts.
        if range.lo > graph.symbols[symbol].range.lo {
            graph.symbols.set_range(symbol, range);
            changed = true;
        }
    }
    Ok(changed)
}

/// The range of the one symbol of an extent that grows with it, if the extent is negative for the first of its values.
fn least(dim: &Dim, symbols: &SymbolTable) -> Option<(SymbolId, Range)> {
    let mut of_dim = dim.symbols().into_iter();
    let (Some(symbol), None) = (of_dim.next(), of_dim.next()) else { return None };
    let range = symbols[symbol].range;
    let at = |n: i64| {
        range.lo.checked_add(range.step.checked_mul(n)?).filter(|&v| range.hi.is_none_or(|hi| v <= hi))
    };
    let is_negative = |n: i64| Some(dim.evaluate(&|_| at(n))? < 0);
    if symbols[symbol].kind != SymbolKind::Input || !grows(dim) || !is_negative(0)? {
        return None;
    }
    // The extent is negative for the value numbered `below` and not for that numbered `most`.
    let (mut below, mut most) = (0, 1);
    while is_negative(most)? {
        (below, most) = (most, most.checked_mul(2)?);
    }
    while below + 1 < most {
        let middle = below + (most - below) / 2;
        if is_negative(middle)? { below = middle } else { most = middle }
    }
    Some((symbol, Range { lo: at(most)?, ..range }))
}

/// Whether an extent is nowhere less where its symbol is more.
fn grows(dim: &Dim) -> bool {
    dim.summands().all(|summand| match summand.atoms {
        [] => true,
        [atom] if summand.coefficient > 0 => match atom {
            Atom::Symbol(_) => true,
            Atom::FloorDiv(pair) => grows(&pair.0) && pair.1.as_const().is_some_and(|by| by > 0),
            Atom::Min(pair) | Atom::Max(pair) => grows(&pair.0) && grows(&pair.1),
            Atom::Mod(_) => false,
        },
        _ => false,
    })
}
