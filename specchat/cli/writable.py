"""Files that commands write."""

import os
from pathlib import Path
from typing import Any

import click


class Writable(click.ParamType[Path]):
    """A file to write, refused at once where its folder is not there: figures must not be lost at the end."""

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(value)
        if os.path.isdir(path):
            self.fail(f"{path} is a folder. Give a file.", param, ctx)
        if not os.path.isdir(path.absolute().parent):
            self.fail(f"{path} cannot be written: there is no folder {path.absolute().parent}.", param, ctx)
        return path


WRITABLE = Writable()
