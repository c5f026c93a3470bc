"""The device store: frames on a torch device, and what keeps them there. The only part of the store that imports torch."""
