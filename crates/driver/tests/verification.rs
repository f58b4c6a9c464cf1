//! What every compilation verifies: graphs after every pass, functions after every schedule and relayout.

use tilewright_driver::CompileError;
use tilewright_driver::graph::pass::{FnPass, PassError, PassManager};
use tilewright_driver::graph::{Graph, text};
use tilewright_dtype::DType;
use tilewright_te::schedule::{FinishError, Schedule};
use tilewright_te::{Expr, Func, Stmt};

const VALID: &str = "graph g {
  region0(%x: f32[2, 3]) {
    %a: f32[2, 3] = Unary[exp](%x) @ \"first\"
    %b: f32[2, 3] = Unary[exp](%a) @ \"second\"
    return %b as y
  }
}
";

/// Leaves two nodes with types that their operators do not have.
fn break_types(graph: &mut Graph) -> Result<bool, PassError> {
    *graph = text::parse(&VALID.replace("%a: f32[2, 3]", "%a: f32[2, 4]")).expect("it parses");
    Ok(true)
}

#[test]
fn a_pass_that_breaks_the_graph_is_named_with_all_it_broke() {
    let mut graph = text::parse(VALID).unwrap();
    let keep = FnPass::new("keep", |_| Ok(false));
    let mut pipeline = PassManager::new("test").then(keep).then(FnPass::new("break_types", break_types));
    let error = pipeline.run(&mut graph).unwrap_err();
    let PassError::Invalid { when, violations } = &error else { panic!("{error}") };
    assert_eq!((when.as_str(), violations.len()), ("after pass `break_types`", 2), "{error}");
    for part in ["`break_types`", "`first`", "`second`"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    let error = pipeline.run(&mut graph).unwrap_err().to_string();
    assert!(error.contains("before the first pass"), "{error}");
    // Of a compilation it is a defect of the compiler.
    assert_eq!(CompileError::internal("simplify", error).exit_code(), 70);
}

/// `copied = x`, of 6 by 8 elements.
fn copy() -> Func {
    let mut func = Func::new("copy");
    let shape: Vec<Expr> = vec![6.into(), 8.into()];
    let x = func.add_input("x", DType::F32, shape.clone());
    let copied = func.compute("copied", DType::F32, shape, |f, i| f.load(x, i.to_vec()));
    func.promote_to_output(copied);
    func
}

/// A function whose outermost loop is short of its domain's end is legal for who looks at it alone; one that writes its input and
/// uses a variable of nowhere is not.
fn break_copy(func: &mut Func) {
    let Some(Stmt::Loop(outer)) = func.body.first_mut() else { panic!("no loop") };
    let stray = outer.var;
    let Some(Stmt::Loop(inner)) = outer.body.first_mut() else { panic!("no loop") };
    let Some(Stmt::Block(block)) = inner.body.first_mut() else { panic!("no block") };
    block.body[0].buffer = func.params[0];
    block.body[0].indices[0] = Expr::var(stray);
}

#[test]
fn a_broken_schedule_has_no_result() {
    // What is wrong from the beginning is the definition's fault.
    let mut broken = copy();
    break_copy(&mut broken);
    let mut schedule = Schedule::new(broken);
    schedule.split("copied_i1", &[None, Some(4)]).unwrap();
    let error = schedule.finish().unwrap_err();
    let FinishError::Illegal(illegal) = &error else { panic!("{error}") };
    assert_eq!((illegal.func.as_str(), illegal.after.as_str()), ("copy", "its definition"));
    assert_eq!(illegal.violations.len(), 2, "{error}");
    for part in ["stores to the input `x`", "`copied_i0` is not in scope"] {
        assert!(error.to_string().contains(part), "{error}");
    }
}
