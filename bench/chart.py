# SPDX-License-Identifier: MIT
"""A line chart as SVG, for the figures of the documents: text, so that a change of it can be read, and no library.

  chart(lines, x=Axis("page size", bytes_text, log=2), y=Axis("ns", ticks=...))  ->  str

`lines` are (name, colour, [(x, y), ...]); a colour may be followed by a dash pattern: "#666 4 3".
"""
import dataclasses
import html
import math

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 860, 400, 80, 32, 40, 52


def number_text(value):
    """1200000 as "1.2 M", 0.5 as "0.5"."""
    for factor, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= factor:
            return f"{value / factor:g}{letter}"
    return f"{value:g}"


def bytes_text(value):
    for factor, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if value >= factor:
            return f"{value / factor:g} {unit}"
    return f"{value:g} B"


@dataclasses.dataclass
class Axis:
    label: str
    text: callable = number_text
    log: int = 0  # the base of a logarithmic axis; 0: linear
    low: float = None
    high: float = None
    ticks: list = None

    def fit(self, values):
        """Ends and ticks, where they are not given."""
        values = list(values)
        if self.log:
            powers = [math.log(v, self.log) for v in values]
            first, last = math.floor(min(powers) + 1e-9), math.ceil(max(powers) - 1e-9)
            last = max(last, first + 1)
            self.low = self.low or self.log ** first
            self.high = self.high or self.log ** last
            step = max(1, math.ceil((last - first) / 10))
            self.ticks = self.ticks or [self.log ** p for p in range(first, last + 1, step) if self.low <= self.log ** p <= self.high]
            return self
        self.low = min(values) if self.low is None else self.low
        self.high = max(values) * 1.05 if self.high is None else self.high
        if self.high <= self.low:
            self.high = self.low + 1
        rough = (self.high - self.low) / 7
        step = 10 ** math.floor(math.log10(rough))
        step *= next(f for f in (1, 2, 5, 10) if step * f >= rough)
        self.ticks = self.ticks or [step * i for i in range(math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9) + 1)]
        return self

    def place(self, value):
        """From 0 to 1."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def thinned(points):
    """Without the points that lie on the line of their neighbours, in the picture."""
    kept = points[:1]
    for at, point in enumerate(points[1:-1], 1):
        (x0, y0), (x2, y2) = kept[-1], points[at + 1]
        on_line = y0 + (y2 - y0) * (point[0] - x0) / (x2 - x0) if x2 != x0 else None
        if on_line is None or abs(on_line - point[1]) > 0.3:
            kept.append(point)
    return kept + points[-1:] if len(points) > 1 else kept


def chart(lines, x, y, title=""):
    x.fit(p[0] for _, _, points in lines for p in points)
    y.fit(p[1] for _, _, points in lines for p in points)
    across = lambda v: LEFT + x.place(v) * (WIDTH - LEFT - RIGHT)  # noqa: E731
    up = lambda v: HEIGHT - BOTTOM - y.place(v) * (HEIGHT - TOP - BOTTOM)  # noqa: E731
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>']
    text = lambda a, b, words, more="": out.append(f'<text x="{a:.1f}" y="{b:.1f}"{more}>{html.escape(words)}</text>')  # noqa: E731
    if title:
        text(LEFT, 16, title, ' font-size="13"')
    for tick in x.ticks:
        out.append(f'<path d="M{across(tick):.1f} {TOP}V{HEIGHT - BOTTOM + 4}" stroke="#ddd"/>')
        text(across(tick), HEIGHT - BOTTOM + 18, x.text(tick), ' text-anchor="middle"')
    for tick in y.ticks:
        out.append(f'<path d="M{LEFT - 4} {up(tick):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        text(LEFT - 8, up(tick) + 4, y.text(tick), ' text-anchor="end"')
    out.append(f'<path d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}" fill="none" stroke="#666"/>')
    text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, x.label, ' text-anchor="middle"')
    text(0, 0, y.label, f' text-anchor="middle" transform="translate(16 {(TOP + HEIGHT - BOTTOM) / 2:.0f}) rotate(-90)"')
    key = LEFT
    for name, colour, points in lines:
        colour, _, dash = colour.partition(" ")
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in thinned([(across(a), up(b)) for a, b in points]))
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"{dashes}/>')
        if len(points) < 40:
            out += [f'<circle cx="{across(a):.1f}" cy="{up(b):.1f}" r="2.5" fill="{colour}"/>' for a, b in points]
        out.append(f'<path d="M{key} 29h22" stroke="{colour}" stroke-width="2"{dashes}/>')
        text(key + 27, 33, name)
        key += 45 + 6.3 * len(name)
    return "\n".join(out) + "\n</svg>\n"
