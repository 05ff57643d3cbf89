"""Decode steps of models of the package ``transformers`` with tilewright's ops, on torch's tensors.

For Llama, Mistral and Qwen 2 in bfloat16 on one GPU. The prompt is the model's own; :class:`Decoder`
takes the keys and values over and runs one token of each sequence a step::

    cache = transformers.StaticCache(config=model.config, max_cache_len=4096)
    model(prompt, past_key_values=cache, use_cache=True)
    decoder = tilewright.transformers.Decoder(model, context=4096)
    decoder.load(cache, tokens=prompt.shape[1])
    logits = decoder(token, position)

A step allocates nothing that a CUDA graph does not keep, so that it can be captured after its first run.
"""

from typing import Any

import torch
from torch import Tensor

from . import ops

__all__ = ["Decoder"]

_FAMILIES = ("llama", "mistral", "qwen2")
_B16 = torch.bfloat16


class _Linear:
    """Linear layers of one input as one packed weight."""

    def __init__(self, form: str, *layers: Any) -> None:
        self.form = form
        self.packed = ops.pack(torch.cat([layer.weight.detach() for layer in layers]), form)
        biases = [layer.bias for layer in layers if layer.bias is not None]
        self.bias = torch.cat([bias.detach() for bias in biases]) if biases else None
        self.width = sum(int(layer.out_features) for layer in layers)

    def __call__(self, x: Tensor, out: Tensor, residual: Tensor | None = None) -> Tensor:
        ops.linear(x, self.packed, out=out, form=self.form, bias=self.bias, residual=residual)
        return out


class _Norm:
    def __init__(self, norm: Any) -> None:
        self.weight, self.eps = norm.weight.detach(), float(norm.variance_epsilon)

    def __call__(self, x: Tensor, out: Tensor) -> Tensor:
        ops.rms_norm(x, self.weight, out=out, eps=self.eps)
        return out


class _Layer:
    def __init__(self, layer: Any, form: str) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self.norms = _Norm(layer.input_layernorm), _Norm(layer.post_attention_layernorm)
        self.qkv = _Linear(form, attention.q_proj, attention.k_proj, attention.v_proj)
        self.o = _Linear(form, attention.o_proj)
        self.gate_up, self.down = _Linear(form, mlp.gate_proj, mlp.up_proj), _Linear(form, mlp.down_proj)


class Decoder:
    """A model's decode step: 1 to 16 sequences, one token of each.

    Weights are packed once in a ``form`` of :func:`tilewright.ops.pack`, besides those of the model. Keys
    and values of ``context`` tokens lie in tensors of the decoder's own.
    """

    def __init__(self, model: Any, *, context: int, sequences: int = 1, form: str = "bf16") -> None:
        config, body = model.config, model.model
        if config.model_type not in _FAMILIES:
            raise ops.OpError(f"a decoder runs {', '.join(_FAMILIES)}; this model is a {config.model_type}")
        window = getattr(config, "sliding_window", None)
        if window is not None and getattr(config, "use_sliding_window", True) and window < context:
            raise ops.OpError(f"the model attends to the newest {window} tokens; a decoder of {context} attends to all")
        if config.hidden_act != "silu" or model.dtype != _B16:
            raise ops.OpError(f"a decoder runs silu in bfloat16; this model has {config.hidden_act} in {model.dtype}")
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.dim = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.sequences, self.context = sequences, context
        self.embedding = body.embed_tokens.weight.detach()
        self.layers = [_Layer(layer, form) for layer in body.layers]
        self.norm, self.head = _Norm(body.norm), _Linear("bf16", model.lm_head)

        device = self.embedding.device
        rotary = body.rotary_emb
        angles = torch.outer(torch.arange(context, device=device).double(), rotary.inv_freq.double().to(device))
        self.turns = (torch.stack([angles.cos(), angles.sin()], -1) * rotary.attention_scaling).float()
        # Values lie behind queries and keys; at position 0, where they are put, nothing turns.
        turned, values = [1] * (self.heads + self.kv_heads), [0] * self.kv_heads
        self.turned = torch.tensor(turned + values, dtype=torch.int32, device=device)

        def room(*shape: int, dtype: torch.dtype = _B16) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        hidden, inner = config.hidden_size, config.intermediate_size
        self.cache = [room(2, sequences, self.kv_heads, context, self.dim) for _ in self.layers]
        self.x, self.y = room(sequences, hidden), room(sequences, hidden)
        self.qkv = room(sequences, self.layers[0].qkv.width)
        self.attended = room(sequences, self.heads, self.dim)
        self.gate_up, self.inner = room(sequences, 2 * inner), room(sequences, inner)
        self.logits = room(sequences, self.head.width, dtype=torch.float32)
        self.rows = torch.arange(sequences, device=device)
        q = self.qkv.view(sequences, -1, self.dim)[:, : self.heads]
        self.workspace = room(ops.attention_workspace(q, self.cache[0][0]), dtype=torch.float32)

    @torch.no_grad()
    def load(self, cache: Any, tokens: int) -> None:
        """Copies keys and values of the first ``tokens`` tokens from a cache of ``transformers``."""
        for own, layer in zip(self.cache, cache.layers):
            own[0, :, :, :tokens].copy_(layer.keys[:, :, :tokens])
            own[1, :, :, :tokens].copy_(layer.values[:, :, :tokens])

    @torch.no_grad()
    def __call__(self, token: Tensor, position: Tensor) -> Tensor:
        """Logits after a token of each sequence at its position, float32 ``[sequences, vocabulary]``.

        ``token`` and ``position`` are integers, one for each sequence. The result is overwritten by the
        next step.
        """
        sequences, heads = self.sequences, self.heads
        position = position.reshape(-1).int()
        seen = position + 1
        places = (position[:, None] * self.turned).reshape(-1)
        x, at = self.x, position.long()
        ops.embedding(self.embedding, token.reshape(-1).int(), out=x)
        for layer, cache in zip(self.layers, self.cache):
            layer.qkv(layer.norms[0](x, self.y), self.qkv)
            rows = self.qkv.view(-1, 1, self.dim)
            ops.rope(rows, self.turns, places, out=rows)
            qkv = self.qkv.view(sequences, -1, self.dim)
            cache[:, self.rows, :, at] = qkv[:, heads:].view(sequences, 2, self.kv_heads, self.dim)
            ops.attention_decode(
                qkv[:, :heads].contiguous(), cache[0], cache[1], seen, out=self.attended, workspace=self.workspace
            )
            layer.o(self.attended.view(sequences, -1), x, residual=x)
            gate, up = layer.gate_up(layer.norms[1](x, self.y), self.gate_up).chunk(2, -1)
            ops.silu_mul(gate.contiguous(), up.contiguous(), out=self.inner)
            layer.down(self.inner, x, residual=x)
        return self.head(self.norm(x, self.y), self.logits)
