"""Profiles: how a cluster is asked for a job."""
