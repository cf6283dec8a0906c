"""Shell scripts parse, say what they are, and stop at the first error; Python files parse."""

import ast
import subprocess

from _style import Tree, main


def shell_findings(path, text):
    parsed = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True)
    if parsed.returncode != 0:
        yield f"{path}:1: {parsed.stderr.strip()}"
    lines = text.split("\n")
    if lines[0].startswith("#!"):
        if "set -euo pipefail" not in lines:
            yield f"{path}:1: a script that is run needs set -euo pipefail"
        lines = lines[1:]
    if not lines or not lines[0].startswith("# "):
        yield f"{path}:1: begin with a comment that says what the script is for"


def check(tree: Tree):
    findings = []
    for path in tree.with_suffix(".sh", ".ci/run"):
        findings += shell_findings(path, tree.text(path))
    for path in tree.with_suffix(".py"):
        try:
            ast.parse(tree.text(path))
        except SyntaxError as error:
            findings.append(f"{path}:{error.lineno}: {error.msg}")
    return findings


CLEAN = {"tools/a.sh": "#!/usr/bin/env bash\n# Does a thing.\nset -euo pipefail\ntrue\n", "tests/a.py": "x = 1\n"}
PLANTS = [
    ({"tools/x.sh": "# A.\nif true; then\n"}, "tools/x.sh:1: bash:"),
    ({"tools/x.sh": "#!/usr/bin/env bash\n# A.\ntrue\n"}, "needs set -euo pipefail"),
    ({"tools/x.sh": "true\n"}, "begin with a comment"),
    ({"tests/x.py": "\nx = (\n"}, "tests/x.py:2:"),
]

if __name__ == "__main__":
    main(check, CLEAN, PLANTS)
