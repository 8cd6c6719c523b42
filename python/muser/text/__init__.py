"""Text in and out: the file's tokenizer, streaming detokenisation, its chat template.

Needs the packages `tokenizers` and `jinja2` (pip install muser[text]).
"""

from .chat import ChatTemplate
from .stream import TextStream
from .tokenizer import Tokenizer
from .turn import TurnStream

__all__ = ["ChatTemplate", "TextStream", "Tokenizer", "TurnStream"]
