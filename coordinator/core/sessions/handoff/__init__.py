"""The way of a partition from one holder to the next."""
