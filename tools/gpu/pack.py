"""Makes the folder that `check.py` and `bench.py` work in, and of it an archive for machines that have no compiler.

    pack.py folder FOLDER --models MODELS --target TARGET...
    pack.py archive FOLDER --models MODELS --target TARGET... --llvm PROGRAM --output ARCHIVE

`folder` makes the models without their weights, and pack.json. `archive` wants FOLDER/tilewright, a program without
LLVM, and the suite in FOLDER/kernels; it fills a cache with the functions of every case for every target, made by another program that has LLVM, and
holds the artifacts that the first makes of the cache against those of the other: they must be the same bytes. Needs the
package onnx.
"""
import argparse
import filecmp
import gzip
import json
import pathlib
import shutil
import subprocess
import sys
import tarfile
import time

HERE = pathlib.Path(__file__).resolve().parent
SCRIPTS = ["bench.py", "cases.py", "check.py", "memory.py", "operations.py", "peers.py", "weights.py"]
LIMIT_MIB = 48


def write_about(folder, **about):
    """What the scripts are told of the folder."""
    (folder / "pack.json").write_text(json.dumps(about, indent=1) + "\n")


def make_folder(options):
    """Models and pack.json."""
    folder = options.folder
    shutil.rmtree(folder / "models", ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, HERE / "skeletons.py", options.models, folder / "models"], check=True)
    write_about(folder, targets=options.target)


def fill(options, work):
    """Compiles every case with LLVM and without; how many artifacts were compared, which differ, what fails."""
    from cases import Failed, Place, every_case
    from operations import OPERATIONS, TINY

    folder = options.folder
    shutil.rmtree(folder / "cache", ignore_errors=True)
    (folder / "cache").mkdir()
    makes, takes = Place(folder, work, options.llvm), Place(folder, work)
    checked, other, failures = 0, [], []
    for case in [*every_case(), *(operation.case() for operation in [*OPERATIONS, TINY])]:
        for target in options.target:
            start = time.monotonic()
            made, taken = work / "made.twm", work / "taken.twm"
            try:
                makes.compile(case, target, made, "llvm", 1200)
            except Failed as failure:
                failures.append(f"{case.name} for {target}: {failure}")
                continue
            said = takes.compile(case, target, taken, "llvm", 1200)
            same = filecmp.cmp(made, taken, shallow=False) and said["cached_functions"] == said["functions"]
            checked += 1
            other += [] if same else [f"{case.name} for {target}"]
            seconds = time.monotonic() - start
            print(f"{case.name} {target}: {said['functions']} functions, {seconds:.1f} s", flush=True)
    write_about(folder, targets=options.target, llvm=(folder / "cache/generator").read_text().strip())
    return checked, other, failures


def write_archive(folder, output):
    """The folder without what was made in it, the same bytes for the same files; its size in MiB."""
    names = ["cache", "kernels", "models", "pack.json", "tilewright", "README.md", *SCRIPTS]

    def plain(entry):
        entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = 0, 0, 0, "", ""
        entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
        return None if "__pycache__" in entry.name else entry

    with open(output, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as zipped:
        with tarfile.open(fileobj=zipped, mode="w") as archive:
            for name in sorted(names):
                for path in sorted([folder / name, *(folder / name).rglob("*")]):
                    archive.add(path, f"gpu-pack/{path.relative_to(folder)}", recursive=False, filter=plain)
    return output.stat().st_size / 2**20


def make_archive(options):
    """All of it."""
    make_folder(options)
    folder = options.folder
    for name in SCRIPTS:
        shutil.copyfile(HERE / name, folder / name)
    shutil.copyfile(HERE.parents[1] / "docs/gpus.md", folder / "README.md")
    work = folder.parent / "gpu-pack-work"
    checked, other, failures = fill(options, work)
    shutil.rmtree(work)
    for failure in failures:
        print(f"not in the pack, for it does not compile: {failure}")
    if other:
        sys.exit(f"not the same bytes from the cache: {', '.join(other)}")
    size = write_archive(folder, options.output)
    print(f"{checked} artifacts are the same bytes with LLVM and from the cache")
    print(f"{options.output}  {size:.1f} MiB")
    if size > LIMIT_MIB:
        sys.exit(f"the archive has {size:.1f} MiB, and more than {LIMIT_MIB} MiB is too much: ask for fewer targets")


def main():
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["folder", "archive"])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--models", type=pathlib.Path, required=True)
    parser.add_argument("--target", action="append", required=True)
    parser.add_argument("--llvm", type=pathlib.Path)
    parser.add_argument("--output", type=pathlib.Path)
    options = parser.parse_args()
    make_folder(options) if options.verb == "folder" else make_archive(options)


if __name__ == "__main__":
    main()
