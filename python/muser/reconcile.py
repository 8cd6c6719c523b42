"""Why one schedule has more closures than another: a family table with no remainder.

Every closure of a recording belongs to one family of work, whatever its label in either schedule.
The difference of two recordings, family by family, is then the whole difference, or this module
says so: `remainder` counts closures that belong to no family.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

# Family -> the stages that count to it. Order as published.
COMMON = "common math incl. LM head and softcap"
ENTRY = "entry/attention norm"
STAGING = "SWA wrapped-ring staging"
PUBLISH = "KV publication + attention"
POST_ATTENTION = "post-attention residual + FFN norm"
POST_FFN = "post-FFN residual + next/output norm"
COPY = "last-row copy"

FAMILIES: dict[str, tuple[str, ...]] = {
    COMMON: (
        "embedding", "qkvg", "qk_norm", "rope", "sigmoid_gate", "output", "ffn_gate_up", "silu",
        "ffn_down", "lm_head", "softcap",
    ),
    ENTRY: ("entry_norm", "attn_norm"),
    STAGING: ("swa_stage",),
    PUBLISH: ("kv_store", "attention", "store_attend"),
    POST_ATTENTION: ("post_attn_norm", "ffn_norm", "post_attn_ffn_norm"),
    POST_FFN: ("post_ffn_norm", "post_ffn_next_norm", "output_norm"),
    COPY: ("copy_last_row",),
}  # fmt: skip
_FAMILY_OF = {stage: family for family, stages in FAMILIES.items() for stage in stages}

# The published diagnosis, baseline (760) against legacy (564): +196 in these families.
PUBLISHED_PAIR = ("baseline", "legacy")
PUBLISHED_CLOSURES = (760, 564)
PUBLISHED: dict[str, int] = {
    COMMON: 0, ENTRY: 51, STAGING: 39, PUBLISH: 52, POST_ATTENTION: 52, POST_FFN: 1, COPY: 1,
}  # fmt: skip
# The same by name: three of the families are norm boundaries.
NAMED: dict[str, tuple[str, ...]] = {
    "norm boundaries": (ENTRY, POST_ATTENTION, POST_FFN),
    "SWA staging": (STAGING,),
    "KV publication": (PUBLISH,),
    "last-row copy": (COPY,),
}


def stage_of(label: str) -> str:
    """`blk.3.attention` -> `attention`; `lm_head` -> `lm_head`."""
    return label.rsplit(".", 1)[-1]


def census(labels: Iterable[str]) -> tuple[dict[str, int], int]:
    """Closures by family, and the number that belong to none."""
    stages = Counter(stage_of(label) for label in labels)
    families = dict.fromkeys(FAMILIES, 0)
    strangers = 0
    for stage, count in stages.items():
        family = _FAMILY_OF.get(stage)
        if family is None:
            strangers += count
        else:
            families[family] += count
    return families, strangers


@dataclass(frozen=True)
class Reconciliation:
    """Schedule `a` against `b` at one position, from their recordings."""

    a: str
    b: str
    position: int
    closures: tuple[int, int]
    a_families: dict[str, int]
    b_families: dict[str, int]
    remainder: int
    """What the families do not explain of the difference; 0, or the families are incomplete."""

    @property
    def families(self) -> dict[str, int]:
        """Family -> closures of `a` less those of `b`."""
        return {name: self.a_families[name] - self.b_families[name] for name in FAMILIES}

    @property
    def named(self) -> dict[str, int]:
        """The same differences under the four published names."""
        return {
            name: sum(self.families[family] for family in members)
            for name, members in NAMED.items()
        }

    @property
    def published(self) -> dict[str, int] | None:
        """The published differences, where this is the published pair."""
        return dict(PUBLISHED) if (self.a, self.b) == PUBLISHED_PAIR else None

    def as_dict(self) -> dict[str, Any]:
        return {
            "schema": "muser.reconcile/1",
            "position": self.position,
            "a": {"schedule": self.a, "closures": self.closures[0]},
            "b": {"schedule": self.b, "closures": self.closures[1]},
            "families": self.families,
            "named": self.named,
            "remainder": self.remainder,
            "published": self.published,
        }


def reconcile(
    a: str, a_labels: Iterable[str], b: str, b_labels: Iterable[str], position: int
) -> Reconciliation:
    """Compares two recordings, given as the closure labels of schedules `a` and `b`."""
    a_list, b_list = list(a_labels), list(b_labels)
    a_families, a_strangers = census(a_list)
    b_families, b_strangers = census(b_list)
    explained = sum(a_families.values()) - sum(b_families.values())
    remainder = len(a_list) - len(b_list) - explained
    # Strangers on both sides must not cancel out.
    return Reconciliation(
        a=a,
        b=b,
        position=position,
        closures=(len(a_list), len(b_list)),
        a_families=a_families,
        b_families=b_families,
        remainder=remainder if remainder else a_strangers + b_strangers,
    )
