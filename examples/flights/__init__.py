"""The pieces of `flights_pipeline.py`: where flights come from, how they are sent, how they land, and what is said about it."""
