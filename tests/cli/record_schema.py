"""The schema of records accepts what it should and finds each planted violation."""

import copy
import unittest

from _cli import ARGUMENTS, main
from _record import record_errors

RESULT = {
    "model": "mod-60m",
    "scenario": {"phase": "prefill", "batch": 1, "seq": 2048, "dtype": "f32", "routing": "topk"},
    "machine": {"name": "this-machine", "isa": "avx512"},
    "convention": {"name": "exact", "flops": 189672062976},
    "totals": {"flops_matmul": 189672062976, "params_total": 54277056, "predicted_s": 1.25, "measured_s": None,
               "status": {"measured_s": "not run"}, "realised": None},
    "ops": [{"path": "layers.00/attn/qkv", "kind": "gemm", "flops_matmul": 2**80, "predicted_s": 0.5, "verdict": "within"}],
    "notes": ["a note", {"severity": "warning", "text": "noisy"}],
    "anything": {"else": True},
}


def changed(path, value):
    document = {"schema": "fathom-record-1", **copy.deepcopy(RESULT)}
    at = document
    *steps, last = path
    for step in steps:
        at = at[step]
    if value is KeyError:
        del at[last]
    else:
        at[last] = value
    return document


class RecordSchema(unittest.TestCase):
    def test_accepts(self):
        self.assertEqual(record_errors(ARGUMENTS.source, {"schema": "fathom-record-1", **RESULT}), [])
        self.assertEqual(record_errors(ARGUMENTS.source, {"schema": "fathom-record-1", "results": [RESULT, RESULT]}), [])
        self.assertEqual(record_errors(ARGUMENTS.source, changed(("convention", "flops"), "123.5")), [])

    def test_refuses(self):
        for path, value in [
            (("schema",), "fathom-record-2"),
            (("schema",), KeyError),
            (("model",), KeyError),
            (("scenario", "phase"), "training"),
            (("scenario", "batch"), 0),
            (("totals",), KeyError),
            (("totals", "flops_matmul"), KeyError),
            (("totals", "flops_matmul"), 1.5),
            (("totals", "flops_matmul"), 189672062976.0),
            (("totals", "flops_matmul"), "189672062976"),
            (("totals", "flops_matmul"), -1),
            (("totals", "predicted_s"), "1.25 s"),
            (("totals", "predicted_s"), -0.1),
            (("totals", "kv_bytes"), None),
            (("convention", "name"), KeyError),
            (("ops", 0, "path"), ""),
            (("ops", 0, "kind"), KeyError),
            (("ops", 0, "flops_matmul"), None),
            (("ops", 0, "verdict"), "good"),
            (("ops",), {}),
            (("notes",), [1]),
            (("results",), []),
        ]:
            with self.subTest(path=path, value=value):
                self.assertNotEqual(record_errors(ARGUMENTS.source, changed(path, value)), [])

    def test_a_broken_entry_of_results_is_found(self):
        broken = changed(("ops", 0, "verdict"), "good")
        self.assertTrue(any("good" in line for line in record_errors(ARGUMENTS.source, {"schema": "fathom-record-1", "results": [RESULT, broken]})))


if __name__ == "__main__":
    main()
