#!/usr/bin/env python3
"""Load on a server with OpenAI's completions endpoint, by clients that each send one request after the other.

Usage: load.py URL --model NAME [--clients N] [--requests N] [--prompt N] [--new N] [--seed N] [--schema FILE]

Prompts are random token ids, so that no tokenizer is needed and no two share a prefix; tokens are greedy and end at --new. Prints one
JSON line: tokens per second from the first request to the last answer, milliseconds to the first token, and between tokens, as median
and 95th percentile. With --schema answers follow that JSON schema, and end where they are complete. Each client keeps its connection.
"""
import argparse
import asyncio
import json
import random
import time
import urllib.parse


class Connection:
    """A connection that is kept for one request after the other."""

    def __init__(self, host, port):
        self.host, self.port, self.streams = host, port, None

    async def open(self):
        if self.streams is None:
            self.streams = await asyncio.open_connection(self.host, self.port, limit=1 << 20)
        return self.streams

    async def lines(self, reader):
        """The lines of an answer that comes in chunks."""
        rest = b""
        while size := int(await reader.readline(), 16):
            rest += (await reader.readexactly(size + 2))[:-2]
            *lines, rest = rest.split(b"\n")
            for line in lines:
                yield line
        await reader.readline()

    async def request(self, text):
        """Sends a request with a streamed answer; when it was sent, the times at which the answer's events came, the tokens."""
        reader, writer = await self.open()
        begin = time.perf_counter()
        writer.write(f"POST /v1/completions HTTP/1.1\r\nHost: {self.host}\r\nContent-Type: application/json\r\n"
                     f"Content-Length: {len(text)}\r\n\r\n".encode() + text)
        status = await reader.readline()
        if b" 200 " not in status:
            raise SystemExit(f"{status.decode().strip()}: {(await reader.read(1000)).decode()[-300:]}")
        while (await reader.readline()).strip():
            pass
        times, done, usage = [], False, None
        async for line in self.lines(reader):
            if not line.startswith(b"data: "):
                continue
            if line.startswith(b"data: [DONE]"):
                done = True
            elif b'"usage":{' in line:
                usage = json.loads(line[6:])["usage"]
            else:
                times.append(time.perf_counter())
        if not done or usage is None:
            raise SystemExit("an answer ended before its end")
        return begin, times, usage["completion_tokens"]


async def client(address, args, number, found):
    draw = random.Random(f"{args.seed}-{number}")
    connection = Connection(*address)
    for _ in range(args.requests // args.clients):
        body = {"model": args.model, "prompt": [draw.randrange(args.vocab) for _ in range(args.prompt)], "max_tokens": args.new,
                "temperature": 0, "stream": True, "stream_options": {"include_usage": True}}
        if args.schema:
            with open(args.schema) as file:
                body["structured_outputs"] = {"json": json.load(file)}
        else:
            body["ignore_eos"] = True
        begin, times, tokens = await connection.request(json.dumps(body).encode())
        found.append({"first": times[0] - begin, "tokens": tokens, "between": (times[-1] - times[0]) / max(tokens - 1, 1)})


def part(values, share):
    return sorted(values)[min(int(len(values) * share), len(values) - 1)] * 1e3


async def run(args):
    url = urllib.parse.urlparse(args.url)
    found = []
    begin = time.perf_counter()
    await asyncio.gather(*(client((url.hostname, url.port), args, number, found) for number in range(args.clients)))
    seconds = time.perf_counter() - begin
    tokens = sum(each["tokens"] for each in found)
    print(json.dumps({"clients": args.clients, "requests": len(found), "prompt": args.prompt, "new": args.new, "seconds": seconds,
                      "tokens": tokens, "tokens_per_s": tokens / seconds,
                      **{f"{name}_{share}_ms": part([each[name] for each in found], share / 100)
                         for name in ("first", "between") for share in (50, 95)}}), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--model", required=True)
    parser.add_argument("--clients", type=int, default=1)
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--new", type=int, default=128)
    parser.add_argument("--vocab", type=int, default=128000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--schema")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
