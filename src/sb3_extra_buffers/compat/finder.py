"""Former module paths for `import`: a module that has the names of `paths`, each looked up when it is first used.

The finder stands behind Python's own, so a file of the same name would win. It imports nothing until such a path is asked for.
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_PACKAGE = __name__.partition(".")[0]


class FormerModule(ModuleType):
    """A module of 0.5: its names are elsewhere now. One that is named like a function can be called like it."""

    _where: dict[str, str]
    _called: str | None

    def __getattr__(self, name: str) -> Any:
        where = self.__dict__.get("_where", {}).get(name)
        if where is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{_PACKAGE}.{where}"), name)
        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._where})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._called is None:
            raise TypeError(f"module {self.__name__!r} is not callable")
        return getattr(self, self._called)(*args, **kwargs)


class FormerModules:
    """Finder and loader of the former module paths."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        if not name.startswith(f"{_PACKAGE}."):
            return None
        from sb3_extra_buffers.compat.paths import FORMER_PATHS

        former = name.removeprefix(f"{_PACKAGE}.")
        if former not in FORMER_PATHS:
            return None
        return ModuleSpec(name, self, is_package=any(one.startswith(f"{former}.") for one in FORMER_PATHS))  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """See `importlib.abc.Loader`."""
        return FormerModule(spec.name, "A module of sb3-extra-buffers 0.5. Its names are elsewhere now.")

    def exec_module(self, module: ModuleType) -> None:
        """See `importlib.abc.Loader`."""
        from sb3_extra_buffers.compat.paths import CALLED, FORMER_PATHS

        former = module.__name__.removeprefix(f"{_PACKAGE}.")
        where = {name: module for module, names in FORMER_PATHS[former].items() for name in names.split()}
        vars(module).update(_where=where, _called=CALLED.get(former), __all__=sorted(where))


_FINDER = FormerModules()


def serve_former_paths() -> None:
    """Let `import` find the former module paths. Does nothing the second time."""
    if _FINDER not in sys.meta_path:
        sys.meta_path.append(_FINDER)
