"""The models that an explorer can open, and the text that they read."""

from pathlib import Path
from typing import Any

from torch import Tensor

from cca_lab import files
from cca_lab.models import load_pretrained
from cca_lab.models.checkpoints import quiet
from cca_lab.views.explorer.listening import ModelText


class Library:
    """Models by name, each loaded when it is first opened: the given one and those that are shipped.

    Args:
        model: a shipped model's name, a folder, or a model.
        tokenizer: of a model; a folder has its own.

    Attributes:
        names: of the models.
        name: of the one opened last.
        text: the text opened last; None if token ids were given.

    Raises:
        ValueError: if the tokenizer of a folder is given.
    """

    def __init__(self, model: Any, tokenizer: Any = None) -> None:
        shipped = {folder.name: folder for folder in sorted(files.models_folder().iterdir())
                   if (folder / "config.json").is_file()}
        self._open: dict[str, tuple[Any, Any]] = {}
        self._folders: dict[str, str] = {name: str(folder) for name, folder in shipped.items()}
        self.text: str | None = None
        if isinstance(model, str | Path):
            if tokenizer is not None:
                raise ValueError("tokenizer: got one beside a folder, wanted none; it is loaded with the model")
            self.name = Path(model).name
            if str(model) not in shipped:
                self._folders[self.name] = str(model)
        else:
            self.name = Path(str(getattr(getattr(model, "config", None), "name_or_path", ""))).name or "model"
            self._open[self.name] = model, tokenizer
        self._given: str | Tensor = ""

    @property
    def names(self) -> list[str]:
        """The models that can be opened: the given one first."""
        return sorted({*self._folders, *self._open}, key=lambda name: (name != self.name, name))

    def open(self, name: str | None, text: str | Tensor | None) -> ModelText:
        """Return a model that reads a text; None for the one opened last.

        Raises:
            ValueError: for an unknown name, a model that cannot be loaded, or a text that cannot be read.
        """
        name, given = self.name if name is None else name, self._given if text is None else text
        if name not in self.names:
            raise ValueError(f"model: got {name!r}, wanted one of {', '.join(self.names)}")
        if name not in self._open:
            quiet()
            self._open[name] = load_pretrained(self._folders[name])
        source = ModelText(*self._open[name], given, name)
        self.name, self._given, self.text = name, given, given if isinstance(given, str) else None
        return source
