"""llama.cpp through llama-cpp-python's C API, as one side of a comparison (compare_llama.py)."""

from __future__ import annotations

import ctypes
import re
import time
from typing import Any


class LlamaMissingError(Exception):
    """llama-cpp-python cannot be imported."""


def library() -> Any:
    """The C API module; raises LlamaMissingError with what to do."""
    try:
        from llama_cpp import llama_cpp
    except ImportError as error:
        raise LlamaMissingError(
            f"llama-cpp-python cannot be imported ({error}). For a fair comparison build it for "
            'this processor: CMAKE_ARGS="-DGGML_NATIVE=ON" pip install --no-binary '
            "llama-cpp-python llama-cpp-python"
        ) from error
    return llama_cpp


KV = {"f32": 0, "f16": 1}


class Llama:
    """A loaded file. `context` makes one with a number of threads; weights are repacked if that
    is what the build prefers (`repack`)."""

    def __init__(self, path: str, *, repack: bool = True) -> None:
        self.lib = library()
        self.log: list[str] = []

        def keep(_level: int, text: bytes, _user: object) -> None:
            self.log.append(text.decode(errors="replace"))

        self._callback = self.lib.llama_log_callback(keep)
        self.lib.llama_log_set(self._callback, ctypes.c_void_p(0))
        self.lib.llama_backend_init()
        settings = self.lib.llama_model_default_params()
        settings.n_gpu_layers = 0
        settings.use_extra_bufts = repack
        started = time.perf_counter()
        self.model = self.lib.llama_model_load_from_file(path.encode(), settings)
        self.load_seconds = time.perf_counter() - started
        if not self.model:
            raise SystemExit(f"llama.cpp cannot load {path}: {''.join(self.log[-5:])}")
        self.vocab = self.lib.llama_vocab_n_tokens(self.lib.llama_model_get_vocab(self.model))
        self.ctx: Any = None
        self.position = 0

    def about(self) -> dict[str, Any]:
        """Version, what the build uses of the processor, and where it put the weights."""
        import llama_cpp

        buffers = re.findall(r"(\S+) model buffer size = +([\d.]+) MiB", "".join(self.log))
        return {
            "llama_cpp_python": llama_cpp.__version__,
            "system_info": self.lib.llama_print_system_info().decode().strip(),
            "weights_mib": {name: float(size) for name, size in buffers},
        }

    def context(self, threads: int, tokens: int, kv: str) -> None:
        self._free_context()
        settings = self.lib.llama_context_default_params()
        settings.n_ctx = (tokens + 255) // 256 * 256
        settings.n_batch = settings.n_ubatch = 512
        settings.n_threads = settings.n_threads_batch = threads
        settings.type_k = settings.type_v = KV[kv]
        settings.no_perf = True
        self.ctx = self.lib.llama_init_from_model(self.model, settings)
        if not self.ctx:
            raise SystemExit(f"llama.cpp cannot make this context: {''.join(self.log[-5:])}")
        self.memory = self.lib.llama_get_memory(self.ctx)
        self.batch = self.lib.llama_batch_init(512, 0, 1)

    def _feed(self, tokens: list[int], position: int) -> None:
        """One call; logits of the last token, read back as a caller would."""
        self.batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            self.batch.token[i] = token
            self.batch.pos[i] = position + i
            self.batch.n_seq_id[i] = 1
            self.batch.seq_id[i][0] = 0
            self.batch.logits[i] = int(i == len(tokens) - 1)
        if self.lib.llama_decode(self.ctx, self.batch):
            raise SystemExit("llama_decode failed")
        self.lib.llama_get_logits_ith(self.ctx, len(tokens) - 1)

    def prompt(self, tokens: list[int]) -> None:
        """Feeds a prompt from an empty cache."""
        self.lib.llama_memory_clear(self.memory, True)
        for first in range(0, len(tokens), 512):
            self._feed(tokens[first : first + 512], first)
        self.position = len(tokens)

    def steps(self, tokens: list[int]) -> None:
        """Feeds tokens one by one."""
        for token in tokens:
            self._feed([token], self.position)
            self.position += 1

    def _free_context(self) -> None:
        if self.ctx is not None:
            self.lib.llama_batch_free(self.batch)
            self.lib.llama_free(self.ctx)
            self.ctx = None

    def close(self) -> None:
        self._free_context()
        self.lib.llama_model_free(self.model)
