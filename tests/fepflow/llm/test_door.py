"""What the door does to the process that it is in; what it does to requests is tested with the checks that ask."""

import subprocess
import sys

USE = """
import asyncio, os, sys
from fepflow.llm import door
from fepflow.llm.model import Model

assert "litellm" not in sys.modules
async def main():
    started = asyncio.get_running_loop().time()
    asking = asyncio.create_task(door.ask(Model("openai/stand-in", "{base}", "sk-1"), [{{"role": "user", "content": "?"}}]))
    longest = 0.0
    while not asking.done():
        before = asyncio.get_running_loop().time()
        await asyncio.sleep(0.01)
        longest = max(longest, asyncio.get_running_loop().time() - before)
    return (await asking).model, longest

print(asyncio.run(main())[0], os.environ["LITELLM_MODE"], sys.modules["litellm"].DEFAULT_MAX_RETRIES)
"""


def test_a_process_that_asked_says_nothing_else_and_ends(model_server):
    code = USE.format(base=f"{model_server.address}/v1")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr) == ("stand-in (stand-in) PRODUCTION 0\n", "")
