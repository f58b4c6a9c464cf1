//! Libraries: what their files say, read back.

use object::read::archive::ArchiveFile;
use object::read::elf::ElfFile64;
use object::{Object as _, ObjectSegment as _};

use super::*;

const WEIGHTS: [u8; 200] = [5; 200];

/// A kernel in an image, and a function that calls it and takes the address of the second 64 bytes of the weights.
fn x86_library() -> Library {
    let mut kernel = Builder::new(Architecture::X86_64);
    kernel.function("kernel", &[0xc3]);
    let image = link(&[kernel.bytes()], &["kernel"]).unwrap();
    let mut run = Builder::new(Architecture::X86_64);
    // call kernel; lea rax, [rip + weights + 64]; ret
    run.function("net_run", &[0xe8, 0, 0, 0, 0, 0x48, 0x8d, 0x05, 0, 0, 0, 0, 0xc3]);
    let (kernel, weights) = (run.undefined("kernel"), run.undefined("net_weights"));
    let run = run.relocation(1, elf::R_X86_64_PLT32, kernel, -4);
    let run = run.relocation(8, elf::R_X86_64_PC32, weights, 64 - 4).bytes();
    Library::new(image, &["kernel"], &run, "net_run", "net_weights").unwrap()
}

fn names<'a>(symbols: impl Iterator<Item = impl ObjectSymbol<'a>>) -> Vec<(String, bool)> {
    let named = symbols.filter(|symbol| symbol.is_global());
    named.map(|symbol| (symbol.name().unwrap().to_owned(), symbol.is_definition())).collect()
}

#[test]
fn an_object_has_one_name_for_others_and_refers_to_its_weights() {
    let library = x86_library();
    let bytes = library.object(&WEIGHTS).unwrap();
    let object = File::parse(&bytes[..]).unwrap();
    assert_eq!(names(object.symbols()), [("net_run".to_owned(), true)]);
    let text = object.section_by_name(".text.net_run").unwrap();
    let weights = object.section_by_name(".rodata.net_run").unwrap();
    assert_eq!((weights.data().unwrap(), weights.align()), (&WEIGHTS[..], 64));
    let [(at, relocation)] = &text.relocations().collect::<Vec<_>>()[..] else { panic!("one relocation") };
    assert_eq!((*at, relocation.addend()), (library.entry + 8, 60));
    // The call is within the image, and done.
    let call = library.entry as usize + 1;
    let distance = i32::from_le_bytes(text.data().unwrap()[call..call + 4].try_into().unwrap());
    assert_eq!(call as i32 + 4 + distance, 0, "the kernel is at the image's start");
    assert_eq!(library.object(&WEIGHTS).unwrap(), bytes, "deterministic");
}

#[test]
fn an_archive_lists_the_function() {
    let bytes = x86_library().archive(&WEIGHTS, "net.o").unwrap();
    let archive = ArchiveFile::parse(&bytes[..]).unwrap();
    let symbols = archive.symbols().unwrap().unwrap();
    let listed: Vec<_> = symbols.map(|symbol| symbol.unwrap().name().to_vec()).collect();
    assert_eq!(listed, [b"net_run".to_vec()]);
    let members: Vec<_> = archive.members().map(|member| member.unwrap().name().to_vec()).collect();
    assert_eq!(members, [b"net.o".to_vec()]);
}

#[test]
fn a_shared_library_reaches_its_weights_in_memory() {
    let library = x86_library();
    let bytes = library.shared(&WEIGHTS, "libnet.so").unwrap();
    let file = ElfFile64::<object::Endianness>::parse(&bytes[..]).unwrap();
    assert_eq!(names(file.dynamic_symbols()), [("net_run".to_owned(), true)]);
    let run = file.dynamic_symbols().next().unwrap().address();
    // As a loader does it: each segment at its address.
    let mut memory = vec![0u8; 1 << 16];
    let mut ranges = Vec::new();
    for segment in file.segments() {
        let (start, data) = (segment.address() as usize, segment.data().unwrap());
        assert_eq!(
            segment.address() % 4096,
            segment.file_range().0 % 4096,
            "pages of the file are pages of memory"
        );
        memory[start..start + data.len()].copy_from_slice(data);
        ranges.push((start / 4096, (start + data.len() - 1) / 4096));
    }
    ranges.sort_unstable();
    assert!(ranges.windows(2).all(|pair| pair[0].1 < pair[1].0), "no two segments share a page: {ranges:?}");
    let lea = run as usize + 8;
    let distance = i32::from_le_bytes(memory[lea..lea + 4].try_into().unwrap());
    let target = (lea as i64 + 4 + i64::from(distance)) as usize;
    assert_eq!(memory[target - 64..target - 64 + WEIGHTS.len()], WEIGHTS);
    assert_eq!(target % 64, 0);
}

#[test]
fn a_function_that_needs_more_than_weights_is_refused() {
    let image = link(&x86_pair(), &["first"]).unwrap();
    let mut run = Builder::new(Architecture::X86_64);
    run.function("net_run", &[0xe9, 0, 0, 0, 0]);
    let malloc = run.undefined("malloc");
    let run = run.relocation(1, elf::R_X86_64_PLT32, malloc, -4).bytes();
    let error = Library::new(image, &["first"], &run, "net_run", "net_weights").unwrap_err().to_string();
    assert!(error.contains("net_run calls malloc"), "{error}");
}
