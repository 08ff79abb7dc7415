"""The schemas of `produce --json` and `consume --json` describe all that these print."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import TypeAdapter

from mirrortest.consume.consume_summary import ConsumeSummary
from mirrortest.produce.produce_summary import ProduceSummary
from tests.unit.golden import summaries

EACH = {"produce": ProduceSummary, "consume": ConsumeSummary}


def undescribed(value: Any, schema: dict[str, Any], root: dict[str, Any], at: str) -> list[str]:
    """The keys of a document that its schema does not have, with their paths."""
    for choice in schema.get("anyOf", ()):
        if (choice.get("type") == "null") == (value is None):
            schema = choice
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rsplit("/", 1)[1]]
    found = []
    if isinstance(value, dict):
        named = schema.get("properties", {})
        rest = schema.get("additionalProperties", not named)
        for key, each in value.items():
            inner = named.get(key, rest)
            if inner is False:
                found.append(f"{at}.{key}")
            elif isinstance(inner, dict):
                found += undescribed(each, inner, root, f"{at}.{key}")
    if isinstance(value, list) and isinstance(items := schema.get("items"), dict):
        for each in value:
            found += undescribed(each, items, root, f"{at}[]")
    return found


@pytest.mark.parametrize("kind", EACH)
def test_a_summary_fits_its_schema_and_has_no_more(kind: str) -> None:
    """It may be of an empty run or have all fields; an unknown key is detected."""
    adapter: TypeAdapter[Any] = TypeAdapter(EACH[kind])
    schema = adapter.json_schema(mode="serialization")
    for document in ("nothing sent" if kind == "produce" else "nothing read", "all fields"):
        printed = json.loads(json.dumps(summaries.document()[kind][document]))
        adapter.validate_json(json.dumps(printed), strict=True)
        assert undescribed(printed, schema, schema, kind) == []
    assert set(printed) == set(schema["properties"])
    printed["whole" if kind == "produce" else "reading"]["new"] = 1
    assert undescribed(printed, schema, schema, kind) != []
