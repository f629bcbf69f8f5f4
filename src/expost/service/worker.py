"""The application of one process of a server, which is started with the settings in an environment variable."""

from __future__ import annotations

import dataclasses
import json
import os

from fastapi import FastAPI

from expost.service.curator import Curator
from expost.service.http_app import create_app
from expost.service.service_settings import ServiceSettings

__all__ = ["application"]


def application() -> FastAPI:
    """Return the application of the settings named in ``EXPOST_SERVICE``."""
    given = json.loads(os.environ["EXPOST_SERVICE"])
    settings = ServiceSettings.read(given.pop("path"))
    return create_app(Curator(dataclasses.replace(settings, **given)))
