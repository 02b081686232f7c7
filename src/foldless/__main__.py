"""python -m foldless: the command line, where its own name is not on the path."""

from foldless.cli import app

if __name__ == "__main__":
    app()
