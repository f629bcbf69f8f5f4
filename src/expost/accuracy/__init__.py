"""Stopping: climbs, free certificates, billed tests, the black-box ladder and the 2017 paper's methods."""
