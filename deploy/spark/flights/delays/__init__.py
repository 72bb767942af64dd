"""First part of the main job: causes of delays, by a query that is upgraded while it runs."""
