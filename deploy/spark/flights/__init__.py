"""The main job: the flights of 2013, counted by a group of Spark executors and a plain worker."""
