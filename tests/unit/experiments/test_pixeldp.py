import csv

import numpy as np
import pytest

from expost.experiments.pixeldp_figures import Size, _digits, run


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    told = []
    paths = run(tmp_path_factory.mktemp("pixeldp"), quick=True, progress=lambda *step: told.append(step))
    return paths, told


def test_all_files_are_written_and_progress_ends_at_its_total(files):
    paths, told = files

    assert [path.name for path in paths] == ["pixeldp.md", "pixeldp.png", "pixeldp.svg", "pixeldp.csv"]
    assert all(path.stat().st_size > 500 for path in paths)
    assert told[-1][0] == told[-1][1]


def test_no_certified_prediction_is_flipped_inside_its_radius(files):
    text = files[0][0].read_text(encoding="utf-8")

    assert text.count("| 0 of 20 |") == 2


def test_certified_accuracy_falls_with_the_radius_and_pixeldp_is_below_the_tight_bound(files):
    with files[0][3].open(encoding="utf-8") as file:
        rows = [tuple(map(float, row)) for row in list(csv.reader(file))[1:]]
    for sigma in (0.25, 0.5):
        tight = [row[2] for row in rows if row[0] == sigma]
        published = [row[3] for row in rows if row[0] == sigma]

        assert tight == sorted(tight, reverse=True)
        assert all(low <= high for low, high in zip(published, tight, strict=True))
        assert tight[0] > 0.6


def test_mnist_is_read_where_it_is(tmp_path):
    pixels = np.random.default_rng(1).integers(0, 256, (30, 28, 28), dtype=np.uint8)
    labels = (np.arange(30) % 10).astype(np.uint8)
    np.savez(tmp_path / "mnist.npz", x_train=pixels[:20], y_train=labels[:20], x_test=pixels[20:], y_test=labels[20:])

    digits = _digits(tmp_path, Size(training=15, images=4))

    assert digits.name == "MNIST"
    assert digits.training.shape == (15, 784)
    assert digits.images.max() <= 1
    assert digits.labels.tolist() == [0, 3, 6, 9]
