"""Elements of SVG as escaped text. Positions and colours are attributes and classes, never inline styles."""

from typing import Any

from markupsafe import Markup, escape


def element(name: str, *children: Any, **attributes: Any) -> Markup:
    """Return one element; `class_` is its class, and an underscore in a name stands for a hyphen.

    >>> element("text", "a<b", x=1, class_="axis")
    Markup('<text x="1" class="axis">a&lt;b</text>')
    """
    named = Markup("").join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), _short(value))
        for key, value in attributes.items()
        if value is not None
    )
    inside = Markup("").join(escape(child) for child in children)
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(name), named, inside)  # noqa: S704 (names of ours)


def drawing(width: float, height: float, label: str, *children: Any, class_: str = "chart") -> Markup:
    """Return a whole picture that shrinks with its column; `label` says to all what it shows."""
    return element(
        "svg",
        element("title", label),
        *children,
        viewBox=f"0 0 {_short(width)} {_short(height)}",
        width=width,
        height=height,
        role="group" if class_ == "graph" else "img",  # what is an image has no links inside
        aria_label=label,
        class_=class_,
    )


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def text(x: float, y: float, words: str, class_: str = "axis", anchor: str = "start") -> Markup:
    return element("text", words, x=x, y=y, class_=class_, text_anchor=anchor)


def link(address: str, label: str, *children: Any) -> Markup:
    """Return children that lead somewhere when they are clicked."""
    return element("a", element("title", label), *children, href=address, aria_label=label)


def path(points: list[tuple[float, float]], class_: str) -> Markup:
    """Return a line through the points; nothing for fewer than two."""
    if len(points) < 2:
        return Markup("")
    steps = " ".join(f"{_short(x)},{_short(y)}" for x, y in points)
    return element("polyline", points=steps, class_=class_)


def _short(value: Any) -> Any:
    return round(value, 2) if isinstance(value, float) else value
