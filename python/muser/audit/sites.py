"""The barrier sites of docs/ordering.md, from the statements beside the barriers themselves.

python -m muser.audit.sites docs/ordering.md       rewrites the page's two tables
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def tables() -> dict[str, str]:
    """Markdown by the name of its place in the page."""
    from .. import _core

    told = _core.barrier_sites()
    closures = [(f"`{row['closure']}`", row["why"]) for row in told["closures"]]
    sites = [(row["site"], row["resources"], row["hazard"], row["why"]) for row in told["sites"]]
    return {
        "closures": _table(("before", "hazard"), closures),
        "sites": _table(("site", "resources", "hazard", "why"), sites),
    }


def fill(page: str) -> str:
    """The page with its tables made anew: each between `<!-- name -->` and `<!-- end -->`."""
    for name, table in tables().items():
        mark, end = f"<!-- {name} -->\n", "<!-- end -->"
        before, _, rest = page.partition(mark)
        _, _, after = rest.partition(end)
        page = f"{before}{mark}\n{table}\n\n{end}{after}"
    return page


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.write_text(fill(target.read_text(encoding="utf-8")), encoding="utf-8")
