#!/usr/bin/env python3
"""Times whole training steps in PyTorch and in Kernwright on one GPU: the same shape, the same run, and the ratio.

The peer is compiled (`torch.compile`, mode `reduce-overhead`: kernels replayed as graphs), with fused AdamW. Each program
runs in a process of its own, one after the other, several rounds; a step is timed between two events on the device
without waiting for it, and medians count. `--parity` trains both from the same weights on the same tokens instead, and
prints the greatest difference of their losses. See README.md beside this file.
"""

import argparse
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

try:
    import torch
except ImportError:
    raise SystemExit("PyTorch 2.5 or later is needed: `pip install torch`")

from model import SIZES, Training, shape_flags, tensors

# Of Kernwright: name, residual stream, flags.
MODES = {
    "free": ("bf16", ["--nondeterministic"]),
    "deterministic": ("bf16", []),
    "free, fp32 residual": ("fp32", ["--nondeterministic"]),
    "deterministic, fp32 residual": ("fp32", []),
}


def program():
    """The program on PATH, else the one that was built in this checkout."""
    built = pathlib.Path(__file__).resolve().parents[2] / "target" / "release" / "kernwright"
    return shutil.which("kernwright") or str(built)


def clock(device):
    """A point in time, and milliseconds from one to another once all is done."""
    if device == "cpu":
        return time.perf_counter, lambda start, end: 1e3 * (end - start)

    def mark():
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    return mark, lambda start, end: start.elapsed_time(end)


def peer(a):
    """Times the peer in this process and prints one line of JSON."""
    gpu = a.device == "cuda"
    if gpu:
        torch.cuda.reset_peak_memory_stats()
    training = Training(a)
    text = torch.randint(a.vocab, (a.batch * a.length + 1,), device=a.device)
    tokens, targets = (part.view(a.batch, a.length) for part in (text[:-1], text[1:]))
    mark, milliseconds = clock(a.device)
    first = training.step(tokens, targets).item()
    for _ in range(a.warmup):
        training.step(tokens, targets)
    if gpu:
        torch.cuda.synchronize()
    spans, start = [], time.perf_counter()
    for _ in range(a.steps):
        begin = mark()
        loss = training.step(tokens, targets)
        spans.append((begin, mark()))
    if gpu:
        torch.cuda.synchronize()
    wall = 1e3 * (time.perf_counter() - start) / a.steps
    times = [milliseconds(*span) for span in spans]
    median = statistics.median(times)
    row = dict(peer=f"torch {torch.__version__}, {a.mode}", device=torch.cuda.get_device_name() if gpu else "cpu")
    row |= dict(tokens_per_second=1e3 * a.batch * a.length / median, median_ms=median, least_ms=min(times), wall_ms=wall)
    row |= dict(loss=[first, loss.item()], parameters=sum(p.numel() for p in training.model.parameters()))
    row |= dict(allocated=torch.cuda.max_memory_allocated() if gpu else None)
    row |= dict(reserved=torch.cuda.max_memory_reserved() if gpu else None)
    print(json.dumps(row))


def run(command):
    """The last JSON document that a program prints."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise SystemExit(f"`{' '.join(command)}` failed with exit code {done.returncode}")
    return json.loads(done.stdout[done.stdout.index("{") :])


def flags_of(a, names):
    return [part for name in names for part in (f"--{name.replace('_', '-')}", str(getattr(a, name)))]


def own_program(a, extra):
    """The command that runs this script for the peer alone."""
    names = [*SIZES, "batch", "length", "steps", "warmup", "learning_rate", "residual", "precision", "mode", "device", "fp32_products"]
    return [sys.executable, str(pathlib.Path(__file__).resolve()), *flags_of(a, names), *extra]


def kernwright(a, residual, extra):
    b = argparse.Namespace(**vars(a) | dict(residual=residual))
    device = ["--device", "cpu"] if a.device == "cpu" else []
    sizes = flags_of(a, ["batch", "length", "steps", "warmup", "learning_rate"])
    return [a.kernwright, "bench", "step", "--json", *shape_flags(b), *sizes, *device, *extra, *a.extra]


def gib(value):
    return "n/a" if value is None else f"{value / 2**30:.2f}"


def compare(a):
    """Runs all in turn and prints a row for each."""
    rows = {"peer": own_program(a, ["--peer"])}
    rows |= {name: kernwright(a, residual, extra) for name, (residual, extra) in MODES.items()}
    rounds = {name: [] for name in rows}
    for index in range(a.rounds):
        for name, command in rows.items():
            print(f"round {index + 1} of {a.rounds}: {name}", file=sys.stderr, flush=True)
            rounds[name].append(run(command))
    best = lambda name: sorted(rounds[name], key=lambda row: row["tokens_per_second"])[len(rounds[name]) // 2]
    theirs = best("peer")
    table = []
    for name in rows:
        row = best(name)
        memory = row.get("memory", {})
        table.append(
            dict(
                name=row["peer"] if name == "peer" else name,
                tokens_per_second=row["tokens_per_second"],
                ratio=row["tokens_per_second"] / theirs["tokens_per_second"],
                median_ms=row["median_ms"] if name == "peer" else row["milliseconds"]["median"],
                wall_ms=row["wall_ms"] if name == "peer" else row["wall_milliseconds"],
                mfu=row.get("mfu"),
                allocated=row["allocated"] if name == "peer" else memory["allocated"] or memory["planned"],
                reserved=row["reserved"] if name == "peer" else memory["taken"],
                loss=row["loss"],
                contended=bool(row.get("neighbours")),
            )
        )
    if a.json:
        print(json.dumps(dict(batch=a.batch, length=a.length, rows=table, rounds=rounds), indent=2))
        return
    print(f"{theirs['device']}, batch {a.batch}, length {a.length}, median of {a.steps} steps, {a.rounds} rounds")
    print(f"{'':32} {'tokens/s':>10} {'ratio':>6} {'ms':>8} {'wall':>8} {'GiB':>6} {'ratio':>6} {'taken':>6}  loss")
    for row in table:
        memory = row["allocated"] / theirs["allocated"] if theirs["allocated"] else float("nan")
        print(
            f"{row['name']:32} {row['tokens_per_second']:10.0f} {row['ratio']:6.3f} {row['median_ms']:8.2f}"
            f" {row['wall_ms']:8.2f} {gib(row['allocated']):>6} {memory:6.2f} {gib(row['reserved']):>6}"
            f"  {row['loss'][0]:.3f} -> {row['loss'][1]:.3f}{'  contended' if row['contended'] else ''}"
        )


def parity(a):
    """The losses of both over the same steps, in fp32 and in bf16."""
    report = {}
    # Kernwright trains in fp32 on the CPU.
    precisions = ("fp32",) if a.device == "cpu" else ("fp32", "bf16")
    # The same few batches again and again, so that the losses fall.
    count = min(a.steps, 4)
    for precision in precisions:
        with tempfile.TemporaryDirectory() as folder:
            record = pathlib.Path(folder) / "record"
            extra = ["--record", str(record), "--batches", str(count), "--precision", precision]
            b = argparse.Namespace(**vars(a) | dict(steps=a.steps - 1, warmup=1))
            run(kernwright(b, precision, extra))
            ours = json.loads((record / "losses.json").read_text())
            weights = tensors(record / "step-000000" / "weights.safetensors")
            numbers = torch.frombuffer(bytearray((record / "batches.i32").read_bytes()), dtype=torch.int32)
            batches = numbers.view(count, -1).long().to(a.device)
        c = argparse.Namespace(**vars(a) | dict(precision=precision, residual=precision, fp32_products="highest"))
        training = Training(c, weights)
        theirs = []
        for step in range(a.steps):
            text, shape = batches[step % count], (a.batch, a.length)
            theirs.append(training.step(text[:-1].view(shape), text[1:].view(shape)).item())
        report[precision] = dict(ours=ours, theirs=theirs)
        del training
    differences = lambda one, other: max(abs(x - y) for x, y in zip(one, other, strict=True))
    for precision, row in report.items():
        row["greatest_difference"] = differences(row["ours"], row["theirs"])
    rounding = differences(report[precisions[-1]]["theirs"], report["fp32"]["theirs"])
    if a.json:
        print(json.dumps(report | dict(peer_bf16_against_its_fp32=rounding), indent=2))
        return
    for precision, row in report.items():
        at = row["theirs"]
        print(f"{precision}: loss {at[0]:.4f} -> {at[-1]:.4f}, greatest difference over {a.steps} steps {row['greatest_difference']:.2e}")
    if len(precisions) > 1:
        print(f"the peer's bf16 against its own fp32: {rounding:.2e}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (SIZES | dict(batch=32, length=1024, steps=30, warmup=10, rounds=1)).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default)
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--residual", choices=["bf16", "fp32"], default="bf16", help="the peer's residual stream")
    parser.add_argument("--precision", choices=["bf16", "fp32"], default="bf16", help="the peer's matrix operands")
    parser.add_argument("--mode", default="reduce-overhead", help="of torch.compile; `default` or `eager`")
    parser.add_argument("--fp32-products", default="high", help="torch.set_float32_matmul_precision")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--kernwright", default=program(), help="the program")
    parser.add_argument("--peer", action="store_true", help="time the peer alone, as one line of JSON")
    parser.add_argument("--parity", action="store_true", help="compare losses over --steps steps, not times")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("extra", nargs="*", metavar="-- FLAG", help="flags for `kernwright bench step`")
    a = parser.parse_args()
    if not a.peer and not shutil.which(a.kernwright):
        raise SystemExit(f"there is no program `{a.kernwright}`: `cargo build --release` makes it, `--kernwright` names another")
    if a.peer:
        peer(a)
    elif a.parity:
        parity(a)
    else:
        compare(a)


if __name__ == "__main__":
    main()
