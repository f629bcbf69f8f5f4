"""Made-up data with the shape of real ones, for demos, documentation and tests; nobody is in it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

__all__ = ["CARRIERS", "ORIGINS", "generated_flights"]

CARRIERS = ["AA", "B6", "DL", "EV", "MQ", "UA", "US", "WN"]
ORIGINS = ["EWR", "JFK", "LGA"]


def generated_flights(rows: int = 100_000, *, seed: int = 13) -> pa.Table:
    """A table of made-up flights: who flew, from where, how far, how late.

    >>> generated_flights(3).column_names
    ['tailnum', 'carrier', 'origin', 'month', 'hour', 'distance', 'dep_delay', 'arr_delay']
    """
    generator = np.random.default_rng(seed)
    popularity = 1 / np.arange(1, len(CARRIERS) + 1)
    carrier = generator.choice(len(CARRIERS), size=rows, p=popularity / popularity.sum())
    hour = generator.integers(5, 24, size=rows)
    distance = np.round(generator.gamma(4.0, 260.0, size=rows)).clip(80, 5000)
    late = generator.random(rows) < 0.15 + 0.015 * (hour - 5)
    departure = np.round(np.where(late, generator.gamma(1.2, 38.0, size=rows), generator.normal(-4, 4, size=rows)))
    arrival = np.round(departure - 0.002 * distance + 0.8 * carrier + generator.normal(-3, 14, size=rows))
    return pa.table(
        {
            "tailnum": np.char.add("N", generator.integers(1000, 1000 + max(rows // 80, 1), size=rows).astype(str)),
            "carrier": np.asarray(CARRIERS)[carrier],
            "origin": np.asarray(ORIGINS)[generator.choice(3, size=rows, p=[0.36, 0.33, 0.31])],
            "month": generator.integers(1, 13, size=rows),
            "hour": hour,
            "distance": distance,
            "dep_delay": departure.clip(-40, 1300),
            "arr_delay": arrival.clip(-90, 1300),
        }
    )
