"""Content hashes: what decides whether a result is still valid."""

import ast
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

LENGTH = 16  # hex digits; 64 bits are ample for thousands of runs


def content_digest(value: Any) -> str:
    """Hash plain data (dicts, lists, scalars); the order of keys does not matter."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:LENGTH]


def code_digest(files: Iterable[Path]) -> str:
    """Hash what Python files do: comments, docstrings and layout do not count."""
    trees = [ast.dump(_without_docstrings(ast.parse(path.read_text()))) for path in files]
    return content_digest(trees)


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            first = body[0].value
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                node.body = body[1:]
    return tree
