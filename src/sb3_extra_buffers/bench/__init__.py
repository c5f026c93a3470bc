"""Benchmarks: real frames into buffers of several kinds, each measured in a fresh process of its own.

frames     workloads: recorded frames, noise, vectors              (what is added)
recording  plays the games that the recordings are of
buffers    SB3's buffers, ours, and the peers                      (what it is added to)
measure    one buffer or one training, in this process
standalone starts `measure` before this library is imported        (`python path/to/standalone.py JOB`)
jobs       starts those processes in turns and takes medians
peers      virtual environments of other libraries
bars       what is promised, and whether it is kept
kinds      kinds of observations, and what stands for them
sizes      bytes per frame by kind of observation, which `estimate` goes by
report     tables, Markdown, plots

`frames`, `buffers`, `measure` and `standalone` run before this library is imported, and in the virtual environment of a peer,
where `sb3_extra_buffers` may be another version. So the modules here import each other relatively, and from this library only
inside of functions.
"""
