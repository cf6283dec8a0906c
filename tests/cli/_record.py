"""Checks a JSON file against reports/record.schema.json, integers taken exactly.

    from _record import record_errors
    self.assertEqual(record_errors(source, document), [])

As a program: _record.py --source ROOT FILE... prints one line per violation and exits 1 if there is one.
"""

import json
import pathlib
import sys


def load(path):
    def refuse(name):
        raise ValueError(f"{name} is no JSON number")

    return json.loads(pathlib.Path(path).read_text(encoding="utf-8"), parse_constant=refuse)


def validator(source):
    import jsonschema  # Debian: python3-jsonschema

    schema = load(pathlib.Path(source) / "reports" / "record.schema.json")
    jsonschema.Draft202012Validator.check_schema(schema)

    # JSON has one number type and jsonschema takes 1.0 for an integer; a count must be written as one.
    def is_integer(_, value):
        return isinstance(value, int) and not isinstance(value, bool)

    base = jsonschema.Draft202012Validator
    strict = jsonschema.validators.extend(base, type_checker=base.TYPE_CHECKER.redefine("integer", is_integer))
    return strict(schema)


def record_errors(source, document):
    """Violations as 'path: message', the ones inside alternatives included; empty when the document is a valid record."""

    def lines(error):
        place = ".".join(str(step) for step in error.absolute_path) or "(top level)"
        yield f"{place}: {error.message[:300]}"
        for inner in error.context:
            yield from lines(inner)

    return [line for error in validator(source).iter_errors(document) for line in lines(error)]


def main():
    if len(sys.argv) < 4 or sys.argv[1] != "--source":
        sys.exit(__doc__)
    bad = False
    for path in sys.argv[3:]:
        for line in record_errors(sys.argv[2], load(path)):
            print(f"{path}: {line}")
            bad = True
    sys.exit(bad)


if __name__ == "__main__":
    main()
