#!/usr/bin/env python3
"""Compares the generated attention kernels with PyTorch's on a GPU: the same shapes, the same run, times and ratios.

In: a folder that `kernwright cuda --preset NAME --gpu TARGET --out FOLDER` wrote, for the GPU at hand. Each fused attention
in it is compiled by the NVRTC that comes with PyTorch, held against PyTorch's fp32 mathematics, then timed beside
FlashAttention 2 and cuDNN. A row that is off by more than PyTorch's own bf16 error allows is marked WRONG. See README.md.
"""

import argparse
import ctypes
import json
import pathlib
import statistics

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
PEERS = {"FA2": SDPBackend.FLASH_ATTENTION, "cuDNN": SDPBackend.CUDNN_ATTENTION}


def libraries():
    """NVRTC and the driver, from the wheels that PyTorch needs, and the system."""
    wheels = pathlib.Path(torch.__file__).resolve().parent.parent / "nvidia"
    for name in ("libnvrtc-builtins.so*", "libnvrtc.so.1*"):
        for path in sorted(wheels.rglob(name)):
            if ".alt." not in path.name:
                nvrtc = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    return nvrtc, ctypes.CDLL("libcuda.so.1")


NVRTC, CUDA = libraries()


def must(code, what):
    if code != 0:
        raise SystemExit(f"{what} failed with code {code}")


class Kernel:
    """One generated kernel, compiled and loaded."""

    def __init__(self, folder, row, arch):
        self.name, self.block, self.shared = row["name"], row["block"], row["shared_memory"]
        self.fields = row["fields"]
        program = ctypes.c_void_p()
        text = (folder / f"{self.name}.cu").read_bytes()
        must(NVRTC.nvrtcCreateProgram(ctypes.byref(program), text, b"kernel.cu", 0, None, None), "NVRTC")
        options = [f"--gpu-architecture={arch}".encode(), b"--std=c++17"]
        must(NVRTC.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options)), self.name)
        size = ctypes.c_size_t()
        must(NVRTC.nvrtcGetCUBINSize(program, ctypes.byref(size)), "NVRTC")
        image = ctypes.create_string_buffer(size.value)
        must(NVRTC.nvrtcGetCUBIN(program, image), "NVRTC")
        module, self.function = ctypes.c_void_p(), ctypes.c_void_p()
        must(CUDA.cuModuleLoadData(ctypes.byref(module), image), f"loading {self.name}")
        must(CUDA.cuModuleGetFunction(ctypes.byref(self.function), module, self.name.encode()), self.name)
        # 8 is CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES.
        must(CUDA.cuFuncSetAttribute(self.function, 8, self.shared), f"shared memory of {self.name}")

    def launch(self, grid, *arguments):
        """Tensors are pointers, whole numbers 32 bits unless they come as c_int64, tensor maps as they are."""
        values = []
        for argument in arguments:
            if isinstance(argument, TensorMap):
                values.append(argument.at)
            elif argument is None or isinstance(argument, torch.Tensor):
                values.append(ctypes.c_void_p(None if argument is None else argument.data_ptr()))
            else:
                values.append(argument if isinstance(argument, ctypes.c_int64) else ctypes.c_int32(argument))
        pointers = (ctypes.c_void_p * len(values))(*[ctypes.addressof(value) for value in values])
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        must(CUDA.cuLaunchKernel(self.function, *grid, self.block, 1, 1, self.shared, stream, pointers, None), self.name)


class TensorMap:
    """Heads of `rows x heads head_dim` as the copy unit of sm_90 knows them, in boxes of 64 columns and some rows."""

    def __init__(self, tensor, shape, n_heads, box_rows):
        row = tensor.stride(0) * 2
        sizes = (ctypes.c_uint64 * 4)(shape.d, shape.l, n_heads, shape.b)
        strides = (ctypes.c_uint64 * 3)(row, shape.d * 2, shape.l * row)
        box, steps = (ctypes.c_uint32 * 4)(64, box_rows, 1, 1), (ctypes.c_uint32 * 4)(1, 1, 1, 1)
        room = ctypes.create_string_buffer(128 + 64)
        start = -ctypes.addressof(room) % 64
        self.at = (ctypes.c_char * 128).from_buffer(room, start)
        # 9 and 6 are bf16 and fp16, 3 the swizzle of 128 bytes, 2 an L2 promotion of 128 bytes.
        kind = 9 if shape.dtype == torch.bfloat16 else 6
        pointer = ctypes.c_void_p(tensor.data_ptr())
        must(CUDA.cuTensorMapEncodeTiled(self.at, kind, 4, pointer, sizes, strides, box, steps, 0, 3, 2, 0), "a tensor map")


def milliseconds(work, repeats):
    """Median of replays of a graph, so that the host's part does not count."""
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    times = []
    for _ in range(repeats + 3):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times[3:])


class Shape:
    def __init__(self, fields, arguments):
        self.dtype = TYPES[fields["type"]]
        self.d, self.causal = fields["head_dim"], fields["causal"]
        self.window, self.cap, self.scale = fields["window"], fields["cap"], fields["scale"]
        self.b, self.l, self.h, self.kv = arguments.batch, arguments.length, arguments.heads, arguments.kv_heads

    def inputs(self):
        torch.manual_seed(0)
        columns = (self.h + 2 * self.kv) * self.d
        qkv = torch.randn(self.b * self.l, columns, device="cuda", dtype=self.dtype)
        q, k, v = qkv.split([self.h * self.d, self.kv * self.d, self.kv * self.d], dim=1)
        return q, k, v, torch.randn(self.b * self.l, self.h * self.d, device="cuda", dtype=self.dtype)

    def heads(self, rows, n):
        return rows.reshape(self.b, self.l, n, self.d).transpose(1, 2)

    def mask(self):
        i, j = torch.arange(self.l, device="cuda")[:, None], torch.arange(self.l, device="cuda")[None]
        seen = (j <= i) if self.causal else torch.ones_like(j <= i)
        if self.window:
            seen &= ((i - j).abs() < self.window)
        return seen

    def mathematics(self, q, k, v, d_out, dtype):
        """out and the gradients of q, k, v of the first sequence, by plain mathematics in `dtype`."""
        rows = slice(0, self.l)
        leaves = [x[rows].detach().to(dtype).requires_grad_() for x in (q, k, v)]
        one = lambda x, n: x.reshape(self.l, n, self.d).transpose(0, 1).repeat_interleave(self.h // n, dim=0)
        s = one(leaves[0], self.h) @ one(leaves[1], self.kv).transpose(1, 2) * self.scale
        if self.cap:
            s = self.cap * torch.tanh(s / self.cap)
        s = s.masked_fill(~self.mask(), float("-inf"))
        out = (torch.softmax(s.float(), -1).to(dtype) @ one(leaves[2], self.kv)).transpose(0, 1).reshape(self.l, -1)
        return [out.detach().float(), *[g.float() for g in torch.autograd.grad(out, leaves, d_out[rows].to(dtype))]]

    def flops(self):
        """Of the two products of the forward pass, over the pairs that the mask leaves."""
        return 4 * self.b * self.h * self.d * float(self.mask().sum())


def ours(shape, kernels, tensors):
    """The work of the forward pass and of each form of the backward pass, with what they write."""
    q, k, v, d_out = tensors
    b, l, h, kv = shape.b, shape.l, shape.h, shape.kv
    out, lse = torch.empty_like(d_out), torch.empty(b, h, l, device="cuda")
    delta = torch.empty_like(lse)
    d_qkv = torch.empty(b * l, (h + 2 * kv) * shape.d, device="cuda", dtype=shape.dtype)
    d_q, d_k, d_v = d_qkv.split([h * shape.d, kv * shape.d, kv * shape.d], dim=1)
    d_q_sum = torch.zeros(b * h * -(-l // 16) * 16, shape.d, device="cuda")
    up = lambda n, part: -(-n // part)
    stride = lambda *of: [x.stride(0) for x in of]
    long = lambda *of: [ctypes.c_int64(x) for x in of]

    def hopper_forward(kernel):
        together, keys = kernel.fields["heads"], kernel.fields["keys"]
        maps = [TensorMap(x, shape, n, rows) for x, n, rows in ((out, h, 16), (q, h, 64), (k, kv, keys), (v, kv, keys))]
        tiles, units = up(l, kernel.fields["queries"]), h // together * b
        blocks = min(tiles * units, torch.cuda.get_device_properties(0).multi_processor_count)
        # As codegen/plan/src/ops/attention/fused_hopper.rs has it.
        section = max(max((16 << 20) // (4 * l * shape.d), 1) * (h // kv // together), up(2 * blocks, tiles))
        kernel.launch((blocks, 1, 1), maps[0], lse, *maps[1:], l, h, h // kv, b, min(section, units))

    def forward():
        kernel = kernels["forward"]
        if "turns" in kernel.fields:
            return hopper_forward(kernel)
        grid = (up(l, kernel.fields["queries"]), h, b)
        kernel.launch(grid, out, lse, q, k, v, l, h // kv, *stride(out, q, k, v))

    def keys(kernel, sums):
        grid = (b * kv * up(l, kernel.fields["keys"]), 1, 1)
        kernel.launch(grid, d_k, d_v, sums, q, k, v, d_out, lse, delta, h, kv, l, *stride(d_k, d_v, q, k, v, d_out), 0, 0)

    def deltas():
        kernel = kernels["delta"]
        grid = (up(b * l * h, kernel.block // kernel.fields["lanes"]), 1, 1)
        kernel.launch(grid, delta, out, d_out, *long(b * l * h), h, l, *long(out.stride(0), d_out.stride(0)))

    def ordered():
        deltas()
        keys(kernels["keys"], None)
        kernel = kernels["queries"]
        grid = (b * h * up(l, kernel.fields["queries"]), 1, 1)
        kernel.launch(grid, d_q, q, k, v, d_out, lse, delta, h, kv, l, *stride(d_q, q, k, v, d_out), 0)

    def free():
        deltas()
        d_q_sum.zero_()
        keys(kernels["free"], d_q_sum)
        kernel, n = kernels["round"], d_q_sum.numel() // 16
        kernel.launch((up(n, kernel.block), 1, 1), d_q, d_q_sum, *long(n), h, l, *long(d_q.stride(0)), 0)

    return {"forward": (forward, [out]), "ordered": (ordered, [d_q, d_k, d_v]), "free": (free, [d_q, d_k, d_v])}


def peers(shape, tensors):
    """Forward and backward work of each peer that takes the shape."""
    if shape.window or shape.cap:
        return {}
    q, k, v, d_out = tensors
    q, k, v = (shape.heads(x, n).detach().requires_grad_() for x, n in ((q, shape.h), (k, shape.kv), (v, shape.kv)))
    d_out = shape.heads(d_out, shape.h)
    work = {}
    for name, backend in PEERS.items():
        def forward(backend=backend):
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v, is_causal=shape.causal, scale=shape.scale, enable_gqa=True)
        def backward(forward=forward):
            torch.autograd.grad(forward(), (q, k, v), d_out)
        try:
            backward()
            work[name] = (forward, backward)
        except RuntimeError as error:
            print(f"  {name} does not take it: {str(error).splitlines()[0]}")
    return work


def row(shape, kernels, repeats):
    tensors = shape.inputs()
    mask = "causal" if shape.causal else "full"
    print(f"{shape.dtype} {shape.b} x {shape.l}, {shape.h}/{shape.kv} heads of {shape.d}, {mask}, window {shape.window}, softcap {shape.cap}")
    theirs = {}
    for name, (forward, backward) in peers(shape, tensors).items():
        first = milliseconds(lambda: forward(), repeats)
        theirs[name] = (first, milliseconds(backward, repeats) - first)
    exact = shape.mathematics(*tensors, torch.float32)
    rounded = shape.mathematics(*tensors, shape.dtype)
    for pass_name, (work, results) in ours(shape, kernels, tensors).items():
        first = pass_name == "forward"
        work()
        verdict = "ok"
        for result, truth, like in zip(results, exact[:1] if first else exact[1:], rounded[:1] if first else rounded[1:]):
            error = (result[: shape.l].float() - truth).abs().max().item()
            allowed = 2 * (like - truth).abs().max().item() + 4 * torch.finfo(shape.dtype).eps * truth.abs().max().item()
            if not error <= allowed:
                verdict = f"WRONG: off by {error:.3g}, allowed {allowed:.3g}"
        time = milliseconds(work, repeats)
        rate = shape.flops() * (1 if first else 2.5) / time / 1e9
        against = "  ".join(f"{name} {t[not first]:.3f} ms, ratio {t[not first] / time:.2f}" for name, t in theirs.items())
        print(f"  {pass_name:8} {time:.3f} ms {rate:4.0f} TFLOP/s   {against}   {verdict}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="the GPU's folder, with its manifest.json")
    for name, default in dict(batch=8, length=1024, heads=12, kv_heads=4, repeats=20).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default)
    a = parser.parse_args()
    manifest = json.loads((a.folder / "manifest.json").read_text())
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, {manifest['arch']}; a ratio above 1 is in our favour")
    of = lambda template: [r for r in manifest["kernels"] if r["template"] == f"attention/{template}"]
    op = lambda r: tuple(r["fields"][name] for name in ("type", "head_dim", "causal", "window", "cap", "scale"))
    find = lambda rows, **want: next(r for r in rows if all(r["fields"][name] == value for name, value in want.items()))
    for first in of("forward"):
        kind, d = first["fields"]["type"], first["fields"]["head_dim"]
        same = lambda template: [r for r in of(template) if op(r) == op(first)]
        narrow = dict(d_k_type=kind, d_v_type=kind)
        rows = {
            "forward": first,
            "delta": find(of("backward_delta"), type=kind, head_dim=d),
            "keys": find(same("backward_keys"), with_d_q=False, **narrow),
            "free": find(same("backward_keys"), with_d_q=True, **narrow),
            "queries": find(same("backward_queries"), d_q_type=kind),
            "round": find(of("backward_round"), d_q_type=kind, head_dim=d),
        }
        kernels = {name: Kernel(a.folder, r, manifest["arch"]) for name, r in rows.items()}
        row(Shape(first["fields"], a), kernels, a.repeats)


if __name__ == "__main__":
    main()
