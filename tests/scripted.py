"""An engine that says what a test wants it to say, for what generates text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

import muser


class ScriptedEngine:
    """Rows whose largest logit follows a script, whatever is fed; `fed` is the sequence held."""

    def __init__(
        self, vocab: int, script: Sequence[int], context: int = 4096, journal: int = 64
    ) -> None:
        self.vocab = vocab
        self.context = context
        self.journal = journal
        self.fed: list[int] = []
        self.prefilled: list[int] = []
        """Lengths of the prompts fed."""
        self._script = iter(script)

    @property
    def position(self) -> int:
        return len(self.fed)

    def _row(self) -> NDArray[np.float32]:
        row = np.zeros(self.vocab, np.float32)
        row[next(self._script)] = 15
        return row

    def decode_token(self, token: int, out: NDArray[np.float32]) -> NDArray[np.float32]:
        self.check_room([token])
        self.fed.append(token)
        out[:] = self._row()
        return out

    def prefill(self, tokens: Sequence[int], all_rows: bool = False) -> NDArray[np.float32]:
        self.check_room(tokens)
        self.fed += tokens
        self.prefilled.append(len(tokens))
        row = self._row()
        return np.tile(row, (len(tokens), 1)) if all_rows else row

    def check_room(self, tokens: Sequence[int], more: int = 0) -> None:
        if len(self.fed) + len(tokens) + more > self.context:
            raise muser.ContextFullError("full")

    def rollback(self, tokens: int) -> None:
        if tokens > self.journal:
            raise muser.RollbackError("too far")
        del self.fed[len(self.fed) - tokens :]

    def reset(self) -> None:
        self.fed.clear()

    def as_engine(self) -> muser.Engine:
        """For calls that are typed for a real one."""
        return cast(muser.Engine, self)
