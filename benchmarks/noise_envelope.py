"""Simulates the table behind expost.accuracy.NoiseEnvelope and writes it into the package. Takes about ten minutes."""

import argparse
import json
from pathlib import Path

from expost.accuracy.noise_envelope import simulate_stretches, table_row
from expost.noise import SeededBits

TABLE = Path(__file__).parents[1] / "src" / "expost" / "accuracy" / "noise_envelope.json"
SIZES = [*range(1, 17), *range(18, 33, 2), 36, 40, 44, 48, 52, 56, 64, 72, 77, 84, 96, 112, 128, 160, 192, 256]


def draws_for(size: int) -> int:
    return 20_000 if size <= 40 else 10_000 if size <= 84 else 5_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    options = parser.parse_args()
    for size in options.sizes:
        draws = simulate_stretches(size, draws_for(size), bits=SeededBits(20_170_000 + size))
        row = table_row(draws, size)
        known = json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.exists() else {}
        known[str(size)] = row
        ordered = {key: known[key] for key in sorted(known, key=int)}
        TABLE.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
        print(size, row["matrix"], row["factors"], flush=True)


if __name__ == "__main__":
    main()
