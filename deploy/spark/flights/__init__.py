"""The main job: the flights of 2013, shared by streaming queries, then by executors and others."""
