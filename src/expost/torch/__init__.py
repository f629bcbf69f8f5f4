"""Private training of PyTorch models to an accuracy; needs the extra ``torch``."""

import importlib.util

from expost.core import MissingExtra

if importlib.util.find_spec("torch") is None:
    raise MissingExtra("torch", package="torch")

from expost.torch.network_training import train

__all__ = ["train"]
