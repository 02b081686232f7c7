from foldless.cli import app

app()
