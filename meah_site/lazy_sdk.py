"""Make importing the MCP SDK cheap: its packages run their `__init__` only when something in them is asked for.

`mcp` and `mcp.server` import the client, the web server and OAuth at import time; a stdio server needs none of it.
Models are built at their first use (`defer_build`). Together this is worth about a quarter of the start-up time.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any


def install() -> None:
    """Call before anything imports `mcp` or `mcp_types`; a second call changes nothing."""
    import pydantic

    pydantic.BaseModel.model_config["defer_build"] = True
    mcp = _lazy_package("mcp", None)
    mcp.server = _lazy_package("mcp.server", list(mcp.__path__))  # type: ignore[attr-defined]


def _lazy_package(name: str, path: Sequence[str] | None) -> ModuleType:
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.machinery.PathFinder.find_spec(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{name} is not installed", name=name)
    module, loader = importlib.util.module_from_spec(spec), spec.loader

    def load(attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        module.__dict__.pop("__getattr__", None)
        loader.exec_module(module)
        return getattr(module, attribute)

    module.__getattr__ = load  # type: ignore[method-assign]
    sys.modules[name] = module
    return module
