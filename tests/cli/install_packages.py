"""tools/install_packages.sh with apt, dpkg, id and sudo replaced by stand-ins that log how they are called."""

import os
import shutil
import stat
import subprocess

import _cli
from _cli import CliTest, main

STAND_IN = """#!/bin/sh
echo "$(basename "$0") $*" >> "$FOLDER/log"
"""
STAND_INS = {
    # what is installed stands in a file
    "dpkg-query": 'for last; do :; done\ngrep -qx "$last" "$FOLDER/installed" && printf installed\n',
    # refuses what stands in a file; installs the rest
    "apt-get": 'status=0\nfor word; do grep -qx "$word" "$FOLDER/broken" && status=100; done\n'
               'case " $* " in *" install "*) [ $status = 0 ] && for word; do echo "$word" >> "$FOLDER/installed"; done ;; esac\nexit $status\n',
    "apt-cache": 'grep -qx known "$FOLDER/lists"\n',
    "id": 'cat "$FOLDER/uid"\n',
    "sudo": 'grep -qx works "$FOLDER/sudo" || exit 1\n[ "$1" = -n ] && shift\nexec "$@"\n',
    "sleep": "exit 0\n",
}
TOOLS = ("bash", "sh", "basename", "grep", "cat", "mktemp", "rm", "tail", "env", "true")


class InstallPackages(CliTest):
    def setUp(self):
        super().setUp()
        self.bin = self.folder / "bin"
        for name, body in STAND_INS.items():
            os.chmod(self.write(f"bin/{name}", STAND_IN + body), stat.S_IRWXU)
        for name in TOOLS:
            (self.bin / name).symlink_to(shutil.which(name))
        self.packages = self.run_script("--list").stdout.split()
        for name, text in (("installed", ""), ("broken", ""), ("lists", "known\n"), ("uid", "0\n"), ("sudo", "")):
            self.write(name, text)

    def run_script(self, *arguments, code=0):
        self.write("log", "")
        done = subprocess.run(["bash", str(_cli.ARGUMENTS.source / "tools" / "install_packages.sh"), *arguments],
                              env={"PATH": str(self.bin), "FOLDER": str(self.folder)}, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def installed(self, *missing):
        self.write("installed", "".join(f"{name}\n" for name in self.packages if name not in missing))

    def apt_calls(self):
        calls = (self.folder / "log").read_text().split("\n")
        return [call for call in calls if call.startswith(("apt-get", "sudo"))]

    def test_nothing_to_do_needs_no_root(self):
        self.installed()
        self.write("uid", "1000\n")
        self.assertIn("are installed", self.run_script().stderr)
        self.assertEqual(self.apt_calls(), [])

    def test_installs_only_what_is_missing_and_then_rests(self):
        self.installed("cmake", "libfmt-dev")
        self.run_script()
        calls = self.apt_calls()
        self.assertEqual(len(calls), 1, calls)
        self.assertTrue(calls[0].endswith("install --no-install-recommends cmake libfmt-dev"), calls)
        self.run_script()
        self.assertEqual(self.apt_calls(), [])

    def test_bare_machine_fetches_the_lists_once(self):
        self.write("lists", "")
        self.run_script()
        self.assertEqual(sum(call.endswith(" update") for call in self.apt_calls()), 1)
        installed = (self.folder / "installed").read_text().split()
        self.assertEqual([name for name in self.packages if name not in installed], [])

    def test_optional_package_may_fail(self):
        self.installed("ccache")
        self.write("broken", "ccache\n")
        self.assertIn("ccache could not be installed; going on", self.run_script().stderr)

    def test_needed_package_may_not(self):
        self.installed("libdnnl-dev")
        self.write("broken", "libdnnl-dev\n")
        self.assertIn("apt-get install failed", self.run_script(code=4).stderr)

    def test_without_root(self):
        self.installed("cmake")
        self.write("uid", "1000\n")
        self.assertIn("needs root and sudo is not usable", self.run_script(code=4).stderr)
        self.write("sudo", "works\n")
        self.run_script()
        self.assertTrue(any(call.startswith("sudo env") and call.endswith(" cmake") for call in self.apt_calls()))
        self.installed("ccache")
        self.write("sudo", "")
        self.assertIn("optional, not installed", self.run_script().stderr)

    def test_without_apt(self):
        (self.bin / "apt-get").unlink()
        error = self.run_script(code=4).stderr
        self.assertIn("no apt", error)
        self.assertIn("libdnnl-dev", error)

    def test_unknown_option(self):
        self.assertIn("usage:", self.run_script("--bad", code=2).stderr)


if __name__ == "__main__":
    main()
