"""Who may include whom (the layering table of tools/README.md), and what the library may not do.

lib/ stands alone; models/, kernels/ and reports/ build on lib/ and do not know each other; tools/ and tests/ see everything.
CLI11 stays in tools/, JSON in three translation units, fmt out of lib's headers and out of everything nvcc compiles.
Only tools/ prints, exits and reads the environment.
"""

import re

from _style import FOLDERS, Tree, code_only, includes, main, numbered

REPO = {"lib": {"lib"}, "models": {"lib", "models"}, "kernels": {"lib", "kernels"}, "reports": {"lib", "reports"}}

# Third-party and system headers by prefix, beyond the C++ standard library (a name without '/' and '.').
SYSTEM = ("sys/", "linux/", "unistd.h", "sched.h", "pthread.h", "dlfcn.h", "cxxabi.h", "fcntl.h", "cpuid.h", "time.h", "signal.h")
OUTSIDE = {
    "lib": ("fmt/", "xxhash.h", "Random123/"),
    "models": ("fmt/", "boost/program_options", "nlohmann/"),
    "kernels": ("fmt/", "oneapi/", "omp.h", "immintrin.h", "x86intrin.h", "Random123/", "boost/context/", "cuda", "cublas", "cupti", "nv",
                "cooperative_groups", "mma.h") + SYSTEM,
    "reports": ("fmt/", "nlohmann/") + SYSTEM,
}
JSON_UNITS = 3

TALK = re.compile(
    r"\b(?:std::)?(cout|cerr|clog)\b|(?<![\w.>])(?:std::)?(printf|fprintf|puts|fputs|putchar|perror)\s*\("
    r"|\b((?:std|fmt)::(?:print|println))\s*\("
    r"|(?<![\w.>:])(?:std::|::)?(exit|_exit|_Exit|quick_exit|abort|getenv|secure_getenv|setenv|putenv|system)\s*\(|\b(environ)\b"
)


def is_standard(name):
    return "/" not in name and "." not in name


def layer_findings(tree, path):
    folder = path.split("/")[0]
    for line, quote, name in includes(tree.text(path)):
        where = f"{path}:{line}: "
        if quote == '"':
            target = name.split("/")[0]
            if folder in REPO and target in FOLDERS and target not in REPO[folder]:
                yield where + f"{folder}/ may not include {target}/"
        elif folder in REPO and not is_standard(name) and not name.startswith(OUTSIDE[folder]):
            yield where + f"{folder}/ may not include <{name}>"
        if name.startswith("CLI/") and folder not in ("tools", "tests"):
            yield where + "CLI11 belongs in tools/ only"
        if folder == "lib" and name.startswith("fmt/") and not path.endswith(".cpp"):
            yield where + "fmt may be included by lib's .cpp files only"


def talk_findings(tree, path):
    for line, text in numbered(code_only(tree.text(path))):
        match = TALK.search(text)
        if match:
            word = next(group for group in match.groups() if group)
            yield f"{path}:{line}: '{word}': only tools/ prints, exits and reads the environment"


def json_findings(tree):
    users = []
    for path in tree.sources("lib", "models", "kernels", "reports", "tools"):
        if any(name.startswith("nlohmann/") for _, _, name in includes(tree.text(path))):
            if not path.endswith(".cpp"):
                yield f"{path}:1: JSON may be included by .cpp files only"
            users.append(path)
    if len(users) > JSON_UNITS:
        yield f"{users[0]}:1: JSON is included by {len(users)} files ({', '.join(users)}); at most {JSON_UNITS} may"


def cuda_findings(tree):
    """What nvcc compiles reaches neither fmt nor JSON nor anything outside lib/ and kernels/cuda/, also through headers."""
    known = set(tree.paths)
    for start in tree.with_suffix(".cu"):
        seen, waiting = set(), [start]
        while waiting:
            path = waiting.pop()
            for line, quote, name in includes(tree.text(path)):
                where = f"{path}:{line}: "
                if name.startswith(("fmt/", "nlohmann/", "CLI/", "boost/")):
                    yield where + f"<{name}> reaches nvcc through {start}"
                if quote != '"' or name in seen:
                    continue
                seen.add(name)
                if start.startswith("kernels/") and not name.startswith(("lib/", "kernels/cuda/")):
                    yield where + f"{start} reaches {name}; only lib/ and kernels/cuda/ are allowed"
                if name in known:
                    waiting.append(name)


def check(tree: Tree):
    findings = []
    for path in tree.sources(*FOLDERS):
        findings += layer_findings(tree, path)
    for path in tree.sources(*REPO):
        findings += talk_findings(tree, path)
    return findings + list(json_findings(tree)) + list(cuda_findings(tree))


CLEAN = {
    "lib/a.hpp": '#include <vector>\n#include "lib/b.hpp"\n// printf("x"); std::exit(1)\nint print(int);\n',
    "lib/a.cpp": '#include <fmt/format.h>\nconst char* t = "printf(";\nvoid f() { snprintf(b, 1, "x"); o.exit(); g->print(1); }\n',
    "models/a.cpp": '#include "lib/a.hpp"\n#include <nlohmann/json.hpp>\n#include <boost/program_options/parsers.hpp>\n',
    "kernels/cuda/a.cu": '#include "lib/a.hpp"\n#include <cuda_bf16.h>\n',
    "tools/a.cpp": '#include <CLI/CLI.hpp>\n#include "models/a.hpp"\nint main() { printf("x"); exit(getenv("X") != 0); }\n',
}
PLANTS = [
    ({"lib/x.cpp": '#include "models/a.hpp"\n'}, "lib/x.cpp:1: lib/ may not include models/"),
    ({"models/x.cpp": '\n#include "reports/a.hpp"\n'}, "models/x.cpp:2: models/ may not include reports/"),
    ({"kernels/cpu/x.hpp": '#include "models/a.hpp"\n'}, "kernels/ may not include models/"),
    ({"reports/x.cpp": '#include "kernels/a.hpp"\n'}, "reports/ may not include kernels/"),
    ({"lib/predict/x.cpp": "# include <oneapi/dnnl/dnnl.hpp>\n"}, "lib/ may not include <oneapi/dnnl/dnnl.hpp>"),
    ({"lib/x.cpp": "#include <unistd.h>\n"}, "lib/ may not include <unistd.h>"),
    ({"models/x.cpp": "#include <CLI/CLI.hpp>\n"}, "CLI11 belongs in tools/"),
    ({"lib/x.hpp": "#include <fmt/format.h>\n"}, "fmt may be included by lib's .cpp"),
    ({f"tools/x{i}.cpp": "#include <nlohmann/json.hpp>\n" for i in range(3)}, "JSON is included by 4 files"),
    ({"reports/x.hpp": "#include <nlohmann/json.hpp>\n"}, "reports/x.hpp:1: JSON may be included by .cpp"),
    ({"lib/x.cpp": "\nvoid f() { std::cout << 1; }\n"}, "lib/x.cpp:2: 'cout'"),
    ({"lib/x.cpp": 'void f() { fmt::print("x"); }\n'}, "'fmt::print'"),
    ({"kernels/x.cpp": 'void f() { std::fprintf(stderr, "x"); }\n'}, "'fprintf'"),
    ({"models/x.cpp": "void f() { std::exit(1); }\n"}, "'exit'"),
    ({"reports/x.cpp": 'auto f() { return std::getenv("X"); }\n'}, "'getenv'"),
    ({"lib/x.hpp": "#include <fmt/core.h>\n", "kernels/cuda/x.cu": '#include "lib/x.hpp"\n'}, "reaches nvcc through kernels/cuda/x.cu"),
    ({"kernels/cuda/x.cu": '#include "kernels/cpu/x.hpp"\n'}, "only lib/ and kernels/cuda/ are allowed"),
]

if __name__ == "__main__":
    main(check, CLEAN, PLANTS)
