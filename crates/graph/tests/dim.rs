//! Extents: the normal form against direct evaluation, and the equalities shapes rely on.

use proptest::prelude::*;
use tilewright_graph::text::Reader;
use tilewright_graph::{Dim, Range, SymbolId, SymbolKind, SymbolTable};

fn parse(text: &str, symbols: &mut SymbolTable) -> Dim {
    Reader::new(text, symbols).dim().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The normal form of `text`, printed.
#[track_caller]
fn check(text: &str, expected: &str) {
    let mut symbols = SymbolTable::default();
    let dim = parse(text, &mut symbols);
    assert_eq!(dim.display(&symbols).to_string(), expected, "{text}");
    assert_eq!(parse(expected, &mut symbols), dim, "the printed form of {text} reads back");
}

#[test]
fn normal_forms() {
    check("a + b + a - 3*b + 2 - 2", "2*a - 2*b");
    check("(a + 1)*(a - 1)", "a*a - 1");
    check("floordiv(a*b*768, a*b)", "768");
    check("floordiv(a*(b + 1)*768, (b + 1)*768)", "a");
    check("floordiv(4*a + 6, 4)", "a + 1");
    check("floordiv(4*a + b, 4)", "a + floordiv(b, 4)");
    check("floordiv(floordiv(a, 2), 3)", "floordiv(a, 6)");
    check("floordiv(floordiv(a + 1, 2) - 7, 2)", "floordiv(a + 3, 4) - 4");
    check("floordiv(floordiv(a, b) + 1, 2)", "floordiv(a + b, 2*b)");
    check("mod(4*a + 6, 4)", "2");
    check("mod(a, 4)", "mod(a, 4)");
    check("min(a, a + 1)", "a");
    check("max(a - b, a)", "a");
    check("max(0, a)", "a");
    check("min(a - 1, max(a - 1, 0))", "a - 1");
    check("max(min(a, b), a)", "a");
    check("min(512, a)", "min(a, 512)");
    check("max(b, a) - max(a, b)", "0");
    check("-a + 1", "-a + 1");
    check("\"batch size\" * 2", "2*\"batch size\"");
    check("0 * a", "0");
}

#[test]
fn bounds_follow_ranges() {
    let mut symbols = SymbolTable::default();
    let a = symbols.intern("a", SymbolKind::Input);
    symbols.set_range(a, Range { lo: 2, hi: Some(10), step: 2 });
    let bounds = |text: &str| parse(text, &mut symbols.clone()).bounds(&symbols);
    assert_eq!(bounds("3*a + 1"), (Some(7), Some(31)));
    assert_eq!(bounds("-2*a"), (Some(-20), Some(-4)));
    assert_eq!(bounds("floordiv(a, 4)"), (Some(0), Some(2)));
    assert_eq!(bounds("mod(a, 4)"), (Some(0), Some(3)));
    assert_eq!(bounds("min(a, 7)"), (Some(2), Some(7)));
    assert_eq!(bounds("a*a"), (Some(4), Some(100)));
    let least = |a: &str, b: &str| {
        let [a, b] = [a, b].map(|text| parse(text, &mut symbols.clone()));
        a.minimum_within(&b, &symbols).display(&symbols).to_string()
    };
    assert_eq!([least("a", "10"), least("a", "9"), least("a + 1", "3")], ["a", "min(a, 9)", "3"]);
}

#[test]
fn bad_extents_are_errors() {
    let error = |text: &str| Reader::new(text, &mut SymbolTable::default()).dim().unwrap_err().to_string();
    assert_eq!(error("a + "), "line 1, column 5: expected a word");
    assert_eq!(error("min(a)"), "line 1, column 6: expected `,`");
    assert_eq!(error("99999999999999999999"), "line 1, column 21: extent out of range");
    assert!(error(&"(".repeat(100_000)).ends_with("nested too deeply"));
}

/// An expression with the value it must have.
#[derive(Clone, Debug)]
enum Tree {
    Leaf(usize),
    Constant(i64),
    Node(u8, Box<Tree>, Box<Tree>),
}

fn tree() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![(0..3usize).prop_map(Tree::Leaf), (0..6i64).prop_map(Tree::Constant)];
    leaf.prop_recursive(4, 24, 2, |inner| {
        (0..6u8, inner.clone(), inner).prop_map(|(op, a, b)| Tree::Node(op, Box::new(a), Box::new(b)))
    })
}

/// The expression as a normal form, and its value computed directly; `None` where it divides by what is not positive.
fn both(tree: &Tree, values: &[i64; 3]) -> Option<(Dim, i64)> {
    Some(match tree {
        Tree::Leaf(index) => (Dim::symbol(SymbolId::from_u32(*index as u32)), values[*index]),
        Tree::Constant(value) => (Dim::new(*value), *value),
        Tree::Node(op, a, b) => {
            let ((a, x), (b, y)) = (both(a, values)?, both(b, values)?);
            match op {
                0 => (&a + &b, x + y),
                1 => (&a - &b, x - y),
                2 => (&a * &b, x * y),
                3 if y > 0 => (a.floor_div(&b), x.div_euclid(y)),
                4 if y > 0 => (a.modulo(&b), x.rem_euclid(y)),
                5 => (a.minimum(&b).maximum(&Dim::new(1)), x.min(y).max(1)),
                _ => return None,
            }
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn normal_form_keeps_the_value(tree in tree(), values in [1..9i64, 1..9i64, 1..9i64]) {
        if let Some((dim, expected)) = both(&tree, &values) {
            let assign = |symbol: SymbolId| values.get(symbol.as_u32() as usize).copied();
            if let Some(value) = dim.evaluate(&assign) {
                prop_assert_eq!(value, expected, "{}", dim);
            }
            let replace = |symbol: SymbolId| values.get(symbol.as_u32() as usize).map(|&value| Dim::new(value));
            prop_assert_eq!(dim.substitute(&replace).as_const(), Some(expected), "{}", dim);
        }
    }
}
