"""The load table: time to sample a batch for each codec, on the same game played at random."""

from __future__ import annotations

import statistics
import time

from shared import comparison_arguments, filled_buffers
from stable_baselines3.common.buffers import ReplayBuffer


def milliseconds(buffer: ReplayBuffer, batch_size: int, repeats: int) -> float:
    """Median time to sample one batch; the first, which may have to load a codec, does not count."""
    spent = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        buffer.sample(batch_size)
        spent.append(1e3 * (time.perf_counter() - start))
    return statistics.median(spent[1:])


def main(argv: list[str] | None = None) -> dict[str, list[float]]:
    parser = comparison_arguments(__doc__)
    parser.add_argument("--batch-sizes", nargs="+", type=int, default=[32, 256])
    parser.add_argument("--repeats", type=int, default=30)
    args = parser.parse_args(argv)
    buffers, _ = filled_buffers(args)
    print(f"| buffer | {' | '.join(f'sample({size}), ms' for size in args.batch_sizes)} |")
    print(f"|---{'|---' * len(args.batch_sizes)}|")
    table = {}
    for name, buffer in buffers.items():
        table[name] = [milliseconds(buffer, size, args.repeats) for size in args.batch_sizes]
        print(f"| {name} | {' | '.join(f'{ms:.2f}' for ms in table[name])} |")
    return table


if __name__ == "__main__":
    main()
