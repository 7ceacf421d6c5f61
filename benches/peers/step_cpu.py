#!/usr/bin/env python3
"""Trains a Llama-like model in PyTorch on the CPU, eagerly in fp32, and prints its speed as one line of JSON.

The same work as a step of `kernwright train`: forward, backward, clipping to a norm of 1, AdamW with decay on matrices
only. The defaults are the shape of the preset `tiny`. PyTorch gets what it offers for this: its fused attention, fused
AdamW, one joint matrix for query, key and value and one for gate and up. See README.md beside this file.
"""

import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = a.heads, a.kv_heads, a.head_dim
        self.attention_norm = nn.RMSNorm(a.d_model, eps=1e-5)
        self.qkv = nn.Linear(a.d_model, (a.heads + 2 * a.kv_heads) * a.head_dim, bias=False)
        self.output = nn.Linear(a.heads * a.head_dim, a.d_model, bias=False)
        self.feed_forward_norm = nn.RMSNorm(a.d_model, eps=1e-5)
        self.up = nn.Linear(a.d_model, 2 * a.d_ff, bias=False)
        self.down = nn.Linear(a.d_ff, a.d_model, bias=False)

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape
        qkv = self.qkv(self.attention_norm(x)).view(batch, length, -1, self.head_dim).transpose(1, 2)
        qk, v = qkv.split([self.heads + self.kv_heads, self.kv_heads], dim=1)
        a, b = qk.chunk(2, dim=-1)
        qk = torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)
        q, k = qk.split([self.heads, self.kv_heads], dim=1)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.output(out.transpose(1, 2).reshape(batch, length, -1))
        gate, up = self.up(self.feed_forward_norm(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Model(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.embedding = nn.Embedding(a.vocab, a.d_model)
        self.blocks = nn.ModuleList(Block(a) for _ in range(a.layers))
        self.final_norm = nn.RMSNorm(a.d_model, eps=1e-5)
        angle = torch.arange(a.length)[:, None] * a.theta ** (-2.0 * torch.arange(a.head_dim // 2) / a.head_dim)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return F.linear(self.final_norm(x), self.embedding.weight)


def optimizer(model):
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    try:
        return torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), fused=True), "fused"
    except RuntimeError:
        return torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), foreach=True), "foreach"


def main():
    parser = argparse.ArgumentParser(description="times training steps of a Llama-like model in PyTorch on the CPU")
    sizes = dict(vocab=256, d_model=128, layers=5, heads=4, kv_heads=2, head_dim=32, d_ff=352)
    sizes |= dict(batch=8, length=256, steps=20, threads=2)
    for name, default in sizes.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default)
    parser.add_argument("--theta", type=float, default=10_000.0)
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(0)
    model = Model(a)
    adamw, kind = optimizer(model)
    seconds, processor, losses = [], [], []
    for _ in range(a.steps + 3):
        text = torch.randint(a.vocab, (a.batch, a.length + 1))
        start, used = time.perf_counter(), time.process_time()
        loss = F.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adamw.step()
        adamw.zero_grad(set_to_none=True)
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
        processor.append(time.process_time() - used)
    # The first steps allocate.
    median = statistics.median(seconds[3:])
    row = {"peer": f"torch {torch.__version__}, eager, {kind} AdamW"}
    row |= {"tokens_per_second": round(a.batch * a.length / median), "median_step_ms": round(1e3 * median, 2)}
    row |= {"processor_ms": round(1e3 * statistics.median(processor[3:]), 2)}
    row |= {"parameters": sum(p.numel() for p in model.parameters())}
    row |= {"loss": [round(losses[0], 4), round(losses[-1], 4)]} | {name: getattr(a, name) for name in sizes}
    print(json.dumps(row))


if __name__ == "__main__":
    main()
