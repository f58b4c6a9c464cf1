//! What is said of outputs that are not written anywhere.

use tilewright_runtime::{Tensor, Value};

use crate::values;

/// A line for people of a named output.
pub fn line(name: &str, value: &Value) -> String {
    match value.as_tensor() {
        Some(tensor) => Summary::of(tensor).line(name, tensor),
        None => format!("{name}: {}\n", values::form(value)),
    }
}

/// What is said of a tensor that is not written anywhere.
pub struct Summary {
    /// Least, greatest and mean element, where there are any.
    pub range: Option<(f64, f64, f64)>,
    /// The first elements.
    pub first: Vec<f64>,
    /// How many elements there are.
    pub n: usize,
}

impl Summary {
    const SHOWN: usize = 6;

    /// That of a tensor; of strings there is none.
    pub fn of(tensor: &Tensor) -> Summary {
        let values = values::to_f64s(tensor).unwrap_or_default();
        let first = values.iter().copied().take(Summary::SHOWN).collect();
        let range = (!values.is_empty()).then(|| {
            let min = values.iter().copied().fold(f64::INFINITY, f64::min);
            let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            (min, max, values.iter().sum::<f64>() / values.len() as f64)
        });
        Summary { range, first, n: values.len() }
    }

    /// A line for people.
    pub fn line(&self, name: &str, tensor: &Tensor) -> String {
        let mut line = format!("{name}: {}", values::tensor_form(tensor));
        if let Some((min, max, mean)) = self.range {
            let first: Vec<String> = self.first.iter().map(|value| format!("{value:.5}")).collect();
            let more = if self.n > Summary::SHOWN { ", ..." } else { "" };
            line += &format!(" min {min:.5} max {max:.5} mean {mean:.5}: {}{more}", first.join(", "));
        }
        line + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_summed_up_in_a_line() {
        let tensor = Tensor::new(&[3], [1.0f32, 2.0, 6.0]).unwrap();
        let line = Summary::of(&tensor).line("y", &tensor);
        assert_eq!(line, "y: f32[3] min 1.00000 max 6.00000 mean 3.00000: 1.00000, 2.00000, 6.00000\n");
        let empty = Tensor::new::<f32>(&[0], []).unwrap();
        assert_eq!(Summary::of(&empty).line("y", &empty), "y: f32[0]\n");
    }
}
