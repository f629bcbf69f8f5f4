"""Private gradient steps per second: ours, Opacus in its modes, and plain PyTorch, interleaved in one run.

    python benchmarks/sgd.py [--threads 1] [--batch 256] [--rounds 5] [--json FILE]

Everybody takes the same model, batch size, optimiser (no momentum, no averages) and number of steps on made-up MNIST-like rows. Ours draws exact Poisson batches and
exact cryptographic noise; Opacus and plain PyTorch take ready batches, slices of rows that lie side by side, Opacus adds float noise. A second plain PyTorch gathers shuffled rows, as a training does.
One thread is timed by what it uses of the processor, so that others on the machine matter less; several threads are timed by the clock.
"""

import argparse
import json
import os
import statistics
import time
import warnings
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

ROWS = 20_000
IMAGE = (1, 28, 28)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def main() -> None:
    options = parse()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    import torch
    from torch import nn

    torch.set_num_threads(options.threads)
    threadpool_limits(options.threads)  # NumPy was imported before, and would use every core
    warnings.simplefilter("ignore")
    generator = np.random.default_rng(0)
    images = generator.random((ROWS, *IMAGE), dtype=np.float32)
    labels = generator.integers(0, 10, ROWS)

    def linear() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))

    def mlp() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))

    def cnn() -> nn.Module:  # the network of Opacus's MNIST example
        return nn.Sequential(
            nn.Conv2d(1, 16, 8, 2, padding=3),
            nn.ReLU(),
            nn.MaxPool2d(2, 1),
            nn.Conv2d(16, 32, 4, 2),
            nn.ReLU(),
            nn.MaxPool2d(2, 1),
            nn.Flatten(),
            nn.Linear(512, 32),
            nn.ReLU(),
            nn.Linear(32, 10),
        )

    results = {}
    for name, make, steps in (("linear 784x10", linear, 60), ("mlp 784-128-10", mlp, 30), ("cnn", cnn, 6)):
        runners: dict[str, Callable[[], None]] = {
            "plain PyTorch": plain(make(), images, labels, options.batch, steps),
            "plain PyTorch, shuffled": plain(make(), images, labels, options.batch, steps, shuffled=True),
            "Opacus, hooks": opacus(make(), images, labels, options.batch, steps, "hooks"),
            "Opacus, ghost clipping": opacus(make(), images, labels, options.batch, steps, "ghost"),
            "expost, torch": ours_torch(make(), images, labels, options.batch, steps),
        }
        if name.startswith("linear"):
            runners["expost, NumPy"] = ours_numpy(images, labels, options.batch, steps)
        clock = time.process_time if options.threads == 1 else time.perf_counter
        results[name] = measured(runners, options.batch * steps, options.rounds, clock)
        report(name, results[name])
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


def measured(
    runners: dict[str, Callable[[], None]], samples: int, rounds: int, clock: Callable[[], float]
) -> dict[str, float]:
    """Samples a second, the median of interleaved rounds."""
    times: dict[str, list[float]] = {name: [] for name in runners}
    for run in runners.values():
        run()
    for _ in range(rounds):
        for name, run in runners.items():
            begin = clock()
            run()
            times[name].append(clock() - begin)
    return {name: samples / statistics.median(values) for name, values in times.items()}


def report(name: str, speeds: dict[str, float]) -> None:
    ours = max(speed for who, speed in speeds.items() if who.startswith("expost"))
    for who, speed in speeds.items():
        print(f"{name:16} {who:24} {speed:10,.0f} samples/s   ours is {ours / speed:5.2f}x")


def plain(model, images, labels, batch: int, steps: int, *, shuffled: bool = False) -> Callable[[], None]:
    import torch
    from torch import nn

    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs, targets = torch.from_numpy(images), torch.from_numpy(labels)

    def run() -> None:
        order = torch.randperm(ROWS)
        for step in range(steps):
            part = slice(step * batch % ROWS, step * batch % ROWS + batch)
            chosen = order[part] if shuffled else part
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs[chosen]), targets[chosen]).backward()
            optimizer.step()

    return run


def opacus(model, images, labels, batch: int, steps: int, mode: str) -> Callable[[], None]:
    import torch
    from opacus import PrivacyEngine
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs, targets = torch.from_numpy(images), torch.from_numpy(labels)
    loader = DataLoader(TensorDataset(inputs, targets), batch_size=batch)
    terms = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "poisson_sampling": False}
    criterion = nn.CrossEntropyLoss()
    if mode == "ghost":
        model, optimizer, criterion, _ = PrivacyEngine().make_private(
            module=model,
            optimizer=optimizer,
            data_loader=loader,
            criterion=criterion,
            grad_sample_mode="ghost",
            **terms,
        )
    else:
        model, optimizer, _ = PrivacyEngine().make_private(
            module=model, optimizer=optimizer, data_loader=loader, grad_sample_mode="hooks", **terms
        )

    def run() -> None:
        for step in range(steps):
            part = slice(step * batch % ROWS, step * batch % ROWS + batch)
            optimizer.zero_grad()
            criterion(model(inputs[part]), targets[part]).backward()
            optimizer.step()

    return run


def steps_of(learner, steps: int, batch: int) -> Callable[[], None]:
    """The steps of a training as ``Trainer`` takes them: sample, measure, release, descend."""
    from expost.models.descent.training_schedule import Phase, Poisson
    from expost.noise import system_bits
    from expost.noise.gaussian_stream import GaussianStream

    bits = system_bits()
    sensitivity = learner.open(Phase(steps, Fraction(1)), float(batch))
    stream = GaussianStream(1, sensitivity, size=learner.size, bits=bits)
    batches = Poisson(Fraction(batch, ROWS), ROWS).draw_batch(ROWS, bits)

    def run() -> None:
        for _ in range(steps):
            learner.take_step(stream.release(learner.measure(next(batches))))

    return run


def ours_torch(model, images, labels, batch: int, steps: int) -> Callable[[], None]:
    import torch

    from expost.torch.module_learner import ModuleProblem
    from expost.torch.network_rows import read_rows
    from expost.torch.network_training import _cross_entropy

    problem = ModuleProblem(
        model, _cross_entropy, 1.0, lambda weights: torch.optim.SGD(weights, lr=0.01), 0.0, torch.device("cpu")
    )
    return steps_of(problem.table(read_rows((images, labels))).learner(slice(None), None), steps, batch)


def ours_numpy(images, labels, batch: int, steps: int) -> Callable[[], None]:
    from expost.models.descent.descent_rule import DescentRule
    from expost.models.descent.feature_grid import FeatureGrid
    from expost.models.descent.linear_learner import LinearProblem
    from expost.models.descent.score_head import Softmax

    problem = LinearProblem(
        FeatureGrid(784, bound=16.0), Softmax(10), 1.0, DescentRule(0.01, momentum=0.0, averaging=0.0)
    )
    table = problem.table(images.reshape(ROWS, -1), labels.astype(np.intp))
    return steps_of(table.learner(slice(None), None), steps, batch)


if __name__ == "__main__":
    main()
