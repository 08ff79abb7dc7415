"""The base of the models of our versioned JSON documents."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from mirrortest.config.visible import visible_json


class DocumentPart(BaseModel):
    """A document, or an object in one.

    A reader ignores fields that a newer writer has added; a new meaning raises the version.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")


class Document(DocumentPart):
    """A document that is shown to users."""

    def encode(self) -> str:
        """The document's text, safe to show."""
        return visible_json(self.model_dump_json(indent=2)) + "\n"
