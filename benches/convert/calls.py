"""What the first results say of themselves: devices, commits and commands; and what a section of a file is about."""
import functools
import re
import subprocess

from forms import MODELS

DATE = "2026-11-21"
H100 = "NVIDIA H100 80GB HBM3"
DRIVER = "580.159.04"

CALLS = {
    "2026-11-21-attention-h100.txt": {"title": "variants of the attention kernels, an earlier run"},
    "2026-11-21-attention-suite-h100.jsonl": {"commit": "210ea05", "command": "tilewright bench --suite attention --device cuda:0"},
    "2026-11-21-attention-suite-h100.txt": {"commit": "210ea05", "command": "tilewright bench --suite attention --device cuda:0"},
    "2026-11-21-decode-all-h100.jsonl": {
        "id": "2026-11-21-decode-all-h100-1",
        "commit": "a89995a", "sm_mhz": 1980, "memory_mhz": 2619,
        "command": "tilewright bench --suite decode --config FILE --random-weights --device cuda:0 --context C [--batch B]"},
    "2026-11-21-decode-all-h100.txt": {
        "commit": "a89995a", "sm_mhz": 1980, "memory_mhz": 2619,
        "command": "tilewright bench --suite decode, accuracy and timeline, --config FILE --random-weights --device cuda:0"},
    "2026-11-21-decode-bench-h100.txt": {"title": "decode beside its peers"},
    "2026-11-21-decode-h100.txt": {"title": "decode by hand", "command": "megakernel/examples/tune_decode"},
    "2026-11-21-decode-h200.txt": {
        "device": "NVIDIA H200", "commit": "a89995a", "sm_mhz": 1980, "memory_mhz": 3201,
        "command": "tilewright bench --suite decode --config FILE --random-weights --device cuda:0 --context C [--batch B]"},
    "2026-11-21-first-token-h100.txt": {"commit": "210ea05", "command": "tilewright generate --model DIR --device cuda:0 --json"},
    "2026-11-21-fuzz-full-h100.txt": {"command": "fuzz_device 20500 2026"},
    "2026-11-21-fuzz-h100.txt": {"command": "fuzz_device (codegen/examples/fuzz_device.rs)"},
    "2026-11-21-fuzz-rerun-h100.txt": {"command": "fuzz_device 20500 20261121"},
    "2026-11-21-gemm-8-bit-h100.txt": {"commit": "4bd1c41", "command": "tilewright bench --suite gemm --device cuda:0 --replays 10"},
    "2026-11-21-gemm-h100-ncu.txt": {"command": "ncu .. tilewright bench --suite gemm --only m=8192,n=8192"},
    "2026-11-21-gemm-h100-tune.txt": {"command": "tilewright bench --suite gemm --tune --device cuda:0"},
    "2026-11-21-gemm-h100.jsonl": {"command": "tilewright bench --suite gemm --device cuda:0"},
    "2026-11-21-gemv-h100.json": {"id": "2026-11-21-gemv-h100-1", "commit": "2ed626c", "command": "tilewright bench --suite gemv --device cuda:0"},
    "2026-11-21-gemv-h100.txt": {"commit": "2ed626c", "command": "tilewright bench --suite gemv --device cuda:0"},
    "2026-11-21-host.txt": {"device": "AMD EPYC 9005 (Zen 5), 2 cores", "driver": None, "commit": "abe4519", "command": "cargo bench"},
    "2026-11-21-merge-h100.txt": {"title": "splits of attention merged", "command": "megakernel/examples/tune_decode"},
    "2026-11-21-ncu-h100.txt": {"command": "ncu .. tilewright"},
    "2026-11-21-rows-accuracy-h100.jsonl": {"command": "tilewright accuracy --config FILE --device cuda:0 --peer PEER"},
    "2026-11-21-rows-h100.txt": {"command": "accuracy, tune_decode and bench of several rows"},
    "2026-11-21-sampling-h100.txt": {"command": "kernels/examples/sample_times cuda:0"},
    "2026-11-21-selftest-500-h100.txt": {"command": "tilewright selftest --device cuda:0 --kernel NAME --cases 500 --seed 20001"},
    "2026-11-21-selftest-h100.txt": {"commit": "07ce92c", "command": "tilewright selftest --device cuda:0 --cases 20"},
    "2026-11-21-small-kernels-h100.txt": {"command": "tilewright selftest --device cuda:0 --cases 500"},
    "2026-11-21-tokens-ring-h100.txt": {"title": "keys and values through the ring", "command": "megakernel/examples/tune_decode"},
}

# Printed tables, and the files that hold the full numbers of the same call.
COPIES = {
    "2026-11-21-attention-suite-h100.txt": "2026-11-21-attention-suite-h100.jsonl",
    "2026-11-21-decode-all-h100.txt": "2026-11-21-decode-all-h100.jsonl",
    "2026-11-21-gemm-8-bit-h100.txt": "2026-11-21-gemm-8-bit-h100.txt",
    "2026-11-21-gemv-h100.txt": "2026-11-21-gemv-h100.json",
    "2026-11-21-rows-h100.txt": "2026-11-21-rows-accuracy-h100.jsonl",
}

# Lines that begin a call of their own: where, and what they say.
MERGE_BUILDS = {"old": "bfaa789", "new": "ce8aa87", "early": "a2adfd5", "exp": "52e1706"}
SECTIONS = {
    "2026-11-21-decode-bench-h100.txt": r"^== call \d, build (?P<commit>\w+)",
    "2026-11-21-decode-h100.txt": r"^(?:build .*?\(?(?P<commit>[0-9a-f]{7})|\+ )",
    "2026-11-21-merge-h100.txt": r"^== \d+ s: (?P<build>\w+)",
    "2026-11-21-tokens-ring-h100.txt": r"^(?:##? |==|=== )",
    "2026-11-21-rows-h100.txt": r"^with the next stage's activations asked for ahead \((?P<commit>\w+)\)",
    "2026-11-21-gemv-h100.txt": r"^shape ",
    "2026-11-21-decode-all-h100.txt": r"^(?:# peers, second call|# tests on)",
    "2026-11-21-fuzz-rerun-h100.txt": r"^[AB](?:\.|,) |^Multiplies of A",
    "2026-11-21-fuzz-h100.txt": r"^\d\. ",
    "2026-11-21-fuzz-full-h100.txt": r"^(?:Then whole|  matrix M16N8K16_F32_F16_F16|The same call before)",
    "2026-11-21-small-kernels-h100.txt": r"^kernel ",
    "2026-11-21-gemm-8-bit-h100.txt": r"^`tilewright selftest",
}

# The models of the accuracy tables and of the timelines of a file, in order.


def LLAMA(name, batch, context):
    return MODELS[name] | {"batch": batch, "context": context}


ACCURACY = {
    "2026-11-21-decode-all-h100.txt": ["1B", "8B"],
    "2026-11-21-decode-bench-h100.txt": ["1B", "8B", "tiny-llama"],
    "2026-11-21-decode-h200.txt": ["1B"],
    "2026-11-21-rows-h100.txt": ["1B", "8B"],
}
TIMELINES = {
    "2026-11-21-decode-all-h100.txt": [LLAMA("1B", 1, 200), LLAMA("1B", 1, 4096), LLAMA("8B", 1, 1024), LLAMA("1B", 8, 1024)],
    "2026-11-21-decode-bench-h100.txt": [LLAMA("1B", 1, 200), LLAMA("1B", 1, 4096), LLAMA("8B", 1, 1024)],
    "2026-11-21-decode-h100.txt": [LLAMA("1B", 1, 100)],
    "2026-11-21-merge-h100.txt": [LLAMA("1B", 1, 150), LLAMA("1B", 1, 4040)],
    "2026-11-21-tokens-ring-h100.txt": [
        LLAMA("1B", 1, 150), LLAMA("1B", 1, 4040), LLAMA("8B", 1, 960), LLAMA("1B", 8, 1000),
        LLAMA("1B", 1, 150), LLAMA("1B", 1, 4040), LLAMA("8B", 1, 960), LLAMA("1B", 8, 1000)],
}


@functools.cache
def committed(commit, name):
    """When a commit was made; of a call that does not know its own, when its file came."""
    what = [commit] if commit else ["--diff-filter=A", "--", f"benches/results/{name}"]
    asked = subprocess.run(["git", "log", "-1", "--format=%cI", *what], capture_output=True, text=True, check=True)
    return asked.stdout.strip()


class State:
    """What the lines before say of the next one."""

    def __init__(self, name):
        self.name = name
        self.columns, self.timeline_model, self.timelines = [], {}, list(TIMELINES.get(name, []))
        self.accuracies, self.rows_before = list(ACCURACY.get(name, [])), None
        self.setting, self.trial_model, self.trial_columns = "", MODELS["1B"] | {"batch": 1}, []
        self.tuned, self.count, self.versions, self.bench_rows, self.calls = {}, 0, set(), 0, 0
        self.endurance_model, self.test = MODELS["1B"], ""
        self.facts = {}

    def open_call(self, line, facts):
        self.calls += 1
        self.bench_rows = 0
        self.facts = self.facts | facts
        call = {"id": f"{self.name.rsplit('.', 1)[0]}-{self.calls}", "source": self.name, "line": line, "date": DATE,
                "device": H100, "driver": DRIVER} | self.facts
        return call | {"committed": committed(call.get("commit"), self.name), "remarks": [], "rows": []}

    def section(self, line):
        """The facts of a section that begins here."""
        pattern = SECTIONS.get(self.name)
        self.follow(line)
        if not pattern or not (match := re.match(pattern, line)):
            return None
        facts = {"title": line.strip("=# ")[:120]}
        groups = match.groupdict()
        facts["commit"] = groups.get("commit") or MERGE_BUILDS.get(groups.get("build")) or self.facts.get("commit")
        return facts

    def follow(self, line):
        """Notes which model a section is about."""
        if match := re.match(r"^== (1B x 8|1B|8B)$", line):
            self.trial_model = MODELS[match[1][:2]] | {"batch": 8 if match[1].endswith("8") else 1}
        elif match := re.match(r"^== \d+ s: \w+ llama-3\.\d-(1b|8b) (\d+) ", line):
            self.trial_model = MODELS[match[1].upper()] | {"batch": int(match[2])}
        elif re.match(r"^(## 16 rows|## what mends it|step 983\.6)", line):
            # The lines that follow do not say of which model and batch they are.
            self.trial_model = {}
        elif line.startswith("with the next stage's"):
            self.trial_model = MODELS["1B"] | {"batch": 16}
        elif match := re.match(r"^t \d+ (16|8b 8)$", line):
            self.trial_model = MODELS["8B"] | {"batch": 8 if match[1] == "16" else 4}
        elif match := re.match(r"^t \d+ endure (tiny-\w+)", line):
            self.endurance_model = MODELS["tiny-qwen3"]
        elif re.match(r"^t 47 timeline", line) and "decode-bench" in self.name:
            self.endurance_model = MODELS["1B"]
        elif re.match(r"^t 78 accuracy", line):
            self.trial_model = MODELS["8B"] | {"batch": 1}
        elif re.match(r"^t 18 accuracy", line):
            self.trial_model = MODELS["1B"] | {"batch": 1}
        elif match := re.match(r"^t \d+ (8b )?rows (\d+)$", line):
            following = {"1": 3, "3": 4, "4": 8, "8": 16, "16": 8}
            name = "8B" if match[1] else "1B"
            self.trial_model = MODELS[name] | {"batch": following.get(match[2], 1) if name == "1B" else {"1": 4, "4": 8, "8": 16}.get(match[2], 16)}
        elif self.name.endswith("decode-bench-h100.txt") and line.startswith("batch=1 context=200") and "200, median of 5    869" in line:
            self.endurance_model = MODELS["tiny-llama"]

    def bench_suite(self, variant):
        """The suite of the next row of a printed table."""
        self.bench_rows += 1
        if "gemm-8-bit" in self.name:
            return ("gemm", "gemm e4m3", "gemm e4m3 fast", "gemm s8")[max(0, (self.bench_rows - 7) // 2)] if self.bench_rows > 8 else "gemm"
        return self.suite()

    def suite(self):
        return next((suite for suite in ("gemm", "gemv", "attention") if suite in self.name), "decode")

    def accuracy_model(self):
        return MODELS[self.accuracies[0]] if self.accuracies else MODELS["1B"]

    def next_accuracy(self, positions):
        rows = len(positions.split())
        if self.rows_before is not None and rows < self.rows_before and len(self.accuracies) > 1:
            self.accuracies.pop(0)
        self.rows_before = rows
        return self.accuracy_model()

    def next_timeline(self):
        if self.timelines:
            self.timeline_model = self.timelines.pop(0)

    def next_trial(self):
        pass
