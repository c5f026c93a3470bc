"""Envs as a user of SB3 would make them: what `gym.make` takes, or a file; Atari with its preprocessing; channels first."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import isclass
from types import ModuleType
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec, find_highest_version, get_env_id, parse_env_id
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.env_util import make_atari_env, make_vec_env
from stable_baselines3.common.preprocessing import get_action_dim, get_obs_shape
from stable_baselines3.common.vec_env import VecEnv, VecFrameStack

from sb3_extra_buffers._optional import installed, require
from sb3_extra_buffers.cli.finding import attribute, find, import_file, import_named, split_call, split_file
from sb3_extra_buffers.training_utils.atari import register_games

ATARI_STACK = 4
WRAPPERS = "gymnasium.wrappers"
Wrap = Callable[[Any], Any]


@dataclass(frozen=True)
class EnvOptions:
    """What goes with the name of an env.

    :param imports: modules or files to import before, which register envs
    :param kwargs: arguments of the env
    :param wrappers: around each env, the innermost first: ``module.Name``, ``file.py:Name``, with ``(size=84)`` behind or not
    """

    imports: Sequence[str] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    wrappers: Sequence[str] = ()


def make_env(
    name: str, *, n_envs: int | None = 1, frame_stack: int | None = None, seed: int = 0, options: EnvOptions | None = None
) -> VecEnv:
    """The vectorized env that SB3's algorithms would see.

    :param name: what `gym.make` takes, or ``file.py:Name`` with a class, a function that makes an env, or an id
    :param n_envs: envs side by side; None for 1, or for as many as a function has that makes a VecEnv
    :param frame_stack: frames in an observation; None for 4 with Atari's preprocessing, 1 otherwise
    """
    gym.logger.min_level = gym.logger.ERROR
    options = options or EnvOptions()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about versions of envs: not what was asked
        for module in options.imports:
            import_one(module)
        found, wrapper = find_env(name), chain(options.wrappers)
        try:
            if isinstance(found, EnvSpec):
                envs, stack = _registered(found, n_envs or 1, seed, options, wrapper)
            else:
                envs, stack = _called(name, found, n_envs, seed, options, wrapper), 1
        except TypeError as error:
            if "argument" not in str(error):
                raise
            raise ValueError(f"{name} was not made: {error}. --env-kwargs NAME=VALUE gives an env its arguments") from error
        stack = frame_stack or stack
        if stack > 1:
            envs = VecFrameStack(envs, stack)
        return BaseAlgorithm._wrap_env(envs, verbose=0)  # what every SB3 algorithm does: image channels first


def import_one(name: str) -> ModuleType:
    """A module or a file, by its name."""
    in_file = split_file(name)
    return import_named(name) if in_file is None else import_file(in_file[0])


# ---- names


def find_env(name: str) -> EnvSpec | Callable[..., Any]:
    """The registered env, or the class or function that makes it."""
    in_file = split_file(name)
    if in_file is not None:
        path, wanted = in_file
        before = set(gym.registry)
        module = import_file(path)
        return _in_module(module, wanted or _only_env(module, before, str(path)), str(path))
    package, colon, wanted = name.partition(":")
    return _in_module(import_named(package), wanted, package) if colon else find_spec(name)


def _in_module(module: ModuleType, name: str, where: str) -> EnvSpec | Callable[..., Any]:
    """An env that importing a module has registered, or something that it has."""
    if name in gym.registry or not hasattr(module, name):
        try:
            return find_spec(name)
        except ValueError:
            if not name.isidentifier():
                raise
    found = attribute(module, name, where)
    if not callable(found):
        raise ValueError(f"{name!r} of {where} must be an env class or a function that makes an env, got {found!r}")
    made: Callable[..., Any] = found
    return made


def _only_env(module: ModuleType, before: set[str], where: str) -> str:
    """The env of a file, where its name is not given: the only id that it registers, or its only env class."""
    ids = sorted(set(gym.registry) - before)
    classes = [value for value in vars(module).values() if isclass(value) and value.__module__ == module.__name__]
    own = [one.__name__ for one in classes if issubclass(one, gym.Env) and not issubclass(one, gym.Wrapper)]
    found = ids or own
    if len(found) != 1:
        there = f"It has {', '.join(found)}" if found else "It has no env class and registers no id"
        raise ValueError(f"Say which env of {where} is meant: {where}:NAME, a class, a function, or an id. {there}")
    return found[0]


def find_spec(env_id: str) -> EnvSpec:
    """The registered env, after registering those of ale-py and ViZDoom where they are installed."""
    name = env_id.rpartition("/")[2]
    if env_id.startswith("ALE/") or "NoFrameskip" in name:
        require("cv2", extra="atari", what=f"Env {env_id!r}")
        require("ale_py", extra="atari", what=f"Env {env_id!r}")
    if name.startswith("Vizdoom"):
        require("vizdoom.gymnasium_wrapper", extra="vizdoom", what=f"Env {env_id!r}")
    if installed("ale_py"):
        register_games()
    try:
        namespace, base, version = parse_env_id(env_id)
        if version is None and (latest := find_highest_version(namespace, base)) is not None:
            env_id = get_env_id(namespace, base, latest)  # as `gym.make` does
        return gym.spec(env_id)
    except gym.error.Error as error:
        is_unknown = isinstance(error, (gym.error.NameNotFound, gym.error.NamespaceNotFound))
        hint = " Envs of a package must be imported first: --import PACKAGE" if is_unknown else ""
        raise ValueError(f"No env {env_id!r}. {str(error).strip()}{hint}") from error


# ---- making


def _registered(spec: EnvSpec, n_envs: int, seed: int, options: EnvOptions, wrapper: Wrap) -> tuple[VecEnv, int]:
    """Envs by their id, and how many frames are stacked by default. Wrappers of the user take the place of Atari's."""
    kwargs = dict(options.kwargs)
    if not options.wrappers and is_atari(spec, kwargs):
        # SB3's wrapper skips frames itself.
        return make_atari_env(spec.id, n_envs, seed, env_kwargs={"frameskip": 1, **kwargs}), ATARI_STACK
    return make_vec_env(spec.id, n_envs, seed, env_kwargs=kwargs, wrapper_class=wrapper), 1


def _called(
    name: str,
    make: Callable[..., Any],
    n_envs: int | None,
    seed: int,
    options: EnvOptions,
    wrapper: Wrap,
) -> VecEnv:
    """Envs by a class or function. A VecEnv that it makes is taken as it is."""
    first = make(**options.kwargs)
    if isinstance(first, VecEnv):
        if options.wrappers or n_envs not in (None, first.num_envs):
            first.close()
            raise ValueError(
                f"{name} makes a VecEnv of {first.num_envs} envs, which is taken as it is: leave out --wrapper and --n-envs"
            )
        check_spaces(first)
        first.seed(seed)
        return first
    if not hasattr(first, "reset") or not hasattr(first, "step"):
        raise ValueError(f"{name} must make an env, got {type(first).__name__}")
    made = [first]  # so that a function that counts, say, is not called once more than there are envs
    return make_vec_env(lambda: made.pop() if made else make(**options.kwargs), n_envs or 1, seed, wrapper_class=wrapper)


def chain(wrappers: Sequence[str]) -> Wrap:
    """A function that puts all wrappers around an env, and refuses one that SB3 cannot take."""
    found = []
    for text in wrappers:
        name, kwargs = split_call(text)
        found.append((name, find(name, default=WRAPPERS), kwargs))

    def wrap(env: Any) -> Any:
        for name, wrapper, kwargs in found:
            try:
                env = wrapper(env, **kwargs)
            except TypeError as error:
                example = "'ResizeObservation(shape=(84, 84))'"
                raise ValueError(f"--wrapper {name}: {error}. Arguments stand behind the name, as in {example}") from error
        check_spaces(env)
        return env

    return wrap


def check_spaces(env: Any) -> None:
    """Refuse spaces that SB3 has no buffer for, before SB3 makes an array of them."""
    try:
        get_obs_shape(env.observation_space)
        get_action_dim(env.action_space)
    except NotImplementedError as error:
        raise ValueError(f"SB3 has no buffer for this env: {error}. A wrapper may help: --wrapper") from error


def is_atari(spec: EnvSpec, kwargs: Mapping[str, Any]) -> bool:
    """Whether it is an ALE game that is seen as pictures."""
    return "ale_py" in str(spec.entry_point) and {**spec.kwargs, **kwargs}.get("obs_type", "rgb") != "ram"
