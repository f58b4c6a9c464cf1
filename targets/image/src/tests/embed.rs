//! Artifacts in the object of a runtime, read back.

use object::Object as _;

use super::*;
use crate::{EmbedError, Embedding, Machine, embed};

const ARTIFACT: [u8; 100] = [7; 100];
const FACTS: [u8; 24] = [3; 24];

/// `run` takes the artifact's address; `helper` is a function of the runtime's own.
fn runtime() -> Vec<u8> {
    let mut builder = Builder::new(Architecture::X86_64);
    // lea rax, [rip + artifact]; ret
    builder.function("run", &[0x48, 0x8d, 0x05, 0, 0, 0, 0, 0xc3]);
    builder.function("helper", &[0xc3]);
    builder.undefined("facts");
    builder.undefined("memcpy");
    let artifact = builder.undefined("artifact");
    builder.relocation(3, elf::R_X86_64_PC32, artifact, -4).bytes()
}

fn embedding<'a>(machine: Machine, functions: &'a [(&'a str, String)]) -> Embedding<'a> {
    Embedding { machine, code: ("artifact", &ARTIFACT), constants: ("facts", &FACTS), functions }
}

#[test]
fn the_functions_alone_have_names_for_others() {
    let functions = [("run", "net_run".to_owned())];
    let bytes = embed(&runtime(), &embedding(Machine::X86_64, &functions)).unwrap();
    let object = File::parse(&bytes[..]).unwrap();
    let named = object.symbols().filter(|symbol| symbol.is_global());
    let mut named: Vec<_> = named.map(|symbol| (symbol.name().unwrap(), symbol.is_definition())).collect();
    named.sort_unstable();
    assert_eq!(named, [("memcpy", false), ("net_run", true)]);
    let code = object.section_by_name(".text.artifact").unwrap();
    assert_eq!((code.data().unwrap(), code.align()), (&ARTIFACT[..], 4096));
    let facts = object.section_by_name(".rodata.facts").unwrap();
    assert_eq!(facts.data().unwrap(), FACTS);
    let text = object.section_by_name(".text").unwrap();
    let [(3, relocation)] = &text.relocations().collect::<Vec<_>>()[..] else { panic!("one relocation") };
    let RelocationTarget::Symbol(symbol) = relocation.target() else { panic!("of a symbol") };
    assert_eq!(object.symbol_by_index(symbol).unwrap().section_index(), Some(code.index()));
    assert_eq!(embed(&runtime(), &embedding(Machine::X86_64, &functions)).unwrap(), bytes, "deterministic");
}

#[test]
fn what_is_no_runtime_for_the_machine_is_refused() {
    let functions = [("run", "net_run".to_owned())];
    let other = embed(&runtime(), &embedding(Machine::AARCH64, &functions));
    assert!(matches!(other, Err(EmbedError::Machine { found: 62, expected: 183 })), "{other:?}");
    let functions = [("walk", "net_walk".to_owned())];
    let without = embed(&runtime(), &embedding(Machine::X86_64, &functions));
    assert!(matches!(&without, Err(EmbedError::Symbol(name)) if name == "walk"), "{without:?}");
    let none = embed(b"nothing", &embedding(Machine::X86_64, &[]));
    assert!(matches!(none, Err(EmbedError::Format(_))), "{none:?}");
}
