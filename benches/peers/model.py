"""A Llama-like model in PyTorch and its training step, as a peer of a Kernwright Shape.

In: sizes. Out: a module whose parameters have Kernwright's names, and the optimiser that its plan has: RMS norm, rotary
positions on halves, grouped queries, SwiGLU, no biases, a tied head; clipping to a norm of 1, AdamW with decay on matrices.
Weights are fp32 and matrix products run in bf16 by autocast; the residual stream is of the type that is asked for.
"""

import json
import pathlib
import struct

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = dict(vocab=32000, d_model=768, layers=16, heads=12, kv_heads=4, head_dim=64, d_ff=1408)
SECTIONS = dict(heads="attention", kv_heads="attention", head_dim="attention", d_ff="feed_forward")
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
EPSILON, THETA = 1e-5, 10_000.0


class Norm(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(columns))

    def forward(self, x):
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPSILON) * self.weight).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = a.heads, a.kv_heads, a.head_dim
        self.qkv = nn.Linear(a.d_model, (a.heads + 2 * a.kv_heads) * a.head_dim, bias=False)
        self.output = nn.Linear(a.heads * a.head_dim, a.d_model, bias=False)

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape
        qkv = self.qkv(x).view(batch, length, -1, self.head_dim).transpose(1, 2)
        qk, v = qkv.split([self.heads + self.kv_heads, self.kv_heads], dim=1)
        one, other = qk.float().chunk(2, dim=-1)
        qk = torch.cat([one * cos - other * sin, other * cos + one * sin], dim=-1).to(v.dtype)
        q, k = qk.split([self.heads, self.kv_heads], dim=1)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.heads != self.kv_heads)
        return self.output(out.transpose(1, 2).reshape(batch, length, -1))


class FeedForward(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.up = nn.Linear(a.d_model, 2 * a.d_ff, bias=False)
        self.down = nn.Linear(a.d_ff, a.d_model, bias=False)

    def forward(self, x):
        gate, up = self.up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class Layer(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.attention_norm, self.attention = Norm(a.d_model), Attention(a)
        self.feed_forward_norm, self.feed_forward = Norm(a.d_model), FeedForward(a)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.attention_norm(x), cos, sin).to(x.dtype)
        return x + self.feed_forward(self.feed_forward_norm(x)).to(x.dtype)


class Model(nn.Module):
    """Its forward pass is the mean loss, so that a compiler sees all of it."""

    def __init__(self, a):
        super().__init__()
        self.residual = TYPES[a.residual]
        self.embedding = nn.Embedding(a.vocab, a.d_model)
        self.layers = nn.ModuleList(Layer(a) for _ in range(a.layers))
        self.final_norm = Norm(a.d_model)
        angle = torch.arange(a.length)[:, None] * THETA ** (-2.0 * torch.arange(a.head_dim // 2) / a.head_dim)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, targets):
        x = self.embedding(tokens).to(self.residual)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        logits = F.linear(self.final_norm(x), self.embedding.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


class Training:
    """A model, its optimiser and the step, whose forward and backward passes may be compiled."""

    def __init__(self, a, weights=None):
        torch.manual_seed(0)
        torch.set_float32_matmul_precision(a.fp32_products)
        self.device, self.dtype = a.device, TYPES[a.precision]
        self.model = Model(a).to(a.device)
        if weights is not None:
            self.model.load_state_dict(weights, strict=True)
        matrices = [p for p in self.model.parameters() if p.dim() > 1]
        vectors = [p for p in self.model.parameters() if p.dim() <= 1]
        groups = [dict(params=matrices, weight_decay=0.1), dict(params=vectors, weight_decay=0.0)]
        self.adamw = torch.optim.AdamW(groups, lr=a.learning_rate, betas=(0.9, 0.95), eps=1e-8, fused=True)
        self.forward = self.model
        if a.mode != "eager":
            self.forward = torch.compile(self.model, mode=None if a.mode == "default" else a.mode, dynamic=False)

    def step(self, tokens, targets):
        """Enqueues one step and gives its loss, which is the graph's own memory until the next step."""
        # What the graphs hold of the step before is free.
        torch.compiler.cudagraph_mark_step_begin()
        with torch.autocast(self.device, self.dtype, enabled=self.dtype != torch.float32):
            loss = self.forward(tokens, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.adamw.step()
        self.adamw.zero_grad(set_to_none=True)
        return loss.detach()


def tensors(path):
    """The fp32 tensors of a safetensors file, by name."""
    content = pathlib.Path(path).read_bytes()
    (n,) = struct.unpack("<Q", content[:8])
    found = {}
    for name, row in json.loads(content[8 : 8 + n]).items():
        if name != "__metadata__":
            begin, end = (8 + n + offset for offset in row["data_offsets"])
            values = torch.frombuffer(bytearray(content[begin:end]), dtype=torch.float32)
            found[name] = values.reshape(row["shape"])
    return found


def shape_flags(a):
    """The flags that give a Kernwright program the same shape."""
    flags = ["--preset", "seed-102m", "--set", f"model.context={a.length}", "--set", f"model.residual={a.residual}"]
    for name in SIZES:
        flags += ["--set", f"{SECTIONS.get(name, 'model')}.{name}={getattr(a, name)}"]
    return flags
