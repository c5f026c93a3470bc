"""The save table: memory and time to add for each codec, on the same game played at random."""

from __future__ import annotations

from shared import comparison_arguments, filled_buffers

from sb3_extra_buffers.callbacks import transition_memory


def main(argv: list[str] | None = None) -> dict[str, float]:
    args = comparison_arguments(__doc__).parse_args(argv)
    buffers, seconds = filled_buffers(args)
    print(f"| buffer | MB | % of SB3 | add, us per step of {args.n_envs} envs |\n|---|---|---|---|")
    stored = {name: transition_memory(buffer).stored_bytes / 1e6 for name, buffer in buffers.items()}
    for (name, mb), spent in zip(stored.items(), seconds, strict=True):
        print(f"| {name} | {mb:.2f} | {mb / stored['SB3']:.2%} | {1e6 * spent / buffers[name].buffer_size:.0f} |")
    return stored


if __name__ == "__main__":
    main()
