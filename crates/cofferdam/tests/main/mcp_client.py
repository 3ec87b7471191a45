"""Drives `cofferdam mcp` with the official Python client; says what does not hold and ends with 1."""

import asyncio
import json
import os
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

PROGRAM, WORKSPACE = sys.argv[1:3]


def of(result, *names):
    """A field of a result, by whichever of its spellings this client has."""
    for name in names:
        if hasattr(result, name):
            return getattr(result, name)
    raise AssertionError(f"none of {names} in {result!r}")


def structured(result):
    return of(result, "structured_content", "structuredContent")


def is_error(result):
    return bool(of(result, "is_error", "isError"))


async def call(session, tool, /, **arguments):
    return await session.call_tool(tool, arguments)


async def commands(session):
    result = await call(session, "run_command", command="echo hi; echo no >&2; exit 3")
    value = structured(result)
    assert not is_error(result), result
    assert (value["status"], value["return_code"]) == ("failed", 3), value
    assert (value["stdout"], value["stderr"]) == ("hi\n", "no\n"), value
    assert "exit code 3" in result.content[0].text, result.content

    result = await call(session, "run_command", argv=["printf", "%s|", "a b", "$HOME"])
    assert structured(result)["stdout"] == "a b|$HOME|", result


async def errors(session):
    for arguments, code in [
        ({"command": "true", "grants": ["all"]}, "invalid_request"),
        ({"command": "true", "timeout": 0}, "invalid_timeout"),
        ({"command": "true", "workspace": "/usr"}, "workspace_mismatch"),
    ]:
        result = await session.call_tool("run_command", arguments)
        assert is_error(result), result
        assert structured(result)["error"]["code"] == code, result
        assert code in result.content[0].text, result


async def environment(session):
    result = await call(session, "describe_environment")
    value = structured(result)
    assert value["workspace"] == os.path.realpath(WORKSPACE), value
    assert value["text"] == result.content[0].text
    assert value["isolation"]["effective"]["provider"] == "direct", value


async def background(session):
    """Starts a command, follows its output by offset, and ends it."""
    result = await call(
        session,
        "run_command_background",
        command="echo one; sleep 300; echo two",
        wait_seconds=0,
    )
    value = structured(result)
    assert value["background"] is True and value["status"] == "running", value
    command = value["command_id"]
    text, offset = "", 0
    for _ in range(100):
        result = await call(
            session, "command_read", command_id=command, stream="stdout", offset=offset
        )
        page = structured(result)
        assert not is_error(result), result
        text += page["content"]
        offset = page["next_offset"]
        if text:
            break
        await asyncio.sleep(0.05)
    assert text == "one\n", text
    result = await call(session, "command_cancel", command_id=command)
    assert not is_error(result), result
    result = await call(session, "command_wait", command_id=command, limit_seconds=20)
    assert "cancelled" in json.dumps(structured(result)), result


def outcome(result):
    value = structured(result)
    return value.get("result", value)


async def shell_session(session):
    """What a person expects to stay, stays; what must not poison the next command does not."""
    value = structured(await call(session, "session_open", mode="shell"))
    name = value.get("session_id") or value["name"]
    await call(session, "session_run", session=name, command="mkdir -p sub; cd sub; export A=b")
    result = await call(session, "session_run", session=name, command="echo $A; basename $PWD")
    assert outcome(result)["stdout"] == "b\nsub\n", result
    result = await call(session, "session_run", session=name, command="exit 3")
    assert outcome(result)["return_code"] == 3, result
    result = await call(session, "session_run", session=name, command="echo next")
    assert outcome(result)["stdout"] == "next\n", result
    result = await call(session, "session_close", session=name)
    assert not is_error(result), result


async def terminal(session):
    """Opens a terminal, types a command, and reads the screen."""
    result = await call(session, "terminal_open", name="one")
    assert not is_error(result), result
    result = await call(session, "terminal_input", name="one", text="echo $((40 + 2))", output_wait=20)
    assert "42" in json.dumps(structured(result)), result
    result = await call(session, "terminal_snapshot", name="one")
    assert "42" in json.dumps(structured(result)), result
    result = await call(session, "terminal_close", name="one")
    assert not is_error(result), result


async def files(session):
    """Writes a file, reads and edits it, and is refused what lies outside."""
    result = await call(session, "write_file", path="notes.txt", content="one\ntwo\n")
    assert structured(result)["bytes"] == 8, result
    result = await call(session, "read_file", path="notes.txt")
    assert structured(result)["content"] == "one\ntwo\n", result
    replacements = [{"old_string": "two", "new_string": "2"}]
    result = await call(session, "edit_file", path="notes.txt", replacements=replacements)
    assert structured(result)["replacements"] == 1, result
    with open(os.path.join(WORKSPACE, "notes.txt"), encoding="utf-8") as file:
        assert file.read() == "one\n2\n"
    replacements = [{"old_string": "nothing", "new_string": "x"}]
    result = await call(session, "edit_file", path="notes.txt", replacements=replacements)
    assert is_error(result), result
    assert structured(result)["error"]["code"], result
    result = await call(session, "path_validate", path="/etc/shadow", access="write")
    assert structured(result)["allowed"] is False, result


async def main():
    server = StdioServerParameters(
        command=PROGRAM,
        args=["mcp", "--workspace", WORKSPACE, "--provider", "direct", "--net", "full"],
        env=dict(os.environ),
    )
    async with stdio_client(server) as (reader, writer):
        async with ClientSession(reader, writer) as session:
            hello = await session.initialize()
            assert WORKSPACE in hello.instructions, hello
            tools = {tool.name: tool for tool in (await session.list_tools()).tools}
            for name, tool in tools.items():
                schema = of(tool, "input_schema", "inputSchema")
                assert schema["type"] == "object", name
                assert of(tool, "output_schema", "outputSchema")["type"] == "object", name
            hints = tools["describe_environment"].annotations
            assert of(hints, "read_only_hint", "readOnlyHint") is True, hints
            hints = tools["run_command"].annotations
            assert of(hints, "destructive_hint", "destructiveHint") is True, hints
            await commands(session)
            await errors(session)
            await environment(session)
            await files(session)
            await background(session)
            await shell_session(session)
            await terminal(session)
    print("good:", ", ".join(sorted(tools)))


asyncio.run(main())
