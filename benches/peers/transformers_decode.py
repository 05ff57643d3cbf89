#!/usr/bin/env python3
"""One decode step of a transformers Llama, whole and with tilewright's ops and plans. Prints one JSON row per line.

Usage: transformers_decode.py --config FILE [--context N] [--tokens N] [--layers N]

Random bf16 weights. The peer is the package's own model with a static cache, compiled by torch and captured in a CUDA graph. Ours are
the same model with our norms, linear layers, rotation and attention (`tilewright.transformers`), captured; and the plan of a whole
step (`Engine.plan`), captured with the feeding of its token, and as one launch of many tokens. Each row says how far its logits are
from the model's own, relative to the largest, and a replay of a step ends when the host has read its token.
"""
import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path

import torch
import transformers

import tilewright
import tilewright.transformers

BF16 = torch.bfloat16


def captured(step):
    """A graph of a step that was run before."""
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph


def microseconds(graph, token, position, first, tokens):
    position.fill_(first)
    times = []
    for _ in range(tokens):
        start = time.perf_counter()
        graph.replay()
        token.tolist()
        times.append((time.perf_counter() - start) * 1e6)
    return sorted(times)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--layers", type=int)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_grad_enabled(False)
    config = transformers.AutoConfig.from_pretrained(args.config)
    if args.layers:
        config.num_hidden_layers = args.layers
    config.max_position_embeddings = args.context
    config.eos_token_id, config.bos_token_id = 1, 0
    with torch.device("cuda"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=BF16, attn_implementation="sdpa").eval()
    shape = {"batch": 1, "context": args.context, "hidden": config.hidden_size, "layers": config.num_hidden_layers}
    first = args.context - args.tokens - 8
    prompt = torch.randint(config.vocab_size, (1, first), device="cuda")

    def emit(who, times, error, note=""):
        row = {"suite": "python decode", "who": who, "shape": shape, "note": note, "us": times[len(times) // 2], "best_us": times[0],
               "error": error, "samples_us": [round(time, 2) for time in times]}
        print(json.dumps(row), flush=True)

    token = torch.zeros(1, 1, dtype=torch.long, device="cuda")
    position = torch.zeros(1, dtype=torch.long, device="cuda")

    def filled():
        cache = transformers.StaticCache(config=config, max_cache_len=args.context)
        model(prompt, past_key_values=cache, use_cache=True)
        return cache

    # The peer.
    cache = filled()
    position.fill_(first)
    token.fill_(7)
    exact = model(token, past_key_values=cache, position_ids=position[None], cache_position=position).logits[0, -1].float()
    forward = torch.compile(model.forward, fullgraph=True)
    import torch._inductor.config as inductor
    inductor.coordinate_descent_tuning = True

    def lengths(cache, at):
        """The cache counts its tokens itself."""
        for layer in cache.layers:
            if hasattr(layer, "cumulative_length"):
                layer.cumulative_length.fill_(at) if torch.is_tensor(layer.cumulative_length) else setattr(layer, "cumulative_length", at)

    def peer():
        logits = forward(token, past_key_values=cache, position_ids=position[None], cache_position=position).logits
        token.copy_(logits[:, -1].argmax(-1, keepdim=True))
        position.add_(1)
        return logits

    def error(logits):
        return float((logits.float().flatten() - exact).abs().max() / exact.abs().max())

    lengths(cache, first)
    position.fill_(first)
    token.fill_(7)
    found = error(peer()[0, -1])
    graph = captured(peer)
    lengths(cache, first)
    emit("transformers-compile-cuda-graph", microseconds(graph, token, position, first, args.tokens), found, f"transformers {transformers.__version__}")
    del graph, forward, cache
    torch._dynamo.reset()

    # The model with our ops.
    decoder = tilewright.transformers.Decoder(model, context=args.context)
    decoder.load(filled(), first)

    def ours():
        logits = decoder(token, position)
        token.copy_(logits.argmax(-1, keepdim=True))
        position.add_(1)
        return logits

    position.fill_(first)
    token.fill_(7)
    found = error(ours()[0])
    graph = captured(ours)
    emit("tilewright", microseconds(graph, token, position, first, args.tokens), found, "ops on a transformers model")
    del graph, decoder

    # The plan of a step, and the launch of many.
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        # Its texts are not read.
        shutil.copy(Path(__file__).parents[2] / "models/tiny-llama/tokenizer.json", folder)
        del model
        with tilewright.Engine(folder, device="cuda:0") as engine:
            plan = engine.plan(context=args.context)
            fed, place, chosen = plan["token"], plan["position"], plan["next_token"]
            # The prompt, a token at a time.
            tokens = prompt[0].tolist()
            for at in range(first):
                fed.fill_(tokens[at])
                place.fill_(at)
                plan.queue()
            fed.fill_(7)
            place.fill_(first)
            plan.queue()
            found = error(plan["logits"])

            def whole():
                fed.copy_(chosen)
                place.add_(1)
                plan.queue()

            graph = captured(whole)
            emit("tilewright", microseconds(graph, chosen, place, first, args.tokens), found, "plan of a token")
            runs = []
            for _ in range(5):
                start = time.perf_counter()
                plan.run([7], [first], args.tokens)
                runs.append((time.perf_counter() - start) * 1e6 / args.tokens)
            plan.check()
            emit("tilewright", sorted(runs), found, f"plan, launches of {args.tokens}")


if __name__ == "__main__":
    main()
