"""Must-not-compile tests: what the types forbid stays forbidden.

A case is a pair of snippets that differ in one place: `bad` must be refused with `message` in the compiler's output, `good`
must compile. Without the twin, a snippet that fails for a missing include would pass for ever.
"""

import argparse
import dataclasses
import os
import pathlib
import re
import subprocess
import sys


@dataclasses.dataclass
class Case:
    name: str
    bad: str  # statements, put into a function body after `before`
    good: str
    message: str  # must occur in the error output for `bad`; may be a tuple of alternatives (compilers word things differently)


def compile_snippets(cxx, source, before, bodies):
    """Compiles the snippets as one function each; (compiled, error output)."""
    functions = (f'#line 1 "snippet_{number}"\nvoid snippet_{number}() {{ {body}\n}}\n' for number, body in enumerate(bodies))
    text = f"{before}\nusing namespace fathom;\n{''.join(functions)}"
    command = [cxx, "-std=c++20", "-fsyntax-only", "-w", "-fdiagnostics-color=never", "-I", str(source), "-x", "c++", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
    return done.returncode == 0, done.stderr


def twin_failures(cases, cxx, source, before):
    """All twins in one compilation; only when that fails, one by one to name the culprits."""
    compiled, errors = compile_snippets(cxx, source, before, [case.good for case in cases])
    if compiled:
        return
    for case in cases:
        compiled, errors = compile_snippets(cxx, source, before, [case.good])
        if not compiled:
            yield f"{case.name}: the twin must compile but does not:\n{case.good}\n{errors}"


def plainly_refused(cases, cxx, source, before):
    """Indices of the cases whose `bad` is refused on its own line with its message, found by one compilation of them all."""
    _, errors = compile_snippets(cxx, source, before, [case.bad for case in cases])
    refused = set()
    for line in errors.split("\n"):
        match = re.match(r"snippet_(\d+):\d+:\d+: error: (.*)", line)
        if match and any(message in match.group(2) for message in messages_of(cases[int(match.group(1))])):
            refused.add(int(match.group(1)))
    return refused


def messages_of(case):
    return case.message if isinstance(case.message, tuple) else (case.message,)


def failures_of(case, cxx, source, before):
    """The case by itself: for errors that are reported inside a header, and to say exactly what went wrong."""
    compiled, errors = compile_snippets(cxx, source, before, [case.bad])
    messages = messages_of(case)
    if compiled:
        yield f"{case.name}: compiles but must not:\n{case.bad}"
    elif not any(message in errors for message in messages):
        yield f"{case.name}: fails, but not with {messages}:\n{case.bad}\n{errors}"


def self_test(cxx, source):
    """The harness finds a snippet that compiles, one that fails for another reason, and a twin that fails."""
    before = "namespace fathom { struct A { explicit A(int) {} }; }"
    good = "A a(1); (void)a;"
    fine = Case("fine", "A a = 1;", good, "conversion")
    assert not list(failures_of(fine, cxx, source, before))
    for planted in (Case("compiles", good, good, "conversion"), Case("other reason", "B b;", good, "conversion")):
        assert list(failures_of(planted, cxx, source, before)), f"self-test: '{planted.name}' was not found"
        assert plainly_refused([planted, fine], cxx, source, before) == {1}, f"self-test: '{planted.name}' was taken as refused"
    bad_twin = Case("bad twin", "A a = 1;", "B b;", "conversion")
    assert len(list(twin_failures([fine, bad_twin], cxx, source, before))) == 1, "self-test: the bad twin was not found"


def main(before, cases):
    """before: includes that every snippet needs; cases: list of Case."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.add_argument("--cxx", required=True)
    arguments, _ = parser.parse_known_args()
    self_test(arguments.cxx, arguments.source)
    where = (arguments.cxx, arguments.source, before)
    refused = plainly_refused(cases, *where)
    failures = [failure for i, case in enumerate(cases) if i not in refused for failure in failures_of(case, *where)]
    failures += twin_failures(cases, *where)
    if failures:
        sys.exit("\n".join(failures))
    print(f"{len(cases)} snippets are refused, their twins compile")
