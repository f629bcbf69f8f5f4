"""Models that are as private as their accuracy allows: ridge, logistic regression, Huber support vectors."""
