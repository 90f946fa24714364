"""Runs a standalone Spark of one master and two workers, and tries the ways in which the package reaches executors."""
