"""What the door does to the process that it is in; what it does to requests is tested with the checks that ask."""

import subprocess
import sys

USE = """
import asyncio, os, sys
from fepflow.llm import door
from fepflow.llm.model import Model

assert "litellm" not in sys.modules
async def main():
    model = Model("openai/stand-in", "{base}", "sk-1")
    return (await door.ask(model, [{{"role": "user", "content": "?"}}])).model

print(asyncio.run(main()), os.environ["LITELLM_MODE"], sys.modules["litellm"].DEFAULT_MAX_RETRIES)
"""


def test_a_process_that_asked_says_nothing_else_and_ends(model_server):
    code = USE.format(base=f"{model_server.address}/v1")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr) == ("stand-in (stand-in) PRODUCTION 0\n", "")
