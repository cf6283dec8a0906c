"""Running fathom as a user does, for the command-line tests.

    from _cli import CliTest, main

    class Count(CliTest):
        def test_gpt2(self):
            totals = self.json("count", "gpt2-124m", "-o", "json")["totals"]
            self.assertEqual(totals["flops_matmul"], 583334363136)

        def test_unknown_model(self):
            self.refuses(3, "did you mean 'gpt2-124m'?", "count", "gpt2-124")

    if __name__ == "__main__":
        main()

Every run has a time limit, no stdin, no terminal, a fixed locale, and caches in the build folder instead of the user's, and
is checked for what no run may do: die by a signal, talk on stdout when it fails, or print "nan" or an uncaught exception.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

ARGUMENTS = argparse.Namespace()
EXIT_CODES = {0, 1, 2, 3, 4, 70, 130}  # tools/README.md


@dataclasses.dataclass
class Result:
    command: str
    code: int
    stdout: str
    stderr: str

    def __str__(self):
        return f"$ {self.command}\nexit {self.code}\n--- stdout\n{self.stdout[:4000]}\n--- stderr\n{self.stderr[:4000]}"


def sanitized():
    """Whether the program was built with a sanitizer: freed memory is then held back, so peaks say nothing."""
    cache = pathlib.Path(ARGUMENTS.binary) / "CMakeCache.txt"
    return cache.exists() and bool(re.search(r"^FATHOM_SANITIZE:[A-Z]+=.+$", cache.read_text(), re.MULTILINE))


def parse_json(text):
    """Integers exactly, whatever their size; NaN and Infinity are no JSON; neither are repeated keys."""

    def no_constant(name):
        raise ValueError(f"{name} is no JSON number")

    def no_repeats(pairs):
        keys = [key for key, _ in pairs]
        repeated = {key for key in keys if keys.count(key) > 1}
        if repeated:
            raise ValueError(f"repeated keys {sorted(repeated)}")
        return dict(pairs)

    return json.loads(text, parse_constant=no_constant, object_pairs_hook=no_repeats)


class CliTest(unittest.TestCase):
    maxDiff = 4000
    timeout_s = 120

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="fathom_cli_")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)  # scratch space and working folder of one test

    def run_fathom(self, *arguments, code=0, env=None, stdin=None):
        """Runs `fathom arguments...` in self.folder and requires its exit code (None: any documented one)."""
        command = [str(ARGUMENTS.fathom), *map(str, arguments)]
        environment = {**os.environ, "LC_ALL": "C.UTF-8", "XDG_CACHE_HOME": str(ARGUMENTS.binary / "tests" / "cache"),
                       "XDG_CONFIG_HOME": str(self.folder / "config"), **(env or {})}
        done = subprocess.run(command, cwd=self.folder, env=environment, input=stdin, capture_output=True, encoding="utf-8",
                              timeout=self.timeout_s, **({} if stdin is not None else {"stdin": subprocess.DEVNULL}))
        result = Result(shlex.join(["fathom", *command[1:]]), done.returncode, done.stdout, done.stderr)
        self.assertIn(result.code, EXIT_CODES if code is None else {code}, str(result))
        self.assertNotIn("terminate called", result.stderr, str(result))
        if result.code in (2, 3, 4):
            self.assertEqual(result.stdout, "", "a refused command must leave stdout empty\n" + str(result))
            self.assertTrue(result.stderr.strip(), "a refused command must say why\n" + str(result))
        self.assertIsNone(re.search(r"(?i)(?<![a-z])-?(nan|inf)(?![a-z])", result.stdout), str(result))
        return result

    def refuses(self, code, words, *arguments, **keywords):
        """The command ends with this code, one error, and these words (a string or several) on stderr."""
        result = self.run_fathom(*arguments, code=code, **keywords)
        for word in [words] if isinstance(words, str) else words:
            self.assertIn(word, result.stderr, str(result))
        return result

    def json(self, *arguments, **keywords):
        """The parsed stdout of a command that is asked for JSON."""
        result = self.run_fathom(*arguments, **keywords)
        try:
            return parse_json(result.stdout)
        except ValueError as error:
            self.fail(f"stdout is not JSON: {error}\n{result}")

    def write(self, name, text):
        """A file in this test's folder; returns its path."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fathom", type=lambda path: pathlib.Path(path).resolve(), required=True)
    parser.add_argument("--source", type=lambda path: pathlib.Path(path).resolve(), required=True)
    parser.add_argument("--binary", type=lambda path: pathlib.Path(path).resolve(), required=True)
    parser.add_argument("--cxx")
    _, rest = parser.parse_known_args(namespace=ARGUMENTS)
    unittest.main(module="__main__", argv=[sys.argv[0], *rest], verbosity=2)
