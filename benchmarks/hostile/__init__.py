"""Attacks of one client, and how long an unrelated one then waits: `python -m benchmarks.hostile`.

Three processes beside the broker, so that the cost of one is not measured as a wait of another:

```text
runner    __main__, trial     starts the others, samples the broker's memory and log, prints the table
attacker  attacker, target    prepares every frame, then runs one attack
bystander bystander           sends and receives, round after round, and records each wait
```

Attacks, by theme: `floods`, `selectors`, `bodies`, `growth`, `memory`, `backpressure`, `identity`, `logs`,
`acknowledgements`, `extremes`, `multipliers`, `crowds`, `combinations`, `large`, `lasting`, `mqtt`, `websockets`,
`amqp`.
`attacks` has the registry. `verdict` judges the waits.
"""
