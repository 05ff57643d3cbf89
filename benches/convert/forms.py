"""The forms of the first results, one function a form: lines of text in, rows out.

A form is a pattern and a function of the match and the state of the file (its call, its model, what a section is
about). It returns the rows of that line. Lines that no form knows are kept as remarks of their call.
"""
import re

NUMBER = r"[-+−]?\d+(?:\.\d+)?(?:e[-+]?\d+)?"
MODELS = {
    "1B": {"hidden": 2048, "layers": 16},
    "8B": {"hidden": 4096, "layers": 32},
    "tiny-llama": {"hidden": 192, "layers": 4},
    "tiny-qwen3": {"hidden": 128, "layers": 3},
}
FORMS = []


def form(pattern):
    def register(function):
        FORMS.append((re.compile(pattern), function))
        return function
    return register


def number(text):
    text = text.replace("−", "-").replace(",", "")
    return int(text) if re.fullmatch(r"[-+]?\d+", text) else float(text)


def row(suite, variant="", who="tilewright", shape=None, **more):
    fields = {"suite": suite, "who": who, "shape": shape or {}, "variant": variant}
    return fields | {name: value for name, value in more.items() if value not in (None, "", [], {})}


@form(r"^((?:[a-z]+=\d+ )+)(.*?)(?<= )\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)(?:\s+([\d.]+))?\s+([\d.]+e-?\d+)"
      r"(?:\s+([\d.]+)\s+([\d.]+))?\s*$")
def bench_table(m, state):
    shape = {name: int(extent) for name, extent in (part.split("=") for part in m[1].split())}
    values = {"read_tb_s": number(m[5])}
    if m[6]:
        values["tflop_s"] = number(m[6])
    if m[8]:
        values |= {"peer_us": number(m[8]), "ratio": number(m[9])}
    suite = state.bench_suite(m[2].strip())
    return [row(suite, m[2].strip(), shape=shape, median_us=number(m[3]), best_us=number(m[4]), error=number(m[7]),
                values=values)]


@form(r"^decode (\w+)\s+b(\d+)\s+(\d+)\s+splits (\d+)\s+([\d.]+) us \(best\s+([\d.]+)\)\s+([\d.]+) TB/s\s+"
      r"error/bound ([\d.]+)\s+blocks/SM (\d+)$")
def attention_decode(m, state):
    shape = {"batch": int(m[2]), "tokens": int(m[3]), "depth": 128}
    values = {"splits": int(m[4]), "read_tb_s": number(m[7]), "error_over_bound": number(m[8]), "blocks_per_sm": int(m[9])}
    return [row("attention", f"decode {m[1]} splits {m[4]}", shape=shape, median_us=number(m[5]), best_us=number(m[6]),
                values=values)]


@form(r"^prefill d(\d+)\s+(\d+)\s+(full|causal)\s+(keys .*?)\s+([\d.]+) ms\s+([\d.]+) TFLOP/s \(best\s+([\d.]+)\)\s+"
      r"error/bound ([\d.]+)$")
def attention_prefill(m, state):
    shape = {"depth": int(m[1]), "tokens": int(m[2]), "queries": int(m[2]), "causal": int(m[3] == "causal")}
    values = {"tflop_s": number(m[6]), "best_tflop_s": number(m[7]), "error_over_bound": number(m[8])}
    return [row("attention", f"prefill {m[4]}", shape=shape, median_us=round(number(m[5]) * 1e3, 6), values=values)]


@form(r"^\s+(\d+) ((?:\d+ ?)+(?:\.\.)?)\s{2,}(\S+)\s+(\S+)\s+(\S+)\s+(right|WRONG), reference ([\d.]+) s$")
def accuracy(m, state):
    shape = {"rows": int(m[1])} | state.next_accuracy(m[2].strip())
    variant = "positions " + m[2].strip()
    rows = [row("accuracy", variant, shape=shape, error=number(m[3]), verdict=m[6], values={"reference_s": number(m[7])})]
    for who, text in (("pytorch bf16", m[4]), ("pytorch f32", m[5])):
        if text != "-":
            rows.append(row("accuracy", variant, who, shape, error=number(text)))
    return rows


@form(r"^\s+(\d+) (refused: .*)$")
def refused(m, state):
    return [row("accuracy", "positions not run", shape={"rows": int(m[1])} | state.accuracy_model(), verdict=m[2])]


@form(r"^(tiny-\w+) on cuda:0: relative L2 error (\S+)$")
def tiny_accuracy(m, state):
    state.count += 1
    return [row("accuracy", f"relative L2 error of logits of the reference's prompt, {m[1]}", shape={"rows": 1} | MODELS[m[1]], error=number(m[2]),
                remark=f"{m[1]} on cuda:0")]


COLUMNS = ("times", "tasks", "wait", "load", "compute", "publish", "full", "length", "together")


@form(r"^(level|1B pos \d+|8B pos \d+)\s+((?:times|wait) .*)$")
def timeline_header(m, state):
    state.columns = m[2].replace("sum", "together").split()
    if m[1] != "level":
        model, _, position = m[1].split()
        state.timeline_model = MODELS[model] | {"batch": 1, "context": int(position)}
    else:
        state.next_timeline()
    return []


@form(r"^(1B|8B) pos (\d+)$")
def timeline_of(m, state):
    state.timeline_model = MODELS[m[1]] | {"batch": 1, "context": int(m[2])}
    return []


@form(r"^(embed|qkv|attention|o|gate_up|down|logits|argmax)\s+((?:[\d.]+\s*)+)$")
def timeline_level(m, state):
    found = [number(text) for text in m[2].split()]
    if not state.columns or len(found) != len(state.columns):
        return None
    names = {"times": "times", "tasks": "tasks"}
    values = {names.get(name, name + "_us"): value for name, value in zip(state.columns, found)}
    return [row("timeline", m[1], shape=state.timeline_model, values=values)]


@form(r"^step ([\d.]+) µs; all times in µs, means over tasks, length over levels$")
def timeline_step(m, state):
    return [row("timeline", "step", shape=state.timeline_model, median_us=number(m[1]))]


@form(r"^((?:activation)=\S+): (\d+) stages$")
def trial_setting(m, state):
    state.setting = f"{m[1]}: {m[2]} stages"
    state.next_trial()
    return []


@form(r"^  from (\d+): ([\d.]+) ms a token, ([\d.]+) ms alone; tokens (\w+)$")
def trial(m, state):
    shape = state.trial_model | {"position": int(m[1])}
    note = f"tokens {m[4]}"
    return [row("decode trials", state.setting, shape=shape, median_us=round(number(m[2]) * 1e3, 6),
                values={"alone_us": round(number(m[3]) * 1e3, 6)}, remark=note)]


@form(r"^(?:(1B|8B)\s+)?pos (\d+)\s+(.*?)\s{2,}([\d.]+) ms\s+([\d.]+) ms alone$")
@form(r"^(?:(1B|8B)\s+)?pos (\d+)\s+(.*?) ([\d.]+) ms\s+([\d.]+) ms alone$")
def trial_by_hand(m, state):
    shape = MODELS[m[1] or "1B"] | {"batch": 1, "position": int(m[2])}
    return [row("decode trials", m[3].strip(), shape=shape, median_us=round(number(m[4]) * 1e3, 6),
                values={"alone_us": round(number(m[5]) * 1e3, 6)})]


@form(r"^(1B|8B) (\d+)(?:\s+(1B|8B) (\d+))?$")
@form(r"^\s{30,}(1B|8B) (\d+)(?:\s+(1B|8B) (\d+))?$")
def trial_columns(m, state):
    pairs = [(m[1], m[2]), (m[3], m[4])]
    state.trial_columns = [(model, int(position)) for model, position in pairs if model]
    return []


@form(r"^(\d/\d)\s+(.*?)\s{3,}([\d.]+)(?:\s+([\d.]+))?$")
@form(r"^(\d/\d)()\s{3,}([\d.]+)(?:\s+([\d.]+))?$")
def trial_by_columns(m, state):
    rows = []
    for (model, position), text in zip(state.trial_columns, (m[3], m[4])):
        if text:
            rows.append(row("decode trials", f"{m[1]} {m[2]}".strip(), shape=MODELS[model] | {"batch": 1, "position": position},
                            median_us=round(number(text) * 1e3, 6)))
    return rows


@form(r"^run (\d+): (\d+) tokens in ([\d.]+) s, (\d+) distinct(, the same as before)?$")
def endurance(m, state):
    values = {"tokens": int(m[2]), "seconds": number(m[3]), "distinct": int(m[4])}
    return [row("endurance", f"run {m[1]}", shape=state.endurance_model, values=values,
                verdict="the same as before" if m[5] else None)]


@form(r"^ {4}(\d\.\d{3})  (.+)$")
def first_token(m, state):
    return [row("first token", m[2], values={"at_s": number(m[1])})]


@form(r"^ {4}(greedy|temperature .*?)\s{3,}([\d.]+)\s+([\d.]+)(?: ms)?$")
def sampled_tokens(m, state):
    samples = [round(number(text) * 1e3, 6) for text in (m[2], m[3])]
    return [row("decode trials", m[1], shape=MODELS["1B"] | {"batch": 1, "position": 12}, median_us=max(samples),
                best_us=min(samples), samples_us=samples)]


@form(r"^ +matrix (\S+(?: \S+){0,2}?)\s{3,}(\d+) values, (\d+) near, worst ([\d.]+)$")
@form(r"^ +(M\d+N\S+(?: \S+){0,2}?)\s{2,}(\d+)\s+(\d+)\s+([\d.]+)$")
def multiply(m, state):
    state.count += 1
    return [row("fuzz", f"multiply {m[1]}", values={"values": int(m[2]), "near": int(m[3]), "worst": number(m[4])})]


@form(r"^ *((?://|[a-z][\w.]*))\s{2,}(\d+)$")
def instruction(m, state):
    if "fuzz" not in state.name:
        return None
    return [row("fuzz", f"instruction {m[1]}", values={"times": int(m[2])})]


@form(r"^ *(\d+) programs, (\d+) results, (\d+) programs differ, (\d+) faults(?:; ([\d.]+) s)?$")
def fuzz_programs(m, state):
    values = {"programs": int(m[1]), "results": int(m[2]), "differ": int(m[3]), "faults": int(m[4])}
    if m[5]:
        values["seconds"] = number(m[5])
    return [row("fuzz", "random programs", values=values, verdict="right" if m[3] == m[4] == "0" else "WRONG")]


@form(r"^ +(\d+) programs, (\d+) results, (\d+) faults, (\d+) kinds of differences$")
def fuzz_programs_by_kind(m, state):
    values = {"programs": int(m[1]), "results": int(m[2]), "faults": int(m[3]), "kinds_of_differences": int(m[4])}
    return [row("fuzz", "random programs", values=values, verdict="right" if m[3] == m[4] == "0" else "WRONG")]


@form(r"^ *(\d+) multiplies, (\d+) values$")
def fuzz_multiplies(m, state):
    return [row("fuzz", "multiplies", values={"multiplies": int(m[1]), "values": int(m[2])})]


@form(r"^ *processor seconds: ([\d.]+) making programs, ([\d.]+) simulating, ([\d.]+) device and its compiler$")
def fuzz_seconds(m, state):
    return [row("fuzz", "processor seconds", values={"making_s": number(m[1]), "simulating_s": number(m[2]),
                                                      "device_s": number(m[3])})]


@form(r"^ *([a-z][a-z0-9_]+)\s+(\d+)\s+(\d+)\s+([\d.]+e[-+]?\d+)(?:\s+([\d.]+e[-+]?\d+))?(?:\s+(right|wrong))?$")
def selftest(m, state):
    values = {"right": int(m[2]), "wrong": int(m[3]), "max_error": number(m[4])}
    return [row("selftest", m[1], values=values, error=number(m[5]) if m[5] else None,
                verdict=m[6] or ("right" if m[3] == "0" else "WRONG"))]


@form(r"^ *(\d+) of (\d+) trials right$")
def selftest_all(m, state):
    return [row("selftest", "all", values={"right": int(m[1]), "trials": int(m[2])})]


@form(r"^gemv: (\d+) of (\d+) right, largest relative error (\S+)$")
def selftest_gemv(m, state):
    return [row("selftest", "gemv", values={"right": int(m[1]), "trials": int(m[2])}, error=number(m[3]))]


@form(r"^best of (\d+) variants: \{'batch': (\d+), 'k': (\d+), 'n': (\d+)\} (.*) ([\d.]+) ([\d.]+)$")
def gemv_tuning(m, state):
    shape = {"batch": int(m[2]), "k": int(m[3]), "n": int(m[4])}
    state.tuned = shape
    values = {"variants": int(m[1]), "read_tb_s": number(m[7])}
    return [row("gemv", m[5], shape=shape, median_us=number(m[6]), values=values)]


@form(r"^worst (.*) ([\d.]+) (\d+)$")
def gemv_worst(m, state):
    return [row("gemv", f"worst: {m[1]}", shape=state.tuned, median_us=number(m[2]), values={"variants": int(m[3])})]


@form(r"^ +(\d+) +(\d+) ((?:greedy|temperature|[\d.]+, top-).*?)\s{2,}([\d.]+)$")
def sample(m, state):
    return [row("sample", m[3], shape={"tokens": int(m[1]), "rows": int(m[2])}, median_us=number(m[4]))]


@form(r"^test (\S+) \.\.\. ?(ok|FAILED)?(.*)$")
def test(m, state):
    state.test = m[1]
    return [row("tests", m[1], verdict=m[2] or "said below", remark=m[3].strip())]


@form(r"^test result: (\w+)\. (\d+) passed; (\d+) failed; (\d+) ignored; (\d+) measured; (\d+) filtered out; finished in ([\d.]+)s$")
def test_result(m, state):
    names = ("passed", "failed", "ignored", "measured", "filtered_out")
    values = {name: int(m[2 + at]) for at, name in enumerate(names)} | {"seconds": number(m[7])}
    return [row("tests", "all", values=values, verdict=m[1])]


@form(r"^(host|h100), (\d+) workers: step ([\d.]+) GB/s, plain sum ([\d.]+) GB/s: (\d+) %$")
def host_step(m, state):
    values = {"workers": int(m[2]), "step_gb_s": number(m[3]), "plain_sum_gb_s": number(m[4]), "share %": int(m[5])}
    return [row("host", f"step, program for {m[1]}, against a plain sum", values=values)]


@form(r"^geometric mean of (\d+) ratios: ([\d.]+)$")
def geometric_mean(m, state):
    return [row(state.suite(), "geometric mean of the ratios", values={"ratios": int(m[1]), "mean": number(m[2])})]


@form(r"^ +DIFFERS (\S+) (\d+) programs, (.*)$")
def fuzz_difference(m, state):
    return [row("fuzz", m[1], values={"programs": int(m[2])}, verdict="differs", remark=m[3])]


@form(r"^ +(\w+\.approx\.ftz) over every f32 in (.*): largest error (\S+) = (.*)$")
def largest_error(m, state):
    return [row("fuzz", f"{m[1]} over every f32 in {m[2]}", error=number(m[3]), remark=m[4])]


@form(r"^ +kernels that ran (\d+) of (\d+): (\d+) programs, (\d+) of them differ$")
def fuzz_kernels(m, state):
    names = ("kernels_that_ran", "kernels", "programs", "differ")
    return [row("fuzz", "random programs, a process a kernel", values=dict(zip(names, map(int, m.groups()))), verdict="WRONG")]


@form(r"^ +(\d+) matrix cases, (\d+) wrong$")
def fuzz_matrices(m, state):
    return [row("fuzz", "multiplies", values={"multiplies": int(m[1]), "wrong": int(m[2])}, verdict="right")]


@form(r"^(1B|8B)(?: (\d) splits)?: +([\d.]+)(?:, ([\d.]+))? without; ([\d.]+)(?:, ([\d.]+))? tagged; ([\d.]+)(?:, ([\d.]+))? tagged and ahead$")
def trial_of_tags(m, state):
    rows = []
    positions = (900,) if m[1] == "8B" else (1, 3890)
    for way, texts in (("without", m.group(3, 4)), ("tagged", m.group(5, 6)), ("tagged and ahead", m.group(7, 8))):
        for position, text in zip(positions, texts):
            variant = f"{m[1]} 1/4, {m[2]} splits, {way}" if m[2] else f"{m[1]} 1/4, {way}"
            rows.append(row("decode trials", variant, shape=MODELS[m[1]] | {"batch": 1, "position": position},
                            median_us=round(number(text) * 1e3, 6)))
    return rows
