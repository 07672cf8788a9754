"""Data: from a dataset's name to checked texts and labels.

sources    where the data comes from: a folder, the hub, or the twin; `find_data` is the door
examples   texts with labels, and the checks that every source passes
local      folders of csv, tsv and parquet files
hub        the hub and its cache: the only module that imports `datasets`
twin       the corpus generated in code
splits     training and selection, 90 to 10
"""
