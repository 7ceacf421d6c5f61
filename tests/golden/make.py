#!/usr/bin/env python3
"""Writes the golden files: small models in plain PyTorch, with logits, loss and every gradient.

    python3 -m venv .venv && .venv/bin/pip install torch numpy safetensors
    .venv/bin/python tests/golden/make.py                        # writes tests/golden/*.safetensors
    .venv/bin/pip install transformers
    .venv/bin/python tests/golden/make.py --check-transformers   # compares with Hugging Face's models, writes nothing

Everything is fp32 on one CPU thread and seeded, so that the same versions write the same bytes (the files here are
of torch 2.15; transformers 5.24 agreed to 5e-6 of each tensor's largest element). The model is written from the
definitions alone and shares no code with Kernwright. A file holds, under the names of the plan's buffers: `tokens`
and `targets` [batch, length] (some targets are -100), every parameter, `logits` [batch * length, vocab], `loss` [1],
and the gradient `d_NAME` of every parameter; in its metadata `shape`, the flat text form. The shapes are in
`shapes.py`, their counterparts at Hugging Face in `peers.py`.
"""

import argparse
import math
import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from shapes import SHAPES, SIZE, SIZES

FOLDER = pathlib.Path(__file__).resolve().parent
IGNORED = -100

# The function of the feed-forward, and whether it is that of a gate beside the value.
ACTIVATIONS = {
    "swiglu": (F.silu, True),
    "geglu": (F.gelu, True),
    "geglu_tanh": (lambda x: F.gelu(x, approximate="tanh"), True),
    "gelu": (F.gelu, False),
    "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), False),
    "relu": (F.relu, False),
    "relu2": (lambda x: F.relu(x).square(), False),
}


class Shape:
    """The fields of a declaration, as attributes."""

    def __init__(self, text):
        self.text = "".join(line.strip() + "\n" for line in text.strip().splitlines())
        field = dict(line.split(" = ") for line in self.text.splitlines())

        def words(path, default):
            return field.get(path, default).strip("[]").split(", ")

        def flag(path):
            return field.get(path) == "true"

        def real(path, default=None):
            return float(field[path]) if path in field else default

        self.vocab = int(field["model.vocab"])
        self.context = int(field["model.context"])
        self.d_model = int(field["model.d_model"])
        self.layers = int(field["model.layers"])
        self.tied = flag("model.tied")
        self.norm = field["model.norm"]
        self.eps = float(field["model.norm.eps"])
        self.norm_weight = field.get("model.norm.weight", "w")
        self.placement = field.get("model.norm.placement", "pre")
        self.norm_embedding = flag("model.norm.embedding")
        self.learned = field.get("model.positions") == "learned"
        self.biases = words("model.biases", "none")
        self.parallel = flag("model.parallel")
        self.shared_norm = flag("model.parallel.shared_norm")
        self.embedding_scale = real("model.embedding_scale", 1.0)
        self.residual_scale = real("model.residual_scale", 1.0)
        self.logits_scale = real("model.logits_scale", 1.0)
        self.softcap = real("model.softcap")
        self.heads = int(field["attention.heads"])
        self.kv_heads = int(field.get("attention.kv_heads", self.heads))
        self.head_dim = int(field["attention.head_dim"])
        self.causal = not flag("attention.full")
        self.scale = real("attention.scale", self.head_dim**-0.5)
        self.attention_softcap = real("attention.softcap")
        self.qk_norm = field.get("attention.qk_norm")
        self.qk_norm_last = field.get("attention.qk_norm.order") == "after"
        self.activation = next(kind for kind in ACTIVATIONS if f"feed_forward.{kind}" in field)
        self.d_ff = int(field["feed_forward.d_ff"])
        pattern = words("model.pattern", "global")
        self.kinds = [Kind(field, pattern[layer % len(pattern)]) for layer in range(self.layers)]

    def parameters(self, generator):
        """Random parameters; norms and biases too, since ones and zeros would hide mistakes."""
        tensors = {}

        def normal(name, shape, deviation, centre=0.0):
            value = torch.randn(shape, generator=generator) * deviation + centre
            tensors[name] = value.requires_grad_()

        def norm(name, columns, bias):
            if self.norm_weight == "none":
                return
            normal(f"{name}.weight", (columns,), 0.3, 1.0 if self.norm_weight == "w" else 0.0)
            if bias:
                normal(f"{name}.bias", (columns,), 0.2)

        def linear(name, outputs, inputs, bias):
            normal(f"{name}.weight", (outputs, inputs), inputs**-0.5)
            if bias:
                normal(f"{name}.bias", (outputs,), 0.2)

        layer_norm, whole = self.norm == "layer", self.qk_norm == "whole"
        qkv_bias, bias = "qkv" in self.biases or "all" in self.biases, "all" in self.biases
        normal("embedding.weight", (self.vocab, self.d_model), 0.25)
        if self.learned:
            normal("positions.weight", (self.context, self.d_model), 0.25)
        if self.norm_embedding:
            norm("embedding_norm", self.d_model, layer_norm)
        for layer in range(self.layers):
            at = f"layers.{layer}"
            if self.placement != "post":
                norm(f"{at}.attention_norm", self.d_model, layer_norm)
            linear(f"{at}.attention.qkv", (self.heads + 2 * self.kv_heads) * self.head_dim, self.d_model, qkv_bias)
            if self.qk_norm:
                norm(f"{at}.attention.q_norm", self.head_dim * (self.heads if whole else 1), False)
                norm(f"{at}.attention.k_norm", self.head_dim * (self.kv_heads if whole else 1), False)
            linear(f"{at}.attention.output", self.d_model, self.heads * self.head_dim, bias)
            if self.placement != "pre":
                norm(f"{at}.attention_post_norm", self.d_model, layer_norm)
            if self.placement != "post" and not self.shared_norm:
                norm(f"{at}.feed_forward_norm", self.d_model, layer_norm)
            hidden = self.d_ff * (2 if ACTIVATIONS[self.activation][1] else 1)
            linear(f"{at}.feed_forward.up", hidden, self.d_model, bias)
            linear(f"{at}.feed_forward.down", self.d_model, self.d_ff, bias)
            if self.placement != "pre":
                norm(f"{at}.feed_forward_post_norm", self.d_model, layer_norm)
        norm("final_norm", self.d_model, layer_norm)
        if not self.tied:
            normal("head.weight", (self.vocab, self.d_model), 0.25)
        if "head" in self.biases:
            normal("head.bias", (self.vocab,), 0.2)
        return tensors


class Kind:
    """What is particular to the layers of a kind: what is said of it, else what is said of all."""

    def __init__(self, field, name):
        def get(key, default=None):
            return field.get(f"attention.{name}.{key}", field.get(f"attention.{key}", default))

        window = get("window")
        self.name = name
        self.window = None if window is None else int(window)
        self.rope = get("rope") == "true" and get("no_rope") != "true"
        if self.rope:
            self.theta = float(get("rope.theta"))
            self.fraction = float(get("rope.fraction", 1.0))
            self.scaling = get("rope.scaling", "none")
            settings = ("factor", "original_context", "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow")
            setting = {key: get(f"rope.scaling.{key}") for key in (*settings, "attention_factor")}
            self.setting = {key: float(value) for key, value in setting.items() if value is not None}

    def frequencies(self, rotary):
        """Radians per position of each pair."""
        return [self.scaled(pair, self.theta ** (-2.0 * pair / rotary), rotary) for pair in range(rotary // 2)]

    def scaled(self, pair, frequency, rotary):
        if self.scaling == "none":
            return frequency
        context, slow = self.setting["original_context"], frequency / self.setting["factor"]
        if self.scaling == "llama3":
            low, high = self.setting["low_freq_factor"], self.setting["high_freq_factor"]
            wave = 2.0 * math.pi / frequency
            if wave < context / high:
                return frequency
            if wave > context / low:
                return slow
            share = (context / wave - low) / (high - low)
            return share * frequency + (1.0 - share) * slow

        # YaRN: theta ** (-2 pair / rotary) * context = 2 pi turns, solved for the pair.
        def pair_of(turns):
            return rotary / 2.0 * math.log(context / (2.0 * math.pi * turns), self.theta)

        first = max(math.floor(pair_of(self.setting["beta_fast"])), 0)
        last = min(math.ceil(pair_of(self.setting["beta_slow"])), rotary - 1)
        share = min(max((pair - first) / (last - first), 0.0), 1.0)
        return share * slow + (1.0 - share) * frequency

    def attention_factor(self):
        if self.scaling != "yarn":
            return 1.0
        return self.setting.get("attention_factor", 0.1 * math.log(self.setting["factor"]) + 1.0)


def rotate(x, kind):
    """x is [batch, length, heads, head_dim]; the pairs are (i, i + rotary / 2) of the first `rotary` columns."""
    length, head_dim = x.shape[1], x.shape[-1]
    rotary = round(kind.fraction * head_dim)
    frequency = torch.tensor(kind.frequencies(rotary), dtype=torch.float64)
    angle = torch.arange(length, dtype=torch.float64)[:, None, None] * frequency
    cos, sin = ((kind.attention_factor() * f(angle)).to(x.dtype) for f in (torch.cos, torch.sin))
    a, b, rest = x.split([rotary // 2, rotary // 2, head_dim - rotary], dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], dim=-1)


def cap(x, bound):
    return x if bound is None else bound * torch.tanh(x / bound)


def logits(shape, p, tokens):
    """The whole forward pass; tokens are [batch, length], the result is [batch, length, vocab]."""
    batch, length = tokens.shape

    def norm(name, x, kind=shape.norm):
        weight = p.get(f"{name}.weight")
        if shape.norm_weight == "one_plus_w":
            weight = 1.0 + weight
        if kind == "layer":
            return F.layer_norm(x, x.shape[-1:], weight, p.get(f"{name}.bias"), shape.eps)
        return F.rms_norm(x, x.shape[-1:], weight, shape.eps)

    def before(name, x):
        return x if shape.placement == "post" else norm(f"{name}_norm", x)

    def after(name, x):
        return shape.residual_scale * (x if shape.placement == "pre" else norm(f"{name}_post_norm", x))

    def linear(name, x):
        return F.linear(x, p[f"{name}.weight"], p.get(f"{name}.bias"))

    def qk_norm(name, x):
        groups = x.flatten(2) if shape.qk_norm == "whole" else x
        return norm(name, groups, "rms").view_as(x)

    def attention(at, kind, x):
        columns = [n * shape.head_dim for n in (shape.heads, shape.kv_heads, shape.kv_heads)]
        parts = linear(f"{at}.qkv", x).split(columns, dim=-1)
        q, k, v = (part.view(batch, length, -1, shape.head_dim) for part in parts)
        if shape.qk_norm and not shape.qk_norm_last:
            q, k = qk_norm(f"{at}.q_norm", q), qk_norm(f"{at}.k_norm", k)
        if kind.rope:
            q, k = rotate(q, kind), rotate(k, kind)
        if shape.qk_norm and shape.qk_norm_last:
            q, k = qk_norm(f"{at}.q_norm", q), qk_norm(f"{at}.k_norm", k)
        k, v = (x.repeat_interleave(shape.heads // shape.kv_heads, dim=2) for x in (k, v))
        scores = cap(shape.scale * torch.einsum("bqhd,bkhd->bhqk", q, k), shape.attention_softcap)
        distance = torch.arange(length)[:, None] - torch.arange(length)
        hidden = distance.abs() >= (kind.window or length)
        if shape.causal:
            hidden |= distance < 0
        weights = scores.masked_fill(hidden, -math.inf).softmax(dim=-1)
        return linear(f"{at}.output", torch.einsum("bhqk,bkhd->bqhd", weights, v).flatten(2))

    def feed_forward(at, x):
        function, gated = ACTIVATIONS[shape.activation]
        up = linear(f"{at}.up", x)
        if gated:
            gate, up = up.chunk(2, dim=-1)
            return linear(f"{at}.down", function(gate) * up)
        return linear(f"{at}.down", function(up))

    x = shape.embedding_scale * F.embedding(tokens, p["embedding.weight"])
    if shape.learned:
        x = x + p["positions.weight"][:length]
    if shape.norm_embedding:
        x = norm("embedding_norm", x)
    for layer, kind in enumerate(shape.kinds):
        first, second = f"layers.{layer}.attention", f"layers.{layer}.feed_forward"
        y = x + after(first, attention(first, kind, before(first, x)))
        if shape.parallel:
            x = y + after(second, feed_forward(second, before(first if shape.shared_norm else second, x)))
        else:
            x = y + after(second, feed_forward(second, before(second, y)))
    weight = p["embedding.weight" if shape.tied else "head.weight"]
    return cap(shape.logits_scale * F.linear(norm("final_norm", x), weight, p.get("head.bias")), shape.softcap)


def cross_entropy(values, targets):
    return F.cross_entropy(values.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)


def golden(name):
    """A shape with its tokens, targets, parameters, logits and loss; the parameters have their gradients."""
    shape = Shape(SHAPES[name])
    generator = torch.Generator().manual_seed(1000 + list(SHAPES).index(name))
    p = shape.parameters(generator)
    size = SIZES.get(name, SIZE)
    tokens = torch.randint(shape.vocab, size, generator=generator)
    targets = torch.randint(shape.vocab, size, generator=generator)
    targets[torch.rand(size, generator=generator) < 0.2] = IGNORED
    targets[0, -1] = IGNORED
    values = logits(shape, p, tokens)
    loss = cross_entropy(values, targets)
    loss.backward()
    return shape, tokens, targets, p, values, loss


def write(name):
    shape, tokens, targets, p, values, loss = golden(name)
    tensors = {"tokens": tokens.int(), "targets": targets.int(), "loss": loss.detach().reshape(1)}
    tensors["logits"] = values.detach().flatten(0, 1)
    for parameter, tensor in p.items():
        tensors[parameter] = tensor.detach()
        tensors[f"d_{parameter}"] = tensor.grad
    path = FOLDER / f"{name}.safetensors"
    # One key only: the library writes several in random order.
    save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, path, {"shape": shape.text})
    counted = int((targets != IGNORED).sum())
    print(f"{path.name}: loss {loss.item():.6f}, {counted} of {targets.numel()} counted, {path.stat().st_size} bytes")


def main():
    parser = argparse.ArgumentParser(description="writes the golden files")
    parser.add_argument("--check-transformers", action="store_true", help="compare with Hugging Face's models")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    if arguments.check_transformers:
        import peers

        for name in peers.FAMILIES:
            peers.compare(name, *golden(name))
    else:
        for name in SHAPES:
            write(name)


if __name__ == "__main__":
    main()
