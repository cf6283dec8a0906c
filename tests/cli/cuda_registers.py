"""Registers, shared memory and stack of every CUDA kernel as the assembler reports them, against the table in tests/golden/data/cuda_registers.csv.

The build already fails on spills and local memory; this also sees a kernel that grows. Architectures that were not built are left out. After a wanted
change: python3 tests/cli/cuda_registers.py --fathom build/fathom --source . --binary build --update
"""

import csv
import pathlib
import re
import subprocess
import sys
import unittest

import _cli
from _cli import CliTest, main

UPDATE = "--update" in sys.argv
if UPDATE:
    sys.argv.remove("--update")
COLUMNS = ("kernel", "arch", "registers", "shared", "stack", "spills")


def compiler_version(binary):
    found = re.search(r'CMAKE_CUDA_COMPILER_VERSION "([0-9.]+)"', "".join(p.read_text() for p in pathlib.Path(binary).glob("CMakeFiles/*/CMakeCUDACompiler.cmake")))
    return found.group(1) if found else None


def short(name):
    """'void fathom::cuda::norm_kernel<float, 4, true>(fathom::cuda::NormArgs)' -> 'norm_kernel<float, 4, true>'"""
    name = re.sub(r"\((?:[^()]|\([^()]*\))*\)$", "", re.sub(r"^void ", "", name))
    name = re.sub(r"\(anonymous namespace\)::|\(([a-z ]+)\)", "", name)
    return name.replace("fathom::cuda::", "").replace("fathom::", "")


def rows(binary):
    logs = sorted(pathlib.Path(binary).glob("CMakeFiles/fathom_cuda.dir/kernels/cuda/*.ptxas"))
    kernels = []
    for log in logs:
        kernel = None
        for line in log.read_text().splitlines():
            if found := re.search(r"Compiling entry function '(\S+)' for '(sm_\w+)'", line):
                kernel = {"mangled": found.group(1), "arch": found.group(2), "shared": 0, "stack": 0, "spills": 0}
                kernels.append(kernel)
            elif kernel and (found := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line)):
                kernel["stack"], kernel["spills"] = int(found.group(1)), int(found.group(2)) + int(found.group(3))
            elif kernel and (found := re.search(r"Used (\d+) registers", line)):
                kernel["registers"] = int(found.group(1))
                if smem := re.search(r"(\d+) bytes smem", line):
                    kernel["shared"] = int(smem.group(1))
    names = subprocess.run(["c++filt"], input="\n".join(k["mangled"] for k in kernels), capture_output=True, encoding="utf-8", check=True).stdout.splitlines()
    table = {}
    for kernel, name in zip(kernels, names):
        table[short(name), kernel["arch"]] = tuple(kernel.get(column, 0) for column in COLUMNS[2:])
    return table


class Registers(CliTest):
    def setUp(self):
        super().setUp()
        self.file = _cli.ARGUMENTS.source / "tests/golden/data/cuda_registers.csv"
        if not (_cli.ARGUMENTS.binary / "libfathom_cuda.so").exists():
            self.skipTest("the CUDA module was not built: no CUDA toolkit, so no registers to look at")
        self.built = rows(_cli.ARGUMENTS.binary)
        self.version = compiler_version(_cli.ARGUMENTS.binary)

    def test_no_kernel_spills_or_uses_local_memory(self):
        self.assertGreater(len(self.built), 20)
        self.assertEqual({key: value for key, value in self.built.items() if value[2] or value[3]}, {})

    def test_no_static_shared_memory(self):
        """Shared memory is dynamic (kernels/cuda/simt.hpp): the emulator sees only that."""
        self.assertEqual({key: value for key, value in self.built.items() if value[1]}, {})

    def test_registers_are_those_of_the_table(self):
        with self.file.open() as lines:
            header = lines.readline().strip()
            table = {(row["kernel"], row["arch"]): tuple(int(row[column]) for column in COLUMNS[2:]) for row in csv.DictReader(lines)}
        if header != f"# nvcc {self.version}":
            self.skipTest(f"the table is of '{header[2:]}', this build of nvcc {self.version}: another assembler counts otherwise")
        both = {arch for _, arch in self.built} & {arch for _, arch in table}
        self.assertTrue(both, "no architecture of this build stands in the table")
        wanted = {key: value for key, value in table.items() if key[1] in both}
        built = {key: value for key, value in self.built.items() if key[1] in both}
        self.assertEqual({k: v for k, v in built.items() if wanted.get(k) != v}, {}, "built, but not so in the table (--update after a wanted change)")
        self.assertEqual(sorted(set(wanted) - set(built)), [], "in the table, but not built")


def update():
    path = _cli.ARGUMENTS.source / "tests/golden/data/cuda_registers.csv"
    table = rows(_cli.ARGUMENTS.binary)
    if path.exists():  # architectures that this build leaves out keep their rows
        with path.open() as lines:
            if lines.readline().strip() == f"# nvcc {compiler_version(_cli.ARGUMENTS.binary)}":
                built = {arch for _, arch in table}
                table |= {(row["kernel"], row["arch"]): tuple(row[column] for column in COLUMNS[2:]) for row in csv.DictReader(lines) if row["arch"] not in built}
    with path.open("w") as out:
        out.write(f"# nvcc {compiler_version(_cli.ARGUMENTS.binary)}\n")
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(COLUMNS)
        for (kernel, arch), values in sorted(table.items()):
            writer.writerow((kernel, arch, *values))
    print(f"{path}: {len(table)} kernels")


if __name__ == "__main__":
    if UPDATE:
        parser = _cli.argparse.ArgumentParser()
        for option in ("--fathom", "--source", "--binary"):
            parser.add_argument(option, type=lambda path: pathlib.Path(path).resolve())
        parser.parse_known_args(namespace=_cli.ARGUMENTS)
        update()
    else:
        main()
