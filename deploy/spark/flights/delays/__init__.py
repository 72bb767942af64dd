"""The second part of the main job: what delays a flight, as a stream that two queries share."""
