"""The table of measured figures in docs/ordering.md: every schedule of the 52-layer file, audited.

python -m tests.audit_table                     prints it
python -m tests.audit_table docs/ordering.md    writes it into the page
"""

from __future__ import annotations

import sys
from pathlib import Path

import muser
from muser import _core
from muser.audit import audit, mutate

FILE, POSITION = "synthetic:narrow", 2048
BEGIN, END = "<!-- measured -->\n", "<!-- measured end -->"
HEAD = (
    "| schedule | closures | dispatches | conflicting pairs | by hand: on everything + named "
    "| could go: alone, together | planned | after every dispatch "
    "| mutants: reported of all | missed, extra |"
)
Row = tuple[str | int, ...]


def row(schedule: str) -> Row:
    counts = {}
    for barriers in ("hand", "planned", "all"):
        config = muser.Config(
            device="cpu", schedule=schedule, barriers=barriers, allow_inexact=True, context=4096
        )
        with muser.load(FILE, config=config) as engine:
            events = engine.record(POSITION)
            closures = len(engine.plan_at(POSITION).closures)
        found = audit(events)
        assert found.hazards == (), (schedule, barriers)
        counts[barriers] = found
        if barriers == "hand":
            told = mutate(events)
            assert told["silent_is_redundant"] and told["together_sound"]
    hand = counts["hand"]
    return (
        f"`{schedule}`",
        closures,
        hand.counts["dispatches"],
        hand.counts["pairs"],
        f"{hand.barriers['broad']} + {hand.barriers['targeted']}",
        f"{hand.barriers['redundant']}, {len(hand.together)}",
        counts["planned"].barriers["broad"],
        counts["all"].barriers["broad"],
        f"{told['reported']:,} of {told['total']:,}",
        f"{told['missed']}, {told['extra']}",
    )


def table() -> str:
    rule = "|---|" + "---:|" * (HEAD.count("|") - 2)
    rows = [row(schedule["name"]) for schedule in _core.schedules()]
    lines = ["| " + " | ".join(str(cell) for cell in cells) + " |" for cells in rows]
    return "\n".join([HEAD, rule, *lines])


def fill(page: str, table: str) -> str:
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table}\n\n{END}{after}"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        target = Path(sys.argv[1])
        target.write_text(fill(target.read_text(encoding="utf-8"), table()), encoding="utf-8")
    else:
        print(table())
