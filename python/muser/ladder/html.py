"""The ladder as one self-contained HTML page: time against closures, errors, where they start."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Any

from .run import PUBLISHED, Ladder, Step

_COLOURS = {
    "reference": "#555",
    "exact": "#1a7f37",
    "within contract": "#b35900",
    "rejected": "#c1121f",
}
_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 1060px; color: #1c1c1c; }
h1 { font-size: 1.5em; } h2 { font-size: 1.1em; margin-top: 2em; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; white-space: nowrap; padding: .25em .45em;
         border-bottom: 1px solid #ddd; }
th { white-space: normal; }
th:first-child, td:first-child, td.left, th.left { text-align: left; }
td.hash { font-family: ui-monospace, monospace; font-size: .85em; }
.note { color: #555; } svg { background: #fafafa; border: 1px solid #e3e3e3; }
svg text { font: 12px system-ui, sans-serif; fill: #333; }
"""
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 1040, 320, 60, 40


def _esc(value: object) -> str:
    return html.escape(str(value))


def _badge(verdict: str) -> str:
    return f'<b style="color:{_COLOURS.get(verdict, "#333")}">{_esc(verdict)}</b>'


def _scale(low: float, high: float, start: float, end: float) -> Any:
    span = (high - low) or 1.0
    return lambda value: start + (value - low) / span * (end - start)


def _axes(x_text: str, y_text: str) -> str:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - 20
    return (
        f'<path d="M{_LEFT} 15V{bottom}H{right}" fill="none" stroke="#999"/>'
        f'<text x="{(right + _LEFT) / 2}" y="{_HEIGHT - 8}" text-anchor="middle">{x_text}</text>'
        f'<text x="14" y="{bottom / 2}" transform="rotate(-90 14 {bottom / 2})" '
        f'text-anchor="middle">{y_text}</text>'
    )


def _time_plot(steps: Sequence[Step]) -> str:
    """Device time against closures; one dot per schedule."""
    xs = [step.closures for step in steps]
    ys = [step.device_ms for step in steps]
    x = _scale(min(xs) - 20, max(xs) + 60, _LEFT, _WIDTH - 20)
    y = _scale(min(ys) * 0.95, max(ys) * 1.05, _HEIGHT - _BOTTOM, 20)
    parts = [_axes("closures per token", "device ms")]
    for tick in (min(ys), max(ys)):
        label = f"{tick:.3g}"
        parts.append(
            f'<text x="{_LEFT - 6}" y="{y(tick) + 4:.0f}" text-anchor="end">{label}</text>'
        )
    shown_at = -math.inf
    for tick in sorted(set(xs)):
        if x(tick) - shown_at < 30:
            continue
        shown_at = x(tick)
        at = f"{x(tick):.0f}"
        parts.append(f'<path d="M{at} {_HEIGHT - _BOTTOM}v5" stroke="#999"/>')
        parts.append(
            f'<text x="{at}" y="{_HEIGHT - _BOTTOM + 17}" text-anchor="middle">{tick}</text>'
        )
    # Labels of dots that share a place are stacked.
    taken: list[tuple[float, float]] = []
    for step in sorted(steps, key=lambda s: s.device_ms):
        cx, cy = x(step.closures), y(step.device_ms)
        text_y = cy + 4
        while any(abs(text_y - other) < 13 and abs(cx - left) < 130 for left, other in taken):
            text_y -= 13
        taken.append((cx, text_y))
        colour = _COLOURS.get(step.verdict, "#333")
        parts.append(
            f'<circle cx="{cx:.1f}" cy="{cy:.1f}" r="5" fill="{colour}"><title>'
            f"{_esc(step.step)}: {step.closures} closures, {step.device_ms:.3f} ms</title></circle>"
            f'<text x="{cx + 9:.1f}" y="{text_y:.1f}">{_esc(step.step)}</text>'
        )
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="100%">{"".join(parts)}</svg>'


def _error_plot(steps: Sequence[Step]) -> str:
    """Percentiles of the absolute logit error of each changed step, on a log scale."""
    changed = [step for step in steps if step.errors]
    floor = min((e for s in changed for e in s.errors if e > 0), default=1e-9)
    top = max((e for s in changed for e in s.errors), default=1.0)
    x = _scale(0, 100, _LEFT, _WIDTH - 130)
    y = _scale(math.log10(floor), math.log10(top), _HEIGHT - _BOTTOM, 20)
    parts = [_axes("percentile of the vocabulary", "absolute logit error")]
    low, high = math.floor(math.log10(floor)), math.ceil(math.log10(top))
    for exponent in range(low, high + 1):
        if math.log10(floor) <= exponent <= math.log10(top):
            at = f"{y(exponent):.0f}"
            parts.append(f'<path d="M{_LEFT} {at}H{_WIDTH - 130}" stroke="#e3e3e3"/>')
            parts.append(f'<text x="{_LEFT - 6}" y="{at}" text-anchor="end">1e{exponent}</text>')
    for i, step in enumerate(changed):
        points = " ".join(
            f"{x(p):.1f},{y(math.log10(e)):.1f}" for p, e in enumerate(step.errors) if e > 0
        )
        colour = ("#c1121f", "#b35900", "#6a3d9a", "#1f78b4")[i % 4]
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'
            f'<text x="{_WIDTH - 124}" y="{40 + 16 * i}" style="fill:{colour}">'
            f"{_esc(step.step)}</text>"
        )
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="100%">{"".join(parts)}</svg>'


def _table(steps: Sequence[Step]) -> str:
    published = {row["step"]: row for row in PUBLISHED}
    rows = []
    for step in steps:
        theirs = published.get(step.step)
        rows.append(
            f"<tr><td>{_esc(step.step)}</td><td>{step.closures}</td>"
            f"<td>{step.device_ms:.3f}</td><td>{step.wall_ms:.3f}</td><td>{step.cv:.1f} %</td>"
            f"<td>{step.streamed['tok_s']:.2f}</td><td>{step.streamed['cv']:.1f} %</td>"
            f'<td class="hash">{step.row_sha256[:12]}</td>'
            f"<td>{'yes' if step.sha_changed else 'no'}</td><td>{_badge(step.verdict)}</td>"
            f"<td>{theirs['closures'] if theirs else ''}</td>"
            f"<td>{format(theirs['device_ms'], '.3f') if theirs else ''}</td></tr>"
        )
    return (
        "<table><tr><th>step</th><th>closures</th><th>device ms</th><th>wall ms</th><th>CV</th>"
        "<th>streamed tok/s</th><th>CV</th><th>row SHA-256</th><th>changed</th><th>verdict</th>"
        "<th>published closures</th><th>published ms</th></tr>" + "".join(rows) + "</table>"
    )


def _post_mortems(ladder: Ladder) -> str:
    parts = []
    for step in ladder.steps:
        if step.diff is None or step.post_mortem is None:
            continue
        diff, found = step.diff, step.post_mortem
        kv, closure = found["kv"], found["closure"]
        where = found["skipped"] or "no captured closure"
        if closure is not None:
            where = (
                f"{_esc(closure['output'])}: {closure['differing']:,} of "
                f"{closure['elements']:,} values, largest difference {closure['max_abs']:.3g}"
            )
        cache = found["skipped"] or "no KV row differs"
        if kv is not None:
            cache = (
                f"layer {kv['layer']}, {_esc(kv['plane'])} plane, position {kv['position']}, "
                f"element {kv['element']}: bits {kv['bits'][0]} and {kv['bits'][1]} "
                f"({kv['values'][0]!r} and {kv['values'][1]!r})"
            )
        kept = "kept" if diff["argmax"][0] == diff["argmax"][1] else "changed"
        parts.append(
            f"<h2>{_esc(step.step)}: {_badge(step.verdict)}</h2><p>"
            f"{len(step.differing_positions)} of {len(ladder.positions)} positions differ. At "
            f"position {diff['position']}: {diff['differing']:,} logits differ, max "
            f"{diff['max_abs']:.3g}, mean {diff['mean_abs']:.3g}, normalised logprob "
            f"{diff['logprob_max']:.3g} (contract 1e-4), greedy token {kept}, top-40 overlap "
            f"{diff['top_k_overlap']:.0%}, entropy {diff['entropy'][0]:.6f} and "
            f"{diff['entropy'][1]:.6f} nats.</p><p>First closure that differs: {where}.<br>First "
            f"KV difference: {cache}.</p>"
        )
    return "".join(parts) or "<p>No step changed a bit.</p>"


def page(ladder: Ladder) -> str:
    """The whole page."""
    receipt = ladder.receipt
    changed = any(step.errors for step in ladder.steps)
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>muser ladder</title>'
        f"<style>{_STYLE}</style><h1>The ladder at position {ladder.position}</h1>"
        f'<p class="note">{_esc(receipt["device"]["description"])} ({_esc(receipt["isa"])}, '
        f"{receipt['threads']} threads), contract {receipt['contract']}, file "
        f"{_esc(receipt['file']['digest'][:16])}. Device and wall times are single-run "
        "diagnostics; streamed figures are another instrument. Published: M3 Ultra, position "
        f"2,048.</p>{_table(ladder.steps)}<h2>Time against closures</h2>{_time_plot(ladder.steps)}"
        + (
            f"<h2>Error of the steps that changed</h2>{_error_plot(ladder.steps)}"
            if changed
            else ""
        )
        + f"{_post_mortems(ladder)}</html>\n"
    )
