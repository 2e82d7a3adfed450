"""False alarms of Prometheus during an hour of failovers under load: `python -m benchmarks.alarms`.

```text
__main__   starts all, and reports
run        the course of a run: disturbances, and alarms that are due
members    a pair that is disturbed, and the facts about it
load       clients that send and receive through every failover
truth      compares the alarms of Prometheus with the facts
```
"""
