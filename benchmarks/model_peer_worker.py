"""Finds the smallest epsilon at which a library's model reaches a score; runs in any Python that has that library.

    python benchmarks/model_peer_worker.py PEER DATA.npz

The file holds the rows as numbers, the target, and the terms of the search. Every documented setting of the library is tried at every
epsilon of the grid, from the smallest on, and judged on the exact scores, which cost nothing here: that favours the library.
The answer is one line of JSON: the epsilon (null if none of the grid is enough), the setting, its scores, and the best score seen.
"""

import json
import math
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import Any

import numpy as np

Fit = Callable[[float, int], float]
"""A training at an epsilon, with the number of the run as its seed: the score on the rows."""


def diffprivlib_fits(rows: np.ndarray, target: np.ndarray, terms: dict[str, Any]) -> Iterator[tuple[str, Fit]]:
    """Yield its models for this kind of target, in the settings that its manual names."""
    from diffprivlib import models

    if not terms["classifies"]:
        limits = rows.min(axis=0), rows.max(axis=0)
        middle = np.quantile(target, [0.005, 0.995])  # of the exact target, for free
        for name, ends in {"as declared": terms["target_bounds"], "around 99 % of the targets": middle}.items():

            def fit_line(epsilon: float, seed: int, ends: tuple[float, float] = tuple(map(float, ends))) -> float:
                model = models.LinearRegression(epsilon=epsilon, bounds_X=limits, bounds_y=ends, random_state=seed)
                return float(model.fit(rows, np.clip(target, *ends)).score(rows, target))

            yield f"LinearRegression, bounds {name}", fit_line
        return
    norm = float(np.linalg.norm(rows, axis=1).max())
    for penalty in (1.0, 100.0):

        def fit_logistic(epsilon: float, seed: int, penalty: float = penalty) -> float:
            model = models.LogisticRegression(
                epsilon=epsilon, data_norm=1.0, C=penalty, max_iter=300, random_state=seed
            )
            return float(model.fit(rows / norm, target).score(rows / norm, target))

        yield f"LogisticRegression, C={penalty:g}", fit_logistic
    limits = rows.min(axis=0), rows.max(axis=0)

    def fit_bayes(epsilon: float, seed: int) -> float:
        model = models.GaussianNB(epsilon=epsilon, bounds=limits, random_state=seed)
        return float(model.fit(rows, target).score(rows, target))

    yield "GaussianNB", fit_bayes


def opacus_fits(rows: np.ndarray, target: np.ndarray, terms: dict[str, Any]) -> Iterator[tuple[str, Fit]]:
    """Yield private gradient descent of one linear layer with its usual settings, at the delta of this package."""
    import torch
    from opacus import GradSampleModule
    from opacus.accountants.utils import get_noise_multiplier
    from opacus.optimizers import DPOptimizer

    torch.set_num_threads(1)
    classes, codes = np.unique(target, return_inverse=True)
    spread = rows.std(axis=0)
    inputs = torch.tensor((rows - rows.mean(axis=0)) / np.where(spread > 0, spread, 1), dtype=torch.float32)
    if terms["classifies"]:
        width, wanted, loss = len(classes), torch.tensor(codes), torch.nn.CrossEntropyLoss()
    else:
        low, high = terms["target_bounds"]
        scaled = (target - (low + high) / 2) / max((high - low) / 2, 1e-9)
        width, wanted, loss = 1, torch.tensor(scaled, dtype=torch.float32)[:, None], torch.nn.MSELoss()
    for rate in (0.5, 2.0):

        def fit(epsilon: float, seed: int, rate: float = rate) -> float:
            torch.manual_seed(seed)
            share, count = 0.05, 100
            terms_of_noise = {"target_delta": terms["delta"], "sample_rate": share, "accountant": "rdp"}
            noise = get_noise_multiplier(target_epsilon=epsilon, steps=count, **terms_of_noise)
            steps = GradSampleModule(torch.nn.Linear(inputs.shape[1], width))
            optimizer = DPOptimizer(
                torch.optim.SGD(steps.parameters(), lr=rate),
                noise_multiplier=noise,
                max_grad_norm=1.0,
                expected_batch_size=int(share * len(rows)),
            )
            for _ in range(count):
                batch = torch.rand(len(rows)) < share  # Poisson samples, without the cost of its data loader
                optimizer.zero_grad()
                loss(steps(inputs[batch]), wanted[batch]).backward()
                optimizer.step()
            with torch.no_grad():
                found = steps(inputs)
                if terms["classifies"]:
                    return float((found.argmax(dim=1) == wanted).float().mean())
                return float(1 - ((found - wanted) ** 2).mean() / wanted.var(correction=0))

        yield f"one linear layer, learning rate {rate:g}", fit


PEERS = {"diffprivlib": diffprivlib_fits, "opacus": opacus_fits}


def fit_or_refusal(fit: Fit, epsilon: float, seed: int) -> float:
    """Return the score of one training; a library that refuses such an epsilon does not reach any."""
    try:
        return fit(epsilon, seed)
    except ValueError:
        return -math.inf


def search(fits: list[tuple[str, Fit]], terms: dict[str, Any]) -> dict[str, Any]:
    """Return the smallest epsilon of the grid at which some setting reaches the score in nine of ten runs."""
    runs = terms["runs"]
    best: dict[str, Any] = {"score": -math.inf, "epsilon": None, "setting": None}
    for epsilon in terms["grid"]:
        for setting, fit in fits:
            scores: list[float] = []
            while len(scores) < runs and sum(score < terms["wanted"] for score in scores) <= 0.1 * runs:
                scores.append(fit_or_refusal(fit, epsilon, len(scores)))
            if statistics.median(scores) > best["score"]:
                best = {"score": statistics.median(scores), "epsilon": epsilon, "setting": setting}
            if sum(score >= terms["wanted"] for score in scores) >= 0.9 * runs:
                return {"epsilon": epsilon, "setting": setting, "scores": scores, "best": best}
    return {"epsilon": None, "setting": None, "scores": [], "best": best}


def serve(peer: str, path: str) -> None:
    warnings.simplefilter("ignore")
    with np.load(path) as data:
        rows, target, terms = data["rows"], data["target"], json.loads(str(data["terms"]))
    start = time.process_time()
    found = search(list(PEERS[peer](rows, target, terms)), terms)
    print(json.dumps(found | {"version": version(peer), "CPU seconds": round(time.process_time() - start, 1)}))


if __name__ == "__main__":
    serve(*sys.argv[1:])
