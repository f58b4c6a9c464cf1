//! The examples do what they say, on the digits network and the images that it has not seen.

#[path = "../examples/classify.rs"]
#[allow(dead_code, reason = "the test calls what `main` calls")]
mod classify;
#[path = "../examples/deploy.rs"]
#[allow(dead_code, reason = "the test calls what `main` calls")]
mod deploy;
#[path = "../../../runtime/run/examples/infer.rs"]
#[allow(dead_code, reason = "the test calls what `main` calls")]
mod infer;
#[path = "../examples/own_pass.rs"]
#[allow(dead_code, reason = "the test calls what `main` calls")]
mod own_pass;
#[path = "../examples/serve.rs"]
#[allow(dead_code, reason = "the test calls what `main` calls")]
mod serve;

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use tilewright::RunError;
use tilewright_run::{Named, Spec, files, values};

fn digits(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../../examples/digits", name].iter().collect()
}

#[test]
fn an_image_is_classified() -> Result<(), Box<dyn Error>> {
    for digit in [0, 8] {
        let classes = classify::classify(&digits("digits.onnx"), &digits(&format!("images/{digit}")))?;
        let sum: f32 = classes.iter().map(|(_, probability)| probability).sum();
        assert!(classes.len() == 10 && classes[0].0 == digit && (sum - 1.0).abs() < 1e-5, "{classes:?}");
        assert!(classes.is_sorted_by(|a, b| a.1 >= b.1), "{classes:?}");
    }
    Ok(())
}

#[test]
fn requests_are_answered_in_time_or_not_at_all() -> Result<(), Box<dyn Error>> {
    let serve = |limit| serve::serve(&digits("digits.onnx"), &digits("held-out"), 3, limit);
    let labels = std::fs::read_to_string(digits("held-out/labels.txt"))?;
    let labels =
        labels.split_whitespace().map(|label| label.parse().map(Ok)).collect::<Result<Vec<_>, _>>()?;
    // Nothing is as slow as this.
    assert_eq!(serve(Duration::from_secs(600))?, labels);
    assert_eq!(serve(Duration::ZERO)?, vec![Err(RunError::Cancelled); labels.len()]);
    Ok(())
}

#[test]
fn what_one_program_compiles_another_runs() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let (artifact, scores) = (dir.path().join("digits.twm"), dir.path().join("scores.npz"));
    assert_eq!(deploy::deploy(&digits("digits.onnx"), &artifact)?, artifact.metadata()?.len());
    infer::infer(&artifact, &digits("held-out"), &scores)?;
    let spec = Spec { name: "scores".into(), nesting: vec![], dtype: tilewright::DType::F32, dims: None };
    let ours = files::read_outputs(&scores, std::slice::from_ref(&spec))?;
    let theirs = files::read_outputs(&digits("held-out"), &[spec])?;
    let numbers = |named: &Named| named[0].1.as_tensor().and_then(values::to_f64s).unwrap_or_default();
    let (ours, theirs) = (numbers(&ours), numbers(&theirs));
    assert_eq!((ours.len(), theirs.len()), (4500, 4500));
    let worst = ours.iter().zip(&theirs).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(worst < 1e-3, "{worst}");
    Ok(())
}

/// Scores without the pass are the network's; with it they are others.
#[test]
fn a_pass_of_ones_own_runs_before_the_others() -> Result<(), Box<dyn Error>> {
    let [plain, smooth] = own_pass::scores(&digits("digits.onnx"), &digits("images/8"))?;
    let best = |scores: &[f32]| scores.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map(|(n, _)| n);
    assert_eq!((plain.len(), smooth.len(), best(&plain)), (10, 10, Some(8)));
    assert!(plain.iter().zip(&smooth).all(|(a, b)| a != b), "{plain:?} {smooth:?}");
    Ok(())
}
