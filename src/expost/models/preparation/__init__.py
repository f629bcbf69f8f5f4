"""Private preparation of tables: scaling, principal components, feature selection, and pipelines with one receipt."""
