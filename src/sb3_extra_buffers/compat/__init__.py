"""What sb3-extra-buffers 0.5 had and where it is now: module paths, names, and the few classes that have no successor.

    compressed.compressed_replay is imported -> finder -> paths: its names are in compressed.replay

`finder` serves the former module paths to `import`, and so to pickles: a saved model names the class of its buffer by its
module. `paths` is the table. The other modules hold what exists for code of 0.5 alone; nothing else in the package uses them.
"""
