"""Second part of the main job: causes of delays, as a stream that two queries share."""
