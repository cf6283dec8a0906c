"""The top level is fixed, and every folder that has content explains itself in a README."""

from _style import FOLDERS, Tree, main

FILES = {"CMakeLists.txt", "CMakePresets.json", "README.md", "LICENSE", ".gitignore", ".clang-format", ".clang-tidy",
         ".editorconfig", ".gitattributes"}
HIDDEN = {".ci"}
README_REQUIRED = ("reports", "tools", "tests")


def check(tree: Tree):
    findings = []
    for folder in FOLDERS:
        content = [path for path in tree.paths if path.startswith(folder + "/")]
        if not content:
            findings.append(f"{folder}:1: the folder is missing or empty")
        elif folder in README_REQUIRED and f"{folder}/README.md" not in content:
            findings.append(f"{folder}:1: {folder}/README.md is missing")
    for path in tree.paths:
        top = path.split("/")[0]
        if path not in FILES if "/" not in path else top not in FOLDERS and top not in HIDDEN:
            findings.append(f"{path}:1: the top level is fixed; '{top}' does not belong there")
    return findings


CLEAN = {f"{folder}/README.md": "x\n" for folder in FOLDERS} | {"README.md": "x\n", ".ci/run": "x\n"}
PLANTS = [
    ({"src/x.cpp": "x"}, "src/x.cpp:1: the top level is fixed"),
    ({"notes.txt": "x"}, "notes.txt:1: the top level is fixed"),
]


def missing_is_found():
    without_kernels = {path: text for path, text in CLEAN.items() if not path.startswith("kernels/")}
    assert any("kernels:1: the folder is missing" in finding for finding in check(Tree(files=without_kernels)))
    unexplained = {path: text for path, text in CLEAN.items() if path != "tools/README.md"} | {"tools/a.sh": "x"}
    assert any("tools/README.md is missing" in finding for finding in check(Tree(files=unexplained)))


if __name__ == "__main__":
    missing_is_found()
    main(check, CLEAN, PLANTS)
