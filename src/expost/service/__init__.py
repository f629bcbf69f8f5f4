"""A service over HTTP: owners register tables, analysts ask about them, and nobody sees a row. Needs the extra ``service``."""

import importlib.util

from expost.core import MissingExtra

if importlib.util.find_spec("fastapi") is None:
    raise MissingExtra("service", package="fastapi")

from expost.service.access_token import Identity, Role
from expost.service.curator import Curator
from expost.service.http_app import create_app
from expost.service.service_settings import DatasetSettings, RequestLimits, ServiceSettings

__all__ = ["Curator", "DatasetSettings", "Identity", "RequestLimits", "Role", "ServiceSettings", "create_app"]
