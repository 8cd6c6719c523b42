"""The rate at which this GPU reads memory: what kernels' bytes per second are compared with.

    python bench/cuda/read_rate.py [--gpu 0] [--gigabytes 8]

Reads a buffer once per launch with 16-byte loads, in several shapes, and prints the best median of
nine launches as one JSON object. Needs the driver and NVRTC, nothing else.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import sys
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_void_p
from pathlib import Path
from typing import Any

SOURCE = rb"""
extern "C" __global__ void __launch_bounds__(512) read_all(const uint4* from, unsigned long long n,
                                                           unsigned* out) {
    unsigned sum = 0;
    const unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x;
    unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i + 7 * stride < n; i += 8 * stride) {
        uint4 v[8];
#pragma unroll
        for (int k = 0; k < 8; ++k) v[k] = __ldcs(from + i + k * stride);
#pragma unroll
        for (int k = 0; k < 8; ++k) sum ^= v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
    }
    for (; i < n; i += stride) sum ^= from[i].x;
    if (sum == 0x12345678u) *out = sum;
}
extern "C" __global__ void fill(uint4* to, unsigned long long n) {
    const unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += stride) {
        const unsigned s = (unsigned)i * 2654435761u;
        to[i] = make_uint4(s, s ^ 0x9e3779b9u, s * 3u, ~s);
    }
}
"""


def library(*names: str) -> ctypes.CDLL:
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise SystemExit(f"none of {', '.join(names)} was found")


def compiled(architecture: str) -> bytes:
    places = [
        str(p)
        for root in sys.path
        for p in sorted(Path(root).glob("nvidia/*/lib/libnvrtc.so*"))
        if "builtins" not in p.name
    ]
    nvrtc = library(
        *places, "libnvrtc.so.13", "libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so"
    )
    program = c_void_p()
    nvrtc.nvrtcCreateProgram(byref(program), SOURCE, b"read_rate.cu", 0, None, None)
    options = (c_char_p * 1)(f"--gpu-architecture={architecture}".encode())
    if nvrtc.nvrtcCompileProgram(program, 1, options) != 0:
        raise SystemExit("NVRTC refused the kernel")
    size = c_size_t()
    nvrtc.nvrtcGetCUBINSize(program, byref(size))
    code = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetCUBIN(program, code)
    return code.raw


def read_rate(gpu: int, gigabytes: float) -> dict[str, Any]:
    cuda = library("libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1")

    def call(name: str, *arguments: Any) -> None:
        result = getattr(cuda, name)(*arguments)
        if result != 0:
            raise SystemExit(f"{name}: error {result}")

    call("cuInit", 0)
    device = c_int()
    call("cuDeviceGet", byref(device), gpu)
    facts = []
    for attribute in (75, 76, 16):  # capability, multiprocessors
        value = c_int()
        call("cuDeviceGetAttribute", byref(value), attribute, device)
        facts.append(value.value)
    context = c_void_p()
    call("cuDevicePrimaryCtxRetain", byref(context), device)
    call("cuCtxSetCurrent", context)
    module = c_void_p()
    call("cuModuleLoadData", byref(module), compiled(f"sm_{facts[0]}{facts[1]}"))
    kernels = {}
    for name in ("fill", "read_all"):
        kernels[name] = c_void_p()
        call("cuModuleGetFunction", byref(kernels[name]), module, name.encode())
    units = int(gigabytes * 1e9) // 16
    memory = c_void_p()
    out = c_void_p()
    call("cuMemAlloc_v2", byref(memory), c_size_t(units * 16))
    call("cuMemAlloc_v2", byref(out), c_size_t(16))
    events = [c_void_p(), c_void_p()]
    for event in events:
        call("cuEventCreate", byref(event), 0)

    def launch(name: str, blocks: int, threads: int) -> float:
        values = [memory, ctypes.c_ulonglong(units), out]
        params = (c_void_p * 3)(*(ctypes.cast(byref(v), c_void_p) for v in values))
        call("cuEventRecord", events[0], None)
        call(
            "cuLaunchKernel",
            kernels[name],
            *(c_uint(v) for v in (blocks, 1, 1, threads, 1, 1, 0)),
            None,
            params,
            None,
        )
        call("cuEventRecord", events[1], None)
        call("cuEventSynchronize", events[1])
        milliseconds = c_float()
        call("cuEventElapsedTime", byref(milliseconds), *events)
        return float(milliseconds.value)

    launch("fill", 4 * facts[2], 512)
    best = {"tb_s": 0.0, "blocks": 0, "threads": 0}
    for threads in (128, 256, 512):
        for each in (2, 4, 8, 16):
            launch("read_all", each * facts[2], threads)
            times = [launch("read_all", each * facts[2], threads) for _ in range(9)]
            rate = units * 16 / statistics.median(times) / 1e9
            if rate > best["tb_s"]:
                best = {"tb_s": rate, "blocks": each * facts[2], "threads": threads}
    call("cuMemFree_v2", memory)
    call("cuMemFree_v2", out)
    return {**best, "gigabytes": gigabytes}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--gigabytes", type=float, default=8.0)
    arguments = parser.parse_args()
    told = read_rate(arguments.gpu, arguments.gigabytes)
    told["tb_s"] = round(told["tb_s"], 3)
    print(json.dumps({"what": "read_rate", **told}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
