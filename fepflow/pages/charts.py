"""Charts as SVG, drawn by Vega-Lite on the server. Colours are the style sheet's, so that they fit dark and light.

Some answer the mouse: page.js draws them again in the browser with Vega, from the same description, see `interactive`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from markupsafe import Markup

VEGA_LITE = "5.21"
INK = "currentColor"
FAINT = "var(--faint)"
_WIDTH, _HEIGHT = 260, 16
MOUSE = {"tooltip": {"field": "hint"}, "href": {"field": "href"}}
"""Channels of a mark that answers the mouse, see `interactive`."""
TARGET = "target"
"""The name of a layer that is marked while the mouse is over it."""


_COLOUR = {"field": "colour", "type": "nominal", "scale": None}
_OUTCOMES = {"pass": "var(--pass)", "fail": "var(--fail)", "inconclusive": "var(--inconclusive)"}
_WAYS = {"better": "var(--pass)", "worse": "var(--fail)"}
_WITH_INTERVAL = [{"filter": "isValid(datum.low) && isValid(datum.high)"}]


def _layer(
    kind: str, encoding: Mapping[str, Any], rows: Sequence[Mapping[str, Any]] | None = None, **mark: Any
) -> dict[str, Any]:
    """Return marks of a kind; without `rows`, those of the chart are drawn."""
    data = {} if rows is None else {"data": {"values": rows}}
    return {**data, "mark": {"type": kind, **mark}, "encoding": encoding}


def _linear(low: float, high: float, ticks: int) -> dict[str, Any]:
    scale = {"domain": [low, high], "nice": False, "zero": False}
    return {"type": "quantitative", "scale": scale, "axis": _axis(ticks)}


def interval_chart(metric: Mapping[str, Any], bands: Sequence[Mapping[str, Any]]) -> Markup | None:
    """Draw a metric's value as a point and its interval as a line, over bands of thresholds (`{impact, min, max}`).

    None for a metric without a value. The numbers stand beside it in text, so it is hidden from screen readers.
    """
    if metric.get("value") is None:
        return None
    edges = [metric.get(name) for name in ("value", "low", "high", "threshold", "maximum")]
    low, high = _domain(edges, bands)
    x = _linear(low, high, 5)
    bounds = [bound for bound in (metric.get("low"), metric.get("high")) if bound is not None]
    layers = [_bands(bands, (low, high), "x", x)]
    if len(bounds) == 2:
        rows = [{"low": bounds[0], "high": bounds[1]}]
        interval = {"x": {**x, "field": "low"}, "x2": {"field": "high"}}
        layers.append(_layer("rule", interval, rows, stroke=INK, strokeWidth=3, clip=True))
    point = {"shape": "diamond", "filled": True, "color": INK, "size": 110, "opacity": 1}
    layers.append(_layer("point", {"x": {**x, "field": "value"}}, [{"value": metric["value"]}], **point))
    return _svg({"width": _WIDTH, "height": _HEIGHT, "layer": layers})


def trend_chart(points: Sequence[Mapping[str, Any]], bands: Sequence[Mapping[str, Any]]) -> Markup | None:
    """Draw a metric over runs, oldest first, over bands of thresholds.

    Each point is `{value, low, high, outcome, alarm}` and, for the mouse, `when`, a short date under the axis, `hint`
    and `href`.
    """
    if not points:
        return None
    low, high = _domain([point[name] for point in points for name in ("value", "low", "high")], bands)
    y = _linear(low, high, 5)
    dates = json.dumps([point["when"] for point in points])
    labels = {"labelAngle": 0, "labelOverlap": True, "labelSeparation": 8, "labelExpr": f"{dates}[datum.value - 1]"}
    x = {"field": "index", "type": "ordinal", "axis": {**_axis(12), **labels}}
    rows = [
        {**point, "index": index, "colour": _OUTCOMES.get(str(point.get("outcome")), INK)}
        for index, point in enumerate(points, 1)
    ]
    interval = {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}}
    point_of_run = {
        "x": x,
        "y": {**y, "field": "value"},
        "fill": _COLOUR,
        "shape": {"condition": {"test": "datum.alarm", "value": "triangle-up"}, "value": "circle"},
        "size": {"condition": {"test": "datum.alarm", "value": 160}, "value": 70},
    }
    layers = [
        _bands(bands, (low, high), "y", y),
        _layer("line", {"x": x, "y": {**y, "field": "value"}}, stroke=INK, strokeWidth=1),
        {"transform": _WITH_INTERVAL, **_layer("rule", interval, stroke=INK, strokeWidth=2, clip=True)},
        _layer("point", point_of_run, filled=True, opacity=1, stroke=INK, strokeWidth=1),
        # The mouse need not meet the point: all that is above and below it counts.
        {"name": TARGET, **_layer("rect", {"x": x, **MOUSE}, fill=INK, fillOpacity=0)},
    ]
    return interactive({"width": 420, "height": 170, "data": {"values": rows}, "layer": layers})


def spark_line(values: Sequence[float]) -> Markup:
    """Draw two values or more, oldest first, as a line without axes.

    By hand: Vega takes 20 ms of CPU for each, and the overview has one a suite.
    """
    low, high = min(values), max(values)
    if low < 0 or high > 1:
        low, high = _domain(values, [])
    else:  # the change is what a small picture shows, not the level
        low, high = low - 0.05, high + 0.05
    places = [
        (3 + 214 * index / (len(values) - 1), 33 - 30 * (value - low) / (high - low))
        for index, value in enumerate(values)
    ]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return Markup(
        '<svg viewBox="0 0 220 36"><polyline points="{}" fill="none" stroke="currentColor" stroke-width="1.5"/>'
        '<circle cx="{:.1f}" cy="{:.1f}" r="3" fill="currentColor"/></svg>'
    ).format(points, *places[-1])


def forest_chart(rows: Sequence[Mapping[str, Any]]) -> Markup | None:
    """Draw differences below each other, each as a point with its interval, beside a line at zero.

    Each row is `{label, value, low, high, way}` and, for the mouse, `hint` and `href`; `way` is `better`, `worse`, or
    None where no difference is shown.
    """
    if not rows:
        return None
    edges = [row[name] for row in rows for name in ("value", "low", "high") if row[name] is not None]
    most = max(*map(abs, edges), 1e-9) * 1.1
    data = [{**row, "colour": _WAYS.get(str(row.get("way")), INK)} for row in rows]
    x = _linear(-most, most, 7)
    axis = {**_axis(0), "ticks": False, "domain": False, "labelLimit": 180}
    y = {"field": "label", "type": "nominal", "sort": None, "axis": axis}
    interval = {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y, "stroke": _COLOUR}
    point = {"x": {**x, "field": "value"}, "y": y, "fill": _COLOUR}
    layers = [
        _layer("rule", {"x": {**x, "field": "zero"}}, [{"zero": 0}], stroke=FAINT, strokeDash=[4, 3]),
        {"transform": _WITH_INTERVAL, **_layer("rule", interval, strokeWidth=3, clip=True)},
        _layer("point", point, filled=True, opacity=1, size=90),
        {"name": TARGET, **_layer("rect", {"y": y, **MOUSE}, fill=INK, fillOpacity=0)},
    ]
    return interactive({"width": 420, "height": {"step": 28}, "data": {"values": data}, "layer": layers})


def attempts_chart(attempts: Sequence[tuple[int, float, float, bool]]) -> Markup | None:
    """Draw the attempts of a call on a time line, each `(number, start, end, failed)`, in seconds from the first."""
    if not attempts:
        return None
    rows = [
        {"number": str(number), "start": start, "end": end, "colour": "var(--error)" if failed else "var(--pass)"}
        for number, start, end, failed in attempts
    ]
    encoding = {
        "x": {"field": "start", "type": "quantitative", "axis": {**_axis(6), "title": "seconds"}},
        "x2": {"field": "end"},
        "y": {"field": "number", "type": "ordinal", "sort": None, "axis": {**_axis(10), "title": "attempt"}},
        "fill": _COLOUR,
    }
    bars = _layer("bar", encoding, rows, minBandSize=4, stroke=INK, strokeWidth=0.5)
    return _svg({"width": 420, "height": {"step": 18}, **bars})


def _bands(
    bands: Sequence[Mapping[str, Any]], ends: tuple[float, float], axis: str, encoding: Mapping[str, Any]
) -> dict[str, Any]:
    low, high = ends
    rows = [
        {
            "from": low if band.get("min") is None else band["min"],
            "to": high if band.get("max") is None else band["max"],
            "colour": f"var(--{band['impact'].replace('_', '-')})",
        }
        for band in bands
    ]
    sides = {axis: {**encoding, "field": "from"}, f"{axis}2": {"field": "to"}}
    return _layer("rect", {**sides, "fill": _COLOUR}, rows, clip=True)


def _domain(edges: Sequence[float | None], bands: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Return the ends of the axis: 0 and 1 for a share, else those of all known values with a margin."""
    known = [*edges, *(band.get(name) for band in bands for name in ("min", "max"))]
    numbers = [number for number in known if number is not None]
    low, high = min(numbers), max(numbers)
    if low >= 0 and high <= 1:
        return 0.0, 1.0
    margin = (high - low) * 0.15 or abs(high) * 0.1 or 1.0
    return low - margin, high + margin


def gate_bands(metric: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the bands of a gate's minimum and maximum: `very_low` passes, `severe` does not."""
    minimum, maximum = metric.get("threshold"), metric.get("maximum")
    bands: list[dict[str, Any]] = []
    if minimum is not None:
        bands.append({"impact": "severe", "min": None, "max": minimum})
    if minimum is not None or maximum is not None:
        bands.append({"impact": "very_low", "min": minimum, "max": maximum})
    if maximum is not None:
        bands.append({"impact": "severe", "min": maximum, "max": None})
    return bands


def _axis(ticks: int) -> dict[str, Any]:
    return {"title": None, "grid": False, "tickCount": ticks}


_CONFIG = {
    "background": None,
    "view": {"stroke": None},
    "font": "system-ui, sans-serif",
    "axis": {"labelColor": INK, "titleColor": INK, "tickColor": FAINT, "domainColor": FAINT, "labelFontSize": 11},
}


_COMMON = {"config": _CONFIG, "padding": 4}
_FIT = {"type": "fit-x", "contains": "padding"}
_BASE = "https://vega.github.io/vega-datasets/"
"""Prefix that the library puts before a link that is a path."""


def interactive(chart: dict[str, Any]) -> Markup:
    """Return a figure with the server's picture of a chart, and the chart for Vega in the browser.

    There it is as wide as its place. A mark's channel `tooltip` is a text that is shown when the mouse is over it, its
    `href` the path of a page that a click opens; in the server's picture, which stands without JavaScript, it is a
    link. The figure is hidden from screen readers: a page says the same in text or in a table.
    """
    compiled = _compiled(json.dumps({**_COMMON, **chart, "width": "container", "autosize": _FIT}))
    return Markup('<figure class="chart" aria-hidden="true" data-chart="{}">{}</figure>').format(compiled, _svg(chart))


def _svg(chart: dict[str, Any]) -> Markup:
    return _drawn(json.dumps({**_COMMON, **chart}))


@lru_cache(maxsize=500)
def _compiled(spec: str) -> str:
    import vl_convert

    return json.dumps(vl_convert.vegalite_to_vega(spec, vl_version=VEGA_LITE), separators=(",", ":"))


@lru_cache(maxsize=2_000)
def _drawn(spec: str) -> Markup:
    import vl_convert

    svg = vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE)
    svg = svg.replace(f'xlink:href="{_BASE}', 'tabindex="-1" href="')  # hidden from readers, so out of the tab order
    return Markup(svg)  # noqa: S704  # the library escapes texts
