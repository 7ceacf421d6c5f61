#!/usr/bin/env python3
"""Writes the golden files: small models in plain PyTorch, with logits, loss and every gradient.

    python3 -m venv .venv && .venv/bin/pip install torch numpy safetensors
    .venv/bin/python tests/golden/make.py                        # writes tests/golden/*.safetensors
    .venv/bin/pip install transformers
    .venv/bin/python tests/golden/make.py --check-transformers   # compares with Hugging Face's models, writes nothing

Everything is fp32 on one CPU thread and seeded, so that the same versions write the same bytes (the files here are
of torch 2.15; transformers 5.24 agreed to 2e-6 of each tensor's largest element). The model is written from the
definitions alone and shares no code with Kernwright. A file holds, under the names of the plan's buffers: `tokens`
and `targets` [batch, length] (some targets are -100), every parameter, `logits` [batch * length, vocab], `loss` [1],
and the gradient `d_NAME` of every parameter; in its metadata `shape`, the flat text form.
"""

import argparse
import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

FOLDER = pathlib.Path(__file__).resolve().parent
IGNORED = -100

# Sizes are odd where they may be, and no value is a default, so that a field that is ignored shows.
SHAPES = {
    "llama": """
        model.vocab = 61
        model.context = 32
        model.d_model = 48
        model.layers = 2
        model.tied = true
        model.norm = rms
        model.norm.eps = 1e-3
        model.precision = fp32
        attention.heads = 6
        attention.kv_heads = 2
        attention.head_dim = 8
        attention.rope = true
        attention.rope.theta = 777.0
        attention.causal = true
        feed_forward.swiglu = true
        feed_forward.d_ff = 72
    """,
    "gpt2": """
        model.vocab = 67
        model.context = 17
        model.d_model = 40
        model.layers = 2
        model.tied = true
        model.norm = layer
        model.norm.eps = 2e-4
        model.positions = learned
        model.biases = all
        model.precision = fp32
        attention.heads = 5
        attention.head_dim = 8
        attention.causal = true
        feed_forward.gelu_tanh = true
        feed_forward.d_ff = 104
    """,
    "qwen": """
        model.vocab = 59
        model.context = 64
        model.d_model = 40
        model.layers = 2
        model.tied = false
        model.norm = rms
        model.norm.eps = 1e-6
        model.biases = qkv
        model.precision = fp32
        attention.heads = 4
        attention.kv_heads = 2
        attention.head_dim = 24
        attention.rope = true
        attention.rope.theta = 31000.0
        attention.causal = true
        attention.qk_norm = true
        feed_forward.swiglu = true
        feed_forward.d_ff = 56
    """,
    # What the published families above do not use: exact GELU, a full mask, layer norm with rope and qk_norm.
    "full": """
        model.vocab = 31
        model.context = 16
        model.d_model = 24
        model.layers = 1
        model.tied = false
        model.norm = layer
        model.norm.eps = 1e-2
        model.precision = fp32
        attention.heads = 3
        attention.kv_heads = 1
        attention.head_dim = 16
        attention.rope = true
        attention.rope.theta = 55.0
        attention.full = true
        attention.qk_norm = true
        feed_forward.gelu = true
        feed_forward.d_ff = 40
    """,
}
BATCH = {"llama": 2, "gpt2": 3, "qwen": 2, "full": 2}
LENGTH = {"llama": 13, "gpt2": 11, "qwen": 13, "full": 7}


class Shape:
    """The fields of a declaration, as attributes."""

    def __init__(self, text):
        self.text = "".join(line.strip() + "\n" for line in text.strip().splitlines())
        field = dict(line.split(" = ") for line in self.text.splitlines())
        self.vocab = int(field["model.vocab"])
        self.context = int(field["model.context"])
        self.d_model = int(field["model.d_model"])
        self.layers = int(field["model.layers"])
        self.tied = field["model.tied"] == "true"
        self.layer_norm = field["model.norm"] == "layer"
        self.eps = float(field["model.norm.eps"])
        self.learned = field.get("model.positions") == "learned"
        self.biases = field.get("model.biases", "none")
        self.heads = int(field["attention.heads"])
        self.kv_heads = int(field.get("attention.kv_heads", self.heads))
        self.head_dim = int(field["attention.head_dim"])
        theta = field.get("attention.rope.theta")
        self.theta = None if theta is None else float(theta)
        self.causal = "attention.full" not in field
        self.qk_norm = field.get("attention.qk_norm") == "true"
        self.activation = next(kind for kind in ("swiglu", "gelu", "gelu_tanh") if f"feed_forward.{kind}" in field)
        self.d_ff = int(field["feed_forward.d_ff"])

    def parameters(self, generator):
        """Random parameters; norms and biases too, since ones and zeros would hide mistakes."""
        tensors = {}

        def normal(name, shape, deviation, centre=0.0):
            value = torch.randn(shape, generator=generator) * deviation + centre
            tensors[name] = value.requires_grad_()

        def norm(name, columns, bias):
            normal(f"{name}.weight", (columns,), 0.3, 1.0)
            if bias:
                normal(f"{name}.bias", (columns,), 0.2)

        def linear(name, outputs, inputs, bias):
            normal(f"{name}.weight", (outputs, inputs), inputs**-0.5)
            if bias:
                normal(f"{name}.bias", (outputs,), 0.2)

        normal("embedding.weight", (self.vocab, self.d_model), 0.25)
        if self.learned:
            normal("positions.weight", (self.context, self.d_model), 0.25)
        for layer in range(self.layers):
            at = f"layers.{layer}"
            norm(f"{at}.attention_norm", self.d_model, self.layer_norm)
            qkv = (self.heads + 2 * self.kv_heads) * self.head_dim
            linear(f"{at}.attention.qkv", qkv, self.d_model, self.biases != "none")
            if self.qk_norm:
                norm(f"{at}.attention.q_norm", self.head_dim, False)
                norm(f"{at}.attention.k_norm", self.head_dim, False)
            linear(f"{at}.attention.output", self.d_model, self.heads * self.head_dim, self.biases == "all")
            norm(f"{at}.feed_forward_norm", self.d_model, self.layer_norm)
            hidden = self.d_ff * (2 if self.activation == "swiglu" else 1)
            linear(f"{at}.feed_forward.up", hidden, self.d_model, self.biases == "all")
            linear(f"{at}.feed_forward.down", self.d_model, self.d_ff, self.biases == "all")
        norm("final_norm", self.d_model, self.layer_norm)
        if not self.tied:
            normal("head.weight", (self.vocab, self.d_model), 0.25)
        return tensors


def rotate(x, theta):
    """x is [batch, heads, length, head_dim]; the pairs are (i, i + head_dim / 2)."""
    length, head_dim = x.shape[-2:]
    pair = torch.arange(head_dim // 2, dtype=torch.float64)
    position = torch.arange(length, dtype=torch.float64)
    angle = position[:, None] * theta ** (-2.0 * pair / head_dim)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def logits(shape, p, tokens):
    """The whole forward pass; tokens are [batch, length], the result is [batch, length, vocab]."""

    def norm(name, x):
        weight = p[f"{name}.weight"]
        if f"{name}.bias" in p:
            return F.layer_norm(x, weight.shape, weight, p[f"{name}.bias"], shape.eps)
        return F.rms_norm(x, weight.shape, weight, shape.eps)

    def linear(name, x):
        return F.linear(x, p[f"{name}.weight"], p.get(f"{name}.bias"))

    batch, length = tokens.shape
    x = F.embedding(tokens, p["embedding.weight"])
    if shape.learned:
        x = x + p["positions.weight"][:length]
    for layer in range(shape.layers):
        at = f"layers.{layer}"
        qkv = linear(f"{at}.attention.qkv", norm(f"{at}.attention_norm", x))
        parts = qkv.split([n * shape.head_dim for n in (shape.heads, shape.kv_heads, shape.kv_heads)], dim=-1)
        q, k, v = (part.view(batch, length, -1, shape.head_dim).transpose(1, 2) for part in parts)
        if shape.qk_norm:
            q, k = norm(f"{at}.attention.q_norm", q), norm(f"{at}.attention.k_norm", k)
        if shape.theta is not None:
            q, k = rotate(q, shape.theta), rotate(k, shape.theta)
        group = shape.heads // shape.kv_heads
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=shape.causal)
        out = out.transpose(1, 2).reshape(batch, length, -1)
        x = x + linear(f"{at}.attention.output", out)
        up = linear(f"{at}.feed_forward.up", norm(f"{at}.feed_forward_norm", x))
        if shape.activation == "swiglu":
            gate, up = up.chunk(2, dim=-1)
            hidden = F.silu(gate) * up
        else:
            hidden = F.gelu(up, approximate="tanh" if shape.activation == "gelu_tanh" else "none")
        x = x + linear(f"{at}.feed_forward.down", hidden)
    return F.linear(norm("final_norm", x), p["embedding.weight" if shape.tied else "head.weight"])


def cross_entropy(values, targets):
    return F.cross_entropy(values.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)


def golden(name):
    """A shape with its tokens, targets, parameters, logits and loss; the parameters have their gradients."""
    shape = Shape(SHAPES[name])
    generator = torch.Generator().manual_seed(1000 + list(SHAPES).index(name))
    p = shape.parameters(generator)
    size = (BATCH[name], LENGTH[name])
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


def peer(name, shape):
    """Hugging Face's model of the same shape, and for each of its parameters ours: (name, rows, transposed)."""
    import transformers

    q, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    whole = slice(None)
    if name == "gpt2":
        config = transformers.GPT2Config(
            vocab_size=shape.vocab, n_positions=shape.context, n_embd=shape.d_model, n_layer=shape.layers,
            n_head=shape.heads, n_inner=shape.d_ff, activation_function="gelu_new",
            layer_norm_epsilon=shape.eps, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        )  # fmt: skip
        pairs = {"transformer.wte.weight": ("embedding.weight", whole, False)}
        pairs["transformer.wpe.weight"] = ("positions.weight", whole, False)
        names = {"ln_1": "attention_norm", "attn.c_attn": "attention.qkv", "attn.c_proj": "attention.output"}
        names |= {"ln_2": "feed_forward_norm", "mlp.c_fc": "feed_forward.up", "mlp.c_proj": "feed_forward.down"}
        for layer in range(shape.layers):
            for theirs, ours in names.items():
                theirs, ours = f"transformer.h.{layer}.{theirs}", f"layers.{layer}.{ours}"
                pairs[f"{theirs}.weight"] = (f"{ours}.weight", whole, ".c_" in theirs)
                pairs[f"{theirs}.bias"] = (f"{ours}.bias", whole, False)
        for part in ("weight", "bias"):
            pairs[f"transformer.ln_f.{part}"] = (f"final_norm.{part}", whole, False)
        return transformers.GPT2LMHeadModel(config), pairs
    settings = dict(
        vocab_size=shape.vocab, max_position_embeddings=shape.context, hidden_size=shape.d_model,
        num_hidden_layers=shape.layers, num_attention_heads=shape.heads, num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim, intermediate_size=shape.d_ff, rms_norm_eps=shape.eps, hidden_act="silu",
        tie_word_embeddings=shape.tied, attention_bias=shape.biases == "qkv",
    )  # fmt: skip
    # Version 5 takes the base of the angles in a dictionary, version 4 by itself.
    if int(transformers.__version__.split(".")[0]) >= 5:
        settings["rope_parameters"] = {"rope_type": "default", "rope_theta": shape.theta}
    else:
        settings["rope_theta"] = shape.theta
    if name == "llama":
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**settings))
    else:
        model = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**settings))
    pairs = {"model.embed_tokens.weight": ("embedding.weight", whole, False)}
    pairs["model.norm.weight"] = ("final_norm.weight", whole, False)
    if not shape.tied:
        pairs["lm_head.weight"] = ("head.weight", whole, False)
    names = {"input_layernorm": ("attention_norm", whole), "post_attention_layernorm": ("feed_forward_norm", whole)}
    names |= {"self_attn.q_norm": ("attention.q_norm", whole), "self_attn.k_norm": ("attention.k_norm", whole)}
    names |= {"self_attn.q_proj": ("attention.qkv", slice(0, q))}
    names |= {"self_attn.k_proj": ("attention.qkv", slice(q, q + kv))}
    names |= {"self_attn.v_proj": ("attention.qkv", slice(q + kv, q + 2 * kv))}
    names |= {"self_attn.o_proj": ("attention.output", whole)}
    names |= {"mlp.gate_proj": ("feed_forward.up", slice(0, shape.d_ff))}
    names |= {"mlp.up_proj": ("feed_forward.up", slice(shape.d_ff, None))}
    names |= {"mlp.down_proj": ("feed_forward.down", whole)}
    for layer in range(shape.layers):
        for theirs, (ours, rows) in names.items():
            for part in ("weight", "bias"):
                pairs[f"model.layers.{layer}.{theirs}.{part}"] = (f"layers.{layer}.{ours}.{part}", rows, False)
    return model, pairs


def compare_with_transformers(name):
    """Copies our weights into their model; logits, loss and every gradient must agree."""
    shape, tokens, targets, p, values, loss = golden(name)
    model, pairs = peer(name, shape)
    theirs = dict(model.named_parameters())
    unknown = [key for key in theirs if pairs.get(key, ("",))[0] not in p]
    # Qwen3's `attention_bias` gives the output projection a bias too, which ours lacks: it is 0 there.
    assert all(key.endswith("o_proj.bias") for key in unknown), unknown
    mapped = {pairs[key][0] for key in theirs if key not in unknown}
    assert mapped == set(p), set(p) - mapped
    with torch.no_grad():
        for key, tensor in theirs.items():
            tensor.zero_()
            if key not in unknown:
                parameter, rows, transposed = pairs[key]
                value = p[parameter][rows]
                tensor.copy_(value.T if transposed else value)
    found = model.eval()(tokens).logits
    found_loss = cross_entropy(found, targets)
    found_loss.backward()
    worst = (0.0, "")
    for key, tensor in theirs.items():
        if key not in unknown:
            parameter, rows, transposed = pairs[key]
            expected = p[parameter].grad[rows]
            difference = (tensor.grad.T if transposed else tensor.grad) - expected
            worst = max(worst, ((difference.abs().max() / expected.abs().max()).item(), key))
    error = ((found - values).abs().max() / values.abs().max()).item()
    print(f"{name}: logits {error:.1e}, loss {abs(found_loss - loss).item():.1e}, gradients {worst[0]:.1e} ({worst[1]})")
    assert max(error, worst[0]) < 1e-5, name


def main():
    parser = argparse.ArgumentParser(description="writes the golden files")
    parser.add_argument("--check-transformers", action="store_true", help="compare with Hugging Face's models")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name in SHAPES:
        if not arguments.check_transformers:
            write(name)
        elif name != "full":
            compare_with_transformers(name)


if __name__ == "__main__":
    main()
