"""``python -m expost``."""

from expost.cli import main

if __name__ == "__main__":
    main()
