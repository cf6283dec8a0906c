"""A header begins with a comment that says what it is and why, followed by #pragma once."""

from _style import Tree, main


def check(tree: Tree):
    findings = []
    for path in tree.with_suffix(".hpp", ".cuh"):
        lines = tree.text(path).split("\n")
        comment = [line for line in lines[: next((i for i, line in enumerate(lines) if not line.startswith("//")), 0)]]
        if sum(len(line.strip("/ ")) for line in comment) < 20:
            findings.append(f"{path}:1: begin with a // comment that says what this header is and why")
        rest = [line for line in lines[len(comment):] if line.strip()]
        if not rest or rest[0].strip() != "#pragma once":
            findings.append(f"{path}:{len(comment) + 1}: #pragma once must follow the comment")
    return findings


CLEAN = {"lib/a.hpp": "// Exact counts of operations.\n//\n// More.\n#pragma once\nint x;\n"}
PLANTS = [
    ({"lib/x.hpp": "#pragma once\n"}, "lib/x.hpp:1: begin with a // comment"),
    ({"lib/x.hpp": "// x\n#pragma once\n"}, "begin with a // comment"),
    ({"lib/x.hpp": "// Exact counts of operations.\n#ifndef X\n#define X\n#endif\n"}, "lib/x.hpp:2: #pragma once"),
    ({"kernels/cuda/x.cuh": "// Exact counts of operations.\n"}, "#pragma once"),
]

if __name__ == "__main__":
    main(check, CLEAN, PLANTS)
