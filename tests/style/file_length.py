"""One concept per file: sources and scripts stay within 470 lines."""

from _style import SOURCES, Tree, main

LIMIT = 470


def check(tree: Tree):
    findings = []
    for path in tree.with_suffix(*SOURCES, ".py", ".sh", ".cmake", "CMakeLists.txt"):
        lines = tree.text(path).count("\n")
        if lines > LIMIT:
            findings.append(f"{path}:{lines}: {lines} lines; split it by concept (at most {LIMIT})")
    return findings


CLEAN = {"lib/a.cpp": "\n" * 470, "models/networks/a.ini": "\n" * 1000}
PLANTS = [
    ({"lib/x.cpp": "\n" * 471}, "lib/x.cpp:471: 471 lines"),
    ({"tests/unit/x.py": "\n" * 500}, "tests/unit/x.py:500"),
]

if __name__ == "__main__":
    main(check, CLEAN, PLANTS)
