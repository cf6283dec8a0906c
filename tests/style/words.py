"""Text that must not be in the tree: paths of one machine, marks of unfinished work, conflict markers, downloads in scripts."""

import re

from _style import Tree, main, numbered

MARKS = re.compile(r"\b(TODO|FIXME|XXX)\b|^(<{7} |>{7} )")
ELSEWHERE = re.compile(r"\b(?:SPEC|NOTES)_[A-Z]{3,}\b")  # documents that are not in this tree
MACHINE = re.compile(r"(?<![\w.])/(?:work|root|farm|home/\w+|tmp/(?:wt|fw))(?:/|\b)")
ADDRESS = re.compile(r"\bhttps?://")
TEXT = (".hpp", ".cpp", ".cu", ".cuh", ".inc", ".py", ".sh", ".cmake", ".txt", ".md", ".ini", ".json", ".csv", ".html", ".svg",
        ".gp", ".yml", ".clang-tidy", ".clang-format", ".editorconfig", ".gitignore", ".ci/run")
SCRIPTS = (".sh", ".cmake", "CMakeLists.txt", ".ci/run")


def check(tree: Tree):
    findings = []
    for path in tree.with_suffix(*TEXT):
        if path == "tests/style/words.py":
            continue
        for line, text in numbered(tree.text(path)):
            mark = MARKS.search(text)
            if mark:
                findings.append(f"{path}:{line}: '{mark.group().strip()}': finish it or file it as an issue")
            machine = MACHINE.search(text)
            if machine:
                findings.append(f"{path}:{line}: '{machine.group()}' is a path of one machine")
            elsewhere = ELSEWHERE.search(text)
            if elsewhere:
                findings.append(f"{path}:{line}: '{elsewhere.group()}' is no document of this tree; name a paper, a section or a file of it")
            if path.endswith(SCRIPTS) and ADDRESS.search(text):
                findings.append(f"{path}:{line}: scripts name no network address; packages come from the system's package manager")
    return findings


CLEAN = {
    "lib/a.cpp": "// a/work/b and networks/, framework/ are fine; see https://arxiv.org/abs/2404.02258\nint todo;\n",
    "tools/a.sh": "mkdir -p /tmp/fathom\n",
}
PLANTS = [
    ({"lib/x.cpp": "\n// TODO later\n"}, "lib/x.cpp:2: 'TODO'"),
    ({"reports/README.md": "FIXME\n"}, "'FIXME'"),
    ({"tools/x.sh": "cd " + "/wo" + "rk/main\n"}, "'/wo" + "rk/' is a path of one machine"),
    ({"models/networks/x.ini": "# from " + "/ro" + "ot/x\n"}, "'/ro" + "ot/'"),
    ({"tests/cli/x.py": 'open("/home/me/x")\n'}, "'/home/me/'"),
    ({"tests/x.md": "in /tmp/wt\n"}, "'/tmp/wt'"),
    ({"lib/x.cpp": "// rows as in SPEC_" + "COUNT 3\n"}, "lib/x.cpp:1: 'SPEC_" + "COUNT'"),
    ({".ci/run": "wget https://example.org/x\n"}, "no network address"),
    ({"lib/x.cpp": "<<<<<<< HEAD\n"}, "'<<<<<<<'"),
]

if __name__ == "__main__":
    main(check, CLEAN, PLANTS)
