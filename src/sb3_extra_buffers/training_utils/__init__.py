"""Envs, evaluation and warm-up for training with compressed buffers. Below: SB3. Anything with SB3's `add` is a buffer here.

`atari.make_env` and `vizdoom.make_env` make vectorized envs; `eval_model.eval_model` plays episodes and fills buffers;
`buffer_warmup.warm_up` fills them before training; `summary.summarize` puts the rewards into two lines.
"""
