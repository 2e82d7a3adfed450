"""Makes sections of the report from the tables of the jobs.

Spark aggregates; what comes to the driver has a bound: a row per destination and interval of the largest destinations,
or the first rows of a list.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from pybroker.counted import counted
from pybroker.spark_jobs import report_plots as plots
from pybroker.spark_jobs.history import DESTINATION, Tables
from pybroker.spark_jobs.report_page import ROWS_MAX, HtmlTable, Marked, Section, Tile
from pybroker.spark_jobs.store_names import StoreNames
from pybroker.store.journal.tools.why import Cause

SHOWN: Final = 7
"""Destinations with a colour of their own; the others are summed up."""
NAMED: Final = 15
"""Rows of a plot that has one per name."""
OTHERS: Final = "others"

Drawn = tuple[list[Section], list[Tile]]


def collected(rows: DataFrame, limit: int = ROWS_MAX + 1) -> list[Row]:
    """Bring the first rows to the driver."""
    return rows.limit(limit).collect()


# ---------------------------------------------------------------- queue_report


def draw_queues(tables: Tables, name: StoreNames) -> Drawn:
    """Draw what went through."""
    totals = tables["time_in_queue"].agg(F.sum("consumed"), F.sum("waiting"), F.sum("expired")).collect()[0]
    throughput = _largest(tables["throughput"], F.sum("sent") + F.sum("consumed"))
    produced = tables["producers"].agg(F.sum("messages"), F.sum("bytes"), F.count_distinct("producer_id")).collect()[0]
    producers = counted(produced[2], "producer")
    tiles = [
        Tile("sent", plots.count(produced[0] or 0), f"{plots.size(produced[1] or 0)}, {producers}"),
        Tile("consumed", plots.count(totals[0] or 0)),
        Tile("pending", plots.count(totals[1] or 0)),
        Tile("expired", plots.count(totals[2] or 0)),
    ]
    sections = [
        _throughput(throughput, name),
        _depth(_largest(tables["depth"], F.max("depth")), name),
        _waits(tables, name),
        _sizes(tables, name),
    ]
    return sections, tiles


def _largest(rows: DataFrame, weight: Any) -> list[Row]:
    """Return the rows of the largest destinations, the others' with the name `others`, in order of time."""
    order = rows.groupBy(*DESTINATION).agg(weight.alias("weight")).orderBy(F.desc("weight")).limit(SHOWN).collect()
    kept = {(row.directory, row.destination_type, row.destination) for row in order}
    key = F.concat_ws("\x00", *DESTINATION)
    is_kept = key.isin(["\x00".join(each) for each in kept])
    values = [each for each in rows.columns if each not in (*DESTINATION, "time", "seconds")]
    folded = rows.where(~is_kept).groupBy("time").agg(*(F.sum(each).alias(each) for each in values))
    for each in DESTINATION:
        folded = folded.withColumn(each, F.lit(OTHERS if each == "destination" else "queue"))
    if "seconds" in rows.columns:
        folded = folded.withColumn("seconds", F.lit(0))
    return rows.where(is_kept).unionByName(folded).orderBy("time").collect()


def _series(
    rows: Sequence[Row], value: str, name: StoreNames, *, carried: bool
) -> tuple[list[float], dict[str, list[float]]]:
    """Return times, and per destination a value for each: the last known (`carried`), or 0, where there is none."""
    times = sorted({_seconds(row.time) for row in rows})
    step = max((row.seconds for row in rows if "seconds" in row), default=0)
    if step and times:
        times = [float(each) for each in range(int(times[0]), int(times[-1]) + step + 1, step)]
    found: defaultdict[str, dict[float, float]] = defaultdict(dict)
    for row in rows:
        points = found[name(row)]
        points[_seconds(row.time)] = points.get(_seconds(row.time), 0) + row[value]
    series: dict[str, list[float]] = {}
    for key, points in sorted(found.items(), key=lambda each: (each[0] == OTHERS, -sum(each[1].values()))):
        last, values = 0.0, list[float]()
        for time in times:
            last = points.get(time, last if carried else 0.0)
            values.append(last)
        series[key] = values
    return times, series


def _seconds(time: datetime) -> float:
    return time.timestamp()


def _throughput(rows: Sequence[Row], name: StoreNames) -> Section:
    section = Section("Throughput", "Messages sent per second, by destination; below, all that was sent and consumed.")
    if not rows:
        section.add("No record's time is known.")
        return section
    seconds = max(row.seconds for row in rows) or 1
    times, sent = _series(rows, "sent", name, carried=False)
    _, consumed = _series(rows, "consumed", name, carried=False)
    rates = {key: [each / seconds for each in values] for key, values in sent.items()}
    section.add(plots.areas(rates, times))
    totals = {
        what: list(zip(times, [sum(values) / seconds for values in zip(*series.values(), strict=True)], strict=True))
        for what, series in (("sent", sent), ("consumed", consumed))
    }
    section.add(plots.lines(totals), heading="Sent and consumed, messages per second")
    section.add(f"Counted in intervals of {plots.duration(seconds * 1000)}. Times are UTC.")
    return section


def _depth(rows: Sequence[Row], name: StoreNames) -> Section:
    section = Section("Depth", "How many messages waited, by destination.")
    if rows:
        own = [row for row in rows if row.destination != OTHERS]
        times, series = _series(own, "depth", name, carried=True)
        section.add(plots.lines({key: list(zip(times, values, strict=True)) for key, values in series.items()}))
    section.add("Begins at 0 with the oldest data file: what waited in files since deleted is not known.")
    return section


def _waits(tables: Tables, name: StoreNames) -> Section:
    section = Section("Time in queue", "From a message's arrival until no consumer waited for it any more.")
    rows = collected(tables["time_in_queue"])
    timed = [row for row in rows if row.p50_ms is not None][:NAMED]
    if timed:
        percentiles = (("half", "p50_ms"), ("95 %", "p95_ms"), ("99 %", "p99_ms"))
        section.add(
            plots.ranges([plots.Range(name(row), [(what, row[each]) for what, each in percentiles]) for row in timed])
        )
    headings = [
        "destination",
        "consumed",
        "expired",
        "dead letters",
        "waiting",
        "least",
        "half within",
        "95 % within",
        "99 % within",
        "most",
    ]
    section.add(
        HtmlTable(
            headings,
            [
                (name(row), *(f"{row[column]:,}" for column in _FATES), *(_duration(row[column]) for column in _WAITS))
                for row in rows
            ],
            numbers=range(1, 10),
        )
    )
    section.add(_clock_sentence({row.time_source: row.acknowledgements for row in collected(tables["clock"])}))
    return section


_FATES: Final = ("consumed", "expired", "dead_lettered", "waiting")
_WAITS: Final = ("min_ms", "p50_ms", "p95_ms", "p99_ms", "max_ms")


def _duration(milliseconds: float | None) -> str | None:
    return None if milliseconds is None else plots.duration(milliseconds)


def _clock_sentence(sources: Mapping[str, int]) -> str:
    """Say what the times of acknowledgements are worth."""
    total = sum(sources.values())
    if not total:
        return "There are no acknowledgements."
    marked = sources.get("mark", 0)
    if marked == total:
        return "Times of acknowledgements come from the broker's time marks: at most a second off."
    if not marked:
        return (
            "This journal has no time marks, so times of acknowledgements are estimates: the last arrival before each,"
            " which is too early by however long nothing arrived."
        )
    return (
        f"{marked / total:.0%} of the acknowledgements have a time mark, at most a second off. The others' times are"
        " estimates: the last arrival before each, which is too early by however long nothing arrived."
    )


def _sizes(tables: Tables, name: StoreNames) -> Section:
    section = Section("Sizes and producers", "Bytes a message takes in the journal, and who sent most.")
    sizes: defaultdict[int, dict[str, float]] = defaultdict(dict)
    by_size = tables["sizes"].groupBy(*DESTINATION, "bytes_from").agg(F.sum("messages").alias("sent"))
    largest = by_size.groupBy(*DESTINATION).agg(F.sum("sent").alias("sent")).orderBy(F.desc("sent"))
    order = [name(row) for row in collected(largest, SHOWN)]
    for row in by_size.orderBy("bytes_from").collect():
        key = name(row) if name(row) in order else OTHERS
        sizes[row.bytes_from][key] = sizes[row.bytes_from].get(key, 0) + row.sent
    if sizes:
        powers = [1 << each for each in range(min(sizes).bit_length() - 1, max(sizes).bit_length())]
        ordered = [
            (plots.size(power), {key: sizes[power][key] for key in (*order, OTHERS) if key in sizes[power]})
            for power in powers
        ]
        section.add(plots.columns(ordered), heading="Messages by size, from each power of two on")
    producers = collected(tables["producers"], NAMED)
    bars = [(row.producer_id, row.messages, f"{plots.size(row.bytes)} to {name(row)}") for row in producers]
    section.add(plots.bars(bars), heading="Producers that sent most")
    return section


# ---------------------------------------------------------------- backlog


def draw_backlog(tables: Tables, name: StoreNames) -> Drawn:
    """Draw the pending messages."""
    rows = collected(tables["destinations"])
    section = Section(
        "Backlog", "What is pending at the journal's end, how old it is, and who should have consumed it."
    )
    section.add(plots.bars([(name(row), row.messages, plots.size(row.bytes)) for row in rows[:NAMED]]))
    section.add(
        HtmlTable(
            ["destination", "messages", "bytes", "oldest", "waits for", "last acknowledgement", "oldest message"],
            [
                (
                    name(row),
                    f"{row.messages:,}",
                    plots.size(row.bytes),
                    None if row.age_seconds is None else plots.duration(row.age_seconds * 1000),
                    ", ".join(row.waiting_for) or row.last_consumer_id or "any consumer",
                    row.last_consumed_time or Marked("none in the journal", "warn"),
                    row.oldest_id,
                )
                for row in rows
            ],
            numbers=(1, 2, 3),
        )
    )
    subscriptions = collected(tables["subscriptions"])
    if subscriptions:
        section.add(
            HtmlTable(
                ["durable subscription", "topic", "selector", "pending", "bytes", "oldest"],
                [
                    (
                        each.subscription,
                        name.of(each.directory, each.destination),
                        each.selector,
                        f"{each.pending:,}",
                        plots.size(each.bytes),
                        each.oldest_time,
                    )
                    for each in subscriptions
                ],
                numbers=(3, 4),
            ),
            heading="Durable subscriptions",
        )
    oldest = max((row.age_seconds for row in rows if row.age_seconds is not None), default=None)
    tile = Tile("oldest message", "–" if oldest is None else plots.duration(oldest * 1000), "at the journal's end")
    return [section], [tile]


# ---------------------------------------------------------------- dead_letters


def draw_dead_letters(tables: Tables, name: StoreNames) -> Drawn:
    """Draw dead letters."""
    causes = collected(tables["causes"])
    section = Section("Dead letters", "What came to dead letter queues, where from, and why.")
    bars = [
        (
            name.of(row.directory, row.came_from or "origin unknown"),
            row.messages,
            f"{row.still_there:,} still there: {row.cause}",
        )
        for row in causes[:NAMED]
    ]
    if bars:
        section.add(plots.bars(bars))
    section.add(
        HtmlTable(
            ["queue", "came from", "cause", "messages", "still there", "first", "last"],
            [
                (
                    name(row),
                    row.came_from,
                    row.cause,
                    f"{row.messages:,}",
                    f"{row.still_there:,}",
                    row.first_time,
                    row.last_time,
                )
                for row in causes
            ],
            numbers=(3, 4),
        )
    )
    poison = collected(tables["poison"])
    if poison:
        section.add(
            HtmlTable(
                ["message", "times", "came from", "latest cause", "last"],
                [(row.message_id, row.times, _origin(row, name), row.latest_cause, row.last_time) for row in poison],
                numbers=(1,),
            ),
            heading="Poison: messages that died more than once",
        )
    section.add("Ordinary redeliveries are not journalled, so they are not counted.")
    total = sum(row.messages for row in causes)
    tile = Tile("dead letters", plots.count(total), counted(len(causes), "cause"), "warn" if total else "good")
    return [section], [tile]


def _origin(row: Row, name: StoreNames) -> str | None:
    return None if row.came_from is None else name.of(row.directory, row.came_from)


# ---------------------------------------------------------------- journal_pins

_CAUSE_COLOURS: Final = {
    Cause.WRITTEN.value: 2,
    Cause.MESSAGES.value: 1,
    Cause.TRANSACTION.value: 5,
    Cause.SUBSCRIPTION.value: 6,
    Cause.ANSWERS.value: 3,
}


def draw_pins(tables: Tables, name: StoreNames) -> Drawn:
    """Draw what holds the disk."""
    rows = tables["files"].collect()
    section = Section(
        "What holds the disk", "Each data file, as wide as it is large, in the colour of what holds it first."
    )
    by_file: defaultdict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in rows:
        by_file[row.directory, row.file].append(row)
    strips: defaultdict[str, list[plots.Span]] = defaultdict(list)
    for (directory, file_id), reasons in by_file.items():
        spans = strips[name.store(directory)]
        start = spans[-1].end if spans else 0.0
        first = reasons[0]
        words = f"db-{file_id}.log, {plots.size(first.bytes)}: " + (
            "; ".join(f"{row.cause}: {row.what}" for row in reasons) if first.held else "nothing: it can go"
        )
        colour = _CAUSE_COLOURS.get(first.cause or "", 0) if first.held else 0
        spans.append(plots.Span(start, start + first.bytes, colour, words))
    section.add(plots.strips(list(strips.items()), plots.size, {**_CAUSE_COLOURS, "nothing: it can go": 0}))
    section.add(
        HtmlTable(
            ["file", "bytes", "held by", "what", "how many", "for example", "because of"],
            [
                (
                    name.of(row.directory, f"db-{row.file}.log"),
                    plots.size(row.bytes),
                    row.cause or Marked("nothing", "good"),
                    row.what or "it can go",
                    f"{row.messages:,}" if row.messages else None,
                    row.examples[0] if row.examples else None,
                    " ← ".join(f"db-{each}" for each in row.because) if row.because else None,
                )
                for row in rows
            ],
            numbers=(1, 4),
        )
    )
    size = sum(reasons[0].bytes for reasons in by_file.values())
    free = sum(reasons[0].bytes for reasons in by_file.values() if not reasons[0].held)
    return [section], [Tile("data files", plots.count(len(by_file)), f"{plots.size(size)}, {plots.size(free)} can go")]


# ---------------------------------------------------------------- failovers


def draw_failovers(tables: Tables, name: StoreNames) -> Drawn:
    """Draw who was master."""
    terms = collected(tables["terms"], 500)
    section = Section("Masters", "Who was master, from when to when, as far back as the data files go.")
    strips: defaultdict[str, list[plots.Span]] = defaultdict(list)
    for row in terms:
        if row.started_time is not None:
            start, end = _seconds(row.started_time), _seconds(row.last_time)
            words = f"{_broker(row)}: {plots.moment(start)} to {plots.moment(end)}, {row.ended_by}"
            strips[name.store(row.directory)].append(plots.Span(start, end, 1 + (row.number - 1) % 2, words))
    if strips:
        section.add(plots.strips(list(strips.items()), plots.moment))
    gaps = {(row.directory, row.before_term): row for row in collected(tables["gaps"], 500)}
    section.add(
        HtmlTable(
            ["master", "began with", "started", "last record", "ended by", "messages", "gap before it"],
            [
                (
                    _broker(row),
                    name.of(row.directory, f"db-{row.file}.log"),
                    row.started_time,
                    row.last_time,
                    row.ended_by,
                    f"{row.messages or 0:,}",
                    _gap(gaps.get((row.directory, row.number))),
                )
                for row in terms
            ],
            numbers=(5,),
        )
    )
    section.add(
        "Without a clean stop a gap is the longest it can have been: the master may have lived on, writing nothing."
    )
    return [section], [Tile("masters", plots.count(len(terms)), counted(max(len(terms) - 1, 0), "change"))]


def _broker(row: Row) -> str:
    parts = (row.broker, row.version, None if row.epoch is None else f"epoch {row.epoch}")
    return " ".join(part for part in parts if part)


def _gap(row: Row | None) -> str | None:
    return None if row is None else plots.duration(row.seconds * 1000)


# ---------------------------------------------------------------- audit

_MOODS: Final = {"damage": "bad", "hazard": "warn", "notice": "", "hint": ""}


def draw_audit(tables: Tables, name: StoreNames) -> Drawn:
    """List what does not agree."""
    rows = collected(tables["findings"])
    section = Section("Audit", "Where the journal does not agree with itself, the worst first.")
    section.add(
        HtmlTable(
            ["severity", "check", "file", "offset", "how many", "what"],
            [
                (
                    Marked(row.severity, _MOODS[row.severity]),
                    row.check,
                    name.of(row.directory, f"db-{row.file}.log"),
                    f"{row.offset:,}",
                    f"{row['count']:,}",
                    row.detail,
                )
                for row in rows
            ],
            numbers=(3, 4),
        )
    )
    section.add("Sequence gaps are hints: messages that are not persistent take numbers, and leave no record.")
    damage = sum(row.severity == "damage" for row in rows)
    mood, words = ("bad", counted(damage, "damage")) if damage else ("good", "no damage")
    return [section], [Tile("findings", plots.count(len(rows)), words, mood)]


DRAWN: Final[Mapping[str, tuple[str, Callable[[Tables, StoreNames], Drawn]]]] = {
    "queue_report": ("what went through", draw_queues),
    "backlog": ("what is pending", draw_backlog),
    "dead_letters": ("dead letters", draw_dead_letters),
    "journal_pins": ("what holds the disk", draw_pins),
    "failovers": ("who was master", draw_failovers),
    "audit": ("whether the journal agrees with itself", draw_audit),
}
"""The description and the drawing function of each job, in the order of the page."""
