"""The verdict of the Spark benchmark: a line per target, and which are reached."""

from benchmarks.report import Row
from benchmarks.spark_scan import verdicts


def test_each_target_has_a_line_and_a_word() -> None:
    decoder: list[Row] = [
        {"columns": "six (6)", "times plain Python": 8.1},
        {"columns": "headers (41)", "times plain Python": 1.0},
        {"columns": "all (45)", "times plain Python": 3.9},
    ]
    memory: list[Row] = [{"most resident, MB": 100.0}, {"most resident, MB": 126.0}]
    spark: list[Row] = [
        {"columns": "six (6)", "cores": 1, "per core times plain Python": 2.0, "times fewer cores": 1.0},
        {"columns": "six (6)", "cores": 2, "per core times plain Python": 1.0, "times fewer cores": 1.5},
    ]
    found = [(row["measured"], row["target"], row["verdict"]) for row in verdicts(decoder, memory, spark)]
    assert found == [
        (8.1, ">= 8", "pass"),
        (3.9, ">= 4", "FAIL"),
        (1.26, "<= 1.25", "FAIL"),
        (2.0, ">= 2", "pass"),
        (1.5, ">= 1.6", "FAIL"),
    ]


def test_without_spark_there_is_no_line_for_it() -> None:
    memory: list[Row] = [{"most resident, MB": 100.0}, {"most resident, MB": 100.0}]
    assert [row["verdict"] for row in verdicts([], memory, [])] == ["pass"]
