"""The JSON Schema of each topic and version: kept in the database, compared once by each process.

Events outlive deployments: what was published under a version must still be readable under it, by
old code and by new. So within one version only optional fields may come and go.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

_IGNORED = ("title", "description", "default", "examples", "$defs", "$schema")
_REF = "#/$defs/"
_OTHERS = "additionalProperties"
_DEPTH_MAX = 20


def schema_of(model: Any) -> dict[str, Any] | None:
    """The schema of a payload's model, references resolved; None where none can be made."""
    make = getattr(model, "model_json_schema", None)
    try:
        schema: dict[str, Any] = make() if make is not None else msgspec.json.schema(model)
    except (TypeError, ValueError):
        return None
    flat = _resolved(schema, schema.get("$defs", {}), 0)
    return flat if isinstance(flat, dict) else None


def differences(old: Mapping[str, Any], new: Mapping[str, Any], at: str = "$") -> Iterator[str]:
    """What makes two schemas of one version incompatible, in words; nothing if they are not."""
    if "properties" not in old or "properties" not in new:
        if old != new:
            yield f"{at} has another type"
        return
    before, after = set(old.get("required", ())), set(new.get("required", ()))
    yield from (f"{at}.{name} is now required" for name in sorted(after - before))
    yield from (f"{at}.{name} is no longer always there" for name in sorted(before - after))
    known, named = set(old["properties"]), set(new["properties"])
    # A model may refuse fields that it does not name. Then none can come or go: events of the other
    # one are around, before, during and after a deployment.
    if old.get(_OTHERS) is False or new.get(_OTHERS) is False:
        yield from (f"{at}.{name} is not accepted by both" for name in sorted(known ^ named))
    for name in sorted(known & named):
        yield from differences(old["properties"][name], new["properties"][name], f"{at}.{name}")


def merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of a version: the new schema, and the optional fields that events still have.

    Forgotten, such a field could come back with another type.
    """
    if "properties" not in old or "properties" not in new:
        return dict(new)
    before, after = old["properties"], new["properties"]
    fields = {name: merged(before[name], field) for name, field in after.items() if name in before}
    return {**new, "properties": {**before, **after, **fields}}


def _resolved(node: Any, definitions: Mapping[str, Any], depth: int) -> Any:
    """The node with references replaced by what they mean, and without what means nothing."""
    if isinstance(node, list):
        return [_resolved(each, definitions, depth) for each in node]
    if not isinstance(node, dict):
        return node
    reference = str(node.get("$ref", ""))
    if reference.startswith(_REF):
        name = reference.removeprefix(_REF)
        # A model that holds itself is compared down to a depth and by name below it.
        if depth > _DEPTH_MAX:
            return {"$ref": name}
        return _resolved(definitions[name], definitions, depth + 1)
    return {
        key: _properties(value, definitions, depth)
        if key == "properties"
        else _resolved(value, definitions, depth)
        for key, value in node.items()
        if key not in _IGNORED
    }


def _properties(fields: Mapping[str, Any], definitions: Mapping[str, Any], depth: int) -> Any:
    """Fields by name: here a field called title is a field."""
    return {name: _resolved(field, definitions, depth) for name, field in fields.items()}
