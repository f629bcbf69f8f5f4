"""The papers' figures and the data they are drawn from; may import anything, imported by the command line only."""
