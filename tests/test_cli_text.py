"""Commands that read and write text: `decode --prompt`, `chat`, `perplexity`."""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.scripted import ScriptedEngine
from tests.test_cli import muser, widest
from tests.test_cli_engine import TINY, objects
from tests.test_text import SMALL, stored

import muser as package
from muser import cli
from muser.commands.chat import Conversation, Turn
from muser.commands.generate import feed_prompt, generate, write
from muser.fixtures import synthetic_path
from muser.sampling import GREEDY, MODEL_CARD, Sampling
from muser.text import ChatTemplate, Tokenizer

PROMPT = "The capital of Fr\u00e4nce is"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file("synthetic:tiny")


# --- decode -----------------------------------------------------------------------------------


def test_a_prompt_is_continued(tokenizer: Tokenizer) -> None:
    done = muser("decode", *TINY, "--prompt", PROMPT, "-n", "20", "--json", "--logprobs", "3")
    assert (done.returncode, done.stderr) == (0, "")
    *steps, summary = objects(done.stdout)
    ids = tokenizer.encode(PROMPT)
    assert steps[0]["position"] == len(ids) - 1
    assert [step["position"] for step in steps] == list(range(len(ids) - 1, len(ids) + 20))
    assert [step["input_token"] for step in steps[1:]] == [s["next_token"] for s in steps[:-1]]
    # The same as the ids fed one by one, each row by its hash.
    fed = ids + [step["input_token"] for step in steps[1:]]
    with package.load("synthetic:tiny") as engine:
        for token in fed[: len(ids) - 1]:
            engine.decode_token(token)
        for step, token in zip(steps, fed[len(ids) - 1 :], strict=True):
            row = engine.decode_token(token)
            assert step["row_sha256"] == package.row_sha256(row)
            assert step["next_token"] == step["argmax"] == int(row.argmax())
            best = step["logprobs"]
            assert [token for token, _ in best] == np.argsort(-row, kind="stable")[:3].tolist()
            assert best[0][1] == step["next_logprob"]
    assert summary["prompt_tokens"] == len(ids)
    assert (summary["generated"], summary["tokens"]) == (20, len(fed))
    assert summary["text"] == "".join(step["text"] for step in steps)[: len(summary["text"])]
    assert summary["text"] == tokenizer.decode(fed[len(ids) :], special=False)
    assert summary["stopped_by"] is None


def test_text_stands_alone_on_stdout(tokenizer: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_text(PROMPT, encoding="utf-8")
    *_, summary = objects(muser("decode", *TINY, "-p", PROMPT, "-n", "20", "--json").stdout)
    for source in (("--prompt", PROMPT), ("--prompt-file", str(tmp_path / "prompt.txt"))):
        done = muser("decode", *TINY, *source, "-n", "20")
        assert done.returncode == 0
        assert done.stdout == summary["text"] + "\n"
        assert "tok/s" in done.stderr
        assert widest(done.stderr) <= 80
    command = [sys.executable, "-m", "muser", "decode", *TINY, "--prompt-file", "-", "-n", "20"]
    piped = subprocess.run(command, input=PROMPT.encode(), capture_output=True, check=True)
    assert piped.stdout.decode() == summary["text"] + "\n"


# Found by trying seeds; the contract keeps them.
@pytest.mark.parametrize(("seed", "drawn", "stop"), [(16, 24, "eos"), (35, 18, "eot")])
def test_generation_stops_at_the_files_stop_ids(
    tokenizer: Tokenizer, seed: int, drawn: int, stop: str
) -> None:
    arguments = ("decode", *TINY, "--prompt", "Hello", "--temp", "20", "--seed", str(seed))
    *steps, summary = objects(muser(*arguments, "--json").stdout)
    assert summary["stopped_by"] == getattr(tokenizer, stop) == steps[-1]["next_token"]
    assert summary["generated"] == drawn - 1
    assert summary["sampling"] == {"temperature": 20.0, "top_k": 0, "top_p": 1.0, "seed": seed}


def test_generation_goes_on_after_eom() -> None:
    tokenizer = Tokenizer(stored(SMALL))
    assert tokenizer.eom is not None
    engine = ScriptedEngine(SMALL.eot + 100, [5, tokenizer.eom, 6, SMALL.eot, 7])
    first = feed_prompt(engine.as_engine(), [1, 2], GREEDY.choose, None)
    stop = tokenizer.stop_ids
    steps = list(generate(engine.as_engine(), first, 10, GREEDY.choose, stop))
    assert [step.token for step in steps] == [5, tokenizer.eom, 6]
    assert steps[-1].next == SMALL.eot
    assert engine.fed == [1, 2, 5, tokenizer.eom, 6]


def test_one_seed_gives_one_text() -> None:
    arguments = ("decode", *TINY, "-p", PROMPT, "-n", "40", "--temp", "1", "--top-k", "64")
    card = (*arguments, "--top-p", "0.95", "--seed", "7")
    texts = [muser(*card, *more).stdout for more in ((), ("-t", "1"), ("--isa", "portable"))]
    assert len(set(texts)) == 1
    assert muser(*arguments, "--top-p", "0.95", "--seed", "8").stdout != texts[0]


def test_ids_may_be_sampled_too() -> None:
    arguments = ("decode", *TINY, "--tokens", "1,2,3", "-n", "5", "--temp", "1", "--seed", "3")
    *steps, _ = objects(muser(*arguments, "--json").stdout)
    assert [s["input_token"] for s in steps[3:]] == [s["next_token"] for s in steps[2:-1]]
    assert any(step["next_token"] != step["argmax"] for step in steps)
    people = muser(*arguments, "--logprobs", "2")
    assert people.stdout.count("\n") == 1 + 8 * 3 + 2
    assert widest(people.stdout) <= 80


def test_every_row_of_a_prompt_can_be_kept(tokenizer: Tokenizer, tmp_path: Path) -> None:
    text = PROMPT * 20
    dump = tmp_path / "rows.npy"
    done = muser("decode", *TINY, "-p", text, "-n", "2", "--json", "--dump-logits", str(dump))
    *steps, _ = objects(done.stdout)
    ids = tokenizer.encode(text)
    assert len(ids) > 130
    rows = np.load(dump)
    assert rows.shape == (len(ids) + 2, 1024)
    with package.load("synthetic:tiny") as engine:
        fed = ids + [step["input_token"] for step in steps[1:]]
        assert engine.prefill(fed, all_rows=True).tobytes() == rows.tobytes()


def test_special_tokens_in_a_prompt_only_where_asked(tokenizer: Tokenizer) -> None:
    for more, expected in (((), False), (("--special",), True)):
        arguments = ("decode", *TINY, "-p", "a<|start|>", "-n", "0", "--json", *more)
        first, _ = objects(muser(*arguments).stdout)
        assert (first["input_token"] == tokenizer.special["<|start|>"]) == expected


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("decode", *TINY, "--tokens", "1", "--prompt", "x"), 2, "not allowed with"),
        (("decode", *TINY, "--prompt", "x", "--temp", "-1"), 2, "temperature"),
        (("decode", *TINY, "--prompt", "x", "--top-p", "0"), 2, "top_p"),
        (("decode", *TINY, "--prompt", "x", "--top-k", "-1"), 2, "top-k"),
        (("decode", *TINY, "--prompt", "x", "--logprobs", "0"), 2, "logprobs"),
        (("decode", *TINY, "--prompt-file", "/no/file"), 3, "/no/file"),
        (("decode", *TINY, "--prompt-file", str(synthetic_path("tiny"))), 3, "not UTF-8"),
        (("decode", *TINY, "--prompt", "x " * 40, "-c", "16"), 2, "context of 16"),
        (("perplexity", "/no/file", *TINY), 3, "/no/file"),
        (("perplexity", "README.md", *TINY, "-c", "64", "--window", "65"), 2, "context of 64"),
        (("chat", *TINY, "--temp", "nan"), 2, "temperature"),
    ],
    ids=lambda part: " ".join(part)[:60] if isinstance(part, tuple) else "",
)
def test_errors_of_text(arguments: tuple[str, ...], code: int, words: str) -> None:
    done = muser(*arguments)
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_output_that_cannot_show_a_character(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, "ascii"))
    write("a\u20acb")
    assert raw.getvalue() == b"a?b"


# --- chat -------------------------------------------------------------------------------------


def chat(lines: str, *more: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "muser", "chat", *TINY, *more]
    return subprocess.run(command, input=lines.encode(), capture_output=True, check=False)


def test_a_conversation_through_a_pipe() -> None:
    lines = "Hello caf\u00e9\n\nAnd again\r\n"
    done = chat(lines, "-n", "12", "--json", "--seed", "5")
    assert (done.returncode, done.stderr) == (0, b"")
    first, second = objects(done.stdout.decode())
    assert first["schema"] == "muser.chat.turn/1"
    assert first["prompt_tokens"] == first["fed_prompt_tokens"] > 20
    # The cache holds what both prompts begin with.
    assert second["prompt_tokens"] - second["fed_prompt_tokens"] > 20
    assert second["generated"] <= 12
    assert chat(lines, "-n", "12", "--seed", "5", "-t", "1").stdout.decode() == (
        f"{first['text']}\n{second['text']}\n"
    )
    assert chat(lines, "-n", "12", "--json", "--seed", "6").stdout != done.stdout


def test_the_model_cards_settings_are_chats() -> None:
    top = cli.parser().parse_args(["chat", *TINY])
    assert Sampling(top.temp, top.top_k, top.top_p, top.seed) == MODEL_CARD
    assert Sampling(1.0, 64, 0.95, 0) == MODEL_CARD
    plain = cli.parser().parse_args(["decode", *TINY, "-p", "x"])
    assert Sampling(plain.temp, plain.top_k, plain.top_p, plain.seed) == GREEDY


def test_no_input_is_no_conversation() -> None:
    done = chat("")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_conversation_longer_than_the_context_is_an_error() -> None:
    done = chat("hello " * 200 + "\n", "-c", "128")
    assert done.returncode == 2
    assert b"context of 128" in done.stderr


ANSWERS = (
    " to=self<|message|>hm<|eom|><|start|>assistant to=user<|message|>Yes.<|eot|>",
    " to=user<|message|>No.<|eot|>",
)


def talk(tokenizer: Tokenizer, *, journal: int) -> tuple[ScriptedEngine, list[Turn], list[int]]:
    """Two turns of a scripted engine, and the prompt that a third would have."""
    script = tokenizer.encode("".join(ANSWERS), bos=False, special=True)
    engine = ScriptedEngine(tokenizer.vocab, script, journal=journal)
    template = ChatTemplate(tokenizer)
    conversation = Conversation(engine.as_engine(), template, GREEDY)
    turns = [Turn(), Turn()]
    for turn, line in zip(turns, ("Is it?", "Sure?"), strict=True):
        list(conversation.answer(line, None, turn))
    messages = [{"role": "user", "content": "Is it?"}]
    messages.append({"role": "assistant", "content": "Yes.", "reasoning_content": "hm"})
    messages.append({"role": "user", "content": "Sure?"})
    return engine, turns, template.encode(messages)


def test_an_answer_has_thinking_and_text(tokenizer: Tokenizer) -> None:
    engine, turns, prompt = talk(tokenizer, journal=1000)
    assert [(turn.thinking, turn.text) for turn in turns] == [("hm", "Yes."), ("", "No.")]
    assert [turn.stopped_by for turn in turns] == [tokenizer.eot] * 2
    assert turns[1].prompt_tokens == len(prompt)
    assert engine.fed[: len(prompt)] == prompt
    # What the model wrote is in the prompt as it wrote it: only what follows was fed.
    assert turns[1].fed_prompt_tokens < len(prompt) - turns[0].prompt_tokens
    assert engine.prefilled == [turn.fed_prompt_tokens for turn in turns]


def test_a_rollback_too_far_begins_again(tokenizer: Tokenizer) -> None:
    template = ChatTemplate(tokenizer)
    engine = ScriptedEngine(tokenizer.vocab, [1] * 100, journal=3)
    conversation = Conversation(engine.as_engine(), template, GREEDY)
    list(conversation.answer("Is it?", 10, Turn()))
    conversation.messages[-1]["content"] = "something else"
    turn = Turn()
    list(conversation.answer("Sure?", 10, turn))
    assert turn.fed_prompt_tokens == turn.prompt_tokens
    assert engine.fed[: turn.prompt_tokens] == template.encode(conversation.messages[:3])


def test_thinking_is_shown_where_asked(
    tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    from muser.commands.chat import _turn

    for thinking, shown in ((False, "Yes.\n"), (True, "[self] hm\n[user] Yes.\n")):
        script = tokenizer.encode(ANSWERS[0], bos=False, special=True)
        engine = ScriptedEngine(tokenizer.vocab, script)
        conversation = Conversation(engine.as_engine(), ChatTemplate(tokenizer), GREEDY)
        arguments = argparse.Namespace(json=False, thinking=thinking, steps=None)
        _turn(conversation, "Is it?", arguments)
        assert capsys.readouterr().out == shown


# --- perplexity -------------------------------------------------------------------------------


def test_perplexity_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text(PROMPT * 10, encoding="utf-8")
    done = muser("perplexity", str(path), *TINY, "--window", "40", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    told: dict[str, Any] = json.loads(done.stdout)
    count = len(Tokenizer.from_file("synthetic:tiny").encode(PROMPT * 10, bos=False))
    assert told["schema"] == "muser.perplexity/1"
    assert (told["tokens"], told["window"]) == (count, 40)
    assert told["windows"] == -(-count // 39)
    assert np.isclose(told["perplexity"], np.exp(told["nll"]))
    other = muser("perplexity", str(path), *TINY, "--window", "40", "--json", "-t", "1")
    assert json.loads(other.stdout)["nll"] == told["nll"]
    people = muser("perplexity", str(path), *TINY, "--window", "40")
    assert f"perplexity {told['perplexity']:.4f}" in people.stdout
    assert widest(people.stdout) <= 80
