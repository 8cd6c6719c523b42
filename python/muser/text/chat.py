"""Chat messages to ids, by the jinja2 template stored in the file, in a sandbox."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from ..errors import ConfigError, TokenizerError
from .tokenizer import Tokenizer, not_installed

Message = Mapping[str, Any]


def _raise(message: str) -> NoReturn:
    raise ConfigError(f"the chat template refuses these messages: {message}", {"value": message})


class ChatTemplate:
    """The file's chat template.

    Only the template can write special tokens. Text of messages that spells one stays text.
    """

    def __init__(self, tokenizer: Tokenizer, *, now: datetime | None = None) -> None:
        """now: what the template's `strftime_now` tells; None: the time of each call. A file
        without a template, or with one that does not parse, is a TokenizerError."""
        try:
            from jinja2 import TemplateError
            from jinja2.sandbox import ImmutableSandboxedEnvironment
        except ImportError as error:
            raise not_installed("jinja2") from error

        if tokenizer.chat_template is None:
            raise TokenizerError(
                "the file has no chat template", {"key": "tokenizer.chat_template"}
            )
        self.tokenizer = tokenizer
        self._now = now
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = self._strftime
        # As JSON in a prompt, not in a page: jinja2's own filter escapes HTML.
        environment.filters["tojson"] = lambda value, indent=None: json.dumps(
            value, ensure_ascii=False, indent=indent
        )
        try:
            self._template = environment.from_string(tokenizer.chat_template)
        except TemplateError as error:
            raise TokenizerError(
                f"the chat template does not parse: {error}", {"key": "tokenizer.chat_template"}
            ) from error

    def _strftime(self, form: str) -> str:
        return (self._now or datetime.now()).strftime(form)

    def render(
        self, messages: Sequence[Message], *, add_generation_prompt: bool = True, **variables: Any
    ) -> str:
        """The prompt's text. `messages` are mappings with `role` and `content`; further variables
        (`tools`, `reasoning_strength`, ...) are the template's own.

        Do not encode this text where a message comes from others: see `encode`.
        """
        from jinja2 import TemplateError

        def spelling(token: int | None) -> str:
            return "" if token is None else self.tokenizer.token_bytes(token).decode()

        try:
            return self._template.render(
                messages=[dict(message) for message in messages],
                add_generation_prompt=add_generation_prompt,
                bos_token=spelling(self.tokenizer.bos),
                eos_token=spelling(self.tokenizer.eos),
                **variables,
            )
        except (TemplateError, TypeError, OverflowError) as error:
            raise TokenizerError(
                f"the chat template failed: {error}", {"key": "tokenizer.chat_template"}
            ) from error

    def encode(
        self, messages: Sequence[Message], *, add_generation_prompt: bool = True, **variables: Any
    ) -> list[int]:
        """Ids of the rendered prompt; special tokens come from the template alone."""
        mark = _unused_character([messages, variables])
        text = self.render(
            [_defused(message, self.tokenizer, mark) for message in messages],
            add_generation_prompt=add_generation_prompt,
            **{name: _defused(value, self.tokenizer, mark) for name, value in variables.items()},
        )
        return self.tokenizer.encode_defused(text, mark)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _strings(key)
            yield from _strings(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _strings(item)


def _unused_character(value: Any) -> str:
    used = set().union(*_strings(value))
    return next(chr(code) for code in range(0xF0000, 0x110000) if chr(code) not in used)


def _defused(value: Any, tokenizer: Tokenizer, mark: str) -> Any:
    if isinstance(value, str):
        return tokenizer.defuse(value, mark)
    if isinstance(value, Mapping):
        return {
            _defused(key, tokenizer, mark): _defused(item, tokenizer, mark)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_defused(item, tokenizer, mark) for item in value]
    return value
