"""Segments: what leaves the process, to a file, to a folder, over a network. Above: the buffers. Below: stores.

spaces    Gymnasium spaces as JSON
values    values of infos as JSON
runs      steps of a buffer, live or in a file, and how they become segments
dealing   steps of some envs distributed over another number of envs
files     files that are replaced as a whole
folders   checkpoint folders
scanning  finds the damaged and the usable segments of a file or folder
"""
