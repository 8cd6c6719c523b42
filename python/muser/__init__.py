"""Decode Muse Glimmer 30B from its GGUF file with reproducible bits."""

from importlib.metadata import version

__version__ = version("muser")

__all__ = ["__version__"]
