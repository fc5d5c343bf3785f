"""The demo on a terminal: one picture, drawn anew several times a second."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from penstock.demo.plan import POOL
from penstock.demo.show import Fault, Show

NAME = " penstock demo"
USUAL_S = 50
PANEL_LINES = 10
WIDE = 110
BAR = 18
_BLOCKS = " ▁▂▃▄▅▆▇█"
_SIGNS = {"next": ("…", "yellow"), "now": ("…", "yellow"), "done": ("✓", "green")}


def picture(show: Show, width: int) -> RenderableType:
    """The whole screen; on a narrow one the panels stand below each other."""
    sale, faults = _panel("sale", _sale(show)), _panel("faults", _faults(show.faults))
    panels: RenderableType = Group(sale, faults)
    if width >= WIDE:
        both = Table.grid(expand=True, padding=0)
        both.add_column(ratio=2)
        both.add_column(ratio=3)
        both.add_row(sale, faults)
        panels = both
    refused = Panel(_refused(show), title="refused, on purpose", title_align="left")
    parts: list[RenderableType] = [_head(show, width), panels, refused]
    parts += [Text(f" {link}", style="dim", no_wrap=True) for link in show.links]
    if show.proof:
        parts.append(Rule("proof", style="dim"))
        parts += [_proof_line(line) for line in show.proof]
    return Group(*parts)


def clock(seconds: float) -> str:
    """Minutes and seconds."""
    return f"{int(seconds) // 60:02}:{int(seconds) % 60:02}"


def spark(values: Sequence[float], width: int = 16) -> str:
    """The last values as a row of little bars."""
    last = list(values)[-width:]
    top = max(last, default=0.0)
    if top <= 0:
        return "▁" * len(last)
    return "".join(_BLOCKS[1 + round(value / top * (len(_BLOCKS) - 2))] for value in last)


def _head(show: Show, width: int) -> RenderableType:
    """What runs and for how long; what a narrow screen has no room for is left out, not cut."""
    plan = show.plan
    time = f"{clock(show.elapsed_s)} / ~{clock(USUAL_S)} "
    facts = [f"{plan.slots:,} seats", f"{plan.buyers:,} buyers", f"seed {plan.seed}", "2 databases"]
    while facts and len(_title(facts)) + len(time) >= width:
        facts.pop()
    line = Table.grid(expand=True)
    line.add_column(no_wrap=True)
    line.add_column(justify="right", no_wrap=True)
    title = Text(_title(facts))
    title.stylize("bold", 0, len(NAME))
    line.add_row(title, time)
    return line


def _title(facts: Sequence[str]) -> str:
    return " · ".join((NAME, POOL, *facts))


def _panel(title: str, inside: RenderableType) -> Panel:
    return Panel(inside, title=title, title_align="left", height=PANEL_LINES, padding=(0, 1))


def _sale(show: Show) -> RenderableType:
    sample, slots = show.sample, show.plan.slots
    taken = sample.reserved + sample.sold
    full = round(BAR * taken / slots)
    sold = round(BAR * sample.sold / slots)
    bar = Text.assemble(
        ("█" * sold, "green"), ("▓" * (full - sold), "yellow"), ("░" * (BAR - full), "dim")
    )
    rows = Table.grid(padding=(0, 1))
    rows.add_column(style="dim", no_wrap=True, min_width=8)
    rows.add_column(no_wrap=True)
    rows.add_row("seats", Text.assemble(bar, f"  {taken:,}/{slots:,}"))
    rows.add_row("", f"{sample.free:,} free · {sample.reserved:,} reserved · {sample.sold:,} sold")
    rows.add_row("queue", f"{sample.queue:>6,}  {spark(show.queue_history)}")
    rows.add_row(
        "requests",
        f"{show.count('requests'):>6,}  {show.count('yes'):,} yes, {show.count('sold_out'):,} no",
    )
    rate = show.claims_per_s or max(show.rate_history, default=0.0)
    rows.add_row("claims/s", f"{rate:>6,.0f}  {spark(show.rate_history)}")
    rows.add_row(
        "answered",
        f"p50 {show.crowd.get('p50_ms', 0):.0f} ms · p99 {show.crowd.get('p99_ms', 0):.0f} ms",
    )
    rows.add_row("now", Text(show.phase, style="bold"))
    return rows


def _faults(faults: Sequence[Fault]) -> RenderableType:
    rows = Table.grid(padding=(0, 1))
    rows.add_column(style="dim", no_wrap=True, min_width=5)
    rows.add_column(no_wrap=True, min_width=1)
    rows.add_column(no_wrap=True, min_width=25)
    rows.add_column(no_wrap=True, overflow="ellipsis", style="cyan")
    for fault in faults[-(PANEL_LINES - 2) :]:
        sign, colour = _SIGNS.get(fault.state, ("✗", "red"))
        name = f"next: {fault.name}" if fault.state == "next" else fault.name
        rows.add_row(clock(fault.at_s), Text(sign, style=colour), name, fault.outcome)
    return rows


def _refused(show: Show) -> Text:
    counts = show.refused()
    return Text(
        f"double clicks {counts['double_clicks']:,} → same seat   "
        f"stale finishes {counts['stale_finishes']:,}   "
        f"forged tokens {counts['forged_tokens']:,} → 401   "
        f"redelivered {counts['redelivered']:,} → one ticket"
    )


def _proof_line(line: str) -> Text:
    text = Text(f" {line}")
    text.highlight_regex(r"oversold 0 |lost 0 |double 0 |I1…I9 hold.*|proof ok.*", "bold green")
    text.highlight_regex(r"✗.*|broken.*|proof failed.*", "bold red")
    return text
