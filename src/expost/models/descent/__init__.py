"""Private stochastic gradient descent to an accuracy target: batches, noise, prices, tests, checkpoints."""
