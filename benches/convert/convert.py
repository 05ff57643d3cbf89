#!/usr/bin/env python3
"""Converts the first results, printed in forms of their own, to rows of the schema (docs/dashboard.md).

Usage: python3 benches/convert/convert.py

Reads benches/results/*, writes benches/results/rows/*. It ran once; its output is committed, and tests/results.rs
checks that every number of every old file is in the rows. New results are written as rows directly.
"""
import json
import pathlib

from blocks import KERNEL, counters, criterion, json_rows, starts_criterion
from calls import CALLS, COPIES, State
from forms import FORMS

RESULTS = pathlib.Path(__file__).parent.parent / "results"


def convert(path):
    state = State(path.name)
    lines = path.read_text().splitlines()
    calls = [state.open_call(1, CALLS.get(path.name, {}))]
    at = 0
    while at < len(lines):
        line = lines[at]
        if section := state.section(line):
            calls.append(state.open_call(at + 1, section))
        rows, following = None, at + 1
        if KERNEL.match(line):
            rows, following = counters(lines, at)
        elif path.name.endswith("host.txt") and starts_criterion(lines, at):
            rows, following = criterion(lines, at)
        elif line.startswith("{"):
            rows = json_rows(line, state)
        else:
            for pattern, function in FORMS:
                if (match := pattern.match(line)) and (rows := function(match, state)) is not None:
                    break
        if rows is None and line.strip():
            calls[-1]["remarks"].append({"line": at + 1, "text": line.rstrip()})
        for found in rows or []:
            found.setdefault("lines", [at + 1, at + 1])
            calls[-1]["rows"].append(found)
        at = following
    if state.versions:
        for call in calls:
            call["peers"] = sorted(state.versions)
    return calls


def rounds_to(value, printed):
    """Whether a printed number is that value, rounded."""
    text = f"{printed}"
    digits = len(text.split(".")[1]) if "." in text and "e" not in text else 0
    return abs(value - printed) <= 0.5000001 * 10.0 ** -max(digits, 1) * (10 if digits == 0 else 1)


def mark_copies(files):
    """Rows of printed tables whose full numbers are in another row say so."""
    full = [(name, row) for name, calls in files.items() for call in calls for row in call["rows"]
            if "bytes" in row or ("error of row 0" in row.get("values", {}))]
    for file, calls in files.items():
        for row in (row for call in calls for row in call["rows"]):
            if "bytes" in row or "error of row 0" in row.get("values", {}):
                continue
            for name, other in full:
                same = COPIES.get(file) == name and all(row.get(key) == other.get(key) for key in ("suite", "who", "shape"))
                times = same and "median_us" in row and row["variant"] == other["variant"] \
                    and rounds_to(other["median_us"], row["median_us"]) and rounds_to(other["best_us"], row["best_us"])
                errors = same and row["suite"] == "accuracy" and row["variant"] == other["variant"] \
                    and float(f"{other['error']:.2e}") == row.get("error")
                if times or errors:
                    row["copy_of"] = name
                    break


def main():
    files = {path.name: convert(path) for path in sorted(RESULTS.iterdir()) if path.is_file()}
    mark_copies(files)
    (RESULTS / "rows").mkdir(exist_ok=True)
    for name, calls in files.items():
        stem, extension = name.rsplit(".", 1)
        # A table and its rows may have one stem.
        target = RESULTS / "rows" / (f"{stem}.jsonl" if extension == "txt" else f"{stem}-rows.jsonl")
        with target.open("w") as out:
            for call in calls:
                rows = call.pop("rows")
                print(json.dumps({"call": {k: v for k, v in call.items() if v not in (None, [], "")}}, ensure_ascii=False), file=out)
                for row in rows:
                    print(json.dumps(row, ensure_ascii=False), file=out)


if __name__ == "__main__":
    main()
