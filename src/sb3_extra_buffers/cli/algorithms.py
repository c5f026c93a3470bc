"""Algorithms of SB3 and sb3-contrib: which buffer they have, which actions they take, and the code that makes one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sb3_extra_buffers.cli.playing import Experience

WIDEST_CODE = 100
#: Smaller pictures do not get through the convolutions of SB3's CnnPolicy.
SMALLEST_PICTURE = 36


@dataclass(frozen=True)
class Algorithm:
    """What matters about an algorithm.

    :param module: where it is imported from
    :param actions: names of the action spaces that it takes
    :param n_steps: steps of a rollout, by default; 0 for algorithms with a replay buffer
    """

    name: str
    module: str
    actions: tuple[str, ...]
    n_steps: int = 0

    @property
    def kind(self) -> str:
        """The kind of its buffer."""
        return "rollout" if self.n_steps else "replay"


_SB3, _CONTRIB = "stable_baselines3", "sb3_contrib"
_ALL = ("Discrete", "Box", "MultiDiscrete", "MultiBinary")
ALGORITHMS = {
    algorithm.name.lower(): algorithm
    for algorithm in (
        Algorithm("DQN", _SB3, ("Discrete",)), Algorithm("QRDQN", _CONTRIB, ("Discrete",)), Algorithm("SAC", _SB3, ("Box",)),
        Algorithm("TD3", _SB3, ("Box",)), Algorithm("DDPG", _SB3, ("Box",)), Algorithm("TQC", _CONTRIB, ("Box",)),
        Algorithm("CrossQ", _CONTRIB, ("Box",)), Algorithm("PPO", _SB3, _ALL, 2048), Algorithm("A2C", _SB3, _ALL, 5),
        Algorithm("TRPO", _CONTRIB, _ALL, 2048),
    )
}  # fmt: skip
#: What is taken for an action space where nobody says which.
_USUAL = ("dqn", "sac", "ppo")


def choose(name: str | None, action_space: Any) -> Algorithm:
    """The algorithm with this name, or a usual one for the actions; ValueError if it does not take them."""
    fitting = [key for key, one in ALGORITHMS.items() if _takes(one, action_space)]
    if not fitting:
        raise ValueError(f"No algorithm of SB3 takes actions of {action_space}")
    if name is None:
        return ALGORITHMS[next(key for key in _USUAL if key in fitting)]
    if name not in fitting:
        raise ValueError(f"{ALGORITHMS[name].name} takes no actions of {action_space}. --algo may be {', '.join(fitting)}")
    return ALGORITHMS[name]


def _takes(algorithm: Algorithm, action_space: Any) -> bool:
    import numpy as np

    if type(action_space).__name__ not in algorithm.actions:
        return False
    # SB3 scales actions that it keeps in a replay buffer.
    is_bounded = not hasattr(action_space, "low") or bool(np.isfinite([action_space.low, action_space.high]).all())
    return is_bounded or algorithm.kind == "rollout"


def code_to_paste(algorithm: Algorithm, experience: Experience, size: int, method: str | None) -> str:
    """Lines that make a model, with `env` as the user has it.

    :param size: transitions of a replay buffer, or steps of a rollout
    :param method: codec; None for SB3's own buffer
    """
    imports = [f"from {algorithm.module} import {algorithm.name}"]
    arguments = [f'"{policy_of(experience)}"', "env"]
    kind = algorithm.kind
    if kind == "replay":
        arguments.append(f"buffer_size={size:_}")
    elif size != algorithm.n_steps:
        arguments.append(f"n_steps={size:_}")
    if method is not None:
        buffer_class = f"Compressed{'Dict' if experience.is_dict else ''}{kind.capitalize()}Buffer"
        imports.append(f"from sb3_extra_buffers.compressed import {buffer_class}")
        arguments.append(f"{kind}_buffer_class={buffer_class}")
        if method != "auto":
            arguments.append(f'{kind}_buffer_kwargs=dict(compression_method="{method}")')
    call = f"model = {algorithm.name}({', '.join(arguments)})"
    if len(call) > WIDEST_CODE:
        call = "\n".join([f"model = {algorithm.name}(", *(f"    {argument}," for argument in arguments), ")"])
    return "\n".join([*imports, "", call])


def policy_of(experience: Experience) -> str:
    """The policy of SB3 that takes such observations."""
    if experience.is_dict:
        return "MultiInputPolicy"
    height_and_width = sorted(experience.observation_space.shape or ())[-2:]
    return "CnnPolicy" if experience.has_images and min(height_and_width) >= SMALLEST_PICTURE else "MlpPolicy"
