//! Strings of the plan.

use rustc_hash::FxHashMap;
use tilewright_runtime::plan::TextId;

/// Strings of the plan, each once.
#[derive(Default)]
pub(super) struct Texts {
    pub(super) list: Vec<String>,
    index: FxHashMap<String, u32>,
}

impl Texts {
    pub(super) fn intern(&mut self, text: &str) -> TextId {
        if let Some(&i) = self.index.get(text) {
            return TextId(i);
        }
        let i = self.list.len() as u32;
        self.list.push(text.to_string());
        self.index.insert(text.to_string(), i);
        TextId(i)
    }
}
