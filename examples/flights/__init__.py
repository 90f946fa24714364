"""The parts of `flights_pipeline.py`: source of the flights, sender, ingest to Parquet, and report."""
