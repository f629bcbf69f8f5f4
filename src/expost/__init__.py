"""State the accuracy you need. Get the most private answer that reaches it, and a receipt for what it cost."""

__version__ = "0.1.0"
