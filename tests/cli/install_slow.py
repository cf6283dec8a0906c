"""cmake --install, the CMake package and the Debian packages: what lands where, and that others can use it."""

import gzip
import pathlib
import re
import shutil
import subprocess
import unittest

from _cli import ARGUMENTS, CliTest, main, sanitized

EXAMPLE = "tests/package"


def run(*command, **keywords):
    done = subprocess.run(list(map(str, command)), capture_output=True, encoding="utf-8", timeout=600, **keywords)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


class Install(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.prefix = pathlib.Path(ARGUMENTS.binary) / "tests" / "prefix"
        shutil.rmtree(cls.prefix, ignore_errors=True)
        run("cmake", "--install", ARGUMENTS.binary, "--prefix", cls.prefix)

    def test_files(self):
        share = self.prefix / "share"
        for name in ("bin/fathom", "share/fathom/networks/mod-60m.ini", "share/fathom/machines/h200.ini", "share/fathom/machines/h200.gpu",
                     "share/fathom/record.schema.json", "share/doc/fathom/README.md", "share/doc/fathom/copyright",
                     "share/doc/fathom/examples/calculator/main.cpp", "include/fathom/lib/op.hpp", "include/fathom/models/builder.hpp",
                     "include/fathom/models/import/hf_config.hpp"):
            self.assertTrue((self.prefix / name).is_file(), name)
        readme = (share / "doc/fathom/README.md").read_text()
        for link in re.findall(r"\]\((reports/[^)#]+)\)", readme):
            self.assertTrue((share / "doc/fathom" / link).exists(), link)
        self.assertTrue(list(self.prefix.glob("lib*/**/cmake/fathom/fathomConfig.cmake")))
        self.assertEqual((share / "bash-completion/completions/fathom").read_text(), self.run_fathom("completion", "bash").stdout)
        self.assertEqual((share / "zsh/vendor-completions/_fathom").read_text(), self.run_fathom("completion", "zsh").stdout)
        self.assertEqual((share / "fish/vendor_completions.d/fathom.fish").read_text(), self.run_fathom("completion", "fish").stdout)
        commands = re.findall(r"(?m)^  ([a-z]+)  ", self.run_fathom("--help").stdout)
        for page, arguments in [("fathom", ["man"]), *((f"fathom-{command}", ["man", command]) for command in commands)]:
            file = share / f"man/man1/{page}.1.gz"
            if not shutil.which("gzip"):
                file = file.with_suffix("")
            text = gzip.open(file, "rt").read() if file.suffix == ".gz" else file.read_text()
            self.assertEqual(text, self.run_fathom("completion", *arguments).stdout, page)

    def test_the_installed_program_needs_nothing_of_the_source_tree(self):
        moved = self.folder / "elsewhere" / "fathom"
        moved.parent.mkdir()
        shutil.copy(self.prefix / "bin" / "fathom", moved)
        out = run(moved, "count", "mod-60m", "-o", "csv", cwd=self.folder, env={"PATH": "/usr/bin:/bin"})
        self.assertIn("mod-60m", out)

    def test_a_program_outside_finds_the_package(self):
        if sanitized():
            self.skipTest("the libraries need the sanitizer that they were built with")
        source = ARGUMENTS.source / EXAMPLE
        run("cmake", "-G", "Ninja", "-S", source, "-B", self.folder / "build", f"-DCMAKE_PREFIX_PATH={self.prefix}", f"-DCMAKE_CXX_COMPILER={ARGUMENTS.cxx}")
        run("cmake", "--build", self.folder / "build")
        flops = [self.json("count", "gpt2-124m", "--seq", "1024", *twin, "-o", "json")["totals"]["flops_matmul"]
                 for twin in ([], ["--mod-every", "2", "--capacity", "1/8"])]
        self.assertEqual(run(self.folder / "build" / "savings"), "gpt2-124m: %d FLOP\ngpt2-124m-mod: %d FLOP\n" % tuple(flops))

    @unittest.skipUnless(shutil.which("cpack") and shutil.which("dpkg-deb") and shutil.which("dpkg-shlibdeps") and shutil.which("file"), "no Debian packaging tools")
    def test_debian_packages(self):
        run("cpack", "-G", "DEB", "--config", ARGUMENTS.binary / "CPackConfig.cmake", "-B", self.folder, cwd=self.folder)
        packages = {path.name.split("_")[0]: path for path in self.folder.glob("*.deb")}
        self.assertEqual(set(packages), {"fathom", "libfathom-dev"})
        field = lambda package, name: run("dpkg-deb", "-f", packages[package], name).strip()
        depends = field("fathom", "Depends")
        for library in ("libc6", "libstdc++6", "libfmt9" if "libfmt9" in depends else "libfmt", "libboost-program-options"):
            self.assertIn(library, depends)
        needed = run("objdump", "-p", ARGUMENTS.fathom) if shutil.which("objdump") else ""
        self.assertEqual("libdnnl" in needed, "libdnnl" in depends, "oneDNN is a dependency exactly where it is linked")
        self.assertEqual(field("libfathom-dev", "Depends"), "libfmt-dev, libboost-program-options-dev")
        synopsis, *extended = field("fathom", "Description").split("\n")
        self.assertLess(len(synopsis), 80)
        self.assertNotIn(synopsis.lower(), " ".join(extended).lower())
        self.assertTrue(extended and all(len(line) <= 80 for line in extended), extended)
        listing = run("dpkg-deb", "-c", packages["fathom"])
        for name in ("./usr/bin/fathom", "./usr/share/man/man1/fathom.1.gz", "./usr/share/doc/fathom/copyright", "./usr/share/doc/fathom/changelog.gz", "./usr/share/fathom/networks/mod-60m.ini"):
            self.assertIn(name, listing)
        self.assertNotIn("include/fathom", listing)
        self.assertIn("./usr/include/fathom/models/builder.hpp", run("dpkg-deb", "-c", packages["libfathom-dev"]))
        run("dpkg-deb", "-x", packages["fathom"], self.folder / "root")
        self.assertIn("mod-60m", run(self.folder / "root/usr/bin/fathom", "list", "models", cwd=self.folder))


class Version(CliTest):
    def test_commit_and_what_is_built_in(self):
        text = self.run_fathom("--version").stdout
        self.assertRegex(text, r"^fathom \d+\.\d+\.\d+( \([0-9a-f]{12}\+?\))?\nbuild: ")
        for word in ("CPU backend: ", "CUDA backend: ", "sanitizers: "):
            self.assertIn(word, text)
        cache = (ARGUMENTS.binary / "CMakeCache.txt").read_text()
        self.assertEqual("CPU backend:  on" in text, bool(re.search(r"(?m)^FATHOM_CPU:\w+=(ON|1|TRUE|YES)$", cache)))
        self.assertEqual("sanitizers:   none" in text, not sanitized())
        self.assertEqual(self.json("count", "mod-tiny", "-o", "json")["version"], text.split("\n")[0])


if __name__ == "__main__":
    main()
