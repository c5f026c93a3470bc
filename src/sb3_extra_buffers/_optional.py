"""Optional backends: import one when it is used, or say which extra brings it."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from types import ModuleType

from sb3_extra_buffers.errors import MissingBackendError


def installed(module: str) -> bool:
    """Whether ``module`` could be imported; does not import it.

    :param module: top-level module name
    """
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # ValueError: a module put into sys.modules by hand, without a spec
        return False


def require(module: str, *, extra: str, what: str) -> ModuleType:
    """The imported ``module``, or an error that names the extra to install.

    :param module: dotted module name
    :param extra: extra of this distribution that installs it
    :param what: who needs it, for the error message
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingBackendError(f'{what} needs the {package} package: pip install "sb3-extra-buffers[{extra}]"') from error
