"""Code mode: one tool call runs code that dispatches other tools."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

from .runner import ContextUpdate, ToolError


class CodeMode:
    """Runs a tiny language: lines `name = tool(key=literal)`, or several names on the left and
    `parallel(tool(…), tool(…))` on the right. Keeps what it dispatched, as `tool_call` data."""

    def __init__(self, call_id: str, tools: Mapping[str, Callable[..., Any]]) -> None:
        self.call_id, self.tools = call_id, tools
        self.dispatched: list[dict[str, Any]] = []

    def run(self, code: str) -> dict[str, Any]:
        """The named results, in order. Raises ToolError for anything else."""
        results: dict[str, Any] = {}
        for line in ast.parse(code).body:
            if not isinstance(line, ast.Assign) or not isinstance(line.value, ast.Call):
                raise ToolError("each line is a name, =, and a tool call")
            target, value = line.targets[0], line.value
            names = [part.id for part in ast.walk(target) if isinstance(part, ast.Name)]
            parallel = isinstance(value.func, ast.Name) and value.func.id == "parallel"
            calls = value.args if parallel else [value]
            for name, call in zip(names, calls, strict=True):
                results[name] = self._dispatch(call, "parallel" if parallel else "exclusive")
        return results

    def update(self) -> ContextUpdate:
        """An update that logs each tool call that was dispatched."""
        update = ContextUpdate()
        for dispatched in self.dispatched:
            update.log_event("tool_call", dispatched)
        return update

    def _dispatch(self, call: ast.expr, mode: str) -> Any:
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise ToolError("not a tool call")
        tool = self.tools.get(call.func.id)
        if tool is None:
            raise ToolError(f"no tool {call.func.id}")
        arguments = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
        number = len(self.dispatched)
        self.dispatched.append(
            {
                "id": f"{self.call_id}:code:{number}",
                "name": call.func.id,
                "arguments": arguments,
                "mode": mode,
                "seq": number,
                "source": "code_mode",
            }
        )
        return tool(**arguments)
