"""What the style tests share: the files of the tree, comment stripping, and a main that first proves that the check can fail.

A check is a function from a Tree to a list of findings "path:line: message". Each script also gives plants: small trees with
one violation each, and the words by which it must be found. A check that misses its plant, or that complains about the
clean tree, fails before the real tree is looked at.
"""

import argparse
import pathlib
import re
import subprocess
import sys

FOLDERS = ("lib", "models", "kernels", "reports", "tools", "tests")
SOURCES = (".hpp", ".cpp", ".cu", ".cuh", ".inc")


class Tree:
    """Text files by repo-relative path; read from disk when first asked for, or given."""

    def __init__(self, root=None, files=None):
        self.root = root
        self.texts = dict(files or {})
        self.paths = sorted(self.texts) if root is None else list_files(root)

    def text(self, path):
        if path not in self.texts:
            self.texts[path] = (self.root / path).read_text(encoding="utf-8", errors="replace")
        return self.texts[path]

    def with_suffix(self, *suffixes):
        return [path for path in self.paths if path.endswith(suffixes)]

    def sources(self, *folders):
        """C++ and CUDA sources of these folders (all when none is named)."""
        return [path for path in self.with_suffix(*SOURCES) if not folders or path.split("/")[0] in folders]


def list_files(root):
    """Tracked files and new ones that are not ignored; without git, every file outside build folders."""
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, capture_output=True, check=True).stdout.decode().split("\0")
        paths = [path for path in listed if path and (root / path).is_file()]
    except (OSError, subprocess.CalledProcessError):
        paths = [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]
    skipped = re.compile(r"^(build[^/]*|\.git|reports/out)/|(^|/)__pycache__/")
    return sorted(path for path in paths if not skipped.search(path))


_SPANS = re.compile(
    r'R"([^()\\\s]{0,16})\((?:.|\n)*?\)\1"'  # raw string
    r'|"(?:\\.|[^"\\\n])*"'  # string
    r"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])*'"  # character, not a digit separator
    r"|//[^\n]*|/\*(?:.|\n)*?\*/"  # comments
)


def code_only(text):
    """C++ text with strings, characters and comments blanked; line numbers stay."""
    return _SPANS.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


def numbered(text):
    return enumerate(text.split("\n"), start=1)


_INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')


def includes(text):
    """(line, quote, path) of every include."""
    for number, line in numbered(text):
        match = _INCLUDE.match(line)
        if match:
            yield number, match.group(1), match.group(2)


def main(check, clean, plants):
    """check: Tree -> findings; clean: files without a finding; plants: [(files, words that a finding must hold)]."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", type=pathlib.Path, required=True)
    arguments, _ = parser.parse_known_args()

    findings = check(Tree(files=clean))
    if findings:
        sys.exit("self-test: complaints about a clean tree:\n" + "\n".join(findings))
    for files, words in plants:
        findings = check(Tree(files={**clean, **files}))
        if not any(words in finding for finding in findings):
            sys.exit(f"self-test: the plant {files!r} was not found by {words!r}; found: {findings}")

    tree = Tree(root=arguments.source)
    if len(tree.sources()) < 5:
        sys.exit(f"only {len(tree.sources())} sources under {arguments.source}: wrong --source?")
    findings = check(tree)
    if findings:
        print("\n".join(findings))
        sys.exit(f"{len(findings)} finding(s)")
    print(f"{len(tree.paths)} files, {len(plants)} plants found, no finding")
