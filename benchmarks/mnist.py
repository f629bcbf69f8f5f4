"""MNIST and Adult by private gradient descent: what accuracy each epsilon buys, and where accuracy-first training stops.

    python benchmarks/mnist.py [--data ../shared/data] [--fixed 0.035 0.04 0.05 0.1 0.5 2 4] [--target 0.95] [--runs 1] [--plot FILE] [--json FILE]

The features are fixed: no constant of theirs is taken from the data. Gradients of an image are sorted by direction into
eight channels, pooled over cells of 4 x 4 pixels, rooted, centred within each cell and scaled to length one, image by
image (a scattering transform of first order, in spirit). A softmax model on top is trained on all rows at once.
"""

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
DELTA = 1e-5
CHANNELS, CELL = 8, 4


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, default=Path(os.environ.get("EXPOST_DATA", ROOT.parent / "shared" / "data"))
    )
    parser.add_argument("--fixed", type=float, nargs="*", default=[0.035, 0.04, 0.05, 0.1, 0.5, 2.0, 4.0])
    parser.add_argument("--target", type=float, nargs="*", default=[0.95])
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def oriented(images: np.ndarray) -> np.ndarray:
    """Features of some images, each from its own pixels alone."""
    padded = np.pad(images.astype(np.float32) / 255, ((0, 0), (1, 1), (1, 1)))
    down, right = padded[:, 2:, 1:-1] - padded[:, :-2, 1:-1], padded[:, 1:-1, 2:] - padded[:, 1:-1, :-2]
    angle = np.arctan2(down, right) * (CHANNELS / (2 * np.pi)) % CHANNELS
    lower = np.floor(angle).astype(np.intp)
    share, size = angle - lower, np.hypot(down, right)
    channels = np.zeros((len(images), CHANNELS, 28, 28), np.float32)
    place = np.ogrid[: len(images), :28, :28]
    channels[place[0], lower % CHANNELS, place[1], place[2]] += size * (1 - share)
    channels[place[0], (lower + 1) % CHANNELS, place[1], place[2]] += size * share
    centres = (np.arange(28 // CELL) + 0.5) * CELL - 0.5
    window = np.maximum(0, 1 - np.abs(np.arange(28)[None] - centres[:, None]) / CELL).astype(np.float32)
    pooled = np.sqrt(np.einsum("ncij,pi,qj->ncpq", channels, window, window, optimize=True))
    flat = (pooled - pooled.mean(axis=1, keepdims=True)).reshape(len(images), -1)
    return flat / np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1e-6)


def features(images: np.ndarray) -> np.ndarray:
    return np.concatenate([oriented(images[start : start + 5000]) for start in range(0, len(images), 5000)])


def mnist(options: argparse.Namespace) -> dict[str, object]:
    from expost import TargetNotMet
    from expost.models.sgd import SGDClassifier

    begin = time.perf_counter()
    with np.load(options.data / "mnist.npz") as data:
        x, y = features(data["x_train"]), data["y_train"].astype(int)
        x_test, y_test = features(data["x_test"]), data["y_test"].astype(int)
    print(f"MNIST features: {x.shape[1]} an image, {time.perf_counter() - begin:.0f} s")
    terms = {"classes": range(10), "rows": 60_000, "delta": DELTA, "batches": "full"}
    found: dict[str, list[dict[str, float]]] = {"fixed": [], "target": []}
    for epsilon in options.fixed:
        for _ in range(options.runs):
            begin = time.perf_counter()
            model = SGDClassifier(epsilon=epsilon, steps=40 if epsilon < 0.2 else 100, **terms).fit(x, y)
            took = time.perf_counter() - begin
            score = float(np.mean(model.predict(x_test) == y_test))
            found["fixed"].append({"epsilon": model.receipt_.epsilon, "accuracy": score, "seconds": took})
            print(
                f"MNIST fixed    epsilon {model.receipt_.epsilon:6.3f}   test accuracy {score:.4f}   {took:5.1f} s",
                flush=True,
            )
    for target in options.target:
        for _ in range(options.runs):
            begin = time.perf_counter()
            aim = SGDClassifier(target=("accuracy", target), max_epsilon=1.0, steps=110, **terms)
            try:
                release = aim.fit(x, y).release_
            except TargetNotMet as missed:
                release = missed.release
            took = time.perf_counter() - begin
            score = float(np.mean(release.value.scores(x_test).argmax(1) == y_test))
            found["target"].append(
                {"target": target, "epsilon": release.receipt.epsilon, "accuracy": score, "seconds": took}
            )
            print(
                f"MNIST to {target:.3f} epsilon {release.receipt.epsilon:6.3f}   test accuracy {score:.4f}   "
                f"{took:5.1f} s   {release.receipt.outcome.value}",
                flush=True,
            )
    return found


def adult_table(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features in [-1, 1], labels, and which rows are for training; bounds and categories are those of the census form."""
    import polars as pl

    table = pl.read_parquet(path)
    columns = []
    for name, (low, high) in {"age": (17, 90), "education_num": (1, 16), "hours_per_week": (1, 99)}.items():
        columns.append(2 * (table[name].to_numpy().astype(float) - low)[:, None] / (high - low) - 1)
    for name, high in {"capital_gain": 99_999, "capital_loss": 4_356}.items():
        columns.append(np.log1p(table[name].to_numpy().astype(float))[:, None] / np.log1p(high))
    columns.append(((table["age"].to_numpy().astype(float) - 17) / 73)[:, None] ** 2)
    for name in [
        "workclass",
        "education",
        "marital_status",
        "occupation",
        "relationship",
        "race",
        "sex",
        "native_country",
    ]:
        values = table[name].to_numpy()
        columns.append((values[:, None] == np.array(sorted(set(values)))[None]).astype(float))
    labels = (table["income"].str.strip_suffix(".") == ">50K").to_numpy().astype(int)
    return np.hstack(columns), labels, (table["split"] == "train").to_numpy()


def adult(options: argparse.Namespace) -> dict[str, object]:
    from sklearn.linear_model import LogisticRegression

    from expost.models.sgd import SGDClassifier

    x, y, train = adult_table(options.data / "adult.parquet")
    plain = LogisticRegression(C=10, max_iter=2000).fit(x[train], y[train]).score(x[~train], y[~train])
    print(f"Adult plain logistic           test accuracy {plain:.4f}")
    found = {"plain": float(plain), "private": []}
    for epsilon in (0.1, 0.3, 1.0):
        scores = [
            SGDClassifier(epsilon=epsilon, classes=[0, 1], rows=32_000, feature_bound=3.5, delta=DELTA)
            .fit(x[train], y[train])
            .score(x[~train], y[~train])
            for _ in range(max(options.runs, 3))
        ]
        found["private"].append({"epsilon": epsilon, "accuracy": float(np.mean(scores))})
        print(
            f"Adult fixed    epsilon {epsilon:6.3f}   test accuracy {np.mean(scores):.4f}   ({min(scores):.4f} to {max(scores):.4f})"
        )
    return found


def plot(found: dict[str, list[dict[str, float]]], path: Path) -> None:
    from expost.plots.training import draw_training

    runs = {"epsilon given": [(run["epsilon"], run["accuracy"]) for run in found["fixed"]]}
    for run in found["target"]:
        runs.setdefault(f"accuracy {run['target']:g} asked for", []).append((run["epsilon"], run["accuracy"]))
    title = f"MNIST, private softmax on fixed features, delta {DELTA:g}"
    draw_training({name: points for name, points in runs.items() if points}, target=0.95, title=title, path=path)


def main() -> None:
    options = parse()
    if not (options.data / "mnist.npz").exists():
        print(f"Expected mnist.npz and adult.parquet in {options.data}. Pass --data.")
        return
    results = {"mnist": mnist(options), "adult": adult(options)}
    if options.plot:
        plot(results["mnist"], options.plot)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
