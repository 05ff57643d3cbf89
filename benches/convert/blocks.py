"""Forms of several lines: counters of ncu, and times printed by criterion."""
import json
import re

from forms import number, row

KERNEL = re.compile(r"^ +(\w+) (\(\d+, \d+, \d+\)x\(\d+, \d+, \d+\)), Context (\d+), Stream (\d+), Device (\d+), CC ([\d.]+)$")
COUNTER = re.compile(r"^ +([a-z0-9_]+__?[\w.]+|memory_\w+)\s+(?:([A-Za-z%]+)\s+)?([\d,.]+)$")
UNITS = {"ns": 1e-3, "µs": 1.0, "ms": 1e3, "s": 1e6}


def counters(lines, first):
    """Reads a kernel and its counters; returns the rows and the next line."""
    kernel = KERNEL.match(lines[first])
    values = {"context": int(kernel[3]), "stream": int(kernel[4]), "device": int(kernel[5]), "capability": number(kernel[6])}
    at, median = first + 1, None
    while at < len(lines) and (counter := COUNTER.match(lines[at])):
        name = counter[1] + (f" {counter[2]}" if counter[2] else "")
        values[name] = number(counter[3])
        if counter[1] == "gpu__time_duration.sum":
            median = round(values[name] * {"ns": 1e-3, "ms": 1e3}[counter[2]], 6)
        at += 1
    return [row("counters", f"{kernel[1]} {kernel[2]}", values=values, median_us=median, lines=[first + 1, at])], at


def criterion(lines, first):
    """A bench of criterion: its name, times, change, throughput and outliers."""
    inline = re.match(r"^(\S.*?)\s+time:", lines[first])
    name = inline[1] if inline else lines[first]
    at = first if inline else first + 1
    values, notes, median = {}, [], None
    while at < len(lines):
        line = lines[at]
        triple = re.search(r"(time|thrpt|change): +\[(\S+?) ?([a-zA-Zµ/%]*) (\S+?) ?([a-zA-Zµ/%]*) (\S+?) ?([a-zA-Zµ/%]*)\]", line)
        outliers = re.match(r"^Found (\d+) outliers among (\d+) measurements \(([\d.]+)%\)$", line)
        kind = re.match(r"^  (\d+) \(([\d.]+)%\) (.+)$", line)
        if triple and not (at > first and triple[1] == "time" and not line.startswith(" ")):
            what, unit = triple[1], triple[3] or "%"
            for part, text in zip(("low", "middle", "high"), (triple[2], triple[4], triple[6])):
                values[f"{what} {part} {unit}"] = number(text.rstrip("%"))
            if what == "time":
                median = round(number(triple[4]) * UNITS[unit], 9)
            chance = re.search(r"\(p = ([\d.]+) [<>] ([\d.]+)\)", line)
            if chance:
                values |= {"chance": number(chance[1]), "chance_limit": number(chance[2])}
        elif outliers:
            values |= {"outliers": int(outliers[1]), "measurements": int(outliers[2]), "outliers %": number(outliers[3])}
        elif kind:
            values |= {kind[3]: int(kind[1]), f"{kind[3]} %": number(kind[2])}
        elif "erformance" in line and line.startswith(" "):
            notes.append(line.strip())
        else:
            break
        at += 1
    return [row("host", name, median_us=median, values=values, remark="; ".join(notes), lines=[first + 1, at])], at


def starts_criterion(lines, at):
    if re.match(r"^\S.*\s+time: ", lines[at]):
        return True
    return at + 1 < len(lines) and re.match(r"^\s+time: +\[", lines[at + 1]) and not lines[at].startswith(" ")


def json_rows(text, state):
    """A row that a suite or a peer's script wrote."""
    old = json.loads(text)
    if "positions" in old:
        return accuracy_rows(old)
    values = {}
    if "peer" in old:
        shape = {"depth": old.get("depth", 128), "tokens": old["tokens"]}
        if old["kind"] == "decode":
            shape["batch"] = old["batch"]
        else:
            shape |= {"queries": old["tokens"], "causal": int(old["causal"])}
        values = {new: old[name] for name, new in (("tbps", "read_tb_s"), ("tflops", "tflop_s")) if name in old}
        return [row("attention", old["kind"], old["peer"], shape, median_us=old["us"], best_us=old["best_us"], values=values)]
    if "note" in old and old["who"] != "tilewright":
        state.versions.add(old["note"].split(",")[0])
    return [row(old["suite"], old.get("note", ""), old["who"], old["shape"], median_us=old["us"], best_us=old["best_us"],
                bytes=old["bytes"], operations=old["flops"], error=old.get("error"))]


def accuracy_rows(old):
    positions = old["positions"]
    shown = " ".join(map(str, positions[:5])) + (" .." if len(positions) > 5 else "")
    shape = {"rows": len(positions), "hidden": old["hidden"], "layers": old["layers"]}
    at = {f"position of row {i}": position for i, position in enumerate(positions)}
    rows = []
    for who, name in (("tilewright", "error"), ("pytorch bf16", "peer_bf16"), ("pytorch f32", "peer_f32")):
        errors = old.get(name, [])
        if errors:
            values = at | {f"error of row {i}": error for i, error in enumerate(errors)}
            if who == "tilewright":
                values["reference_s"] = old["reference_s"]
            rows.append(row("accuracy", "positions " + shown, who, shape, error=max(errors), values=values))
    return rows
