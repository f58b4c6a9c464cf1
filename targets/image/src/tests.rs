//! Tests on objects made here byte by byte, so that both architectures are covered on any machine.

use object::elf;
use object::write::{Object, Relocation, SectionId, StandardSection, Symbol, SymbolId, SymbolSection};
use object::{Architecture, BinaryFormat, Endianness, RelocationFlags, SymbolFlags, SymbolKind, SymbolScope};

use super::*;

mod embed;
mod libraries;

struct Builder {
    object: Object<'static>,
    text: SectionId,
}

impl Builder {
    fn new(architecture: Architecture) -> Builder {
        let mut object = Object::new(BinaryFormat::Elf, architecture, Endianness::Little);
        let text = object.section_id(StandardSection::Text);
        Builder { object, text }
    }

    fn symbol(&mut self, name: &str, section: SymbolSection, kind: SymbolKind, value: u64) -> SymbolId {
        let (name, scope) = (name.as_bytes().to_vec(), SymbolScope::Linkage);
        let flags = SymbolFlags::None;
        self.object.add_symbol(Symbol { name, value, size: 0, kind, scope, weak: false, section, flags })
    }

    fn function(&mut self, name: &str, code: &[u8]) -> SymbolId {
        let start = self.object.append_section_data(self.text, code, 16);
        self.symbol(name, SymbolSection::Section(self.text), SymbolKind::Text, start)
    }

    fn constant(&mut self, name: &str, section: StandardSection, bytes: &[u8]) -> SymbolId {
        let section = self.object.section_id(section);
        let start = self.object.append_section_data(section, bytes, 16);
        self.symbol(name, SymbolSection::Section(section), SymbolKind::Data, start)
    }

    fn undefined(&mut self, name: &str) -> SymbolId {
        self.symbol(name, SymbolSection::Undefined, SymbolKind::Text, 0)
    }

    fn relocation(
        mut self,
        offset: u64,
        r_type: elf::RelocationType,
        symbol: SymbolId,
        addend: i64,
    ) -> Builder {
        let flags = RelocationFlags::Elf { r_type };
        self.object.add_relocation(self.text, Relocation { offset, symbol, addend, flags }).unwrap();
        self
    }

    fn bytes(self) -> Vec<u8> {
        self.object.write().unwrap()
    }
}

fn i32_at(image: &Image, at: usize) -> i32 {
    i32::from_le_bytes(image.bytes[at..at + 4].try_into().unwrap())
}

fn u32_at(image: &Image, at: usize) -> u32 {
    i32_at(image, at) as u32
}

fn check_error(objects: &[Vec<u8>], entries: &[&str], expect: &str) {
    let message = link(objects, entries).unwrap_err().to_string();
    assert!(message.contains(expect), "{message:?} does not contain {expect:?}");
}

/// `lea rax, [rip + constant]; ret` twice, in two objects.
fn x86_pair() -> [Vec<u8>; 2] {
    [("first", 0x11u8), ("second", 0x22)].map(|(name, byte)| {
        let mut builder = Builder::new(Architecture::X86_64);
        builder.function(name, &[0x48, 0x8d, 0x05, 0, 0, 0, 0, 0xc3]);
        let constant = builder.constant(&format!("{name}_data"), StandardSection::ReadOnlyData, &[byte; 4]);
        builder.relocation(3, elf::R_X86_64_PC32, constant, -4).bytes()
    })
}

#[test]
fn text_comes_first_and_references_reach_their_data() {
    let image = link(&x86_pair(), &["second", "first"]).unwrap();
    assert_eq!(image.entries, [16, 0]);
    assert_eq!(image.align, 64);
    assert_eq!(image.bytes[8], 0xcc, "traps between functions");
    for (entry, byte) in [(0, 0x11), (16, 0x22)] {
        let target = (entry as i32 + 7 + i32_at(&image, entry + 3)) as usize;
        assert!(target >= 64, "data starts on its own line");
        assert_eq!(image.bytes[target..target + 4], [byte; 4]);
    }
    assert_eq!(link(&x86_pair(), &["second", "first"]).unwrap(), image, "deterministic");
}

#[test]
fn objects_may_refer_to_each_other() {
    let mut caller = Builder::new(Architecture::X86_64);
    caller.function("caller", &[0xe9, 0, 0, 0, 0]);
    let callee = caller.undefined("callee");
    let caller = caller.relocation(1, elf::R_X86_64_PLT32, callee, -4).bytes();
    let mut callee = Builder::new(Architecture::X86_64);
    callee.function("callee", &[0xc3]);
    let image = link(&[caller, callee.bytes()], &["caller", "callee"]).unwrap();
    assert_eq!(i64::from(i32_at(&image, 1)) + 5, image.entries[1] as i64);
}

#[test]
fn undefined_symbols_are_all_named_with_their_callers() {
    let mut builder = Builder::new(Architecture::X86_64);
    builder.function("kernel_1", &[0xe9, 0, 0, 0, 0]);
    builder.function("kernel_2", &[0xe9, 0, 0, 0, 0]);
    let (memcpy, fmod) = (builder.undefined("memcpy"), builder.undefined("fmod"));
    let object =
        builder.relocation(17, elf::R_X86_64_PLT32, fmod, -4).relocation(1, elf::R_X86_64_PLT32, memcpy, -4);
    let expect = "a kernel must call nothing, but kernel_1 calls memcpy, kernel_2 calls fmod";
    check_error(&[object.bytes()], &["kernel_1"], expect);
}

#[test]
fn what_needs_a_system_linker_is_refused() {
    let with = |r_type, data: StandardSection| {
        let mut builder = Builder::new(Architecture::X86_64);
        builder.function("kernel", &[0; 16]);
        let symbol = builder.constant("table", data, &[1; 8]);
        builder.relocation(0, r_type, symbol, 0).bytes()
    };
    let absolute = "is not position-independent or not supported";
    check_error(&[with(elf::R_X86_64_64, StandardSection::ReadOnlyData)], &["kernel"], absolute);
    check_error(&[with(elf::R_X86_64_GOTPCREL, StandardSection::ReadOnlyData)], &["kernel"], absolute);
    check_error(&[with(elf::R_X86_64_PC32, StandardSection::Data)], &["kernel"], "no writable data");
    check_error(
        &[with(elf::R_X86_64_PC32, StandardSection::ReadOnlyDataWithRel)],
        &["kernel"],
        "no writable data",
    );
}

#[test]
fn other_files_duplicates_and_missing_entries_are_refused() {
    let [first, _] = x86_pair();
    check_error(&[b"not an object".to_vec()], &[], "object 0: ");
    check_error(&[first.clone(), first.clone()], &["first"], "is defined twice");
    check_error(std::slice::from_ref(&first), &["first", "third", "fourth"], r#"["third", "fourth"]"#);
    let arm = Builder::new(Architecture::Aarch64).bytes();
    check_error(&[first.clone(), arm], &[], "object 1: expected a relocatable ELF object");
    check_error(&[Builder::new(Architecture::Riscv32).bytes()], &[], "found Elf Relocatable, Riscv32");
    check_error(&[first[..first.len() / 2].to_vec()], &["first"], "object 0: ");
}

#[test]
fn aarch64_fields_hold_pages_offsets_and_branches() {
    let mut builder = Builder::new(Architecture::Aarch64);
    // adrp x0, constant; ldr q0, [x0, constant]; add x0, x0, constant; bl callee; and a page of nothing.
    let words: [u32; 4] = [0x9000_0000, 0x3dc0_0000, 0x9100_0000, 0x9400_0000];
    let mut code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    code.resize(8192, 0);
    builder.function("kernel", &code);
    let callee = builder.function("callee", &0xd65f_03c0u32.to_le_bytes());
    builder.constant("before", StandardSection::ReadOnlyData, &[7; 32]);
    let constant = builder.constant("constant", StandardSection::ReadOnlyData, &[9; 16]);
    let object = builder
        .relocation(0, elf::R_AARCH64_ADR_PREL_PG_HI21, constant, 0)
        .relocation(4, elf::R_AARCH64_LDST128_ABS_LO12_NC, constant, 0)
        .relocation(8, elf::R_AARCH64_ADD_ABS_LO12_NC, constant, 0)
        .relocation(12, elf::R_AARCH64_CALL26, callee, 0);
    let image = link(&[object.bytes()], &["kernel", "callee"]).unwrap();
    assert_eq!(image.align, 4096);
    assert_eq!(image.entries, [0, 8192]);
    // Text ends at 8196, data starts at 8256, the constant is 32 bytes on: page 2, offset 96.
    let pages = 2u32;
    assert_eq!(u32_at(&image, 0), 0x9000_0000 | ((pages & 3) << 29) | ((pages >> 2) << 5));
    assert_eq!(u32_at(&image, 4), 0x3dc0_0000 | ((96 / 16) << 10));
    assert_eq!(u32_at(&image, 8), 0x9100_0000 | (96 << 10));
    assert_eq!(u32_at(&image, 12), 0x9400_0000 | ((8192 - 12) / 4));
    assert_eq!(image.bytes[8192 + 64 + 32], 9);
}

#[test]
fn a_load_of_misaligned_data_is_refused() {
    let mut builder = Builder::new(Architecture::Aarch64);
    builder.function("kernel", &0x3dc0_0000u32.to_le_bytes());
    let constant = builder.constant("constant", StandardSection::ReadOnlyData, &[9; 32]);
    let object = builder.relocation(0, elf::R_AARCH64_LDST128_ABS_LO12_NC, constant, 8);
    check_error(&[object.bytes()], &["kernel"], r#"reference to "constant" is out of range"#);
}

#[test]
fn riscv_pairs_meet_by_the_place_of_their_upper_half() {
    let mut builder = Builder::new(Architecture::Riscv64);
    // auipc a0; lw a1, (a0); sw a1, (a0); call (auipc ra; jalr ra); and bytes up to 4096.
    let words: [u32; 5] = [0x0000_0517, 0x0005_2583, 0x00b5_2023, 0x0000_0097, 0x0000_80e7];
    let mut code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    code.resize(4096, 0);
    builder.function("kernel", &code);
    let callee = builder.function("callee", &0x0000_8067u32.to_le_bytes());
    let text = builder.text;
    let upper = builder.symbol("upper", SymbolSection::Section(text), SymbolKind::Label, 0);
    builder.constant("before", StandardSection::ReadOnlyData, &[7; 16]);
    let constant = builder.constant("constant", StandardSection::ReadOnlyData, &[9; 16]);
    // The lower halves come first: they wait for their upper one.
    let object = builder
        .relocation(4, elf::R_RISCV_PCREL_LO12_I, upper, 0)
        .relocation(8, elf::R_RISCV_PCREL_LO12_S, upper, 0)
        .relocation(0, elf::R_RISCV_PCREL_HI20, constant, 0)
        .relocation(12, elf::R_RISCV_CALL_PLT, callee, 0);
    let image = link(&[object.bytes()], &["kernel", "callee"]).unwrap();
    assert_eq!(image.align, 64);
    // Text ends at 4100, data starts at 4160, the constant is 16 bytes on: one page and 80 bytes.
    assert_eq!(u32_at(&image, 0), 0x0000_0517 | 1 << 12);
    assert_eq!(u32_at(&image, 4), 0x0005_2583 | 80 << 20);
    assert_eq!(u32_at(&image, 8), 0x00b5_2023 | (80 >> 5) << 25 | (80 & 0x1f) << 7);
    // 4084 are a page less 12.
    assert_eq!(u32_at(&image, 12), 0x0000_0097 | 1 << 12);
    assert_eq!(u32_at(&image, 16), 0x0000_80e7 | 0xff4 << 20);
}

#[test]
fn riscv_branches_scatter_their_bits() {
    let mut builder = Builder::new(Architecture::Riscv64);
    // jal x0; beq x0, x0; c.j; c.beqz a0; and bytes up to 256.
    let mut code =
        [0x0000_006fu32, 0x0000_0063].iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    code.extend([0xa001u16, 0xc101].iter().flat_map(|half| half.to_le_bytes()));
    code.resize(128, 0);
    builder.function("kernel", &code);
    let callee = builder.function("callee", &0x0000_8067u32.to_le_bytes());
    let object = builder
        .relocation(0, elf::R_RISCV_JAL, callee, 0)
        .relocation(4, elf::R_RISCV_BRANCH, callee, 0)
        .relocation(8, elf::R_RISCV_RVC_JUMP, callee, 0)
        .relocation(10, elf::R_RISCV_RVC_BRANCH, callee, 0);
    let image = link(&[object.bytes()], &["kernel"]).unwrap();
    // As llvm-mc encodes them: j .+128; beqz x0, .+124; c.j .+120; c.beqz a0, .+118.
    assert_eq!(u32_at(&image, 0), 0x0800_006f);
    assert_eq!(u32_at(&image, 4), 0x0600_0e63);
    assert_eq!(u32_at(&image, 8) & 0xffff, 0xa8a5);
    assert_eq!(u32_at(&image, 8) >> 16, 0xc93d);
}

#[test]
fn a_lower_half_without_its_upper_half_is_refused() {
    let mut builder = Builder::new(Architecture::Riscv64);
    builder.function("kernel", &[0x83, 0x25, 0x05, 0x00]);
    let constant = builder.constant("constant", StandardSection::ReadOnlyData, &[9; 16]);
    let object = builder.relocation(0, elf::R_RISCV_PCREL_LO12_I, constant, 0);
    check_error(&[object.bytes()], &["kernel"], r#"relocation 24 against "kernel""#);
}

#[test]
fn arm_fields_keep_their_addends() {
    let mut builder = Builder::new(Architecture::Arm);
    // bl callee (less the 8 that the program counter is ahead); movw r0; movt r0; a word less 4.
    let words: [u32; 4] = [0xebff_fffe, 0xe300_0000, 0xe340_0000, 0xffff_fffc];
    let mut code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    code.resize(0x2_0000, 0);
    builder.function("kernel", &code);
    let callee = builder.function("callee", &0xe12f_ff1eu32.to_le_bytes());
    let object = builder
        .relocation(0, elf::R_ARM_CALL, callee, 0)
        .relocation(4, elf::R_ARM_MOVW_PREL_NC, callee, 0)
        .relocation(8, elf::R_ARM_MOVT_PREL, callee, 0)
        .relocation(12, elf::R_ARM_REL32, callee, 0);
    let image = link(&[object.bytes()], &["kernel", "callee"]).unwrap();
    assert_eq!(image.entries, [0, 0x2_0000]);
    assert_eq!(u32_at(&image, 0), 0xeb00_0000 | ((0x2_0000 - 8) / 4));
    assert_eq!(u32_at(&image, 4), 0xe30f_0ffc);
    assert_eq!(u32_at(&image, 8), 0xe340_0001);
    assert_eq!(u32_at(&image, 12), 0x2_0000 - 12 - 4);
}

#[test]
fn thumb_fields_are_two_halves() {
    let mut builder = Builder::new(Architecture::Arm);
    // bl, less the 4 that the program counter is ahead, forwards and backwards.
    let bl = [0xff, 0xf7, 0xfe, 0xff];
    let mut code = vec![0; 4676];
    code[..4].copy_from_slice(&bl);
    code[4672..].copy_from_slice(&bl);
    // movw r1; movt r1: of a distance and 8, and 4.
    code[8..16].copy_from_slice(&[0x40, 0xf2, 0x08, 0x01, 0xc0, 0xf2, 0x04, 0x01]);
    let first = builder.object.append_section_data(builder.text, &code, 16);
    // Functions of Thumb have odd addresses.
    let text = SymbolSection::Section(builder.text);
    let kernel = builder.symbol("kernel", text, SymbolKind::Text, first + 1);
    let callee = builder.symbol("callee", text, SymbolKind::Text, 4673);
    let constant = builder.constant("constant", StandardSection::ReadOnlyData, &[9; 16]);
    let object = builder
        .relocation(0, elf::R_ARM_THM_PC22, callee, 0)
        .relocation(8, elf::R_ARM_THM_MOVW_PREL_NC, constant, 0)
        .relocation(12, elf::R_ARM_THM_MOVT_PREL, constant, 0)
        .relocation(4672, elf::R_ARM_THM_PC22, kernel, 0);
    let image = link(&[object.bytes()], &["kernel", "callee"]).unwrap();
    assert_eq!(image.entries, [1, 4673]);
    assert_eq!(image.bytes[..4], [0x01, 0xf0, 0x1e, 0xf9]);
    assert_eq!(image.bytes[4672..4676], [0xfe, 0xf7, 0xde, 0xfe]);
    // The constant is at 4736: 4736 - 8 + 8 and the upper half of 4736 - 12 + 4.
    assert_eq!(image.bytes[8..16], [0x41, 0xf2, 0x80, 0x21, 0xc0, 0xf2, 0x00, 0x01]);
}
