"""Decode Muse Glimmer 30B from its GGUF file with reproducible bits.

>>> import muser
>>> with muser.load("muse-glimmer-30B-kquant-17gb.gguf") as engine:
...     row = engine.decode_token(200000)  # float32[202048]
"""

from importlib.metadata import version

from .config import Config
from .engine import Engine, Plan, inspect, load
from .errors import (
    ConfigError,
    ContextFullError,
    DeadlineError,
    DeviceError,
    DeviceMemoryError,
    EngineBusy,
    EngineClosed,
    ForkError,
    GGUFError,
    MuserError,
    NonFiniteError,
    ProbeError,
    RollbackError,
    SnapshotError,
    TokenizerError,
    TokenRangeError,
)
from .receipt import row_sha256

__version__ = version("muser")

__all__ = [
    "Config",
    "ConfigError",
    "ContextFullError",
    "DeadlineError",
    "DeviceError",
    "DeviceMemoryError",
    "Engine",
    "EngineBusy",
    "EngineClosed",
    "ForkError",
    "GGUFError",
    "MuserError",
    "NonFiniteError",
    "Plan",
    "ProbeError",
    "RollbackError",
    "SnapshotError",
    "TokenRangeError",
    "TokenizerError",
    "__version__",
    "inspect",
    "load",
    "row_sha256",
]
