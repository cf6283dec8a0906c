"""_cli.py itself, run on a program that misbehaves on demand: each fault must be noticed."""

import os
import stat
import subprocess
import sys

import _cli
from _cli import CliTest, main, parse_json

PROGRAM = f"""#!{sys.executable}
import os, signal, sys, time
mode = sys.argv[1]
if mode == "json": print('{{"big": 31839129436160000000000000000001, "x": [1.5]}}')
if mode == "repeat": print('{{"a": 1, "a": 2}}')
if mode == "NaN": print('{{"a": NaN}}')
if mode == "inf": print("time: inf s")
if mode == "info": print("information on nano things")
if mode == "quiet": sys.exit(3)
if mode == "good": print("error: did you mean 'x'?", file=sys.stderr); sys.exit(3)
if mode == "talks": print("half a table"); print("error", file=sys.stderr); sys.exit(3)
if mode == "odd": sys.exit(9)
if mode == "dies": os.kill(os.getpid(), signal.SIGSEGV)
if mode == "throws": print("terminate called after throwing", file=sys.stderr); sys.exit(70)
if mode == "where": print(os.getcwd(), os.environ["XDG_CACHE_HOME"])
if mode == "stdin": print(sys.stdin.read())
if mode == "hangs": time.sleep(60)
"""


class Helper(CliTest):
    def setUp(self):
        super().setUp()
        program = self.write("program", PROGRAM)
        os.chmod(program, stat.S_IRWXU)
        self.addCleanup(setattr, _cli.ARGUMENTS, "fathom", _cli.ARGUMENTS.fathom)
        _cli.ARGUMENTS.fathom = program

    def test_accepts(self):
        self.assertEqual(self.json("json"), {"big": 31839129436160000000000000000001, "x": [1.5]})
        self.refuses(3, ["error", "did you mean 'x'?"], "good")
        self.run_fathom("info")
        self.assertEqual(self.run_fathom("odd-but-unknown-mode").code, 0)
        self.assertEqual(self.run_fathom("stdin", stdin="text").stdout, "text\n")
        self.assertEqual(self.run_fathom("stdin").stdout, "\n")
        folder, cache = self.run_fathom("where").stdout.split()
        self.assertEqual(folder, str(self.folder.resolve()))
        self.assertTrue(cache.startswith(str(_cli.ARGUMENTS.binary)))

    def test_notices(self):
        for mode, code in (("quiet", 3), ("talks", 3), ("odd", None), ("dies", None), ("throws", 70), ("inf", 0), ("NaN", 0), ("good", 0)):
            with self.subTest(mode):
                self.assertRaises(AssertionError, self.run_fathom, mode, code=code)
        self.assertRaises(AssertionError, self.refuses, 3, "other words", "good")
        self.assertRaises(AssertionError, self.json, "repeat")
        self.assertRaises(AssertionError, self.json, "info")
        self.assertRaises(ValueError, parse_json, '{"a": NaN}')
        self.timeout_s = 0.5
        self.assertRaises(subprocess.TimeoutExpired, self.run_fathom, "hangs")


if __name__ == "__main__":
    main()
