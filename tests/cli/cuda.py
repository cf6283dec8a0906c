"""The CUDA backend as a user meets it on a machine without a GPU: listed with its reason, refused with exit 4, and never loaded by anything else."""

import os
import pathlib
import shutil
import subprocess
import unittest

import _cli
from _cli import CliTest, main

ABSENT = ("no NVIDIA driver found", "no GPU visible", "fathom needs 13.0", "stub library", "was not found", "no code for this GPU")


def module():
    return pathlib.Path(_cli.ARGUMENTS.binary) / "libfathom_cuda.so"


def has_gpu(listed):
    return "unavailable:" not in listed


class Cuda(CliTest):
    def cuda_line(self, **keywords):
        rows = self.run_fathom("list", "backends", "-o", "csv", **keywords).stdout.splitlines()
        return next(row for row in rows if row.startswith("cuda,"))

    def libraries(self, *arguments):
        """Every shared library that the dynamic linker opened for this command."""
        result = self.run_fathom(*arguments, code=None, env={"LD_DEBUG": "files", "LD_DEBUG_OUTPUT": str(self.folder / "ld")})
        del result
        return "".join(path.read_text(errors="replace") for path in self.folder.glob("ld.*"))

    def test_listed_with_a_reason(self):
        line = self.cuda_line()
        self.assertTrue(has_gpu(line) or any(words in line for words in ABSENT), line)

    def test_run_without_a_device_is_refused(self):
        if has_gpu(self.cuda_line()):
            self.skipTest("this machine has a GPU")
        reason = next(words for words in ABSENT if words in self.cuda_line())
        for command in ("run", "compare"):
            extra = ("--on", "h200") if command == "compare" else ()
            self.refuses(4, ["the cuda backend is not available", reason], command, "mod-60m", "--backend", "cuda", *extra)

    def test_a_named_module_is_the_only_one_tried(self):
        line = self.cuda_line(env={"FATHOM_CUDA_MODULE": "/nowhere/module.so"})
        self.assertIn("unavailable: the CUDA module was not found (looked for /nowhere/module.so)", line)
        broken = self.write("module.so", "not a library")
        self.assertIn("the CUDA module cannot be loaded", self.cuda_line(env={"FATHOM_CUDA_MODULE": str(broken)}))
        self.refuses(4, "the CUDA module was not found", "run", "mod-60m", "--backend", "cuda", env={"FATHOM_CUDA_MODULE": "/nowhere/module.so"})

    def test_found_in_lib_fathom_after_install(self):
        if not module().exists():
            self.skipTest("the module was not built: no CUDA toolkit")
        program = self.folder / "bin" / "fathom"
        program.parent.mkdir()
        shutil.copy2(_cli.ARGUMENTS.fathom, program)
        listed = subprocess.run([program, "list", "backends", "-o", "csv"], capture_output=True, encoding="utf-8", check=True).stdout
        self.assertIn("was not found", listed)
        target = self.folder / "lib" / "fathom"
        target.mkdir(parents=True)
        (target / module().name).symlink_to(module())
        listed = subprocess.run([program, "list", "backends", "-o", "csv"], capture_output=True, encoding="utf-8", check=True).stdout
        self.assertNotIn("was not found", listed)

    def test_nothing_else_loads_cuda(self):
        for arguments in (("--version",), ("count", "mod-60m"), ("predict", "mod-60m", "--on", "h200"), ("list", "models"), ("completion", "bash")):
            opened = self.libraries(*arguments)
            self.assertIn("libc.so", opened, arguments)
            for name in ("fathom_cuda", "cublas", "libcuda", "cupti"):
                self.assertNotIn(name, opened, f"{arguments} opened {name}")

    def test_the_program_links_no_cuda(self):
        linked = subprocess.run(["ldd", _cli.ARGUMENTS.fathom], capture_output=True, encoding="utf-8", check=True, env={**os.environ, "LC_ALL": "C"}).stdout
        for name in ("cuda", "cublas", "cupti", "nvidia"):
            self.assertNotIn(name, linked)

    def test_the_module_exports_its_entry_and_nothing_else(self):
        if not module().exists():
            self.skipTest("the module was not built: no CUDA toolkit")
        symbols = subprocess.run(["nm", "-D", "--defined-only", module()], capture_output=True, encoding="utf-8", check=True).stdout.split()
        self.assertEqual([word for word in symbols if len(word) > 1 and not all(c in "0123456789abcdef" for c in word)], ["fathom_cuda_module"])
        needed = subprocess.run(["readelf", "-d", module()], capture_output=True, encoding="utf-8", check=True).stdout
        for name in ("libcuda.so", "libcudart", "libcupti", "libnvidia"):
            self.assertNotIn(f"[{name}", needed, f"{name} must not be linked")


if __name__ == "__main__":
    main()
