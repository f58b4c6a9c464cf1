//! Tables: what a function computes from nothing is computed once, at compile time.

use tilewright_graph::{Bytes, Tensor};
use tilewright_te::interp::{Mode, Program};
use tilewright_te::{Block, Buffer, Expr, ExprKind, Func, IterKind, Stmt, Store};

/// Elements up to which a table is worth its place among the weights.
const MAX_ELEMENTS: i64 = 1 << 18;

/// Takes the tables out of a function: the blocks over constant extents that read nothing and have an elementary
/// function to compute. Their buffers become inputs after those that the function has; gives the tensors to pass
/// there, in order. Cheaper blocks stay, to become part of what reads them.
///
/// # Errors
/// The interpreter's message, a defect of the function.
pub fn take_tables(func: &mut Func) -> Result<Vec<Tensor>, String> {
    let mut tables = Vec::new();
    let mut at = 0;
    while let Some(stmt) = func.body.get(at) {
        let Some(buffers) = table(func, stmt) else {
            at += 1;
            continue;
        };
        let stmt = func.body.remove(at);
        let mut alone = Func { params: buffers.clone(), n_inputs: 0, body: vec![stmt], ..func.clone() };
        // The other buffers are not there, and their extents may be open.
        alone.sizes.clear();
        let others = alone.buffers.iter_mut().filter(|(buffer, _)| !buffers.contains(buffer));
        others.for_each(|(_, data)| data.shape.clear());
        let program = Program::compile(&alone).map_err(|e| e.to_string())?;
        for data in program.run(&[], &[], Mode::Exact).map_err(|e| e.to_string())? {
            let dims = data.shape.iter().map(|&extent| extent as usize).collect();
            let tensor = Tensor::from_bytes(data.dtype, dims, Bytes::new(data.bytes));
            tables.push(tensor.map_err(|e| e.to_string())?);
        }
        let end = func.n_inputs;
        func.n_inputs += buffers.len();
        func.params.splice(end..end, buffers);
    }
    Ok(tables)
}

/// The buffers that a statement fills, if they are tables.
fn table(func: &Func, stmt: &Stmt) -> Option<Vec<Buffer>> {
    let block = only_block(stmt)?;
    let extents: Option<Vec<i64>> = block.iters.iter().map(|iter| iter.extent.as_int()).collect();
    let is_parallel = block.iters.iter().all(|iter| iter.kind == IterKind::Spatial);
    let elements = extents?.into_iter().try_fold(1i64, i64::checked_mul)?;
    if !is_parallel
        || elements > MAX_ELEMENTS
        || !block.body.iter().any(|store| store.value.any(&mut |e| e.is_intrinsic()))
    {
        return None;
    }
    let from_nothing = |e: &Expr| {
        !e.any(&mut |e| match e.kind() {
            ExprKind::Load(..) => true,
            ExprKind::Var(var) => func.sizes.contains(var),
            _ => false,
        })
    };
    let writers = |buffer: Buffer| {
        let stores = |block: &&Block| block.body.iter().any(|store| store.buffer == buffer);
        func.blocks().into_iter().filter(stores).count()
    };
    let is_whole = |store: &Store| {
        let size = func.buffers[store.buffer].shape.iter().map(Expr::as_int);
        let size = size.collect::<Option<Vec<i64>>>().map(|shape| shape.into_iter().product());
        from_nothing(&store.value)
            && store.indices.iter().all(from_nothing)
            && size == Some(elements)
            && !func.params.contains(&store.buffer)
            && writers(store.buffer) == 1
    };
    block.body.iter().all(is_whole).then(|| block.body.iter().map(|store| store.buffer).collect())
}

/// The block of a nest that has one.
fn only_block(stmt: &Stmt) -> Option<&Block> {
    match stmt {
        Stmt::Block(block) => Some(block),
        Stmt::Loop(nest) => match &nest.body[..] {
            [stmt] => only_block(stmt),
            _ => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use tilewright_dtype::DType;
    use tilewright_te::UnaryOp;

    use super::*;

    fn cosine(of: &Expr) -> Expr {
        Expr::unary(UnaryOp::Cos, of.clone().cast(DType::F32))
    }

    /// The names of the inputs after tables were taken, and the tables.
    fn taken(func: &mut Func) -> (Vec<String>, Vec<Tensor>) {
        let tables = take_tables(func).unwrap();
        let names = func.params[..func.n_inputs].iter().map(|&b| func.buffers[b].name.clone());
        (names.collect(), tables)
    }

    #[test]
    fn a_table_becomes_the_last_input() {
        let mut func = Func::new("f");
        let n = func.add_size("n", 3, 3);
        let x = func.add_input("x", DType::F32, vec![Expr::var(n)]);
        let table = func.compute("table", DType::F32, vec![Expr::int(3)], |_, i| cosine(&i[0]));
        let y = func.compute("y", DType::F32, vec![Expr::int(3)], |f, i| {
            f.load(x, i.to_vec()) * f.load(table, i.to_vec())
        });
        func.promote_to_output(y);
        let before = func.clone();
        let (names, tables) = taken(&mut func);
        assert_eq!(names, ["x", "table"]);
        assert_eq!(tables[0].to_f64s().unwrap(), [0f32, 1.0, 2.0].map(|x| f64::from(x.cos())));

        let x = Tensor::vector(&[2f32, 3.0, 4.0]);
        let bytes = [&x, &tables[0]].map(|tensor| tensor.bytes().unwrap().as_slice());
        let run = |func: &Func, bytes: &[&[u8]]| {
            Program::compile(func).unwrap().run(&[3], bytes, Mode::Exact).unwrap()
        };
        assert_eq!(run(&func, &bytes), run(&before, &bytes[..1]));
    }

    #[test]
    fn what_is_no_table_stays() {
        let mut func = Func::new("f");
        let n = func.add_size("n", 1, 9);
        let x = func.add_input("x", DType::F32, vec![Expr::int(3)]);
        let read = func.compute("read", DType::F32, vec![Expr::int(3)], |f, i| {
            Expr::unary(UnaryOp::Cos, f.load(x, i.to_vec()))
        });
        let open = func.compute("open", DType::F32, vec![Expr::var(n)], |_, i| cosine(&i[0]));
        let sized = func.compute("sized", DType::F32, vec![Expr::int(3)], |_, _| cosine(&Expr::var(n)));
        let cheap =
            func.compute("cheap", DType::F32, vec![Expr::int(3)], |_, i| i[0].clone().cast(DType::F32));
        let large = vec![Expr::int(MAX_ELEMENTS + 1)];
        let large = func.compute("large", DType::F32, large, |_, i| cosine(&i[0]));
        let output = func.compute("output", DType::F32, vec![Expr::int(3)], |_, i| cosine(&i[0]));
        func.promote_to_output(output);
        let blocks = func.blocks().len();
        assert_eq!(taken(&mut func).0, ["x"]);
        assert_eq!(func.blocks().len(), blocks);
        assert!([read, open, sized, cheap, large].iter().all(|b| !func.params.contains(b)));
    }
}
