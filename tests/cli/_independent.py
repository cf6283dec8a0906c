"""`fathom count` against an independent calculation of tests/oracle on its stored cases."""

import concurrent.futures
import importlib
import json
import pathlib
import sys
import tempfile

arguments = dict(zip(sys.argv[1::2], sys.argv[2::2]))
oracle = pathlib.Path(arguments["--source"]) / "tests" / "oracle"
sys.path.insert(0, str(oracle))
sys.dont_write_bytecode = True


def stored_cases(name):
    """The stored cases of oracle/NAME.py, which are those that it makes: what is expected does not drift with it."""
    stored = json.loads((oracle / "data" / f"{name}.json").read_text())
    made = importlib.import_module(name).cases(len(stored), 1)
    assert json.loads(json.dumps(made)) == stored, f"{name}.py no longer makes the stored cases: see its first lines"
    return stored


def compare(name, stored, sort):
    """Every case is counted by the program; sort(case) names its kind in a message."""
    module = importlib.import_module(name)

    def differences(case):
        with tempfile.TemporaryDirectory() as folder:
            return [f"seed {case['seed']} {sort(case)}: {line}" for line in module.differences(case, arguments["--fathom"], folder)]

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        wrong = [line for lines in pool.map(differences, stored) for line in lines]
    assert not wrong, "\n".join(wrong)
