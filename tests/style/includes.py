"""Includes of our own files are repo-relative, in quotes, and name a file that exists."""

from _style import FOLDERS, Tree, includes, main


def check(tree: Tree):
    known = set(tree.paths)
    findings = []
    for path in tree.sources(*FOLDERS):
        for line, quote, name in includes(tree.text(path)):
            ours = name.split("/")[0] in FOLDERS and "/" in name
            if quote == "<" and ours and name in known:
                findings.append(f"{path}:{line}: <{name}> is ours: include it in quotes")
            elif quote == '"' and not ours:
                findings.append(f'{path}:{line}: "{name}" is not repo-relative (or not ours: use <>)')
            elif quote == '"' and name not in known:
                findings.append(f'{path}:{line}: "{name}" does not exist')
    return findings


CLEAN = {"lib/a.hpp": "#include <vector>\n", "lib/a.cpp": '#include "lib/a.hpp"\n'}
PLANTS = [
    ({"lib/x.cpp": '#include "a.hpp"\n'}, 'lib/x.cpp:1: "a.hpp" is not repo-relative'),
    ({"lib/x.cpp": '\n#include "../lib/a.hpp"\n'}, "lib/x.cpp:2:"),
    ({"lib/x.cpp": "#include <lib/a.hpp>\n"}, "include it in quotes"),
    ({"lib/x.cpp": '#include "lib/b.hpp"\n'}, '"lib/b.hpp" does not exist'),
    ({"tests/unit/x.cpp": '#include "fmt/format.h"\n'}, "is not repo-relative"),
]

if __name__ == "__main__":
    main(check, CLEAN, PLANTS)
