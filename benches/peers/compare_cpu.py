#!/usr/bin/env python3
"""Compares Kernwright's CPU executor with PyTorch's: the same shapes, the programs in turn, medians and their ratios.

Builds `step_cpu` of the crate kernwright-runtime, then runs it and `step_cpu.py` one after the other, several rounds
per shape, on a machine that should be quiet. Needs PyTorch in the Python that runs it. See README.md beside this file.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SHAPES = {
    "tiny": dict(vocab=256, d_model=128, layers=5, heads=4, kv_heads=2, head_dim=32, d_ff=352),
    "10M": dict(vocab=4096, d_model=384, layers=6, heads=6, kv_heads=2, head_dim=64, d_ff=896),
}
IN_ATTENTION = ("heads", "kv_heads", "head_dim")


def fields(shape, context):
    """The shape as Kernwright's lines of `path = value`."""
    lines = [f"model.context = {context}", "model.tied", "attention.rope", "feed_forward.swiglu"]
    for name, value in shape.items():
        section = "attention" if name in IN_ATTENTION else "feed_forward" if name == "d_ff" else "model"
        lines.append(f"{section}.{name} = {value}")
    return "\n".join(lines) + "\n"


def build():
    """The path of the built program, as cargo tells it."""
    command = ["cargo", "build", "--release", "-p", "kernwright-runtime", "--example", "step_cpu"]
    out = subprocess.run(command + ["--message-format=json"], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    messages = [json.loads(line) for line in out.splitlines()]
    programs = [message["executable"] for message in messages if message.get("executable")]
    return programs[-1]


def row(command):
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    return json.loads(out.splitlines()[0])


def main():
    parser = argparse.ArgumentParser(description="Kernwright against PyTorch on the CPU, in turn")
    for name, default in dict(batch=8, length=256, steps=20, threads=2, rounds=5).items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    a = parser.parse_args()
    program = build()
    settings = [part for name in ("batch", "length", "steps", "threads") for part in (f"--{name}", str(getattr(a, name)))]
    print(f"batch {a.batch}, length {a.length}, {a.threads} threads, median of {a.steps} steps")
    print("processor: the ratio of the processor time of a step; on a busy machine only this one, and only with one thread")
    print(f"{'shape':6} {'round':>5} {'torch':>8} {'ours':>8} {'ratio':>6} {'processor':>9} {'peak/plan':>9}")
    for name in a.shapes:
        shape = SHAPES[name]
        flags = [part for key, value in shape.items() for part in (f"--{key.replace('_', '-')}", str(value))]
        ratios = []
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write(fields(shape, a.length))
            file.flush()
            for number in range(1, a.rounds + 1):
                torch = row([sys.executable, str(HERE / "step_cpu.py"), *flags, *settings])
                ours = row([program, "--shape", file.name, *settings])
                if torch["parameters"] != ours["parameters"]:
                    sys.exit(f"{name}: {torch['parameters']} and {ours['parameters']} parameters")
                ratio = ours["tokens_per_second"] / torch["tokens_per_second"]
                processor = torch["processor_ms"] / ours["processor_ms"]
                ratios.append((ratio, processor))
                print(
                    f"{name:6} {number:5} {torch['tokens_per_second']:8} {ours['tokens_per_second']:8} "
                    f"{ratio:6.2f} {processor:9.2f} {ours['peak_mib'] / ours['planned_mib']:9.2f}",
                    flush=True,
                )
        ratio, processor = (statistics.median(column) for column in zip(*ratios))
        print(f"{name:6} {'':5} {'':8} {'median':>8} {ratio:6.2f} {processor:9.2f}")


if __name__ == "__main__":
    main()
