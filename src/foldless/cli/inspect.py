"""`foldless inspect`: what a model file holds."""

from __future__ import annotations

from foldless.cli import options
from foldless.cli.terminal import exit_codes


def inspect(model: options.ModelFile) -> None:
    """Say what a model file holds: who made it, of what, and how well it does. Nothing in it is run.

    \b
    Example:
      foldless inspect results/model.safetensors
    """
    with exit_codes() as terminal:
        with terminal.status("Starting"):
            import foldless
            from foldless.io.archive import read_archive
            from foldless.runs.printing import print_model
        archive = read_archive(model, with_arrays=False)
        print_model(terminal, archive.metadata, foldless.load(model))
