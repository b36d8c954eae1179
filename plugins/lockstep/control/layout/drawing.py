"""A layout as a picture: a line for each worker, the hash space from left to right, shards filled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from xml.sax.saxutils import escape

from lockstep.control.layout.layouts import Layout
from lockstep.control.layout.sharding import BUCKETS

__all__ = ["strips", "svg"]

_CELLS = 64
_EMPTY, _PART, _FULL = "·▒█"

_WIDTH, _LINE, _MARGIN, _LABEL = 720, 22, 16, 150
_COLOURS = ("#4269d0", "#efb118", "#3ca951", "#ff725c", "#6cc5b0", "#a463f2", "#9c6b4e", "#97bbf5")
"""One for each host, and again from the first where there are more."""


def strips(layout: Layout) -> Mapping[int, str]:
    """By worker, a line of at most 64 characters: a shard's, or of several whether all are its own."""
    shards = len(layout.owners)
    cells = min(shards, _CELLS)
    width = shards // cells
    parts = [layout.owners[cell * width : (cell + 1) * width] for cell in range(cells)]
    return {
        worker: "".join(_mark(part.count(worker), width) for part in parts)
        for worker in sorted(layout.hosts)
    }


def _mark(owned: int, of: int) -> str:
    return _FULL if owned == of else _PART if owned else _EMPTY


def svg(layout: Layout, title: str) -> str:
    """The same as an SVG document, workers of one host in one colour."""
    height = 2 * _MARGIN + _LINE * (len(layout.hosts) + 2)
    width = 2 * _MARGIN + _LABEL + _WIDTH
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" font-family="sans-serif" font-size="13">',
            f'<rect width="{width}" height="{height}" fill="white"/>',
            _text(_MARGIN, 0, title, "font-weight='bold'"),
            *_lines(layout),
            "</svg>\n",
        )
    )


def _lines(layout: Layout) -> Iterator[str]:
    hosts = sorted(set(layout.hosts.values()))
    colours = {host: _COLOURS[place % len(_COLOURS)] for place, host in enumerate(hosts)}
    left = _MARGIN + _LABEL
    workers = sorted(layout.hosts)
    for line, worker in enumerate(workers, start=1):
        host = layout.hosts[worker]
        yield _text(_MARGIN, line, f"worker {worker}, {host}", "")
        yield _rectangle(left, line, _WIDTH, "#eeeeee")
        for owned in layout.ranges:
            if owned.worker == worker:
                start = left + _WIDTH * owned.low / BUCKETS
                yield _rectangle(
                    start, line, _WIDTH * (owned.high - owned.low) / BUCKETS, colours[host]
                )
    end = len(workers) + 1
    yield _text(left, end, "0", "fill='#666666'")
    yield _text(left + _WIDTH, end, f"{BUCKETS}", "fill='#666666' text-anchor='end'")


def _text(left: float, line: int, text: str, style: str) -> str:
    return f'<text x="{left:g}" y="{_top(line) + 14:g}" {style}>{escape(text)}</text>'


def _rectangle(left: float, line: int, width: float, colour: str) -> str:
    return (
        f'<rect x="{left:g}" y="{_top(line):g}" width="{width:g}" height="{_LINE - 4}" '
        f'fill="{colour}"/>'
    )


def _top(line: int) -> float:
    return _MARGIN + _LINE * line
