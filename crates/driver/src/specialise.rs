//! Which programs a model is compiled to: one for all extents within the bounds, and some for extents that matter.

use crate::error::CompileError;
use crate::options::{DimOption, Options};

/// Most programs specialised for extents in one artifact: compiling takes the time of as many models.
pub const MAX_SPECIALISED: usize = 32;

/// The extents that each specialised program has: of every combination, the names of the dimensions with their extents.
///
/// # Errors
/// Options that are wrong, all of them at once, and more combinations than [`MAX_SPECIALISED`].
pub(crate) fn combinations(dims: &[DimOption]) -> Result<Vec<Vec<(String, i64)>>, CompileError> {
    let mut problems = Vec::new();
    for (i, dim) in dims.iter().enumerate() {
        problems.extend(dim.problems().into_iter().map(|problem| format!("--dim {dim}: {problem}")));
        if dims[..i].iter().any(|other| other.name == dim.name) {
            problems.push(format!("--dim {} is given twice", dim.name));
        }
    }
    if !problems.is_empty() {
        return Err(CompileError::Option(problems.join("\n")));
    }
    let stepped: Vec<&DimOption> = dims.iter().filter(|dim| dim.n_specialised() > 0).collect();
    if stepped.is_empty() {
        return Ok(Vec::new());
    }
    let count = stepped.iter().fold(1u64, |count, dim| count.saturating_mul(dim.n_specialised()));
    if count > MAX_SPECIALISED as u64 {
        let each: Vec<String> =
            stepped.iter().map(|dim| format!("--dim {dim} asks for {}", dim.n_specialised())).collect();
        return Err(CompileError::Limit(format!(
            "{count} programs would be specialised, {MAX_SPECIALISED} at most are: {}; give a larger step, closer \
             bounds, or no step",
            each.join(", ")
        )));
    }
    let mut all = vec![Vec::new()];
    for dim in stepped {
        let with = |extents: &Vec<(String, i64)>, n| {
            let mut extents = extents.clone();
            extents.push((dim.name.clone(), n));
            extents
        };
        all = all.iter().flat_map(|extents| dim.specialised().map(move |n| with(extents, n))).collect();
    }
    Ok(all)
}

/// The options of a program for these extents.
pub(crate) fn fixed(options: &Options, extents: &[(String, i64)]) -> Options {
    let mut options = options.clone();
    for dim in &mut options.dims {
        if let Some((_, n)) = extents.iter().find(|(name, _)| *name == dim.name) {
            *dim = DimOption { name: dim.name.clone(), lo: *n, hi: *n, step: None };
        }
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(dims: &[&str]) -> Result<Vec<Vec<(String, i64)>>, CompileError> {
        combinations(&dims.iter().map(|dim| dim.parse().unwrap()).collect::<Vec<_>>())
    }

    #[test]
    fn several_dimensions_make_every_combination() {
        let names = |dims: &[&str]| {
            let all = all(dims).unwrap();
            all.iter().map(|extents| extents.iter().map(|(_, n)| *n).collect::<Vec<_>>()).collect::<Vec<_>>()
        };
        assert_eq!(names(&["a=1..2:1", "b=3", "c=0..20:10"]), [[1, 10], [1, 20], [2, 10], [2, 20]]);
        assert!(names(&["a=1..9", "b=3"]).is_empty() && names(&[]).is_empty());
    }

    #[test]
    fn too_many_are_a_limit_that_names_what_to_change() {
        assert_eq!(all(&["a=1..32:1"]).unwrap().len(), 32);
        for dims in
            [&["a=1..33:1"][..], &["a=1..4:1", "b=1..9:1"], &["a=0..9223372036854775807:1", "b=1..9:1"]]
        {
            let error = all(dims).unwrap_err();
            assert!(matches!(error, CompileError::Limit(_)));
            assert_eq!(error.exit_code(), 4);
            assert!(error.to_string().contains(&format!("--dim {} asks for", dims[0])), "{error}");
        }
    }

    #[test]
    fn wrong_options_are_told_all_at_once() {
        let bad = |lo, hi, step| DimOption { name: "a".into(), lo, hi, step };
        let error = combinations(&[bad(4, 1, None), bad(1, 4, Some(0))]).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        for said in ["lower bound 4", "step must be at least 1", "--dim a is given twice"] {
            assert!(error.to_string().contains(said), "{error}");
        }
    }
}
