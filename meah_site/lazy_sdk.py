"""Make importing the MCP SDK cheap, for a server that speaks over stdio and nothing else.

Three things cost most of a start: the packages' own `__init__` (client, web servers, OAuth), the web half of the
low-level server, and models that are built before anybody uses them. All three wait until they are asked for.
Together this is worth about a third of the start-up time.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, Final

# What `mcp.server.lowlevel.server` imports for `streamable_http_app` alone.
WEB_HALF: Final = (
    "starlette.applications",
    "starlette.middleware",
    "starlette.middleware.authentication",
    "starlette.routing",
    "mcp.server.auth.middleware.auth_context",
    "mcp.server.auth.middleware.bearer_auth",
    "mcp.server.auth.provider",
    "mcp.server.auth.routes",
    "mcp.server.auth.settings",
    "mcp.server.streamable_http",
    "mcp.server.streamable_http_manager",
    "mcp.server.transport_security",
)


def install() -> None:
    """Call before anything imports `mcp` or `mcp_types`; a second call changes nothing."""
    import pydantic

    pydantic.BaseModel.model_config["defer_build"] = True
    mcp = _lazy_package("mcp", None)
    mcp.server = _lazy_package("mcp.server", list(mcp.__path__))  # type: ignore[attr-defined]
    _import_server()


def _import_server() -> None:
    """The low-level server without its web half: that stays usable by name, and is found out when it is called.

    The stand-ins are gone from `sys.modules` afterwards, so that whoever needs the real modules gets them.
    """
    stand_ins = {name: _StandIn(name) for name in WEB_HALF if name not in sys.modules}
    sys.modules.update(stand_ins)
    try:
        importlib.import_module("mcp.server.lowlevel.server")
    finally:
        for name in stand_ins:
            sys.modules.pop(name, None)


class _StandIn(ModuleType):
    """Gives every name that is imported from it; none of them does anything."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _NotHere(f"{self.__name__}.{name}")


class _NotHere:
    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *_: object, **__: object) -> Any:
        raise RuntimeError(f"{self._name} is not there in a process that imported the MCP SDK for stdio alone")


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
