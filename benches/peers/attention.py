#!/usr/bin/env python3
"""Times the attention of others on a GPU: FlashAttention 2 and cuDNN through PyTorch, FlashAttention 4 where it is
installed, and plain products and a softmax; with their errors, if asked for.

In: one JSON document as the only argument: {"type": "bf16", "repeats": 20, "drawn": FILE, "truth": FOLDER or null, "rows":
[{"batch", "heads", "kv_heads", "length", "key_length" (where it is not the length; the last query stands at the last key),
"head_dim", "causal", "window", "softcap", "layout"}, ...]}. FILE holds fp32 numbers, which operands repeat: packed, q, k and v
side by side in rows, else one after the other, in the order of the layout's dimensions; and d_out. Out: a line of JSON per row:
milliseconds of the forward and the backward pass of each peer that takes it, through graphs. Each peer gets operands laid out
as it likes them best. With FOLDER also the root-mean-square error of out, d_q, d_k and d_v of each against fp64 mathematics,
which go, as fp32, to FOLDER/ROW.out and so on. `kernwright bench attention --peers` runs this, then its own kernels.
"""

import json
import pathlib
import statistics
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
BACKENDS = {"FA2": SDPBackend.FLASH_ATTENTION, "cuDNN": SDPBackend.CUDNN_ATTENTION}
# Work of one replay, FLOPs: enough that its beginning and its end do not count.
WORK, MOST_COPIES = 5e11, 32
# Bytes of scores above which plain products are not tried, and those that fp64 mathematics has at once.
MOST_SCORES = 16 << 30
TRUE_SCORES = 1 << 30
RESULTS = ("out", "d_q", "d_k", "d_v")


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


def keys_of(row):
    """Keys of a sequence."""
    return row.get("key_length") or row["length"]


def flops(row):
    """Of the forward pass, over the pairs that the mask leaves."""
    length, keys = row["length"], keys_of(row)
    square = min(length, keys)
    pairs = square * keys - square * square / 2 if row["causal"] else length * keys
    if row["window"]:
        pairs = min(pairs, length * row["window"] * (1 if row["causal"] else 2))
    return 4 * row["batch"] * row["heads"] * row["head_dim"] * pairs


def scaled_dot_product(backend):
    """A peer behind PyTorch's own function; it takes no window and no softcap. A causal mask begins at the first key there, but
    in FlashAttention's own operator ends at the last one."""

    def of(row, q, k, v):
        if row["window"] or row["softcap"]:
            return None
        if row["causal"] and keys_of(row) != row["length"]:
            if backend != SDPBackend.FLASH_ATTENTION:
                raise NotImplementedError("its causal mask begins at the first key: lengths must be equal")
            return lambda: torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, True)[0]

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
    length, keys = row["length"], keys_of(row)
    scores = row["batch"] * row["heads"] * length * keys
    if row["window"] or row["softcap"] or scores * 10 > MOST_SCORES or length < 2048 or keys < length:
        return None
    hidden = ~seen(row, slice(0, length)) if row["causal"] else None

    def forward():
        group = row["heads"] // row["kv_heads"]
        s = q @ k.repeat_interleave(group, 1).transpose(2, 3) * row["head_dim"] ** -0.5
        if hidden is not None:
            s = s.masked_fill(hidden, float("-inf"))
        return torch.softmax(s, -1, dtype=torch.float32).to(q.dtype) @ v.repeat_interleave(group, 1)

    return forward


PEERS = {name: scaled_dot_product(backend) for name, backend in BACKENDS.items()}
PEERS |= {"FA4": flash_attention_4, "naive": naive}


def seen(row, queries):
    """Which keys a slice of queries sees."""
    i = torch.arange(row["length"], device="cuda")[queries, None] + (keys_of(row) - row["length"])
    j = torch.arange(keys_of(row), device="cuda")[None]
    pairs = (j <= i) if row["causal"] else torch.ones_like(j <= i)
    return pairs & ((i - j).abs() < row["window"]) if row["window"] else pairs


def truth(row, q, k, v, d_out):
    """out, d_q, d_k and d_v in fp64, by the formulas of the definition; a slice of queries of one head of keys at a time."""
    results = [torch.zeros_like(x, dtype=torch.float64) for x in (q, q, k, v)]
    group, length, scale, cap = row["heads"] // row["kv_heads"], row["length"], row["head_dim"] ** -0.5, row["softcap"]
    step = max(1, TRUE_SCORES // (8 * group * keys_of(row)))
    for batch, kv_head in ((b, h) for b in range(row["batch"]) for h in range(row["kv_heads"])):
        heads = slice(kv_head * group, (kv_head + 1) * group)
        keys, values = k[batch, kv_head].double(), v[batch, kv_head].double()
        for first in range(0, length, step):
            rows = slice(first, min(first + step, length))
            queries, d = q[batch, heads, rows].double(), d_out[batch, heads, rows].double()
            scores = scale * queries @ keys.T
            if cap:
                scores = cap * torch.tanh(scores / cap)
            p = torch.softmax(scores.masked_fill(~seen(row, rows), float("-inf")), -1).nan_to_num(0.0)
            out = p @ values
            d_scores = p * (d @ values.T - (d * out).sum(-1, keepdim=True)) * scale
            if cap:
                d_scores *= 1 - (scores / cap) ** 2
            results[0][batch, heads, rows] = out
            results[1][batch, heads, rows] = d_scores @ keys
            results[2][batch, kv_head] += (d_scores.transpose(1, 2) @ queries).sum(0)
            results[3][batch, kv_head] += (p.transpose(1, 2) @ d).sum(0)
    return results


def errors(work, operands, d_out, exact):
    """Root mean squares of what a peer's results are off by."""
    out = work()
    found = [out.detach(), *torch.autograd.grad(out, operands, d_out)]
    return {n: (x.double() - y).square().mean().sqrt().item() for n, x, y in zip(RESULTS, found, exact)}


def drawn_operands(row, dtype, drawn):
    """q, k, v and d_out, each batch x heads x length x head_dim and on its own; their values are those that ours have."""
    batch, d = row["batch"], row["head_dim"]
    queries, keys = (row["length"], row["heads"]), (keys_of(row), row["kv_heads"])
    by_token = lambda x, length: x.reshape(batch, length, -1, d).transpose(1, 2)

    def numbers(first, n):
        return drawn.roll(-(first % drawn.numel())).repeat(-(-n // drawn.numel()))[:n]

    def tensor(first, length, heads):
        x = numbers(first, batch * length * heads * d)
        return x.view(batch, heads, length, d) if row["layout"] == "bhsd" else by_token(x, length)

    if row["layout"] == "packed":
        parts = [heads * d for _, heads in (queries, keys, keys)]
        rows = numbers(0, batch * row["length"] * sum(parts)).view(-1, sum(parts))
        operands = [by_token(x, row["length"]) for x in rows.split(parts, 1)]
    else:
        sizes = [batch * length * heads * d for length, heads in (queries, keys)]
        firsts = (0, sizes[0], sizes[0] + sizes[1])
        operands = [tensor(first, *of) for first, of in zip(firsts, (queries, keys, keys))]
    own = lambda x: x.to(dtype).contiguous()
    return [*(own(x).requires_grad_() for x in operands), own(tensor(0, *queries))]


def write(path, x):
    """As rows of a sequence's heads, fp32."""
    x = x.transpose(1, 2)
    torch.from_file(str(path), shared=True, size=x.numel()).copy_(x.flatten())


def time(row, dtype, repeats, drawn, truth_of):
    """Both passes of each peer that takes the row; why one that should take it fails; their errors where there is a truth
    to be written."""
    *operands, d_out = drawn_operands(row, dtype, drawn)
    copies = max(1, min(MOST_COPIES, int(WORK / flops(row))))
    exact = None
    if truth_of:
        with torch.no_grad():
            exact = truth(row, *operands, d_out)
        for name, x in zip(RESULTS, exact):
            write(f"{truth_of}.{name}", x)
    found, failed, off = {}, {}, {}
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
            if exact:
                off[name] = errors(forward, operands, d_out, exact)
        except Exception as error:  # A peer that does not take a row is no reason to miss the others.
            failed[name] = str(error).splitlines()[0] if str(error) else type(error).__name__
            torch.cuda.synchronize()
    return dict(row=row, peers=found, failed=failed, errors=off)


def main():
    asked = json.loads(sys.argv[1])
    about = dict(torch=torch.__version__, gpu=torch.cuda.get_device_name(asked.get("device", 0)))
    print(json.dumps(about), flush=True)
    torch.cuda.set_device(asked.get("device", 0))
    drawn = torch.from_file(asked["drawn"], size=pathlib.Path(asked["drawn"]).stat().st_size // 4).cuda()
    for index, row in enumerate(asked["rows"]):
        truth_of = asked["truth"] and pathlib.Path(asked["truth"]) / str(index)
        print(json.dumps(time(row, TYPES[asked["type"]], asked["repeats"], drawn, truth_of)), flush=True)


if __name__ == "__main__":
    main()
