"""Segments: what leaves the process, to a file, to a folder, over a network. Above: the buffers. Below: stores.

spaces    Gymnasium spaces as JSON
values    values of infos as JSON
runs      steps of a buffer, live or in a file, and how they become segments
dealing   steps of some envs dealt to another number of envs
files     files that are replaced as a whole
folders   checkpoint folders
scanning  what is damaged in a file or folder, and what is not
"""
