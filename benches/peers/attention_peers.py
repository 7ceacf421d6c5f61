#!/usr/bin/env python3
"""Times the attention of others on a GPU: FlashAttention 2 and cuDNN through PyTorch, FlashAttention 4 where it is
installed, and plain products and a softmax.

In: one JSON document as the only argument: {"type": "bf16", "repeats": 20, "rows": [{"batch", "heads", "kv_heads",
"length", "head_dim", "causal", "window", "softcap"}, ...]}. Out: a line of JSON per row: milliseconds of the forward and
the backward pass of each peer that takes it, through graphs. Each peer gets operands laid out as it likes them best.
`kernwright bench attention --peers` runs this, then its own kernels.
"""

import json
import statistics
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
BACKENDS = {"FA2": SDPBackend.FLASH_ATTENTION, "cuDNN": SDPBackend.CUDNN_ATTENTION}
# Work of one replay, FLOPs: enough that its beginning and its end do not count.
WORK, MOST_COPIES = 5e11, 32
# Bytes of scores above which plain products are not tried.
MOST_SCORES = 16 << 30


def milliseconds(work, repeats, copies=1):
    """Median of replays of a graph that does the work so often, per time: the host's part does not count."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(copies):
            work()
    times = []
    for _ in range(repeats + 1):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / copies)
    return statistics.median(times[1:])


def flops(row):
    """Of the forward pass, over the pairs that the mask leaves."""
    length = row["length"]
    pairs = length * length / (2 if row["causal"] else 1)
    if row["window"]:
        pairs = min(pairs, length * row["window"] * (1 if row["causal"] else 2))
    return 4 * row["batch"] * row["heads"] * row["head_dim"] * pairs


def scaled_dot_product(backend):
    """A peer behind PyTorch's own function; it takes no window and no softcap."""

    def of(row, q, k, v):
        if row["window"] or row["softcap"]:
            return None

        def forward():
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v, is_causal=row["causal"], enable_gqa=True)

        return forward

    return of


def flash_attention_4(row, q, k, v):
    try:
        from flash_attn.cute import flash_attn_func
    except ImportError:
        return None
    # It wants the heads behind the tokens.
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    reach = row["window"] - 1 if row["window"] else None
    window = (reach, 0 if row["causal"] else reach)

    def forward():
        out = flash_attn_func(q, k, v, causal=row["causal"], window_size=window, softcap=row["softcap"] or 0.0)
        return (out[0] if isinstance(out, tuple) else out).transpose(1, 2)

    return forward


def naive(row, q, k, v):
    scores = row["batch"] * row["heads"] * row["length"] ** 2
    if row["window"] or row["softcap"] or scores * 10 > MOST_SCORES or row["length"] < 2048:
        return None
    i = torch.arange(row["length"], device="cuda")
    hidden = (i[None] > i[:, None]) if row["causal"] else None

    def forward():
        group = row["heads"] // row["kv_heads"]
        s = q @ k.repeat_interleave(group, 1).transpose(2, 3) * row["head_dim"] ** -0.5
        if hidden is not None:
            s = s.masked_fill(hidden, float("-inf"))
        return torch.softmax(s, -1, dtype=torch.float32).to(q.dtype) @ v.repeat_interleave(group, 1)

    return forward


PEERS = {name: scaled_dot_product(backend) for name, backend in BACKENDS.items()}
PEERS |= {"FA4": flash_attention_4, "naive": naive}


def time(row, dtype, repeats):
    """Both passes of each peer that takes the row; why one that should take it fails."""
    torch.manual_seed(0)
    draw = lambda n: torch.randn(row["batch"], n, row["length"], row["head_dim"], device="cuda", dtype=dtype)
    d_out = draw(row["heads"])
    operands = [draw(n).requires_grad_() for n in (row["heads"], row["kv_heads"], row["kv_heads"])]
    copies = max(1, min(MOST_COPIES, int(WORK / flops(row))))
    found, failed = {}, {}
    for name, peer in PEERS.items():
        try:
            forward = peer(row, *operands)
            if forward is None:
                continue
            both = lambda: torch.autograd.grad(forward(), operands, d_out)
            few = 1 if name == "naive" else copies
            # The forward pass as training runs it, which keeps what the backward pass needs.
            first = milliseconds(forward, repeats, few)
            found[name] = dict(forward=first, backward=milliseconds(both, repeats, few) - first)
        except Exception as error:  # A peer that does not take a row is no reason to miss the others.
            failed[name] = str(error).splitlines()[0] if str(error) else type(error).__name__
            torch.cuda.synchronize()
    return dict(row=row, peers=found, failed=failed)


def main():
    asked = json.loads(sys.argv[1])
    about = dict(torch=torch.__version__, gpu=torch.cuda.get_device_name(asked.get("device", 0)))
    print(json.dumps(about), flush=True)
    torch.cuda.set_device(asked.get("device", 0))
    for row in asked["rows"]:
        print(json.dumps(time(row, TYPES[asked["type"]], asked["repeats"])), flush=True)


if __name__ == "__main__":
    main()
