"""Holds the cluster metadata, the schedule of Metadata requests, and the expiry of unused topics."""
