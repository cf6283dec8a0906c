"""CUPTI functions and record kinds that profiling must not use, each with what happened to those who did (kernels/README.md, Profiling)."""

import re

from _style import FOLDERS, Tree, code_only, main, numbered

FORBIDDEN = {
    "cuptiActivityRegisterTimestampCallback": "spoils as many kernels as sessions went before, and leaves zero stamps",
    "cuptiFinalize": "crashes in teardown; a profiled process ends instead",
    "cuptiProfilerBeginSession": "deprecated interface with wrong counters on Hopper; use the range profiler",
    "cuptiEventGroupCreate": "the event interface is gone in CUDA 13",
    "cuptiMetricGetValue": "the metric interface is gone in CUDA 13",
    "CUPTI_ACTIVITY_KIND_KERNEL": "serialises kernels, so it changes the program; use CONCURRENT_KERNEL",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "replaces the records of a graph's kernels",
}
WORDS = re.compile(r"\b(" + "|".join(FORBIDDEN) + r")\b")


def check(tree: Tree):
    findings = []
    for path in tree.sources(*FOLDERS):
        for line, text in numbered(code_only(tree.text(path))):
            for word in WORDS.findall(text):
                findings.append(f"{path}:{line}: {word}: {FORBIDDEN[word]}")
    return findings


CLEAN = {"kernels/cuda/a.cpp": "// never cuptiFinalize\nint k = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;\n"}
PLANTS = [
    ({"kernels/cuda/x.cpp": "\nvoid f() { cuptiFinalize(); }\n"}, "kernels/cuda/x.cpp:2: cuptiFinalize"),
    ({"kernels/cuda/x.cpp": "auto k = CUPTI_ACTIVITY_KIND_KERNEL;\n"}, "serialises"),
    ({"tools/x.cpp": "auto f = &cuptiActivityRegisterTimestampCallback;\n"}, "zero stamps"),
]

if __name__ == "__main__":
    main(check, CLEAN, PLANTS)
