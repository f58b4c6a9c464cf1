//! The function that runs a model.

use std::collections::BTreeSet;
use std::fmt::Write;

use tilewright_machine::{Address, Base, Check, RunFunction, RunStep, Target};

use super::Isa;

/// Bytes that a copy moves at a time.
const WORD: u64 = 8;

/// The function as a module, before any optimisation.
pub fn translate_run(function: &RunFunction, target: &Target) -> String {
    let isa = Isa::Processor(target);
    let mut run =
        Run { function, out: String::new(), constants: String::new(), block: "entry".to_owned(), n_names: 0 };
    run.body();
    let mut text = format!("target triple = \"{}\"\n\n", isa.triple());
    let kernels = function.steps.iter().filter_map(|step| match step {
        RunStep::Call { kernel, .. } => Some(kernel.as_str()),
        RunStep::Copy { .. } => None,
    });
    // Hidden symbols are reached without a table of addresses.
    let _ = writeln!(text, "@\"{}\" = external hidden constant i8", function.weights);
    for kernel in kernels.collect::<BTreeSet<&str>>() {
        let _ = writeln!(text, "declare hidden void @\"{kernel}\"(ptr, ptr, i64, i64)");
    }
    let _ = write!(
        text,
        "{}\ndefine i32 @\"{}\"(ptr readonly %inputs, ptr readonly %outputs, ptr %workspace) #0 {{\n{}}}\n\n\
         attributes #0 = {{ nounwind \"no-builtins\" {} }}\n\n!0 = !{{}}\n",
        run.constants,
        function.symbol,
        run.out,
        isa.attributes()
    );
    if let Some(flag) = isa.module_flag() {
        let _ = writeln!(text, "!1 = {flag}\n!llvm.module.flags = !{{!1}}");
    }
    text
}

struct Run<'a> {
    function: &'a RunFunction,
    /// The function's body so far.
    out: String,
    /// Constants of the module.
    constants: String,
    /// The block that is being written.
    block: String,
    n_names: usize,
}

impl Run<'_> {
    fn body(&mut self) {
        let function = self.function;
        let _ = writeln!(self.out, "entry:");
        let buffers = function.steps.iter().map(|step| match step {
            RunStep::Call { buffers, .. } => buffers.len(),
            RunStep::Copy { .. } => 0,
        });
        let _ =
            writeln!(self.out, "  %buffers = alloca [{} x ptr]", buffers.max().unwrap_or_default().max(1));
        self.check(&function.checks);
        for step in &function.steps {
            match step {
                RunStep::Call { kernel, buffers, sizes, tasks } => self.call(kernel, buffers, sizes, *tasks),
                RunStep::Copy { from, to, bytes } => self.copy(*from, *to, *bytes),
            }
        }
        let _ = writeln!(self.out, "  ret i32 0");
        if !function.checks.is_empty() {
            let _ = writeln!(self.out, "refuse:\n  ret i32 1");
        }
    }

    /// Leaves the function where an address is null or odd.
    fn check(&mut self, checks: &[Check]) {
        let mut all: Option<String> = None;
        for Check { base, align } in checks {
            let pointer = self.base(*base);
            let is_null = self.def(&format!("icmp eq ptr {pointer}, null"));
            let number = self.def(&format!("ptrtoint ptr {pointer} to i64"));
            let rest = self.def(&format!("and i64 {number}, {}", align.max(&1) - 1));
            let is_odd = self.def(&format!("icmp ne i64 {rest}, 0"));
            let mut bad = self.def(&format!("or i1 {is_null}, {is_odd}"));
            if let Some(before) = all {
                bad = self.def(&format!("or i1 {before}, {bad}"));
            }
            all = Some(bad);
        }
        if let Some(bad) = all {
            let _ = writeln!(self.out, "  br i1 {bad}, label %refuse, label %run\nrun:");
            self.block = "run".to_owned();
        }
    }

    fn call(&mut self, kernel: &str, buffers: &[Address], sizes: &[i64], tasks: i64) {
        for (i, buffer) in buffers.iter().enumerate() {
            let pointer = self.address(*buffer);
            let slot = self.def(&format!("getelementptr ptr, ptr %buffers, i64 {i}"));
            let _ = writeln!(self.out, "  store ptr {pointer}, ptr {slot}");
        }
        let sizes = match sizes {
            [] => "%buffers".to_owned(),
            sizes => self.table(sizes),
        };
        let _ =
            writeln!(self.out, "  call void @\"{kernel}\"(ptr %buffers, ptr {sizes}, i64 0, i64 {tasks})");
    }

    /// A constant array.
    fn table(&mut self, numbers: &[i64]) -> String {
        let name = format!("@sizes{}", self.n_names);
        self.n_names += 1;
        let elements: Vec<String> = numbers.iter().map(|number| format!("i64 {number}")).collect();
        let _ = writeln!(
            self.constants,
            "{name} = private unnamed_addr constant [{} x i64] [{}]",
            numbers.len(),
            elements.join(", ")
        );
        name
    }

    /// Words, then the bytes that are left. Nothing is known of the addresses' alignment.
    fn copy(&mut self, from: Address, to: Address, bytes: u64) {
        let (from, to) = (self.address(from), self.address(to));
        for (unit, first, end) in [(WORD, 0, bytes / WORD * WORD), (1, bytes / WORD * WORD, bytes)] {
            if first == end {
                continue;
            }
            let (head, before) = (format!("copy{}", self.n_names), self.block.clone());
            self.n_names += 1;
            let ty = format!("i{}", 8 * unit);
            let _ = writeln!(self.out, "  br label %{head}\n{head}:");
            let _ = writeln!(
                self.out,
                "  %{head}.at = phi i64 [ {first}, %{before} ], [ %{head}.next, %{head} ]"
            );
            let source = self.def(&format!("getelementptr i8, ptr {from}, i64 %{head}.at"));
            let target = self.def(&format!("getelementptr i8, ptr {to}, i64 %{head}.at"));
            let value = self.def(&format!("load {ty}, ptr {source}, align 1"));
            let _ = writeln!(self.out, "  store {ty} {value}, ptr {target}, align 1");
            let _ = writeln!(self.out, "  %{head}.next = add i64 %{head}.at, {unit}");
            let more = self.def(&format!("icmp ne i64 %{head}.next, {end}"));
            let _ = writeln!(self.out, "  br i1 {more}, label %{head}, label %{head}.done\n{head}.done:");
            self.block = format!("{head}.done");
        }
    }

    fn address(&mut self, address: Address) -> String {
        let base = self.base(address.base);
        match address.offset {
            0 => base,
            offset => self.def(&format!("getelementptr i8, ptr {base}, i64 {offset}")),
        }
    }

    fn base(&mut self, base: Base) -> String {
        let (list, i) = match base {
            Base::Workspace => return "%workspace".to_owned(),
            Base::Weights => return format!("@\"{}\"", self.function.weights),
            Base::Input(i) => ("%inputs", i),
            Base::Output(i) => ("%outputs", i),
        };
        let slot = self.def(&format!("getelementptr ptr, ptr {list}, i64 {i}"));
        self.def(&format!("load ptr, ptr {slot}, !invariant.load !0"))
    }

    fn def(&mut self, instruction: &str) -> String {
        let name = format!("%t{}", self.n_names);
        self.n_names += 1;
        let _ = writeln!(self.out, "  {name} = {instruction}");
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tilewright_machine::CodegenKind;

    #[test]
    fn a_run_is_checks_calls_and_copies() {
        let at = |base, offset| Address { base, offset };
        let function = RunFunction {
            symbol: "net_run".to_owned(),
            weights: "net.weights".to_owned(),
            checks: vec![Check { base: Base::Input(0), align: 64 }],
            steps: vec![
                RunStep::Call {
                    kernel: "k.0".to_owned(),
                    buffers: vec![at(Base::Input(0), 0), at(Base::Weights, 64), at(Base::Workspace, 128)],
                    sizes: vec![7],
                    tasks: 3,
                },
                RunStep::Copy { from: at(Base::Workspace, 128), to: at(Base::Output(1), 0), bytes: 17 },
            ],
        };
        let target = Target::parse("x86-64-v3", CodegenKind::Llvm).expect("a known machine");
        let text = translate_run(&function, &target);
        let has = |part: &str| assert!(text.contains(part), "no `{part}` in\n{text}");
        has("declare hidden void @\"k.0\"(ptr, ptr, i64, i64)");
        has("constant [1 x i64] [i64 7]");
        has("and i64 %t3, 63");
        has("getelementptr i8, ptr @\"net.weights\", i64 64");
        has("call void @\"k.0\"(ptr %buffers, ptr @sizes");
        has("i64 0, i64 3)");
        has("load i64");
        has("load i8");
    }
}
