"""Decompresses what `tilewright quantize` writes, by readers that are not tilewright's.

    python3 tests/interop/decompress.py DENSE QUANTISED [--package]

Always: a decoder of the published layout in plain Python. Each code must be the nearest to the dense weight for the scale of its
group (or the end of the range). With --package also the compressed-tensors package from PyPI (needs torch): it must
decompress to the same numbers, exactly with scales in float32, and rounded once in the type of the scales.
"""

import json
import re
import struct
import sys
from array import array
from pathlib import Path


def read(folder):
    """Name -> (type, shape, bytes) of model.safetensors."""
    data = (Path(folder) / "model.safetensors").read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    start = 8 + size
    return {
        name: (entry["dtype"], entry["shape"], data[start + entry["data_offsets"][0] : start + entry["data_offsets"][1]])
        for name, entry in header.items()
    }


def floats(dtype, data):
    """Elements as Python floats."""
    if dtype == "BF16":
        halves = array("H", data)
        return list(array("f", array("I", (half << 16 for half in halves)).tobytes()))
    return [x for (x,) in struct.iter_unpack({"F16": "<e", "F32": "<f"}[dtype], data)]


def e4m3(code):
    exponent, mantissa = code >> 3 & 15, code & 7
    magnitude = mantissa / 512 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
    return -magnitude if code & 128 else magnitude


def scheme_of(config, module):
    """The arguments of a module: the group with a `re:` target that matches it, or that of every linear layer."""
    groups = config["quantization_config"]["config_groups"].values()
    by_name = [g for g in groups for t in g["targets"] if t.startswith("re:") and re.match(t[3:], module)]
    return (by_name or [g for g in groups if "Linear" in g["targets"]])[0]


def decode(tensors, module, weights):
    """Numbers of the codes and scale of each weight, row by row."""
    scale_type, (rows, groups), scale_data = tensors[f"{module}.weight_scale"]
    scales = floats(scale_type, scale_data)
    if weights["type"] == "float":
        _, (n, k), codes = tensors[f"{module}.weight"]
        table = [e4m3(code) for code in range(256)]
        numbers = [table[code] for code in codes]
    else:
        bits = weights["num_bits"]
        n, k = struct.unpack("<qq", tensors[f"{module}.weight_shape"][2])
        _, (_, words), packed = tensors[f"{module}.weight_packed"]
        packed = array("I", packed)
        half, fields = 1 << (bits - 1), 32 // bits
        numbers = [
            (packed[row * words + column // fields] >> (bits * (column % fields)) & (2 * half - 1)) - half
            for row in range(n)
            for column in range(k)
        ]
    assert rows == n
    size = weights["group_size"] or k
    assert groups == -(-k // size), (module, groups, size, k)
    return n, k, numbers, [scales[row * groups + column // size] for row in range(n) for column in range(k)]


def check_nearest(module, weights, numbers, scales, dense):
    """Each number is the nearest of its kind to weight / scale."""
    if weights["type"] == "float":
        kinds = sorted({e4m3(code) for code in range(256) if code & 127 != 127})
    else:
        half = 1 << (weights["num_bits"] - 1)
        kinds = list(range(-half, half))
    place = {number: at for at, number in enumerate(kinds)}
    for number, scale, weight in zip(numbers, scales, dense):
        at, wanted = place[number], weight / scale
        error = abs(wanted - number) * (1 - 1e-6)
        for other in kinds[max(at - 1, 0) : at + 2]:
            assert error <= abs(wanted - other), f"{module}: {number} for {wanted}, {other} is nearer"


def check_package(tensors, module, group, n, k, numbers, scales):
    """The package's weights are the exact products."""
    import torch
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationScheme

    types = {"I32": torch.int32, "I64": torch.int64, "BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}
    types["F8_E4M3"] = torch.float8_e4m3fn
    prefix, state = f"{module}.", {}
    for name, (dtype, shape, data) in tensors.items():
        if name.startswith(prefix) and not name.endswith(".bias"):
            state[name[len(prefix) :]] = torch.frombuffer(bytearray(data), dtype=types[dtype]).reshape(shape)
    scheme = QuantizationScheme(**group)
    kind = BaseCompressor.get_value_from_registry(group["format"])

    def decompress(state):
        # Of 0.11 an instance decompresses a weight; of later versions a class does, by the scheme.
        if hasattr(kind, "decompress_weight"):
            return kind().decompress_weight(state, scheme.weights)
        return kind.decompress(state, scheme)["weight"]

    exact = torch.tensor(numbers, dtype=torch.float64) * torch.tensor(scales, dtype=torch.float64)
    exact = exact.reshape(n, k)
    stored = decompress(state)
    assert torch.equal(stored, exact.to(stored.dtype)), f"{module}: other numbers in {stored.dtype}"
    state["weight_scale"] = state["weight_scale"].float()
    wide = decompress(state)
    assert torch.equal(wide.double(), exact), f"{module}: other numbers in float32"


def main(dense, quantised, package):
    config = json.loads((Path(quantised) / "config.json").read_text())
    assert config["quantization_config"]["quant_method"] == "compressed-tensors"
    before, after = read(dense), read(quantised)
    modules = sorted(name[: -len(".weight_scale")] for name in after if name.endswith(".weight_scale"))
    error = size = 0.0
    for module in modules:
        group = scheme_of(config, module)
        n, k, numbers, scales = decode(after, module, group["weights"])
        dtype, shape, data = before[f"{module}.weight"]
        assert shape == [n, k], module
        weights = floats(dtype, data)
        check_nearest(module, group["weights"], numbers, scales, weights)
        error += sum((number * scale - w) ** 2 for number, scale, w in zip(numbers, scales, weights))
        size += sum(w * w for w in weights)
        if package:
            check_package(after, module, group, n, k, numbers, scales)
    for name in before.keys() & after.keys():
        if name.rsplit(".", 1)[0] not in modules:
            assert before[name] == after[name], f"{name} is not quantised, and differs"
    by = "the published layout and the package" if package else "the published layout"
    print(f"{len(modules)} modules decoded by {by}; relative L2 to the dense weights {(error / size) ** 0.5:.3e}")


if __name__ == "__main__":
    arguments = [argument for argument in sys.argv[1:] if argument != "--package"]
    if len(arguments) != 2:
        sys.exit(__doc__)
    main(*arguments, package="--package" in sys.argv)
